"""The third stage: a model is asked about the middle band, and only a clear yes serves."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerprint.conversation import Message, Turn
from store.opinion import NoOpinion, Scale, asked, messages_of, served_by, yes_share
from store.types import Decision, Policy, Query
from tests.store.support import Open, ask, no_objections, say

BAND = Policy(answer=0.95, verify=0.3)
STORED, ASKED = "one two three four five", "one two three four six"  # similarity about 0.8


class Says:
    """An opinion that says the same of everything, and remembers what it was asked."""

    def __init__(self, probability: float, least: float = 0.9) -> None:
        self.least = least
        self._probability = probability
        self.asked: list[tuple[str, str, str]] = []

    async def serves(self, query: Query, stored: Turn, answer: str) -> float:
        self.asked.append((query.turn.message.text, stored.message.text, answer))
        if self._probability < 0:
            raise NoOpinion("nothing")
        if self._probability > 1:
            raise RuntimeError("broken")
        return self._probability


@pytest.mark.parametrize(
    ("probability", "served"), [(0.95, True), (0.9, True), (0.89, False), (-1.0, False), (2.0, False)]
)
async def test_only_a_clear_yes_serves_and_then_as_suspect(open_cache: Open, probability: float, served: bool) -> None:
    cache = await open_cache(policy=BAND)
    cache.opinion = opinion = Says(probability)
    cache.record(ask(STORED), say("the answer"))
    await cache.flush()
    decision, hit = await cache.search(ask(ASKED))
    assert opinion.asked == [(ASKED, STORED, "the answer")]
    assert (hit is not None) == served
    if hit is not None:
        assert (decision.level, decision.suspect, hit.state, hit.kind) == ("answer", True, "suspect", "band")
    else:
        assert decision.level == "kv"


async def test_nobody_is_asked_about_what_is_sure_or_vetoed_or_far_away(open_cache: Open) -> None:
    cache = await open_cache(policy=BAND)
    cache.opinion = opinion = Says(1.0)
    cache.record(ask(STORED), say("the answer"))
    await cache.flush()
    assert (await cache.search(ask("quite other words")))[1] is None
    assert (await cache.search(ask(STORED + "?")))[1] is not None  # sure
    await cache.explain(ask(ASKED))
    assert opinion.asked == []


async def test_a_guard_is_not_overruled(open_cache: Open) -> None:
    cache = await open_cache(policy=BAND, objections=lambda a, b, same: ((), ("numbers",)))
    cache.opinion = opinion = Says(1.0)
    cache.record(ask(STORED), say("the answer"))
    await cache.flush()
    assert (await cache.search(ask(ASKED)))[1] is None
    assert opinion.asked == []


async def test_what_the_error_budget_holds_back_is_not_asked_about() -> None:
    held = Decision("kv", "held back by the error budget", "e", 0.97)
    assert not asked(held, BAND)
    assert asked(replace(held, confidence=0.9), BAND)
    assert not asked(replace(held, level="miss", confidence=0.9), BAND)
    assert served_by(held).suspect
    assert no_objections(ask("a").turn, ask("a").turn, True) == ((), ())


def reply(*words: tuple[str, float]) -> dict[str, Any]:
    top = [{"token": token, "logprob": math.log(mass)} for token, mass in words]
    return {"choices": [{"logprobs": {"content": [{"top_logprobs": top}]}}]}


def test_the_share_of_yes_is_taken_among_yes_and_no_however_they_are_spelt() -> None:
    assert yes_share(reply((" Yes", 0.3), ("yes", 0.3), ("No", 0.2), ("The", 0.2))) == pytest.approx(0.75)
    assert yes_share(reply(("是", 0.5), ("否", 0.5))) == pytest.approx(0.5)
    assert yes_share(reply(("yes", 0.5))) == 1.0


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"choices": []},
        {"choices": [{"logprobs": None}]},
        reply(("The", 0.9)),
        {"choices": [{"logprobs": {"content": [{"top_logprobs": [{"token": "yes", "logprob": "x"}]}]}}]},
    ],
)
def test_a_reply_without_yes_or_no_is_no_opinion(broken: dict[str, Any]) -> None:
    with pytest.raises(NoOpinion):
        yes_share(broken)


def test_every_question_begins_with_the_same_words_and_holds_all_three_texts() -> None:
    one = messages_of(ask("a", "b", "c?").turn, ask("d?").turn, "the answer")
    other = messages_of(ask("x").turn, ask("y").turn, "z")
    assert one[0] == other[0]
    for text in ("user: a", "assistant: b", "user: c?", "user: d?", "the answer"):
        assert text in one[1]["content"]


def test_what_is_too_long_or_no_text_is_not_asked_about() -> None:
    with pytest.raises(NoOpinion):
        messages_of(ask("a" * 5_000).turn, ask("b").turn, "c")
    with pytest.raises(NoOpinion):
        messages_of(Turn((), (), Message("user", "a", b"image")), ask("b").turn, "c")


@given(st.floats(0, 1), st.floats(0, 100), st.floats(-100, 100))
def test_a_calibrated_share_is_a_probability_that_never_falls(share: float, slope: float, intercept: float) -> None:
    scale = Scale(slope, intercept)
    assert 0 <= scale(share) <= 1
    assert scale(min(1.0, share + 0.1)) >= scale(share)
