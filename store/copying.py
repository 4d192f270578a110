"""Moves everything from one database to another, whatever the engines: in slices, resumable, and verified.

Rows go over in the order of their primary keys, each slice in a transaction of its own, so that what is there after an
interruption is a beginning of the source, and the next run goes on after it. While a copy is unfinished its target says
so (`UNFINISHED`), and is opened by nothing else. At the end both sides are read again: for every table the number of
rows and a checksum over all their values have to agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Row, String, Table, func, insert, select, text, tuple_

from store.codec import is_damaged
from store.database import Database
from store.errors import StoreError
from store.halves import Halves
from store.models import Base
from store.properties import UNFINISHED, property_of, set_property, store_token

__all__ = ["Copied", "CopyFailed", "Progress", "TableCopied", "copy"]

_SLICE: Final = 2_000  # rows in one transaction
_LEFT_BEHIND: Final = ("changes", "properties", "alembic_version")  # of one database, and no content
_MASK: Final = (1 << 64) - 1

Progress = Callable[[str, str, int, int], None]
"""Called with what is being done ("copying", "verifying"), the table, rows done and rows in all."""


class CopyFailed(StoreError):  # noqa: N818 - reads as what it says
    """The copy cannot be made, or its verification found a difference; the message says which."""


@dataclass(frozen=True, slots=True)
class TableCopied:
    """What became of one table."""

    table: str
    rows: int
    copied_now: int  # the others had been copied by an earlier run
    left_out: int  # vectors that are damaged: they are made anew
    checksum: str  # 16 hex digits, equal on both sides


@dataclass(frozen=True, slots=True)
class Copied:
    """What was copied."""

    tables: tuple[TableCopied, ...]
    resumed: bool

    @property
    def rows(self) -> int:
        """All rows that are there now."""
        return sum(table.rows for table in self.tables)


def copy(source: Database, target: Database, progress: Progress = lambda *_: None) -> Copied:
    """Copy ``source`` into ``target``, which must be empty or hold an unfinished copy of the same source.

    Both have to be this process's alone. Raises `CopyFailed`.
    """
    tables = [table for table in Base.metadata.sorted_tables if table.name not in _LEFT_BEHIND]
    with source.upkeep.connect() as reading:
        token = store_token(reading)
        resumed = _begin(target, token, tables)
        sizes = {table.name: _count(reading, table) for table in tables}
        now = {table.name: _copy_table(reading, target, table, sizes[table.name], progress) for table in tables}
        done = [_verify(reading, target, table, sizes[table.name], now[table.name], progress) for table in tables]
    with target.writer.begin() as writing:
        _set_counters(writing, tables)
        set_property(writing, UNFINISHED, None)
    return Copied(tuple(done), resumed)


def _begin(target: Database, token: str, tables: Sequence[Table]) -> bool:
    """Mark the target; returns whether an earlier copy is resumed."""
    with target.writer.begin() as writing:
        unfinished = property_of(writing, UNFINISHED)
        if unfinished == token:
            return True
        if unfinished is not None:
            raise CopyFailed(f"{target.name} holds an unfinished copy of another store: empty it first")
        if any(writing.execute(select(func.count()).select_from(table).limit(1)).scalar_one() for table in tables):
            raise CopyFailed(f"{target.name} is not empty: a copy needs a database of its own")
        set_property(writing, UNFINISHED, token)
    return False


def _copy_table(reading: Connection, target: Database, table: Table, size: int, progress: Progress) -> int:
    with target.upkeep.connect() as connection:
        there = _count(connection, table)
        last = _last_key(connection, table)
    progress("copying", table.name, there, size)
    statement = insert(table)
    copied = 0
    for part in _slices(reading, table, last):
        rows = [row._asdict() for row in part if not _left_out(table, row)]
        if rows:
            with target.writer.begin() as writing:
                writing.execute(statement, rows)
        copied += len(rows)
        progress("copying", table.name, there + copied, size)
    return copied


def _verify(
    reading: Connection, target: Database, table: Table, size: int, copied: int, progress: Progress
) -> TableCopied:
    progress("verifying", table.name, 0, 2 * size)
    rows, left_out, checksum = _sum(reading, table, lambda done: progress("verifying", table.name, done, 2 * size))
    with target.upkeep.connect() as connection:
        there, _, found = _sum(connection, table, lambda done: progress("verifying", table.name, size + done, 2 * size))
    if (rows, checksum) != (there, found):
        raise CopyFailed(
            f"the copy of table {table.name} is not the same: {rows} rows with checksum {checksum:016x} in the source, "
            f"{there} with {found:016x} in {target.name}. Empty that database and copy again"
        )
    return TableCopied(table.name, rows, copied, left_out, f"{checksum:016x}")


def _sum(connection: Connection, table: Table, told: Callable[[int], None]) -> tuple[int, int, int]:
    """Return the rows, those left out, and a checksum that does not depend on their order."""
    rows = left_out = total = 0
    for part in _slices(connection, table, None):
        for row in part:
            if _left_out(table, row):
                left_out += 1
                continue
            rows += 1
            total += _digest(row)
        told(rows)
    return rows, left_out, total & _MASK


def _digest(row: Row[Any]) -> int:
    values = [float(value) if isinstance(value, float) else value for value in row]
    return int.from_bytes(blake2b(msgspec.msgpack.encode(values), digest_size=8).digest(), "big")


def _left_out(table: Table, row: Row[Any]) -> bool:
    """Whether a row holds a vector that cannot be read, and that PostgreSQL would not take."""
    return any(isinstance(column.type, Halves) and is_damaged(row._mapping[column.name]) for column in table.columns)


def _ordered(connection: Connection, table: Table) -> list[Any]:
    """Return the primary key's columns, in an order that is the same on both engines: that of the bytes."""
    binary = "C" if connection.dialect.name == "postgresql" else "BINARY"
    return [
        column.collate(binary) if isinstance(column.type, String) else column for column in table.primary_key.columns
    ]


def _slices(connection: Connection, table: Table, after: tuple[Any, ...] | None) -> Iterator[Sequence[Row[Any]]]:
    key = list(table.primary_key.columns)
    order = _ordered(connection, table)
    while True:
        statement = select(*table.columns).order_by(*order).limit(_SLICE)
        if after is not None:
            condition = order[0] > after[0] if len(order) == 1 else tuple_(*order) > tuple_(*after)
            statement = statement.where(condition)
        part = connection.execute(statement).all()
        if not part:
            return
        after = tuple(part[-1]._mapping[column.name] for column in key)
        yield part


def _last_key(connection: Connection, table: Table) -> tuple[Any, ...] | None:
    order = _ordered(connection, table)
    statement = select(*table.primary_key.columns).order_by(*(column.desc() for column in order)).limit(1)
    row = connection.execute(statement).first()
    return None if row is None else tuple(row)


def _count(connection: Connection, table: Table) -> int:
    return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def _set_counters(writing: Connection, tables: Sequence[Table]) -> None:
    """Have PostgreSQL go on counting after the highest number; SQLite does so by itself."""
    if writing.dialect.name != "postgresql":
        return
    for table in tables:
        if "number" in table.columns and table.columns["number"].autoincrement is True:
            highest = writing.execute(select(func.max(table.columns["number"]))).scalar()
            if highest is not None:
                writing.execute(
                    text("SELECT setval(pg_get_serial_sequence(:name, 'number'), :highest)"),
                    {"name": table.name, "highest": highest},
                )
