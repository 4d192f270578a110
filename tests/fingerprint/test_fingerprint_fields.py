"""Every field of the structural fingerprint, in both languages, and when two fingerprints are equal."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fingerprint.conversation import Message, Turn
from fingerprint.facts import FACTS_SCHEMA, Amount, Fingerprint, fingerprint_equal, fingerprint_of, pack, unpack


def turn(*texts: str) -> Turn:
    """A conversation that ends with a user message; roles alternate."""
    roles = ["user" if (len(texts) - at) % 2 else "assistant" for at in range(len(texts))]
    messages = [Message(role, text) for role, text in zip(roles, texts, strict=True)]
    return Turn((), tuple(messages[:-1]), messages[-1])


@pytest.mark.parametrize(
    ("text", "intent"),
    [
        ("How do I descale a kettle?", "how_to"),
        ("Where is my order 789?", "status"),
        ("What is an annuity?", "definition"),
        ("What is the difference between TCP and UDP?", "comparison"),
        ("The printer is not working, error E18", "troubleshooting"),
        ("Summarise: the ferry is late because of ice", "transform"),
        ("Write a cover letter for a nurse", "create"),
        ("Why do leaves turn red?", "reason"),
        ("Is the museum open on Monday?", "yes_no"),
        ("Which river flows through Lisbon?", "question"),
        ("Turn the lamp in the hall off", "command"),
        ("Hello there!", "smalltalk"),
        ("怎么重置路由器的密码？", "how_to"),
        ("订单789到哪了", "status"),
        ("年金是什么意思", "definition"),
        ("高铁和飞机有什么区别", "comparison"),
        ("打印机报错E18", "troubleshooting"),
        ("请总结：今天天气很好，我们去公园。", "transform"),
        ("为什么树叶会变红", "reason"),
        ("博物馆周一开门吗", "yes_no"),
        ("你好", "smalltalk"),
        ("请把客厅的灯关掉", "command"),
    ],
)
def test_the_intent_is_named(text: str, intent: str) -> None:
    assert fingerprint_of(turn(text)).intent == intent


@pytest.mark.parametrize("text", ["Yes, please.", "no thanks", "好的", "不用了"])
def test_a_yes_or_no_to_an_offer_is_a_reply(text: str) -> None:
    found = fingerprint_of(turn("My bag is late.", "Shall I open a claim?", text))
    assert found.intent == "reply"
    assert found.reply in {"yes", "no"}
    assert found.answers


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("How do I turn off the alarm?", "turn_off"),
        ("How do I turn the alarm off?", "turn_off"),
        ("How do I turn on the alarm?", "turn_on"),
        ("How can I set up the printer?", "creat"),  # its synonym class
        ("How do I log out of the app?", "log_out"),
        ("Please cancel the subscription", "cancel"),
        ("怎么取消会员", "取消"),
        ("怎么退订会员", "取消"),
    ],
)
def test_the_action_is_a_verb_with_its_particle_in_one_form(text: str, action: str) -> None:
    assert action in fingerprint_of(turn(text)).actions


def test_a_preposition_of_the_object_is_no_particle() -> None:
    assert "turn_on" not in fingerprint_of(turn("Turn to the house on the hill")).actions


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("check order #ORD-789", "order", "ord789"),
        ("Has ticket number SUP-4471 been closed?", "ticket", "sup4471"),
        ("It stops with error E18", "error", "e18"),
        ("What is KL4T9?", "id", "kl4t9"),
        ("Write to anna@example.org", "email", "anna@example.org"),
        ("Open https://example.org/a", "url", "example.org/a"),
        ("What is in /etc/hosts?", "path", "/etc/hosts"),
        ("What does setup.py do?", "file", "setup.py"),
        ("What does `x == 1` do?", "code", "x == 1"),
        ("Who is Mr Smith?", "person", "smith"),
        ("What is there to see in Lisbon?", "place", "lisbon"),
        ("Does Acme sell kettles?", "name", "acme"),
        ("北京有什么好玩的", "place", "北京"),
        ("张伟是谁", "person", "张伟"),
    ],
)
def test_a_name_has_a_kind(text: str, kind: str, value: str) -> None:
    assert (kind, value) in fingerprint_of(turn(text)).entities


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("Show flats with at least 80 m of shelf", Amount(80, "length", "", "minimum")),
        ("Show flats under 900 euros", Amount(900, "eur", "", "maximum")),
        ("About 5 kg of rice", Amount(5000, "mass", "", "about")),
        ("Dinner for 4 guests", Amount(4, "", "guests", "for")),
        ("How many calories do 2 eggs per day have?", Amount(2, "", "eggs", "rate")),
        ("至少三百元", Amount(300, "cny", "", "minimum")),
        ("不超过50公斤", Amount(50_000, "mass", "", "maximum")),
        ("大约5公里", Amount(5000, "length", "", "about")),
    ],
)
def test_a_number_has_unit_and_role(text: str, amount: Amount) -> None:
    assert amount in fingerprint_of(turn(text)).numbers


@pytest.mark.parametrize(
    ("text", "period"),
    [
        ("Sales since 2020", "since"),
        ("Is it open until Sunday?", "until"),
        ("What changed between May and June?", "between"),
        ("Can I return it within 14 days?", "within"),
        ("Steps of the last 3 days", "last"),
        ("从周一到周三怎么安排", "between"),
        ("14天以内能退吗", "within"),
        ("最近3天的步数", "last"),
    ],
)
def test_a_period_is_told_from_a_date(text: str, period: str) -> None:
    assert period in fingerprint_of(turn(text)).periods


def test_the_rest_of_the_fields() -> None:
    one = fingerprint_of(
        turn("Must all my children not travel from Oslo to Rome in less than 3 hours? Answer as JSON.")
    )
    assert one.direction == ("oslo", "rom")
    assert ("oslo", "rom") in one.ordered
    assert one.negated
    assert one.negations == ("travel",)
    assert one.quantifiers == ("all",)
    assert one.modality == ("must",)
    assert one.persons == ("child",)
    assert fingerprint_of(turn("Answer as JSON.")).formats == ("json",)
    assert one.self_contained
    zh = fingerprint_of(turn("孩子不能从北京到上海吗？用表格回答"))
    assert zh.direction == ("北京", "上海")
    assert zh.negated
    assert zh.persons == ("child",)
    assert zh.language == "zh"
    assert fingerprint_of(turn("孩子几岁上学？用表格回答")).formats == ("table",)
    assert fingerprint_of(turn("Is copper a better conductor than silver?")).comparatives == ("better",)
    assert fingerprint_of(turn("哪个更便宜")).comparatives == ("更便",)
    assert fingerprint_of(turn("What is the weather like right now?")).time_sensitive
    assert fingerprint_of(turn("现在天气怎么样")).time_sensitive
    assert fingerprint_of(turn("What is my account balance?")).personal
    assert fingerprint_of(turn("我的账户余额是多少")).personal


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("How do I reset my password?", "how do i reset my pasword"),
        ("Hi! How do I cancel the subscription, please?", "How do I cancel the subscription?"),
        ("Which trains run from Oslo to Rome on Monday?", "Which trains run on Monday from Oslo to Rome?"),
        ("请问怎么取消会员？谢谢", "怎么取消会员"),
        ("怎么取消会员", "怎么退订会员"),
    ],
)
def test_the_same_thing_in_the_same_words_has_an_equal_fingerprint(one: str, other: str) -> None:
    assert fingerprint_equal(turn(one), turn(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("How do I reset my password?", "How do I change my password?"),
        ("Which trains run from Oslo to Rome?", "Which trains run from Rome to Oslo?"),
        ("Can I bring at least 5 kg?", "Can I bring at most 5 kg?"),
        ("Can my son travel alone?", "Can my wife travel alone?"),
        ("How do I turn on the alarm?", "How do I turn off the alarm?"),
        ("convert USD to EUR", "convert EUR to USD"),
        ("怎么开启夜间模式", "怎么关闭夜间模式"),
        ("从北京到上海", "从上海到北京"),
        ("hmm", "uh"),
        ("???", "!!!?"),
    ],
)
def test_another_thing_has_another_fingerprint(one: str, other: str) -> None:
    assert not fingerprint_equal(turn(one), turn(other))


def test_a_short_reply_has_the_fingerprint_of_what_it_answers() -> None:
    one = turn("My bag is late.", "Shall I open a claim?", "Yes, please.")
    assert fingerprint_equal(one, turn("The bag is late", "Shall I open a claim?", "Yes, please."))
    assert not fingerprint_equal(one, turn("My bag is late.", "Shall I close the claim?", "Yes, please."))


def test_a_fingerprint_of_another_schema_equals_nothing_and_is_made_anew() -> None:
    here = fingerprint_of(turn("How do I descale a kettle?"))
    old = msgspec.structs.replace(here, schema=FACTS_SCHEMA - 1)
    assert fingerprint_equal(here, here)
    assert not fingerprint_equal(here, old)
    assert not fingerprint_equal(old, old)
    assert unpack(pack(old)) is None
    assert unpack(b"\x93\x01\x02") is None
    assert unpack(b"") is None


TEXTS = st.one_of(st.text(max_size=200), st.text(alphabet="ab 不从到5kg?，\ud800'", max_size=60))


@settings(deadline=None)
@given(TEXTS, TEXTS)
def test_equality_is_symmetric_and_every_turn_equals_itself(one: str, other: str) -> None:
    a, b = turn(one), turn(other)
    assert fingerprint_equal(a, a)
    assert fingerprint_equal(a, b) == fingerprint_equal(b, a)


@settings(deadline=None)
@given(TEXTS)
def test_a_fingerprint_is_read_back_as_it_was_written(text: str) -> None:
    before = fingerprint_of(turn("a", "b?", text))
    after = unpack(pack(before))
    assert isinstance(after, Fingerprint)
    if text.isprintable():
        assert after == before


@pytest.mark.parametrize("text", ["How do I descale a kettle before Monday?", "怎么给水壶除垢？周一之前要用"])
def test_a_fingerprint_takes_a_few_hundred_bytes(text: str) -> None:
    assert len(pack(fingerprint_of(turn(text)))) < 400


@pytest.mark.parametrize("unit", ["a ", "1, ", "from a to b ", "不从到", "turn it off ", "\ud800", "more than "])
def test_a_message_of_100_kb_has_a_fingerprint_of_bounded_size(unit: str) -> None:
    assert len(pack(fingerprint_of(turn((unit * 100_000)[:100_000])))) < 4000
