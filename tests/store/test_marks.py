"""Thumbs count once for each rater; doubts only add up."""

from __future__ import annotations

import pytest

from store.cache import Cache
from tests.store.support import ByWords, Clock, Open, ask, look_up, on_both_engines, say

pytestmark = on_both_engines

CAPITAL = "what is the capital of Portugal"
REWORDED = "what is the capital of Portugal please"
AGAIN = "what is the capital of Portugal now"


async def marks(cache: Cache, entry: str) -> tuple[int, int, int, str]:
    await cache.flush()
    row = await cache.entry(entry)
    assert row is not None
    return row.thumbs_up, row.thumbs_down, row.doubts, row.state


async def test_the_same_rating_of_the_same_rater_counts_once(open_cache: Open) -> None:
    cache = await open_cache()
    query = ask(CAPITAL)
    entry = cache.record(query, say("Lisbon"))
    for _ in range(2):
        assert await cache.feedback(entry, "up", partition=query.partition, rater=b"ann")
        assert await marks(cache, entry) == (1, 0, 0, "active")
        await cache.close()
        cache = await open_cache()
    assert await cache.feedback(entry, "up", partition=query.partition, rater=b"ben")
    assert await marks(cache, entry) == (2, 0, 0, "active")
    for _ in range(2):
        assert await cache.feedback(entry, "down", partition=query.partition, rater=b"ann")
        assert await marks(cache, entry) == (2, 1, 0, "retracted")
    assert [row.action for row in await cache.audit(limit=10)] == ["feedback"]


async def test_thumbs_down_takes_the_wordings_with_it(open_cache: Open) -> None:
    cache = await open_cache()
    query = ask(CAPITAL)
    entry = cache.record(query, say("Porto"))
    await cache.flush()
    assert await look_up(cache, ask(REWORDED)) is not None
    await cache.flush()
    assert await cache.exact(ask(REWORDED)) is not None
    assert await cache.feedback(entry, "down", partition=query.partition)
    for _ in range(2):
        for words in (CAPITAL, REWORDED):
            assert cache.exact_now(ask(words)) is None
            assert await cache.exact(ask(words)) is None
        await cache.close()
        cache = await open_cache()


async def test_a_regeneration_right_after_a_hit_is_a_doubt_once_per_session(cache: Cache, clock: Clock) -> None:
    entry = cache.record(ask(CAPITAL), say("Lisbon"))
    for session, doubts in (("s1", 1), ("s1", 1), ("s2", 2)):
        query = ask(CAPITAL, session=session)
        assert await look_up(cache, query) is not None
        assert cache.served_before(query)
        cache.regenerated(query)
        assert (await marks(cache, entry))[2:] == (doubts, "active")
    late = ask(CAPITAL, session="s3")
    assert await look_up(cache, late) is not None
    clock.now += 601
    cache.regenerated(late)  # not right after
    unserved = ask(CAPITAL, session="s4")
    cache.regenerated(unserved)  # was not served anything
    assert (await marks(cache, entry))[2] == 2


async def test_asked_again_with_the_answer_in_view_is_a_doubt_and_not_answered_the_same_way(open_cache: Open) -> None:
    cache = await open_cache(confidence=ByWords())
    entry = cache.record(ask(CAPITAL), say("Lisbon"))
    await cache.flush()
    assert await look_up(cache, ask(REWORDED)) is not None
    decision, hit = await cache.search(ask(REWORDED, "Lisbon", AGAIN))
    assert (hit, decision.reason) == (None, "asked again right after it")
    assert (await marks(cache, entry))[2] == 1
    # Without a hit before there is nothing to doubt, and another question is no repetition.
    assert await look_up(cache, ask("hello", "hi", AGAIN)) is not None
    assert (await marks(cache, entry))[2] == 1


async def test_asked_anew_at_the_same_place_is_a_doubt_and_served(cache: Cache) -> None:
    entry = cache.record(ask(CAPITAL), say("Lisbon"))
    await cache.flush()
    assert await look_up(cache, ask(REWORDED, session="s1")) is not None
    _, hit = await cache.search(ask(AGAIN, session="s1"))
    assert hit is not None
    assert (await marks(cache, entry))[2] == 1


@pytest.mark.parametrize(("limit", "state"), [(3, "suspect"), (0, "active"), (4, "active")])
async def test_enough_doubters_make_an_entry_suspect(open_cache: Open, limit: int, state: str) -> None:
    cache = await open_cache(doubts_to_suspect=limit)
    entry = cache.record(ask(CAPITAL), say("Porto"))
    for number in range(3):
        query = ask(CAPITAL, session=f"s{number}")
        assert await look_up(cache, query) is not None
        cache.regenerated(query)
        await cache.flush()
    assert await marks(cache, entry) == (0, 0, 3, state)
    assert (await cache.exact(ask(CAPITAL)) is None) == (state == "suspect")


async def test_a_few_doubters_among_many_hits_are_noise(cache: Cache) -> None:
    entry = cache.record(ask(CAPITAL), say("Lisbon"))
    for _ in range(20):
        assert await look_up(cache, ask(CAPITAL)) is not None
    for number in range(4):
        query = ask(CAPITAL, session=f"s{number}")
        assert await look_up(cache, query) is not None
        await cache.flush()
        cache.regenerated(query)
    assert await marks(cache, entry) == (0, 0, 4, "active")
