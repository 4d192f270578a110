"""HTTP/1.1 as uvicorn speaks it, with bounds on what stands before a body.

uvicorn gathers header lines without an end, and waits for them for ever. Here a head that is too long, has too many
lines or takes too long is answered in words, and the connection closed. What is not HTTP at all gets a 400 that OpenAI
clients can read.
"""

from __future__ import annotations

import asyncio
import re
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from proxy.errors import error_body
from proxy.headers import date_now
from proxy.settings import LimitsSettings

__all__ = ["limited"]

_STATUS = {
    400: b"400 Bad Request",
    408: b"408 Request Timeout",
    431: b"431 Request Header Fields Too Large",
}


_LINGER_S = 1.0  # after a refusal, for the client to read it

# RFC 9110 §7.8: a server may ignore an offer to change the protocol. Java's HTTP client offers h2c with each request,
# and uvicorn would take the body that follows for the new protocol. Only websockets are left, to be refused in words.
_OFFER = re.compile(rb"\r\nupgrade[ \t]*:(?![^\r\n]*websocket)[^\r\n]*(?=\r\n)", re.IGNORECASE)


def _without_upgrade(data: bytes) -> bytes:
    end = data.find(b"\r\n\r\n")
    head = data if end < 0 else data[: end + 2]
    return _OFFER.sub(b"", head) + data[len(head) :]


class _TooManyHeaders(Exception):  # noqa: N818 - reads as what it says
    """Ends the parsing of a request that was refused."""


class _Limited(HttpToolsProtocol):
    """One connection."""

    most_head_bytes: ClassVar[int]
    most_headers: ClassVar[int]
    head_s: ClassVar[float]

    _in_head = True
    _between = False  # whether a request has ended and the next one has not begun
    _head_bytes = 0
    _begun = False  # whether anything of the head has come
    _refused = False
    _owed: tuple[int, str, str] | None = None  # a refusal that waits for an earlier reply to end
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected: its first request is due."""
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._head_came()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read what has come; a head that is not complete yet is counted."""
        if self._refused:  # what still comes is not read, only taken
            return
        self._begun = True
        if (self._in_head or self._between) and b"pgrade" in data:
            data = _without_upgrade(data)
        super().data_received(data)
        if self._in_head and not self._refused:
            self._head_bytes += len(data)
            if self._head_bytes > self.most_head_bytes:
                self._refuse(431, f"the request's head is longer than {self.most_head_bytes} bytes", "head_too_large")

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0
        if self._timer is None:
            self._expect_head()

    def on_headers_complete(self) -> None:
        """The head has come."""
        self._in_head = self._between = self._begun = False
        self._head_came()
        if len(self.headers) > self.most_headers:
            self._refuse(431, f"the request has more than {self.most_headers} headers", "too_many_headers")
            raise _TooManyHeaders
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The body has come."""
        super().on_message_complete()
        self._between = True

    def send_400_response(self, msg: str) -> None:
        """Say that this is not HTTP."""
        if not self._refused:
            self._refuse(400, msg, "invalid_http")

    def _expect_head(self) -> None:
        self._timer = self.loop.call_later(self.head_s, self._too_slow)

    def _head_came(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if self._begun:
            self._refuse(408, f"the request's head did not come within {self.head_s:g} s", "head_too_slow")
        else:  # connected and never said anything
            self.transport.close()

    def on_response_complete(self) -> None:
        """A reply has been sent."""
        super().on_response_complete()
        if self._owed is not None and not self._busy():
            owed, self._owed = self._owed, None
            self._say(*owed)

    def _refuse(self, status: int, message: str, code: str) -> None:
        """Read nothing more; say why as soon as the replies to earlier requests are out."""
        self._head_came()
        self._refused = True
        if self._busy():
            self._owed = (status, message, code)
        else:
            self._say(status, message, code)

    def _busy(self) -> bool:
        """Whether a reply is under way, or due, to a request that came whole."""
        cycle = self.cycle
        return bool(self.pipeline) or (
            cycle is not None and not cycle.response_complete and (cycle.response_started or not cycle.more_body)
        )

    def _say(self, status: int, message: str, code: str) -> None:
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:  # its body was what could not be read
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        body = error_body(message, kind="invalid_request_error", code=code)
        self.transport.write(
            b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ndate: %s\r\nconnection: close\r\n"
            b"content-length: %d\r\n\r\n%s" % (_STATUS[status], date_now(), len(body), body)
        )
        # A connection that is closed while data waits to be read is reset, and the client never sees our words.
        self._unset_keepalive_if_required()
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self._timer = self.loop.call_later(_LINGER_S, self.transport.close)
        else:
            self.transport.close()


def limited(limits: LimitsSettings) -> type[HttpToolsProtocol]:
    """Return the protocol class for uvicorn with these limits."""

    class Limited(_Limited):
        most_head_bytes = int(limits.max_head_kib * 1024)
        most_headers = limits.max_headers
        head_s = limits.head_timeout_s

    return Limited
