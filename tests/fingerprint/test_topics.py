"""Where the topic of a conversation shifts, and what stands for a long one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fingerprint.conversation import Message, Turn
from fingerprint.facts.topics import relevant_rounds, rounds_of, shifts, summary_of


def said(*texts: str) -> tuple[Message, ...]:
    return tuple(Message(("user", "assistant")[number % 2], text) for number, text in enumerate(texts))


PASSPORT = said(
    "How do I renew my passport before a trip?",
    "You apply online at the passport office. It takes three weeks.",
    "And how much does it cost?",
    "It costs 85 euros.",
)
护照 = said("怎么在网上续签护照？", "您可以在出入境管理局的网站申请续签护照，需要三周。")


@pytest.mark.parametrize(
    "text", ["How do I descale an electric kettle with vinegar?", "Which trees stay green in autumn and winter?"]
)
def test_a_question_that_shares_nothing_with_the_conversation_is_another_topic(text: str) -> None:
    assert shifts(text, PASSPORT)
    assert relevant_rounds(Turn((), PASSPORT, Message("user", text)), 5) == []


@pytest.mark.parametrize(
    "text",
    ["And for a child?", "yes please", "the second one", "How long does the passport office take to renew a passport?"],
)
def test_a_turn_that_leans_on_the_conversation_is_no_other_topic(text: str) -> None:
    assert not shifts(text, PASSPORT)
    assert len(relevant_rounds(Turn((), PASSPORT, Message("user", text)), 5)) == 2


def test_topics_shift_in_chinese_too() -> None:
    assert shifts("怎么用白醋给家里的电热水壶除垢？", 护照)
    assert not shifts("那孩子呢", 护照)
    assert not shifts("出入境管理局多久能办好护照续签？", 护照)


def test_nothing_said_before_is_no_shift() -> None:
    assert not shifts("How do I descale an electric kettle?", ())


def test_rounds_before_an_earlier_shift_do_not_count() -> None:
    kettle = said("How do I descale an electric kettle with vinegar?", "Boil equal parts of vinegar and water in it.")
    turn = Turn((), (*PASSPORT, *kettle), Message("user", "and how often?"))
    assert [round_.messages for round_ in relevant_rounds(turn, 5)] == [kettle]


def test_a_round_is_a_question_with_all_that_follows_it() -> None:
    history = (*said("a", "b"), Message("tool", "{}"), Message("assistant", "c"), *said("d"))
    assert [[m.text for m in r.messages] for r in rounds_of(history, 5)] == [["d"], ["a", "b", "c"]]
    assert len(rounds_of(history, 1)) == 1
    assert rounds_of((), 5) == []


def test_a_summary_names_the_topic_and_keeps_to_its_length() -> None:
    summary = summary_of(PASSPORT * 5, 120)
    assert "passport" in summary
    assert len(summary) <= 120
    assert summary_of((), 100) == ""
    assert "护照" in summary_of(护照)


MESSAGES = st.lists(st.text(max_size=80), max_size=6).map(lambda texts: said(*texts))


@settings(deadline=None)
@given(st.text(max_size=80), MESSAGES)
def test_any_conversation_has_rounds_and_a_summary(text: str, history: tuple[Message, ...]) -> None:
    turn = Turn((), history, Message("user", text))
    rounds = relevant_rounds(turn, 3)
    assert len(rounds) <= 3
    assert rounds == rounds_of(history, 3)[: len(rounds)]
    assert len(summary_of(history, 200)) <= 200


@pytest.mark.parametrize("unit", ["word ", "不要，", "a. "])
def test_long_conversations_are_read_in_bounded_time(unit: str) -> None:
    history = said(*[(unit * 20_000)[:20_000]] * 10)
    relevant_rounds(Turn((), history, Message("user", "Where does the night train stop in winter?")), 5)
    summary_of(history)
