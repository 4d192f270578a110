"""The epoch: one number over the whole store. Raising it makes every older answer unreachable at once, everywhere.

An epoch remembers the last entry there was when it was raised; numbers of entries only grow, so an entry belongs to the
epoch exactly where its number is greater. Nothing has to be deleted for that; the rows go away with the upkeep.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, ScalarSelect, func, insert, select

from store.models import Entry, Epoch

__all__ = ["Raised", "current", "in_epoch", "last_entry", "raise_epoch", "reachable"]

_LAST = select(func.coalesce(func.max(Epoch.last_entry), 0)).scalar_subquery()
_CURRENT = select(func.coalesce(func.max(Epoch.number), 0))


def last_entry() -> ScalarSelect[int]:
    """The number of the last entry of older epochs, as part of a condition."""
    return _LAST


def in_epoch() -> ColumnElement[bool]:
    """The condition that an entry belongs to the current epoch."""
    return Entry.number > _LAST


def current(connection: Connection) -> int:
    """Return the number of the current epoch; 0 where it was never raised."""
    return int(connection.execute(_CURRENT).scalar_one())


@dataclass(frozen=True, slots=True)
class Raised:
    """A new epoch."""

    number: int
    left: int  # entries that became unreachable


def reachable(connection: Connection) -> int:
    """Count the entries of the current epoch."""
    return connection.execute(select(func.count()).select_from(Entry).where(in_epoch())).scalar_one()


def raise_epoch(connection: Connection, now: float) -> Raised:
    """Begin a new epoch."""
    left = reachable(connection)
    last = connection.execute(select(func.coalesce(func.max(Entry.number), 0))).scalar_one()
    connection.execute(insert(Epoch).values(last_entry=last, at=now))
    return Raised(current(connection), left)
