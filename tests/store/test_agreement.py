"""Two answers to one question: what agrees, what differs, and what nobody may take for agreement."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.agreement import Limits, compare, fact_conflicts

NEAR = 0.99  # as good as the same, if only the embedder were asked

CONTRADICTIONS = [
    ("The capital of France is Paris.", "The capital of France is Lyon.", "entities"),
    ("It is Lyon.", "The capital of France is Paris.", "entities"),
    ("You may return it within 30 days.", "Items can be returned within 14 days.", "numbers"),
    ("42", "It is 43.", "numbers"),
    ("It costs $20 per month.", "It costs €20 per month.", "units"),
    ("The meeting is on 3 March 2025.", "The meeting takes place on March 4th, 2025.", "dates"),
    ("Use `git reset --hard HEAD~1`.", "Use `git reset --soft HEAD~1`.", "code"),
    ("Yes, you can.", "No, you cannot.", "polarity"),
    ("The shop is open on Sunday.", "The shop is not open on Sunday.", "polarity"),
    ("退款需要5个工作日。", "退款需要7个工作日。", "numbers"),
    ("可以退货。", "不可以退货。", "polarity"),
]


@pytest.mark.parametrize(("one", "other", "fact"), CONTRADICTIONS)
def test_a_fact_that_differs_outvotes_any_similarity(one: str, other: str, fact: str) -> None:
    found = compare(one, other, NEAR)
    assert found.verdict == "differ"
    assert found.reason.startswith(fact)
    assert fact_conflicts(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Refunds take 5 business days.", "Refunds take about five working days."),
        ("The meeting is on 3 March 2025.", "The meeting takes place on March 3rd, 2025."),
        ("Open the app, tap Profile, then tap Log out.", "1. Open the app.\n2. Tap **Profile**.\n3. Tap Log out."),
        ("Wait 90 minutes.", "Wait 1.5 hours."),
        ("退款需要5个工作日。", "退款大约要五个工作日。"),
    ],
)
def test_the_same_said_otherwise_agrees_where_the_embedder_thinks_so_too(one: str, other: str) -> None:
    assert compare(one, other, NEAR).verdict == "agree"
    assert compare(one, other, None).verdict == "unclear"
    assert compare(one, other, 0.9).verdict == "unclear"
    assert fact_conflicts(one, other) == ()


def test_the_same_words_agree_without_an_embedder() -> None:
    assert compare("Paris.\n", "Paris.", None).verdict == "agree"


def test_answers_that_are_far_apart_differ_though_no_fact_does() -> None:
    assert compare("Ask the front desk.", "Turn it off and on again.", 0.3).verdict == "differ"


def test_an_answer_within_the_other_is_unclear_however_far_apart_they_are() -> None:
    assert compare("Yes.", "Yes, it is.", 0.3).verdict == "unclear"
    assert compare("4", "2 + 2 = 4", 0.3).verdict == "unclear"


def test_a_number_only_one_answer_states_is_no_agreement() -> None:
    one = "Open Settings, choose Security and press Reset; the link in the e-mail is valid for 24 hours."
    assert compare(one, "Open Settings, choose Security and press Reset; the link is in the e-mail.", 1.0).verdict == (
        "unclear"
    )


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_answer_without_text_is_never_agreed_with(text: str) -> None:
    assert compare(text, "", 1.0).verdict == "unclear"
    assert compare(text, "Paris.", 1.0).verdict == "unclear"


def test_what_lies_beyond_the_part_read_closely_is_never_agreed_with() -> None:
    long = "word " * 2_000
    assert compare(long + "yes", long + "no", 1.0).verdict != "agree"


def test_the_limits_are_the_callers() -> None:
    one, other = "Cancel whenever you like.", "Cancellation is possible at any time."
    assert compare(one, other, 0.8).verdict == "unclear"
    assert compare(one, other, 0.8, limits=Limits(agree=0.8, differ=0.5)).verdict == "agree"
    assert compare(one, other, 0.8, limits=Limits(agree=0.9, differ=0.85)).verdict == "differ"


PIECES = "yes|no|not|the|3|14|days|Paris|Lyon|$20|€20|`a`|不|可以|5个|.|,|?|1.|-|**|\n|2025-03-04"
texts = st.lists(st.sampled_from(PIECES.split("|"))).map(" ".join)


@given(texts, texts, st.none() | st.floats(-1, 1))
def test_it_never_matters_which_answer_comes_first(one: str, other: str, cosine: float | None) -> None:
    assert compare(one, other, cosine) == compare(other, one, cosine)


@given(st.text(max_size=300), st.floats(-1, 1))
def test_no_text_breaks_it_and_every_text_agrees_with_itself(text: str, cosine: float) -> None:
    assert compare(text, text, cosine).verdict == ("agree" if text.strip() else "unclear")
    compare(text, "The answer is 5.", cosine)
