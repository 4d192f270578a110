"""Counting what went wrong, and saying so once a minute per kind."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

__all__ = ["Breaker", "BreakerState", "Failures", "kind_of"]

log = logging.getLogger(__name__)

_EVERY_S: Final = 60.0
_KINDS: Final = {
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_CORRUPT: "corrupt",
    sqlite3.SQLITE_NOTADB: "corrupt",
    sqlite3.SQLITE_IOERR: "io",
    sqlite3.SQLITE_CANTOPEN: "io",
    sqlite3.SQLITE_READONLY: "io",
    sqlite3.SQLITE_INTERRUPT: "slow",
}
# PostgreSQL's conditions (its manual, appendix A), by code or by class (the first two characters).
_STATES: Final = {
    "57014": "slow",  # the statement's time was up
    "55P03": "locked",
    "40P01": "locked",
    "40001": "locked",
    "25P03": "locked",  # the transaction waited too long for its next statement
    "53100": "full",
    "58": "io",
    "XX": "corrupt",
    "08": "down",
    "53": "down",  # too many connections, out of memory
    "57": "down",  # the server stops, or starts
}


def kind_of(error: BaseException) -> str:
    """Name the kind of failure: "locked", "full", "corrupt", "io", "slow", "down" (no connection) or "error"."""
    if isinstance(error, TimeoutError | PoolTimeout):
        return "slow"
    cause = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(cause, "sqlite_errorcode", None)
    if code is not None:
        return _KINDS.get(code & 0xFF, "error")
    state = getattr(cause, "sqlstate", None)
    if state:
        return _STATES.get(state) or _STATES.get(state[:2], "error")
    if isinstance(error, OperationalError | InterfaceError):  # the connection could not be made, or broke
        return "down"
    return "error"


class Failures:
    """Failures by kind, such as ``"read.locked"`` or ``"write.full"``; safe to use from any thread."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._said: dict[str, float] = {}
        self._lock = threading.Lock()

    def note(self, where: str, error: BaseException | str, *, times: int = 1) -> None:
        """Count a failure of the part ``where`` (an exception, or its kind), and log it at most once a minute."""
        kind = f"{where}.{error if isinstance(error, str) else kind_of(error)}"
        now = time.monotonic()
        with self._lock:
            self._counts[kind] += times
            count = self._counts[kind]
            silent = now - self._said.get(kind, -_EVERY_S) < _EVERY_S
            if not silent:
                self._said[kind] = now
        if not silent:
            # The driver's message only: SQLAlchemy's own would print statement and parameters, which are private.
            detail = ""
            if isinstance(error, BaseException):
                cause = error.orig if isinstance(error, DBAPIError) else error
                detail = f": {type(cause).__name__}: {cause}"
            log.warning("store failure %s (%d so far)%s", kind, count, detail)

    def counts(self) -> dict[str, int]:
        """Return a copy of all counts."""
        with self._lock:
            return dict(self._counts)


BreakerState: TypeAlias = Literal["closed", "open", "trying"]
"""``closed``: everything is tried; ``open``: nothing is; ``trying``: the pause is over, one attempt decides."""


class Breaker:
    """After ``failures`` in a row nothing is tried for ``pause_s`` seconds; then one attempt decides.

    Every attempt that fails doubles the pause, up to ``longest_pause_s``; one that works ends it. Keeps a broken part
    from costing every request its deadline, and a part that struggles from being run over the moment it comes back.
    For one thread.
    """

    def __init__(
        self,
        failures: int = 5,
        pause_s: float = 2.0,
        longest_pause_s: float = 120.0,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = failures
        self._shortest_s = pause_s
        self._longest_s = longest_pause_s
        self._clock = clock
        self._in_a_row = 0
        self._pause_s = pause_s
        self._until = 0.0
        self._tries_until = 0.0
        self.trips = 0  # how often it opened

    @property
    def state(self) -> BreakerState:
        """Whether things are tried."""
        if self._in_a_row < self._limit:
            return "closed"
        return "open" if self._clock() < self._until else "trying"

    def allows(self) -> bool:
        """Whether to try now. Where the pause is over only the first to ask may, until it is known how that went."""
        state = self.state
        now = self._clock()
        if state == "trying" and now >= self._tries_until:
            self._tries_until = now + self._shortest_s  # nobody may ever tell how it went
            return True
        return state == "closed"

    def worked(self) -> None:
        """Note a success."""
        self._in_a_row = 0
        self._pause_s = self._shortest_s
        self._tries_until = 0.0

    def failed(self) -> None:
        """Note a failure."""
        was = self.state
        self._in_a_row += 1
        if was == "trying":
            self._pause_s = min(2 * self._pause_s, self._longest_s)
        if was != "open" and self._in_a_row >= self._limit:
            self.trips += 1
            self._until = self._clock() + self._pause_s
            self._tries_until = 0.0
