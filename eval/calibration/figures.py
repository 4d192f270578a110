"""The figures of a calibration, as plain JSON: distributions, ROC, precision–recall, reliability, groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eval.calibration.choose import Choice, Goal, choose, point_at
from eval.calibration.refit import error_of
from eval.calibration.samples import Sample, rights, scores
from eval.statistics import area_under_curve, wilson

__all__ = ["curves", "describe", "groups"]

BINS = 25
MOST_POINTS = 200
LEAST_GROUP = 20
"""Samples a language, intent or category needs to get a line of its own."""


def describe(samples: Sequence[Sample], choice: Choice) -> dict[str, Any]:
    """Everything the report shows but the groups; every share 0 … 1."""
    score, right = scores(samples), rights(samples)
    asked = score > 0
    return {
        "goal": {
            "kind": choice.goal.kind,
            "value": choice.goal.value,
            "certainty": choice.goal.certainty,
            "equal_share": choice.goal.equal_share,
            "in_words": str(choice.goal),
        },
        "n": {
            "samples": len(samples),
            "right": int(right.sum()),
            "wrong": int((~right).sum()),
            "forbidden": {"right": int((right & ~asked).sum()), "wrong": int((~right & ~asked).sum())},
        },
        "answer": choice.answer,
        "verify": choice.verify,
        "supported": choice.answer is not None,
        "why_not": choice.why_not,
        "bound": choice.bound,
        "needed": choice.needed,
        "have": choice.have,
        "needed_at_this_rate": choice.needed_at_this_rate,
        "at": None if choice.at is None else choice.at.as_json(),
        "auc": area_under_curve(score[right], score[~right]),
        "calibration_error": error_of(score[asked], right[asked]) if asked.any() else None,
        **curves(samples),
    }


def curves(samples: Sequence[Sample]) -> dict[str, Any]:
    """Histograms of both answers, ROC, precision and recall, reliability."""
    score, right = scores(samples), rights(samples)
    asked = score > 0
    edges = np.linspace(0, 1, BINS + 1)
    thresholds = np.unique(score[asked])[::-1]
    if len(thresholds) > MOST_POINTS:
        thresholds = thresholds[np.unique(np.linspace(0, len(thresholds) - 1, MOST_POINTS).round().astype(int))]
    points = [point_at(samples, float(t)) for t in thresholds]
    reliability = []
    for low, high in zip(edges[:-1:2], [*edges[2::2], 1.0], strict=False):
        inside = asked & (score >= low) & ((score < high) | (high >= 1.0))
        n = int(inside.sum())
        if n:
            k = int(right[inside].sum())
            reliability.append({"mean": float(score[inside].mean()), "share": k / n, "ci": list(wilson(k, n)), "n": n})
    return {
        "distributions": {
            "edges": [float(e) for e in edges],
            "right": np.histogram(score[right & asked], edges)[0].tolist(),
            "wrong": np.histogram(score[~right & asked], edges)[0].tolist(),
        },
        "roc": [
            [p.wrong / p.n_wrong if p.n_wrong else 0.0, p.right / p.n_right if p.n_right else 0.0, p.threshold]
            for p in points
        ],
        "precision_recall": [
            [p.right / p.n_right if p.n_right else 0.0, p.right / p.hits, p.threshold, *wilson(p.right, p.hits)]
            for p in points
            if p.hits
        ],
        "reliability": reliability,
    }


def groups(samples: Sequence[Sample], by: Callable[[Sample], str], answer: float | None, goal: Goal) -> dict[str, Any]:
    """Per language, intent or category: what ``answer`` does there, and the threshold of its own that is supported."""
    found: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        found[by(sample) or "unknown"].append(sample)
    out: dict[str, Any] = {}
    for name, group in sorted(found.items(), key=lambda item: -len(item[1])):
        if len(group) < LEAST_GROUP:
            continue
        own = choose(group, goal)
        right = rights(group)
        score = scores(group)
        point = None if answer is None else point_at(group, answer)
        # Beyond doubt below the goal there, whatever holds for all together.
        misses = False
        if point is not None and goal.kind == "precision" and goal.equal_share is None:
            misses = point.hits > 0 and wilson(point.right, point.hits)[1] < goal.value
        elif point is not None and goal.kind == "budget":
            misses = point.n_wrong > 0 and wilson(point.wrong, point.n_wrong)[0] > goal.value
        out[name] = {
            "n": len(group),
            "auc": area_under_curve(score[right], score[~right]),
            "at": None if point is None else point.as_json(),
            "own": own.answer,
            "why_no_own": own.why_not,
            "misses_goal": misses,
        }
    return out
