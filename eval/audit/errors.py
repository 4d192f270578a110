"""What can keep an audit from being made."""

from __future__ import annotations

__all__ = ["AuditError"]


class AuditError(RuntimeError):
    """The audit cannot go on; the message is one line for people."""
