"""Settings of the store (first draft so that the command can be put together; the store room owns this file)."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["StoreSettings"]


class StoreSettings(BaseModel):
    """Where answers are kept, and for how long."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    url: str = Field("", description="Database URL (SQLAlchemy); empty: an SQLite file in the data folder.")
    ttl_s: float = Field(604_800.0, gt=0, description="Lifetime in seconds of a stored answer; a hit never renews it.")
