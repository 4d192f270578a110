"""What follows from checks of served answers."""

from __future__ import annotations

import asyncio
from typing import Any

from store.cache import Cache
from store.checks import Checked, CheckSettings
from store.types import Hit, Policy, Query
from tests.store.support import Clock, Open, ask, look_up, on_both_engines, say

STORED = "how do I reset the password of my account"
ASKED = "how do I reset a password of an account"  # cosine of the words: in the band of the tests
ON = CheckSettings(enabled=True)
# Everything that NearEnough finds lies in the band: nothing is sure enough.
BAND = Policy(answer=0.9999, verify=0.3)


async def checked(cache: Cache, query: Query, hit: Hit, *, wrong: bool) -> Checked:
    source: Any = "suspect" if hit.state == "suspect" else "hit"
    future = cache.checks.checked(hit.entry_id, query.exact_key, hit.kind, hit.decided, wrong=wrong, source=source)
    found: Checked = await asyncio.wrap_future(future)
    return found


async def banded(open_cache: Open, checks: CheckSettings = ON, **changed: Any) -> Cache:
    cache: Cache = await open_cache(policy=BAND, checks=checks, **changed)
    cache.record(ask(STORED), say("Open Settings."))
    await cache.flush()
    return cache


async def test_the_band_is_served_as_suspect_and_its_repeat_too(open_cache: Open) -> None:
    cache = await banded(open_cache)
    hit = await look_up(cache, ask(ASKED))
    assert hit is not None
    assert (hit.state, hit.kind, hit.exact) == ("suspect", "band", False)
    assert 0.3 < hit.decided < 0.9999
    await cache.flush()
    again = await look_up(cache, ask(ASKED))
    assert again is not None
    assert (again.state, again.kind, again.exact, again.decided) == ("suspect", "band", True, hit.decided)
    assert (await cache.stats()).suspects == 1


@on_both_engines
async def test_enough_agreements_promote_a_suspect(open_cache: Open) -> None:
    cache = await banded(open_cache)
    hit = await look_up(cache, ask(ASKED))
    await cache.flush()
    assert hit is not None
    assert await checked(cache, ask(ASKED), hit, wrong=False) == Checked()
    assert await checked(cache, ask(ASKED), hit, wrong=False) == Checked(promoted=True)
    again = await look_up(cache, ask(ASKED))
    assert again is not None and again.state == "active"
    assert (await cache.stats()).suspects == 0
    # What was verified is served whatever becomes of verification.
    await cache.close()
    cache = await open_cache(policy=BAND)
    assert await look_up(cache, ask(ASKED)) is not None


async def test_one_disagreement_retracts_a_suspect_and_leaves_the_answer_to_its_own_question(open_cache: Open) -> None:
    cache = await banded(open_cache)
    hit = await look_up(cache, ask(ASKED))
    await cache.flush()
    assert hit is not None
    assert (await checked(cache, ask(ASKED), hit, wrong=True)).retracted
    assert await cache.exact(ask(ASKED)) is None
    own = await cache.exact(ask(STORED))
    assert own is not None and own.entry_id == hit.entry_id


async def test_without_verification_no_suspect_is_served_not_even_one_of_earlier(open_cache: Open) -> None:
    cache = await banded(open_cache)
    assert await look_up(cache, ask(ASKED)) is not None
    await cache.flush()
    await cache.close()
    for checks in (CheckSettings(), CheckSettings(enabled=True, serve_suspects=False)):
        cache = await open_cache(policy=BAND, checks=checks)
        assert await look_up(cache, ask(ASKED)) is None
        await cache.close()


async def test_a_corrected_answer_stays_suspect_for_everyone_and_is_served_to_nobody(open_cache: Open) -> None:
    cache = await banded(open_cache)
    assert await cache.correct(ask(STORED, "Open Settings.", "no, I meant my phone")) == 1
    rows = await cache.entries(limit=5, after=None, where={"state": "suspect"})
    assert len(rows) == 1
    for asked in (STORED, ASKED):
        assert await look_up(cache, ask(asked)) is None


@on_both_engines
async def test_a_question_whose_checks_fail_too_often_is_barred_for_a_day(open_cache: Open, clock: Clock) -> None:
    cache = await open_cache(checks=ON)
    cache.record(ask(STORED), say("Open Settings."))
    await cache.flush()
    hit = await look_up(cache, ask(STORED))
    assert hit is not None
    assert not (await checked(cache, ask(STORED), hit, wrong=True)).barred  # one check is no accuracy
    assert not (await checked(cache, ask(STORED), hit, wrong=True)).barred
    assert (await checked(cache, ask(STORED), hit, wrong=True)).barred
    assert await look_up(cache, ask(STORED)) is None
    row = await cache.entry(hit.entry_id)
    assert row is not None
    assert (row.unserved, row.unserved_until) == ("barred", clock.now + 86_400)
    assert (await cache.stats()).barred == 1
    # A new answer to the question is barred with it, in this process and in the next.
    cache.record(ask(STORED), say("Open Profile."))
    await cache.flush()
    assert await look_up(cache, ask(STORED)) is None
    await cache.close()
    cache = await open_cache(checks=ON)
    clock.now += 86_399
    assert await look_up(cache, ask(STORED)) is None
    clock.now += 1
    hit = await look_up(cache, ask(STORED))
    assert hit is not None and hit.answer.text == "Open Profile."
    assert not (await checked(cache, ask(STORED), hit, wrong=True)).barred  # the day has cleared the record


