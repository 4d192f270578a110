"""The database behind the store, whichever engine it is.

Two engines exist: SQLite (`store.sqlite`), for one process, with its nearest neighbours in memory; and PostgreSQL with
pgvector (`store.postgres`), for any number of processes. Both speak through SQLAlchemy: what differs between them is
here, in `store.neighbours` and in the types of `store.models`, and nowhere else.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING

from sqlalchemy import URL, Engine, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from store.errors import StoreInUse, UnsupportedStore
from store.settings import StoreSettings

if TYPE_CHECKING:
    from store.counters import Failures
    from store.neighbours import Neighbours
    from store.replicas import Leases, Link

__all__ = ["Database", "parse_url"]


class Database(abc.ABC):
    """An open database. Make one with `Database.open`; everything here may block, so keep it off the event loop."""

    writer: Engine
    """One connection; a transaction on it excludes every other writer, of other processes too."""
    readers: Engine
    """Connections that cannot write, and give up by themselves about when a look-up does."""
    upkeep: Engine
    """Connections for what may take long: counting, listing, loading."""
    name: str
    """What to call it in a message; holds no password."""

    @classmethod
    def open(cls, settings: StoreSettings, *, alone: bool = False, unfinished: bool = False) -> Database:
        """Open, check and upgrade the database that ``settings.url`` names.

        ``alone``: no other process may use it until it is closed (an SQLite file never has two users). ``unfinished``:
        it may hold a copy that is not complete. Raises `UnsupportedStore`, `StoreInUse`, `SchemaTooNew` and
        `StoreUnavailable`.
        """
        database: Database
        if parse_url(settings.url).get_backend_name() == "postgresql":
            from store.postgres import PostgresDatabase

            database = PostgresDatabase.connect(settings)
        else:
            from store.sqlite import SqliteDatabase

            database = SqliteDatabase.take(settings)
        try:
            if alone:
                database.keep_others_out()
            if not unfinished:
                _complete(database)
        except BaseException:
            database.close()
            raise
        return database

    def keep_others_out(self) -> None:
        """Let no other process use the database until it is closed. Raises `StoreInUse` where one does."""
        return

    def reclaim(self) -> None:
        """Give room that is no longer needed back to the disk, where the engine can; may take minutes."""
        return

    @abc.abstractmethod
    def neighbours(self, settings: StoreSettings) -> Neighbours:
        """Return what finds the nearest vectors of this database."""

    def link(self, settings: StoreSettings, failures: Failures) -> Link | None:
        """Return what keeps this process in step with others on the same database; None where there are none."""
        return None

    def leases(self, settings: StoreSettings, failures: Failures) -> Leases | None:
        """Return who is answering which turn just now, among all processes; None where there are no others."""
        return None

    @abc.abstractmethod
    def replace(self, reason: str) -> bool:
        """Close a database that turned out to be damaged; tells whether `open` will start a fresh one in its place."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close every connection and give the database free."""

    @abc.abstractmethod
    def size_bytes(self) -> int:
        """Return what the database occupies on disk."""


def _complete(database: Database) -> None:
    from store.properties import UNFINISHED, property_of

    with database.upkeep.connect() as connection:
        if property_of(connection, UNFINISHED) is not None:
            raise StoreInUse(
                f"the store {database.name} holds a copy that was not finished: start the same `antiphon db copy` again"
            )


def parse_url(url: str) -> URL:
    """Return the parts of ``store.url``. Raises `UnsupportedStore` where it names no engine of this release."""
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
    except (ArgumentError, NoSuchModuleError):
        raise UnsupportedStore(
            "store.url is not a database URL; write sqlite:////path/to/antiphon.db or "
            "postgresql+psycopg://user@host/database"
        ) from None
    if backend not in ("sqlite", "postgresql"):
        raise UnsupportedStore(
            f"store.url names {backend!r}: entries are kept in SQLite (sqlite:////path/antiphon.db) or PostgreSQL "
            "(postgresql+psycopg://user@host/database)"
        )
    return parsed
