"""The errors of the proxy, and how an app sees them: JSON in the shape that OpenAI clients read.

::

    ProxyError
     ├─ UpstreamError          the backend did not answer; carries the status to reply with
     │   ├─ UpstreamUnreachable   502
     │   ├─ UpstreamTimeout       504
     │   └─ UpstreamBroken        502, or a cut stream where bytes were sent already
     ├─ TooLarge               the body is larger than the operator allows
     ├─ ClientGone             nobody is left to answer
     └─ ReplyCut               the reply began and cannot be finished: the connection is closed
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

__all__ = [
    "ClientGone",
    "ProxyError",
    "ReplyCut",
    "TooLarge",
    "UpstreamBroken",
    "UpstreamError",
    "UpstreamTimeout",
    "UpstreamUnreachable",
    "error_body",
]


class ProxyError(Exception):
    """Any error the proxy raises itself."""


class UpstreamError(ProxyError):
    """The backend did not answer, or not completely."""

    status: ClassVar[int] = 502
    kind: ClassVar[str] = "protocol"  # label of antiphon_upstream_errors_total
    code: ClassVar[str] = "upstream_error"


class UpstreamUnreachable(UpstreamError):  # noqa: N818 - reads as what it says
    """No connection to the backend."""

    kind = "connect"
    code = "upstream_unreachable"


class UpstreamTimeout(UpstreamError):  # noqa: N818 - reads as what it says
    """The backend took longer than the settings allow."""

    status = 504
    kind = "timeout"
    code = "upstream_timeout"


class UpstreamBroken(UpstreamError):  # noqa: N818 - reads as what it says
    """The backend closed the connection or broke the protocol before its reply was complete."""

    code = "upstream_broken"


class TooLarge(ProxyError):  # noqa: N818 - reads as what it says
    """The request is larger than the operator allows; the message says in what."""


class ClientGone(ProxyError):  # noqa: N818 - reads as what it says
    """The client closed its connection."""


class ReplyCut(ProxyError):  # noqa: N818 - reads as what it says
    """A reply of which bytes were sent cannot be completed; the client must see a broken connection, not an end."""


def error_body(message: str, *, kind: str, code: str | None = None, anthropic: bool = False) -> bytes:
    """Return an error as JSON in OpenAI's shape, or with ``anthropic`` in the shape of ``/v1/messages``."""
    if anthropic:
        return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": message, "code": code}})
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": None, "code": code}})
