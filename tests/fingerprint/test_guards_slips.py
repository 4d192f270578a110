"""What is only written otherwise: slips, chat spellings, moods and signatures are no other question."""

from __future__ import annotations

import pytest

from fingerprint.conversation import Message, Turn
from fingerprint.facts import objections


def refused(one: str, other: str) -> tuple[str, ...]:
    return objections(Turn((), (), Message("user", one)), Turn((), (), Message("user", other)), same_place=False)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("How do I reset my password?", "how do i reset my pasword"),
        ("How do I change my password in the app?", "how do I change my Password in the app"),
        ("How do I encrypt a folder?", "how do i encript a folder"),
        ("Any fee for paying off my loan early?", "any fee 4 paying off my loan early?"),
        ("Two-factor login for GitHub?", "2 factor login 4 github?"),
        ("I closed Word without saving, is it lost?", "I closed Word w/o saving, is it lost?"),
        ("Can we change the dates?", "Can we change the dates :("),
        ("Can I renew my licence online?", "Can I renew my licence online? Yours faithfully, D. Larkin"),
        (
            "hourly, starting 1 March. What documents do you need?",
            "starting 1 March, hourly. What documents do you need?",
        ),
        ("My blood draw is at 8:30, when do I stop eating?", "blood draw at 830, when do i stop eating"),
        ("2.7米高的墙要多少漆", "2米7高的墙要多少漆"),
        ("一米七的人穿多大码", "1.7米的人穿多大码"),
        ("三块五能买几个", "3.5元能买几个"),
        ("14点那趟有票吗", "两点那趟有票吗"),
    ],
)
def test_a_slip_or_a_chat_spelling_is_not_refused(one: str, other: str) -> None:
    assert refused(one, other) == ()
    assert refused(other, one) == ()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Is recieve spelled correctly?", "Is receive spelled correctly?"),
        ("What is the MD5 hash of hunterx?", "What is the MD5 hash of huntery?"),
        ("Encode the word Cat", "Encode the word cat"),
        ("What does variable Foo hold?", "What does variable foo hold?"),
        ("How much vitamin D do I need?", "How much vitamin C do I need?"),
        ("Which is better? D. Larkin or nobody", "Which is better? K. Larkin or nobody"),
        ("Is it open at 3 am?", "Is it open at 3 pm?"),
        ("上午两点有车吗", "14点有车吗"),
        ("Dinner for 4 guests, how much rice?", "Dinner for guests, how much rice?"),
        ("三块五能买几个", "三块六能买几个"),
        ("没有异议", "没有"),
    ],
)
def test_where_letters_and_numbers_count_they_still_count(one: str, other: str) -> None:
    assert refused(one, other)


@pytest.mark.parametrize("text", ["没有异议", "没意见", "没问题的话就这样，可以"])
def test_no_objection_is_a_yes(text: str) -> None:
    offer = (Message("user", "我要退票"), Message("assistant", "要我帮您退掉这张票吗？"))
    yes, said = (Turn((), offer, Message("user", words)) for words in ("好的", text))
    assert "polarity" not in objections(yes, said, same_place=True)
