"""Recording, finding again, following: what the cache is for."""

from __future__ import annotations

import asyncio
import json

import pytest
import sqlalchemy as sa

from fingerprint.keys import IdentityParts
from store import reads
from store.cache import Cache
from store.errors import UnknownDimension
from store.types import Policy
from tests.store.support import Clock, NearEnough, Open, WordEmbedder, ask, look_up, on_both_engines, parts_of, say

pytestmark = on_both_engines

CAPITAL = "what is the capital of portugal"
REWORDED = "what is the capital city of portugal"
RIVER = "which river flows through it"


# ------------------------------------------------------------------------------------------------- exact


async def test_an_answer_is_found_at_once_and_after_a_restart(open_cache: Open) -> None:
    cache = await open_cache()
    query = ask(CAPITAL)
    assert cache.exact_now(query) is None
    assert await cache.exact(query) is None
    entry = cache.record(query, say("Lisbon"))
    hit = cache.exact_now(query)
    assert hit is not None
    assert (hit.entry_id, hit.answer, hit.exact, hit.confidence) == (entry, say("Lisbon"), True, 1.0)
    await cache.close()

    cache = await open_cache()
    assert cache.exact_now(query) is None  # not read yet
    hit = await cache.exact(query)
    assert hit is not None
    assert (hit.entry_id, hit.answer) == (entry, say("Lisbon"))
    assert cache.exact_now(query) == hit  # kept in memory from now on


async def test_an_answer_is_found_by_its_own_partition_and_identity_only(cache: Cache) -> None:
    cache.record(ask(CAPITAL), say("Lisbon"))
    await cache.flush()
    for other in (ask(CAPITAL, who="bob"), ask(CAPITAL, parts=parts_of(model="large"))):
        assert await cache.exact(other) is None
        decision, hit = await cache.search(other)
        assert (decision.reason, hit) == ("no candidate", None)


async def test_a_reserved_id_is_the_id_of_the_entry(cache: Cache) -> None:
    entry = cache.reserve()
    assert cache.record(ask(CAPITAL), say("Lisbon"), entry_id=entry) == entry
    hit = cache.exact_now(ask(CAPITAL))
    assert hit is not None
    assert hit.entry_id == entry


async def test_ids_sort_by_time_even_when_the_clock_is_set_back(cache: Cache, clock: Clock) -> None:
    ids = [cache.reserve() for _ in range(5000)]
    clock.now -= 3600
    ids += [cache.reserve() for _ in range(10)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)
    assert all(len(one) == 32 and int(one, 16) >= 0 for one in ids)


async def test_a_fresh_answer_replaces_the_old_one_and_its_wordings(open_cache: Open) -> None:
    cache = await open_cache()
    old = cache.record(ask(CAPITAL), say("Porto"))
    await cache.flush()
    assert await look_up(cache, ask(REWORDED)) is not None
    await cache.flush()
    assert cache.exact_now(ask(REWORDED)) is None
    wording = await cache.exact(ask(REWORDED))
    assert wording is not None
    assert wording.exact

    new = cache.record(ask(CAPITAL), say("Lisbon"))
    hit = cache.exact_now(ask(CAPITAL))
    assert hit is not None
    assert hit.entry_id == new
    await cache.flush()
    assert await cache.exact(ask(REWORDED)) is None
    decision, hit = await cache.search(ask(REWORDED))
    assert hit is not None
    assert (hit.entry_id, hit.answer.text) == (new, "Lisbon")
    assert [judgement.entry_id for judgement in decision.judgements] == [new]
    before, now = await cache.entry(old), await cache.entry(new)
    assert before is not None
    assert now is not None
    assert (before.state, before.version) == ("retracted", 1)
    assert (now.state, now.version, now.supersedes) == ("active", 2, old)


async def test_a_reworded_turn_that_gets_an_answer_of_its_own_keeps_it(cache: Cache) -> None:
    first = cache.record(ask(CAPITAL), say("Lisbon"))
    await cache.flush()
    await look_up(cache, ask(REWORDED))
    await cache.flush()
    second = cache.record(ask(REWORDED), say("Lisbon, since 1255"))
    await cache.flush()
    for query, entry in ((ask(CAPITAL), first), (ask(REWORDED), second)):
        hit = await cache.exact(query)
        assert hit is not None
        assert hit.entry_id == entry


