"""Which threshold supports a promise, and what to do where none does.

A promise such as "99 % of the hits are right" is kept only where an exact one-sided bound says so (Clopper and Pearson
1934), and the threshold is found without looking twice at the same error: the candidates are tested from the strictest
on, and the first failure ends the search (fixed-sequence testing). So that one early error does not end it for good,
the search starts anew at twice, four times … as many hits, each with its share of the error probability (Bonferroni).
The order of the tests depends on the confidences alone, never on the labels. This is "Learn then Test" (Angelopoulos,
Bates, Candès, Jordan, Lei 2021, §2.2) with the multi-start fixed sequence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.stats import beta

from eval.calibration.samples import Flags, Sample, Scores, rights, scores
from eval.statistics import wilson

__all__ = ["Choice", "Goal", "Point", "choose", "hits_needed", "least_share", "most_share", "point_at"]

STEP = 1.05
"""Between two thresholds that are tested the number of hits grows by this factor."""
VERIFY_AT = 0.95
"""``verify`` is this quantile of the confidence in wrong candidates."""
MOST_NEEDED = 10_000_000


@dataclass(frozen=True, slots=True)
class Goal:
    """What is to be promised, with which certainty.

    ``precision``: at least ``value`` of the hits are right. ``budget``: of the turns whose stored answer is not right
    at most ``value`` are served it. ``equal_share`` is the share of look-ups whose best stored answer is right, where
    it is known and the file does not reflect it; it matters to ``precision`` only.
    """

    kind: Literal["precision", "budget"] = "precision"
    value: float = 0.99
    certainty: float = 0.95
    equal_share: float | None = None

    def __post_init__(self) -> None:
        """Raises ``ValueError`` for a goal that cannot be."""
        if not 0 < self.value < 1 or not 0.5 <= self.certainty < 1:
            raise ValueError("a precision, a budget and a certainty lie between 0 and 1; no data can promise 1")
        if self.equal_share is not None and not 0 < self.equal_share < 1:
            raise ValueError("the share of equal turns lies between 0 and 1")

    def __str__(self) -> str:
        share = f"{100 * self.value:g} %"
        what = (
            f"{share} of the hits right" if self.kind == "precision" else f"at most {share} of wrong candidates served"
        )
        return f"{what}, with {100 * self.certainty:g} % certainty"


@dataclass(frozen=True, slots=True)
class Point:
    """What one threshold does to the samples; shares 0 … 1."""

    threshold: float
    right: int  # hits that are right
    wrong: int
    n_right: int  # samples whose candidate is right
    n_wrong: int

    @property
    def hits(self) -> int:
        """Samples served."""
        return self.right + self.wrong

    def as_json(self) -> dict[str, object]:
        """The figures with their 95 % intervals (Wilson)."""
        return {
            "threshold": self.threshold,
            "hits": self.hits,
            "right": self.right,
            "wrong": self.wrong,
            "precision": self.right / self.hits if self.hits else None,
            "precision_ci": list(wilson(self.right, self.hits)),
            "right_rate": self.right / self.n_right if self.n_right else None,
            "right_ci": list(wilson(self.right, self.n_right)),
            "wrong_rate": self.wrong / self.n_wrong if self.n_wrong else None,
            "wrong_ci": list(wilson(self.wrong, self.n_wrong)),
            "n_right": self.n_right,
            "n_wrong": self.n_wrong,
        }


@dataclass(frozen=True, slots=True)
class Choice:
    """The thresholds that keep the promise; ``answer`` is None where the samples do not support any."""

    goal: Goal
    answer: float | None
    verify: float
    at: Point | None  # what ``answer`` does
    bound: float | None  # one-sided: precision is at least, or the share served wrong at most, this
    needed: int  # the least there must be, without a single error, to support the promise
    have: int  # how many of them there are: hits for a precision, wrong candidates for a budget
    needed_at_this_rate: int | None  # the same with the error share seen in the best part; None: that never suffices
    why_not: str = ""


def least_share(successes: int, trials: int, alpha: float) -> float:
    """One-sided lower bound of a share that holds with probability 1 − ``alpha`` (Clopper–Pearson); 0 for no trial."""
    return float(beta.ppf(alpha, successes, trials - successes + 1)) if successes else 0.0


def most_share(successes: int, trials: int, alpha: float) -> float:
    """One-sided upper bound; 1 for no trial."""
    return float(beta.ppf(1 - alpha, successes + 1, trials - successes)) if successes < trials else 1.0


def point_at(samples: Sequence[Sample], threshold: float) -> Point:
    """What ``threshold`` would do; a confidence of 0 is never served."""
    return _point(scores(samples), rights(samples), threshold)


def _point(score: Scores, right: Flags, threshold: float) -> Point:
    served = (score >= threshold) & (score > 0)
    return Point(
        float(threshold),
        int((served & right).sum()),
        int((served & ~right).sum()),
        int(right.sum()),
        int((~right).sum()),
    )


def hits_needed(goal: Goal, wrong_share: float = 0.0, alpha: float | None = None) -> int | None:
    """Fewest observations that support the goal where this share of them is wrong; None where none ever do.

    Observations are hits for a precision (wrong candidates where the share of equal turns is given) and wrong
    candidates for a budget.
    """
    alpha = 1 - goal.certainty if alpha is None else alpha
    allowed = _allowed(goal)
    if wrong_share >= allowed:
        return None

    def enough(n: int) -> bool:
        return most_share(math.ceil(wrong_share * n), n, alpha) <= allowed

    low, high = 0, 1
    while not enough(high):
        low, high = high, 2 * high
        if high > MOST_NEEDED:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _allowed(goal: Goal) -> float:
    """The share of observations that may be wrong."""
    if goal.kind == "budget":
        return goal.value
    if goal.equal_share is None:
        return 1 - goal.value
    # Every right candidate served, precision p: wrong share f with  s / (s + (1 - s) f) = p.
    return min(0.999, goal.equal_share * (1 - goal.value) / (goal.value * (1 - goal.equal_share)))


def choose(samples: Sequence[Sample], goal: Goal) -> Choice:
    """The lowest ``answer`` that supports the goal, and ``verify``; for want of data it says what is lacking."""
    score, right = scores(samples), rights(samples)
    n_wrong = int((~right).sum())
    by_hits = goal.kind == "precision" and goal.equal_share is None
    least = hits_needed(goal)
    assert least is not None  # some number without an error always does
    have = int((score > 0).sum()) if by_hits else n_wrong
    verify = float(np.quantile(score[~right], VERIFY_AT)) if n_wrong else 0.0
    sequences = _sequences(score, goal, least)
    level = (1 - goal.certainty) / max(1, len(sequences))
    best: tuple[Point, float] | None = None
    for sequence in sequences:
        for threshold in sequence:
            point = _point(score, right, threshold)
            bound = _bound(point, goal, level)
            if not _kept(bound, goal):
                break
            if best is None or point.threshold < best[0].threshold:
                best = (point, bound)
    if best is not None:
        answer = best[0].threshold
        return Choice(goal, answer, min(verify, answer), *best, least, have, None)
    return _refused(score, right, goal, verify, least, have)


def _sequences(score: Scores, goal: Goal, least: int) -> list[list[float]]:
    """Thresholds to be tested, strictest first, one list a start."""
    served = np.sort(score[score > 0])[::-1]
    if not len(served):
        return []
    if goal.kind == "budget":  # the share of wrong ones served only grows on the way down: one start is enough
        starts = [1]
    else:
        first = least if goal.equal_share is None else 20
        if first > len(served):
            return []  # nothing that can be tested supports it
        starts = [first]
        while 2 * starts[-1] <= len(served):
            starts.append(2 * starts[-1])
        # Each start costs certainty, so that the first needs more hits, too.
        alpha = (1 - goal.certainty) / len(starts)
        if goal.equal_share is None and (more := hits_needed(goal, alpha=alpha)) is not None:
            starts = sorted({max(start, more) for start in starts if max(start, more) <= len(served)})
    sequences = []
    for start in starts:
        counts, count = [], float(start)
        while count < len(served):
            counts.append(int(count))
            count = max(count + 1, count * STEP)
        counts.append(len(served))
        sequences.append(list(dict.fromkeys(float(served[c - 1]) for c in counts)))
    return sequences


def _bound(point: Point, goal: Goal, alpha: float) -> float:
    """One-sided bound of what the goal is about: a precision from below, a share served wrong from above."""
    if goal.kind == "budget":
        return most_share(point.wrong, point.n_wrong, alpha)
    if goal.equal_share is None:
        return least_share(point.right, point.hits, alpha)
    share = goal.equal_share
    good = share * least_share(point.right, point.n_right, alpha / 2)
    bad = (1 - share) * most_share(point.wrong, point.n_wrong, alpha / 2)
    return good / (good + bad) if good + bad else 0.0


def _kept(bound: float, goal: Goal) -> bool:
    return bound <= goal.value if goal.kind == "budget" else bound >= goal.value


def _refused(score: Scores, right: Flags, goal: Goal, verify: float, least: int, have: int) -> Choice:
    """Say what the samples do support, and how many it would take."""
    by_hits = goal.kind == "precision" and goal.equal_share is None
    what = "hits" if by_hits else "samples whose stored answer is wrong"
    served = np.sort(score[score > 0])[::-1]
    if not len(served):
        why = f"there is no candidate to serve at all; it takes at least {least} {what}, without an error"
        return Choice(goal, None, verify, None, None, least, have, None, why)
    counts = {min(len(served), int(10 * STEP**k)) for k in range(400) if 10 * STEP**k < len(served)} | {len(served)}
    sign = 1 if goal.kind == "budget" else -1
    points = [_point(score, right, t) for t in sorted({float(served[c - 1]) for c in counts})]
    bounds = [(p, _bound(p, goal, 1 - goal.certainty)) for p in points]
    point, bound = min(bounds, key=lambda b: (sign * b[1], b[0].threshold))
    n = point.hits if by_hits else point.n_wrong
    at_this_rate = hits_needed(goal, point.wrong / n) if n else least
    one = point.hits == 1
    surest = f"the {'surest hit' if one else f'{point.hits} surest hits'} (confidence {point.threshold:.4f} and above)"
    supports = f"{'at most' if goal.kind == 'budget' else 'no more than'} {100 * bound:.2g} %"
    if goal.kind == "precision":
        supports = f"{100 * bound:.1f} %"
    why = f"{surest} {'holds' if one else 'hold'} {point.wrong or 'no'} wrong ones, which supports {supports}"
    if at_this_rate is None:
        why += f"; at that rate no number of {what} supports {100 * goal.value:g} %"
    else:
        why += f"; {100 * goal.value:g} % takes {max(at_this_rate, least)} {what} at that rate"
    return Choice(goal, None, verify, point, bound, least, have, at_this_rate, why)
