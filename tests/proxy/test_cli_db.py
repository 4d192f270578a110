"""``antiphon db``: what it prints, what it refuses, and that a copy is a copy."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from store.cache import Cache
from store.database import Database
from store.migrations import HEAD
from store.settings import StoreSettings
from store.types import Policy
from tests.postgres import Server
from tests.proxy.test_cli import antiphon, one_line
from tests.store.support import NearEnough, WordEmbedder, ask, no_objections, say


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """An SQLite store with some entries."""
    path = tmp_path / "filled.db"
    asyncio.run(_fill(f"sqlite:///{path}"))
    return path


async def _fill(url: str) -> None:
    cache = await Cache.open(
        StoreSettings(url=url),
        embedder=WordEmbedder(),
        confidence=NearEnough(),
        policy=Policy(answer=0.7, verify=0.5),
        objections=no_objections,
    )
    for number in range(30):
        cache.record(ask(f"question {number} of thirty"), say(f"answer {number}"))
    assert await cache.flush()
    await cache.close()


def test_upgrade_makes_the_tables_and_says_from_where_to_where(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    done = antiphon(home, "db", "upgrade", "--store", str(path))
    assert (done.returncode, done.stdout) == (0, f"{path}: made with revision {HEAD}\n")
    done = antiphon(home, "db", "upgrade", "--store", str(path))
    assert done.stdout == f"{path}: revision {HEAD} → revision {HEAD}\n"


def findings(home: Path, store: Path | str, code: int = 0) -> dict[str, dict[str, Any]]:
    done = antiphon(home, "db", "check", "--json", "--store", str(store))
    assert done.returncode == code, done
    return {one["check"]: one for one in json.loads(done.stdout)}


def test_check_finds_a_sound_store_sound_while_it_is_in_use(home: Path, filled: Path) -> None:
    database = Database.open(StoreSettings(url=f"sqlite:///{filled}"))
    seen = findings(home, filled)
    database.close()
    assert {one["status"] for one in seen.values()} == {"ok"}
    assert seen["entries"]["seen"] == "30 active"
    assert seen["vectors"]["seen"] == "words: 30 of 64 dimensions"
    assert seen["schema"]["seen"] == f"revision {HEAD}"


@pytest.mark.parametrize(
    ("damage", "check", "said"),
    [
        ("UPDATE entries SET answer = x'00c1' WHERE number = 3", "entries", "1 cannot be read"),
        ("UPDATE vectors SET query = x'007c' WHERE number = 3", "vectors", "1 are damaged"),
        ("UPDATE vectors SET bucket = x'00' WHERE number = 3", "buckets", "1 belong elsewhere"),
        ("UPDATE vectors SET query = x'003c003c' WHERE number = 3", "spaces", "different lengths in words"),
    ],
)
def test_check_says_what_is_wrong_and_where(home: Path, filled: Path, damage: str, check: str, said: str) -> None:
    with sqlite3.connect(filled) as database:
        assert database.execute(damage).rowcount == 1
    seen = findings(home, filled)
    assert seen[check]["status"] == "warning"
    assert said in seen[check]["seen"]


def test_check_fails_where_there_is_a_problem(home: Path, filled: Path) -> None:
    with sqlite3.connect(filled) as database:
        database.execute("UPDATE alembic_version SET version_num = '0001'")
    assert "antiphon db upgrade" in findings(home, filled, code=1)["schema"]["advice"]


def test_check_notices_rows_that_belong_to_nothing(home: Path, filled: Path) -> None:
    with sqlite3.connect(filled) as database:
        database.execute("DELETE FROM entries WHERE number = 3")  # foreign keys are off on this connection
    assert findings(home, filled, code=1)["file"]["seen"] == "1 rows belong to nothing"


def test_copy_prints_each_table_and_leaves_the_same_behind(home: Path, filled: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    done = antiphon(home, "db", "copy", str(target), "--store", str(filled))
    assert done.returncode == 0, done
    rows = {line.split("\t")[0]: line.split("\t") for line in done.stdout.splitlines()}
    assert rows["entries"][1:4] == ["30", "30", "0"]
    assert "the same in number and checksum" in done.stdout
    assert "copying entries: 30 of 30" in done.stderr
    assert "verifying entries" in done.stderr
    assert findings(home, target)["entries"]["seen"] == "30 active"
    assert "is not empty" in one_line_of_many(antiphon(home, "db", "copy", str(target), "--store", str(filled)))


def one_line_of_many(done: Any) -> str:
    """The last line of a command that failed after having told of its progress."""
    assert done.returncode == 1
    return str(done.stderr.splitlines()[-1])


def test_a_store_is_not_copied_onto_itself(home: Path, filled: Path) -> None:
    assert "TARGET is the store itself" in one_line(
        antiphon(home, "db", "copy", str(filled), "--store", str(filled)), 2
    )


def test_serve_does_not_start_on_a_store_of_no_known_kind(home: Path) -> None:
    done = antiphon(home, "serve", "--port", "0", "--store", "mysql://root@localhost/antiphon")
    assert "store.url names 'mysql'" in one_line(done, 2) or "names no" in done.stderr


def test_a_store_in_use_is_neither_copied_nor_compacted(home: Path, filled: Path, tmp_path: Path) -> None:
    database = Database.open(StoreSettings(url=f"sqlite:///{filled}"))
    for arguments in (["copy", str(tmp_path / "copy.db")], ["compact"]):
        said = one_line(antiphon(home, "db", *arguments, "--store", str(filled)), 1)
        assert "used by another proxy" in said
    database.close()


def test_compact_measures_and_refuses(home: Path, filled: Path) -> None:
    done = antiphon(home, "db", "compact", "--dimensions", "256", "--store", str(filled))
    assert (done.returncode, done.stdout) == (0, "no vector has more than 256 dimensions\n")
    said = one_line(antiphon(home, "db", "compact", "--dimensions", "16", "--store", str(filled)), 1)
    assert said == "words has 30 vectors: fitting 16 dimensions needs 200"


@pytest.mark.slow
def test_everything_works_on_postgresql_too(home: Path, filled: Path, postgres_url: str) -> None:
    done = antiphon(home, "db", "copy", postgres_url, "--store", str(filled), "--json")
    assert done.returncode == 0, done
    assert {table["table"]: table["rows"] for table in json.loads(done.stdout)["tables"]}["entries"] == 30
    seen = findings(home, postgres_url)
    assert {one["status"] for one in seen.values()} == {"ok"}
    assert seen["vectors"]["seen"] == "words: 30 of 64 dimensions"
    done = antiphon(home, "db", "upgrade", "--store", postgres_url)
    assert f"revision {HEAD}" in done.stdout
    asked = antiphon(home, "entries", "--store", postgres_url, "--json", "--limit", "100")
    assert len(json.loads(asked.stdout)["entries"]) == 30
    said = antiphon(home, "doctor", "--store", postgres_url, "--json")
    (store,) = [one for one in json.loads(said.stdout) if one["check"] == "store"]
    assert store["status"] == "ok"
    assert "pgvector 0.8" in store["seen"]


@pytest.mark.slow
def test_another_programs_postgresql_is_looked_into_and_gets_no_tables(home: Path, postgres: Server) -> None:
    postgres.execute("CREATE DATABASE others")
    postgres.execute("CREATE TABLE notes (text text)", database="others")
    for arguments in (["stats"], ["purge", "--all"], ["db", "check"], ["db", "compact"]):
        said = one_line(antiphon(home, *arguments, "--store", postgres.url("others")), 2)
        assert said.startswith("there is no store at postgresql+psycopg://")
    with postgres.connect("others") as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
    assert tables == [("notes",)]
