"""Whether a session asks again for what it has just been served: a weak sign that the answer was not what it wanted."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Literal

from fingerprint.text import utf8
from store.bounded import Bounded
from store.types import Query

__all__ = ["AskedAgain", "rater_of"]

_RIGHT_AFTER_S: Final = 600.0
_REMEMBERED: Final = 16_384


@dataclass(frozen=True, slots=True)
class _Served:
    entry_id: str
    exact_key: bytes
    before: bytes | None  # the place the turn hung from
    at: float


class AskedAgain:
    """The last hit of each session and of each conversation, for ten minutes."""

    def __init__(self) -> None:
        self._by_session: Bounded[tuple[bytes, str], _Served] = Bounded(_REMEMBERED)
        self._by_place: Bounded[bytes, _Served] = Bounded(_REMEMBERED)

    def served(self, query: Query, entry_id: str, after: bytes | None, now: float) -> None:
        """A hit was served; ``after`` is where the next turn hangs from."""
        served = _Served(entry_id, query.exact_key, query.place_key, now)
        if query.session is not None:
            self._by_session[query.partition, query.session] = served
        if after is not None:
            self._by_place[after] = served

    def last(self, query: Query) -> str | None:
        """Return the last hit of a session; None without a session, or where it has had none."""
        served = None if query.session is None else self._by_session.get((query.partition, query.session))
        return None if served is None else served.entry_id

    def regenerated(self, query: Query, now: float) -> str | None:
        """Return the entry a session was served for this very turn, where that was its last hit and just now."""
        served = None if query.session is None else self._by_session.get((query.partition, query.session))
        if served is None or served.exact_key != query.exact_key or now - served.at > _RIGHT_AFTER_S:
            return None
        return served.entry_id

    def again(self, query: Query, entry_id: str, now: float) -> Literal["below", "beside"] | None:
        """Whether ``entry_id``, about to be served, is what this session or conversation was served last.

        ``below``: asked again with the answer in view; ``beside``: asked anew at the same place, as after an edit.
        """
        served = None if query.place_key is None else self._by_place.get(query.place_key)
        if served is not None and served.entry_id == entry_id and now - served.at <= _RIGHT_AFTER_S:
            return "below"
        served = None if query.session is None else self._by_session.get((query.partition, query.session))
        if served is None or served.entry_id != entry_id or now - served.at > _RIGHT_AFTER_S:
            return None
        return "beside" if served.before == query.place_key and served.exact_key != query.exact_key else None


def rater_of(query: Query) -> bytes:
    """Return 16 bytes that stand for who asks: the session, else the conversation so far, else the partition."""
    who = utf8(query.session) if query.session is not None else query.place_key or b""
    return blake2b(query.partition + who, digest_size=16, person=b"antiphon.rater").digest()
