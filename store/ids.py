"""Entry and node ids: 32 hex digits that sort by the time they were made (the bits of a UUID version 7, RFC 9562)."""

from __future__ import annotations

import secrets
import threading

__all__ = ["IdMaker"]

_SEQUENCE_BITS = 12
_RANDOM_BITS = 62


class IdMaker:
    """Makes ids that grow even within a millisecond, and even where the clock is set back."""

    def __init__(self) -> None:
        self._last = 0
        self._lock = threading.Lock()

    def __call__(self, now: float) -> str:
        """Return a new id; ``now`` in seconds since the epoch."""
        stamp = max(0, int(now * 1000)) << _SEQUENCE_BITS
        with self._lock:
            self._last = max(self._last + 1, stamp)
            high = self._last
        milliseconds, sequence = high >> _SEQUENCE_BITS, high & ((1 << _SEQUENCE_BITS) - 1)
        value = (
            (milliseconds & ((1 << 48) - 1)) << 80
            | 0x7 << 76
            | sequence << 64
            | 0b10 << _RANDOM_BITS
            | secrets.randbits(_RANDOM_BITS)
        )
        return f"{value:032x}"
