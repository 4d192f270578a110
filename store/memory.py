"""Answers kept in memory, by exact key: an exact repeat costs microseconds and no thread."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from store.types import Answer, Kind

__all__ = ["Kept", "Memory"]

_OVERHEAD: Final = 900  # bytes: what the objects around an answer and its key weigh, rounded up


@dataclass(frozen=True, slots=True)
class Kept:
    """An entry as the memory knows it; wordings of it are other keys of the same value."""

    id: str
    exact_key: bytes  # of the entry itself
    node: str  # what the key it is kept under stands for: the entry, or one of its wordings
    answer: Answer
    text_digest: bytes
    created_at: float
    expires_at: float
    sightings: int = 1  # times it was asked
    # Of the decision that made it a wording (`store.checks`):
    kind: Kind = "exact"
    confidence: float = 1.0
    suspect: bool = False
    agreements: int = 0


class Memory:
    """A least-recently-used map of exact keys, bounded in bytes; safe to use from any thread."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._bytes = 0
        self._kept: OrderedDict[bytes, Kept] = OrderedDict()
        self._keys_of: dict[str, set[bytes]] = {}
        self._generation = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def size_bytes(self) -> int:
        """What is kept weighs about this much."""
        return self._bytes

    @property
    def generation(self) -> int:
        """Grows with every removal; see `put`."""
        return self._generation

    def get(self, key: bytes) -> Kept | None:
        """Return what is kept under ``key``, as the most recently used."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                self._kept.move_to_end(key)
            return kept

    def put(self, key: bytes, kept: Kept, *, generation: int | None = None) -> None:
        """Keep an answer.

        Where ``generation`` (read before the database was asked) is no longer the current one, something was taken out
        meanwhile, what was read may be it, and nothing is kept.
        """
        with self._lock:
            if generation is not None and generation != self._generation:
                return
            self._drop(key)
            size = _size(kept)
            if size > self._limit:
                return
            self._kept[key] = kept
            self._keys_of.setdefault(kept.id, set()).add(key)
            self._bytes += size
            while self._bytes > self._limit:
                self._drop(next(iter(self._kept)))

    def forget(self, key: bytes) -> None:
        """Drop one key."""
        with self._lock:
            self._drop(key)

    def outdate(self, key: bytes) -> None:
        """Drop one key, and what is being read for it: another process gave it another answer."""
        with self._lock:
            self._generation += 1
            self._drop(key)

    def remove(self, entry_id: str) -> None:
        """Drop an entry with all its wordings."""
        with self._lock:
            self._generation += 1
            for key in tuple(self._keys_of.get(entry_id, ())):
                self._drop(key)

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._generation += 1
            self._kept.clear()
            self._keys_of.clear()
            self._bytes = 0

    def _drop(self, key: bytes) -> None:
        kept = self._kept.pop(key, None)
        if kept is None:
            return
        self._bytes -= _size(kept)
        keys = self._keys_of[kept.id]
        keys.discard(key)
        if not keys:
            del self._keys_of[kept.id]


def _size(kept: Kept) -> int:
    # A text outside ASCII takes up to four bytes a character; counting them all so never overruns the limit.
    text = kept.answer.text
    return _OVERHEAD + len(kept.answer.body) + len(text) * (1 if text.isascii() else 4)