async def test_an_answer_too_large_is_not_stored_but_its_place_is(open_cache: Open) -> None:
    cache = await open_cache(max_entry_kib=1)
    cache.record(ask(CAPITAL), say("x" * 2000))
    follow_up = ask(CAPITAL, "x" * 2000, RIVER)
    cache.record(follow_up, say("the Tagus"))
    await cache.flush()
    assert await cache.exact(ask(CAPITAL)) is None
    assert cache.failures.counts() == {"record.too_large": 2}
    assert (await cache.stats()).places == 2


# ------------------------------------------------------------------------------------------------- lifetimes


async def test_an_entry_dies_exactly_at_the_end_of_its_lifetime_and_no_hit_renews_it(
    open_cache: Open, clock: Clock
) -> None:
    cache = await open_cache(default_ttl_s=100)
    born = clock.now
    cache.record(ask(CAPITAL), say("Lisbon"))
    await cache.flush()
    clock.now = born + 99.5
    hit = await look_up(cache, ask(CAPITAL))
    assert hit is not None
    assert hit.age_s == 99.5
    await cache.flush()
    clock.now = born + 100
    assert cache.exact_now(ask(CAPITAL)) is None
    assert await cache.exact(ask(CAPITAL)) is None
    decision, hit = await cache.search(ask(REWORDED))
    assert (decision.level, hit) == ("miss", None)


async def test_an_expired_entry_is_no_candidate_even_as_the_best_match(cache: Cache, clock: Clock) -> None:
    cache.record(ask(CAPITAL, ttl_s=1), say("Lisbon"))
    other = cache.record(ask("what is the capital of spain"), say("Madrid"))
    await cache.flush()
    clock.now += 1
    decision, _ = await cache.search(ask(REWORDED))
    assert [judgement.entry_id for judgement in decision.judgements] == [other]


async def test_a_lifetime_of_nothing_stores_nothing(cache: Cache) -> None:
    cache.record(ask(CAPITAL, ttl_s=0), say("Lisbon"))
    await cache.flush()
    assert await cache.exact(ask(CAPITAL)) is None
    assert (await cache.stats()).entries == 0


async def test_a_caller_decides_how_old_an_answer_may_be(cache: Cache, clock: Clock) -> None:
    cache.record(ask(CAPITAL), say("Lisbon"))
    await cache.flush()
    clock.now += 10
    for max_age, found in ((0, False), (10, False), (10.5, True), (None, True)):
        assert (await cache.exact(ask(CAPITAL, max_age_s=max_age)) is not None) is found
        _, hit = await cache.search(ask(REWORDED, max_age_s=max_age))
        assert (hit is not None) is found


async def test_a_clock_set_back_gives_no_negative_age(cache: Cache, clock: Clock) -> None:
    cache.record(ask(CAPITAL), say("Lisbon"))
    clock.now -= 60
    hit = cache.exact_now(ask(CAPITAL))
    assert hit is not None
    assert hit.age_s == 0


async def test_what_expired_is_removed_when_the_store_is_opened(open_cache: Open, clock: Clock) -> None:
    cache = await open_cache()
    cache.record(ask(CAPITAL, ttl_s=5), say("Lisbon"))
    cache.record(ask("who wrote faust"), say("Goethe"))
    await cache.close()
    clock.now += 5
    cache = await open_cache()
    await cache.flush()
    stats = await cache.stats()
    assert (stats.entries, stats.indexed) == (1, 1)


async def test_the_least_used_entries_make_room(open_cache: Open, clock: Clock) -> None:
    cache = await open_cache()
    for number in range(5):
        clock.now += 1
        cache.record(ask(f"question number {number}"), say(str(number)))
    clock.now += 1
    assert await look_up(cache, ask("question number 0")) is not None
    await cache.close()
    cache = await open_cache(max_entries=2)
    await cache.flush()
    kept = [row.question for row in await cache.entries(limit=10, after=None, where={})]
    assert kept == ["question number 4", "question number 0"]


# ------------------------------------------------------------------------------------------------- meaning


