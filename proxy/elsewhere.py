"""Single flight among proxies that share a store: one asks the backend, the others wait for its answer, for a while."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from store.cache import Cache
from store.types import Hit, Query

__all__ = ["answered_elsewhere"]

_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.25


async def answered_elsewhere(cache: Cache, query: Query, patience_s: float) -> Hit | None:
    """Return the answer that another proxy gets for this literal turn just now.

    None: this proxy is to ask the backend itself, because it holds the turn's lease (give it back with
    `Cache.release` when the answer is recorded, or there is none), or because the other one took longer than
    ``patience_s`` seconds, or because nobody can tell who is answering.
    """
    if not cache.shared or patience_s <= 0:
        return None
    give_up = time.monotonic() + patience_s
    pause_s = _FIRST_PAUSE_S
    while not await cache.lease(query):
        if time.monotonic() >= give_up:
            return None
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    # It may have been recorded between our look-up and the lease.
    return await cache.exact(query)
