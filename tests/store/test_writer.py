"""One thread writes: together what waits together, apart what must not fall together."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text

from store.counters import Failures
from store.errors import StoreUnavailable
from store.settings import StoreSettings
from store.sqlite import SqliteDatabase
from store.writer import Writer


class Do:
    """A write made of a function."""

    def __init__(self, work: Callable[[Connection], Any], then: Callable[[], None] | None = None) -> None:
        self._work, self._then = work, then

    def apply(self, connection: Connection) -> tuple[Any, Callable[[], None] | None]:
        return self._work(connection), self._then


def insert(number: int) -> Callable[[Connection], None]:
    def work(connection: Connection) -> None:
        connection.execute(text("INSERT INTO numbers VALUES (:n)"), {"n": number})

    return work


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SqliteDatabase]:
    opened = SqliteDatabase.take(StoreSettings(url=f"sqlite:///{tmp_path}/writer.db"))
    with opened.writer.begin() as connection:
        connection.execute(text("CREATE TABLE numbers (n INTEGER UNIQUE)"))
    yield opened
    opened.close()


@pytest.fixture
def failures() -> Failures:
    return Failures()


@pytest.fixture
def writer(database: SqliteDatabase, failures: Failures) -> Iterator[Writer]:
    made = Writer(database.writer, failures, queue_size=50, locked_patience_s=0.2)
    yield made
    made.close(5)


def numbers(database: SqliteDatabase) -> list[int]:
    with database.readers.connect() as connection:
        return [row.n for row in connection.execute(text("SELECT n FROM numbers ORDER BY n"))]


def test_what_waits_together_is_committed_together(database: SqliteDatabase, writer: Writer) -> None:
    begun, go = threading.Event(), threading.Event()

    def hold(connection: Connection) -> None:
        begun.set()
        go.wait(5)

    assert writer.put(Do(hold))
    begun.wait(5)
    seen: list[list[int]] = []
    for number in range(20):
        assert writer.put(Do(insert(number), lambda: seen.append(numbers(database))))
    go.set()
    writer.ask(None).result(5)
    # When the first of them was told, all of them were there.
    assert seen == [list(range(20))] * 20


def test_a_writer_that_lingers_writes_when_somebody_waits_when_there_are_many_and_when_it_closes(
    database: SqliteDatabase, failures: Failures
) -> None:
    writer = Writer(database.writer, failures, queue_size=1_000, locked_patience_s=0.2, linger_s=600.0)
    seen: list[list[int]] = []
    for number in range(20):
        assert writer.put(Do(insert(number), lambda: seen.append(numbers(database))))
    assert seen == [] and len(writer) == 20
    writer.ask(None).result(5)
    assert seen == [list(range(20))] * 20
    written = threading.Event()
    writer.put(Do(insert(20), written.set))
    for number in range(21, 21 + 255):
        writer.put(Do(insert(number)))
    assert written.wait(5)
    writer.put(Do(insert(1_000)))
    writer.close(5)
    assert numbers(database)[-1] == 1_000


def test_a_writer_that_lingers_does_so_no_longer_than_it_is_told(database: SqliteDatabase, failures: Failures) -> None:
    writer = Writer(database.writer, failures, queue_size=50, locked_patience_s=0.2, linger_s=0.01)
    written = threading.Event()
    writer.put(Do(insert(1), written.set))
    assert written.wait(5)
    writer.close(5)


def test_one_that_fails_takes_no_other_with_it(database: SqliteDatabase, writer: Writer, failures: Failures) -> None:
    begun, go = threading.Event(), threading.Event()

    def hold(connection: Connection) -> None:
        begun.set()
        go.wait(5)

    writer.put(Do(hold))
    begun.wait(5)
    told: list[int] = []
    for number in (1, 2, 2, 3):
        writer.put(Do(insert(number), lambda number=number: told.append(number)))  # type: ignore[misc]
    asked = writer.ask(Do(insert(1)))
    go.set()
    with pytest.raises(StoreUnavailable):
        asked.result(5)
    assert numbers(database) == [1, 2, 3]
    assert told == [1, 2, 3]
    assert (writer.dropped, failures.counts()) == (2, {"write.error": 2})


def test_a_full_queue_refuses_but_not_what_somebody_waits_for(
    database: SqliteDatabase, writer: Writer, failures: Failures
) -> None:
    go = threading.Event()
    writer.put(Do(lambda connection: go.wait(5)))
    while writer.put(Do(lambda connection: None)):
        pass
    asked = writer.ask(Do(lambda connection: "done"))
    assert failures.counts() == {"write.queue_full": 1}
    go.set()
    assert asked.result(5) == "done"
    assert writer.put(Do(insert(1)))


def test_closing_writes_what_is_queued_and_refuses_the_rest(database: SqliteDatabase, writer: Writer) -> None:
    for number in range(40):
        writer.put(Do(insert(number)))
    writer.close(5)
    assert numbers(database) == list(range(40))
    assert not writer.put(Do(insert(99)))
    with pytest.raises(StoreUnavailable, match="closing"):
        writer.ask(None).result(5)


def test_nobody_who_waits_is_forgotten_when_the_last_write_hangs(writer: Writer) -> None:
    go = threading.Event()
    try:
        writer.put(Do(lambda connection: go.wait(20)))
        asked = writer.ask(Do(lambda connection: None))
        writer.close(0.05)
        with pytest.raises(StoreUnavailable):
            asked.result(5)
    finally:
        go.set()


def test_a_follower_that_fails_does_not_undo_the_write(
    database: SqliteDatabase, writer: Writer, failures: Failures
) -> None:
    def fail() -> None:
        raise RuntimeError("index")

    assert writer.ask(Do(insert(7), fail)).result(5) is None
    assert numbers(database) == [7]
    assert failures.counts() == {"index.error": 1}


def test_somebody_who_stopped_waiting_stops_nothing(database: SqliteDatabase, writer: Writer) -> None:
    go = threading.Event()
    writer.put(Do(lambda connection: go.wait(5)))
    asked = writer.ask(Do(insert(1)))
    asked.cancel()
    go.set()
    writer.ask(None).result(5)
    assert numbers(database) == [1]


def test_a_new_folder_for_the_database_is_for_its_owner_only(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        SqliteDatabase.take(StoreSettings(url=f"sqlite:///{tmp_path}/new/antiphon.db")).close()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


def test_the_database_is_for_its_owner_only(database: SqliteDatabase) -> None:
    for path in (database.path, database.path.with_name("writer.db-wal")):
        assert path.stat().st_mode & 0o077 == 0


def test_durability_and_integrity_are_switched_on(database: SqliteDatabase) -> None:
    with database.writer.connect() as connection:
        pragmas = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
    with database.readers.connect() as connection, pytest.raises(Exception, match="readonly"):
        connection.execute(text("DELETE FROM numbers"))
