"""A question whose answers change: a new version, the old one unreachable, and silence until the answers settle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerprint import facts
from store.drift import question_key, same_question, variance
from tests.store.support import Clock, Open, ask, look_up, on_both_engines, say

RESET = "How do I reset my password?"


def key(*texts: str, who: str = "alice") -> bytes:
    query = ask(*texts, who=who)
    return question_key(query.turn, query.partition, query.identity, query.place_key)


def test_a_question_key_stands_for_a_question_in_its_history_whatever_small_words_it_is_asked_with() -> None:
    assert key(RESET) == key("how do I reset my password")
    assert key(RESET) != key("How do I reset my phone?")
    assert key(RESET) != key(RESET, who="bob")
    assert key("Hi", "Hello", RESET) != key(RESET)
    assert key("Does the dog bite the man?") != key("Does the man bite the dog?")


@given(st.text(max_size=200), st.text(max_size=200))
def test_texts_nothing_can_be_read_from_have_keys_of_their_own(one: str, other: str) -> None:
    mine, theirs = (facts.fingerprint_of(ask(text or "?").turn) for text in (one, other))
    if key(one or "?") == key(other or "?"):
        assert mine == theirs


def test_what_a_guard_tells_apart_is_no_version_of_the_same_question() -> None:
    assert same_question(ask(RESET).turn, ask("how do I reset my password").turn)
    assert not same_question(ask("What does grep -v do?").turn, ask("What does grep -V do?").turn)


def test_the_variance_of_equal_answers_is_nothing_and_of_unrelated_ones_almost_all() -> None:
    axes = list(np.eye(50, dtype=np.float32))
    assert variance([axes[0]] * 100) == pytest.approx(0, abs=1e-6)
    assert variance(axes) == pytest.approx(1 - 1 / 50)
    assert variance([axes[0]] * 97 + axes[1:4]) == pytest.approx(1 - 0.97**2 - 3 * 0.01**2, abs=1e-5)


@on_both_engines
async def test_a_new_answer_is_a_new_version_and_the_old_one_cannot_be_reached(open_cache: Open) -> None:
    cache = await open_cache()
    old = cache.record(ask(RESET), say("It takes 3 days."))
    await cache.flush()
    new = cache.record(ask(RESET), say("It takes 5 days."))
    await cache.flush()
    hit = await look_up(cache, ask(RESET))
    assert hit is not None and hit.entry_id == new
    row = await cache.entry(new)
    assert row is not None
    assert (row.version, row.supersedes) == (2, old)
    assert [(v.entry, v.state, v.verdict, v.why) for v in row.history] == [
        (old, "retracted", "first", ""),
        (new, "active", "differ", "numbers"),
    ]
    assert [v.entry for v in (await cache.entry(old)).history] == [old, new]  # type: ignore[union-attr]


async def test_the_same_question_with_other_small_words_is_a_version_too(open_cache: Open) -> None:
    cache = await open_cache()
    old = cache.record(ask(RESET), say("It takes 3 days."))
    await cache.flush()
    new = cache.record(ask("how do I reset my password"), say("It takes 5 days."))
    await cache.flush()
    row = await cache.entry(new)
    assert row is not None
    assert (row.version, row.supersedes) == (2, old)
    for asked in (RESET, "how do I reset my password"):
        hit = await look_up(cache, ask(asked))
        assert hit is None or hit.entry_id == new


async def test_another_question_is_left_alone(open_cache: Open) -> None:
    cache = await open_cache()
    one = cache.record(ask("What does grep -v do?"), say("It inverts the match."))
    cache.record(ask("What does grep -V do?"), say("It prints the version."))
    cache.record(ask(RESET), say("It takes 3 days."))
    cache.record(ask(RESET, who="bob"), say("It takes 5 days."))
    await cache.flush()
    hit = await look_up(cache, ask("What does grep -v do?"))
    assert hit is not None and hit.entry_id == one
    assert (await look_up(cache, ask(RESET))).answer.text == "It takes 3 days."  # type: ignore[union-attr]
    row = await cache.entry(one)
    assert row is not None and row.history == ()


@on_both_engines
async def test_a_question_whose_answers_keep_changing_is_not_served_until_they_settle(open_cache: Open) -> None:
    cache = await open_cache(drift_window=10)
    said = ["red apples grow north", "seven ships sail away", "cold winds blow softly", "old books smell nice"]
    for text in said:
        cache.record(ask(RESET), say(text))
        await cache.flush()
    assert await look_up(cache, ask(RESET)) is None
    entry = (await cache.entries(limit=1, after=None, where={"state": "active"}))[0]
    assert entry.unserved == "unsettled"
    assert (await cache.stats()).unsettled == 1
    # Every turn is answered by the backend now; a restart changes nothing.
    await cache.close()
    cache = await open_cache(drift_window=10)
    for turn in range(9):
        assert await look_up(cache, ask(RESET)) is None, turn
        cache.record(ask(RESET), say("old books smell nice"))
        await cache.flush()
    hit = await look_up(cache, ask(RESET))
    assert hit is not None and hit.answer.text == "old books smell nice"
    row = await cache.entry(hit.entry_id)
    assert row is not None
    assert len(row.history) == 10
    assert row.unserved == ""


async def test_answers_that_say_the_same_each_time_are_served(open_cache: Open) -> None:
    cache = await open_cache()
    for _ in range(5):
        cache.record(ask(RESET), say("old books smell nice"))
        await cache.flush()
    assert await look_up(cache, ask(RESET)) is not None


async def test_a_purged_answer_leaves_its_place_in_the_history(open_cache: Open, clock: Clock) -> None:
    cache = await open_cache()
    old = cache.record(ask(RESET), say("It takes 3 days."))
    await cache.flush()
    new = cache.record(ask(RESET), say("It takes 5 days."))
    await cache.flush()
    await cache.purge({"entry": old}, dry_run=False)
    row = await cache.entry(new)
    assert row is not None
    assert [(v.entry, v.state) for v in row.history] == [(old, "gone"), (new, "active")]