async def test_a_reworded_turn_is_answered_and_then_found_by_its_own_words(open_cache: Open) -> None:
    cache = await open_cache()
    entry = cache.record(ask(CAPITAL), say("Lisbon"))
    await cache.flush()
    hit = await look_up(cache, ask(REWORDED))
    assert hit is not None
    assert (hit.entry_id, hit.exact, hit.node) == (entry, False, entry)
    await look_up(cache, ask("what is the capital city of portugal again"))  # a second wording of the same entry
    await cache.close()

    cache = await open_cache()
    for words in (REWORDED, "what is the capital city of portugal again"):
        hit = await cache.exact(ask(words))
        assert hit is not None
        assert (hit.entry_id, hit.exact, hit.node) == (entry, True, entry)
    assert cache.failures.counts() == {}
    row = await cache.entry(entry)
    assert row is not None
    assert (row.wordings, row.hits) == (2, 2)


async def test_wordings_have_no_vector_so_they_cannot_drift(cache: Cache) -> None:
    cache.record(ask(CAPITAL), say("Lisbon"))
    await cache.flush()
    await look_up(cache, ask(REWORDED))
    await cache.flush()
    assert (await cache.stats()).indexed == 1


async def test_a_turn_marked_exact_only_neither_finds_nor_is_found_by_meaning(cache: Cache) -> None:
    cache.record(ask(CAPITAL, semantic=False), say("Lisbon"))
    await cache.flush()
    decision, hit = await cache.search(ask(CAPITAL))
    assert (decision.level, hit) == ("miss", None)
    decision, hit = await cache.search(ask(REWORDED, semantic=False))
    assert (decision.reason, hit) == ("exact look-up only", None)
    assert await cache.exact(ask(CAPITAL, semantic=False)) is not None


async def test_texts_nobody_can_read_and_texts_read_only_in_part_are_found_by_their_words_only(
    open_cache: Open, embedder: WordEmbedder
) -> None:
    cache = await open_cache()
    long = " ".join(f"w{number}" for number in range(150))
    for text in ("§ unreadable", long):
        cache.record(ask(text), say("yes"))
        await cache.flush()
        decision, hit = await cache.search(ask(f"{text} indeed"))
        assert (decision.level, hit) == ("miss", None)
        assert await cache.exact(ask(text)) is not None
    await cache.close()
    embedder.seen.clear()
    cache = await open_cache()
    await cache.flush()
    assert embedder.seen == []  # and nobody tries again at every start


async def test_vectors_missing_after_a_crash_are_made_at_the_next_start(open_cache: Open) -> None:
    cache = await open_cache(embedder=None)
    entry = cache.record(ask(CAPITAL), say("Lisbon"))
    await cache.close()
    cache = await open_cache()
    await cache.flush()
    _, hit = await cache.search(ask(REWORDED))
    assert hit is not None
    assert hit.entry_id == entry


async def test_vectors_of_different_spaces_are_never_compared(open_cache: Open) -> None:
    class Other(WordEmbedder):
        name = "other"

        def encode(self, texts):  # type: ignore[no-untyped-def]
            from dataclasses import replace

            return [replace(one, space="other") if one else None for one in super().encode(texts)]

    cache = await open_cache()
    cache.record(ask(CAPITAL), say("Lisbon"))
    await cache.close()
    cache = await open_cache(embedder=Other())
    decision, _ = await cache.search(ask(REWORDED))
    assert decision.reason == "no candidate"


async def test_without_an_embedder_literal_turns_are_still_answered(open_cache: Open) -> None:
    cache = await open_cache(embedder=None)
    cache.record(ask(CAPITAL), say("Lisbon"))
    await cache.flush()
    assert await cache.exact(ask(CAPITAL)) is not None
    decision, hit = await cache.search(ask(REWORDED))
    assert (decision.level, decision.reason, hit) == ("miss", "no embedder", None)


async def test_explain_judges_every_candidate_and_changes_nothing(cache: Cache) -> None:
    entry = cache.record(ask(CAPITAL), say("Lisbon"))
    other = cache.record(ask("who wrote faust"), say("Goethe"))
    await cache.flush()
    before = await cache.stats()
    decision = await cache.explain(ask(REWORDED))
    assert (decision.level, decision.entry_id) == ("answer", entry)
    assert {judgement.entry_id for judgement in decision.judgements} == {entry, other}
    decision = await cache.explain(ask(CAPITAL))
    assert (decision.level, decision.reason, decision.entry_id) == ("answer", "exact", entry)
    await cache.flush()
    assert (await cache.stats()).hits == before.hits == 0


