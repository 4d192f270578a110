"""Raising the epoch makes everything older unreachable at once; the audit log says who did it."""

from __future__ import annotations

from store.cache import Cache
from tests.store.support import Clock, Open, ask, look_up, on_both_engines, say

pytestmark = on_both_engines

CAPITAL = "what is the capital of Portugal"
REWORDED = "what is the capital of Portugal please"
RIVER = "which river runs through Porto"


async def test_nothing_older_than_the_epoch_is_served(open_cache: Open) -> None:
    cache = await open_cache()
    cache.record(ask(CAPITAL), say("Lisbon"))
    cache.record(ask(RIVER), say("Douro"))
    await cache.flush()
    assert await look_up(cache, ask(REWORDED)) is not None
    assert await cache.raise_epoch(dry_run=True) == 2
    assert await cache.exact(ask(CAPITAL)) is not None  # a dry run changes nothing
    assert await cache.raise_epoch(dry_run=False, actor="ann", reason="new prices") == 2
    fresh = cache.record(ask(RIVER), say("the Douro"))
    await cache.flush()
    assert (await cache.stats()).by_state == {"active": 1, "out_of_epoch": 2}
    assert [row.state for row in await cache.entries(limit=9, after=None, where={})].count("out_of_epoch") == 2
    for _ in range(2):
        for words in (CAPITAL, REWORDED):
            assert cache.exact_now(ask(words)) is None
            assert await cache.exact(ask(words)) is None
            assert (await cache.search(ask(words)))[1] is None
        hit = await cache.exact(ask(RIVER))
        assert hit is not None
        assert hit.entry_id == fresh
        assert (await cache.stats()).epoch == 1
        await cache.close()
        cache = await open_cache()
    (line,) = await cache.audit(limit=5)
    assert (line.actor, line.action, line.entries) == ("ann", "epoch", 2)
    assert line.target == {"epoch": "1", "reason": "new prices"}


async def test_an_answer_begun_before_is_not_stored(cache: Cache) -> None:
    before = cache.epoch
    await cache.raise_epoch(dry_run=False)
    cache.record(ask(CAPITAL), say("Lisbon"), epoch=before)
    await cache.flush()
    assert cache.exact_now(ask(CAPITAL)) is None
    assert await cache.exact(ask(CAPITAL)) is None
    cache.record(ask(CAPITAL), say("Lisbon"), epoch=cache.epoch)
    assert await cache.exact(ask(CAPITAL)) is not None


async def test_rows_of_an_older_epoch_are_removed_by_the_upkeep(open_cache: Open) -> None:
    cache = await open_cache()
    cache.record(ask(CAPITAL), say("Lisbon"))
    await cache.flush()
    await cache.raise_epoch(dry_run=False)
    await cache.close()
    cache = await open_cache()
    await cache.flush()
    assert await cache.entries(limit=5, after=None, where={}) == []


async def test_the_audit_log_tells_every_kind_newest_first_and_in_pages(cache: Cache, clock: Clock) -> None:
    query = ask(CAPITAL)
    cache.record(query, say("Porto"))
    await cache.correct(ask(CAPITAL, "Porto", "that is wrong"))
    down = cache.record(query, say("Faro"))
    await cache.feedback(down, "down", partition=query.partition)
    gone = cache.record(query, say("Lisbon"))
    clock.now += 10
    await cache.retract(gone, actor="ben")
    await cache.purge({"model": "small"}, dry_run=True)  # leaves no trace
    await cache.purge({"model": "small"}, dry_run=False, actor="command line (ann)")
    cache.note("version", {"weights": "w2"}, actor="backend")
    await cache.flush()
    rows = await cache.audit(limit=10)
    assert [row.action for row in rows] == ["version", "purge", "retract", "feedback", "correction"]
    assert [row.actor for row in rows[:3]] == ["backend", "command line (ann)", "ben"]
    assert rows[1].target == {"model": "small"}
    assert rows[1].entries == 3
    assert rows[2].at == clock.now
    assert CAPITAL not in repr(rows)
    assert [row.action for row in await cache.audit(limit=2, before=rows[1].number)] == ["retract", "feedback"]
    assert [row.action for row in await cache.audit(limit=9, action="purge")] == ["purge"]
