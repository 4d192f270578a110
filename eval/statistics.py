"""Plain statistics of yes-or-no outcomes and scores."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["area_under_curve", "clustered", "rate_at", "wilson"]


def wilson(hits: int, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """95 % interval of a share, 0 … 1 (Wilson 1927); (0, 1) where nothing was tried."""
    if trials == 0:
        return 0.0, 1.0
    share = hits / trials
    scale = 1.0 + z * z / trials
    centre = (share + z * z / (2 * trials)) / scale
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials)) / scale
    return max(0.0, centre - half), min(1.0, centre + half)


def clustered(counts: Iterable[tuple[int, int]], z: float = 1.959964) -> tuple[float, float]:
    """95 % interval of a share, 0 … 1, where cases come in clusters (turns in conversations) that resemble each other.

    ``counts`` are (hits, trials) of each cluster. Wilson's interval over the effective number of trials, n divided by
    the design effect: the linearised variance of the ratio over clusters against that of independent trials (Korn and
    Graubard 1998 do the same with Clopper and Pearson's interval). The effect is never taken to be under 1; where all
    or none hit it cannot be seen, and each cluster counts once.
    """
    pairs = [(hits, trials) for hits, trials in counts if trials]
    n = sum(trials for _, trials in pairs)
    if not n:
        return 0.0, 1.0
    share = sum(hits for hits, _ in pairs) / n
    clusters = len(pairs)
    if share in (0.0, 1.0) or clusters < 2:
        effective = float(clusters)
    else:
        spread = sum((hits - share * trials) ** 2 for hits, trials in pairs)
        variance = clusters / (clusters - 1) * spread / n**2
        effective = n / max(1.0, variance / (share * (1 - share) / n))
    scale = 1.0 + z * z / effective
    centre = (share + z * z / (2 * effective)) / scale
    half = z * math.sqrt(share * (1 - share) / effective + z * z / (4 * effective * effective)) / scale
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
