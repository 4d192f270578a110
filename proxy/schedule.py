"""Keeps a cache's threshold as strict as its traffic asks for (`store.schedule`). Off unless `decision.by_traffic`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from proxy.metrics import Metrics
from store.cache import Cache
from store.schedule import Traffic, stricter
from store.types import Policy

__all__ = ["Schedule"]

log = logging.getLogger(__name__)

_EVERY_S: Final = 60.0
_WORTH_IT: Final = 0.001  # smaller changes of the threshold are not made


class Schedule:
    """Looks once a minute how many requests came, and sets the threshold of a cache accordingly."""

    def __init__(self, cache: Cache, metrics: Metrics, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._cache = cache
        self._metrics = metrics
        self._clock = clock
        self._traffic = Traffic(clock())
        self._counted = metrics.counted
        self._base = cache.policy
        self._set: Policy | None = None

    async def run(self) -> None:
        """Look for ever. Cancel to stop."""
        while True:
            await asyncio.sleep(_EVERY_S)
            self.look()

    def look(self) -> None:
        """Count what came since the last look, and set the threshold where it has changed.

        Thresholds that somebody else set meanwhile (the operator's file) are what the schedule is laid over from then.
        """
        now, total = self._clock(), self._metrics.counted
        self._traffic.add(now, total - self._counted)
        self._counted = total
        in_force = self._cache.policy
        if in_force is not self._set:
            self._base = in_force
        wanted = stricter(self._base, self._traffic.daily(now))
        if abs(wanted.answer - in_force.answer) < _WORTH_IT:
            return
        self._set = wanted
        self._cache.decide_by(wanted, self._cache.confidence)
        self._metrics.thresholds.labels("answer").set(wanted.answer)
        log.info("%.0f requests a day: answers from a confidence of %.4f on", self._traffic.daily(now), wanted.answer)
