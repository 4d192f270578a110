"""The error budget: thresholds that move so that the rate of wrong hits, with its uncertainty, stays under a limit.

No I/O.

A hit is of one *kind* (`store.types.Kind`). An observation says of one decision, made with some confidence, whether
the answer was wrong. Per kind and threshold t, the observations at or above t give a one-sided upper bound of the
rate of wrong hits that holds at all times at once (`store.bounds.sequence_upper`), since the budget looks after every
observation.

The threshold in force is found from the strictest of a fixed ladder downwards, and the first one whose bound is over
the limit ends the search: fixed-sequence testing, as in "Learn then Test" (Angelopoulos, Bates, Candès, Jordan and
Lei, 2021), so that trying many thresholds costs no confidence. Thresholds with too few observations to decide are
passed over.

Before evidence exists the calibrated prior decides: a hit of confidence c is wrong with probability 1 - c, and off the
domains it was calibrated on with up to twice that (docs/quality.md), so a threshold of at least 1 - limit / 2 keeps the
budget if the calibration is right. It counts as much as just enough right
observations (`store.bounds.needed_without_error`): the first wrong one at or above a threshold closes it until right
ones outweigh it. A prior that is wrong more often than the limit explains (exact binomial test) counts nothing from
then on. Below its threshold only evidence opens. Nothing opens below the calibrated (or the operator's) thresholds.

Exact repeats have no threshold; their rate is watched and reported, their changes are drift's business
(`store.drift`).
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

from store.bounds import at_least, is_below, needed_without_error, sequence_upper
from store.types import KINDS, Kind, Policy

__all__ = ["CLOSED", "Budget", "KindReport", "Observation"]

CLOSED: Final = 2.0
"""A threshold nothing reaches."""

_OFF_DOMAIN: Final = 2.0  # times as many errors as the calibration promises
_RUNGS: Final = 40
_STRICTEST: Final = 0.0005  # 1 - confidence of the strictest threshold


@dataclass(frozen=True, slots=True)
class Observation:
    """What a check of one decision found; ``confidence`` 0 … 1."""

    kind: Kind
    confidence: float
    wrong: bool


@dataclass(frozen=True, slots=True)
class KindReport:
    """One kind of hit, in numbers. Rates 0 … 1, over the observations at or above the threshold in force."""

    kind: Kind
    observations: int  # all of the window
    wrong: int
    above: int  # at or above the threshold
    wrong_above: int
    rate: float | None
    bound: float | None  # upper, one-sided; without the prior's share
    threshold: float | None  # least confidence served; None: exact repeats, and what is not served at all
    decided_by: Literal["calibration", "prior", "evidence", "closed", "none"]


class _Ladder:
    """The thresholds of one kind, ascending, and the observations between them."""

    def __init__(self, floor: float, prior: float) -> None:
        span = max(1.0 - floor, _STRICTEST)
        rungs = {1.0 - span * (_STRICTEST / span) ** (i / (_RUNGS - 1)) for i in range(_RUNGS)}
        self.levels = sorted({floor, prior, *(r for r in rungs if r > floor)})
        self.prior = prior
        self.floor = floor
        self.counts = [0] * (len(self.levels) + 1)  # observations whose highest level reached is i - 1
        self.wrongs = [0] * (len(self.levels) + 1)

    def add(self, confidence: float, wrong: bool, sign: int = 1) -> None:
        at = bisect_right(self.levels, confidence)
        self.counts[at] += sign
        self.wrongs[at] += sign * wrong


class Budget:
    """Observations of a sliding window, and the thresholds that follow. Safe to use from any thread.

    ``limit`` is the operator's error budget (0.01: one hit in a hundred may be wrong), None where there is none: rates
    are then observed and reported, and the thresholds are those of ``policy``. ``alpha``: the chance that a bound
    fails.
    """

    def __init__(self, limit: float | None, policy: Policy, *, alpha: float = 0.05, window: int = 5_000) -> None:
        if limit is not None and not 0 < limit < 1:
            raise ValueError("the limit is a rate between 0 and 1")
        self.limit = limit
        self.alpha = alpha
        self._around = 0.01 if limit is None else limit
        self._base = policy
        self._seen: dict[Kind, deque[tuple[float, bool]]] = {kind: deque() for kind in KINDS}
        self._since_wrong: dict[Kind, int] = dict.fromkeys(KINDS, 0)
        self._window = window
        self._ladders: dict[Kind, _Ladder] = {}
        for kind in KINDS:
            floor = policy.verify if kind == "band" else policy.answer if kind != "exact" else 0.0
            prior = floor if limit is None or kind == "exact" else max(floor, 1.0 - limit / _OFF_DOMAIN)
            self._ladders[kind] = _Ladder(floor, prior)
        self._thresholds: dict[Kind, float] = {kind: self._threshold(kind) for kind in KINDS}
        self._lock = threading.Lock()

    def over(self, policy: Policy) -> Budget:
        """Return a budget with the same limit and evidence over other thresholds."""
        other = Budget(self.limit, policy, alpha=self.alpha, window=self._window)
        with self._lock:
            known = [Observation(kind, *one) for kind, seen in self._seen.items() for one in seen]
        other.observe(known)
        return other

    def observe(self, observations: Iterable[Observation]) -> None:
        """Take what checks found; a confidence that is no number counts as 0."""
        with self._lock:
            touched = set()
            for one in observations:
                confidence = one.confidence if math.isfinite(one.confidence) else 0.0
                seen, ladder = self._seen[one.kind], self._ladders[one.kind]
                seen.append((confidence, one.wrong))
                self._since_wrong[one.kind] = 0 if one.wrong else self._since_wrong[one.kind] + 1
                ladder.add(confidence, one.wrong)
                if len(seen) > self._window:
                    ladder.add(*seen.popleft(), sign=-1)
                touched.add(one.kind)
            for kind in touched:
                self._thresholds[kind] = self._threshold(kind)

    def policy(self, *, band: bool) -> Policy:
        """Return the thresholds in force; ``band``: whether what lies between two thresholds may be served as suspect.

        Never looser than the policy this was made with.
        """
        known = self._thresholds
        return replace(
            self._base,
            same_place=known["same_place"],
            other_context=known["other_context"],
            band=known["band"] if band else None,
        )

    def threshold(self, kind: Kind) -> float:
        """Return the least confidence at which hits of a kind are served; `CLOSED` where none are."""
        return self._thresholds[kind]

    def wanted(self, kind: Kind, rate: float) -> float:
        """Return the share of decisions of a kind that should be checked, 0 … 1.

        ``rate`` is what the operator allows in the long run; with a budget, reworded decisions are all checked until as
        many in a row were right as the prior pretends to, and again from each wrong one on.
        """
        if self.limit is None or kind == "exact":
            return rate
        return 1.0 if self._since_wrong[kind] < needed_without_error(self.limit, self.alpha) else rate

    def report(self) -> tuple[KindReport, ...]:
        """Say what is known, kind by kind."""
        with self._lock:
            return tuple(self._report(kind) for kind in KINDS)

    def _report(self, kind: Kind) -> KindReport:
        ladder, threshold = self._ladders[kind], self._thresholds[kind]
        above = sum(confidence >= threshold for confidence, _ in self._seen[kind])
        wrong = sum(wrong for confidence, wrong in self._seen[kind] if confidence >= threshold)
        decided: Literal["calibration", "prior", "evidence", "closed", "none"]
        if kind == "exact":
            decided = "none"
        elif self.limit is None:
            decided = "calibration"
        elif threshold >= CLOSED:
            decided = "closed"
        else:
            decided = "prior" if threshold == ladder.prior else "evidence"
        return KindReport(
            kind=kind,
            observations=len(self._seen[kind]),
            wrong=sum(wrong for _, wrong in self._seen[kind]),
            above=above,
            wrong_above=wrong,
            rate=wrong / above if above else None,
            bound=sequence_upper(wrong, above, self.alpha, self._around) if above else None,
            threshold=None if kind == "exact" or threshold >= CLOSED else threshold,
            decided_by=decided,
        )

    def _refuted(self, ladder: _Ladder) -> bool:
        """Whether what the prior vouches for has been wrong more often than the limit explains."""
        assert self.limit is not None
        first = ladder.levels.index(ladder.prior) + 1
        trials, wrong = sum(ladder.counts[first:]), sum(ladder.wrongs[first:])
        return wrong > 0 and at_least(wrong, trials, self.limit) < self.alpha

    def _threshold(self, kind: Kind) -> float:
        ladder = self._ladders[kind]
        if self.limit is None or kind == "exact":
            return ladder.floor
        needed = needed_without_error(self.limit, self.alpha)
        believed = 0 if self._refuted(ladder) else needed
        lowest, trials, wrong = CLOSED, 0, 0
        for at in range(len(ladder.levels) - 1, -1, -1):
            level = ladder.levels[at]
            trials += ladder.counts[at + 1]
            wrong += ladder.wrongs[at + 1]
            supposed = believed if level >= ladder.prior else 0
            if not supposed and trials < needed:
                continue  # too few observations to decide anything, whatever they say
            if not is_below(self.limit, wrong, trials + supposed, self.alpha):
                break
            lowest = level
        return lowest
