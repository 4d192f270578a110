"""Combine the two stages, calibrate them, choose the thresholds: ``store/confidence/thresholds.json``.

usage: python -m eval.train.calibrate --first A.npz [--second B.npz] [--neighbours N.npz] [--at-least P] [--out FILE]
       [--report JSON]

``A.npz`` and ``B.npz`` hold ``id`` and ``score`` (logits) of pairs the models were *not* trained on. Where there is a
second stage, only the pairs of the folds it held out count (``--held``); everything is done anew for each language.

1. Pairs a guard objects to never reach the confidence, nor do those that are too far apart (``NEAREST``): they are left
   out of the curves and counted as not served.
2. Each stage's logit is brought to mean 0 and deviation 1; the score is their weighted sum (``SHARES``; the second
   stage is left out where no weight of it finds more).
3. The sum and the cosine of the messages are brought to log odds by a line for each place two turns can stand at
   (``store.confidence.model.where``): logistic regression (Platt 1999) on the families and, as many again that are
   different, on what a full cache offers beside the right entry (``N.npz``, `eval.train.neighbours`), weighed by what
   serves most with next to none of those (``PULLS``). Isotonic
   regression from there to probability, both answers weighted alike, straight lines between block centres.
4. ``answer``: the lowest confidence at which the share of wrong hits stays within ``--wrong`` on the families and
   within twice that on every other source: off its domains a model errs up to twice as often; and at which at most
   ``NEIGHBOURS`` of what a full cache offers is served. The language that needs the higher threshold has its curve
   lowered instead, so that one number serves both.
   It is never below ``--at-least``: what real chats would be offered (``eval.train.offered``) is not in the families.
5. ``verify``: the 95th percentile of the different pairs, of the language where it is lowest; under ``answer`` the
   other's curve is lowered to meet it.
6. ``nearest``: by place, how near two messages must be; it costs ``LOST`` of what reaches ``verify``, and nothing of
   what is served. Most of what a full cache offers then needs no comparison.
7. ``most``: what the second stage is credited with before it is asked, so that of the pairs that reach ``verify`` a
   share of ``LOST`` is not looked at.
8. ``margin``: how far from the thresholds a sum must lie after the second stage's first reading (``once`` in ``B.npz``)
   for its other reading to be spared: ``MARGIN`` deviations of what the other reading changes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from eval.data import Pair, fold_of, load_all
from eval.statistics import area_under_curve, wilson
from eval.train.near import comparable
from eval.train.trees import STATEMENTS, same_history
from fingerprint.comparisons import SCHEMA_VERSION
from fingerprint.facts import objections
from store.confidence.model import Where, shipped_numbers, too_far, where
from store.types import Candidate

Scores = NDArray[np.float64]
Flags = NDArray[np.bool_]

NOT_QUESTIONS = STATEMENTS | {"cannot_negation"}
SHARES = (0.4, 0.7, 1.0, 1.4)
"""Weights of the second stage that are tried."""
PULLS = (0.0, 0.03, 0.1, 0.3, 1.0)
"""Weights of the neighbours in the lines that are tried; with more of it, nearness counts for more."""
NEAREST = {"en": 0.3, "zh": 0.84}
"""Cosine of the last messages under which nothing is served, unless both say yes or no to the same. Half of the pairs
at 0.2 are equivalent in the data, next to none in a full cache, where most of what is stored is that far away."""
FOLLOW_UP = {"en": 0.5, "zh": 0.86}
"""The same after one history. The families hold look-alikes and equivalents there, and no other follow-ups, of which
a conversation is full (``eval.train.offered``)."""
NEIGHBOURS = 0.001
"""Share of the neighbours that may be served: a look-up judges up to eight of them."""
PLACES: dict[str, tuple[Where, ...]] = {"en": ("alone", "other"), "zh": ()}
"""Places with a line of their own; the others share one. After the same history the families know only look-alikes and
equivalents, no other follow-ups; a line of its own let those pass (`eval.train.offered`)."""
LOST = 0.03
"""Share of what is nearly sure; what reaches ``answer`` needs far less of a credit."""
FEW = 150
"""Pairs that must reach ``verify`` at a place for it to have a least cosine of its own."""
MARGIN = 1.5
BLOCK = 60
"""Pairs a block of the curve holds at least."""


class Table:
    """The calibration pairs of one language."""

    def __init__(self, pairs: Sequence[Pair], first: Scores, second: Scores | None, cosine: Scores) -> None:
        self.pairs = list(pairs)
        self.first = first
        self.second = second
        self.truth: Flags = np.array([p.equivalent for p in pairs], bool)
        self.domain = np.array([p.domain for p in pairs])
        self.family: Flags = np.array([p.is_family for p in pairs], bool)
        self.derived: Flags = np.array([p.label_origin == "derived" for p in pairs], bool)
        far = [too_far(p.a, _candidate(p, c), floors(p.lang)) for p, c in zip(pairs, cosine, strict=True)]
        self.cosine: Scores = np.array(cosine)
        self.neighbours: Neighbours | None = None
        self.vetoed: Flags = np.array(
            [f or bool(objections(p.a, p.b, same_place=same_history(p))) for p, f in zip(pairs, far, strict=True)], bool
        )
        self.where = np.array([_where(p) for p in pairs])
        self.half: Flags = np.array([fold_of("half:" + p.domain) % 2 == 0 for p in pairs], bool)

    def weights(self, chosen: Flags) -> Scores:
        """Families and public pairs, right and wrong, so that both answers weigh the same."""
        w = np.where(self.family, 1.0, 0.5) * chosen
        for answer in (True, False):
            total = w[chosen & (self.truth == answer)].sum()
            if total > 0:
                w[chosen & (self.truth == answer)] /= total
        return np.asarray(w, np.float64)


def _candidate(pair: Pair, cosine: float = 1.0) -> Candidate:
    return Candidate("", pair.b, similarity=cosine, window_similarity=1.0, same_place=same_history(pair))


def _where(pair: Pair) -> Where:
    return where(pair.a, _candidate(pair))


class Neighbours:
    """What a full cache offers beside the right entry, in one language; all of it different."""

    def __init__(self, file: Path, lang: str) -> None:
        with np.load(file, allow_pickle=False) as found:
            mine = found["lang"] == lang
            self.where = found["where"][mine]
            self.cosine: Scores = found["cos"][mine]
            self.first: Scores = found["first"][mine]
            self.second: Scores = found["second"][mine]

    def score(self, numbers: dict[str, Any]) -> Scores:
        """What ``together`` (or, without a second stage, ``alone``) is read at."""
        score = scaled(self.first, numbers["first"])
        if "second" in numbers:
            score = score + scaled(self.second, numbers["second"])
            if "places" in numbers:
                score = placed(score, self.where, self.cosine, numbers["places"])
        return score


def placed(score: Scores, where: NDArray[Any], cosine: Scores, lines: dict[str, dict[str, float]]) -> Scores:
    """Log odds by the line of each place."""
    found = score.copy()
    for place, line in lines.items():
        here = where == place
        found[here] = line["slope"] * score[here] + line["near"] * cosine[here] + line["shift"]
    return found


def lines_of(
    table: Table, score: Scores, passed: Flags, numbers: dict[str, Any], pull: float
) -> dict[str, dict[str, float]]:
    """The line from score and cosine to log odds of each place, by families and neighbours; these weigh ``pull`` times
    what the families' different pairs do. Without them the cosine counts for nothing."""
    own = PLACES[table.pairs[0].lang]
    lines: dict[str, dict[str, float]] = {}
    for place in get_args(Where):
        sharing = [place] if place in own else [other for other in get_args(Where) if other not in own]
        here = passed & table.family & np.isin(table.where, sharing)
        x, y = np.c_[score[here], table.cosine[here]], table.truth[here]
        w = np.where(y, 1 / y.sum(), 1 / (~y).sum())
        if table.neighbours is None or pull == 0:
            x[:, 1] = 0.0
        else:
            group = np.isin(table.neighbours.where, sharing)
            x = np.r_[x, np.c_[table.neighbours.score(numbers), table.neighbours.cosine][group]]
            y, w = np.r_[y, np.zeros(group.sum(), bool)], np.r_[w, np.full(group.sum(), pull / max(1, group.sum()))]
        fitted = LogisticRegression(C=1e4, max_iter=1000).fit(x, y, sample_weight=w * (len(w) / w.sum()))
        slope, near, shift = (float(v) for v in (*fitted.coef_[0], fitted.intercept_[0]))
        lines[place] = {"slope": round(slope, 5), "near": round(near, 5), "shift": round(shift, 5)}
    return lines


