"""Turns in the order in which they were asked, on disk: a log may be larger than memory, and out of order.

One temporary SQLite file, gone when it is closed. Each distinct text that has to be embedded is kept once.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from eval.traffic.turns import LoggedTurn
from fingerprint.conversation import Message, Turn
from fingerprint.text import utf8
from fingerprint.traffic import Record

__all__ = ["Spool"]

_BATCH: Final = 500


class _Kept(msgspec.Struct, array_like=True):
    """A turn as it lies in the file: the messages once, as they are compared, and the record without them."""

    messages: list[tuple[bytes, bytes, bytes]]
    system: int
    answer: bytes | None
    time: float | None
    conversation: bytes
    file: str
    line: int
    index: int
    record: bytes


_ENCODE: Final = msgspec.msgpack.Encoder()
_DECODE: Final = msgspec.msgpack.Decoder(_Kept)
_RECORD: Final = msgspec.msgpack.Decoder(Record)


class Spool:
    """Turns by number, 0 … ``len`` - 1, in the order of their times. One thread only."""

    def __init__(self, folder: Path) -> None:
        """Make the file in ``folder``."""
        self._db = sqlite3.connect(folder / "spool.sqlite3", isolation_level=None)
        self._db.executescript(
            "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA cache_size=-65536;"
            "CREATE TABLE turns (number INTEGER PRIMARY KEY, at REAL NOT NULL, data BLOB NOT NULL);"
            "CREATE TABLE texts (key BLOB PRIMARY KEY, text BLOB NOT NULL) WITHOUT ROWID;"
        )
        self._order: list[int] | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def fill(self, turns: Iterable[LoggedTurn]) -> Iterator[LoggedTurn]:
        """Put turns in, and hand each on. A turn without a time keeps its place behind the one before it."""
        last = float("-inf")
        self._db.execute("BEGIN")
        for turn in turns:
            last = turn.time if turn.time is not None else last
            at = last if last != float("-inf") else -1e300
            self._db.execute("INSERT INTO turns VALUES (?, ?, ?)", (self._count, at, _packed(turn)))
            self._count += 1
            yield turn
        self._db.execute("COMMIT")

    def sort(self) -> None:
        """Put what was filled in into the order of times; equal times stay in the order of the log."""
        self._order = [number for (number,) in self._db.execute("SELECT number FROM turns ORDER BY at, number")]

    def turn(self, number: int) -> LoggedTurn:
        """Return the turn at a place in the order."""
        order = self._order
        assert order is not None, "sort first"
        (data,) = self._db.execute("SELECT data FROM turns WHERE number = ?", (order[number],)).fetchone()
        return _unpacked(data)

    def turns(self) -> Iterator[LoggedTurn]:
        """Yield all turns in order."""
        for number in range(self._count):
            yield self.turn(number)

    def want(self, key: bytes, text: str) -> None:
        """Keep a text that has to be embedded."""
        self._db.execute("INSERT OR IGNORE INTO texts VALUES (?, ?)", (key, utf8(text)))

    def wanted(self) -> Iterator[list[tuple[bytes, str]]]:
        """Yield the texts kept, each once, in batches."""
        last = b""
        while True:
            rows = self._db.execute(
                "SELECT key, text FROM texts WHERE key > ? ORDER BY key LIMIT ?", (last, _BATCH)
            ).fetchall()
            if not rows:
                return
            last = rows[-1][0]
            yield [(key, text.decode("utf-8", "surrogatepass")) for key, text in rows]

    def texts(self) -> int:
        """How many distinct texts are kept."""
        return int(self._db.execute("SELECT count(*) FROM texts").fetchone()[0])

    def close(self) -> None:
        """Close the file; whoever made the folder removes it."""
        self._db.close()


def _packed(logged: LoggedTurn) -> bytes:
    turn = logged.turn
    kept = _Kept(
        messages=[(utf8(m.role), utf8(m.text), m.opaque) for m in turn.messages],
        system=len(turn.system),
        answer=None if logged.answer is None else utf8(logged.answer),
        time=logged.time,
        conversation=utf8(logged.conversation),
        file=logged.file,
        line=logged.line,
        index=logged.index,
        record=_ENCODE.encode(msgspec.structs.replace(logged.record, messages=[], answer=None)),
    )
    return zlib.compress(_ENCODE.encode(kept), 1)


def _unpacked(data: bytes) -> LoggedTurn:
    kept = _DECODE.decode(zlib.decompress(data))
    messages = tuple(Message(_text(role), _text(text), opaque) for role, text, opaque in kept.messages)
    return LoggedTurn(
        turn=Turn(messages[: kept.system], messages[kept.system : -1], messages[-1]),
        answer=None if kept.answer is None else _text(kept.answer),
        time=kept.time,
        conversation=_text(kept.conversation),
        record=_RECORD.decode(kept.record),
        file=kept.file,
        line=kept.line,
        index=kept.index,
    )


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
