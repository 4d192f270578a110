"""The errors of reading a request; every one of them means "forward it untouched"."""

from __future__ import annotations

__all__ = ["NotUnderstood"]


class NotUnderstood(ValueError):  # noqa: N818 - reads as what it says
    """A request this cache cannot read completely; ``reason`` is a short phrase for a header or a log line."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