def scale_of(scores: Scores) -> dict[str, float]:
    """Mean and deviation."""
    return {"mean": float(scores.mean()), "deviation": float(scores.std())}


def scaled(scores: Scores, scale: dict[str, float]) -> Scores:
    """To mean 0, deviation 1."""
    return np.asarray((scores - scale["mean"]) / scale["deviation"], np.float64)


def curve_of(score: Scores, truth: Flags, weight: Scores) -> dict[str, list[float]]:
    """An isotonic curve, strictly rising: blocks of equal probability become their centres, joined by lines."""
    keep = weight > 0
    score, truth, weight = score[keep], truth[keep], weight[keep]
    order = np.argsort(score, kind="stable")
    score, truth, weight = score[order], truth[order], weight[order]
    fitted = (
        IsotonicRegression(y_min=0.0, y_max=1.0).fit(score, truth.astype(float), sample_weight=weight).predict(score)
    )
    scores: list[float] = []
    probabilities: list[float] = []
    start = 0
    while start < len(score):
        end = start
        while end < len(score) and (fitted[end] == fitted[start] or end - start < BLOCK):
            end += 1
        if len(score) - end < BLOCK:
            end = len(score)
        block = slice(start, end)
        mass = weight[block].sum()
        # Laplace's rule: no block is certain, however its few pairs fell.
        n = end - start
        share = (float(weight[block] @ truth[block]) / mass * n + 0.5) / (n + 1)
        scores.append(float(np.average(score[block], weights=weight[block])))
        probabilities.append(share)
        start = end
    rising_s: list[float] = []
    rising_p: list[float] = []
    for s, p in zip(scores, probabilities, strict=True):
        if not rising_s or (s > rising_s[-1] and p > rising_p[-1]):
            rising_s.append(s)
            rising_p.append(p)
    # Beyond the last block the curve goes on towards certainty, so that a threshold may lie there.
    top = float(score[-1])
    if top > rising_s[-1]:
        rising_s += [top, top + (top - rising_s[-1])]
        rising_p += [rising_p[-1] + 0.5 * (1 - rising_p[-1]), rising_p[-1] + 0.75 * (1 - rising_p[-1])]
    return {"scores": [round(s, 5) for s in rising_s], "probabilities": [round(p, 5) for p in rising_p]}