# ------------------------------------------------------------------------------------------------- the forest


async def test_a_follow_up_is_answered_in_a_conversation_that_was_served_in_other_words(open_cache: Open) -> None:
    cache = await open_cache()
    cache.record(ask(CAPITAL), say("Lisbon"))
    river = cache.record(ask(CAPITAL, "Lisbon", RIVER), say("the Tagus"))
    await cache.flush()
    for _ in range(2):
        hit = await look_up(cache, ask(REWORDED))
        assert hit is not None
        decision, hit = await cache.search(ask(REWORDED, hit.answer.text, RIVER))
        assert hit is not None
        assert hit.entry_id == river
        assert decision.judgements[0].same_place
        await cache.close()
        cache = await open_cache()  # and the place survives


async def test_the_place_is_known_before_it_is_written(cache: Cache) -> None:
    """The next turn of a fast client comes before the writer is done."""
    cache.record(ask(CAPITAL), say("Lisbon"))
    cache.record(ask(CAPITAL, "Lisbon", RIVER), say("the Tagus"))
    await cache.flush()
    query = ask(REWORDED)
    _, hit = await cache.search(query)
    assert hit is not None
    cache.follow(query, hit)
    decision, _ = await cache.search(ask(REWORDED, "Lisbon", RIVER))
    assert decision.judgements[0].same_place


async def test_the_same_words_under_another_context_stand_elsewhere(cache: Cache) -> None:
    cache.record(ask(CAPITAL), say("Lisbon"))
    cache.record(ask(CAPITAL, "Lisbon", RIVER), say("the Tagus"))
    cache.record(ask("tell me about vienna"), say("It is in Austria"))
    await cache.flush()
    decision, hit = await cache.search(ask("tell me about vienna", "It is in Austria", RIVER))
    assert hit is None
    river = decision.judgements[0]
    assert river.similarity == pytest.approx(1.0, abs=1e-3)
    assert not river.same_place


async def test_an_unknown_history_is_a_place_of_its_own(cache: Cache) -> None:
    cache.record(ask("hello", "hi", RIVER), say("which one?"))
    cache.record(ask(RIVER), say("where are you?"))
    await cache.flush()
    decision, _ = await cache.search(ask("good day", "hi", RIVER))
    assert [judgement.same_place for judgement in decision.judgements] == [False, False]


async def test_a_hit_from_another_context_becomes_a_node_of_its_own(open_cache: Open) -> None:
    """Its follow-ups belong to this conversation, not to the one the answer was taken from."""
    cache = await open_cache(policy=Policy(answer=0.3, verify=0.2))
    entry = cache.record(ask("a b c d e", "yes", CAPITAL), say("Lisbon"))
    elsewhere = cache.record(ask("a b c d e", "yes", CAPITAL, "Lisbon", RIVER), say("the Tagus"))
    await cache.flush()
    query = ask("a b c d f", "yes", CAPITAL)
    hit = await look_up(cache, query)
    assert hit is not None
    assert (hit.entry_id, hit.node) == (entry, None)
    await cache.flush()
    again = await cache.exact(query)
    assert again is not None
    assert again.entry_id == entry
    assert again.node not in (None, entry)

    decision, _ = await cache.search(ask("a b c d f", "yes", CAPITAL, "Lisbon", RIVER))
    assert [(one.entry_id, one.same_place) for one in decision.judgements if one.entry_id == elsewhere] == [
        (elsewhere, False)
    ]
    # A turn recorded under the new node is found there again.
    below = cache.record(
        ask("a b c d f", "yes", CAPITAL, "Lisbon", "how many people live there"), say("half a million")
    )
    await cache.flush()
    row = await cache.entry(below)
    assert row is not None
    assert row.parent == again.node


async def test_own_children_are_candidates_however_many_nearer_turns_there_are(open_cache: Open) -> None:
    cache = await open_cache(retrieval_depth=4)
    for number in range(20):
        cache.record(ask(f"topic {number}", "fine", "and the second one"), say(f"answer {number}"))
        cache.record(ask(f"topic {number}"), say("fine"))
    mine = cache.record(ask("topic 3", "fine", "so tell me more about the second one"), say("more"))
    await cache.flush()
    decision, _ = await cache.search(ask("topic 3", "fine", "and the second one then"))
    assert mine in [judgement.entry_id for judgement in decision.judgements if judgement.same_place]


