"""Looks through a whole database for what should not be there. Changes nothing; a proxy may be using it meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from sqlalchemy import Connection, bindparam, func, select, text

from store.codec import is_damaged, unpack_answer, unpack_question
from store.migrations import HEAD
from store.models import Base, Entry, Identity, Vector
from store.neighbours import Bucket

__all__ = ["Checked", "check"]

_SLICE: Final = 2_000

Progress = Callable[[int, int], None]
"""Called with entries done and entries in all."""


@dataclass(frozen=True, slots=True)
class Checked:
    """One finding."""

    check: str
    status: Literal["ok", "warning", "problem"]
    seen: str
    advice: str = ""


def check(connection: Connection, progress: Progress = lambda *_: None) -> Iterator[Checked]:
    """Check schema, the engine's own structures, and that every entry and vector can be read and belongs together."""
    schema = _schema(connection)
    yield schema
    if schema.status == "problem":
        return
    if connection.dialect.name == "sqlite":
        yield _sqlite(connection)
    yield from _rows(connection, progress)
    if connection.dialect.name == "postgresql":
        yield _indexes(connection)


def _schema(connection: Connection) -> Checked:
    from sqlalchemy import inspect

    tables = set(inspect(connection).get_table_names())
    if "alembic_version" not in tables:
        return Checked("schema", "problem", "no tables of Antiphon here", "name another store, or start a proxy on it")
    at = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    if at != HEAD:
        return Checked(
            "schema", "problem", f"revision {at}, this release needs {HEAD}", "upgrade it with `antiphon db upgrade`"
        )
    missing = sorted(set(Base.metadata.tables) - tables)
    if missing:
        return Checked("schema", "problem", f"tables are missing: {', '.join(missing)}", "restore it from a backup")
    return Checked("schema", "ok", f"revision {at}")


def _sqlite(connection: Connection) -> Checked:
    found = connection.execute(text("PRAGMA integrity_check(3)")).scalars().all()
    if list(found) != ["ok"]:
        advice = "restore it from a backup, or move it away: the proxy starts a fresh one"
        return Checked("file", "problem", f"damaged: {'; '.join(map(str, found))}", advice)
    loose = connection.execute(text("PRAGMA foreign_key_check")).all()
    if loose:
        return Checked("file", "problem", f"{len(loose)} rows belong to nothing", "restore it from a backup")
    return Checked("file", "ok", "sound")


_ENTRIES = (
    select(
        Entry.number,
        Entry.id,
        Entry.state,
        Entry.partition,
        Entry.question,
        Entry.answer,
        Entry.semantic,
        Identity.identity,
        Vector.number.label("vector"),
        Vector.space,
        Vector.query,
        Vector.window,
        Vector.bucket,
    )
    .join(Identity, Identity.number == Entry.identity_number)
    .outerjoin(Vector, Vector.number == Entry.number)
    .where(Entry.number > bindparam("after"))
    .order_by(Entry.number)
    .limit(_SLICE)
)


def _rows(connection: Connection, progress: Progress) -> Iterator[Checked]:
    size = connection.execute(select(func.count()).select_from(Entry)).scalar_one()
    states: Counter[str] = Counter()
    unreadable: list[str] = []
    damaged: list[str] = []
    misplaced: list[str] = []
    waiting = 0
    lengths: dict[str, Counter[int]] = {}
    after = done = 0
    while part := connection.execute(_ENTRIES, {"after": after}).all():
        after = part[-1].number
        for row in part:
            states[row.state] += 1
            if not _readable(row):
                unreadable.append(row.id)
            if row.vector is None:
                waiting += row.state == "active" and row.semantic
                continue
            if is_damaged(row.query) or is_damaged(row.window):
                damaged.append(row.id)
            elif row.query is not None:
                lengths.setdefault(row.space, Counter())[len(row.query) // 2] += 1
                if row.bucket != Bucket(row.partition, row.identity, row.space).digest():
                    misplaced.append(row.id)
        done += len(part)
        progress(done, size)
    told = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "none"
    yield _listed("entries", told, unreadable, "cannot be read", "purge them: antiphon purge --entry ID")
    spaces = "; ".join(
        f"{space}: {sum(found.values())} of {'/'.join(map(str, sorted(found)))} dimensions"
        for space, found in sorted(lengths.items())
    )
    yield _listed("vectors", spaces or "none", damaged, "are damaged", "harmless: those entries are found by key only")
    yield _listed("buckets", "every vector is where it belongs", misplaced, "belong elsewhere", "restore a backup")
    uneven = [space for space, found in lengths.items() if len(found) > 1]
    if uneven:
        yield Checked("spaces", "warning", f"vectors of different lengths in {', '.join(uneven)}", "purge the entries")
    if waiting:
        yield Checked("embedding", "ok", f"{waiting} entries wait for their vectors: made when a proxy starts")


def _readable(row: Any) -> bool:
    try:
        unpack_question(row.question, ())
        unpack_answer(row.answer, prompt_tokens=0, completion_tokens=0, seconds=0.0)
    except ValueError:
        return False
    return True


def _listed(name: str, good: str, wrong: list[str], what: str, advice: str) -> Checked:
    if not wrong:
        return Checked(name, "ok", good)
    shown = ", ".join(wrong[:5]) + (", …" if len(wrong) > 5 else "")
    return Checked(name, "warning", f"{good}; {len(wrong)} {what}: {shown}", advice)


def _indexes(connection: Connection) -> Checked:
    invalid = (
        connection.execute(
            text(
                "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
                "WHERE i.indrelid = 'vectors'::regclass AND NOT i.indisvalid"
            )
        )
        .scalars()
        .all()
    )
    if invalid:
        advice = "a proxy makes it anew within a minute of its start; until then large partitions are slow"
        return Checked("indexes", "warning", f"unfinished: {', '.join(invalid)}", advice)
    return Checked("indexes", "ok", "all usable")
