"""Lifetimes to the second, relative dates against the day they were said, and what lies behind the expired."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fingerprint.keys import dated_key
from store.cache import Cache
from store.types import Query
from tests.store.support import Clock, Open, ask, look_up, on_both_engines, say

CAPITAL = "what is the capital of Portugal"
REWORDED = "what is the capital of Portugal please"
MEETING = "what did we decide in the meeting yesterday"
MEETING_REWORDED = "what did we decide yesterday in the meeting"


def on(day: str, *texts: str) -> Query:
    query = ask(*texts)
    return replace(query, exact_key=dated_key(query.exact_key, day), dates=day)


@on_both_engines
async def test_an_entry_is_served_until_its_lifetime_ends_and_not_at_that_second(
    open_cache: Open, clock: Clock
) -> None:
    cache = await open_cache()
    cache.record(ask(CAPITAL, ttl_s=60.0), say("Lisbon"))
    await cache.flush()
    clock.now += 59.999
    assert cache.exact_now(ask(CAPITAL)) is not None
    assert (await cache.search(ask(REWORDED)))[1] is not None
    clock.now += 0.001
    for _ in range(2):
        assert cache.exact_now(ask(CAPITAL)) is None
        assert await cache.exact(ask(CAPITAL)) is None
        assert (await cache.search(ask(REWORDED)))[1] is None
        await cache.close()
        cache = await open_cache()


async def test_a_hit_renews_no_lifetime(cache: Cache, clock: Clock) -> None:
    entry = cache.record(ask(CAPITAL, ttl_s=60.0), say("Lisbon"))
    await cache.flush()
    for _ in range(5):
        clock.now += 10
        assert await look_up(cache, ask(CAPITAL)) is not None
        assert await look_up(cache, ask(REWORDED)) is not None
        await cache.flush()
    row = await cache.entry(entry)
    assert row is not None
    assert row.expires_at == row.created_at + 60
    clock.now += 10
    for words in (CAPITAL, REWORDED):
        assert await look_up(cache, ask(words)) is None


async def test_max_age_ends_at_the_second_as_well(cache: Cache, clock: Clock) -> None:
    cache.record(ask(CAPITAL), say("Lisbon"))
    await cache.flush()
    clock.now += 29.999
    assert await cache.exact(ask(CAPITAL, max_age_s=30.0)) is not None
    clock.now += 0.001
    assert await cache.exact(ask(CAPITAL, max_age_s=30.0)) is None
    assert (await cache.search(ask(REWORDED, max_age_s=30.0)))[1] is None
    assert await cache.exact(ask(CAPITAL, max_age_s=31.0)) is not None


async def test_where_the_best_match_has_expired_the_next_one_is_served(cache: Cache, clock: Clock) -> None:
    cache.record(ask(f"{CAPITAL} please now", ttl_s=10.0), say("Porto"))
    behind = cache.record(ask(CAPITAL), say("Lisbon"))
    await cache.flush()
    clock.now += 10
    _, hit = await cache.search(ask(f"{CAPITAL} please now thanks"))
    assert hit is not None
    assert hit.entry_id == behind


async def test_however_many_have_expired_before_it(open_cache: Open, clock: Clock) -> None:
    cache = await open_cache(retrieval_depth=4)
    for number in range(9):
        cache.record(ask(f"{CAPITAL} please {'now ' * (number + 1)}", ttl_s=10.0), say("Porto"))
    behind = cache.record(ask(CAPITAL), say("Lisbon"))
    await cache.flush()
    clock.now += 10
    _, hit = await cache.search(ask(REWORDED + " now now now now"))
    if hit is None:  # too far for the threshold: it must at least have been judged
        decision, _ = await cache.search(ask(REWORDED + " now now now now"), thorough=True)
        assert behind in [judgement.entry_id for judgement in decision.judgements]
    else:
        assert hit.entry_id == behind


@pytest.mark.parametrize("words", [MEETING, MEETING_REWORDED])
async def test_yesterday_never_matches_yesterday_of_another_day(open_cache: Open, clock: Clock, words: str) -> None:
    cache = await open_cache()
    cache.record(on("2026-11-21", MEETING), say("to move"))
    await cache.flush()
    for _ in range(2):
        assert await look_up(cache, on("2026-11-21", words)) is not None
        assert await look_up(cache, on("2026-11-28", words)) is None
        clock.now += 7 * 3600
        await cache.close()
        cache = await open_cache()


async def test_a_question_without_a_day_is_left_to_the_guards(cache: Cache) -> None:
    cache.record(on("2026-11-21", MEETING), say("to move"))
    await cache.flush()
    decision, _ = await cache.search(ask("what did we decide in the meeting on Saturday"), thorough=True)
    assert decision.judgements
