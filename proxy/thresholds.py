"""The operator's thresholds file: read at the start, and again whenever it changes, without a restart.

A file that cannot be used never loosens anything: while the proxy runs, the thresholds in force stay; at the start,
when it is not known what the operator wanted, reworded turns are misses until the file is mended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from proxy.metrics import Metrics
from proxy.settings import DecisionSettings, policy_of
from store.cache import Cache
from store.confidence.thresholds_file import (
    NoConfidence,
    ThresholdsError,
    ThresholdsFile,
    confidence_of,
    read_thresholds,
)
from store.types import Policy

__all__ = ["ThresholdsWatch"]

log = logging.getLogger(__name__)

_NEVER: Final = Policy(answer=1.0, verify=1.0)


class ThresholdsWatch:
    """Keeps a cache's thresholds as the file says. ``fault`` is why the last version of it could not be used."""

    def __init__(self, decision: DecisionSettings, cache: Cache, metrics: Metrics) -> None:
        self._decision = decision
        self._cache = cache
        self._metrics = metrics
        self._shipped = cache.confidence
        self._seen: tuple[int, ...] | None = None
        self.fault = ""
        self._show()

    async def begin(self) -> None:
        """Read the file, where one is set; `fault` then says why it cannot be used, in a sentence."""
        file = self._decision.thresholds_file
        if file is not None and not await self._take(file):
            self._cache.decide_by(_NEVER, NoConfidence())
            self._show()
            self.fault = f"only exact repeats are served: {self.fault}"

    async def run(self, settled: Callable[[str], None]) -> None:
        """Look at the file for ever; ``settled`` is told the fault, or nothing, after every change. Cancel to stop."""
        file = self._decision.thresholds_file
        while file is not None:
            await asyncio.sleep(self._decision.thresholds_interval_s)
            if await asyncio.to_thread(_state_of, file) == self._seen:
                continue
            fault_before = self.fault
            if not await self._take(file) and fault_before.startswith("only exact repeats"):
                self.fault = f"only exact repeats are served: {self.fault}"
            settled(self.fault)

    async def _take(self, file: Path) -> bool:
        self._seen, found = await asyncio.to_thread(_read, file, self._shipped.version)
        if isinstance(found, ThresholdsError):
            self.fault = str(found)
            self._metrics.threshold_loads.labels("refused").inc()
            log.error("the thresholds file cannot be used, nothing changes: %s", found)
            return False
        self.fault = ""
        policy = policy_of(self._decision, found.policy)
        self._cache.decide_by(policy, confidence_of(found, self._shipped))
        self._metrics.threshold_loads.labels("loaded").inc()
        self._show()
        log.info("thresholds from %s: answer %.4f, verify %.4f", file, policy.answer, policy.verify)
        return True

    def _show(self) -> None:
        self._metrics.thresholds.labels("answer").set(self._cache.policy.answer)
        self._metrics.thresholds.labels("verify").set(self._cache.policy.verify)


def _state_of(file: Path) -> tuple[int, ...] | None:
    """What changes when a file does; None where there is none."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read(file: Path, model: str) -> tuple[tuple[int, ...] | None, ThresholdsFile | ThresholdsError]:
    state = _state_of(file)  # before reading: a change in between is seen at the next look
    try:
        return state, read_thresholds(file, model)
    except ThresholdsError as error:
        return state, error
