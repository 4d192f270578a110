"""Plain statistics of yes-or-no outcomes and scores."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["area_under_curve", "rate_at", "wilson"]


def wilson(hits: int, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """95 % interval of a share, 0 … 1 (Wilson 1927); (0, 1) where nothing was tried."""
    if trials == 0:
        return 0.0, 1.0
    share = hits / trials
    scale = 1.0 + z * z / trials
    centre = (share + z * z / (2 * trials)) / scale
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials)) / scale
    return max(0.0, centre - half), min(1.0, centre + half)


def area_under_curve(positive: ArrayLike, negative: ArrayLike) -> float | None:
    """Chance that a positive scores above a negative, ties half; None where either is missing."""
    p, n = np.asarray(positive, float), np.sort(np.asarray(negative, float))
    if not len(p) or not len(n):
        return None
    below = np.searchsorted(n, p, side="left")
    not_above = np.searchsorted(n, p, side="right")
    return float((below + not_above).sum() / (2 * len(p) * len(n)))


def rate_at(positive: ArrayLike, negative: ArrayLike, wrong: float) -> float | None:
    """Share of positives at or above the lowest threshold that lets through at most ``wrong`` of the negatives.

    A score of 0 is never served. None where there are no positives; without negatives everything above 0 counts.
    """
    p, n = np.asarray(positive, float), np.sort(np.asarray(negative, float))[::-1]
    if not len(p):
        return None
    allowed = math.floor(wrong * len(n) + 1e-9)
    limit = float(n[allowed]) if allowed < len(n) else 0.0
    return float((p > max(limit, 0.0)).mean())
