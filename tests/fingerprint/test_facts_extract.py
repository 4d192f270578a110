"""What plain code sees in one message."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerprint.comparisons.view import view
from fingerprint.conversation import Message, Turn
from fingerprint.facts import FACTS_SCHEMA, Fingerprint, direct_key, fingerprint_of
from fingerprint.facts.extract import MAX_CHARACTERS, facts_of, is_slip, language_of


def turn(*texts: str) -> Turn:
    """A conversation that ends with a user message; roles alternate."""
    roles = ["user" if (len(texts) - at) % 2 else "assistant" for at in range(len(texts))]
    messages = [Message(role, text) for role, text in zip(roles, texts, strict=True)]
    return Turn((), tuple(messages[:-1]), messages[-1])


def amounts(text: str) -> set[tuple[float, str]]:
    return {(q.value, q.dimension) for q in facts_of(text).numbers}


@pytest.mark.parametrize(
    ("text", "value", "dimension"),
    [
        ("It weighs 25 kg", 25_000, "mass"),
        ("It weighs twenty-five kilograms", 25_000, "mass"),
        ("six hundred and twenty euros", 620, "eur"),
        ("It costs 1,234.50 euros", 1234.5, "eur"),
        ("It costs $12", 12, "usd"),
        ("It takes 90 minutes", 5400, "time"),
        ("It takes 1.5 hours", 5400, "time"),
        ("What is 15% of it?", 15, "percent"),
        ("１２％的折扣", 12, "percent"),
        ("三百二十块钱", 320, "cny"),
        ("叁佰贰拾元", 320, "cny"),
        ("三万五千元", 35_000, "cny"),
        ("等了15分钟", 900, "time"),
        ("等了一刻钟", 900, "time"),
        ("两公斤", 2000, "mass"),
    ],
)
def test_an_amount_is_one_value_however_it_is_written(text: str, value: float, dimension: str) -> None:
    assert (value, dimension) in amounts(text)


@pytest.mark.parametrize(
    "text", ["看一下", "我一直登不上", "怎么统一格式", "三体好看吗", "The first thing", "no one knows"]
)
def test_a_numeral_inside_a_word_counts_nothing(text: str) -> None:
    assert not [q for q in facts_of(text).numbers if q.dimension != "ordinal"]


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("on 9 February", "day:02-09"),
        ("on Feb. 9th", "day:02-09"),
        ("on 2025-02-09", "day:02-09"),
        ("in May 2024", "year:2024"),
        ("in May 2024", "month:5"),
        ("at 7:30 pm", "clock:19:30"),
        ("at 19:30", "clock:19:30"),
        ("at 730pm", "clock:19:30"),
        ("at 12 am", "clock:00:00"),
        ("on Saturday 21 June", "day:06-21"),
        ("on Monday", "weekday:1"),
        ("tomorrow", "relative:+1d"),
        ("3月5号", "day:03-05"),
        ("三月五号", "day:03-05"),
        ("周一", "weekday:1"),
        ("星期一", "weekday:1"),
        ("下个月", "relative:+1m"),
        ("下午三点半", "clock:03:30"),
    ],
)
def test_a_date_is_one_value_however_it_is_written(text: str, time: str) -> None:
    assert time in facts_of(text).times


def test_a_modal_verb_is_no_month() -> None:
    assert not facts_of("May I return it?").times


def test_literals_are_told_apart() -> None:
    literals = facts_of(
        'Ticket SUP-4471 on https://example.org/a?b=1 says "no space left" in /etc/hosts '
        "with `x == 1` and C++, Python 3.8"
    ).literals
    assert literals.ids == ("sup4471",)
    assert literals.urls == ("example.org/a?b=1",)
    assert literals.quoted == ("no space left",)
    assert set(literals.code) >= {"/etc/hosts", "x == 1", "c++"}
    assert literals.versions == ("3.8",)


@pytest.mark.parametrize("text", ["6 miles from Philz 6 miles away", "Kepler 90 minutes"])
def test_a_quantity_after_a_name_is_no_version(text: str) -> None:
    assert facts_of(text).literals.versions == ()


def test_the_text_handed_over_is_kept_apart_from_the_request() -> None:
    assert facts_of("Summarise: The ferry is late because of ice.").literals.given == "the ferry is late because of ice"
    assert facts_of("请总结：今天天气很好，我们去公园。").literals.given.startswith("今天天气很好")
    assert facts_of("The train leaves at 7:30 tonight").literals.given == ""


@pytest.mark.parametrize(
    ("text", "kept", "gone"),
    [
        ("Which ocean lies to the west of Spain, no, Portugal?", "portugal", "spain"),
        ("从法兰克福，不对，从罗马出发", "罗马", "法兰克福"),
    ],
)
def test_what_the_speaker_takes_back_is_not_a_fact(text: str, kept: str, gone: str) -> None:
    said = " ".join(sentence.text for sentence in facts_of(text).sentences)
    assert kept in said
    assert gone not in said


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("How many bones are there?", "how_many"),
        ("What does the cruise cost?", "how_much"),
        ("When was it founded?", "when"),
        ("Why is the sky blue?", "why"),
        ("怎么重置密码", "how"),
        ("要多久", "how_long"),
        ("为什么打不开", "why"),
        ("在哪里办", "where"),
    ],
)
def test_the_kind_of_question_is_named(text: str, kind: str) -> None:
    assert facts_of(text).question == kind


@pytest.mark.parametrize(
    "text", ["When was it founded?", "Yes, please.", "the second one", "And on Sundays?", "那泰国呢", "好的"]
)
def test_a_turn_that_leans_on_what_was_said_is_known(text: str) -> None:
    assert not fingerprint_of(turn(text)).self_contained


@pytest.mark.parametrize("text", ["How do I descale an electric kettle?", "怎么重置路由器的密码？"])
def test_a_turn_that_stands_alone_is_known(text: str) -> None:
    assert fingerprint_of(turn(text)).self_contained


@pytest.mark.parametrize(
    "text", ["有什么好玩的单机游戏不？", "怎么辨别公母", "莫扎特有哪些作品", "这个非常好用", "要不要打开"]
)
def test_a_chinese_character_of_negation_inside_a_word_negates_nothing(text: str) -> None:
    assert not fingerprint_of(turn(text)).negated


@pytest.mark.parametrize(
    "text", ["怎么不让他看到", "没买保险能退吗", "without a visa", "Which plants can't live in shade?"]
)
def test_a_negation_is_seen(text: str) -> None:
    assert fingerprint_of(turn(text)).negated


def test_spelling_slips_are_told_from_other_names() -> None:
    assert is_slip("photosyntesis", "photosynthesis")
    assert is_slip("plnats", "plants")
    assert not is_slip("spotify", "shopify", names=True)
    assert not is_slip("rome", "oslo")
    assert not is_slip("gearbox", "letterbox")
    assert not is_slip("brackwell", "brockwell", names=True)


def test_languages() -> None:
    assert language_of("怎么用 Excel 冻结首行") == "zh"
    assert language_of("How do I use it?") == "en"
    assert language_of("ما هي عاصمة المغرب؟") == "other"


def test_one_entity_one_action_one_object_meet() -> None:
    keys = {
        direct_key(turn(text))
        for text in (
            "check order #ORD-789",
            "order 789, what's its status?",
            "Where is my order 789?",
            "What's up with order 789?",
        )
    }
    assert len(keys) == 1
    assert None not in keys
    assert direct_key(turn("订单789到哪了")) == direct_key(turn("查一下订单789")) != None  # noqa: E711


@pytest.mark.parametrize(
    "text",
    [
        "check order 790",
        "cancel order 789",
        "check invoice 789",
        "check order 789 and 790",
        "don't check order 789",
        "check order 789 on Monday",
        "why was order 789 late?",
        "check order 789 for my neighbour",
        "check the order",
    ],
)
def test_a_direct_key_never_stands_for_more_than_it_says(text: str) -> None:
    assert direct_key(turn(text)) != direct_key(turn("check order 789"))


def test_a_fingerprint_can_be_stored_and_read_back() -> None:
    before = fingerprint_of(turn("hi", "Shall I send 2 kg?", "check order #ORD-789 for my daughter on 3 May, not 4 kg"))
    assert before.schema == FACTS_SCHEMA
    for codec in (msgspec.msgpack, msgspec.json):
        assert codec.decode(codec.encode(before), type=Fingerprint) == before


@given(st.text(max_size=300))
def test_any_text_has_facts(text: str) -> None:
    assert facts_of(text) == facts_of(text)
    fingerprint_of(turn(text))
    direct_key(turn(text))


@pytest.mark.parametrize("unit", ["a", "1,", "“", "may 1 ", "，不", "\ud800"])
def test_a_text_of_100_kb_is_read_up_to_a_limit_and_its_rest_still_counts(unit: str) -> None:
    text = (unit * 100_000)[:100_000]
    facts = facts_of(text)
    assert facts.overflow
    assert facts.overflow != facts_of(text[:MAX_CHARACTERS] + "x" + text[MAX_CHARACTERS + 1 :]).overflow
    assert facts.overflow != facts_of(text[:-1]).overflow


@pytest.mark.parametrize("text", ["不\ud800 不不5", "\ud800你好吗，不对，5", "不\ud800 不好"])
def test_a_lone_surrogate_among_chinese_is_read_over(text: str) -> None:
    assert facts_of(text).language == "zh"
    assert view(text, "zh").text == text
