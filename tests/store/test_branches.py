"""What hangs from a corrected answer is read by those who stand on it and by nobody else, and never rewritten."""

from __future__ import annotations

from store.cache import Cache
from tests.store.support import ByWords, Open, ask, look_up, on_both_engines, say

pytestmark = on_both_engines

PLAN = "how shall we move the archive"
PLAN_REWORDED = "how shall we move the old archive"
PLAN_A = "by lorry in one night"
GO = "then do it that way"
WRONG = "no, use the railway"


async def state_of(cache: Cache, entry: str) -> str:
    row = await cache.entry(entry)
    assert row is not None
    return row.state


async def branch(cache: Cache) -> tuple[str, str, str]:
    """A plan, what was said on the strength of it, and one turn further."""
    plan = cache.record(ask(PLAN), say(PLAN_A))
    go = cache.record(ask(PLAN, PLAN_A, GO), say("the lorry is booked"))
    after = cache.record(ask(PLAN, PLAN_A, GO, "the lorry is booked", "when does it leave"), say("at nine"))
    assert await cache.flush()
    return plan, go, after


async def test_what_hangs_from_a_corrected_answer_is_frozen(open_cache: Open) -> None:
    cache = await open_cache()
    plan, go, after = await branch(cache)
    apart = cache.record(ask("what is the capital of Portugal"), say("Lisbon"))
    assert await cache.correct(ask(PLAN, PLAN_A, WRONG)) == 3
    for _ in range(2):
        assert [await state_of(cache, e) for e in (plan, go, after, apart)] == ["suspect", "frozen", "frozen", "active"]
        hit = await cache.exact(ask(PLAN, PLAN_A, GO))
        assert hit is not None
        assert hit.entry_id == go
        await cache.close()
        cache = await open_cache()


async def test_then_do_it_that_way_does_not_see_the_old_plan(cache: Cache) -> None:
    _, go, _ = await branch(cache)
    before, _ = await cache.search(ask(PLAN_REWORDED, PLAN_A, GO), thorough=True)
    assert go in [judgement.entry_id for judgement in before.judgements]  # it would have been met
    await cache.correct(ask(PLAN, PLAN_A, WRONG))
    for texts in ((PLAN, PLAN_A, WRONG, "by rail then", GO), (PLAN_REWORDED, PLAN_A, GO)):
        decision, hit = await cache.search(ask(*texts), thorough=True)
        assert hit is None
        assert go not in [judgement.entry_id for judgement in decision.judgements]


async def test_in_the_session_that_corrected_the_branch_is_gone_even_by_its_literal_words(open_cache: Open) -> None:
    cache = await open_cache()
    await branch(cache)
    await cache.correct(ask(PLAN, PLAN_A, WRONG, session="s1"))
    for _ in range(2):
        assert await cache.exact(ask(PLAN, PLAN_A, GO, session="s1")) is None
        assert await cache.exact(ask(PLAN, PLAN_A, GO, session="s2")) is not None
        await cache.close()
        cache = await open_cache()


async def test_a_frozen_entry_is_not_rewritten(open_cache: Open) -> None:
    cache = await open_cache()
    _, go, _ = await branch(cache)
    await cache.correct(ask(PLAN, PLAN_A, WRONG))
    cache.record(ask(PLAN, PLAN_A, GO), say("another answer"))
    assert await cache.flush()
    row = await cache.entry(go)
    assert row is not None
    assert (row.state, row.answer) == ("frozen", "the lorry is booked")
    assert len(await cache.entries(limit=10, after=None, where={})) == 3
    await cache.close()
    cache = await open_cache()
    hit = await cache.exact(ask(PLAN, PLAN_A, GO))
    assert hit is not None
    assert hit.entry_id == go


async def test_what_is_answered_on_a_corrected_branch_later_is_frozen_from_the_start(cache: Cache) -> None:
    await branch(cache)
    await cache.correct(ask(PLAN, PLAN_A, WRONG))
    late = cache.record(ask(PLAN, PLAN_A, "and what does it cost"), say("nine hundred"))
    later = cache.record(ask(PLAN, PLAN_A, "and what does it cost", "nine hundred", "with tax"), say("yes"))
    assert await cache.flush()
    assert [await state_of(cache, e) for e in (late, later)] == ["frozen", "frozen"]
    assert await cache.exact(ask(PLAN, PLAN_A, "and what does it cost")) is not None
    decision, hit = await cache.search(ask(PLAN, PLAN_A, "and what does that cost"), thorough=True)
    assert hit is None
    assert late not in [judgement.entry_id for judgement in decision.judgements]


async def test_a_branch_under_another_wording_of_the_corrected_answer_is_closed_too(open_cache: Open) -> None:
    cache = await open_cache(confidence=ByWords())
    cache.record(ask(PLAN), say(PLAN_A))
    assert await cache.flush()
    assert await look_up(cache, ask("hello", "hi", PLAN_REWORDED)) is not None
    assert await cache.flush()
    under = cache.record(ask("hello", "hi", PLAN_REWORDED, PLAN_A, GO), say("the lorry is booked"))
    assert await cache.flush()
    await cache.correct(ask(PLAN, PLAN_A, WRONG))
    assert await state_of(cache, under) == "frozen"
    assert await cache.exact(ask("hello", "hi", PLAN_REWORDED)) is None  # the wording went with the suspect


async def test_the_answer_that_replaces_a_corrected_one_starts_an_open_branch(cache: Cache) -> None:
    await branch(cache)
    await cache.correct(ask(PLAN, PLAN_A, WRONG))
    cache.record(ask(PLAN), say("by rail"))
    fresh = cache.record(ask(PLAN, "by rail", GO), say("the train is booked"))
    assert await cache.flush()
    assert await state_of(cache, fresh) == "active"


async def test_a_correction_on_a_corrected_branch_makes_that_answer_suspect(cache: Cache) -> None:
    _, go, after = await branch(cache)
    await cache.correct(ask(PLAN, PLAN_A, WRONG))
    assert await cache.correct(ask(PLAN, PLAN_A, GO, "the lorry is booked", "no, cancel it")) == 1
    assert [await state_of(cache, e) for e in (go, after)] == ["suspect", "frozen"]


async def test_a_branch_is_closed_for_its_partition_only(cache: Cache) -> None:
    await branch(cache)
    other = cache.record(ask(PLAN, who="bob"), say(PLAN_A))
    below = cache.record(ask(PLAN, PLAN_A, GO, who="bob"), say("the lorry is booked"))
    assert await cache.flush()
    await cache.correct(ask(PLAN, PLAN_A, WRONG))
    assert [await state_of(cache, e) for e in (other, below)] == ["active", "active"]
