"""What was corrected in a conversation is not served again in it; what was wrong once is served to nobody."""

from __future__ import annotations

from store.cache import Cache
from tests.store.support import Open, another_writer, ask, look_up, on_both_engines, say

pytestmark = on_both_engines

YEAR = "in which year was the tower opened"
YEAR_REWORDED = "in which year was the tower opened then"
WRONG = "that is wrong"


async def test_a_corrected_answer_is_suspect_and_served_to_nobody(open_cache: Open) -> None:
    cache = await open_cache()
    entry = cache.record(ask(YEAR), say("1899"))
    await cache.flush()
    await look_up(cache, ask(YEAR_REWORDED))
    await cache.flush()
    assert await cache.correct(ask(YEAR, "1899", WRONG)) == 1
    for _ in range(2):
        for words in (YEAR, YEAR_REWORDED):
            assert await cache.exact(ask(words)) is None
            assert (await cache.search(ask(words)))[1] is None
        row = await cache.entry(entry)
        assert row is not None
        assert (row.state, row.wordings) == ("suspect", 0)
        await cache.close()
        cache = await open_cache()


async def test_the_same_correction_again_affects_nothing_more(cache: Cache) -> None:
    cache.record(ask(YEAR), say("1899"))
    assert await cache.correct(ask(YEAR, "1899", WRONG)) == 1
    assert await cache.correct(ask(YEAR, "1899", WRONG)) == 0


async def test_a_correction_reaches_the_entry_behind_another_wording(cache: Cache) -> None:
    entry = cache.record(ask(YEAR), say("1899"))
    await cache.flush()
    await look_up(cache, ask(YEAR_REWORDED))
    assert await cache.correct(ask(YEAR_REWORDED, "1899", WRONG)) == 1
    row = await cache.entry(entry)
    assert row is not None
    assert row.state == "suspect"


async def test_a_fresh_answer_serves_everybody_but_the_conversation_that_corrected(open_cache: Open) -> None:
    cache = await open_cache()
    cache.record(ask(YEAR), say("1899"))
    await cache.flush()
    corrected = (YEAR, "1899", WRONG)
    await cache.correct(ask(*corrected))
    cache.record(ask(*corrected), say("sorry, 1889"))
    fresh = cache.record(ask(YEAR), say("1889"))
    await cache.flush()
    for _ in range(2):
        hit = await cache.exact(ask(YEAR))
        assert hit is not None
        assert hit.entry_id == fresh
        # Asked again in the conversation: not from the exact key that was corrected, whatever answers it now.
        decision, hit = await cache.search(ask(*corrected, "sorry, 1889", YEAR))
        assert hit is None
        assert fresh not in [judgement.entry_id for judgement in decision.judgements]
        # Nor further on in it; but in any other one.
        decision, _ = await cache.search(ask(*corrected, "sorry, 1889", "thanks", "welcome", YEAR))
        assert fresh not in [judgement.entry_id for judgement in decision.judgements]
        decision, _ = await cache.search(ask("hello", "hi", YEAR))
        assert fresh in [judgement.entry_id for judgement in decision.judgements]
        await cache.close()
        cache = await open_cache()


async def test_the_same_answer_from_another_entry_is_not_served_either(cache: Cache) -> None:
    cache.record(ask(YEAR), say("1899"))
    cache.record(ask(YEAR_REWORDED), say("1899"))
    await cache.flush()
    corrected = (YEAR, "1899", WRONG)
    await cache.correct(ask(*corrected, session="s1"))
    assert await cache.exact(ask(YEAR_REWORDED)) is not None
    assert await cache.exact(ask(YEAR_REWORDED, session="s1")) is None
    assert (await cache.search(ask(YEAR, session="s1")))[1] is None


async def test_a_session_never_gets_the_corrected_turn_from_the_cache_again(open_cache: Open) -> None:
    cache = await open_cache()
    cache.record(ask(YEAR, session="s1"), say("1899"))
    await cache.correct(ask(YEAR, "1899", WRONG, session="s1"))
    cache.record(ask(YEAR, session="s2"), say("1889"))
    await cache.flush()
    for _ in range(2):
        assert await cache.exact(ask(YEAR, session="s1")) is None
        assert cache.exact_now(ask(YEAR, session="s1")) is None
        assert await cache.exact(ask(YEAR, session="s2")) is not None
        # A session of the same name of somebody else is another session.
        await cache.close()
        cache = await open_cache()


async def test_a_correction_without_a_known_place_still_bars_the_answer_it_names(cache: Cache) -> None:
    """The app trims its history: where the conversation stands is not known, what was said is."""
    cache.record(ask(YEAR), say("1899"))
    await cache.flush()
    corrected = ("something trimmed", "1899", WRONG)
    assert await cache.correct(ask(*corrected)) == 0
    assert (await cache.search(ask(*corrected, "sorry", YEAR)))[1] is None
    assert await cache.exact(ask(YEAR)) is not None


async def test_without_a_place_the_session_s_last_hit_is_what_was_corrected(cache: Cache) -> None:
    """The app trims its history; the session tells what it was served, and the conversation that it was this."""
    entry = cache.record(ask(YEAR), say("1899"))
    other = cache.record(ask("who built it"), say("an engineer"))
    await cache.flush()
    assert await look_up(cache, ask("who built it", session="s1")) is not None
    assert await look_up(cache, ask(YEAR, session="s1")) is not None
    assert await cache.correct(ask("something trimmed", "another text", WRONG, session="s1")) == 0
    assert await cache.correct(ask("something trimmed", "1899", WRONG, session="s2")) == 0
    assert await cache.correct(ask("something trimmed", "1899", WRONG, session="s1")) == 1
    states = {row.id: row.state for row in await cache.entries(limit=5, after=None, where={})}
    assert states == {entry: "suspect", other: "active"}
    assert [row.actor for row in await cache.audit(limit=5)] == ["session s1"]


async def test_a_correction_touches_no_other_partition(cache: Cache) -> None:
    cache.record(ask(YEAR), say("1899"))
    await cache.flush()
    assert await cache.correct(ask(YEAR, "1899", WRONG, who="bob")) == 0
    assert await cache.exact(ask(YEAR)) is not None


async def test_a_correction_at_the_first_turn_has_nothing_to_correct(cache: Cache) -> None:
    cache.record(ask(YEAR), say("1899"))
    assert await cache.correct(ask(WRONG)) == 0
    assert await cache.exact(ask(YEAR)) is not None


async def test_a_corrected_entry_is_not_served_while_the_database_is_locked(open_cache: Open, store_url: str) -> None:
    """The conversation that corrected is protected before anything is written."""
    cache = await open_cache(lookup_deadline_ms=200, busy_timeout_ms=50)
    cache.record(ask(YEAR, session="s1"), say("1899"))
    await cache.flush()
    with another_writer(store_url):
        assert await cache.correct(ask(YEAR, "1899", WRONG, session="s1")) == 0
        assert cache.exact_now(ask(YEAR, session="s1")) is None
    await cache.flush()
    assert await cache.exact(ask(YEAR)) is None  # written in the end
