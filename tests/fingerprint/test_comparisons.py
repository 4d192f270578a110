"""The comparisons of two turns, as sentences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fingerprint.comparisons import NAMES, compare
from fingerprint.comparisons.view import stem, view
from fingerprint.conversation import Message, Turn

texts = st.text(max_size=200) | st.sampled_from(
    [
        "",
        "yes please",
        "How do I enable 2FA?",
        "怎么关闭两步验证",
        "订单 ORD-789 30天",
        "1,200 €",
        "a" * 300,
        "二〇二六年3月5日",
        "½",
        "②",
    ]
)
histories = st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool"]), texts), max_size=4)


def turn(last: str, *before: str) -> Turn:
    roles = ("user", "assistant")
    return Turn((), tuple(Message(roles[i % 2], text) for i, text in enumerate(before)), Message("user", last))


def value(name: str, a: Turn, b: Turn, *, similarity: float = 0.9, same_place: bool = False) -> float:
    return float(compare(a, b, similarity=similarity, same_place=same_place)[NAMES.index(name)])


@settings(max_examples=60, deadline=None)
@given(texts, texts, histories, histories, st.booleans())
def test_the_comparisons_are_finite_and_the_same_whichever_turn_comes_first(
    one: str, other: str, before: list[tuple[str, str]], around: list[tuple[str, str]], same_place: bool
) -> None:
    a = Turn((), tuple(Message(r, t) for r, t in before), Message("user", one))
    b = Turn((), tuple(Message(r, t) for r, t in around), Message("user", other))
    forth = compare(a, b, similarity=0.5, same_place=same_place)
    back = compare(b, a, similarity=0.5, same_place=same_place)
    assert forth.shape == (len(NAMES),) and forth.dtype == np.float32
    assert np.isfinite(forth).all()
    assert np.array_equal(forth, back)


@settings(max_examples=25, deadline=None)
@given(texts, histories)
@example("怎么退款？", [("user", "订单 12"), ("assistant", "好的")])
def test_a_turn_compared_with_itself_differs_in_nothing(text: str, before: list[tuple[str, str]]) -> None:
    a = Turn((), tuple(Message(r, t) for r, t in before), Message("user", text))
    row = dict(zip(NAMES, compare(a, a, similarity=1.0, same_place=False), strict=True))
    assert row["history.equal"] == row["equal_stems"] == row["answered.equal"] == 1.0
    for name in (
        "soft.gap.max",
        "open.gap.max",
        "residue.user.gap.max",
        "antonyms",
        "numbers.only.max",
        "edit.replaced",
    ):
        assert row[name] == pytest.approx(0.0, abs=1e-5)


def test_names_are_distinct() -> None:
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize(
    "text", ["word " * 20_000, "x" * 100_000, "数字" * 50_000, "1 " * 50_000, "\u0301" * 100_000, "((((" * 25_000]
)
def test_a_message_of_100_kilobytes_is_read_in_bounded_pieces(text: str) -> None:
    one = view(text, "en")
    assert len(one.tokens) <= 800
    assert np.isfinite(compare(turn(text), turn(text + "!"), similarity=0.9, same_place=False)).all()


def test_long_messages_that_differ_in_the_middle_are_not_the_same() -> None:
    start, end = "start " * 1000, " end" * 1000
    assert value("equal_stems", turn(start + "red" + end), turn(start + "blue" + end)) == 0.0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("wait two hundred days", "wait 200 days"),
        ("pay $1,200", "pay 1200 dollars"),
        ("at 5 pm", "at 17:00"),
        ("order ORD-789", "order ord789"),
        ("3.20 TB", "3.2 terabytes"),
        ("三十五天", "35天"),
        ("两千元", "2000块"),
        ("1.5万人", "15000人"),
        ("二〇二六年", "2026年"),
    ],
)
def test_one_number_written_in_two_ways_is_one_number(one: str, other: str) -> None:
    assert value("numbers.only.max", turn(one), turn(other)) == 0.0
    assert value("quantities.only.max", turn(one), turn(other)) == 0.0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("8 GB of memory", "16 GB of memory"),
        ("等3天", "等5天"),
        ("第二个", "第三个"),
        ("3 kg", "3 lb"),
        ("30分钟前", "30天前"),
    ],
)
def test_another_number_or_unit_is_seen(one: str, other: str) -> None:
    numbers = value("numbers.only.max", turn(one), turn(other))
    assert numbers + value("quantities.only.max", turn(one), turn(other)) > 0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("how do I enable it", "how do I disable it"),
        ("turn on the alarm", "turn off the alarm"),
        ("the minimum age", "the maximum age"),
        ("怎么打开定位", "怎么关闭定位"),
        ("导入联系人", "导出联系人"),
    ],
)
def test_opposites_are_known_by_name(one: str, other: str) -> None:
    assert value("antonyms", turn(one), turn(other)) >= 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("can I return it", "can't I return it"),
        ("I paid", "I haven't paid"),
        ("能退吗", "不能退吗"),
        ("收到了", "没收到"),
    ],
)
def test_a_negation_on_one_side_is_counted(one: str, other: str) -> None:
    assert value("negation.only.max", turn(one), turn(other)) >= 1


def test_an_unknown_word_a_letter_off_is_a_misspelling_and_two_known_words_are_not() -> None:
    assert value("soft.missing.max", turn("reset my pasword"), turn("reset my password")) == 0
    assert value("soft.worst.max", turn("enable it"), turn("disable it")) > 0


def test_contractions_and_endings_do_not_matter() -> None:
    assert value("equal_stems", turn("what's wrong, it isn't working"), turn("What is wrong, it is not working")) == 1
    assert stem("refunded") == stem("refunds") == stem("refund")
    assert stem("stopping") == stem("stops")


def test_what_the_history_says_closes_what_the_message_leaves_open() -> None:
    short = turn("and for dogs?", "Which food is best for cats?", "Kibble is fine.")
    whole = turn("Which food is best for dogs?")
    assert value("open.gap.max", short, whole) < value("soft.gap.max", short, whole)


def test_the_same_reply_to_another_offer_is_told_apart() -> None:
    one = turn("yes please", "my parcel is late", "Shall I open a claim?")
    other = turn("yes please", "my parcel is late", "Shall I cancel the order?")
    assert value("answered.equal", one, other) == 0
    assert value("answered.gap.max", one, other) > 0


def test_at_the_same_place_histories_are_not_compared() -> None:
    one = turn("yes please", "my parcel is late", "Shall I open a claim?")
    other = turn("yes please", "parcel hasn't come", "Should I file a claim?")
    assert value("history.equal", one, other) == 0
    assert value("history.equal", one, other, same_place=True) == 1
