"""What an entry is worth decides how long it lives, and what goes when there is too much."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.cache import Cache
from store.types import Answer
from store.value import Lives, expected_saving, length_of, stability
from tests.store.support import Clock, Open, ask, look_up, on_both_engines, say

CAPITAL = "what is the capital of Portugal"


def long(tokens: int, text: str = "Lisbon") -> Answer:
    return Answer(b'{"choices":[]}', text, prompt_tokens=10, completion_tokens=tokens, seconds=0.5)


LIVES = Lives(long_from=4.0, none_below=0.25, medium_s=86_400.0)


@pytest.mark.parametrize(("worth", "lifetime"), [(4.0, 604_800.0), (3.9, 86_400.0), (0.25, 86_400.0), (0.24, 0.0)])
def test_a_life_is_long_medium_or_none(worth: float, lifetime: float) -> None:
    assert LIVES.of(worth, 604_800.0) == lifetime


def test_a_short_lifetime_that_was_asked_for_stays_short() -> None:
    assert LIVES.of(100.0, 60.0) == 60.0
    assert LIVES.of(1.0, 60.0) == 60.0


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))
def test_complaints_lower_the_trust_and_approval_raises_it(ups: int, downs: int, doubts: int) -> None:
    trust = stability(ups, downs, doubts)
    assert 0 < trust <= 1
    assert stability(ups, downs + 1, doubts) < stability(ups, downs, doubts + 1) < trust
    assert stability(ups + 1, downs, doubts) >= trust
    assert expected_saving(10, 3, trust) > expected_saving(10, 2, trust)


def test_a_length_nobody_told_is_guessed_from_the_text() -> None:
    assert length_of(7, "x") == 7
    assert length_of(0, "x" * 40) == 10
    assert length_of(0, "") == 1


async def lifetime(cache: Cache, entry: str) -> float:
    await cache.flush()
    row = await cache.entry(entry)
    assert row is not None
    return row.expires_at - row.created_at


async def test_an_answer_of_few_tokens_lives_for_the_medium_time(open_cache: Open) -> None:
    cache = await open_cache(long_life_tokens=20, medium_ttl_s=100)
    assert await lifetime(cache, cache.record(ask(CAPITAL), long(20))) == 604_800
    assert await lifetime(cache, cache.record(ask("which river runs there"), long(19))) == 100
    assert await lifetime(cache, cache.record(ask("how long is it", ttl_s=50.0), long(19))) == 50


async def test_a_short_answer_that_is_asked_again_and_again_earns_a_long_life(open_cache: Open) -> None:
    cache = await open_cache(long_life_tokens=20, medium_ttl_s=100)
    cache.record(ask(CAPITAL), long(10))
    assert await look_up(cache, ask(CAPITAL)) is not None
    await cache.flush()
    assert await lifetime(cache, cache.record(ask(CAPITAL), long(10))) == 604_800  # 10 tokens, twice


async def test_a_short_answer_that_is_corrected_again_and_again_gets_no_life(open_cache: Open) -> None:
    cache = await open_cache()
    lives = []
    for number in range(6):
        entry = cache.record(ask(CAPITAL), long(1, f"wrong {number}"))
        await cache.flush()
        lives.append(await cache.entry(entry) is not None)
        await cache.correct(ask(CAPITAL, f"wrong {number}", "that is wrong"))
    assert lives[:2] == [True, True]
    assert await cache.exact(ask(CAPITAL)) is None
    assert cache.exact_now(ask(CAPITAL)) is None


@on_both_engines
async def test_what_saves_least_goes_first_whatever_was_used_last(open_cache: Open, clock: Clock) -> None:
    cache = await open_cache()
    worthy = cache.record(ask("explain the whole contract"), long(900))
    for _ in range(5):
        assert await look_up(cache, ask("explain the whole contract")) is not None
    clock.now += 60
    for number in range(4):
        cache.record(ask(f"question number {number}"), long(5, str(number)))
    await cache.flush()
    await cache.close()
    cache = await open_cache(max_entries=3)
    await cache.flush()
    kept = await cache.entries(limit=10, after=None, where={})
    assert worthy in [row.id for row in kept]
    assert len(kept) == 3


@on_both_engines
async def test_a_cold_entry_goes_and_a_popular_one_stays(open_cache: Open, clock: Clock) -> None:
    cache = await open_cache(default_ttl_s=90 * 86_400.0)
    cold = cache.record(ask(CAPITAL), long(50))
    popular = cache.record(ask("which river runs there"), long(50))
    for _ in range(5):
        assert await look_up(cache, ask("which river runs there")) is not None
    await cache.flush()
    await cache.close()
    for days, left in ((30.0, {cold, popular}), (30.001, {popular})):
        clock.now = 1_800_000_000.0 + days * 86_400
        cache = await open_cache(default_ttl_s=90 * 86_400.0)
        await cache.flush()
        assert {row.id for row in await cache.entries(limit=10, after=None, where={})} == left
        await cache.close()


@pytest.mark.slow
async def test_what_takes_too_many_bytes_makes_room(open_cache: Open) -> None:
    import random

    cache = await open_cache(memory_mib=0)
    words = random.Random(1)
    for number in range(24):
        text = "".join(chr(words.randrange(0x4E00, 0x9FA5)) for _ in range(400_000))  # does not compress well
        cache.record(ask(f"question number {number}"), long(50, text))
    assert await cache.flush()
    before = len(await cache.entries(limit=100, after=None, where={}))
    assert before == 24
    await cache.close()
    cache = await open_cache(max_mib=16)
    await cache.flush()
    left = len(await cache.entries(limit=100, after=None, where={}))
    assert 5 < left < before


async def test_no_suspect_is_evicted_and_a_correction_is_applied_before_what_follows_it(open_cache: Open) -> None:
    cache = await open_cache()
    wrong = cache.record(ask(CAPITAL), say("Porto"))
    await cache.correct(ask(CAPITAL, "Porto", "that is wrong"))
    for number in range(4):
        cache.record(ask(f"question number {number}"), long(500))
    await cache.close()
    cache = await open_cache(max_entries=2)
    await cache.flush()
    row = await cache.entry(wrong)
    assert row is not None
    assert row.state == "suspect"


async def test_an_answer_is_served_once_its_question_was_repeated_often_enough(open_cache: Open) -> None:
    cache = await open_cache(min_repeats=2)
    for served in (False, False, False, True, True):
        hit = await look_up(cache, ask(CAPITAL))
        assert (hit is not None) == served
        if hit is None:
            cache.record(ask(CAPITAL), say("Lisbon"))
        await cache.flush()


async def test_other_words_are_repeats_as_well(open_cache: Open) -> None:
    cache = await open_cache(min_repeats=2)
    cache.record(ask(CAPITAL), say("Lisbon"))
    await cache.flush()
    for words in ("please", "now"):
        decision, hit = await cache.search(ask(f"{CAPITAL} {words}"))
        assert (hit, decision.reason) == (None, "not asked often enough yet")
        await cache.flush()
    assert (await cache.search(ask(f"{CAPITAL} thanks")))[1] is not None
