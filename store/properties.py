"""What a database says of itself: a few names with a value each."""

from __future__ import annotations

import secrets
from typing import Final

from sqlalchemy import Connection, delete, select
from sqlalchemy.dialects.postgresql import insert as upsert  # SQLite compiles it to the same words

from store.models import Property

__all__ = ["STORE", "UNFINISHED", "property_of", "set_property", "store_token"]

STORE: Final = "store"
"""Tells this database from any other; copies get one of their own."""
UNFINISHED: Final = "unfinished_copy"
"""The `STORE` of the source of a copy that is not complete."""


def property_of(connection: Connection, name: str) -> str | None:
    """Return a property's value."""
    return connection.execute(select(Property.value).where(Property.name == name)).scalar()


def set_property(connection: Connection, name: str, value: str | None) -> None:
    """Write a property; None removes it."""
    if value is None:
        connection.execute(delete(Property).where(Property.name == name))
        return
    statement = upsert(Property)
    statement = statement.on_conflict_do_update(
        index_elements=[Property.name], set_={"value": statement.excluded.value}
    )
    connection.execute(statement, {"name": name, "value": value})


def store_token(connection: Connection) -> str:
    """Return what tells this database from any other (written when its tables are made)."""
    return property_of(connection, STORE) or ""


def new_token() -> str:
    """Return a token that no other store has."""
    return secrets.token_hex(16)
