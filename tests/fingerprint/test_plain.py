"""A courtesy around a question is no part of it; everything else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerprint.plain import plain

HOW = "How do I reset my router?"


@pytest.mark.parametrize(
    "text",
    [
        HOW,
        "how do I reset my router",
        "Hi! How do I reset my router?",
        "hello how do I reset my router?",
        "Hello there. How do I reset my router? Thanks!",
        "Good morning, how do I reset my router? Thank you in advance.",
        "Quick question: how do I reset my router?",
        "Hi! Quick question: How do I reset my router? Many thanks for your help :)",
        "Sorry to bother you. How do I reset my router?",
        "Can you help me? How do I reset my router, please?",
        "Please help me: how do I  reset\nmy router",
        "Hey, I have a question. How do I reset my router? Cheers",
    ],
)
def test_an_english_question_is_the_same_with_courtesies(text: str) -> None:
    assert plain(text) == "how do I reset my router"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("怎么重置路由器？", "你好，请问怎么重置路由器？谢谢！"),
        ("怎么重置路由器", "您好！请教一下，怎么重置路由器？麻烦您了"),
        ("Wie setze ich den Router zurück?", "Hallo, wie setze ich den Router zurück? Vielen Dank im Voraus!"),
        ("Comment réinitialiser le routeur ?", "Bonjour, comment réinitialiser le routeur, s'il vous plaît ? Merci"),
        ("¿Cómo reinicio el router?", "Hola, ¿Cómo reinicio el router? Gracias de antemano."),
        ("list the planets", "Please list the planets. Thank you!"),
        ("List the planets", "Hi! list the planets"),
    ],
)
def test_so_is_one_in_another_language_or_an_order(one: str, other: str) -> None:
    assert plain(one) == plain(other) is not None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (HOW, "How do I reset my phone?"),
        ("How do I say thanks?", "How do I say?"),
        ("How do you write thank you", "How do you write thanks"),
        ("Hello Kitty price?", "Kitty price?"),
        ("Good morning America cast", "America cast"),
        ("polish remover", "Polish remover"),
        ("IT costs money", "It costs money"),
        ("Is it US law?", "Is it us law?"),
        ("You are ready?", "You are ready."),
        ("Where is Paris, Texas?", "Where is Paris?"),
        ("How do I do as you please?", "How do I do as you?"),
        ("Is it not allowed?", "Is it allowed?"),
        ("What is 2+2?", "What is 2-2?"),
        ("What is 5!?", "What is 5?"),
        ("What is n!?", "What is n?"),
        ("What does the operator ?? do", "What does the operator ? do"),
        ("What is the operator ??", "What is the operator ?"),
        ("What is C#?", "What is C?"),
        ("What is p?", "What is p-"),
        ("How do I turn '  ' into ' '?", "How do I turn ' ' into '  '?"),
        ("Do you mean it, please or not?", "Do you mean it or not?"),
        ("请问候他", "候他"),
        ("退款要3天吗", "退款要5天吗"),
        ("I'm vegan. When is breakfast?", "When is breakfast?"),
    ],
)
def test_whatever_could_mean_something_stays(one: str, other: str) -> None:
    assert plain(one) is None or plain(one) != plain(other)


@pytest.mark.parametrize(
    "text", ["", "Hi!", "Hello, thanks!", "Yes, please", "No, thanks.", "ok", "好的，谢谢", "x" * 500]
)
def test_where_too_little_or_too_much_is_left_nothing_is_said(text: str) -> None:
    assert plain(text) is None


def test_code_and_layout_are_not_touched() -> None:
    assert plain("What does this do?\n```\nx = 1\n```") is None
    assert plain("Hi!\na\nb\nc\nd\ne") is None


WORDS = st.sampled_from(
    (
        *("hi", "Hello", "there", "how", "What", "please", "Please", "thanks", "Thank you", "question", "is", "it"),
        *(
            "Paris",
            ",",
            "!",
            "?",
            ".",
            ":",
            " ",
            "\n",
            "你好",
            "请问",
            "谢谢",
            "怎么",
            "，",
            "Danke",
            "merci",
            "svp",
            "£3",
        ),
    )
)


@given(
    st.one_of(
        st.text(max_size=60), st.lists(WORDS, max_size=12).map(" ".join), st.lists(WORDS, max_size=12).map("".join)
    )
)
def test_it_is_idempotent_and_adds_nothing(text: str) -> None:
    found = plain(text)
    if found is not None:
        assert plain(found) == found
        assert len(found) <= len(text)
        letters = [c for c in text.lower() if c.isalnum()]
        left = [c for c in found.lower() if c.isalnum()]
        at = iter(letters)
        assert all(c in at for c in left)  # what is left was there, in this order
