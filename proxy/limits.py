"""How much is taken on: requests at the same time, and bodies where the operator wants large ones refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import MutableMapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from proxy.callers import CallerHeaders
from proxy.errors import TooLarge
from proxy.headers import RawHeaders
from proxy.settings import Settings

if TYPE_CHECKING:
    from proxy.upstream import Receive, Scope

__all__ = ["Limits", "Place", "Refusal"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not taken on."""

    status: int
    message: str
    kind: str
    code: str
    headers: RawHeaders


@dataclass(frozen=True, slots=True)
class Place:
    """A request that was taken on; give it back with `Limits.leave`."""

    caller: bytes


class Limits:
    """Counts the requests under way. With the defaults nothing is refused, and nothing costs anything."""

    def __init__(self, settings: Settings) -> None:
        limits = settings.limits
        self._at_once = limits.max_concurrent_requests
        self._each = limits.max_concurrent_per_caller
        self._refuse_large = limits.over == "refuse"
        self._most_body = int(settings.server.max_body_mib * (1 << 20))
        self._callers = CallerHeaders(settings.sharing.credential_headers, settings.sharing.ignored_headers)
        self._here = 0
        self._by_caller: Counter[bytes] = Counter()

    def enter(self, scope: Scope) -> Place | Refusal:
        """Take a request on, or say why not."""
        if self._refuse_large and _length(scope["headers"]) > self._most_body:
            return self.too_large(f"the body is larger than {self._most_body} bytes")
        if self._at_once and self._here >= self._at_once:
            return Refusal(
                503, f"{self._at_once} requests are being answered already; try again in a moment",
                "server_error", "too_many_requests", [(b"retry-after", b"1")],
            )  # fmt: skip
        caller = self._caller(scope) if self._each else b""
        if self._each and self._by_caller[caller] >= self._each:
            return Refusal(
                429, f"{self._each} of your requests are being answered already; try again when one has ended",
                "rate_limit_error", "too_many_requests", [(b"retry-after", b"1")],
            )  # fmt: skip
        self._here += 1
        if self._each:
            self._by_caller[caller] += 1
        return Place(caller)

    def leave(self, place: Place) -> None:
        """The request has been answered."""
        self._here -= 1
        if place.caller:
            self._by_caller[place.caller] -= 1
            if not self._by_caller[place.caller]:
                del self._by_caller[place.caller]

    def bounded(self, receive: Receive) -> Receive:
        """The same ``receive``, which raises `TooLarge` where a body of unknown length turns out too large."""
        if not self._refuse_large:
            return receive
        taken = 0

        async def counting() -> MutableMapping[str, Any]:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self._most_body:
                raise TooLarge(f"the body is larger than {self._most_body} bytes")
            return message

        return counting

    def too_large(self, message: str) -> Refusal:
        """What a request over a limit of size is answered with. The rest of its body is not read."""
        return Refusal(413, message, "invalid_request_error", "request_too_large", [(b"connection", b"close")])

    def _caller(self, scope: Scope) -> bytes:
        shown = sorted((name, value) for name, value in scope["headers"] if name in self._callers)
        client = scope.get("client")
        who: Any = shown or (client[0] if client else "")
        return blake2b(msgspec.msgpack.encode(who), digest_size=16).digest()


def _length(headers: RawHeaders) -> int:
    for name, value in headers:
        if name == b"content-length" and value.isdigit():
            return int(value[:20])
    return 0
