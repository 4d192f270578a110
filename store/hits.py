"""Hits are counted in memory and written together: an exact repeat costs no write of its own."""

from __future__ import annotations

import asyncio
import threading
from typing import Final

from store.writer import Writer
from store.writes import HitsWrite

__all__ = ["Hits"]

_EVERY_S: Final = 1.0


class Hits:
    """Counts hits by entry and has them written at most once a second."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._counts: dict[str, tuple[int, float]] = {}
        self._lock = threading.Lock()
        self._due: asyncio.TimerHandle | None = None

    def count(self, entry_id: str, now: float) -> None:
        """Count a hit at ``now``; on the event loop."""
        with self._lock:
            count, _ = self._counts.get(entry_id, (0, now))
            self._counts[entry_id] = (count + 1, now)
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(_EVERY_S, self.write)

    def write(self) -> None:
        """Queue what has been counted so far."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if self._counts:
            self._writer.put(HitsWrite(self._take))

    def _take(self) -> dict[str, tuple[int, float]]:
        with self._lock:
            counts, self._counts = self._counts, {}
        return counts
