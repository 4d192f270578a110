"""Guards: what is never answered from the cache, whatever the similarity, and what must not be refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fingerprint.conversation import Message, Turn
from fingerprint.facts import objections, relations


def turn(*texts: str) -> Turn:
    """A conversation that ends with a user message; roles alternate."""
    roles = ["user" if (len(texts) - at) % 2 else "assistant" for at in range(len(texts))]
    messages = [Message(role, text) for role, text in zip(roles, texts, strict=True)]
    return Turn((), tuple(messages[:-1]), messages[-1])


def objecting(a: Turn, b: Turn) -> tuple[str, ...]:
    return objections(a, b, same_place=False)


@pytest.mark.parametrize(
    ("guard", "one", "other"),
    [
        ("numbers", "What is 15% of 240?", "What is 25% of 240?"),
        ("numbers", "Do I need a prescription for 600 mg ibuprofen?", "Do I need a prescription for 200 mg ibuprofen?"),
        ("numbers", "房间１２的空调怎么报修？", "房间13的空调怎么报修？"),
        ("numbers", "付了三百块能退吗", "付了五百块能退吗"),
        ("units", "How far is 5 miles on foot?", "How far is 5 kilometres on foot?"),
        ("units", "两斤五花肉放多少糖", "两公斤五花肉放多少糖"),
        ("dates", "Which holidays fall in May 2024 in Austria?", "Which holidays fall in May 2025 in Austria?"),
        ("dates", "Is the office open on Monday?", "Is the office open on Tuesday?"),
        ("dates", "周一营业吗", "周二营业吗"),
        ("versions", "How do I merge two dicts in Python 3.8?", "How do I merge two dicts in Python 3.9?"),
        ("ids", "What is the state of ticket SUP-4471?", "What is the state of ticket SUP-4417?"),
        ("urls", "What is on https://example.org/a?", "What is on https://example.org/b?"),
        ("code", "Explain the C language in one line.", "Explain the C++ language in one line."),
        ("code", "What does `a == b` mean?", "What does `a === b` mean?"),
        ("quoted_text", 'What does "DEMO" on the oven mean?', 'What does "LOCK" on the oven mean?'),
        ("given_text", "Summarise: The ferry is late because of ice.", "Summarise: The train is late because of snow."),
        ("given_text", "翻译：今天天气很好，我们去公园。", "翻译：明天要下大雨，我们在家。"),
        ("symbols", "Which language is spoken in 🇳🇱?", "Which language is spoken in 🇳🇴?"),
        ("polarity", "How do I enable two-factor login?", "How do I disable two-factor login?"),
        ("polarity", "May one enter Chile with a visa?", "May one enter Chile without a visa?"),
        ("polarity", "What is the minimum tyre pressure?", "What is the maximum tyre pressure?"),
        ("polarity", "Which plants live in full shade?", "Which plants don't live in full shade?"),
        ("polarity", "Is it legal to park here?", "Is it illegal to park here?"),
        ("polarity", "怎么开启夜间模式？", "怎么关闭夜间模式？"),
        ("polarity", "怎么让同事看到我的日程", "怎么不让同事看到我的日程"),
        ("polarity", "Yes, send it.", "No, don't send it."),
        ("direction", "Which night trains run from Oslo to Rome?", "Which night trains run from Rome to Oslo?"),
        ("direction", "Is copper a better conductor than silver?", "Is silver a better conductor than copper?"),
        ("direction", "从上海到北京怎么走", "从北京到上海怎么走"),
        ("scope", "Can my son travel alone?", "Can my wife travel alone?"),
        ("scope", "Delete all rows of the table", "Delete only rows of the table"),
        ("modality", "Can I pay the fee in cash?", "Must I pay the fee in cash?"),
        ("question", "Why do leaves turn red in autumn?", "When do leaves turn red in autumn?"),
        ("action", "How do I edit the file on my phone?", "How do I delete the file on my phone?"),
        ("entities", "In which city is Spotify headquartered?", "In which city is Shopify headquartered?"),
        ("entities", "What is the purpose of a gearbox?", "What is the purpose of a letterbox?"),
        ("entities", "How many people live in Oslo?", "How many people live in Rome?"),
        ("entities", "pandas 怎么按 city 分组", "polars 怎么按 city 分组"),
        ("entities", "那元素是字典呢", "那元素是列表呢"),
        ("entities", "Can I use a card with Python here?", "Can I use a card with Java here?"),
        ("entities", "ما هي عاصمة المغرب؟", "ما هي عاصمة تونس؟"),
        ("entities", "北京到上海的高铁要坐多久？", "北京到广州的高铁要坐多久？"),
    ],
)
def test_a_changed_fact_is_never_answered(guard: str, one: str, other: str) -> None:
    assert guard in objecting(turn(one), turn(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("How does photosynthesis work in plants?", "how does photosyntesis work in plnats"),
        (
            "How do I descale an electric kettle?",
            "The tap water here is quite hard. How do I descale an electric kettle?",
        ),
        (
            "How can I reset my password?",
            "Hi there! Could you please tell me how I can reset my password? Thanks a lot!",
        ),
        ("What is the boiling point of ethanol?", "what's the boiling point of ethanol"),
        ("When a fuse blows, what should be checked first?", "What should be checked first when a fuse blows?"),
        ("Do I need a prescription for 600 mg ibuprofen?", "ibuprofen six hundred mg prescription required"),
        ("What is the difference between TCP and UDP?", "What is the difference between UDP and TCP?"),
        ("Which ocean lies to the west of Portugal?", "Which ocean lies to the west of Spain, no, Portugal?"),
        ("How do I restart the router?", "Our router is from 2016. How do I restart the router?"),
        ("How long does 90 minutes of battery last?", "How long does 1.5 hours of battery last?"),
        ("怎么重置路由器的密码？", "请问路由器的密码如何重置？"),
        ("付了四十块，晚了一刻钟，能退吗", "付了40元，晚了15分钟，能退吗"),
        (
            "What body has stated that drugs are safe?",
            "What body of law, no wait, what body has stated that drugs are safe?",
        ),
        ("how do i delete my account in the app for good", "how do i delete my account in the app 4 good"),
        ("手机能注册账户吗", "手机能不能注册账户"),
        ("怎么分辨乌龟的公母？", "怎么辨别乌龟的公母？"),
    ],
)
def test_the_same_question_in_other_words_is_not_refused(one: str, other: str) -> None:
    assert objecting(turn(one), turn(other)) == ()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            ("Which company builds the Mustang?", "Ford builds it.", "When was it founded?"),
            ("Which company builds the Corolla?", "Toyota builds it.", "When was it founded?"),
        ),
        (
            ("I am cooking for 4 guests.", "Noted: 4 guests.", "How much dry rice is needed?"),
            ("I am cooking for 14 guests.", "Noted: 14 guests.", "How much dry rice is needed?"),
        ),
        (
            ("I train twice a week.", "Shall I cancel the gym contract?", "Yes, please."),
            ("I train twice a week.", "Shall I extend the gym contract by a year?", "Yes, please."),
        ),
        (
            ("Here is the note: The boiler was replaced; the pump leaks.", "I have read it.", "Summarise the note."),
            ("Here is the note: The roof was mended; the gutter drips.", "I have read it.", "Summarise the note."),
        ),
        (
            ("The sofa is too big.", "Should I look at (1) a refund or (2) an exchange?", "the first one"),
            ("The sofa is too big.", "Should I look at (1) an exchange or (2) a refund?", "the first one"),
        ),
        (
            ("介绍一下杭州。", "杭州是浙江省会。", "那里有多少人口？"),
            ("介绍一下长沙。", "长沙是湖南省会。", "那里有多少人口？"),
        ),
        (("我要退票", "要我帮您退掉这张票吗？", "好的"), ("我要退票", "要我帮您改签这张票吗？", "好的")),
    ],
)
def test_a_turn_is_never_answered_from_another_context(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert "context" in objecting(turn(*one), turn(*other))
    assert "context" not in objections(turn(*one), turn(*other), same_place=True)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            (
                "Which city is the capital of Portugal?",
                "The capital of Portugal is Lisbon.",
                "Which river flows through it?",
            ),
            ("What's Portugal's capital city?", "The capital of Portugal is Lisbon.", "Which river flows through it?"),
        ),
        (
            ("What time do you open?", "At nine.", "And on Sundays?"),
            ("Hello!", "Hello, how can I help?", "What time do you open?", "At nine.", "And on Sundays?"),
        ),
    ],
)
def test_the_same_conversation_in_other_words_is_not_refused(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert objecting(turn(*one), turn(*other)) == ()


def test_an_attachment_is_part_of_the_question() -> None:
    one = Turn((), (), Message("user", "Describe the picture.", b"image-1"))
    other = Turn((), (), Message("user", "Describe the picture.", b"image-2"))
    assert objecting(one, other) == ("attachments",)


def test_texts_that_differ_beyond_what_is_read_closely_are_never_the_same() -> None:
    padding = "All work and no play makes a dull day. " * 3000
    assert "given_text" in objecting(turn(padding + "red"), turn(padding + "blue"))
    assert objecting(turn(padding + "red"), turn(padding + "red")) == ()


def test_every_relation_can_be_read() -> None:
    found = relations(turn("What is 15% of 240?"), turn("What is 25% of 240?"), same_place=False)
    numbers = next(relation for relation in found if relation.name == "numbers")
    assert numbers.kind == "conflict"
    assert numbers.sentence == "The numbers differ: 15 percent against 25 percent."
    assert all(relation.sentence.endswith(".") for relation in found)
    assert len({relation.name for relation in found}) == len(found)


VOCABULARY = """
how do I enable disable the not without 4 14 guests kg from Oslo to Rome than better C++ `x` 'a b' yes no it 3.8 Monday
my son all 不 没 开启 关闭 从 到 北京 三 斤 周一 怎么 ？ , . ? 🇳🇱 SUP-4471 http://a.b/c summarise: no, sorry
"""
WORDS = st.sampled_from(VOCABULARY.split())
MESSAGES = st.one_of(st.text(max_size=60), st.lists(WORDS, max_size=12).map(" ".join))
TURNS = st.lists(MESSAGES, min_size=1, max_size=5).map(lambda texts: turn(*texts))


@settings(deadline=None)
@given(TURNS, TURNS, st.booleans())
def test_relations_do_not_depend_on_who_asked_first(one: Turn, other: Turn, same_place: bool) -> None:
    assert relations(one, other, same_place=same_place) == relations(other, one, same_place=same_place)
    assert objections(one, other, same_place=same_place) == objections(other, one, same_place=same_place)


@settings(deadline=None)
@given(TURNS)
def test_a_turn_never_conflicts_with_itself(one: Turn) -> None:
    assert objecting(one, one) == ()
    same = Turn(one.system, tuple(Message(m.role, m.text) for m in one.history), Message("user", one.message.text))
    assert objecting(one, same) == ()


@pytest.mark.parametrize("unit", ["1, 2 ", "“x ", "不要，", "x == y "])
def test_long_messages_are_compared(unit: str) -> None:
    one = (unit * 100_000)[:100_000]
    other = (unit * 100_000)[:99_990] + "x" * 10
    assert "given_text" in objecting(turn(one), turn(other))
    assert objecting(turn(one), turn(one)) == ()


@pytest.mark.parametrize(
    ("pointing", "naming", "objects"),
    [
        (
            ("What is a virtual machine?", "A computer in software.", "What are its advantages?"),
            ("Explain the advantages of renewable energy.",),
            True,
        ),
        (
            ("What is renewable energy?", "Energy from sun and wind.", "What are its advantages?"),
            ("Explain the advantages of renewable energy.",),
            False,
        ),
        (
            ("What is a virtual machine?", "A computer in software.", "What are its advantages?"),
            ("What are the advantages?",),
            False,
        ),
        (
            ("Hello!", "How can I help?", "What are the advantages of renewable energy?"),
            ("Explain the advantages of renewable energy.",),
            False,
        ),
    ],
)
def test_what_a_turn_points_at_must_be_what_the_other_names(
    pointing: tuple[str, ...], naming: tuple[str, ...], objects: bool
) -> None:
    for one, other in ((pointing, naming), (naming, pointing)):
        assert ("context" in objecting(turn(*one), turn(*other))) == objects
