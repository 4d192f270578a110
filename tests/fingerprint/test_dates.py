"""Relative dates: what "yesterday" means depends on the day, and on nothing else."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerprint.chat import turn_from_messages
from fingerprint.dates import Relative, agree, relative_dates, relative_dates_of, resolve

TODAY = date(2026, 11, 29)  # a Sunday


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("I bought it yesterday, can I return it?", "2026-11-28"),
        ("what happened the day before yesterday?", "2026-11-27"),
        ("is it open the day after tomorrow?", "2026-12-01"),
        ("It broke three days ago.", "2026-11-26"),
        ("it broke 3 days ago", "2026-11-26"),
        ("It arrives in 10 days", "2026-12-09"),
        ("summarise last week's report", "2026-W47"),
        ("the plan for next week", "2026-W49"),
        ("two weeks ago I ordered", "2026-W46"),
        ("my invoice of last month", "2026-10"),
        ("eleven months ago", "2025-12"),
        ("in 2 months", "2027-01"),
        ("figures of last quarter", "2026-Q3"),
        ("next quarter's target", "2027-Q1"),
        ("our revenue last year", "2025"),
        ("five years ago", "2021"),
        ("from yesterday to tomorrow", "2026-11-28;2026-11-30"),
        ("we met last Monday", "2026-11-29"),
        ("over the last few days it rained", "2026-11-29"),
        ("Yesterday’s mail", "2026-11-28"),
        ("昨天买的能退吗", "2026-11-28"),
        ("前天下单的", "2026-11-27"),
        ("大前天", "2026-11-26"),
        ("后天到吗", "2026-12-01"),
        ("三天前坏了", "2026-11-26"),
        ("两周后开始", "2026-W50"),
        ("上周的报告", "2026-W47"),
        ("上周一的会议", "2026-11-29"),
        ("上个月的账单", "2026-10"),
        ("去年的收入", "2025"),
        ("前年", "2024"),
        ("本季度的目标", "2026-Q4"),
        ("gestern gekauft", "2026-11-28"),
        ("das war vor zwei wochen", "2026-W46"),
        ("je l'ai acheté avant-hier", "2026-11-27"),
        ("lo compré anteayer", "2026-11-27"),
    ],
)
def test_a_relative_date_is_what_it_means_on_that_day(text: str, meaning: str) -> None:
    assert resolve(relative_dates(text), TODAY) == meaning


@pytest.mark.parametrize(
    "text",
    [
        "How do I reset my router?",
        "What is the capital of Portugal?",
        "Book a table for two on 3 March 2027.",
        "How many days has a leap year?",
        "What is a sundae?",
        "怎么重置密码",
        "一年有多少天",
        "wie alt ist der eiffelturm",
        "",
    ],
)
def test_what_speaks_of_no_relative_date_means_the_same_on_every_day(text: str) -> None:
    assert relative_dates(text) == frozenset()
    assert resolve(relative_dates(text), TODAY) == ""


def test_yesterday_never_means_last_weeks_yesterday() -> None:
    said = relative_dates("What was decided yesterday?")
    meanings = {resolve(said, TODAY - timedelta(days=days)) for days in range(60)}
    assert len(meanings) == 60
    assert not any(agree(resolve(said, TODAY), resolve(said, TODAY - timedelta(days=days))) for days in range(1, 60))


def test_everything_the_user_said_counts_and_nothing_the_assistant_did() -> None:
    said = [
        {"role": "user", "content": "I bought it yesterday."},
        {"role": "assistant", "content": "Then come by tomorrow."},
        {"role": "user", "content": "And when do you close?"},
    ]
    assert relative_dates_of(turn_from_messages(said)) == {Relative("day", -1)}


def test_two_turns_agree_unless_both_speak_of_days_and_mean_others() -> None:
    assert agree("", "")
    assert agree("2026-11-28", "")
    assert agree("2026-11-28", "2026-11-28")
    assert not agree("2026-11-28", "2026-11-27")
    assert not agree("2026-11-28", "2026-11-28;2026-W48")


@given(st.text(max_size=400), st.dates(date(2, 1, 1), date(9998, 1, 1)))
def test_no_text_and_no_day_raises(text: str, today: date) -> None:
    assert resolve(relative_dates(text), today) == resolve(relative_dates(text), today)


@given(
    st.sampled_from(["day", "week", "month", "quarter", "year"]),
    st.integers(-2000, 2000),
    st.dates(date(1950, 1, 1), date(2100, 1, 1)),
)
def test_a_span_and_the_next_one_are_two_and_resolve_stepwise(unit: str, offset: int, today: date) -> None:
    one, two = Relative(unit, offset), Relative(unit, offset + 1)  # type: ignore[arg-type]
    assert resolve([one], today) != resolve([two], today)
    if unit == "day":
        assert resolve([two], today) == resolve([one], today + timedelta(days=1))
    if unit == "week":
        assert resolve([two], today) == resolve([one], today + timedelta(days=7))


@given(st.integers(10**4, 10**40))
def test_absurd_numbers_are_no_fault(number: int) -> None:
    for text in (f"{number} days ago", f"{number} weeks ago", f"in {number} years", f"{number}天前"):
        resolve(relative_dates(text), TODAY)


@given(st.integers(0, 300), st.integers(0, 300), st.sampled_from(["x", " ", "word ", "天"]))
def test_it_is_found_wherever_it_stands(before: int, after: int, padding: str) -> None:
    text = f"{padding * before} the day before yesterday {padding * after}"
    if len(text) <= 2_000:
        assert Relative("day", -2) in relative_dates(text)
        assert Relative("day", -1) not in relative_dates(text)