def read(curve: dict[str, list[float]], score: Scores) -> Scores:
    """Probabilities off a curve."""
    return np.asarray(np.interp(score, curve["scores"], curve["probabilities"]), np.float64)


def part_of_curve(score: Scores, truth: Flags, least: float = -math.inf, most_wrong: float = 0.02) -> float:
    """Mean share of right hits over thresholds that serve up to ``most_wrong`` of the different pairs, none of them
    under ``least``."""
    steps = np.linspace(0.0, most_wrong, 9)[1:]
    return float(np.mean([(score[truth] >= max(least, lowest(score, truth, step))).mean() for step in steps]))


def summed(table: Table, passed: Flags, share: float, pull: float) -> tuple[dict[str, Any], Scores]:
    """Both stages' scales and the lines of each place, and every pair's log odds."""
    assert table.second is not None
    numbers: dict[str, Any] = {"first": scale_of(table.first[passed]), "second": scale_of(table.second[passed])}
    numbers["second"]["deviation"] /= share
    score = scaled(table.first, numbers["first"]) + scaled(table.second, numbers["second"])
    lines = lines_of(table, score, passed, numbers, pull)
    numbers["places"] = lines
    return numbers, placed(score, table.where, table.cosine, lines)


def weights_of(table: Table, chosen: Flags) -> tuple[float, float]:
    """What the second stage counts beside the first (``SHARES``), and what neighbours do in the lines (``PULLS``): what
    finds most of the chosen families' equivalents with at most ``NEIGHBOURS`` of the neighbours served. (0, 0) where
    there is no second stage."""
    if table.second is None:
        return 0.0, 0.0
    here, passed = chosen & table.family, chosen & ~table.vetoed
    best = (part_of_curve(np.where(table.vetoed, -99.0, table.first)[here], table.truth[here]), 0.0, 0.0)
    for share, pull in itertools.product(SHARES, PULLS if table.neighbours is not None else PULLS[:1]):
        numbers, score = summed(table, passed, share, pull)
        least = -math.inf
        if table.neighbours is not None:
            beside = table.neighbours.score(numbers)
            least = lowest(beside, np.zeros(len(beside), bool), NEIGHBOURS)
        found = part_of_curve(np.where(table.vetoed, -99.0, score)[here], table.truth[here], least)
        best = max(best, (found, share, pull))
    return best[1:]