@on_both_engines
async def test_a_bar_holds_for_the_answer_that_has_replaced_the_checked_one_meanwhile(open_cache: Open) -> None:
    cache = await open_cache(checks=ON)
    cache.record(ask(STORED), say("Open Settings."))
    await cache.flush()
    hit = await look_up(cache, ask(STORED))
    assert hit is not None
    cache.record(ask(ASKED), say("Open Profile."))  # the same question; kept in memory since it was answered
    await cache.flush()
    newer = await look_up(cache, ask(ASKED))
    assert newer is not None and newer.answer.text == "Open Profile."
    for last in (False, False, True):
        assert (await checked(cache, ask(STORED), hit, wrong=True)).barred is last
    assert await look_up(cache, ask(ASKED)) is None


async def test_an_accuracy_of_95_percent_bars_nothing(open_cache: Open) -> None:
    cache = await open_cache(checks=ON)
    cache.record(ask(STORED), say("Open Settings."))
    await cache.flush()
    hit = await look_up(cache, ask(STORED))
    assert hit is not None
    for wrong in [False] * 19 + [True]:
        assert not (await checked(cache, ask(STORED), hit, wrong=wrong)).barred
    assert (await checked(cache, ask(STORED), hit, wrong=True)).barred


@on_both_engines
async def test_the_error_budget_holds_back_what_its_evidence_speaks_against_over_restarts(open_cache: Open) -> None:
    checks = CheckSettings(wrong_hits=0.05)
    policy = Policy(answer=0.5, verify=0.3)
    cache = await open_cache(policy=policy, checks=checks)
    assert cache.checks.policy.least(same_place=True) == 0.975
    for _ in range(3):
        await asyncio.wrap_future(cache.checks.checked("0" * 32, None, "same_place", 0.99, wrong=True, source="miss"))
    raised = cache.checks.policy.least(same_place=True)
    assert raised > 0.99
    await cache.close()
    cache = await open_cache(policy=policy, checks=checks)
    assert cache.checks.policy.least(same_place=True) == raised
    report = {one.kind: one for one in (await cache.stats()).budget}
    assert (report["same_place"].observations, report["same_place"].wrong) == (3, 3)


async def test_a_wording_is_served_only_while_its_decision_would_be_made_again(open_cache: Open) -> None:
    policy = Policy(answer=0.5, verify=0.3)
    cache = await open_cache(policy=policy)
    cache.record(ask(STORED), say("Open Settings."))
    await cache.flush()
    hit = await look_up(cache, ask(ASKED))
    assert hit is not None and hit.kind == "same_place"
    await cache.flush()
    assert (await cache.exact(ask(ASKED))) is not None
    await cache.close()
    cache = await open_cache(policy=Policy(answer=(hit.decided + 1) / 2, verify=0.3))
    assert await cache.exact(ask(ASKED)) is None
    assert await cache.exact(ask(STORED)) is not None


async def test_a_thumbs_down_on_a_hit_is_evidence_and_on_the_models_own_answer_is_none(open_cache: Open) -> None:
    cache = await open_cache(policy=Policy(answer=0.5, verify=0.3))
    own = cache.record(ask(RED), say("Red."))
    entry = cache.record(ask(STORED), say("Open Settings."))
    await cache.flush()
    await cache.feedback(own, "down", partition=None)
    assert sum(one.observations for one in cache.checks.report()) == 0
    assert await look_up(cache, ask(ASKED)) is not None
    await cache.feedback(entry, "down", partition=None)
    await cache.flush()
    report = {one.kind: one for one in cache.checks.report()}
    assert (report["same_place"].observations, report["same_place"].wrong) == (1, 1)


RED = "which colour is nicest"


async def test_answers_are_compared_by_facts_and_by_the_embedder(open_cache: Open) -> None:
    cache = await open_cache(checks=ON)
    assert (await cache.checks.compare("It takes 3 days.", "It takes 5 days.")).verdict == "differ"
    assert (await cache.checks.compare("same words here", "same words here")).verdict == "agree"
    near = await cache.checks.compare("same words here now", "same words here")
    assert near.cosine is not None
    assert near.verdict == "unclear"
    blind = await open_cache(embedder=None, url="sqlite://")
    assert (await blind.checks.compare("open the settings", "go to settings")).verdict == "unclear"
