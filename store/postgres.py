"""The PostgreSQL database: shared by any number of processes, on any number of machines.

One transaction writes at a time, whichever process it is of: it begins by taking an advisory lock. What writes look up
before they change it therefore stays true until they commit, exactly as in SQLite, no two of them can deadlock, and
the numbers of the table ``changes`` grow in the order of the commits. A batch of a busy proxy holds hundreds of writes,
so that the lock costs little.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from store.counters import Failures
from store.database import Database, parse_url
from store.errors import StoreInUse, StoreUnavailable, UnsupportedStore
from store.migrations import upgrade
from store.replicas import Said, begin, pack, said
from store.settings import StoreSettings

if TYPE_CHECKING:
    from store.postgres_index import PostgresIndex
    from store.postgres_leases import PostgresLeases
    from store.postgres_link import PostgresLink

__all__ = ["CHANNEL", "USE", "PostgresDatabase", "Server", "connect_args", "examine", "lock_number", "reading_engine"]

CHANNEL: Final = "antiphon"
"""Name under which a commit that took something out of circulation is notified."""

_CONNECT_S: Final = 5
_UPKEEP_MS: Final = 120_000  # one statement that counts, lists or loads
_IDLE_MS: Final = 30_000  # a transaction of a process that hangs must not hold the lock for ever
_EF_SEARCH: Final = 400  # of a million vectors in tight groups it finds 95 % of the nearest, where 120 finds 87 %
_SCAN_TUPLES: Final = 40_000


class PostgresDatabase(Database):
    """A database of a PostgreSQL server that has the extension ``vector``."""

    def __init__(self, url: URL, settings: StoreSettings) -> None:
        self.name = url.render_as_string(hide_password=True)
        self.url = url
        self.origin = secrets.token_hex(16)
        """Stands for this process in what it announces."""
        self.writer = _engine(
            url,
            1,
            {"lock_timeout": max(1, settings.busy_timeout_ms), "idle_in_transaction_session_timeout": _IDLE_MS},
            overflow=1,
        )
        # A statement gives up before its caller does, so that the reason is known and the connection is free again.
        deadline_ms = max(1, int(settings.lookup_deadline_ms * 0.8))
        self.readers = _engine(url, settings.read_threads, {"statement_timeout": deadline_ms, **_READING})
        self.upkeep = _engine(url, 1, {"statement_timeout": _UPKEEP_MS, **_READING}, overflow=1)
        self._alone: Connection | None = None
        self._lock = lock_number(b"write")
        event.listen(self.writer, "begin", self._began)
        event.listen(self.writer, "commit", self._committing)

    @classmethod
    def connect(cls, settings: StoreSettings) -> PostgresDatabase:
        """Connect, create or upgrade the tables. Raises `UnsupportedStore`, `SchemaTooNew`, `StoreUnavailable`."""
        url = _url_of(settings.url)
        shown = url.render_as_string(hide_password=True)
        first = create_engine(url, poolclass=NullPool, connect_args=connect_args(), hide_parameters=True)
        try:
            with first.begin() as connection:
                # Processes that start together upgrade one after the other.
                connection.execute(text("SELECT pg_advisory_xact_lock(:n)"), {"n": lock_number(b"upgrade")})
                upgrade(connection)
        except DBAPIError as error:
            raise StoreUnavailable(_why(shown, error)) from error
        database = cls(url, settings)
        try:
            with database.readers.connect() as connection:
                connection.execute(text("SELECT 1"))
        except DBAPIError as error:
            database.close()
            raise StoreUnavailable(_why(shown, error)) from error
        return database

    def keep_others_out(self) -> None:
        """Take the lock that every process on the database shares. Raises `StoreInUse`."""
        self._alone = self._by_itself().connect()
        if not self._alone.execute(text("SELECT pg_try_advisory_lock(:n)"), {"n": USE}).scalar():
            users = self._alone.execute(
                text(
                    "SELECT string_agg(DISTINCT application_name, ', ') FROM pg_stat_activity "
                    "WHERE datname = current_database() AND application_name LIKE 'antiphon %' "
                    "AND application_name <> current_setting('application_name')"
                )
            ).scalar()
            raise StoreInUse(f"the store {self.name} is in use ({users or 'by another process'}): stop that first")

    def reclaim(self) -> None:
        """Write the vectors anew without their gaps."""
        with self._by_itself().connect() as connection:
            connection.exec_driver_sql("VACUUM FULL ANALYZE vectors")

    def _by_itself(self) -> Engine:
        return create_engine(
            self.url,
            poolclass=NullPool,
            connect_args=connect_args(),
            isolation_level="AUTOCOMMIT",
            hide_parameters=True,
        )

    def neighbours(self, settings: StoreSettings) -> PostgresIndex:
        """Return the search by pgvector."""
        from store.postgres_index import PostgresIndex

        return PostgresIndex(self.url, exact_below=settings.ivf_threshold)

    def link(self, settings: StoreSettings, failures: Failures) -> PostgresLink:
        """Return what follows the other processes."""
        from store.postgres_link import PostgresLink

        return PostgresLink(
            self.url,
            self.origin,
            failures,
            poll_s=settings.changes_poll_ms / 1000,
            limit_s=settings.changes_limit_ms / 1000,
        )

    def leases(self, settings: StoreSettings, failures: Failures) -> PostgresLeases:
        """Return the advisory locks of turns under way."""
        from store.postgres_leases import PostgresLeases

        return PostgresLeases(self.url, failures, deadline_s=settings.lookup_deadline_ms / 1000)

    def replace(self, reason: str) -> bool:
        """Close; a server's damage is for its operator to mend."""
        self.close()
        return False

    def close(self) -> None:
        """Close every connection."""
        if self._alone is not None:
            self._alone.close()
        for engine in (self.writer, self.readers, self.upkeep):
            engine.dispose()

    def size_bytes(self) -> int:
        """Return what the tables and their indexes occupy; 0 where the server does not answer."""
        query = text(
            "SELECT coalesce(sum(pg_total_relation_size(oid)), 0) FROM pg_class "
            "WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p')"
        )
        with contextlib.suppress(DBAPIError), self.upkeep.connect() as connection:
            return int(connection.execute(query).scalar_one())
        return 0

    def _began(self, connection: Connection) -> None:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({self._lock})")
        begin(connection)

    def _committing(self, connection: Connection) -> None:
        changes: Said = said(connection)
        if changes:
            connection.exec_driver_sql(
                "INSERT INTO changes (at, origin, body) VALUES (extract(epoch FROM clock_timestamp()), %s, %s)",
                (self.origin, pack(changes)),
            )
            connection.exec_driver_sql(f"NOTIFY {CHANNEL}")