def calibrate(table: Table, chosen: Flags) -> tuple[dict[str, Any], Scores]:
    """The numbers of one language from the ``chosen`` pairs, and the confidence of every pair (0 where vetoed)."""
    passed = chosen & ~table.vetoed
    weight = table.weights(passed)
    first = scale_of(table.first[passed])
    score = scaled(table.first, first)
    numbers: dict[str, Any] = {"first": first, "alone": curve_of(score, table.truth, weight)}
    share, pull = weights_of(table, chosen)
    if share > 0:
        found, score = summed(table, passed, share, pull)
        numbers |= found
        truth, all_of = table.truth, score
        if table.neighbours is not None:
            beside = table.neighbours.score(numbers)
            all_of, truth = np.r_[score, beside], np.r_[truth, np.zeros(len(beside), bool)]
            weight = np.r_[weight, np.full(len(beside), 1 / len(beside))]
        numbers["together"] = curve_of(all_of, truth, weight)
    return numbers, confidence_of(table, numbers)


def confidence_of(table: Table, numbers: dict[str, Any]) -> Scores:
    """Every pair's confidence; 0 where vetoed."""
    score = scaled(table.first, numbers["first"])
    if "together" in numbers:
        assert table.second is not None
        score = placed(score + scaled(table.second, numbers["second"]), table.where, table.cosine, numbers["places"])
    confidence = read(numbers.get("together", numbers["alone"]), score)
    confidence[table.vetoed] = 0.0
    return confidence


def rates(confidence: Scores, truth: Flags, limit: float) -> tuple[int, int, int, int]:
    """Right hits, equivalent pairs, wrong hits, different pairs."""
    served = confidence >= limit
    return int((served & truth).sum()), int(truth.sum()), int((served & ~truth).sum()), int((~truth).sum())


def lowest(confidence: Scores, truth: Flags, wrong: float) -> float:
    """The lowest confidence that serves at most this share of the different pairs."""
    ranked = np.sort(confidence[~truth])[::-1]
    if not len(ranked):
        return 0.0
    return float(np.nextafter(ranked[int(wrong * len(ranked))], np.inf))


def crossed(table: Table, wrong: float) -> Flags:
    """What would be served where each half of the domains is judged by curve and threshold of the other half."""
    served = np.zeros(len(table.truth), bool)
    for half in (True, False):
        there = (table.half != half) & table.family
        _, confidence = calibrate(table, there)
        limit = lowest(confidence[there], table.truth[there], wrong)
        here = table.half == half
        served[here] = confidence[here] >= limit
    return served


