"""Which exact keys the database may hold, so that a turn nobody has asked before costs no look into it."""

from __future__ import annotations

from typing import Final

__all__ = ["KnownKeys"]

_MOST: Final = 200_000  # keys; about 16 MiB


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
            if len(self._keys) > _MOST:
                self.forget()

    def forget(self) -> None:
        """From now on any key may be there."""
        self._keys = None

    def absent(self, key: bytes) -> bool:
        """Whether a key is surely not there."""
        return self._keys is not None and key[:8] not in self._keys
