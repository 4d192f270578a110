"""Which exact keys the database may hold, so that a turn nobody has asked before costs no look into it."""

from __future__ import annotations

from typing import Final

__all__ = ["MOST_KEYS", "KnownKeys"]

MOST_KEYS: Final = 200_000
"""Keys that are kept, at most: about 16 MiB. With more of them nothing is known, so no more need be read."""


class KnownKeys:
    """Never says that a key is absent which is there; where there are too many keys to keep, any may be there.

    For a database that nobody else writes. Eight bytes of a key stand for it, so that one absent key in 10^14 or so is
    taken for present, which costs a look.
    """

    def __init__(self) -> None:
        self._keys: set[bytes] | None = set()

    def add(self, key: bytes) -> None:
        """Note that a key is there, or soon will be."""
        if self._keys is not None:
            self._keys.add(key[:8])
            if len(self._keys) > MOST_KEYS:
                self.forget()

    def forget(self) -> None:
        """From now on any key may be there."""
        self._keys = None

    def absent(self, key: bytes) -> bool:
        """Whether a key is surely not there."""
        return self._keys is not None and key[:8] not in self._keys
