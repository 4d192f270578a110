"""Server-sent events, read incrementally from bytes that arrive in any pieces (WHATWG HTML §9.2.6)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["Event", "EventReader"]

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its bytes as they came, up to and with the empty line that closes it, and what they say."""

    raw: bytes
    data: bytes | None  # the data lines joined by "\n"; None where there was none (comments, keep-alives)
    name: bytes = b""  # the ``event`` field


class EventReader:
    """Cuts a byte stream into events. The raw bytes of all events and of `rest` are the stream, unchanged."""

    __slots__ = ("_buffer", "_data", "_first", "_line", "_name", "_scan")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._line = 0  # where the current line begins
        self._scan = 0  # no line end between _line and here
        self._data: list[bytes] = []
        self._name = b""
        self._first = True

    @property
    def rest(self) -> bytes:
        """The bytes after the last complete event."""
        return bytes(self._buffer)

    def feed(self, piece: bytes) -> list[Event]:
        """Take the next bytes; return the events that they complete."""
        self._buffer += piece
        return self._cut(last=False)

    def close(self) -> list[Event]:
        """The stream is over: return the event that only a last CR completes, if there is one."""
        return self._cut(last=True)

    def _cut(self, *, last: bool) -> list[Event]:
        buffer = self._buffer
        events: list[Event] = []
        begin = 0
        while True:
            end = _LINE_END.search(buffer, self._scan)
            # A lone CR at the end may be the first half of CR LF: only the next byte tells.
            if end is None or (not last and end.group() == b"\r" and end.end() == len(buffer)):
                self._scan = len(buffer) if end is None else end.start()
                break
            line = bytes(buffer[self._line : end.start()])
            if self._first:
                line = line.removeprefix(_BOM)
                self._first = False
            self._line = self._scan = end.end()
            if line:
                self._take(line)
                continue
            data = b"\n".join(self._data) if self._data else None
            events.append(Event(bytes(buffer[begin : self._line]), data, self._name))
            begin = self._line
            self._data, self._name = [], b""
        if begin:
            del buffer[:begin]
            self._line -= begin
            self._scan -= begin
        return events

    def _take(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value
