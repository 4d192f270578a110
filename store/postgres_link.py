"""A thread that follows what other processes on the same PostgreSQL database commit."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from sqlalchemy import URL, Connection, create_engine, text
from sqlalchemy.pool import NullPool

from store.counters import Failures
from store.errors import StoreInUse, StoreUnavailable
from store.postgres import CHANNEL, USE, connect_args
from store.replicas import Handler, unpack

__all__ = ["PostgresLink"]

log = logging.getLogger(__name__)

_RETRY_S: Final = 0.2
_LONGEST_RETRY_S: Final = 2.0
_FORGOTTEN_S: Final = 3_600.0  # changes are kept for a day; after an hour without any news nothing is taken for granted
_AT_ONCE: Final = 1_000  # rows

_CHANGES = text("SELECT number, origin, body FROM changes WHERE number > :seen ORDER BY number LIMIT :limit")
_SHARE = text("SELECT pg_try_advisory_lock_shared(:number)")
_NEWEST = text("SELECT coalesce(max(number), 0) FROM changes")


class PostgresLink:
    """Notified at once where the server's connections allow LISTEN, and looking every ``poll_s`` seconds in any case.

    ``limit_s``: after so many seconds without having looked, this process no longer trusts its own memory.
    """

    def __init__(self, url: URL, origin: str, failures: Failures, *, poll_s: float, limit_s: float) -> None:
        self._engine = create_engine(
            url,
            poolclass=NullPool,
            connect_args=connect_args(),
            isolation_level="AUTOCOMMIT",
            hide_parameters=True,
        )
        self._origin = origin
        self._failures = failures
        self._poll_s = poll_s
        self._limit_s = limit_s
        self._statement_ms = max(100, int(limit_s * 1000))
        self._seen = 0
        self._checked_at = float("-inf")
        self._handlers: Mapping[str, Handler] = {}
        self._forget: Callable[[], None] = lambda: None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="antiphon-link", daemon=True)

    def start(self, handlers: Mapping[str, Handler], forget: Callable[[], None]) -> None:
        """Begin to follow, from now on. Raises `StoreUnavailable` where the database cannot be read."""
        self._handlers, self._forget = handlers, forget
        began = time.monotonic()
        try:
            connection = self._connect()
            self._seen = connection.execute(_NEWEST).scalar_one()
        except StoreInUse:
            raise
        except Exception as error:
            raise StoreUnavailable("the store's table of changes cannot be read") from error
        self._checked_at = began
        self._first: Connection | None = connection
        self._thread.start()

    def fresh(self) -> bool:
        """Whether everything committed longer ago than the limit is known here."""
        return time.monotonic() - self._checked_at <= self._limit_s

    def close(self) -> None:
        """Stop following."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(2 * self._limit_s + 1)
        self._engine.dispose()

    def _connect(self) -> Connection:
        connection = self._engine.connect()
        connection.exec_driver_sql(f"SET statement_timeout = {self._statement_ms}")
        if not connection.execute(_SHARE, {"number": USE}).scalar():
            connection.close()
            raise StoreInUse("the store is being copied or compacted: wait until that is done")
        connection.exec_driver_sql(f"LISTEN {CHANNEL}")
        return connection

    def _run(self) -> None:
        pause_s = _RETRY_S
        while not self._stopping.is_set():
            try:
                connection, self._first = self._first or self._connect(), None
                with connection:
                    pause_s = _RETRY_S
                    self._follow(connection)
            except Exception as error:
                self._failures.note("link", error)
                self._stopping.wait(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_RETRY_S)

    def _follow(self, connection: Connection) -> None:
        driver: Any = connection.connection.driver_connection
        while not self._stopping.is_set():
            self._look(connection)
            for _ in driver.notifies(timeout=self._poll_s, stop_after=1):
                pass

    def _look(self, connection: Connection) -> None:
        """Take note of what was committed since the last look."""
        began = time.monotonic()
        if began - self._checked_at > _FORGOTTEN_S:
            seen = connection.execute(_NEWEST).scalar_one()
            self._forget()
            self._seen = seen
        while True:
            rows = connection.execute(_CHANGES, {"seen": self._seen, "limit": _AT_ONCE}).all()
            for row in rows:
                if row.origin != self._origin:
                    self._take_note(row.body)
                self._seen = row.number
            if len(rows) < _AT_ONCE:
                break
        self._checked_at = began

    def _take_note(self, body: bytes) -> None:
        try:
            changes = unpack(body)
            for kind, values in changes:
                handler = self._handlers.get(kind)
                if handler is None:
                    self._forget()
                else:
                    handler(values)
        except Exception as error:  # whatever was meant, nothing in memory can be trusted now
            self._failures.note("link", error)
            self._forget()
