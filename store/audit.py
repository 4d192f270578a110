"""The audit log: who took what out of circulation, and when. It never holds message texts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, select

from store.models import Purge
from store.writes import Result, log_change

__all__ = ["ACTIONS", "AuditRow", "NoteWrite", "log"]

ACTIONS: Final = {
    "purge": "entries deleted by a dimension",
    "epoch": "everything made unreachable at once",
    "retract": "one entry retracted by an administrator",
    "feedback": "one entry retracted by a thumbs-down",
    "correction": "an entry made suspect, and what hangs from it frozen, because a user corrected it",
    "doubt": "an entry made suspect because several asked again right after it",
    "version": "the backend began to serve another version; older answers are unreachable",
}
"""What can be done, in words."""


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One line of the log."""

    number: int  # grows by one with every line
    at: float  # seconds since the epoch, UTC
    actor: str
    action: str
    target: dict[str, Any]
    entries: int  # how many were affected


def log(connection: Connection, *, limit: int, before: int | None, action: str | None) -> list[AuditRow]:
    """Return the newest lines first, those below the number ``before`` and of one ``action`` where given."""
    statement = select(Purge).order_by(Purge.number.desc()).limit(limit)
    if before is not None:
        statement = statement.where(Purge.number < before)
    if action is not None:
        statement = statement.where(Purge.action == action)
    return [
        AuditRow(row.number, row.at, row.actor, row.action, _target(row.target), row.entries)
        for row in connection.execute(statement)
    ]


def _target(value: str) -> dict[str, Any]:
    try:
        target = json.loads(value)
    except ValueError:
        return {"unreadable": value}
    return target if isinstance(target, dict) else {"unreadable": value}


@dataclass(frozen=True, slots=True)
class NoteWrite:
    """Something happened that the log should tell of, though it changed no entry."""

    actor: str
    action: str
    target: Mapping[str, str]
    now: float

    def apply(self, connection: Connection) -> Result:
        """Write the line."""
        log_change(connection, self.now, self.actor, self.action, self.target, 0)
        return None, None
