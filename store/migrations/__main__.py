"""Write a new revision: ``python -m store.migrations "what changes"``."""

from __future__ import annotations

import sys

from alembic import command
from sqlalchemy import create_engine

from store.migrations import KNOWN, alembic_config


def main() -> None:
    """Upgrade an empty database in memory and write what `store.models` has beyond it."""
    with create_engine("sqlite://").connect() as connection:
        config = alembic_config(connection)
        command.upgrade(config, "head")
        command.revision(config, " ".join(sys.argv[1:]), autogenerate=True, rev_id=f"{len(KNOWN) + 1:04d}")


if __name__ == "__main__":
    main()
