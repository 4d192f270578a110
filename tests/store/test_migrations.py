"""The schema: made by Alembic from the first table on, and the same as the models say."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect

from store.errors import SchemaTooNew
from store.migrations import HEAD, KNOWN, alembic_config, upgrade
from store.models import Base
from tests.store.support import Open


def test_the_revisions_make_what_the_models_say() -> None:
    with create_engine("sqlite://").connect() as connection:
        upgrade(connection)
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []


def test_the_newest_revision_and_the_known_ones_are_those_that_exist() -> None:
    with create_engine("sqlite://").connect() as connection:
        script = ScriptDirectory.from_config(alembic_config(connection))
        assert script.get_current_head() == HEAD
        assert {revision.revision for revision in script.walk_revisions()} == KNOWN


def test_every_revision_can_be_taken_back() -> None:
    from alembic import command

    with create_engine("sqlite://").connect() as connection:
        upgrade(connection)
        command.downgrade(alembic_config(connection), "base")
        assert set(inspect(connection).get_table_names()) <= {"alembic_version"}


async def test_a_database_of_a_newer_release_is_refused_and_left_alone(tmp_path: Path, open_cache: Open) -> None:
    await (await open_cache()).close()
    with sqlite3.connect(tmp_path / "antiphon.db") as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(SchemaTooNew, match="9999"):
        await open_cache()
    with sqlite3.connect(tmp_path / "antiphon.db") as database:
        assert database.execute("SELECT version_num FROM alembic_version").fetchall() == [("9999",)]
