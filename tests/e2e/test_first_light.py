"""One scripted conversation: the real SGLang with SmolLM2, the real proxy, the `openai` SDK.

Every test starts with a first user whose answers come from the model, and then asks what a second user of the same app
gets. The model is small and often wrong; what counts is whose answer it is.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.conftest import Chat

pytestmark = pytest.mark.backend

QUESTION = "What is the capital of France?"
FOLLOW_UP = "And how many people live there?"


async def the_first_user(chat: Chat) -> tuple[str, str]:
    """Ask both questions; whether the model or the cache answers is not looked at."""
    return (await chat.ask(QUESTION)).text, (await chat.ask(FOLLOW_UP, "stream")).text


async def test_the_first_user_is_answered_by_the_model(chat: Callable[[], Chat]) -> None:
    first = chat()
    opening = await first.ask(QUESTION)
    assert (opening.reuse, opening.text) == ("miss", "The capital of France is Paris.")
    follow_up = await first.ask(FOLLOW_UP, "stream")
    assert follow_up.reuse == "miss"
    assert "Paris" in follow_up.text
    assert opening.entry and follow_up.entry and opening.entry != follow_up.entry


@pytest.mark.parametrize("how", ["sync", "async", "stream", "async stream"])
async def test_the_same_words_get_the_same_answers_whichever_way_they_were_asked(
    chat: Callable[[], Chat], how: str
) -> None:
    answers = await the_first_user(chat())
    second = chat()
    for question, answer in zip((QUESTION, FOLLOW_UP), answers, strict=True):
        reply = await second.ask(question, how)
        assert (reply.reuse, reply.text) == ("answer", answer)


@pytest.mark.parametrize(
    ("how", "question", "follow_up"),
    [
        ("sync", "What's the capital of France?", "Tell me how many people live there."),
        ("async", "Can you tell me the capital of France?", "Thanks! And how many people live there?"),
        ("stream", "Could you please tell me what the capital of France is?", "Tell me how many people live there."),
    ],
)
async def test_the_second_user_in_other_words_gets_the_same_answers(
    chat: Callable[[], Chat], how: str, question: str, follow_up: str
) -> None:
    answers = await the_first_user(chat())
    second = chat()
    for words, answer in zip((question, follow_up), answers, strict=True):
        reply = await second.ask(words, how)
        assert (reply.reuse, reply.text) == ("answer", answer), reply


async def test_the_same_words_under_another_context_are_answered_by_the_model(chat: Callable[[], Chat]) -> None:
    _, paris = await the_first_user(chat())
    other = chat()
    assert (await other.ask("What is the capital of Italy?")).reuse == "miss"
    reply = await other.ask(FOLLOW_UP)
    assert reply.reuse != "answer"
    assert reply.text != paris
    assert "Rome" in reply.text


@pytest.mark.parametrize(
    ("asked", "changed"),
    [
        pytest.param("What is 5 plus 3?", "What is 5 plus 4?", id="a number changed"),
        pytest.param("Which animals can fly?", "Which animals can not fly?", id="negated"),
    ],
)
async def test_a_changed_question_is_answered_by_the_model(chat: Callable[[], Chat], asked: str, changed: str) -> None:
    answer = (await chat().ask(asked)).text
    again = await chat().ask(asked, "async")
    assert (again.reuse, again.text) == ("answer", answer), "the first answer must be there to be reused wrongly"
    reply = await chat().ask(changed)
    assert reply.reuse != "answer"
    assert reply.text != answer
