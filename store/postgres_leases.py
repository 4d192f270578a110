"""Who is answering a turn just now, among all processes on the database: one advisory lock for each turn under way.

The locks belong to one connection of this process. If the process dies, or its connection breaks, the server gives them
free. Whatever cannot be found out in time counts as "nobody": two processes then ask the model, as without this.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from sqlalchemy import URL, Connection, TextClause, create_engine, text
from sqlalchemy.pool import NullPool

from store.counters import Breaker, Failures
from store.postgres import connect_args, lock_number

__all__ = ["PostgresLeases"]

_TAKE = text("SELECT pg_try_advisory_lock(:number)")
_GIVE_BACK = text("SELECT pg_advisory_unlock(:number)")
_WAITING: Final = 256  # pieces of work for the thread


class PostgresLeases:
    """Takes and gives back leases, in one thread. ``deadline_s``: after that, nobody holds a lease."""

    def __init__(self, url: URL, failures: Failures, *, deadline_s: float) -> None:
        self._engine = create_engine(
            url, poolclass=NullPool, connect_args=connect_args(), isolation_level="AUTOCOMMIT", hide_parameters=True
        )
        self._failures = failures
        self._deadline_s = deadline_s
        self._pool = ThreadPoolExecutor(1, "antiphon-lease")
        self._breaker = Breaker()
        self._pending = 0
        self._connection: Connection | None = None
        self._held: Counter[bytes] = Counter()  # known to the thread alone, so also what came too late for its caller
        self._pool.submit(self._connect_ahead)

    async def take(self, key: bytes) -> bool:
        """Take the lease of a turn (its exact key); False where another process holds it. To be given back if True."""
        if not self._breaker.allows() or self._pending >= _WAITING:
            return True
        self._pending += 1
        try:
            async with asyncio.timeout(self._deadline_s):
                taken = await asyncio.wrap_future(self._pool.submit(self._ask, _TAKE, key))
        except Exception as error:
            self._breaker.failed()
            self._failures.note("lease", error)
            return True
        finally:
            self._pending -= 1
        self._breaker.worked()
        return taken

    def give_back(self, key: bytes) -> None:
        """Give a lease back; nothing happens where it was not held. From any thread, at once."""
        try:
            self._pool.submit(self._return, key)
        except RuntimeError:  # closing: the connection is, too, and with it the lease
            return

    def close(self) -> None:
        """Give everything back."""
        self._pool.submit(self._disconnect)
        self._pool.shutdown(wait=False)

    def _connect_ahead(self) -> None:
        """Connect before the first turn needs it."""
        try:
            self._connected()
        except Exception as error:
            self._failures.note("lease", error)

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = self._engine.connect()
            self._connection.exec_driver_sql(f"SET statement_timeout = {max(100, int(self._deadline_s * 1000))}")
        return self._connection

    def _ask(self, statement: TextClause, key: bytes) -> bool:
        try:
            done = bool(self._connected().execute(statement, {"number": lock_number(b"turn", key)}).scalar())
        except Exception:
            self._disconnect()
            raise
        if done:
            self._held[key] += 1 if statement is _TAKE else -1
        return done

    def _return(self, key: bytes) -> None:
        if not self._held[key]:
            del self._held[key]
            return
        try:
            self._ask(_GIVE_BACK, key)
        except Exception as error:
            self._failures.note("lease", error)
        if not self._held[key]:
            del self._held[key]

    def _disconnect(self) -> None:
        self._held.clear()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
