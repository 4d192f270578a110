"""What the store keeps of a turn's meaning: its context, its direct key, its fingerprint."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from fingerprint.facts import fingerprint_of, unpack
from store.types import Candidate, Decision
from store.window import context_name, context_of
from tests.store.support import Clock, Open, WordEmbedder, ask, look_up, parts_of, say

LONG = (
    "How do I renew my passport before a trip?",
    "You apply online at the passport office.",
    "Which documents does the passport office want?",
    "Your old passport and a photo for the passport.",
)


def rows(folder: Path, what: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(folder / "antiphon.db") as database:
        return database.execute(f"SELECT {what} ORDER BY number").fetchall()


# ------------------------------------------------------------------------------------------------- context


def test_each_strategy_takes_its_own_texts() -> None:
    turn = ask(*LONG, "and how long does that take?").turn
    assert context_of(turn, "current", 1).texts == []
    assert context_of(turn, "window", 1).texts == [LONG[3], LONG[2]]
    assert context_of(turn, "window+topic", 1).texts == [LONG[3], LONG[2], LONG[0]]
    assert context_of(turn, "window+topic", 1).topic == LONG[0]
    summary = context_of(turn, "summary", 1)
    assert summary.window == context_of(turn, "window", 1).window
    assert "renew my passport" in summary.topic
    assert LONG[3] not in summary.topic


@pytest.mark.parametrize("strategy", ["window", "window+topic", "summary"])
def test_a_new_topic_has_the_context_of_a_first_message(strategy: str) -> None:
    turn = ask(*LONG, "How do I descale an electric kettle with vinegar?").turn
    context = context_of(turn, strategy, 5)  # type: ignore[arg-type]
    assert context.fresh
    assert context.texts == []
    assert context_of(ask("How do I descale an electric kettle?").turn, strategy, 5).fresh  # type: ignore[arg-type]


async def test_a_new_topic_in_a_long_chat_finds_what_was_answered_at_the_start_of_another(open_cache: Open) -> None:
    cache = await open_cache()
    cache.record(ask("How do I descale an electric kettle with vinegar?"), say("Boil it."))
    await cache.flush()
    decision, hit = await cache.search(ask(*LONG, "how do i descale an electric kettle with vinegar"))
    assert hit is not None
    assert decision.level == "answer"


@pytest.mark.parametrize("strategy", ["current", "window", "window+topic", "summary"])
async def test_vectors_say_which_strategy_made_them(open_cache: Open, tmp_path: Path, strategy: str) -> None:
    cache = await open_cache(context_strategy=strategy, window_rounds=1)
    cache.record(ask(*LONG, "and how long does that take?"), say("Three weeks."))
    await cache.flush()
    ((name, window, topic),) = rows(tmp_path, "context, window IS NOT NULL, topic IS NOT NULL FROM vectors")
    assert name == context_name(strategy, 1)  # type: ignore[arg-type]
    assert bool(window) == (strategy != "current")
    assert bool(topic) == (strategy in ("window+topic", "summary"))


async def test_contexts_of_another_strategy_are_not_compared(open_cache: Open, clock: Clock) -> None:
    other = (*LONG, "which colour has it?")
    cache = await open_cache(context_strategy="window")
    cache.record(ask(*other), say("Red."))
    await cache.flush()
    query = ask("hello", *LONG[1:], "which colour has it?")
    alike = (await _candidates(cache, query))[0].window_similarity
    await cache.close()
    cache = await open_cache(context_strategy="window+topic")
    assert alike > 0.5
    (candidate,) = await _candidates(cache, query)
    assert candidate.window_similarity == 0.0
    assert candidate.similarity == pytest.approx(1.0, abs=1e-3)


async def _candidates(cache, query) -> list[Candidate]:  # type: ignore[no-untyped-def]
    return list(await cache._candidates(query))


# ------------------------------------------------------------------------------------------------- direct look-up


async def test_one_numbered_thing_is_found_in_quite_other_words(open_cache: Open, embedder: WordEmbedder) -> None:
    cache = await open_cache(retrieval_depth=1)
    cache.record(ask("check order #ORD-789"), say("On its way."))
    for number in range(4):
        cache.record(ask(f"order 78{number}, what's its status?"), say("Lost."))
    await cache.flush()
    candidates = await _candidates(cache, ask("order 789, what's its status?"))
    assert candidates[0].direct
    assert candidates[0].turn.message.text == "check order #ORD-789"
    assert sum(candidate.direct for candidate in candidates) == 1


async def test_a_direct_key_keeps_to_partition_and_identity(open_cache: Open) -> None:
    cache = await open_cache()
    cache.record(ask("check order #ORD-789", who="bob"), say("Bob's."))
    cache.record(ask("check order #ORD-789", parts=parts_of(model="large")), say("Large."))
    await cache.flush()
    assert await _candidates(cache, ask("order 789, what's its status?")) == []


async def test_what_a_direct_key_finds_is_still_judged(open_cache: Open) -> None:
    cache = await open_cache()
    cache.record(ask("check order #ORD-789"), say("On its way."))
    await cache.flush()
    decision, hit = await cache.search(ask("order 789, what's its status?"))
    assert hit is None  # these vectors share one word, and this confidence knows nothing else
    assert decision.judgements


# ------------------------------------------------------------------------------------------------- fingerprints


async def test_a_fingerprint_is_made_when_a_candidate_needs_one_and_read_back_then(
    open_cache: Open, tmp_path: Path
) -> None:
    cache = await open_cache()
    cache.record(ask("one two three four"), say("yes"))
    cache.record(ask("something else entirely here"), say("no"))
    await cache.flush()
    assert rows(tmp_path, "fingerprint FROM entries") == [(None,), (None,)]
    query = ask("one two three four please")
    assert (await _candidates(cache, query))[0].fingerprint is None
    assert await look_up(cache, query) is not None
    await cache.flush()
    (first,), (second,) = rows(tmp_path, "fingerprint FROM entries")
    assert isinstance(first, bytes)
    made = fingerprint_of(ask("one two three four").turn)
    assert unpack(first) == made
    assert second is None  # nobody needed it
    assert (await _candidates(cache, query))[0].fingerprint == made
    assert (await _candidates(cache, query))[0].meaning == made


async def test_a_fingerprint_of_another_schema_is_made_anew(open_cache: Open, tmp_path: Path) -> None:
    cache = await open_cache()
    cache.record(ask("one two three four"), say("yes"))
    await cache.flush()
    await cache.close()
    with sqlite3.connect(tmp_path / "antiphon.db") as database:
        database.execute("UPDATE entries SET fingerprint = x'9301'")
    cache = await open_cache()
    query = ask("one two three four please")
    (candidate,) = await _candidates(cache, query)
    assert candidate.fingerprint is None
    assert candidate.meaning == candidate.turn
    await look_up(cache, query)
    await cache.flush()
    assert (await _candidates(cache, query))[0].fingerprint is not None


async def test_a_candidate_a_guard_objects_to_needs_no_fingerprint(open_cache: Open, tmp_path: Path) -> None:
    cache = await open_cache(objections=lambda a, b, same: ((), ("numbers",)))
    cache.record(ask("one two three four"), say("yes"))
    await cache.flush()
    await look_up(cache, ask("one two three four please"))
    await cache.flush()
    assert rows(tmp_path, "fingerprint FROM entries") == [(None,)]


async def test_flushing_and_asking_for_fingerprints_after_closing_is_harmless(open_cache: Open) -> None:
    cache = await open_cache()
    await cache.close()
    cache._prints.lacking([], Decision("miss", ""), 0.5)
    cache._prints.wait()


# ------------------------------------------------------------------------------------------------- identity


async def test_entries_can_be_purged_by_what_decided_and_by_what_read_them(open_cache: Open) -> None:
    cache = await open_cache()
    cache.record(ask("one two three", parts=parts_of(decision="ab-1")), say("1"))
    cache.record(ask("one two three", parts=parts_of(decision="ab-2")), say("2"))
    cache.record(ask("one two three", parts=parts_of(decision="ab-2", fingerprint_schema="text-1/facts-9")), say("3"))
    await cache.flush()
    assert await cache.purge({"decision": "ab-2"}, dry_run=True) == 2
    assert await cache.purge({"fingerprint_schema": "text-1/facts-9"}, dry_run=False) == 1
    assert await cache.purge({"decision": "ab-2"}, dry_run=False) == 1
    assert await cache.exact(ask("one two three", parts=parts_of(decision="ab-1"))) is not None
