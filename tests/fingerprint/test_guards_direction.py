"""What goes where: turned round it is another question, in both languages; said in other words it is not."""

from __future__ import annotations

import pytest

from fingerprint.conversation import Message, Turn
from fingerprint.facts import objections, relations


def turn(text: str) -> Turn:
    return Turn((), (), Message("user", text))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("convert USD to EUR", "convert EUR to USD"),
        ("Convert 100 USD to EUR", "Convert 100 EUR to USD"),
        ("How do I convert miles to km?", "How do I convert km to miles?"),
        ("Convert json to yaml", "Convert yaml to json"),
        ("flights from Oslo to Rome", "flights from Rome to Oslo"),
        ("flights Oslo to Rome", "flights Rome to Oslo"),
        ("cheap flights from Oslo to Rome in May", "cheap May flights from Rome to Oslo"),
        ("Which flights go from Oslo to Rome?", "flights rome oslo"),
        ("Is Python better than Java?", "Is Java better than Python?"),
        ("Translate this from English to French", "Translate this from French to English"),
        ("How do I move files from my laptop to my phone?", "How do I move files from my phone to my laptop?"),
        ("How do I upgrade from version 3 to version 4?", "How do I upgrade from version 4 to version 3?"),
        ("replace X with Y", "replace Y with X"),
        ("Can Anna lend money to Ben?", "Can Ben lend money to Anna?"),
        ("Did Germany beat Brazil?", "Did Brazil beat Germany?"),
        ("What is 10 divided by 2", "What is 2 divided by 10"),
        ("把人民币换成美元要多少手续费", "把美元换成人民币要多少手续费"),
        ("美元换欧元", "欧元换美元"),
        ("安卓转苹果怎么迁移数据", "苹果转安卓怎么迁移数据"),
        ("把中文翻译成英文", "把英文翻译成中文"),
        ("中译英", "英译中"),
        ("北京飞上海的航班", "上海飞北京的航班"),
        ("从北京飞上海多少钱", "从上海飞北京多少钱"),
        ("苹果比香蕉贵吗", "香蕉比苹果贵吗"),
        ("摄氏度换算成华氏度", "华氏度换算成摄氏度"),
        ("我借给他钱", "他借给我钱"),
        ("10除以2", "2除以10"),
        ("I moved from sales to support last week and the shared drive says I have no access. What can I do?",
         "The F drive of support, it says no permission. I have just moved from support to sales."),
        ("怎样把支付宝里的钱转到银行卡里", "怎样把银行卡的钱转到支付宝"),
        ("我上周从采购部调到财务部，现在打开财务部的F盘提示没有权限，该怎么办？",
         "F盘，财务部那个。提示没有权限，我上周刚从财务部调到采购部。"),
    ],
)  # fmt: skip
def test_what_is_turned_round_is_never_answered(one: str, other: str) -> None:
    assert objections(turn(one), turn(other), same_place=False)
    assert objections(turn(other), turn(one), same_place=False)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("How do I get to Rome from Oslo?", "How do I get from Oslo to Rome?"),
        ("Which flights go from Oslo to Rome?", "flights oslo rome"),
        ("How do I convert USD to EUR?", "usd to eur conversion"),
        ("What is the difference between TCP and UDP?", "What is the difference between UDP and TCP?"),
        ("Can the notes app read handwriting?", "Can handwriting be read by the notes app?"),
        ("从北京到上海怎么走", "北京到上海怎么走"),
        ("怎样把支付宝里的钱转到银行卡里", "支付宝的钱怎么转到银行卡"),
        ("微信和支付宝有什么区别", "支付宝和微信有什么区别"),
    ],
)
def test_the_same_way_in_other_words_is_not_refused(one: str, other: str) -> None:
    assert objections(turn(one), turn(other), same_place=False) == ()


def test_the_sentence_says_what_was_turned_round() -> None:
    found = relations(turn("flights from Oslo to Rome"), turn("flights rome oslo"), same_place=False)
    direction = next(relation for relation in found if relation.name == "direction")
    assert direction.sentence == "oslo and rom have changed places."
    same = relations(turn("to Rome from Oslo"), turn("from Oslo to Rome"), same_place=False)
    assert ("direction", "equal") in {(relation.name, relation.kind) for relation in same}
