"""Correcting the model's confidence on somebody's own samples: isotonic or Platt, kept only where it is better.

Whether it is better is seen on samples the curve was not fitted to (five folds, split by a hash of their ids).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from eval.calibration.samples import Flags, Sample, Scores, rights, scores
from store.confidence.thresholds_file import Correction

__all__ = ["LEAST", "LEAST_EACH", "Method", "Refit", "error_of", "refit"]

Method = Literal["isotonic", "platt"]

LEAST = 200
"""Samples with a confidence above 0 that a curve needs."""
LEAST_EACH = 40
"""Right ones and wrong ones, each."""
BLOCK = 30
"""Samples a block of an isotonic curve holds at least."""
FOLDS = 5
EDGE = 1e-4


@dataclass(frozen=True, slots=True)
class Refit:
    """What came of it. Errors: mean squared (Brier 1950) and mean absolute calibration (ten bins), on other folds."""

    method: Method
    correction: Correction | None  # None: not enough samples, or no better
    why_not: str
    n: int
    brier: tuple[float, float] | None = None  # before, after
    calibration_error: tuple[float, float] | None = None

    def as_json(self) -> dict[str, Any]:
        """The figures."""
        return {
            "method": self.method,
            "used": self.correction is not None,
            "why_not": self.why_not,
            "n": self.n,
            "brier": None if self.brier is None else {"before": self.brier[0], "after": self.brier[1]},
            "calibration_error": None
            if self.calibration_error is None
            else {"before": self.calibration_error[0], "after": self.calibration_error[1]},
        }


def refit(samples: Sequence[Sample], method: Method) -> Refit:
    """Fit a curve to the samples whose confidence is above 0 (the rest is never served)."""
    asked = [s for s in samples if s.score > 0]
    score, right = scores(asked), rights(asked)
    n = len(asked)
    if n < LEAST or min(int(right.sum()), int((~right).sum())) < LEAST_EACH:
        why = (
            f"{n} samples with a confidence, {int(right.sum())} of them right: "
            f"at least {LEAST}, and {LEAST_EACH} of each answer, are needed"
        )
        return Refit(method, None, why, n)
    fit = _isotonic if method == "isotonic" else _platt
    before, after = score.copy(), np.zeros(n)
    folds = np.array([blake2b(s.id.encode(), digest_size=4).digest()[0] % FOLDS for s in asked])
    for fold in range(FOLDS):
        here = folds == fold
        if not here.any():
            continue
        curve = _curve(fit, score[~here], right[~here])
        after[here] = [curve(float(s)) for s in score[here]] if curve else score[here]
    brier = _brier(before, right), _brier(after, right)
    off = error_of(before, right), error_of(after, right)
    if brier[1] >= brier[0]:
        return Refit(method, None, "no better than the shipped curve on samples it was not fitted to", n, brier, off)
    return Refit(method, _curve(fit, score, right), "", n, brier, off)


def error_of(score: Scores, right: Flags, bins: int = 10) -> float:
    """Expected calibration error: mean distance of confidence and share of right ones over bins of equal number."""
    order = np.argsort(score, kind="stable")
    parts = [part for part in np.array_split(order, bins) if len(part)]
    return float(sum(len(p) * abs(score[p].mean() - right[p].mean()) for p in parts) / max(1, len(score)))


def _brier(score: Scores, right: Flags) -> float:
    return float(np.mean((score - right) ** 2))


Fit = Callable[[Scores, Flags], tuple[list[float], list[float]]]


def _curve(fit: Fit, score: Scores, right: Flags) -> Correction | None:
    xs, ys = fit(score, right)
    rising: list[tuple[float, float]] = []
    for x, y in zip(xs, ys, strict=True):
        if not rising or (x > rising[-1][0] and y >= rising[-1][1]):
            rising.append((x, y))
    if len(rising) < 2:
        return None
    return Correction(scores=tuple(x for x, _ in rising), probabilities=tuple(y for _, y in rising))


def _isotonic(score: Scores, right: Flags) -> tuple[list[float], list[float]]:
    """Blocks of the isotonic fit become their centres, joined by lines, so that the order of confidences survives."""
    order = np.argsort(score, kind="stable")
    score, right = score[order], right[order]
    fitted = IsotonicRegression(y_min=0.0, y_max=1.0).fit(score, right.astype(float)).predict(score)
    xs, ys, start = [], [], 0
    while start < len(score):
        end = start
        while end < len(score) and (fitted[end] == fitted[start] or end - start < BLOCK):
            end += 1
        if len(score) - end < BLOCK:
            end = len(score)
        block = slice(start, end)
        # Laplace's rule: no block is certain, however its few samples fell.
        xs.append(float(score[block].mean()))
        ys.append((int(right[block].sum()) + 0.5) / (end - start + 1))
        start = end
    # Beyond the last centre it goes on rising, so that a threshold may lie there.
    if score[-1] > xs[-1]:
        xs.append(float(score[-1]))
        ys.append(1 - (1 - ys[-1]) / 2)
    if xs[0] > 0:
        xs.insert(0, 0.0)
        ys.insert(0, 0.0)
    return xs, ys


def _platt(score: Scores, right: Flags) -> tuple[list[float], list[float]]:
    """A logistic curve over the log odds of the confidence (Platt 1999), sampled; flat where it would fall."""

    def odds(x: Scores) -> Scores:
        clipped = np.clip(x, EDGE, 1 - EDGE)
        return np.asarray(np.log(clipped / (1 - clipped)), np.float64)

    model = LogisticRegression(C=1e3).fit(odds(score)[:, None], right)
    grid = 1 / (1 + np.exp(-np.linspace(-9.2, 9.2, 185)))
    ys = model.predict_proba(odds(grid)[:, None])[:, 1]
    if ys[-1] <= ys[0]:
        ys = np.full(len(grid), float(right.mean()))
    return [float(x) for x in grid], [float(y) for y in ys]
