"""How processes on one database learn what the others took out of circulation.

Whoever changes something that another process may hold in memory says so with `announce`, in the transaction that
changes it. The engine writes what was said into the table ``changes`` with the commit, and every other process takes
note of it through `Followed`: by notification at once, by polling a fraction of a second later at most. Where no other
process can be (SQLite), `announce` does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec
from sqlalchemy import Connection

from fingerprint.text import utf8
from store.bars import Bars
from store.memory import Memory
from store.recent import Recent

__all__ = ["Followed", "Handler", "Leases", "Link", "announce", "begin", "pack", "said", "unpack"]

Handler = Callable[[Sequence[bytes]], None]
Said = list[tuple[str, list[bytes]]]

_SAID: Final = "antiphon.said"
_DECODER: Final = msgspec.msgpack.Decoder(Said)


def announce(connection: Connection, kind: str, *values: bytes | str) -> None:
    """Tell the other processes, once this transaction is committed.

    Kinds: "gone" (entry id, exact key, …), "key" (exact key, …), "bar" (scope, item, …), "session" (session, exact
    key, …), "evidence" (of `store.checks`), "epoch" (number), "everything"; whoever adds one gives `Followed` (or
    `Link.start`) a handler for it. A kind that a process does not know makes it forget everything it holds in memory,
    so that a newer release can run beside an older one.
    """
    said: Said | None = connection.info.get(_SAID)
    if said is not None:
        said.append((kind, [utf8(value) if isinstance(value, str) else value for value in values]))


def begin(connection: Connection) -> None:
    """Collect what is announced on this connection from here on; for engines where others listen."""
    connection.info[_SAID] = []


def said(connection: Connection) -> Said:
    """Return what was announced since `begin`, and stop collecting."""
    collected: Said = connection.info.pop(_SAID, [])
    return collected


def pack(changes: Said) -> bytes:
    """Encode announcements for the table."""
    return msgspec.msgpack.encode(changes)


def unpack(body: bytes) -> Said:
    """Decode what `pack` wrote. Raises `msgspec.DecodeError`."""
    return _DECODER.decode(body)


class Link(Protocol):
    """What keeps this process in step with the others."""

    def start(self, handlers: Mapping[str, Handler], forget: Callable[[], None]) -> None:
        """Begin to follow, from now on. ``forget`` is called where changes may have been missed."""

    def fresh(self) -> bool:
        """Whether everything that others committed longer ago than ``changes_limit_ms`` is known here."""

    def close(self) -> None:
        """Stop following."""


class Leases(Protocol):
    """Who is answering a turn just now, among all processes on the database."""

    async def take(self, key: bytes) -> bool:
        """Take the lease of a turn (its exact key); False where another process holds it."""

    def give_back(self, key: bytes) -> None:
        """Give a lease back."""

    def close(self) -> None:
        """Give everything back."""


class Followed:
    """What of this process has to follow the others: answers in memory, what is recent, and bars."""

    def __init__(self, memory: Memory, recent: Recent, bars: Bars) -> None:
        self._memory = memory
        self._recent = recent
        self._bars = bars

    def handlers(self) -> Mapping[str, Handler]:
        """Return what is to be done for each kind of announcement."""
        return {
            "gone": self._gone,
            "key": self._keys,
            "bar": self._barred,
            "session": self._answered,
            "everything": lambda _: self.forget(),
        }

    def forget(self) -> None:
        """Drop every answer from memory: the database knows better."""
        self._recent.forget_newest()
        self._memory.clear()

    def _gone(self, values: Sequence[bytes]) -> None:
        for entry_id, key in _pairs(values):
            self._recent.newest_elsewhere(key)
            self._memory.remove(entry_id.decode("ascii"))

    def _barred(self, values: Sequence[bytes]) -> None:
        for scope, item in _pairs(values):
            self._bars.add((scope,), (item,))

    def _answered(self, values: Sequence[bytes]) -> None:
        for session, key in _pairs(values):
            self._recent.answered(session.decode("utf-8", "surrogatepass"), key)

    def _keys(self, values: Sequence[bytes]) -> None:
        for key in values:
            self._recent.newest_elsewhere(key)
            self._memory.outdate(key)


def _pairs(values: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(values[::2], values[1::2], strict=True))
