"""Counting what went wrong, and saying so once a minute per kind."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import Counter
from typing import Final

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

__all__ = ["Breaker", "Failures", "kind_of"]

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


class Breaker:
    """After ``failures`` in a row nothing is tried for ``pause_s`` seconds; then one attempt decides.

    Keeps a broken part from costing every request its deadline.
    """

    def __init__(self, failures: int = 5, pause_s: float = 2.0) -> None:
        self._limit = failures
        self._pause_s = pause_s
        self._in_a_row = 0
        self._until = 0.0

    @property
    def open(self) -> bool:
        """Whether nothing should be tried now."""
        return self._in_a_row >= self._limit and time.monotonic() < self._until

    def worked(self) -> None:
        """Note a success."""
        self._in_a_row = 0

    def failed(self) -> None:
        """Note a failure."""
        self._in_a_row += 1
        if self._in_a_row >= self._limit:
            self._until = time.monotonic() + self._pause_s
