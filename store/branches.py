"""Branches of the forest under an answer that was corrected: readable by those who stand on them, never rewritten.

What hangs from a corrected answer was said on the strength of it. It is *closed*: entries that are there become
``frozen`` (found by their own literal conversation only, replaced by nothing), and what is answered there later is
frozen from the start. So whoever asks "then do it that way" elsewhere never meets what was said about the old plan.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, bindparam, select
from sqlalchemy.dialects.postgresql import insert as upsert  # SQLite compiles it to the same words

from store.models import ClosedNode, Entry, Wording

__all__ = ["Branch", "below", "close", "is_closed", "nodes_of"]

_SLICE: Final = 500  # ids in one statement
_MOST: Final = 20_000  # nodes followed; what lies further down was answered from a history that long, nobody repeats it

_CLOSE = upsert(ClosedNode).on_conflict_do_nothing(index_elements=[ClosedNode.node])
_IS_CLOSED = select(ClosedNode.node).where(ClosedNode.node == bindparam("node"))


@dataclass(frozen=True, slots=True)
class Branch:
    """What hangs from some nodes, at any depth."""

    nodes: frozenset[str]  # the nodes themselves included
    entries: tuple[tuple[int, str], ...]  # (number, id)


def nodes_of(connection: Connection, number: int, entry_id: str) -> set[str]:
    """Return the nodes that stand for an answer: the entry's own and those of its wordings."""
    found = connection.execute(select(Wording.node).where(Wording.entry_number == number)).scalars()
    return {entry_id, *found}


def below(connection: Connection, nodes: Iterable[str]) -> Branch:
    """Return what hangs from ``nodes``, breadth first."""
    seen = set(nodes)
    frontier = list(seen)
    entries: list[tuple[int, str]] = []
    while frontier and len(seen) < _MOST:
        found: set[str] = set()
        for start in range(0, len(frontier), _SLICE):
            part = frontier[start : start + _SLICE]
            for row in connection.execute(select(Entry.number, Entry.id).where(Entry.parent.in_(part))):
                entries.append((row.number, row.id))
                found.add(row.id)
            found.update(connection.execute(select(Wording.node).where(Wording.parent.in_(part))).scalars())
        frontier = list(found - seen)
        seen |= found
    return Branch(frozenset(seen), tuple(dict.fromkeys(entries)))


def close(connection: Connection, nodes: Iterable[str], now: float) -> None:
    """From now on these nodes are on a corrected branch."""
    rows = [{"node": node, "at": now} for node in nodes]
    if rows:
        connection.execute(_CLOSE, rows)


def is_closed(connection: Connection, node: str | None) -> bool:
    """Whether a node is on a corrected branch."""
    return node is not None and connection.execute(_IS_CLOSED, {"node": node}).scalar() is not None
