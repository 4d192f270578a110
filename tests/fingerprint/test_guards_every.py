"""Every relation, in English and in Chinese: what conflicts, what does not, and the sentence that says why."""

from __future__ import annotations

import pytest

from fingerprint.conversation import Message, Turn
from fingerprint.facts import relations

Texts = str | tuple[str, ...]


def turn(texts: Texts) -> Turn:
    said = (texts,) if isinstance(texts, str) else texts
    roles = ["user" if (len(said) - at) % 2 else "assistant" for at in range(len(said))]
    messages = [Message(role, text) for role, text in zip(roles, said, strict=True)]
    return Turn((), tuple(messages[:-1]), messages[-1])


# relation, language, one, another that conflicts with it, another that does not
EVERY: list[tuple[str, str, Texts, Texts, Texts]] = [
    ("numbers", "en", "What is 15 % of 240?", "What is 25 % of 240?", "what's fifteen percent of 240"),
    ("numbers", "zh", "付了三百块能退吗", "付了五百块能退吗", "付了300元能退吗"),
    ("units", "en", "How far is 5 miles on foot?", "How far is 5 km on foot?", "how far is five miles on foot"),
    ("units", "zh", "两斤五花肉放多少糖", "两公斤五花肉放多少糖", "一公斤五花肉放多少糖，就是两斤"),
    (
        "options",
        "en",
        ("Help", "A refund or an exchange?", "the first one"),
        ("Help", "A refund or an exchange?", "the second one"),
        ("Help", "A refund or an exchange?", "The 1st one, please."),
    ),
    (
        "options",
        "zh",
        ("帮我", "退款还是换货？", "第一个"),
        ("帮我", "退款还是换货？", "第二个"),
        ("帮我", "退款还是换货？", "选第1个"),
    ),
    ("dates", "en", "Is the office open on Monday?", "Is the office open on Tuesday?", "office open on monday?"),
    ("dates", "zh", "周一营业吗", "周二营业吗", "星期一营业吗"),
    (
        "versions",
        "en",
        "How do I merge dicts in Python 3.8?",
        "How do I merge dicts in Python 3.9?",
        "merge dicts in python v3.8",
    ),
    ("versions", "zh", "Python 3.8 怎么合并字典", "Python 3.9 怎么合并字典", "怎么在 Python 3.8 里合并字典"),
    ("ids", "en", "Where is parcel KL4T9?", "Where is parcel KL4T8?", "where's my parcel kl4t9"),
    ("ids", "zh", "包裹KL4T9到哪了", "包裹KL4T8到哪了", "KL4T9 这个包裹到哪了"),
    ("urls", "en", "What is on https://example.org/a?", "What is on https://example.org/b?", "what's on example.org/a"),
    ("urls", "zh", "https://example.org/a 打不开", "https://example.org/b 打不开", "打不开 example.org/a"),
    ("code", "en", "What does `a == b` mean?", "What does `a === b` mean?", "what does `a == b` mean"),
    ("code", "zh", "`a == b` 是什么意思", "`a === b` 是什么意思", "`a == b` 什么意思"),
    ("quoted_text", "en", 'What does "DEMO" mean?', 'What does "LOCK" mean?', 'what does "demo" mean'),
    ("quoted_text", "zh", "“演示”是什么意思", "“锁定”是什么意思", "“演示”什么意思"),
    ("symbols", "en", "Which language is spoken in 🇳🇱?", "Which language is spoken in 🇳🇴?", "language spoken in 🇳🇱?"),
    ("symbols", "zh", "🇳🇱 说什么语言", "🇳🇴 说什么语言", "🇳🇱 讲什么语言"),
    (
        "given_text",
        "en",
        "Summarise: The ferry is late because of ice.",
        "Summarise: The train is late because of snow.",
        "Please summarise: The ferry is late because of ice.",
    ),
    (
        "given_text",
        "zh",
        "翻译：今天天气很好，我们去公园。",
        "翻译：明天要下大雨，我们在家。",
        "请翻译：今天天气很好，我们去公园。",
    ),
    ("polarity", "en", "How do I enable roaming?", "How do I disable roaming?", "how can I activate roaming"),
    ("polarity", "zh", "怎么开启漫游", "怎么关闭漫游", "如何打开漫游"),
    ("scope", "en", "Can my son travel alone?", "Can my wife travel alone?", "can my son travel on his own"),
    ("scope", "zh", "我儿子能一个人坐飞机吗", "我老婆能一个人坐飞机吗", "我儿子可以一个人坐飞机吗"),
    ("modality", "en", "Can I pay the fee in cash?", "Must I pay the fee in cash?", "May I pay the fee in cash?"),
    ("modality", "zh", "必须现金付款吗", "可以现金付款吗", "一定要现金付款吗"),
    ("question", "en", "Why do leaves turn red?", "When do leaves turn red?", "for what reason do leaves turn red"),
    ("question", "zh", "为什么退款没到账", "什么时候退款到账", "退款为何没到账"),
    ("action", "en", "How do I edit the file?", "How do I delete the file?", "how to modify the file"),
    ("action", "zh", "怎么复制这个文件", "怎么打印这个文件", "如何复制这个文件"),
    (
        "entities",
        "en",
        "How many people live in Oslo?",
        "How many people live in Rome?",
        "how many people live in Oslo",
    ),
    ("entities", "zh", "北京到上海要坐多久", "北京到广州要坐多久", "从北京到上海要坐多久"),
    ("direction", "en", "trains from Oslo to Rome", "trains from Rome to Oslo", "trains to Rome from Oslo"),
    ("direction", "zh", "从上海到北京怎么走", "从北京到上海怎么走", "上海到北京怎么走"),
    ("format", "en", "List the planets as a table", "List the planets as json", "list the planets in a table"),
    ("format", "zh", "用表格列出行星", "用JSON列出行星", "请用表格列出行星"),
    (
        "case",
        "en",
        "What does grep -V print for Foo?",
        "What does grep -V print for FOO in Regex?",
        "what does grep -V print for Foo?",
    ),
    ("signs", "en", "What is (2+3)*4?", "What is 2+(3*4)?", "what's (2+3)*4"),
    ("signs", "zh", "(2+3)*4等于多少", "2+(3*4)等于多少", "(2+3)*4 等于多少"),
    (
        "ranks",
        "en",
        "What is the largest city of Chile?",
        "What is the second largest city of Chile?",
        "largest city of Chile",
    ),
    ("topic", "en", "rental property", "What tax is due on a rental property?", "What is a rental property?"),
    ("topic", "zh", "退货", "退货的运费谁出？", "退货呢"),
    ("layout", "en", "Fix:\n  a\nb\nc", "Fix:\na\n  b\nc", "Fix:\n  a\nb\nc"),
    ("layout", "zh", "改：\n  a\nb\nc", "改：\na\n  b\nc", "改：\n  a\nb\nc"),
    ("slight", "en", "Who wrote Faust?", "Who wrote about Faust?", "Whose work is Faust?"),
    ("slight", "zh", "北京大学在哪里", "北京的大学在哪里", "北京大学的地址"),
    (
        "material",
        "en",
        ("Translate all I write from now on.", "All right.", "How do I reset it?"),
        ("Translate all I write from now on.", "All right.", "How can I reset it?"),
        ("Translate all I write from now on.", "All right.", "How do I reset it?"),
    ),
    (
        "material",
        "zh",
        ("从现在起把我说的话翻译成英文", "好的", "怎么重启"),
        ("从现在起把我说的话翻译成英文", "好的", "如何重启"),
        ("从现在起把我说的话翻译成英文", "好的", "怎么重启"),
    ),
    ("order", "en", "Did Brutus kill Caesar?", "Did Caesar kill Brutus?", "did brutus kill caesar"),
    ("order", "zh", "狗咬人怎么办", "人咬狗怎么办", "狗咬人该怎么办"),
    (
        "context",
        "en",
        ("Who builds the Mustang?", "Ford builds it.", "When was it founded?"),
        ("Who builds the Corolla?", "Toyota builds it.", "When was it founded?"),
        ("Which company builds the Mustang?", "Ford builds it.", "When was it founded?"),
    ),
    (
        "context",
        "zh",
        ("介绍一下杭州。", "杭州是浙江省会。", "那里有多少人口？"),
        ("介绍一下长沙。", "长沙是湖南省会。", "那里有多少人口？"),
        ("请介绍一下杭州。", "杭州是浙江省会。", "那里有多少人口？"),
    ),
    (
        "context",
        "en",
        ("I need a train ticket.", "Window or aisle?", "window", "Which class?", "second class please"),
        ("I need a train ticket.", "Window or aisle?", "aisle", "Which class?", "second class please"),
        ("I need a train ticket.", "Window or aisle?", "the window", "Which class?", "second class please"),
    ),
    (
        "context",
        "zh",
        ("我要订房。", "住酒店还是民宿？", "民宿", "几个人？", "两个人"),
        ("我要订房。", "住酒店还是民宿？", "酒店", "几个人？", "两个人"),
        ("我要订房。", "住酒店还是民宿？", "住民宿", "几个人？", "两个人"),
    ),
    (
        "context",
        "en",
        ("How do I get a passport?", "Go to the town hall.", "How much does it cost?"),
        ("How much does it cost?",),
        ("How can I get a passport?", "Go to the town hall.", "How much does it cost?"),
    ),
    (
        "context",
        "zh",
        ("怎么去掉红酒渍？", "用盐。", "那咖啡呢？"),
        ("那咖啡呢？",),
        ("红酒渍怎么去掉？", "用盐。", "那咖啡呢？"),
    ),
    (
        "context",
        "en",
        ("Where is my parcel?", "In Lyon.", "Why?"),
        ("Why?",),
        ("Where's my parcel?", "In Lyon.", "Why?"),
    ),
    (
        "standing",
        "en",
        ("Answer in French from now on.", "D'accord.", "What is a lathe used for?"),
        ("Hello!", "Hi.", "What is a lathe used for?"),
        ("Please answer in French from now on.", "D'accord.", "what is a lathe used for"),
    ),
    (
        "standing",
        "zh",
        ("从现在起都用法语回答。", "D'accord.", "车床是做什么用的？"),
        ("你好！", "你好。", "车床是做什么用的？"),
        ("请从现在起都用法语回答。", "D'accord.", "车床是做什么用的"),
    ),
]