@dataclass(frozen=True, slots=True)
class Server:
    """What can be said of a server and the database on it without changing anything."""

    version: str  # such as "18.4"
    pgvector: str | None  # version in this database; None: CREATE EXTENSION has not been run
    pgvector_available: str | None  # version the server could create
    schema: str | None  # newest revision that was applied; None: no tables yet
    entries: int | None  # about; None: no tables yet


def examine(url: str) -> Server:
    """Connect and look. Raises `UnsupportedStore`, and `StoreUnavailable` where there is no connection."""
    parsed = _url_of(url)
    engine = create_engine(parsed, poolclass=NullPool, connect_args=connect_args(), hide_parameters=True)
    try:
        with engine.connect() as connection:

            def one(query: str) -> Any:
                return connection.execute(text(query)).scalar()

            tables = one("SELECT to_regclass('entries') IS NOT NULL AND to_regclass('alembic_version') IS NOT NULL")
            return Server(
                version=str(one("SHOW server_version")).split()[0],
                pgvector=one("SELECT extversion FROM pg_extension WHERE extname = 'vector'"),
                pgvector_available=one("SELECT default_version FROM pg_available_extensions WHERE name = 'vector'"),
                schema=one("SELECT version_num FROM alembic_version") if tables else None,
                entries=int(one("SELECT greatest(reltuples, 0) FROM pg_class WHERE oid = 'entries'::regclass"))
                if tables
                else None,
            )
    except DBAPIError as error:
        raise StoreUnavailable(_why(parsed.render_as_string(hide_password=True), error)) from error


