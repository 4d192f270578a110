"""Alembic revisions, run by the program itself when it opens a database; there is no alembic.ini.

A new revision: ``python -m store.migrations "what changes"`` writes it from the difference between the tables of
`store.models` and those the existing revisions make.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import inspect, text

from store.errors import SchemaTooNew

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy import Connection

__all__ = ["HEAD", "alembic_config", "upgrade"]

HEAD: Final = "0007"
"""The newest revision. A test holds it equal to what Alembic finds."""

KNOWN: Final = frozenset({"0001", "0002", "0003", "0004", "0005", "0006", "0007"})


def alembic_config(connection: Connection) -> Config:
    """Return an Alembic configuration that runs on ``connection``."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def upgrade(connection: Connection) -> None:
    """Bring the database behind ``connection`` to `HEAD`; nothing is done (or imported) where it is there already.

    Raises `SchemaTooNew` where a revision of a later release was applied.
    """
    at = None
    if inspect(connection).has_table("alembic_version"):
        at = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    if at == HEAD:
        return
    if at is not None and at not in KNOWN:
        raise SchemaTooNew(
            f"the database has schema {at!r}, this release knows up to {HEAD!r}: use the release that wrote it, "
            "or another store.url"
        )
    from alembic import command

    command.upgrade(alembic_config(connection), "head")