def test_a_question_that_says_everything_itself_may_come_first_or_later() -> None:
    for question in ("How do I boil eggs?", "How do I reset my password?", "怎么煮鸡蛋？"):
        for before in (("Hello!", "Hi, how can I help?"), ("Do you ship to Norway?", "Yes.")):
            assert kinds((question,), (*before, question))["context"][0] != "conflict"


def kinds(one: Texts, other: Texts) -> dict[str, tuple[str, str]]:
    return {r.name: (r.kind, r.sentence) for r in relations(turn(one), turn(other), same_place=False)}


@pytest.mark.parametrize(("name", "language", "one", "conflicting", "agreeing"), EVERY)
def test_a_relation_conflicts_where_it_must_and_only_there(
    name: str, language: str, one: Texts, conflicting: Texts, agreeing: Texts
) -> None:
    kind, sentence = kinds(one, conflicting)[name]
    assert kind == "conflict", sentence
    assert sentence.endswith(".")
    assert len(sentence) > 10
    assert kinds(conflicting, one)[name] == (kind, sentence)
    assert kinds(one, agreeing)[name][0] != "conflict", kinds(one, agreeing)[name]
    assert kinds(one, one)[name][0] != "conflict"


def test_every_relation_there_is_has_its_sentences_here() -> None:
    made = {r.name for r in relations(turn("a b"), turn(("c", "d", "e f")), same_place=False)}
    assert made <= {name for name, *_ in EVERY} | {"attachments"}
    both = {name for name, language, *_ in EVERY if language == "zh"}
    # Letters have case, ranks and superlatives are words, in Latin scripts only.
    assert {name for name, *_ in EVERY} - both == {"case", "ranks"}
