"""Stricter with more traffic: the threshold a cache should keep when it answers many requests a day. No I/O.

The same share of wrong answers is more wrong answers where there is more traffic, and more chances for a coincidence
where there are more stored turns. The schedule is a floor under the calibrated threshold, never a way below it.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from typing import Final

from store.types import Policy

__all__ = ["LEAST", "MOST", "Traffic", "answer_for", "stricter"]

LEAST: Final = 0.80
MOST: Final = 0.99
_STEP: Final = 0.05  # for ten times the traffic
_REFERENCE: Final = 10_000  # requests a day
_HOUR_S: Final = 3_600.0
_HOURS: Final = 24


def answer_for(daily_requests: float) -> float:
    """Least confidence for an answer at so many requests a day: 0.80 + 0.05·log10(daily / 10,000), 0.80 … 0.99."""
    if not daily_requests > _REFERENCE:  # nor a logarithm of nothing
        return LEAST
    return min(MOST, max(LEAST, LEAST + _STEP * math.log10(daily_requests / _REFERENCE)))


def stricter(policy: Policy, daily_requests: float) -> Policy:
    """``policy``, its ``answer`` not under that of the schedule."""
    return replace(policy, answer=max(policy.answer, answer_for(daily_requests)))


class Traffic:
    """Requests of the last 24 hours, counted by the hour. Before a day has passed, the rate so far is taken for all of
    it, but of no less than an hour: a burst at the start is not a day's traffic."""

    def __init__(self, now: float) -> None:
        self._hours: deque[tuple[float, int]] = deque([(now, 0)], maxlen=_HOURS)  # start of the hour, requests in it
        self._began = now

    def add(self, now: float, requests: int = 1) -> None:
        """Count requests at ``now``, seconds on any clock that never goes back."""
        start, count = self._hours[-1]
        if now - start >= _HOUR_S:
            self._hours.append((now, requests))
        else:
            self._hours[-1] = (start, count + requests)

    def daily(self, now: float) -> float:
        """Requests a day, by the last 24 hours."""
        day = _HOURS * _HOUR_S
        recent = sum(count for start, count in self._hours if now - start < day)
        span = min(max(now - self._began, _HOUR_S), day)
        return recent * day / span
