"""Which wordings can stand for one another in a history: those that tell neither more nor less."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerprint.facts.interchange import says_otherwise

RESET = "How do I reset my router?"
BREAKFAST = "When is breakfast?"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (RESET, "What's the way to reset my router?"),
        (RESET, "Hi! How do I reset my router? Thanks!"),
        (RESET, "Sorry to bother you. How do I reset my router?"),
        (RESET, "how do i reset my rouetr"),
        (RESET, "Could you please tell me how to reset my router?"),
        ("What time is breakfast served at the weekend?", "At what hour do you serve breakfast on weekends?"),
        ("And how many people live there?", "Thanks! And how many people live there?"),
        ("我怎么重置路由器？", "请问我怎么重置路由器？谢谢"),
    ],
)
def test_other_words_for_the_same_are_no_difference(one: str, other: str) -> None:
    assert says_otherwise(one, other) == says_otherwise(other, one) == ""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (BREAKFAST, "I'm vegan. When is breakfast?"),
        (BREAKFAST, "As a vegan, when is breakfast?"),
        (BREAKFAST, "When is breakfast for my son?"),
        (BREAKFAST, "When is breakfast on 3 May?"),
        (BREAKFAST, "When is breakfast? We come by car."),
        (RESET, "I'm Alice from Bristol. How do I reset my router?"),
        (RESET, "Alice here, how do I reset my router?"),
        (RESET, "hi im mike, how do i reset my router"),
        (RESET, "How do I reset my router, model X200?"),
        (RESET, "How do I reset my router for customer 4711?"),
        (RESET, "How do I reset my router? Never call me."),
        ("How long do I boil eggs?", "How long do I boil eggs at high altitude?"),
        ("How long do I boil eggs?", "How long do I boil eggs for my 8 year old?"),
        ("早餐几点？", "我吃素。早餐几点？"),
    ],
)
def test_what_only_one_of_them_tells_is_a_difference(one: str, other: str) -> None:
    assert says_otherwise(one, other)
    assert says_otherwise(other, one)


@given(st.text(), st.text())
def test_it_is_symmetric_and_everything_stands_for_itself(one: str, other: str) -> None:
    assert says_otherwise(one, one) == ""
    assert says_otherwise(one, other) == says_otherwise(other, one)
