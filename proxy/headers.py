"""Which headers cross the proxy, and the ones it adds itself (RFC 9110 §7.6.1, RFC 9211, ``X-Antiphon-*``)."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from email.utils import formatdate
from typing import Final

__all__ = ["OWN_PREFIX", "RawHeaders", "cache_status", "date_now", "field_value", "forwarded", "returned", "values_of"]

RawHeaders = list[tuple[bytes, bytes]]  # names in lower case

OWN_PREFIX: Final = b"x-antiphon-"

# RFC 9110 §7.6.1, the fields a proxy must not forward, and the credentials meant for the proxy itself (§11.7).
_HOP_BY_HOP: Final = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade",
        b"proxy-authenticate", b"proxy-authorization",
    }
)  # fmt: skip
# The HTTP server has answered "100 Continue" itself; the host is the backend's.
_NOT_FORWARDED: Final = _HOP_BY_HOP | {b"host", b"expect"}
_UNSAFE: Final = re.compile(r"[^\x20-\x7e]+")


def forwarded(headers: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
    """Return the request headers that go to the backend (``Host`` is added by the client).

    White space around a value is no part of it (RFC 9110 §5.5); a backend may refuse what has some.
    """
    headers = list(headers)
    named = _named_in_connection(headers)
    return [
        (name, value.strip(b" \t"))
        for name, value in headers
        if name not in _NOT_FORWARDED and name not in named and not name.startswith(OWN_PREFIX)
    ]


def returned(headers: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
    """Return the backend's reply headers that go to the client, names in lower case."""
    lower = [(name.lower(), value) for name, value in headers]
    named = _named_in_connection(lower)
    kept = [
        (name, value)
        for name, value in lower
        if name not in _HOP_BY_HOP and name not in named and not name.startswith(OWN_PREFIX)
    ]
    if not any(name == b"date" for name, _ in kept):  # RFC 9110 §6.6.1: then the recipient appends it
        kept.append((b"date", date_now()))
    return kept


_date: tuple[int, bytes] = (0, b"")


def date_now() -> bytes:
    """Return the value of ``Date`` (RFC 9110 §6.6.1), written anew once a second."""
    global _date
    now = int(time.time())
    if _date[0] != now:
        _date = (now, formatdate(now, usegmt=True).encode("ascii"))
    return _date[1]


def values_of(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> list[str]:
    """Return the values of all lines of one field, in order."""
    return [value.decode("latin-1") for name, value in headers if name == wanted]


def field_value(text: str, limit: int = 200) -> bytes:
    """Make any text fit to be the value of a header: printable ASCII, at most ``limit`` characters."""
    return _UNSAFE.sub("?", text)[:limit].strip().encode("ascii")


def cache_status(
    *,
    hit: bool = False,
    fwd: str | None = None,
    stored: bool = False,
    collapsed: bool = False,
    detail: str | None = None,
) -> bytes:
    """Build the ``Cache-Status`` value of this cache (RFC 9211 §2): ``antiphon; hit`` or ``antiphon; fwd=miss; …``.

    ``fwd`` is a token of §2.2 (bypass, request, miss, stale, …). ``stored`` is claimed only where it is known when
    the headers are sent.
    """
    parts = ["antiphon"]
    if hit:
        parts.append("hit")
    elif fwd is not None:
        parts.append(f"fwd={fwd}")
        if stored:
            parts.append("stored")
        if collapsed:
            parts.append("collapsed")
    if detail is not None:
        quoted = _UNSAFE.sub("?", detail).replace("\\", "\\\\").replace('"', '\\"')
        parts.append(f'detail="{quoted}"')
    return "; ".join(parts).encode("ascii")


def _named_in_connection(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    names: set[bytes] = set()
    for name, value in headers:
        if name == b"connection":
            names.update(token.strip().lower() for token in value.split(b","))
    return frozenset(names)