_READING: Final = {"default_transaction_read_only": "on"}


def lock_number(*parts: bytes) -> int:
    """Return the number of an advisory lock, −2⁶³ … 2⁶³ − 1. Locks are the database's own; other programs' differ."""
    digest = blake2b(b"".join(len(part).to_bytes(4, "big") + part for part in parts), digest_size=8, person=b"antiphon")
    return int.from_bytes(digest.digest(), "big", signed=True)


def reading_engine(url: str) -> Engine:
    """Return an engine on whose connections nothing can be written. Raises `UnsupportedStore`."""
    return _engine(_url_of(url), 1, {**_READING})


USE: Final = lock_number(b"use")
"""Advisory lock that every process on the database shares, and who has to be alone there takes for itself."""


def _url_of(url: str) -> URL:
    parsed = parse_url(url)
    if parsed.drivername not in ("postgresql", "postgresql+psycopg"):
        raise UnsupportedStore("store.url: of PostgreSQL's drivers only psycopg is used (postgresql+psycopg://)")
    try:
        import pgvector  # noqa: F401
        import psycopg  # noqa: F401
    except ImportError as error:
        raise UnsupportedStore(
            f"store.url names PostgreSQL, and {error.name} is not installed: pip install 'antiphon[postgres]'"
        ) from None
    return parsed.set(drivername="postgresql+psycopg")


def _why(shown: str, error: DBAPIError) -> str:
    said = " ".join(str(error.orig).split())
    state = getattr(error.orig, "sqlstate", None)
    if state in ("0A000", "42501", "58P01") and "vector" in said:
        return (
            f"the store {shown} lacks the extension vector (pgvector 0.8 or newer): install it on the server, and let "
            f"a superuser run CREATE EXTENSION vector in that database ({said})"
        )
    return f"the store {shown} cannot be used: {said}"


def connect_args() -> dict[str, Any]:
    """Return what every connection is made with."""
    # Keepalives: a server that vanished without a word is noticed in seconds, not in hours.
    return {
        "connect_timeout": _CONNECT_S,
        "application_name": f"antiphon {os.getpid()}",
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": 15_000,
        "prepare_threshold": 2,
    }


def _engine(url: URL, connections: int, set_: dict[str, int | str], *, overflow: int = 0) -> Engine:
    reading = "default_transaction_read_only" in set_
    engine = create_engine(
        url,
        pool_size=connections,
        max_overflow=overflow,
        pool_timeout=1.0,
        pool_use_lifo=True,
        connect_args=connect_args(),
        # Look-ups are single statements: a transaction around each would cost two more round trips.
        isolation_level="AUTOCOMMIT" if reading else "READ COMMITTED",
        # The driver's message alone may reach a log; parameters are people's conversations.
        hide_parameters=True,
    )
    values = {"hnsw.iterative_scan": "relaxed_order", "hnsw.ef_search": _EF_SEARCH} if reading else {}
    statements = [f"SET {name} = {value}" for name, value in {**values, **set_}.items()]
    if reading:
        statements.append(f"SET hnsw.max_scan_tuples = {_SCAN_TUPLES}")

    def connected(connection: Any, _record: object) -> None:
        _prepare(connection, statements)

    event.listen(engine, "connect", connected)
    return engine


def _prepare(connection: Any, statements: Sequence[str]) -> None:
    from pgvector.psycopg import register_vector

    before = connection.autocommit
    connection.autocommit = True
    register_vector(connection)
    for statement in statements:
        connection.execute(statement)
    connection.autocommit = before