def choose(table: Table, confidence: Scores, wrong: float, numbers: dict[str, Any]) -> float:
    """The threshold of one language: within ``wrong`` on the families and within twice that on every source.

    Sources whose different pairs come from a pairing rule (``derived``) are reported and do not choose: one in ten or
    twenty of those labels is wrong, and the surest "wrong" hits are just these.
    """
    limits = [lowest(confidence[table.family], table.truth[table.family], wrong)]
    for source in sorted(set(table.domain[~table.family])):
        group = (table.domain == source) & ~(table.derived & ~table.truth)
        if (group & ~table.truth).sum() >= 50:
            limits.append(lowest(confidence[group], table.truth[group], 2 * wrong))
    if table.neighbours is not None:
        beside = read(numbers["together"], table.neighbours.score(numbers))
        limits.append(lowest(beside, np.zeros(len(beside), bool), NEIGHBOURS))
    return max(limits)


def lowered(numbers: dict[str, Any], limit: float, answer: float) -> None:
    """Lower the curves of a language, on the scale of log odds, so that its ``limit`` comes to lie at ``answer``.

    One threshold then means the same share of wrong hits in every language. Only ever towards less confidence.
    """
    _bent(numbers, lambda odds: odds + _log_odds(answer) - _log_odds(limit))


def steepened(numbers: dict[str, Any], answer: float, here: float, there: float) -> None:
    """Lower what lies under ``answer`` in a language, so that ``here`` comes to lie at ``there``: ``verify`` then means
    the same in every language, too."""
    top = _log_odds(answer)
    slope = (top - _log_odds(there)) / (top - _log_odds(here))
    _bent(numbers, lambda odds: np.where(odds < top, top - slope * (top - odds), odds))


def _log_odds(p: float) -> float:
    return math.log(p / (1 - p))


def _bent(numbers: dict[str, Any], bend: Callable[[Scores], Scores]) -> None:
    """Change the curves of a language on the scale of log odds."""
    for name in ("alone", "together"):
        if name in numbers:
            p = np.array(numbers[name]["probabilities"])
            odds = np.exp(bend(np.log(p / (1 - p))))
            numbers[name]["probabilities"] = [round(float(x), 5) for x in odds / (1 + odds)]


def floors(lang: str) -> dict[Where, float]:
    """``NEAREST`` and ``FOLLOW_UP`` by place."""
    return {place: FOLLOW_UP[lang] if place == "same" else NEAREST[lang] for place in get_args(Where)}


def nearest(table: Table, confidence: Scores, verify: float, answer: float) -> dict[Where, float]:
    """The cosine under which nothing is served, by place: where the pairs that reach ``verify`` are ``FEW`` or more,
    all but ``LOST`` of them and every one that reaches ``answer`` are at least that near."""
    out = floors(table.pairs[0].lang)
    for place, floor in out.items():
        here = table.where == place
        cosine = table.cosine[here & (confidence >= verify)]
        if len(cosine) >= FEW:
            served = table.cosine[here & (confidence >= answer)]
            least = min(float(np.quantile(cosine, LOST)), float(served.min(initial=1.0)))
            out[place] = max(floor, math.floor(1000 * least) / 1000)
    return out


def credit(table: Table, confidence: Scores, numbers: dict[str, Any], verify: float) -> float:
    """What the second stage must be credited with so that all but ``LOST`` of what reaches ``verify`` is looked at."""
    reach = float(np.interp(verify, numbers["together"]["probabilities"], numbers["together"]["scores"]))
    reaching = (confidence >= verify) & ~table.vetoed
    first = scaled(table.first, numbers["first"])
    needed = np.full(len(first), np.nan)
    for place, line in numbers["places"].items():
        here = table.where == place
        needed[here] = (reach - line["shift"] - line["near"] * table.cosine[here]) / line["slope"] - first[here]
    return float(np.quantile(needed[reaching], 1 - LOST)) if reaching.any() else math.inf


