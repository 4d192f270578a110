"""What can keep a log from being replayed."""

from __future__ import annotations

__all__ = ["ReplayError"]


class ReplayError(RuntimeError):
    """The replay cannot go on; the message is one line for people."""