# ------------------------------------------------------------------------------------------------- sessions


async def test_the_same_turn_again_in_a_session_is_known_as_such(open_cache: Open) -> None:
    cache = await open_cache()
    query = ask(CAPITAL, session="s1")
    assert not cache.served_before(query)
    cache.record(query, say("Lisbon"))
    assert cache.served_before(query)
    assert not cache.served_before(ask(CAPITAL, session="s2"))
    assert not cache.served_before(ask(CAPITAL))
    assert not cache.served_before(ask(REWORDED, session="s1"))

    await cache.flush()
    other = ask(REWORDED, session="s2")
    assert await look_up(cache, other) is not None
    assert cache.served_before(other)
    await cache.close()
    cache = await open_cache()
    assert cache.served_before(query)
    assert cache.served_before(other)


# ------------------------------------------------------------------------------------------------- administration


async def test_a_retracted_entry_is_gone_with_its_wordings_at_once_and_for_good(open_cache: Open) -> None:
    cache = await open_cache()
    entry = cache.record(ask(CAPITAL), say("Porto"))
    await cache.flush()
    await look_up(cache, ask(REWORDED))
    await cache.flush()
    await cache.exact(ask(REWORDED))
    assert await cache.retract(entry)
    for _ in range(2):
        for words in (CAPITAL, REWORDED):
            assert await cache.exact(ask(words)) is None
            decision, hit = await cache.search(ask(words))
            assert (decision.level, hit) == ("miss", None)
        await cache.close()
        cache = await open_cache()
    row = await cache.entry(entry)
    assert row is not None
    assert (row.state, row.wordings) == ("retracted", 0)


async def test_an_entry_can_be_retracted_before_it_is_written(cache: Cache) -> None:
    entry = cache.record(ask(CAPITAL), say("Porto"))
    assert await cache.retract(entry)
    await cache.flush()
    assert await cache.exact(ask(CAPITAL)) is None
    assert (await cache.search(ask(REWORDED)))[1] is None
    assert (await cache.stats()).indexed == 0


async def test_thumbs_down_retracts_and_thumbs_up_counts(cache: Cache) -> None:
    query = ask(CAPITAL)
    entry = cache.record(query, say("Porto"))
    assert await cache.feedback(entry, "up", partition=query.partition)
    assert await cache.exact(query) is not None
    assert await cache.feedback(entry, "down", partition=query.partition)
    assert await cache.exact(query) is None
    row = await cache.entry(entry)
    assert row is not None
    assert (row.thumbs_up, row.thumbs_down, row.state) == (1, 1, "retracted")


async def test_nobody_touches_or_learns_of_another_partition_s_entries(cache: Cache) -> None:
    entry = cache.record(ask(CAPITAL), say("Lisbon"))
    stranger = ask(CAPITAL, who="bob").partition
    assert not await cache.feedback(entry, "down", partition=stranger)
    assert not await cache.feedback(entry, "up", partition=stranger)
    assert not await cache.retract(entry, partition=stranger)
    assert not await cache.retract("0" * 32, partition=stranger)
    assert await cache.exact(ask(CAPITAL)) is not None


@pytest.mark.parametrize("part", sorted(IdentityParts.__dataclass_fields__))
async def test_each_part_of_what_produced_an_answer_can_be_purged_by_itself(cache: Cache, part: str) -> None:
    gone, kept = ask(CAPITAL, parts=parts_of(**{part: "bad"})), ask(CAPITAL, parts=parts_of(**{part: "good"}))
    for query in (gone, kept):
        cache.record(query, say("Lisbon"))
    await cache.flush()
    assert await cache.purge({part: "bad"}, dry_run=True) == 1
    assert await cache.exact(gone) is not None
    assert await cache.purge({part: "bad"}, dry_run=False) == 1
    assert await cache.exact(gone) is None
    assert await cache.exact(kept) is not None
    assert part in reads.DIMENSIONS


