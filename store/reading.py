"""A plain connection to a database that only looks: nothing is created, upgraded or locked."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import URL, Connection, create_engine, inspect, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from store.database import parse_url
from store.errors import StoreMissing, StoreUnavailable
from store.settings import StoreSettings

__all__ = ["looking_into", "must_exist", "reading", "revision"]


@contextmanager
def reading(settings: StoreSettings) -> Iterator[Connection]:
    """Connect to what ``settings.url`` names.

    Raises `UnsupportedStore`, `StoreMissing` where there is no such file, and `StoreUnavailable`, also while in use.
    """
    url = parse_url(settings.url)
    if url.get_backend_name() == "postgresql":
        from store.postgres import reading_engine

        engine = reading_engine(settings.url)
    else:
        path = _file_of(url)
        # Not `immutable`: a proxy may be writing.
        engine = create_engine(f"sqlite:///file:{quote(str(path))}?mode=ro&uri=true", poolclass=NullPool)
    try:
        with engine.connect() as connection:
            yield connection
    except DBAPIError as error:
        raise StoreUnavailable(
            f"the store {_shown(url)} cannot be read: {' '.join(str(error.orig).split())}"
        ) from error


def must_exist(settings: StoreSettings) -> None:
    """Raise `StoreMissing` where ``settings.url`` names no store: opening a mistyped one would make it.

    Raises `UnsupportedStore`, too. Whatever else is wrong with it, opening it says so.
    """
    url = parse_url(settings.url)
    try:
        if url.get_backend_name() == "postgresql":
            from store.postgres import examine

            there = examine(settings.url).schema is not None
        else:
            with looking_into(_file_of(url)) as connection:  # another program's has tables, too; opening it says so
                there = connection.execute("SELECT 1 FROM sqlite_master").fetchone() is not None
    except (StoreUnavailable, sqlite3.Error):
        return
    if not there:
        raise StoreMissing(f"there is no store at {_shown(url)}: the database holds none of its tables")


@contextmanager
def looking_into(file: Path) -> Iterator[sqlite3.Connection]:
    """Connect to an SQLite file that may be anybody's: it is not written to. Raises ``sqlite3.Error``."""
    # Without `immutable`, a database in WAL mode gets a -wal and a -shm beside it even from those who only read. One
    # that is there already holds rows that are not in the file yet.
    how = "mode=ro" if file.with_name(file.name + "-wal").exists() else "mode=ro&immutable=1"
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?{how}", uri=True)) as connection:
        yield connection


def revision(connection: Connection) -> str | None:
    """Return the newest revision that was applied; None where there are no tables."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return found


def _file_of(url: URL) -> Path:
    """Return the SQLite file a URL names. Raises `StoreMissing` where there is none."""
    if url.database in (None, "", ":memory:"):
        raise StoreMissing("store.url names no file: such a store is gone with the proxy that uses it")
    path = _path_of(url)
    try:
        if path.is_file():
            return path
        why = ": that is a folder" if path.is_dir() else ": that is no file" if path.exists() else ""
    except OSError as error:  # a name too long, a folder that may not be entered
        why = f": {error.strerror}"
    raise StoreMissing(f"there is no store at {path}{why}")


def _path_of(url: URL) -> Path:
    return Path(str(url.database)).expanduser().absolute()


def _shown(url: URL) -> str:
    """How a database is called in messages: without a password."""
    return str(_path_of(url)) if url.get_backend_name() == "sqlite" else url.render_as_string(hide_password=True)
