"""A part that fails is given pauses that grow; the index is made anew while look-ups go on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
from sqlalchemy import Connection

from store import reads
from store.cache import Cache
from store.counters import Breaker, Failures
from store.index import VectorIndex
from store.neighbours import Bucket
from tests.store.support import Open, ask, say

CAPITAL = "what is the capital of Portugal"
REWORDED = "what is the capital of Portugal please"
HERE = Bucket(b"p", b"i", "space")


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_pause_doubles_each_time_the_first_try_after_it_fails_and_ends_with_a_success() -> None:
    clock = Time()
    breaker = Breaker(failures=3, pause_s=2.0, longest_pause_s=10.0, clock=clock)
    for _ in range(2):
        breaker.failed()
    assert breaker.allows()
    breaker.failed()
    for pause in (2.0, 4.0, 8.0, 10.0, 10.0):
        assert (breaker.state, breaker.allows()) == ("open", False)
        clock.now += pause - 0.001
        assert not breaker.allows()
        clock.now += 0.001
        assert breaker.state == "trying"
        assert breaker.allows()
        assert not breaker.allows()  # only one decides
        breaker.failed()
    assert breaker.trips == 6
    clock.now += 10
    assert breaker.allows()
    breaker.worked()
    assert (breaker.state, breaker.allows()) == ("closed", True)
    for _ in range(3):
        breaker.failed()
    clock.now += 2.0  # the shortest again
    assert breaker.allows()


def test_a_try_whose_end_nobody_told_is_not_the_last_one() -> None:
    clock = Time()
    breaker = Breaker(failures=1, pause_s=2.0, clock=clock)
    breaker.failed()
    clock.now += 2.0
    assert breaker.allows()
    clock.now += 2.0
    assert breaker.allows()


def test_failures_that_are_not_in_a_row_open_nothing() -> None:
    breaker = Breaker(failures=3)
    for _ in range(20):
        breaker.failed()
        breaker.failed()
        breaker.worked()
    assert breaker.allows()
    assert breaker.trips == 0


async def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.01)


async def test_a_store_slower_than_its_deadline_is_an_empty_result_then_a_pause_then_a_new_index(
    open_cache: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = await open_cache(lookup_deadline_ms=40, memory_mib=0)
    cache.record(ask(CAPITAL), say("Lisbon"))
    await cache.flush()
    slow = threading.Event()
    real = reads.exact

    def crawling(connection: Connection, key: bytes, now: float) -> object:
        slow.wait(5)
        return real(connection, key, now)

    monkeypatch.setattr(reads, "exact", crawling)
    assert not cache.paused()
    for _ in range(5):
        assert await cache.exact(ask(CAPITAL)) is None
    assert cache.paused()
    began = time.monotonic()
    decision, hit = await cache.search(ask(REWORDED))
    assert time.monotonic() - began < 5
    assert (hit, decision.reason) == (None, "read: pausing after failures")
    stats = await cache.stats()
    assert stats.breakers["read"] == "open"
    assert stats.breaker_trips["read"] == 1
    slow.set()
    await until(lambda: cache._rebuilder.count == 1)
    assert (await cache.stats()).indexed == 1
    monkeypatch.setattr(reads, "exact", real)
    await until(lambda: not cache.paused())
    for _ in range(200):  # the first try decides; under load it may be slow once more
        if await cache.exact(ask(CAPITAL)) is not None:
            break
        await asyncio.sleep(0.1)
    assert (await cache.stats()).breakers["read"] == "closed"
    assert (await cache.search(ask(REWORDED)))[1] is not None


async def test_a_rebuild_that_fails_stays_due(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.record(ask(CAPITAL), say("Lisbon"))
    await cache.flush()

    def broken(connection: Connection) -> object:
        raise OSError("the disk is gone")

    real = reads.numbers_by_bucket
    monkeypatch.setattr(reads, "numbers_by_bucket", broken)
    assert cache._rebuilder.ask()
    await asyncio.to_thread(cache._rebuilder.run)
    assert cache._rebuilder.due
    assert (await cache.search(ask(REWORDED)))[1] is not None  # with the old one
    monkeypatch.setattr(reads, "numbers_by_bucket", real)
    await asyncio.to_thread(cache._rebuilder.run)
    assert not cache._rebuilder.due
    assert cache.failures.counts()["rebuild.error"] == 1


def unit(seed: int) -> np.ndarray:
    vector = np.random.default_rng(seed).standard_normal(8).astype(np.float32)
    return (vector / np.linalg.norm(vector))[np.newaxis]


def test_changes_during_a_rebuild_are_in_the_new_index_whether_it_saw_them_or_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index = VectorIndex()
    for number in range(1, 4):
        index.add(HERE, [number], unit(number))

    def load(*_: object, **__: object) -> object:
        read = VectorIndex()
        read.add(HERE, [1, 2, 3], np.concatenate([unit(n) for n in (1, 2, 3)]))
        # While it is being loaded: one is removed that was read, one comes that was not read, one that was comes again.
        index.remove(HERE, [2])
        index.add(HERE, [7], unit(7))
        index.remove(HERE, [3])
        index.add(HERE, [3], unit(3))
        assert len(index.search(HERE, unit(1)[0], 9)) == 3  # searches go on
        return read._shelves, 0

    monkeypatch.setattr("store.index.load", load)
    index.rebuild(None, 0.0, Failures())  # type: ignore[arg-type]
    assert sorted(number for number, _ in index.search(HERE, unit(1)[0], 9)) == [1, 3, 7]
    assert index.search(HERE, unit(7)[0], 1)[0][0] == 7


def test_a_cleared_index_finds_nothing_and_takes_new_vectors() -> None:
    index = VectorIndex()
    index.add(HERE, [1], unit(1))
    index.clear()
    assert (len(index), index.search(HERE, unit(1)[0], 3)) == (0, [])
    index.add(HERE, [2], unit(2))
    assert [number for number, _ in index.search(HERE, unit(1)[0], 3)] == [2]
