"""The backend: one pooled HTTP/1.1 client, and the pass-through of everything the cache has no part in.

Requests and replies travel as raw bytes: the target exactly as it came, bodies never decoded and never gathered.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, MutableMapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import httpx

from proxy.errors import (
    ClientGone,
    ReplyCut,
    UpstreamBroken,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnreachable,
    error_body,
)
from proxy.headers import RawHeaders, date_now, forwarded, returned
from proxy.settings import UpstreamSettings
from proxy.tracing import Call, current

__all__ = [
    "Forwardable",
    "Receive",
    "Reply",
    "Scope",
    "Send",
    "Upstream",
    "client_gone",
    "refused",
    "reply_error",
    "while_connected",
]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

log = logging.getLogger(__name__)

# RFC 9110 §9.2.2: may be sent again after a connection that broke before any reply.
_IDEMPOTENT: Final = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"})


# A connection that had been closed already fails at once; whatever fails later may have been worked on.
_STALE_S: Final = 1.0
_QUIET_S: Final = 60.0  # between two lines in the log that say the same


@dataclass(slots=True)
class Forwardable:
    """A request as it may be sent instead: the client's headers with the length of this body."""

    headers: RawHeaders
    body: bytes
    extra: RawHeaders  # added to the headers of its reply
    sent: bool = False


def refused(status: int) -> bool:
    """Whether a backend's status says that it will not have this request, whoever sends it and whenever."""
    return 400 <= status < 500 and status not in (401, 403, 407, 408, 425, 429)


