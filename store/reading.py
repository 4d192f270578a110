"""A plain connection to a database that only looks: nothing is created, upgraded or locked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, create_engine, inspect, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from store.database import parse_url
from store.errors import StoreUnavailable
from store.settings import StoreSettings

__all__ = ["reading", "revision"]


@contextmanager
def reading(settings: StoreSettings) -> Iterator[Connection]:
    """Connect to what ``settings.url`` names. Raises `UnsupportedStore` and `StoreUnavailable`, also while in use."""
    url = parse_url(settings.url)
    if url.get_backend_name() == "postgresql":
        from store.postgres import reading_engine

        engine = reading_engine(settings.url)
    else:
        path = Path(str(url.database or "")).expanduser().absolute()
        if not path.is_file():
            raise StoreUnavailable(f"there is no store {path}")
        # Not `immutable`: a proxy may be writing.
        engine = create_engine(f"sqlite:///file:{quote(str(path))}?mode=ro&uri=true", poolclass=NullPool)
    try:
        with engine.connect() as connection:
            yield connection
    except DBAPIError as error:
        shown = url.render_as_string(hide_password=True)
        raise StoreUnavailable(f"the store {shown} cannot be read: {' '.join(str(error.orig).split())}") from error


def revision(connection: Connection) -> str | None:
    """Return the newest revision that was applied; None where there are no tables."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return found