def describe(served: Flags, group: Flags, truth: Flags) -> dict[str, Any]:
    """Right and wrong with intervals."""
    right, same = int((served & group & truth).sum()), int((group & truth).sum())
    wrong, different = int((served & group & ~truth).sum()), int((group & ~truth).sum())
    return {
        "n_equivalent": same,
        "n_different": different,
        "right_rate": round(right / same, 4) if same else None,
        "wrong_rate": round(wrong / different, 4) if different else None,
        "right_ci": [round(x, 4) for x in wilson(right, same)],
        "wrong_ci": [round(x, 4) for x in wilson(wrong, different)],
    }


def plot(file: Path, tables: dict[str, tuple[Table, Scores]]) -> None:
    """Reliability: of the pairs given a confidence, how many are equivalent. Confidences come from the other half."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(tables), figsize=(5 * len(tables), 4.6), squeeze=False)
    for axis, (lang, (table, _)) in zip(axes[0], sorted(tables.items()), strict=True):
        confidence = np.zeros(len(table.truth))
        for half in (True, False):
            _, given = calibrate(table, (table.half != half))
            confidence[table.half == half] = given[table.half == half]
        passed = ~table.vetoed
        weight = table.weights(passed)
        edges = np.array([0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0001])
        xs, ys, low, high = [], [], [], []
        for a, b in itertools.pairwise(edges):
            bin_ = passed & (confidence >= a) & (confidence < b)
            if bin_.sum() < 15:
                continue
            share = float(weight[bin_] @ table.truth[bin_] / weight[bin_].sum())
            ends = wilson(round(share * int(bin_.sum())), int(bin_.sum()))
            xs.append(float(np.average(confidence[bin_], weights=weight[bin_])))
            ys.append(share)
            low.append(max(0.0, share - ends[0]))
            high.append(max(0.0, ends[1] - share))
        axis.plot([0, 1], [0, 1], color="#999999", linewidth=1, zorder=1)
        axis.errorbar(xs, ys, yerr=[low, high], fmt="o", markersize=4, capsize=2, color="#1f5fa8", zorder=2)
        axis.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", title=f"{lang}: held-out domains")
        axis.set_aspect("equal")
        axis.grid(alpha=0.25)
    axes[0][0].set_ylabel("share of equivalent pairs, both answers weighted alike")
    figure.tight_layout()
    figure.savefig(file, dpi=130)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=Path, required=True)
    parser.add_argument("--second", type=Path)
    parser.add_argument("--neighbours", type=Path, help="what `eval.train.neighbours` wrote")
    parser.add_argument("--held", type=int, nargs="+", default=[0], help="folds the second stage held out")
    parser.add_argument("--wrong", type=float, default=0.005)
    parser.add_argument("--at-least", type=float, default=0.0, help="lowest answer threshold (eval.train.offered)")
    parser.add_argument("--keep", choices=["en", "zh"], help="a language whose shipped numbers stay as they are")
    parser.add_argument("--version", default="1")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args(arguments)

    first, cosine = _scores(given.first), _scores(given.first, "cos")
    second = _scores(given.second) if given.second else None
    pairs = [p for p in load_all() if p.id in first and comparable(p) and p.domain not in NOT_QUESTIONS]
    languages: dict[str, Any] = {}
    report: dict[str, Any] = {}
    tables: dict[str, tuple[Table, Scores]] = {}
    limits: dict[str, float] = {}
    verify: dict[str, float] = {}
    for lang in ("en", "zh"):
        table = _table([p for p in pairs if p.lang == lang], first, second, cosine, given.held)
        everything = np.ones(len(table.truth), bool)
        if given.neighbours is not None and table.second is not None:
            table.neighbours = Neighbours(given.neighbours, lang)
        share, pull = weights_of(table, everything)
        if share == 0:
            table = _table([p for p in pairs if p.lang == lang], first, None, cosine, given.held)
        numbers, confidence = calibrate(table, everything)
        if lang == given.keep:
            numbers = shipped_numbers()["languages"][lang]
            confidence = confidence_of(table, numbers)
        languages[lang] = numbers
        tables[lang] = (table, confidence)
        limits[lang] = choose(table, confidence, given.wrong, numbers)
        report[lang] = {
            "vetoed": {
                "equivalent": round(float(table.vetoed[table.truth & table.family].mean()), 4),
                "different": round(float(table.vetoed[~table.truth & table.family].mean()), 4),
            },
            "share_of_second": share,
            "pull_of_neighbours": pull,
            "auc": area_under_curve(confidence[table.family & table.truth], confidence[table.family & ~table.truth]),
            "families, other half of the domains": {
                f"{100 * wrong:g} %": describe(crossed(table, wrong), table.family, table.truth)
                for wrong in (0.005, 0.01, 0.03, 0.05)
            },
        }
    answer = math.ceil(10_000 * max(given.at_least, min(limits.values()))) / 10_000
    for lang, (table, _) in tables.items():
        if limits[lang] > answer and lang != given.keep:
            lowered(languages[lang], limits[lang], answer)
        confidence = confidence_of(table, languages[lang])
        verify[lang] = float(np.quantile(confidence[~table.truth & table.family], 0.95))
    lowest_kv = math.ceil(10_000 * min(answer, *verify.values())) / 10_000
    for lang, (table, _) in tables.items():
        if verify[lang] > lowest_kv and lang != given.keep:
            steepened(languages[lang], answer, verify[lang], lowest_kv)
        confidence = confidence_of(table, languages[lang])
        tables[lang] = (table, confidence)
        served = confidence >= answer
        if table.neighbours is not None:
            beside = read(languages[lang]["together"], table.neighbours.score(languages[lang]))
            report[lang]["neighbours"] = {"n": len(beside), "served": round(float((beside >= answer).mean()), 5)}
        report[lang]["at the shipped threshold"] = {
            "families": describe(served, table.family, table.truth),
            **{d: describe(served, table.domain == d, table.truth) for d in sorted(set(table.domain[~table.family]))},
        }
        if given.second and "second" in languages[lang] and lang != given.keep:
            once = _scores(given.second, "once")
            apart = np.array([once[p.id] for p in table.pairs]) - table.second
            moved = apart / languages[lang]["second"]["deviation"]
            for place, line in languages[lang]["places"].items():
                moved[table.where == place] *= line["slope"]
            languages[lang]["margin"] = round(MARGIN * float(moved.std()), 4)
    for lang, (table, confidence) in tables.items():
        if lang == given.keep:
            continue
        languages[lang]["nearest"] = nearest(table, confidence, lowest_kv, answer)
        if "second" in languages[lang]:
            languages[lang]["most"] = round(credit(table, confidence, languages[lang], lowest_kv), 4)
    document = {
        "version": given.version,
        "comparisons": SCHEMA_VERSION,
        "answer": answer,
        "verify": lowest_kv,
        "per_language": {lang: round(limits[lang], 4) for lang in limits},
        "languages": languages,
    }
    print(json.dumps({"answer": answer, "verify": document["verify"], "limits": limits, **report}, indent=1))
    if given.out:
        given.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if given.report:
        given.report.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if given.plot:
        plot(given.plot, tables)


def _table(
    pairs: Sequence[Pair],
    first: dict[str, float],
    second: dict[str, float] | None,
    cosine: dict[str, float],
    held: Sequence[int],
) -> Table:
    own = pairs if second is None else [p for p in pairs if p.id in second and p.fold in held]
    return Table(
        own,
        np.array([first[p.id] for p in own]),
        None if second is None else np.array([second[p.id] for p in own]),
        np.array([cosine[p.id] for p in own]),
    )


def _scores(file: Path, name: str = "score") -> dict[str, float]:
    with np.load(file, allow_pickle=False) as table:
        return {str(i): float(s) for i, s in zip(table["id"], table[name], strict=True)}


if __name__ == "__main__":
    main()
