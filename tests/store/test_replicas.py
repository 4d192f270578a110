"""Several caches on one PostgreSQL database: what one of them takes out of circulation, none of them serves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import psycopg
import pytest
from sqlalchemy import make_url

from store.cache import Cache
from store.replicas import announce
from store.types import Query
from tests.store.support import Open, ask, look_up, say

CAPITAL = "what is the capital of portugal"
REWORDED = "what is the capital city of portugal"

Pair = tuple[Cache, Cache]


@pytest.fixture
def store_url(postgres_url: str) -> str:
    return postgres_url


@pytest.fixture
async def pair(open_cache: Open) -> Pair:
    """Two caches as two processes have them: nothing in common but the database."""
    return await open_cache(), await open_cache()


async def until(condition: Callable[[], bool]) -> None:
    """Wait until it holds; however busy the machine, not for ever."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - what happens is in another thread
            await asyncio.sleep(0.01)


async def leased(cache: Cache, query: Query) -> bool:
    for _ in range(1_000):
        if await cache.lease(query):
            return True
        await asyncio.sleep(0.02)
    return False


async def served_by(cache: Cache, words: str) -> str:
    """Have a cache serve an answer twice, so that it is in its memory; returns the entry."""
    hit = await look_up(cache, ask(words))
    assert hit is not None
    assert await cache.flush()
    assert await cache.exact(ask(words)) is not None
    assert cache.exact_now(ask(words)) is not None
    return hit.entry_id


async def test_what_one_recorded_the_other_serves(pair: Pair) -> None:
    one, other = pair
    entry = one.record(ask(CAPITAL), say("Lisbon"))
    assert await one.flush()
    hit = await other.exact(ask(CAPITAL))
    assert hit is not None
    assert hit.entry_id == entry
    assert await served_by(other, REWORDED) == entry
    hit = await one.exact(ask(REWORDED))  # found by the wording that the other made
    assert hit is not None
    assert hit.entry_id == entry


@pytest.mark.parametrize("how", ["retract", "feedback", "purge", "epoch", "correct", "replace"])
async def test_what_one_took_out_of_circulation_the_other_forgets(pair: Pair, how: str) -> None:
    one, other = pair
    entry = one.record(ask(CAPITAL), say("Porto"))
    one.record(ask("who wrote faust"), say("Goethe"))
    assert await one.flush()
    for words in (CAPITAL, REWORDED):
        assert await served_by(other, words) == entry
    if how == "retract":
        assert await one.retract(entry)
    elif how == "feedback":
        assert await one.feedback(entry, "down", partition=None)
    elif how == "purge":
        assert await one.purge({"entry": entry}, dry_run=False) == 1
    elif how == "epoch":
        assert await one.raise_epoch(dry_run=False) == 2
        await until(lambda: other.epoch == 1)
        fresh = other.record(ask("who wrote emma"), say("Austen"))  # the other records in the new epoch at once
        assert await other.flush()
        hit = await one.exact(ask("who wrote emma"))
        assert hit is not None
        assert hit.entry_id == fresh
    elif how == "correct":
        assert await one.correct(ask(CAPITAL, "Porto", "no, wrong")) == 1
    else:
        one.record(ask(CAPITAL), say("Lisbon"))
        assert await one.flush()
    await until(lambda: other.exact_now(ask(CAPITAL)) is None and other.exact_now(ask(REWORDED)) is None)
    for words in (CAPITAL, REWORDED):
        hit = await other.exact(ask(words)) or (await other.search(ask(words)))[1]
        assert hit is None or (how == "replace" and hit.answer.text == "Lisbon")
    assert (await other.exact(ask(CAPITAL)) is not None) == (how == "replace")


@pytest.mark.slow
async def test_an_answer_corrected_in_a_conversation_is_not_served_in_it_by_the_other(pair: Pair) -> None:
    one, other = pair
    one.record(ask(CAPITAL, session="s"), say("Porto"))
    one.record(ask("and in other words the capital"), say("Porto"))
    assert await one.flush()
    assert await one.correct(ask(CAPITAL, "Porto", "no, wrong", session="s")) == 1
    later = ask("and in other words the capital", session="s")
    await until(lambda: other._bars.bars(later, [b"t" + digest_of("Porto")]))
    assert await other.exact(later) is None
    assert await other.exact(ask("and in other words the capital")) is not None


def digest_of(text: str) -> bytes:
    from store.bars import text_digest

    return text_digest(text)


@pytest.mark.slow
async def test_a_session_that_asks_again_at_the_other_is_known(pair: Pair) -> None:
    one, other = pair
    query = ask(CAPITAL, session="s")
    one.record(query, say("Lisbon"))
    await until(lambda: other.served_before(query))
    assert not other.served_before(ask(CAPITAL, session="t"))


@pytest.mark.slow
async def test_an_answer_that_two_record_at_once_is_there_once(pair: Pair) -> None:
    one, other = pair
    for number in range(20):
        one.record(ask(f"question {number}"), say("one"))
        other.record(ask(f"question {number}"), say("other"))
    assert await one.flush()
    assert await other.flush()
    assert (await one.stats()).by_state == {"active": 20, "retracted": 20}
    assert one.failures.counts() == other.failures.counts() == {}


