"""A cache on a real SQLite file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from store.cache import Cache
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
async def open_cache(tmp_path: Path, clock: Clock, embedder: WordEmbedder) -> AsyncIterator[Open]:
    """Open a cache on the test's own file (again and again, if need be); closed at the end of the test."""
    async with AsyncExitStack() as stack:

        async def open_(**changed: Any) -> Cache:
            named: dict[str, Any] = {
                "embedder": embedder,
                "confidence": NearEnough(),
                "policy": Policy(answer=0.7, verify=0.5),
            }
            named |= {"objections": no_objections, "clock": clock}
            named |= {key: changed.pop(key) for key in list(changed) if key in named}
            # Generous deadlines: only tests about deadlines set them.
            settings: dict[str, Any] = {"url": f"sqlite:///{tmp_path}/antiphon.db"}
            settings |= dict.fromkeys(("lookup_deadline_ms", "embed_deadline_ms", "decide_deadline_ms"), 20_000.0)
            cache = await Cache.open(StoreSettings(**{**settings, **changed}), **named)
            stack.push_async_callback(cache.close)
            return cache

        yield open_


@pytest.fixture
async def cache(open_cache: Open) -> Cache:
    return await open_cache()