class Reply:
    """A reply whose head has arrived. Iterating gives the raw body as it comes; close it in any case."""

    __slots__ = ("_stream", "call", "headers", "status")

    def __init__(self, response: httpx.Response) -> None:
        self.status = response.status_code
        self.headers = returned(response.headers.raw)
        stream = response.stream
        assert isinstance(stream, httpx.AsyncByteStream)
        self._stream = stream
        self.call: Call | None = None  # its span, where the request is traced

    def header(self, wanted: bytes) -> bytes:
        """Return the value of the first line of a field, empty where there is none."""
        return next((value for name, value in self.headers if name == wanted), b"")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the body in the pieces it arrives in. Raises `UpstreamTimeout` and `UpstreamBroken`."""
        try:
            async for chunk in self._stream:
                yield chunk
        except httpx.TimeoutException as error:
            self._traced("timeout")
            raise UpstreamTimeout("the backend stopped sending") from error
        except httpx.HTTPError as error:
            self._traced("protocol")
            raise UpstreamBroken("the backend broke off its reply") from error

    async def aclose(self) -> None:
        """Give the connection back, or close it where the reply was not read to its end: the backend then aborts."""
        self._traced()
        with contextlib.suppress(httpx.HTTPError):
            await self._stream.aclose()

    def _traced(self, failed: str = "") -> None:
        call, self.call = self.call, None
        if call is not None:
            call.end(failed)


class Upstream:
    """The client to the backend. Never uses proxies, cookies, redirects or credentials from the environment."""

    def __init__(self, settings: UpstreamSettings) -> None:
        parts = urlsplit(settings.url)
        host = parts.netloc.rpartition("@")[2]
        self._base = httpx.URL(f"{parts.scheme}://{host}")
        self._prefix = parts.path.encode("ascii", "ignore")
        self._transport = httpx.AsyncHTTPTransport(
            verify=settings.verify_tls,
            trust_env=False,
            http2=False,
            limits=httpx.Limits(
                max_connections=settings.max_connections,
                max_keepalive_connections=settings.max_connections,
                keepalive_expiry=settings.keep_alive_s,
            ),
        )
        self._shown = f"{parts.scheme}://{host}{parts.path}"
        self._connect_timeout_s = settings.connect_timeout_s
        self.reachable: bool | None = None  # at the last try; None: not tried yet
        self._told_down_at: float | None = None
        self._told: dict[str, float] = {}  # kind of error → when it was last logged
        self._timeout = {
            "connect": settings.connect_timeout_s,
            "read": settings.read_timeout_s,
            "write": settings.read_timeout_s,
            "pool": settings.pool_timeout_s,
        }

    async def aclose(self) -> None:
        """Close all connections."""
        await self._transport.aclose()

    async def probe(self) -> None:
        """See whether the backend's port takes connections; nothing is sent."""
        port = self._base.port or (443 if self._base.scheme == "https" else 80)
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                _, writer = await asyncio.open_connection(self._base.host, port)
        except (OSError, TimeoutError) as error:
            self._down(error)
            return
        self._up()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    def note(self, error: UpstreamError) -> None:
        """Say in the log, once a minute for each kind, that a client got an error of the proxy's for a reply."""
        now = time.monotonic()
        if now - self._told.get(error.kind, -_QUIET_S) >= _QUIET_S:
            self._told[error.kind] = now
            log.warning("a request got no reply from the backend (status %d): %s", error.status, error)

    def _up(self) -> None:
        was, self.reachable = self.reachable, True
        if was is False and self._told_down_at is not None:
            log.info("the backend answers again: %s", self._shown)

    def _down(self, error: Exception) -> None:
        was, self.reachable = self.reachable, False
        now = time.monotonic()
        # A backend that comes and goes by the second gets one line a minute.
        if was is not False and (self._told_down_at is None or now - self._told_down_at >= _QUIET_S):
            self._told_down_at = now
            why = str(error) or type(error).__name__
            log.warning("the backend %s does not answer: %s; requests get 502 until it does", self._shown, why)

    def target(self, raw_path: bytes, query: bytes = b"") -> bytes | None:
        """Return the request target at the backend; ``None`` where the path would leave the backend's prefix."""
        if self._prefix and ".." in unquote(raw_path.decode("ascii")).replace("\\", "/").split("/"):
            return None
        path = self._prefix + raw_path
        return path + b"?" + query if query else path

    async def open(
        self,
        method: str,
        target: bytes,
        headers: RawHeaders,
        body: bytes | AsyncIterator[bytes] = b"",
        *,
        repeatable: bool = False,
        timeout_s: float | None = None,
    ) -> Reply:
        """Send a request and wait for the head of its reply.

        A connection kept from an earlier request may have been closed by the backend in this very moment; where no
        byte of a reply came and the request may be sent twice (``repeatable``, or an idempotent method) with its body
        at hand, it is sent once more over a new connection. Raises `UpstreamError`.
        """
        trace = current()
        if trace is None:
            return await self._open(method, target, headers, body, repeatable, timeout_s)
        headers, call = trace.call(headers)
        try:
            reply = await self._open(method, target, headers, body, repeatable, timeout_s)
        except BaseException as error:
            call.end(error.kind if isinstance(error, UpstreamError) else type(error).__name__)
            raise
        call.head(reply.status)
        reply.call = call
        return reply

    async def _open(
        self,
        method: str,
        target: bytes,
        headers: RawHeaders,
        body: bytes | AsyncIterator[bytes],
        repeatable: bool,
        timeout_s: float | None,
    ) -> Reply:
        may_repeat = isinstance(body, bytes) and (repeatable or method in _IDEMPOTENT)
        timeout = self._timeout if timeout_s is None else dict.fromkeys(self._timeout, timeout_s)
        began = time.monotonic()
        while True:
            connected = False

            async def trace(event: str, _info: Any) -> None:
                nonlocal connected
                connected = connected or event == "connection.connect_tcp.started"

            request = httpx.Request(
                method,
                self._base,
                headers=headers,
                content=body,
                extensions={"timeout": timeout, "target": target, "trace": trace},
            )
            try:
                reply = Reply(await self._transport.handle_async_request(request))
            except httpx.ConnectTimeout as error:
                self._down(error)
                raise UpstreamTimeout("no connection to the backend in time") from error
            except httpx.PoolTimeout as error:
                raise UpstreamTimeout("all connections to the backend are in use") from error
            except httpx.TimeoutException as error:
                raise UpstreamTimeout("the backend did not answer in time") from error
            except httpx.ConnectError as error:
                self._down(error)
                raise UpstreamUnreachable("the backend cannot be reached") from error
            except httpx.HTTPError as error:
                stale = not connected and time.monotonic() - began < _STALE_S
                if may_repeat and stale and not isinstance(error, httpx.LocalProtocolError):
                    may_repeat = False
                    continue
                raise UpstreamBroken("the backend closed the connection without a complete reply") from error
            if self.reachable is not True:
                self._up()
            return reply

    async def pass_through(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        read: bytes = b"",
        complete: bool = False,
        extra: RawHeaders | None = None,
        repeatable: bool = False,
        on_error: Callable[[UpstreamError], None] | None = None,
        anthropic: bool = False,
        plain: Forwardable | None = None,
        on_reply: Callable[[Reply], Callable[[bytes], None] | None] | None = None,
    ) -> None:
        """Forward one request as it is and its reply as it comes; stop at once when the client hangs up.

        ``plain`` is what to send where the backend refuses ``read``, which the client did not write like that.
        ``on_reply`` sees the head of the reply, and what it returns is given the bytes of the body as they pass.

        ``read`` is what has been read of the body already, all of it where ``complete``; ``extra`` is added to the
        reply's headers. Raises `ReplyCut` where the backend breaks off, `ClientGone` where the client does.
        """
        target = self.target(scope["raw_path"], scope["query_string"])
        if target is None:
            await reply_error(send, 400, "the path leaves the backend's prefix", kind="invalid_request_error")
            return
        headers = forwarded(scope["headers"])
        body_read = asyncio.Event()
        body: bytes | AsyncIterator[bytes]
        if complete or not _has_body(scope["headers"]):
            body = read
            body_read.set()
        else:
            body = _rest_of_body(read, receive, body_read)

        async def forward() -> None:
            added = extra or []
            try:
                reply = await self.open(scope["method"], target, headers, body, repeatable=repeatable)
                if plain is not None and refused(reply.status):
                    await reply.aclose()
                    plain.sent, added = True, plain.extra
                    reply = await self.open(
                        scope["method"], target, forwarded(plain.headers), plain.body, repeatable=repeatable
                    )
            except UpstreamError as error:
                if on_error is not None:
                    on_error(error)
                await reply_error(
                    send, error.status, str(error), kind="upstream_error", code=error.code, extra=extra,
                    anthropic=anthropic,
                )  # fmt: skip
                return
            try:
                start = {
                    "type": "http.response.start",
                    "status": reply.status,
                    "headers": reply.headers + added,
                }
                tap = None if on_reply is None else on_reply(reply)
                await send(start)
                async for chunk in reply:
                    if tap is not None:
                        tap(chunk)
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            except UpstreamError as error:
                if on_error is not None:
                    on_error(error)
                raise ReplyCut(str(error)) from error
            finally:
                await reply.aclose()
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        await while_connected(receive, forward(), after=body_read)


