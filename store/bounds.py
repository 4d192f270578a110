"""Upper bounds of a rate from yes-or-no observations. Pure arithmetic, standard library only."""

from __future__ import annotations

import math
from functools import lru_cache

__all__ = ["at_least", "clopper_pearson_upper", "is_below", "needed_without_error", "sequence_upper"]

_STEPS = 60  # halvings: an interval of length 1 shrinks below the precision of a float


def at_least(wrong: int, trials: int, rate: float) -> float:
    """Return the probability, 0 … 1, of ``wrong`` or more among ``trials``, each wrong with probability ``rate``.

    The exact binomial test; ``rate`` strictly between 0 and 1.
    """
    if not 0 < rate < 1 or not 0 <= wrong <= trials:
        raise ValueError(f"{wrong} wrong of {trials} at {rate}")
    return max(0.0, 1.0 - _fewer(wrong, trials, rate))


def _fewer(wrong: int, trials: int, rate: float) -> float:
    """Probability of fewer than ``wrong`` among ``trials``."""
    if wrong == 0:
        return 0.0
    logs = [
        math.lgamma(trials + 1)
        - math.lgamma(k + 1)
        - math.lgamma(trials - k + 1)
        + k * math.log(rate)
        + (trials - k) * math.log1p(-rate)
        for k in range(wrong)
    ]
    top = max(logs)
    return min(1.0, math.exp(top) * sum(math.exp(x - top) for x in logs))


def clopper_pearson_upper(wrong: int, trials: int, alpha: float = 0.05) -> float:
    """One-sided upper bound of a rate, 0 … 1, valid for one look at a number of trials fixed beforehand.

    Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial" (Biometrika
    26, 1934): the largest p at which ``wrong`` or fewer of ``trials`` still has probability ``alpha``. 1 without
    trials.
    """
    _check(wrong, trials, alpha)
    if trials == 0 or wrong == trials:
        return 1.0

    low, high = wrong / trials, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if _fewer(wrong + 1, trials, middle) > alpha else (low, middle)
    return high


@lru_cache(maxsize=65_536)
def sequence_upper(wrong: int, trials: int, alpha: float = 0.05, around: float = 0.01) -> float:
    """Upper bound of a rate, 0 … 1, that holds at every number of trials at once: one may look after each of them.

    A confidence sequence from a beta-binomial mixture martingale (Robbins, "Statistical methods related to the law of
    the iterated logarithm", Ann. Math. Stat. 41, 1970; Howard, Ramdas, McAuliffe and Sekhon, "Time-uniform,
    nonparametric, nonasymptotic confidence sequences", Ann. Statist. 49, 2021). With the mixture Beta(a, b),

        M(p) = B(a + wrong, b + trials - wrong) / B(a, b) / (p^wrong (1 - p)^(trials - wrong))

    is a martingale of mean 1 under the true p, so by Ville's inequality it reaches 1 / alpha with probability at most
    alpha, ever. The bound is the largest p that it does not exclude. a = 1/2 and b so that the mixture's mean is half
    of ``around``, the rate near which the bound is to be tight. 1 without trials.
    """
    _check(wrong, trials, alpha)
    if trials == 0 or wrong == trials:
        return 1.0
    low, high = wrong / trials, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if _excluded(middle, wrong, trials, alpha, around) else (middle, high)
    return high


@lru_cache(maxsize=65_536)
def is_below(rate: float, wrong: int, trials: int, alpha: float = 0.05) -> bool:
    """Whether `sequence_upper` (tight around ``rate``) is at most ``rate``, at a sixtieth of its cost."""
    _check(wrong, trials, alpha)
    return trials > 0 and wrong < rate * trials and _excluded(rate, wrong, trials, alpha, rate)


def _excluded(p: float, wrong: int, trials: int, alpha: float, around: float) -> bool:
    """Whether the mixture martingale has reached 1 / alpha under a rate of ``p``."""
    a = 0.5
    b = a * (2.0 / around - 1.0)
    right = trials - wrong
    mixture = _log_beta(a + wrong, b + right) - _log_beta(a, b)
    return mixture - (wrong * math.log(p) if wrong else 0.0) - right * math.log1p(-p) >= -math.log(alpha)


@lru_cache(maxsize=256)
def needed_without_error(rate: float, alpha: float = 0.05) -> int:
    """How many right observations, none wrong, bring `sequence_upper` (tight around ``rate``) down to ``rate``."""
    low, high = 0, 1
    while not is_below(rate, 0, high, alpha):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_below(rate, 0, middle, alpha) else (middle, high)
    return high


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _check(wrong: int, trials: int, alpha: float) -> None:
    if not 0 <= wrong <= trials:
        raise ValueError(f"{wrong} wrong of {trials}")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha {alpha}")
