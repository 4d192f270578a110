"""What was laid down earlier in a conversation stands for its later turns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerprint.conversation import Message, Turn
from fingerprint.facts import objections
from fingerprint.facts.standing import standing_relation


def _turn(*texts: str) -> Turn:
    roles = ("user", "assistant")
    messages = tuple(Message(roles[n % 2], text) for n, text in enumerate(texts))
    return Turn((), messages[:-1], messages[-1])


@pytest.mark.parametrize(
    "laid_down",
    ["Always answer in kilometres.", "Pretend you are a medieval knight.", "From now on, reply in Italian.",
     "Let x = 4", "从现在起请用英文回答。"],
)  # fmt: skip
def test_an_instruction_given_in_one_conversation_alone_forbids_sharing(laid_down: str) -> None:
    bare = _turn("How far is Venus?")
    instructed = _turn(laid_down, "Sure.", "How far is Venus?")
    assert "standing" in objections(bare, instructed, same_place=False)
    assert "standing" in objections(instructed, bare, same_place=False)


@pytest.mark.parametrize(
    ("said", "question"),
    [
        ("I have a severe fish allergy.", "Can I eat Worcester sauce?"),
        ("I'm on a Chromebook.", "How do I take a screenshot on my laptop?"),
        ("Our budget is 400.", "Which camera is best?"),
        ("我对花生过敏。", "我可以吃这种饼干吗？"),
        ("I take warfarin.", "Can I take aspirin?"),
        ("I have kidney disease.", "Can I take ibuprofen?"),
        ("I'm breastfeeding.", "Can I drink coffee?"),
        ("I'm 80.", "Which sport suits me?"),
        ("I had surgery yesterday.", "Can I drive?"),
        ("My son is 4.", "Can he take aspirin?"),
        ("我是孕妇", "能吃螃蟹吗"),
        ("我有胃溃疡", "能吃阿司匹林吗"),
        ("我老公有高血压", "他可以喝酒吗"),
        ("家里只有鸡蛋", "晚饭做什么好"),
    ],
)
def test_the_users_circumstances_forbid_sharing_where_the_question_may_turn_on_them(said: str, question: str) -> None:
    assert "standing" in objections(_turn(question), _turn(said, "Noted.", question), same_place=False)


def test_small_talk_and_other_questions_before_lay_nothing_down() -> None:
    bare = _turn("How do I clean a cast iron pan?")
    for before in ("Good morning! How are things?", "Which oil has the highest smoke point?", "Thanks, that helped."):
        turn = _turn(before, "Fine.", "How do I clean a cast iron pan?")
        assert "standing" not in objections(bare, turn, same_place=False)


def test_what_stands_in_both_conversations_forbids_nothing() -> None:
    one = _turn("Please always answer in French.", "D'accord.", "How far is Venus?")
    two = _turn("Answer in French, always.", "Oui.", "How far away is Venus?")
    assert standing_relation(one, two).kind == "compatible"


_ASKED = {
    "en": ("Is there a train to Leeds before noon?", "Yes, at 9:12.", "And how much is it?"),
    "zh": ("周五上午有去苏州的车吗？", "有，九点十二分。", "多少钱？"),
}


@pytest.mark.parametrize(
    ("language", "change"),
    [
        ("en", "Sorry, I meant Bradford."),
        ("en", "Actually, we'll be four adults."),
        ("en", "oh wait, it's the day after"),
        ("en", "my sister just told me she can't come"),
        ("en", "Scratch that, let's make it Saturday."),
        ("en", "We switched to the student railcard last week."),
        ("en", "It's from the old station, not the central one."),
        ("en", "Turns out my boss pays for first class."),
        ("en", "I no longer have the railcard."),
        ("zh", "说错了，是去无锡。"),
        ("zh", "等等，我们改到下午走。"),
        ("zh", "其实我已经退休了。"),
        ("zh", "对了，我上周刚办了学生证。"),
        ("zh", "不对，是三个人。"),
    ],
)
def test_what_changed_in_one_conversation_alone_forbids_sharing(language: str, change: str) -> None:
    before, answer, question = _ASKED[language]
    plain, changed = _turn(before, answer, question), _turn(before, answer, change, "Noted.", question)
    assert "standing" in objections(plain, changed, same_place=False)
    assert "standing" in objections(changed, plain, same_place=False)


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("en", "Thanks, that helped."),
        ("en", "Oh great."),
        ("en", "hm ok"),
        ("en", "No thanks."),
        ("en", "Is the waiting room heated now?"),
        ("en", "We just need a bit more time."),
        ("zh", "谢谢，明白了。"),
        ("zh", "好的，稍等。"),
        ("zh", "今天天气真不错。"),
    ],
)
def test_small_talk_on_the_way_changes_nothing(language: str, said: str) -> None:
    before, answer, question = _ASKED[language]
    plain, longer = _turn(before, answer, question), _turn(before, answer, said, "Fine.", question)
    assert standing_relation(plain, longer).kind == "compatible"


def test_a_number_put_right_is_a_change_however_alike_the_rest_is() -> None:
    before, answer, question = "我是5月2号入职的，试用期多久？", "三个月。", "哪天转正？"
    plain, changed = (
        _turn(before, answer, question),
        _turn(before, answer, "记错了，我是5月12号入职的。", "好的。", question),
    )
    assert "standing" in objections(plain, changed, same_place=False)


def test_a_change_that_both_conversations_hold_forbids_nothing() -> None:
    before, answer, question = _ASKED["en"]
    told = _turn("Is there a train to Bradford before noon?", "Yes, at 9:40.", question)
    revised = _turn(before, answer, "Sorry, I meant Bradford.", "At 9:40.", question)
    assert standing_relation(told, revised).kind == "compatible"


@given(st.lists(st.text(max_size=80), min_size=1, max_size=6), st.lists(st.text(max_size=80), min_size=1, max_size=6))
def test_the_guard_is_symmetric_and_never_objects_to_the_same_conversation(a: list[str], b: list[str]) -> None:
    one, two = _turn(*a), _turn(*b)
    assert standing_relation(one, two).kind == standing_relation(two, one).kind
    assert standing_relation(one, one).kind == "compatible"
