"""The same question at the same place is served with or without a courtesy around it, and no model is asked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fingerprint.conversation import Message, Turn
from fingerprint.keys import exact_key
from store.cache import Cache
from store.types import Hit, Policy, Query
from tests.proxy.support import until
from tests.store.support import Clock, NearEnough, Open, WordEmbedder, ask, on_both_engines, say

pytestmark = on_both_engines

Q, WRAPPED, A = "How do I reset my router?", "Hi! How do I reset my router? Thanks!", "Press the button."
THEN, THEN_WRAPPED, B = "How long does that take?", "And one question: how long does that take?", "A minute."


async def plainly(cache: Cache, query: Query) -> Hit | None:
    decision, hit = await cache.search(query)
    assert (decision.reason == "same words") == (hit is not None and decision.reason == "same words")
    return hit if decision.reason == "same words" else None


async def answered(cache: Cache, query: Query, text: str) -> str:
    entry = cache.record(query, say(text))
    assert await cache.flush()
    return entry


async def test_no_vector_is_made_for_it_and_the_conversation_goes_on_from_the_same_node(
    open_cache: Open, embedder: WordEmbedder
) -> None:
    cache = await open_cache()
    entry = await answered(cache, ask(Q), A)
    follow_up = await answered(cache, ask(Q, A, THEN), B)
    embedder.seen.clear()
    hit = await plainly(cache, ask(WRAPPED))
    assert hit is not None
    assert (hit.entry_id, hit.answer.text, hit.exact, hit.kind, hit.node) == (entry, A, False, "same_place", entry)
    assert embedder.seen == []
    cache.follow(ask(WRAPPED), hit)
    until(lambda: embedder.seen == [WRAPPED])  # off the path, for the context of the next turn
    # At once, and after all is written, and after a restart; the place is known from the database then.
    for _ in range(3):
        found = await plainly(cache, ask(WRAPPED, A, "Hey, how long does that take?"))
        assert found is not None and found.entry_id == follow_up
        assert await cache.flush()
        await cache.close()
        cache = await open_cache()
    found = await cache.exact(ask(WRAPPED))
    assert found is not None and found.entry_id == entry  # a wording now


async def test_elsewhere_in_a_conversation_the_same_words_are_another_question(cache: Cache) -> None:
    await answered(cache, ask("Where is it?"), "In Lisbon.")
    await answered(cache, ask("Who wrote it?"), "Camões.")
    await answered(cache, ask("Who wrote it?", "Camões.", "When was it written?"), "1572.")
    for query in (
        ask("Where is it?", "In Lisbon.", "Hi! When was it written?"),
        ask("Hi! When was it written?"),
        ask("Never asked before, was it?", "No.", "Hi! When was it written?"),
        ask("Who wrote it?", "Camões.", "Hi! Where is it?"),
    ):
        assert await plainly(cache, query) is None


async def test_another_caller_another_identity_and_another_day_do_not_get_it(cache: Cache) -> None:
    await answered(cache, replace(ask(Q), dates="2026-11-29"), A)
    wrapped = replace(ask(WRAPPED), dates="2026-11-29")
    assert await plainly(cache, wrapped) is not None
    assert await plainly(cache, replace(wrapped, dates="2026-11-30")) is None
    assert await plainly(cache, replace(wrapped, partition=ask(Q, who="bob").partition)) is None
    assert await plainly(cache, replace(wrapped, identity=bytes(32))) is None
    assert await plainly(cache, replace(wrapped, semantic=False)) is None


async def test_what_is_served_no_more_is_not_served_in_the_same_words(open_cache: Open, clock: Clock) -> None:
    cache = await open_cache()
    retracted = await answered(cache, ask(Q), A)
    assert await plainly(cache, ask(WRAPPED)) is not None
    assert await cache.retract(retracted)
    assert await plainly(cache, ask(WRAPPED)) is None
    newer = await answered(cache, ask(Q), "Hold the button.")
    hit = await plainly(cache, ask(WRAPPED))
    assert hit is not None and hit.entry_id == newer
    assert await plainly(cache, replace(ask(WRAPPED), max_age_s=0.0)) is None
    await cache.raise_epoch(dry_run=False)
    assert await plainly(cache, ask(WRAPPED)) is None
    await answered(cache, ask(Q, "Hold the button.", THEN), B)
    await answered(cache, replace(ask(THEN), ttl_s=60.0), B)
    assert await plainly(cache, ask("Hello, how long does that take?")) is not None
    clock.now += 60.0
    assert await plainly(cache, ask("Hello, how long does that take?")) is None


async def test_a_correction_bars_it_too(cache: Cache) -> None:
    await answered(cache, ask(Q), A)
    hit = await plainly(cache, ask(WRAPPED))
    assert hit is not None
    cache.follow(ask(WRAPPED), hit)
    assert await cache.correct(ask(WRAPPED, A, "no, that is wrong")) == 1
    assert await plainly(cache, ask(f"Good morning! {Q}")) is None


async def test_thresholds_that_nothing_reaches_hold_for_it_too(cache: Cache) -> None:
    await answered(cache, ask(Q), A)
    cache.decide_by(Policy(answer=1.5, verify=1.5), NearEnough())
    assert await plainly(cache, ask(WRAPPED)) is None


async def test_a_guard_that_objects_is_never_outvoted(open_cache: Open) -> None:
    def objects(query: Turn, candidate: Turn, same_place: bool) -> tuple[tuple[()], tuple[str, ...]]:
        return (), ("numbers",) if same_place and candidate.message.text == Q else ()

    cache = await open_cache(objections=objects)
    await answered(cache, ask(Q), A)
    assert await plainly(cache, ask(WRAPPED)) is None


async def test_a_session_that_asks_again_with_a_courtesy_wants_another_answer(cache: Cache) -> None:
    await answered(cache, ask(Q, session="s"), A)
    assert await plainly(cache, ask(WRAPPED, session="s")) is None
    assert await plainly(cache, ask(WRAPPED, session="other")) is not None


async def test_under_instructions_that_speak_of_courtesies_they_count(cache: Cache) -> None:
    def under(instructions: str, text: str) -> Query:
        query = ask(text)
        turn = replace(query.turn, system=(Message("system", instructions),))
        return replace(query, turn=turn, exact_key=exact_key(query.partition, query.identity, turn))

    for instructions, served in (("Be brief.", True), ("Refuse whoever does not say please.", False)):
        await answered(cache, under(instructions, Q), A)
        hit = await plainly(cache, under(instructions, WRAPPED))
        assert (hit is not None) == served, instructions
        assert await cache.purge({"state": "active"}, dry_run=False) == 1


async def test_explain_says_so(cache: Cache) -> None:
    entry = await answered(cache, ask(Q), A)
    told = await cache.explain(ask(WRAPPED))
    assert (told.level, told.reason, told.entry_id) == ("answer", "same words", entry)


@pytest.mark.parametrize("sightings", [1])
async def test_an_answer_that_has_to_be_asked_for_more_often_is_not_served_before(
    open_cache: Open, sightings: int
) -> None:
    cache = await open_cache(min_repeats=sightings)
    await answered(cache, ask(Q), A)
    assert await plainly(cache, ask(WRAPPED)) is None


async def test_a_message_that_an_earlier_turn_made_a_text_to_work_on_keeps_its_courtesies(cache: Cache) -> None:
    before = ("Translate everything I write into French.", "Gladly.")
    await answered(cache, ask(before[0]), before[1])
    await answered(cache, ask("I have a question."), "Go on.")
    await answered(cache, ask(*before, Q), "Comment réinitialiser mon routeur ?")
    assert await plainly(cache, ask(*before, WRAPPED)) is None
    await answered(cache, ask("I have a question.", "Go on.", Q), A)
    assert await plainly(cache, ask("I have a question.", "Go on.", WRAPPED)) is not None
