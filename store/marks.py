"""What people think of an entry: thumbs up and down, and weak signs such as asking again right after a hit.

Each rater (a credential, or the session or user it spoke for) counts once for each kind, however often it repeats
itself. A thumbs-down retracts the entry and the wordings that led to it. Doubts only add up: at ``limit`` raters, and
only where they are a fair share of the hits, the entry becomes ``suspect``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from sqlalchemy import Connection, func, select, update
from sqlalchemy.dialects.postgresql import insert as upsert  # SQLite compiles it to the same words

from store.models import Entry, Mark
from store.writes import Followers, Result, log_change, retract, served

__all__ = ["DoubtWrite", "FeedbackWrite", "SightingWrite"]

_LEAST_SHARE: Final = 0.2  # of an entry's hits: below it doubts are the usual noise
_DOUBTS: Final = ("regenerate", "reask")

_MARK = upsert(Mark)
_MARK = _MARK.on_conflict_do_update(
    index_elements=[Mark.entry_number, Mark.rater, Mark.kind],
    set_={"value": _MARK.excluded.value, "at": _MARK.excluded.at},
)


def _mark(connection: Connection, number: int, rater: bytes, kind: str, value: int, now: float) -> int | None:
    """Write a mark; returns the value it had before."""
    before = connection.execute(
        select(Mark.value).where(Mark.entry_number == number, Mark.rater == rater, Mark.kind == kind)
    ).scalar()
    if before != value:
        connection.execute(_MARK, {"entry_number": number, "rater": rater, "kind": kind, "value": value, "at": now})
    return before


@dataclass(frozen=True, slots=True)
class FeedbackWrite:
    """Thumbs up or down. The same from the same rater again changes nothing."""

    followers: Followers
    entry_id: str
    partition: bytes | None  # only an entry of this partition
    rater: bytes
    rating: Literal["up", "down"]
    actor: str
    now: float

    def apply(self, connection: Connection) -> Result:
        """Count it, and retract on "down"; tells whether there is such an entry."""
        where = [Entry.id == self.entry_id]
        if self.partition is not None:
            where.append(Entry.partition == self.partition)
        number = connection.execute(select(Entry.number).where(*where)).scalar()
        if number is None:
            return False, None
        value = 1 if self.rating == "up" else -1
        if _mark(connection, number, self.rater, self.rating, value, self.now) is None:
            column = Entry.thumbs_up if self.rating == "up" else Entry.thumbs_down
            connection.execute(update(Entry).where(Entry.number == number).values({column: column + 1}))
        if self.rating == "up":
            return True, None
        gone = served(connection, Entry.number == number, Entry.state != "retracted")
        if not gone:
            return True, None
        retract(connection, gone)
        log_change(connection, self.now, self.actor, "feedback", {"entry": self.entry_id}, len(gone))
        return True, self.followers.without(gone)


@dataclass(frozen=True, slots=True)
class DoubtWrite:
    """A weak sign that an answer was wrong."""

    followers: Followers
    entry_id: str
    rater: bytes
    kind: Literal["regenerate", "reask"]
    limit: int  # raters; 0: doubts are only counted
    now: float

    def apply(self, connection: Connection) -> Result:
        """Count it; tells whether the entry has become suspect."""
        row = connection.execute(select(Entry.number, Entry.hit_count).where(Entry.id == self.entry_id)).first()
        if row is None or _mark(connection, row.number, self.rater, self.kind, -1, self.now) is not None:
            return False, None
        connection.execute(update(Entry).where(Entry.number == row.number).values(doubts=Entry.doubts + 1))
        raters = connection.execute(
            select(func.count(func.distinct(Mark.rater))).where(
                Mark.entry_number == row.number, Mark.kind.in_(_DOUBTS), Mark.value < 0
            )
        ).scalar_one()
        if not self.limit or raters < self.limit or raters < _LEAST_SHARE * row.hit_count:
            return False, None
        gone = served(connection, Entry.number == row.number, Entry.state == "active")
        if not gone:
            return False, None
        retract(connection, gone, "suspect")
        log_change(connection, self.now, "sessions", "doubt", {"entry": self.entry_id}, len(gone))
        return True, self.followers.without(gone)


@dataclass(frozen=True, slots=True)
class SightingWrite:
    """A question was asked whose answer has not been asked for often enough to be served."""

    entry_id: str

    def apply(self, connection: Connection) -> Result:
        """Count it."""
        connection.execute(update(Entry).where(Entry.id == self.entry_id).values(sightings=Entry.sightings + 1))
        return None, None
