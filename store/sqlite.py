"""The SQLite database: one owner, one writing connection, a small pool of reading ones.

Durability: WAL with ``synchronous=FULL``. ``NORMAL`` would already survive a killed process; ``FULL`` costs one fsync a
batch, in the writer thread, and keeps a retraction from being undone by a power cut.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import IO, Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError

from store.counters import kind_of
from store.database import Database, parse_url
from store.errors import StoreInUse, StoreUnavailable, UnsupportedStore
from store.index import VectorIndex
from store.migrations import upgrade
from store.properties import store_token
from store.reading import looking_into
from store.settings import StoreSettings

__all__ = ["SqliteDatabase"]

log = logging.getLogger(__name__)

_ALWAYS_CHECK_BYTES = 64 << 20  # checking a database of this size takes a fraction of a second
_MAGIC = b"SQLite format 3\0"
_CLEAN, _OPEN = "closed cleanly", "opened by process"


class SqliteDatabase(Database):
    """An open SQLite file, which this process alone may use."""

    def __init__(self, path: Path, lock: IO[str], settings: StoreSettings, temporary: Path | None) -> None:
        self.path = path
        self.name = str(path)
        self._lock = lock
        self._temporary = temporary
        self.writer = _engine(path, settings.busy_timeout_ms, 1, reading=False)
        # A reader gives up on a lock before its caller gives up on the reader, so that the reason is known.
        self.readers = _engine(path, int(settings.lookup_deadline_ms * 0.8), settings.read_threads, reading=True)
        # Of its own: while look-ups hang, an operator must still see that they do.
        self.upkeep = _engine(path, settings.busy_timeout_ms, 2, reading=True)

    @classmethod
    def take(cls, settings: StoreSettings) -> SqliteDatabase:
        """Open, check and upgrade the database that ``settings.url`` names, creating it where there is none.

        A damaged one is moved aside (``NAME.corrupt-TIME``), said in the log, and a fresh one is started. Raises
        `UnsupportedStore` (also for somebody else's file, which is left as it is), `StoreInUse`, `SchemaTooNew`, and
        `StoreUnavailable` where the file cannot be used for another reason (no permission, locked).
        """
        path, temporary = _path_of(settings.url)
        try:
            _refuse_others(path)
            # People's conversations: for the owner only. SQLite gives its other files the same mode.
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.touch(mode=0o600)
            lock, clean = _take_lock(path)
        except OSError as error:
            raise StoreUnavailable(f"the store's folder {path.parent} cannot be used: {error.strerror}") from error
        try:
            for attempt in range(2):
                database = cls(path, lock, settings, temporary)
                try:
                    database._prepare(thorough=not clean)
                    return database
                except DBAPIError as error:
                    database._dispose()
                    if kind_of(error) != "corrupt" or attempt:
                        raise StoreUnavailable(f"the store {path} cannot be used: {error.orig}") from error
                    _move_aside(path, str(error.orig))
                except Exception:
                    database._dispose()
                    raise
        except BaseException:
            lock.close()
            raise
        raise AssertionError("unreachable")

    def reclaim(self) -> None:
        """Write the file anew without its gaps."""
        driver: Any = self.writer.raw_connection()
        try:
            driver.driver_connection.execute("VACUUM")
            driver.driver_connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            driver.close()

    def neighbours(self, settings: StoreSettings) -> VectorIndex:
        """Return an empty index in memory, which is kept beside the database between starts where it is large."""
        with self.readers.connect() as connection:
            store = store_token(connection)
        file = None if self._temporary is not None else _beside(self.path, ".index")
        return VectorIndex(settings.ivf_threshold, file=file, store=store)

    def replace(self, reason: str) -> bool:
        """Close and move a database that turned out to be damaged out of the way; `open` then starts a fresh one."""
        self._dispose()
        _move_aside(self.path, reason)
        self._lock.close()
        return True

    def close(self) -> None:
        """Close every connection and give the file free."""
        self._dispose()
        try:
            self._lock.seek(0)
            self._lock.truncate()
            self._lock.write(_CLEAN)
            self._lock.flush()
        except OSError:  # disk full: the next start checks the file, which is all this note is for
            log.debug("the lock file could not be written", exc_info=True)
        self._lock.close()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def size_bytes(self) -> int:
        """Return what the database occupies on disk, its write-ahead log included."""
        return sum(p.stat().st_size for p in (self.path, _beside(self.path, "-wal")) if p.exists())

    def _prepare(self, *, thorough: bool) -> None:
        with self.writer.connect() as connection:
            if thorough or self.path.stat().st_size < _ALWAYS_CHECK_BYTES:
                _check(connection)
            upgrade(connection)
            connection.commit()

    def _dispose(self) -> None:
        self.readers.dispose()
        self.upkeep.dispose()
        self.writer.dispose()


def _path_of(url: str) -> tuple[Path, Path | None]:
    """Return the file a URL names, and the temporary folder around it where the URL names none."""
    parsed = parse_url(url)
    if parsed.get_driver_name() != "pysqlite":
        raise UnsupportedStore("store.url: of SQLite's drivers only the standard one (sqlite://) is used")
    if parsed.query:
        raise UnsupportedStore("store.url must have no query; the store sets its own pragmas")
    if parsed.database in (None, "", ":memory:"):
        folder = Path(tempfile.mkdtemp(prefix="antiphon-"))
        return folder / "antiphon.db", folder
    return Path(str(parsed.database)).expanduser().absolute(), None


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _refuse_others(path: Path) -> None:
    """Raise `UnsupportedStore` for a file this program never wrote: a wrong path must cost nobody a file."""
    if _beside(path, ".lock").exists() or not path.is_file() or path.stat().st_size == 0:
        return
    with path.open("rb") as file:
        database = file.read(len(_MAGIC)) == _MAGIC
    tables: set[str] = set()
    if database:
        try:
            with looking_into(path) as connection:
                tables = {str(name) for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        except sqlite3.Error:  # damaged or locked: opening it says so
            return
    if (tables or not database) and not {"alembic_version", "entries"} <= tables:
        what = "another program's database" if database else "no database"
        raise UnsupportedStore(f"store.url names {path}, which is {what}: it is left alone; name another file")


def _take_lock(path: Path) -> tuple[IO[str], bool]:
    """Take the advisory lock beside the database; returns it, and whether the last owner closed cleanly."""
    descriptor = os.open(_beside(path, ".lock"), os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    lock = os.fdopen(descriptor, "a+", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.seek(0)
        owner = lock.read(64).removeprefix(_OPEN).strip()
        lock.close()
        if isinstance(error, BlockingIOError):
            raise StoreInUse(
                f"the store {path} is used by another proxy (process {owner or 'unknown'}): "
                "stop that one, give this one another store.url, or let both share a PostgreSQL "
                "(postgresql+psycopg://…)"
            ) from None
        raise
    lock.seek(0)
    clean = lock.read(64) in ("", _CLEAN)
    try:
        lock.seek(0)
        lock.truncate()
        lock.write(f"{_OPEN} {os.getpid()}")
        lock.flush()
    except OSError:
        clean = False
    return lock, clean


def _check(connection: Connection) -> None:
    """Raise the error SQLite raises for damage (SQLITE_CORRUPT) where the quick check finds any."""
    found = connection.execute(text("PRAGMA quick_check(1)")).scalar()
    if found != "ok":
        raise _damaged(str(found))


def _damaged(what: str) -> DBAPIError:
    error = sqlite3.DatabaseError(what)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT  # type: ignore[attr-defined, unused-ignore]
    return DBAPIError("PRAGMA quick_check", None, error)


def _move_aside(path: Path, reason: str) -> None:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    aside = _beside(path, f".corrupt-{stamp}")
    count = 1
    while aside.exists():
        count += 1
        aside = _beside(path, f".corrupt-{stamp}-{count}")
    log.error("the store %s is damaged (%s): moved to %s, starting with an empty one", path, reason, aside.name)
    for suffix in ("", "-wal", "-shm"):
        part = _beside(path, suffix)
        if part.exists():
            part.rename(_beside(aside, suffix))


def _engine(path: Path, busy_timeout_ms: int, connections: int, *, reading: bool) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        pool_size=connections,
        max_overflow=0 if reading else 1,
        pool_timeout=1.0,
        connect_args={"check_same_thread": False, "timeout": busy_timeout_ms / 1000},
        # The driver's message alone may reach a log; parameters are people's conversations.
        hide_parameters=True,
    )

    def connected(connection: Any, _record: object) -> None:
        # The driver's own transaction handling never begins one for reads and begins one too late for writes.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {busy_timeout_ms}")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.execute("PRAGMA cache_size = -8192")  # KiB
        if reading:
            cursor.execute("PRAGMA query_only = ON")
        else:
            cursor.execute("PRAGMA journal_mode = WAL")
            cursor.execute("PRAGMA synchronous = FULL")
            cursor.execute("PRAGMA journal_size_limit = 67108864")  # bytes
        cursor.close()

    event.listen(engine, "connect", connected)
    if not reading:

        def began(connection: Connection) -> None:
            connection.exec_driver_sql("BEGIN IMMEDIATE")

        event.listen(engine, "begin", began)
    return engine
