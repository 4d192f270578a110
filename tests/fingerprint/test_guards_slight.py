"""One small word or one ending, in short questions of otherwise the same words, asks something else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerprint.conversation import Message, Turn
from fingerprint.facts import objections
from fingerprint.facts.slight import slight_relation


def turn(text: str) -> Turn:
    return Turn((), (), Message("user", text))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Who wrote Faust?", "Who wrote about Faust?"),
        ("Who fought Germany?", "Who fought for Germany?"),
        ("Who fought with France in 1940?", "Who fought France in 1940?"),
        ("Who painted the Night Watch?", "Who painted in the night watch?"),
        ("Who invented the radio?", "Who invented for the radio?"),
        ("How do I pay my landlord?", "How do I pay for my landlord?"),
        ("What did Darwin think?", "What did Darwin think of?"),
        ("How do I train for a marathon?", "How do I train a marathon?"),
        ("How do I apply the patch?", "how do i apply for the patch"),
        ("Can I eat my dog food?", "Can I eat with my dog food?"),
        ("Who directed Alien?", "Who directed Aliens?"),
        ("When did the Viking land?", "When did the Vikings land?"),
        ("Who is Paul Robert?", "Who is Paul Roberts?"),
        ("Who starred in Gladiator?", "Who starred in Gladiators?"),
        ("Who was Prince?", "Who was the prince?"),
        ("What's the plot of Heat?", "What's the plot of The Heat?"),
        ("What is The Sun?", "What is sun?"),
        ("What does Queen do?", "What does the queen do?"),
        ("Who is interviewed by Oprah?", "Who is interviewing Oprah?"),
        ("What is processed food?", "What is processing food?"),
        ("Why is my dog frightening?", "Why is my dog frightened?"),
        ("Which planets have few moons?", "Which planets have a few moons?"),
        ("Where is the Amazon?", "Where is Amazon?"),
        ("Who leads the Eagles?", "Who leads the eagle?"),
        ("What is used by bees?", "What uses bees?"),
        ("他打我怎么办？", "我打他怎么办？"),
        ("怎么给老公剪头发？", "老公怎么给我剪头发？"),
        ("怎么恢复删除的照片？", "怎么删除恢复的照片？"),
        ("帮我翻译修改的合同", "帮我修改翻译的合同"),
        ("喜欢我的人结婚了怎么办？", "我喜欢的人结婚了怎么办？"),
        ("怎么让房东退我押金？", "怎么退房东押金？"),
        ("感冒好了可以洗头吗？", "感冒了可以洗头吗？"),
        ("我取消航班能退票吗？", "航班取消了能退票吗？"),
        ("How do I get my landlord to return my deposit?", "How do I return my landlord's deposit?"),
        ("Is it legal for my neighbour to film my house?", "Is it legal to film my neighbour's house?"),
        ("I'm taking antibiotics, can I drink?", "I'm done taking antibiotics, can I drink?"),
        ("I'm fasting, can I have coffee?", "I've just finished fasting, can I have coffee?"),
        ("法国的首都是哪里？", "法国的首都是哪里来的？"),
        ("怎么看谁看过我？", "怎么看我看过谁？"),
        ("李白写过什么诗？", "李白写过诗吗？"),
        ("What attracts bees?", "What are bees attracted to?"),
        ("What is afraid of cats?", "What are cats afraid of?"),
        ("What follows winter?", "What does winter follow?"),
        ("Who employs Jane?", "Who does Jane employ?"),
        ("What is north of Spain?", "What is Spain north of?"),
        ("Who taught Aristotle?", "Who did Aristotle teach?"),
        ("Who succeeded Lincoln?", "Who did Lincoln succeed?"),
        ("Who bought the Mirror?", "Who did the Mirror buy?"),
        ("Who discovered penicillin?", "Who rediscovered penicillin?"),
        ("How long do I heat the soup?", "How long do I reheat the soup?"),
        ("Why is my bread cooked inside?", "Why is my bread undercooked inside?"),
        ("What is made of oil?", "What is oil made of?"),
        ("What is needed for rain?", "What is rain needed for?"),
        ("Who voted for Trump?", "Who voted against Trump?"),
        ("What did he look at?", "What did he look like?"),
        ("Who taught Plato?", "Who was taught by Plato?"),
        ("Who is Anna's father?", "Whose father is Anna?"),
        ("苏轼是谁的父亲？", "苏轼的父亲是谁？"),
        ("如何租车给别人？", "如何租别人的车？"),
        ("如何借书给别人？", "如何借别人的书？"),
        ("怎么借给他钱", "怎么借他的钱"),
        ("怎么借钱给别人", "怎么向别人借钱"),
        ("怎么屏蔽别人？", "怎么知道被别人屏蔽了？"),
        ("How do I rent a car to someone?", "How do I rent someone's car?"),
        ("How do I rent out my flat?", "How do I rent a flat?"),
        ("How do I lend money?", "How do I borrow money?"),
        ("埃及是什么的首都", "埃及的首都是什么"),
        ("上海大学怎么样？", "上海的大学怎么样？"),
        ("北京大学在哪里？", "北京的大学在哪里？"),
        ("白马是马吗？", "马是白马吗？"),
        ("猫怕狗吗？", "狗怕猫吗？"),
        ("怎么样网上购物?", "网上购物怎么样？"),
    ],
)
def test_a_small_word_that_makes_another_question_is_never_answered(one: str, other: str) -> None:
    assert objections(turn(one), turn(other), same_place=False)
    assert objections(turn(other), turn(one), same_place=False)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("What time does the museum open on Monday?", "what time does the museum open monday"),
        ("At what time does the pool open?", "What time does the pool open?"),
        ("Can you help me to reset my password?", "Can you help me reset my password?"),
        ("How do I log in to the app?", "How do I log into the app?"),
        ("Is there parking at the museum?", "Is there parking in the museum?"),
        ("Who leads the FBI?", "Who leads FBI?"),
        ("What TV shows are good?", "What are good TV shows?"),
        ("What does GDP mean?", "What is the meaning of GDP?"),
        ("Where is my order?", "where is my order at"),
        ("How do I boil an egg?", "How do I boil eggs?"),
        ("who was the prince", "who was prince"),
        ("What is the weather in San Francisco?", "What is the weather like in San Francisco?"),
        ("What happens when ice melts?", "What happens when ice melted?"),
        ("什么是街头篮球", "街头篮球是什么"),
        ("航班取消了能退票吗", "我航班取消了能退票吗"),
        ("How do I get my deposit back?", "How can I get my deposit back?"),
        ("Can I have my order sent to my office?", "Can I have the order sent to my office?"),
        ("谁是苏轼", "苏轼是谁"),
        ("怎么做糖醋排骨", "糖醋排骨怎么做？"),
        ("支付宝的密码怎么改", "支付宝密码怎么改"),
        ("微信和支付宝有什么区别", "支付宝和微信有什么区别"),
        ("今天民政局上班吗？", "民政局今天上班吗"),
    ],
)
def test_a_small_word_that_says_nothing_is_no_objection(one: str, other: str) -> None:
    assert slight_relation(one, other).kind == slight_relation(other, one).kind == "compatible"


def test_long_messages_are_left_to_the_other_guards() -> None:
    words = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
    assert slight_relation(f"{words} write Faust", f"{words} write about Faust").kind == "compatible"
    assert slight_relation("a" * 100_000, "a" * 99_999).kind == "compatible"


@given(st.text(max_size=60), st.text(max_size=60))
def test_it_is_symmetric_and_never_objects_to_the_same_text(one: str, other: str) -> None:
    assert slight_relation(one, other).kind == slight_relation(other, one).kind
    assert slight_relation(one, one).kind == "compatible"