async def test_a_purge_by_dimension_takes_exactly_those_entries(open_cache: Open) -> None:
    cache = await open_cache()
    small, large = ask(CAPITAL), ask(CAPITAL, parts=parts_of(model="large"))
    cache.record(small, say("Lisbon"))
    await cache.flush()
    await look_up(cache, ask(REWORDED))
    kept = cache.record(large, say("Lisbon!"))
    assert await cache.purge({"model": "small"}, dry_run=True) == 1
    assert await cache.exact(small) is not None
    assert await cache.purge({"model": "small", "weights_version": "2"}, dry_run=False) == 0
    assert await cache.purge({"model": "small"}, dry_run=False) == 1
    assert await cache.purge({"model": "small"}, dry_run=False) == 0
    for _ in range(2):
        assert await cache.exact(small) is None
        assert await cache.exact(ask(REWORDED)) is None
        assert (await cache.search(ask(REWORDED)))[1] is None
        assert await cache.exact(large) is not None
        stats = await cache.stats()
        assert (stats.entries, stats.wordings, stats.indexed) == (1, 0, 1)
        await cache.close()
        cache = await open_cache()
    assert [row.id for row in await cache.entries(limit=5, after=None, where={"partition": large.partition.hex()})] == [
        kept
    ]


@pytest.mark.parametrize(
    ("where", "complaint"),
    [
        ({"modle": "small"}, "did you mean 'model'"),
        ({"knowlege_version": "1"}, "did you mean 'knowledge_version'"),
        ({"partition": "not hex"}, "hexadecimal"),
        ({}, "at least one"),
    ],
)
async def test_an_unknown_dimension_is_said_with_the_nearest_one(
    cache: Cache, where: dict[str, str], complaint: str
) -> None:
    with pytest.raises(UnknownDimension, match=complaint):
        await cache.purge(where, dry_run=False)


async def test_whatever_was_taken_out_is_in_the_audit_log(cache: Cache) -> None:
    entry = cache.record(ask(CAPITAL), say("Porto"))
    await cache.retract(entry)
    await cache.purge({"model": "small"}, dry_run=False, actor="ops")
    with cache._database.readers.connect() as connection:
        log = connection.execute(sa.text("SELECT actor, action, target, entries FROM purges ORDER BY number")).all()
    assert log == [
        ("admin", "retract", json.dumps({"entry": entry}), 1),
        ("ops", "purge", '{"model": "small"}', 1),
    ]


async def test_entries_are_listed_in_pages_newest_first(cache: Cache) -> None:
    ids = [cache.record(ask(f"question {number}"), say(str(number))) for number in range(5)]
    await cache.flush()
    first = await cache.entries(limit=3, after=None, where={})
    second = await cache.entries(limit=3, after=first[-1].id, where={})
    assert [row.id for row in (*first, *second)] == ids[::-1]
    assert (first[0].question, first[0].answer, first[0].parts.model) == ("question 4", "4", "small")
    assert await cache.entries(limit=3, after=None, where={"state": "suspect"}) == []


# ------------------------------------------------------------------------------------------------- many at once


async def test_many_conversations_at_once_lose_nothing(cache: Cache) -> None:
    async def one(number: int) -> None:
        who = f"user {number % 7}"
        first = ask(f"question {number} of many", who=who)
        cache.record(first, say(f"answer {number}"))
        await asyncio.sleep(0)
        hit = await look_up(cache, first)
        assert hit is not None
        assert hit.answer.text == f"answer {number}"
        cache.record(ask(f"question {number} of many", f"answer {number}", "go on", who=who), say("more"))

    await asyncio.gather(*(one(number) for number in range(150)))
    assert await cache.flush()
    stats = await cache.stats()
    assert (stats.entries, stats.indexed, stats.failures) == (300, 300, {})


async def test_a_learned_confidence_that_raises_is_a_miss(open_cache: Open) -> None:
    class Broken(NearEnough):
        def first(self, query, candidate):  # type: ignore[no-untyped-def]
            raise RuntimeError("no")

    cache = await open_cache(confidence=Broken())
    cache.record(ask(CAPITAL), say("Lisbon"))
    await cache.flush()
    decision, hit = await cache.search(ask(REWORDED))
    assert (decision.level, hit) == ("miss", None)
    assert cache.failures.counts() == {"decide.error": 1}
