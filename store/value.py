"""What an entry is worth: how long it may live, and what goes first when there is too much.

The value is the number of tokens the entry is expected to save: the length of its answer, times how often it will be
asked for, times how much it can be trusted (DESIGN §8: tokens saved times reuse, divided by age).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Float, case, cast, func, select, text

from store.models import Entry

__all__ = ["Lives", "eviction_order", "expected_saving", "length_of", "stability", "used_bytes"]

_CHARACTERS_A_TOKEN: Final = 4.0  # where the backend did not say how long an answer is
_SOFTENING_S: Final = 3600.0  # added to the age, so that what was used a second ago is not worth endlessly much


@dataclass(frozen=True, slots=True)
class Lives:
    """Lifetimes by value: long from ``long_from`` expected tokens on, none below ``none_below``, else medium."""

    long_from: float
    none_below: float
    medium_s: float

    def of(self, value: float, ttl_s: float) -> float:
        """Return the lifetime in seconds, at most ``ttl_s``; 0 where storing it is not worth while."""
        if value < self.none_below:
            return 0.0
        return ttl_s if value >= self.long_from else min(ttl_s, self.medium_s)


def length_of(completion_tokens: int, text: str) -> float:
    """Return the tokens of an answer, at least 1; guessed from its text where the backend did not say."""
    return max(1.0, float(completion_tokens) or len(text) / _CHARACTERS_A_TOKEN)


def stability(ups: int, downs: int, doubts: int) -> float:
    """Return how far an answer can be trusted, over 0 to 1; 1 where nobody complained.

    A thumbs-down or a correction weighs as two signs against it, a doubt (asked again, regenerated) as one.
    """
    return (1.0 + ups) / (1.0 + ups + 2.0 * downs + doubts)


def expected_saving(tokens: float, repeats: int, trust: float) -> float:
    """Return the tokens an entry is expected to save: its next use, and as many as there were repeats so far."""
    return tokens * (1.0 + repeats) * trust


def eviction_order(now: float) -> tuple[ColumnElement[Any], ...]:
    """Return what to order entries by so that the least valuable come first: retracted ones, then by value over age."""
    trust = cast(1 + Entry.thumbs_up, Float) / (1 + Entry.thumbs_up + 2 * Entry.thumbs_down + Entry.doubts)
    age = case((Entry.last_used_at < now, now - Entry.last_used_at), else_=0.0) + _SOFTENING_S
    value = (1 + Entry.completion_tokens) * (1 + Entry.hit_count) * trust / age
    return case((Entry.state == "retracted", 0.0), else_=1.0), value


def used_bytes(connection: Connection) -> int:
    """Return the bytes that entries and what belongs to them take in the database, free pages not counted."""
    if connection.dialect.name == "sqlite":
        pages, free, size = (
            int(connection.execute(text(f"PRAGMA {name}")).scalar_one())
            for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size
    rows = select(func.coalesce(func.sum(func.length(Entry.question) + func.length(Entry.answer)), 0))
    return int(connection.execute(rows).scalar_one())