async def client_gone(receive: Receive) -> None:
    """Return when the client has closed its connection. Only after its whole request has been received."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def while_connected(
    receive: Receive, work: Coroutine[Any, Any, None], *, after: asyncio.Event | None = None
) -> None:
    """Run ``work``, but cancel it as soon as the client hangs up, then raise `ClientGone`.

    ``after`` is set once the request has been received completely: before that, ``work`` itself reads from the client.
    """

    async def watch() -> None:
        if after is not None and not after.is_set():
            await after.wait()
        await client_gone(receive)

    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(watch())
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        working.result()
    finally:
        for task in (working, watching):
            if not task.done():
                task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def reply_error(
    send: Send,
    status: int,
    message: str,
    *,
    kind: str,
    code: str | None = None,
    extra: RawHeaders | None = None,
    anthropic: bool = False,
) -> None:
    """Send a complete error reply of the proxy's own."""
    body = error_body(message, kind=kind, code=code, anthropic=anthropic)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"date", date_now()),
        *(extra or []),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _has_body(headers: RawHeaders) -> bool:
    for name, value in headers:
        if name == b"transfer-encoding" or (name == b"content-length" and value.strip() != b"0"):
            return True
    return False


async def _rest_of_body(read: bytes, receive: Receive, done: asyncio.Event) -> AsyncIterator[bytes]:
    if read:
        yield read
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        more = message.get("more_body", False)
        if not more:
            done.set()
        if body := message.get("body", b""):
            yield body
