"""Which earlier turns are sent in the words of their node, and which never are."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, text

from fingerprint.conversation import Message
from fingerprint.dates import relative_dates_of, resolve
from fingerprint.keys import dated_key, exact_key, place_key
from store.cache import Cache
from store.canonical import Canonical
from store.types import Query
from tests.store.support import Clock, Open, ask, look_up, say

Q1, R1, A1 = "how tall is mount everest", "how tall is mount everest please", "8,849 m."
Q2, R2, A2 = "who climbed it first of all", "who climbed it first of all please", "Hillary and Norgay."
NEW = "and when was that"


async def answered(cache: Cache, *texts: str, answer: str, **who: str) -> None:
    """The model answered a turn."""
    cache.record(ask(*texts, **who), say(answer))  # type: ignore[arg-type]
    assert await cache.flush()


async def served(cache: Cache, *texts: str, expected: str, **who: str) -> None:
    """A turn is served from the cache."""
    hit = await look_up(cache, ask(*texts, **who))  # type: ignore[arg-type]
    assert hit is not None and hit.answer.text == expected, texts
    assert await cache.flush()


@pytest.fixture
async def two_turns(cache: Cache) -> Cache:
    """One user asked both questions of the model; another one asked both in other words, served from the cache."""
    await answered(cache, Q1, answer=A1)
    await answered(cache, Q1, A1, Q2, answer=A2)
    await served(cache, R1, expected=A1)
    await served(cache, R1, A1, R2, expected=A2)
    return cache


def texts(found: Canonical) -> list[tuple[int, str]]:
    return [(one.index, one.text) for one in found.replaced]


THEIRS = (R1, A1, R2, A2, NEW)


async def test_turns_served_in_other_words_are_sent_in_the_words_the_backend_knows(two_turns: Cache) -> None:
    found = await two_turns.canonical(ask(*THEIRS))
    assert texts(found) == [(0, Q1), (2, Q2)]
    assert found.ended == ""


async def test_a_history_that_speaks_of_relative_dates_is_found_on_the_day_it_was_said(cache: Cache) -> None:
    """ "Yesterday" is part of the key of the turn it was said in, and of every later one of the conversation."""
    today, yesterday = date(2026, 11, 29), "what did it cost yesterday"
    reworded, price = "what did it cost yesterday please", "12 euros."

    def dated(*said: str, on: date = today) -> Query:
        query = ask(*said)
        dates = resolve(relative_dates_of(query.turn), on)
        key = dated_key(query.exact_key, dates)
        return replace(query, dates=dates, today=on if dates else None, exact_key=key)

    for said, answer in (((Q1,), A1), ((Q1, A1, yesterday), price)):
        cache.record(dated(*said), say(answer))
        assert await cache.flush()
    for said in ((R1,), (R1, A1, reworded)):
        assert await look_up(cache, dated(*said)) is not None, said
        assert await cache.flush()
    found = await cache.canonical(dated(R1, A1, reworded, price, NEW))
    assert (texts(found), found.ended) == ([(0, Q1), (2, yesterday)], "")
    found = await cache.canonical(dated(R1, A1, reworded, price, NEW, on=date(2026, 11, 30)))
    assert texts(found) == [(0, Q1)]


async def test_the_one_whom_the_model_answered_keeps_every_word(two_turns: Cache) -> None:
    assert await two_turns.canonical(ask(Q1, A1, Q2, A2, NEW)) == Canonical()


async def test_a_conversation_without_a_past_has_nothing_to_replace(two_turns: Cache) -> None:
    assert await two_turns.canonical(ask(R1)) == Canonical()


async def test_a_turn_the_model_answered_in_between_stays_and_those_before_and_behind_it_are_replaced(
    cache: Cache,
) -> None:
    await answered(cache, Q1, answer=A1)
    await served(cache, R1, expected=A1)
    own, said = "is it in nepal or in china", "On the border of both."
    await answered(cache, R1, A1, own, answer=said)
    await answered(cache, R1, A1, own, said, Q2, answer=A2)
    await served(cache, R1, A1, own, said, R2, expected=A2)
    assert texts(await cache.canonical(ask(R1, A1, own, said, R2, A2, NEW))) == [(0, Q1), (4, Q2)]


async def test_a_turn_served_from_another_context_keeps_its_own_words_and_the_walk_goes_on(open_cache: Open) -> None:
    cache = await open_cache(confidence=Sure())
    await answered(cache, Q2, answer=A2)  # asked at the root
    await answered(cache, "hello there my dear friend", answer="Good day.")
    await served(cache, "hello there my dear friend", "Good day.", R2, expected=A2)
    history = ("hello there my dear friend", "Good day.", R2, A2)
    assert texts(await cache.canonical(ask(*history, NEW))) == []
    # What follows hangs from that node of its own, and is replaced where it was served in other words.
    await answered(cache, *history, "what did they eat up there", answer="Sardines.")
    await served(cache, *history, "what did they eat up there please", expected="Sardines.")
    again = await cache.canonical(ask(*history, "what did they eat up there please", "Sardines.", NEW))
    assert texts(again) == [(4, "what did they eat up there")]


class Sure:
    """Any candidate that shares words will do, whatever its context."""

    version = "sure"

    def first(self, query: object, candidate: object) -> float:
        return float(getattr(candidate, "similarity", 0.0))

    def second(self, query: object, candidate: object, first: float) -> float:
        return first


async def test_nothing_is_replaced_for_somebody_else(two_turns: Cache) -> None:
    assert texts(await two_turns.canonical(ask(*THEIRS, who="bob"))) == []


@pytest.mark.parametrize(
    "changed",
    [
        (R1, "8,850 m.", R2, A2, NEW),  # the app put another answer into the history
        (R1, A1 + " ", R2, A2, NEW),
        (R1 + "!", A1, R2, A2, NEW),
    ],
)
async def test_a_history_that_is_not_the_one_served_stays_as_it_is(two_turns: Cache, changed: tuple[str, ...]) -> None:
    found = await two_turns.canonical(ask(*changed))
    assert texts(found) == []


async def test_the_turns_before_a_change_are_replaced_still(two_turns: Cache) -> None:
    found = await two_turns.canonical(ask(R1, A1, R2, A2 + " Yes.", NEW))
    assert texts(found) == [(0, Q1)]
    assert found.ended == "place not known"


async def test_a_trimmed_history_stays_as_it_is(two_turns: Cache) -> None:
    assert texts(await two_turns.canonical(ask(R2, A2, NEW))) == []


async def test_a_turn_whose_entry_was_retracted_ends_the_walk(two_turns: Cache) -> None:
    [second] = [row for row in await two_turns.entries(limit=9, after=None, where={}) if row.question == Q2]
    assert await two_turns.retract(second.id)
    assert texts(await two_turns.canonical(ask(*THEIRS))) == [(0, Q1)]


async def test_behind_a_retracted_turn_nothing_is_replaced(two_turns: Cache) -> None:
    [first] = [row for row in await two_turns.entries(limit=9, after=None, where={}) if row.question == Q1]
    assert await two_turns.feedback(first.id, "down", partition=None)
    assert texts(await two_turns.canonical(ask(*THEIRS))) == []


async def test_what_was_corrected_in_this_conversation_is_not_replaced_in_it(two_turns: Cache) -> None:
    correction = ask(R1, A1, R2, A2, "no, I meant the first winter ascent")
    await two_turns.correct(correction)
    assert texts(await two_turns.canonical(correction)) == [(0, Q1)]
    later = ask(R1, A1, R2, A2, "no, I meant the first winter ascent", "Poles, in 1980.", NEW)
    assert texts(await two_turns.canonical(later)) == [(0, Q1)]


async def test_what_a_user_told_beside_the_question_is_neither_lost_nor_passed_on(cache: Cache) -> None:
    with_son = "how tall is mount everest for my son"
    await answered(cache, Q1, answer=A1)
    await served(cache, with_son, expected=A1)
    found = await cache.canonical(ask(with_son, A1, NEW))
    assert texts(found) == []
    assert found.ended.startswith("the wordings tell different things")
    await answered(cache, with_son, answer=A1, who="bob")
    await served(cache, Q1, expected=A1, who="bob")
    assert texts(await cache.canonical(ask(Q1, A1, NEW, who="bob"))) == []


async def test_only_the_rounds_asked_for_are_looked_at(two_turns: Cache) -> None:
    assert texts(await two_turns.canonical(ask(*THEIRS), rounds=1)) == [(0, Q1)]
    assert texts(await two_turns.canonical(ask(*THEIRS), rounds=0)) == []
    assert texts(await two_turns.canonical(ask(*THEIRS), rounds=-1)) == []


async def test_expired_entries_are_not_used(two_turns: Cache, clock: Clock) -> None:
    clock.now += two_turns.settings.default_ttl_s + 1
    assert texts(await two_turns.canonical(ask(*THEIRS))) == []


async def test_a_turn_that_the_model_answered_again_in_the_users_words_is_theirs(two_turns: Cache) -> None:
    await answered(two_turns, R1, A1, R2, answer=A2)  # a fresh answer was asked for, and is the same
    assert texts(await two_turns.canonical(ask(*THEIRS))) == [(0, Q1)]


async def test_a_purged_store_replaces_nothing(two_turns: Cache) -> None:
    await two_turns.purge({"model": "small"}, dry_run=False)
    assert texts(await two_turns.canonical(ask(*THEIRS))) == []


async def test_messages_with_more_than_text_stay_as_they_are(two_turns: Cache) -> None:
    query = ask(*THEIRS)
    history = (replace(query.turn.history[0], opaque=b"name"), *query.turn.history[1:])
    assert texts(await two_turns.canonical(_with_history(query, history))) == []


def _with_history(query: Query, history: tuple[Message, ...]) -> Query:
    turn = replace(query.turn, history=history)
    return replace(
        query,
        turn=turn,
        exact_key=exact_key(query.partition, query.identity, turn),
        place_key=place_key(query.partition, query.identity, history),
    )


async def test_a_history_that_begins_otherwise_than_with_a_round_stays_as_it_is(two_turns: Cache) -> None:
    query = ask(*THEIRS)
    for history in (
        (Message("assistant", "Welcome!"), *query.turn.history),
        (Message("user", "Hello"), *query.turn.history),
        query.turn.history[:1],
    ):
        assert texts(await two_turns.canonical(_with_history(query, history))) == []


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE wordings SET suspect = 1 WHERE node IN (SELECT id FROM entries WHERE depth = 2)",  # not verified yet
        "UPDATE entries SET unserved_until = 1e12 WHERE depth = 2",  # barred after failed checks
        "UPDATE entries SET state = 'suspect' WHERE depth = 2",
        "UPDATE entries SET state = 'frozen' WHERE depth = 2",  # on a corrected branch
    ],
)
async def test_what_is_in_doubt_ends_the_walk(two_turns: Cache, open_cache: Open, change: str) -> None:
    await two_turns.close()
    engine = create_engine(two_turns.settings.url)
    with engine.begin() as connection:
        assert connection.execute(text(change)).rowcount == 1
    engine.dispose()
    cache = await open_cache()
    assert texts(await cache.canonical(ask(*THEIRS))) == [(0, Q1)]


async def test_an_older_epoch_is_not_built_upon(two_turns: Cache) -> None:
    await two_turns.raise_epoch(dry_run=False)
    assert texts(await two_turns.canonical(ask(*THEIRS))) == []


async def test_a_damaged_entry_is_left_out(two_turns: Cache) -> None:
    await two_turns.flush()
    engine = create_engine(two_turns.settings.url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE entries SET question = x'0102' WHERE depth = 2"))
    engine.dispose()
    found = await two_turns.canonical(ask(*THEIRS))
    assert (texts(found), found.ended) == ([(0, Q1)], "entry cannot be read")


async def test_a_store_that_cannot_be_read_replaces_nothing_and_does_not_raise(two_turns: Cache) -> None:
    await two_turns.flush()
    engine = create_engine(two_turns.settings.url)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE wordings"))
    engine.dispose()
    found = await two_turns.canonical(ask(*THEIRS))
    assert (found.replaced, bool(found.ended)) == ((), True)
    assert sum(two_turns.failures.counts().values()) > 0


async def test_it_survives_a_restart(two_turns: Cache, open_cache: Open) -> None:
    await two_turns.close()
    assert texts(await (await open_cache()).canonical(ask(*THEIRS))) == [(0, Q1), (2, Q2)]


async def test_a_session_that_got_another_answer_to_the_turn_keeps_its_words(cache: Cache) -> None:
    """Its own answer expired and went; the same words were then served from elsewhere, with the same answer."""
    cache.record(ask(R1, session="s", ttl_s=None), say(A1))
    await cache.flush()
    await cache.purge({"model": "small"}, dry_run=False)
    await answered(cache, Q1, answer=A1)
    await served(cache, R1, expected=A1)
    assert texts(await cache.canonical(ask(R1, A1, NEW))) == [(0, Q1)]
    assert texts(await cache.canonical(ask(R1, A1, NEW, session="s"))) == []


async def test_the_reference_is_question_and_answer_of_a_served_entry(two_turns: Cache) -> None:
    [first] = [row for row in await two_turns.entries(limit=9, after=None, where={}) if row.question == Q1]
    shown = await two_turns.reference(ask(NEW), first.id)
    assert shown is not None and (shown.question, shown.answer) == (Q1, A1)
    await two_turns.retract(first.id)
    assert await two_turns.reference(ask(NEW), first.id) is None
    assert await two_turns.reference(ask(NEW), "0" * 32) is None


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from([Q1, R1, A1, Q2, R2, A2, "yes"]), max_size=8))
async def test_whatever_the_history_only_served_wordings_are_replaced_by_their_own(
    two_turns: Cache, history: list[str]
) -> None:
    found = await two_turns.canonical(ask(*history, NEW) if len(history) % 2 == 0 else ask(*history))
    for index, new in texts(found):
        assert (history[index], new, history[index + 1]) in ((R1, Q1, A1), (R2, Q2, A2))
        assert history[:index] in ([], [R1, A1], [Q1, A1])
