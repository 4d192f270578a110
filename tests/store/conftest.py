"""A cache on a real database: an SQLite file, or a database of a real PostgreSQL server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from store.cache import Cache
from store.checks import CheckSettings
from store.settings import StoreSettings
from store.types import Policy
from tests.store.support import Clock, NearEnough, Open, WordEmbedder, no_objections


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def embedder() -> WordEmbedder:
    return WordEmbedder()


@pytest.fixture
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The test's own database: an SQLite file, unless the test is parametrised by `on_both_engines`."""
    if getattr(request, "param", "sqlite") == "sqlite":
        return f"sqlite:///{tmp_path}/antiphon.db"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
async def open_cache(store_url: str, clock: Clock, embedder: WordEmbedder) -> AsyncIterator[Open]:
    """Open a cache on the test's own database (again and again, if need be); closed at the end of the test."""
    async with AsyncExitStack() as stack:

        async def open_(**changed: Any) -> Cache:
            named: dict[str, Any] = {
                "embedder": embedder,
                "confidence": NearEnough(),
                "policy": Policy(answer=0.7, verify=0.5),
            }
            named |= {"objections": no_objections, "clock": clock, "checks": CheckSettings()}
            named |= {key: changed.pop(key) for key in list(changed) if key in named}
            # Generous deadlines: only tests about deadlines set them.
            settings: dict[str, Any] = {"url": store_url, "changes_limit_ms": 20_000.0}
            settings |= dict.fromkeys(("lookup_deadline_ms", "embed_deadline_ms", "decide_deadline_ms"), 20_000.0)
            cache = await Cache.open(StoreSettings(**{**settings, **changed}), **named)
            stack.push_async_callback(cache.close)
            return cache

        yield open_


@pytest.fixture
async def cache(open_cache: Open) -> Cache:
    return await open_cache()
