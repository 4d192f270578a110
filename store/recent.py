"""What the database does not show yet, or still shows though it is no longer so."""

from __future__ import annotations

from typing import Final

from store.bounded import Bounded

__all__ = ["Recent"]

_REMEMBERED: Final = 16_384
_SESSIONS: Final = 100_000
_SETTLED_S: Final = 86_400.0


class Recent:
    """Bounded memories of this process, each longer than anything can wait in the writer's queue."""

    def __init__(self) -> None:
        self.places: Bounded[bytes, str] = Bounded(_REMEMBERED)
        """Place → node."""
        self.wordings: Bounded[bytes, tuple[str, str]] = Bounded(_REMEMBERED)
        """Exact key of a turn served from an entry that is not its own → its node, and the entry."""
        self._settled: Bounded[bytes, float] = Bounded(_REMEMBERED)
        self._newest: Bounded[bytes, str] = Bounded(_REMEMBERED)
        self._dead: Bounded[str, bool] = Bounded(_REMEMBERED)
        self._sessions: Bounded[tuple[str, bytes], bool] = Bounded(_SESSIONS)

    def settle(self, exact_key: bytes, now: float) -> None:
        """The place of this turn has been queued for writing."""
        self._settled[exact_key] = now

    def settled(self, exact_key: bytes, now: float) -> bool:
        """Whether that was done today: places that are not written again for long are forgotten."""
        at = self._settled.get(exact_key)
        return at is not None and now - at < _SETTLED_S

    def recorded(self, exact_key: bytes, entry_id: str) -> None:
        """From now on only this entry answers this exact key, even where it could not be written."""
        self._newest[exact_key] = entry_id

    def newest_elsewhere(self, exact_key: bytes) -> None:
        """Another process changed what answers this exact key: the database knows which entry it is."""
        self._newest.pop(exact_key)

    def forget_newest(self) -> None:
        """The same for every exact key."""
        self._newest.clear()

    def retracted(self, entry_id: str) -> None:
        """From now on this entry answers nothing."""
        self._dead[entry_id] = True

    def outdated(self, entry_id: str, exact_key: bytes) -> bool:
        """Whether an entry that the database shows must not be served any more."""
        newest = self._newest.get(exact_key)
        return entry_id in self._dead or (newest is not None and newest != entry_id)

    def answered(self, session: str, exact_key: bytes) -> bool:
        """Note that a session was given an answer to this turn; returns whether that was new."""
        new = (session, exact_key) not in self._sessions
        self._sessions[session, exact_key] = True
        return new

    def has_answered(self, session: str, exact_key: bytes) -> bool:
        """Whether this session was given an answer to this turn."""
        return (session, exact_key) in self._sessions