@pytest.mark.slow
async def test_what_the_other_records_is_served_although_an_older_answer_was_recorded_here(pair: Pair) -> None:
    one, other = pair
    one.record(ask(CAPITAL), say("Porto"))
    assert await one.flush()
    entry = other.record(ask(CAPITAL), say("Lisbon"))
    assert await other.flush()
    await until(lambda: one.exact_now(ask(CAPITAL)) is None)
    hit = await one.exact(ask(CAPITAL))
    assert hit is not None
    assert hit.entry_id == entry


@pytest.mark.slow
async def test_without_notifications_polling_tells(open_cache: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store.postgres_link.CHANNEL", "nobody_notifies_here")
    one, other = await open_cache(changes_poll_ms=50), await open_cache(changes_poll_ms=50)
    entry = one.record(ask(CAPITAL), say("Porto"))
    assert await one.flush()
    await served_by(other, CAPITAL)
    assert await one.retract(entry)
    await until(lambda: other.exact_now(ask(CAPITAL)) is None)


@pytest.mark.slow
async def test_without_word_from_the_database_nothing_is_served_and_then_again(
    open_cache: Open, store_url: str
) -> None:
    cache = await open_cache(changes_poll_ms=50, changes_limit_ms=1_000)
    cache.record(ask(CAPITAL), say("Lisbon"))
    assert await cache.flush()
    plain = make_url(store_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain) as connection:
        connection.execute("LOCK TABLE changes IN ACCESS EXCLUSIVE MODE")  # its link waits; the entries can be read
        await until(lambda: cache.exact_now(ask(CAPITAL)) is None)
        assert await cache.exact(ask(CAPITAL)) is None
        decision, hit = await cache.search(ask(REWORDED))
        assert (decision.reason, hit) == ("no word from the database", None)
        assert cache.failures.counts()["link.out_of_step"] >= 3
    await until(lambda: cache.exact_now(ask(CAPITAL)) is not None)


@pytest.mark.slow
async def test_a_kind_of_change_that_is_not_known_empties_the_memory(pair: Pair) -> None:
    """A newer release beside this one may know more kinds."""

    class Newer:
        def apply(self, connection):  # type: ignore[no-untyped-def]
            announce(connection, "something new", b"x")
            return None, None

    one, other = pair
    one.record(ask(CAPITAL), say("Lisbon"))
    assert await one.flush()
    await served_by(other, CAPITAL)
    one._writer.ask(Newer()).result(10)
    await until(lambda: len(other._memory) == 0)
    assert other.exact_now(ask(CAPITAL)) is None
    assert await other.exact(ask(CAPITAL)) is not None


@pytest.mark.slow
async def test_what_was_rolled_back_is_not_announced(pair: Pair) -> None:
    class Failing:
        def apply(self, connection):  # type: ignore[no-untyped-def]
            announce(connection, "everything")
            raise ValueError("no")

    one, other = pair
    one.record(ask(CAPITAL), say("Lisbon"))
    assert await one.flush()
    await served_by(other, CAPITAL)
    with pytest.raises(Exception, match="could not be written"):
        one._writer.ask(Failing()).result(10)
    one.record(ask("who wrote faust", session="s"), say("Goethe"))  # is announced after it
    await until(lambda: other.served_before(ask("who wrote faust", session="s")))
    assert other.exact_now(ask(CAPITAL)) is not None


async def test_one_at_a_time_answers_a_turn(pair: Pair) -> None:
    one, other = pair
    query = ask(CAPITAL)
    assert await one.lease(query)
    assert not await other.lease(query)
    assert await other.lease(ask("who wrote faust"))
    one.record(query, say("Lisbon"))
    one.release(query)
    assert await leased(other, query)
    assert await other.exact(query) is not None  # the lease ends after the commit
    other.release(query)
    await one.close()
    await other.flush()


@pytest.mark.slow
async def test_the_lease_of_a_process_that_ended_is_free_and_an_unanswered_question_is_a_yes(open_cache: Open) -> None:
    one, other = await open_cache(), await open_cache(lookup_deadline_ms=300)
    query = ask(CAPITAL)
    assert await one.lease(query)
    assert not await other.lease(query)
    await one.close()
    assert await leased(other, query)
    other._leases._pool.submit(lambda: __import__("time").sleep(2))  # type: ignore[union-attr]
    assert await other.lease(ask("who wrote faust"))
    assert other.failures.counts()["lease.slow"] == 1


@pytest.mark.slow
async def test_a_process_that_heard_nothing_for_long_forgets_everything(pair: Pair) -> None:
    one, other = pair
    entry = one.record(ask(CAPITAL), say("Porto"))
    assert await one.flush()
    await served_by(other, CAPITAL)
    link = other._link
    assert link is not None
    link._checked_at -= 7_200  # type: ignore[attr-defined]
    await until(lambda: len(other._memory) == 0)
    assert await one.retract(entry)
    assert await other.exact(ask(CAPITAL)) is None


@pytest.mark.slow
async def test_a_question_that_one_barred_the_other_does_not_serve_and_its_evidence_counts_for_both(pair: Pair) -> None:
    one, other = pair
    one.record(ask(CAPITAL), say("Lisbon"))
    assert await one.flush()
    entry = await served_by(other, CAPITAL)
    for _ in range(3):
        await asyncio.wrap_future(
            one.checks.checked(entry, ask(CAPITAL).exact_key, "exact", 1.0, wrong=True, source="hit")
        )
    await until(lambda: other.exact_now(ask(CAPITAL)) is None)
    assert await other.exact(ask(CAPITAL)) is None
    await until(lambda: other.checks.report()[0].observations == 3)
    assert other.checks.report()[0].wrong == one.checks.report()[0].wrong == 3
