"""A courtesy around a question is no part of it; everything else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerprint.plain import is_material, minds_courtesies, plain

HOW = "How do I reset my router?"


@pytest.mark.parametrize(
    "text",
    [
        HOW,
        "how do I reset my router",
        "Hi! How do I reset my router?",
        "hello how do I reset my router?",
        "Hello there. How do I reset my router? Thanks!",
        "Hey, how do I reset my router? Thank you in advance.",
        "Quick question: how do I reset my router?",
        "Hi! Quick question: How do I reset my router? Many thanks for your help!",
        "Sorry to bother you. How do I reset my router?",
        "Can you help me? How do I reset my router, please?",
        "Please help me: how do I reset my router",
        "Good morning! How do I reset my router?",
        "Good evening, how do I reset my router? Thanks!",
    ],
)
def test_an_english_question_is_the_same_with_courtesies(text: str) -> None:
    assert plain(text) == "how do I reset my router"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("怎么重置路由器？", "你好，请问怎么重置路由器？谢谢！"),
        ("怎么重置路由器", "您好！怎么重置路由器？"),
        ("怎么重置路由器", "请问怎么重置路由器？"),
        ("List the planets", "Please list the planets. Thank you!"),
        ("List the planets", "Hi! list the planets"),
        ("js get last element of an array", "Please help me: js get last element of an array"),
        ("My router is off. How do I start it?", "Hi! My router is off. How do I start it? Thanks."),
        ("My cake sank in the middle. Why?", "Quick question: my cake sank in the middle. Why?"),
        ("怎么重置路由器？", "晚上好！怎么重置路由器？"),
        ("bash: how do I list all files?", "Hey, Bash: How do I list all files? Thanks!"),
        ("My cake sank. What did I do wrong?", "Hey, my cake sank. What did I do wrong? Thanks!"),
        ("js get last element of an array", "js get last element of an array Thank you in advance."),
        ("My orchid has faded. Do I cut it?", "Hey, my orchid has faded. Do I cut it?"),
        ("I want to use Node 20, which command?", "Quick question: i want to use Node 20, which command?"),
        ("What is the difference between == and is?", "Hi! What is the difference between == and is? Thanks!"),
    ],
)
def test_so_is_one_in_chinese_an_order_or_a_story(one: str, other: str) -> None:
    assert plain(one) == plain(other) is not None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (HOW, "How do I reset my phone?"),
        ("How do I say thanks?", "How do I say?"),
        ("How do you write thank you", "How do you write thanks"),
        ("Hello Kitty price?", "Kitty price?"),
        ("Good morning America cast", "America cast"),
        ("Good Morning, Vietnam plot", "Vietnam plot"),
        ("Good morning! What should I eat now?", "Good evening! What should I eat now?"),
        ("早上好，现在该吃什么？", "晚上好，现在该吃什么？"),
        ("Good morning! How do I get to work?", "How do I get to work now?"),
        ("Good morning! What should I wear?", "Good evening! What should I wear?"),
        ("Good morning! How do I fall asleep?", "Good evening! How do I fall asleep?"),
        ("Good morning! How can I get there by bus?", "Good evening! How can I get there by bus?"),
        ("早上好！怎么去机场，坐车吗？", "晚上好！怎么去机场，坐车吗？"),
        ("Good morning", "Good evening"),
        ("I is the current here", "i is the current here"),
        ("x = 5 is odd. Thanks!", "x = 5 is odd."),
        ("What is a <= b?", "What is a < b?"),
        ("The Who sang it", "the who sang it"),
        ("label: how do I list all files? Thanks!", "label: how do I list all files?"),
        ("Hey, My Vitriol albums in order", "My Vitriol albums in order"),
        ("Good morning! How much sleep do I need?", "Good evening! How much sleep do I need?"),
        ("Hello! Magazine owner and editor", "Magazine owner and editor"),
        ("Hey! Jude chords in G", "Jude chords in G"),
        ("Hello, Is It Me You're Looking For chords", "Is It Me You're Looking For chords"),
        ("Please Tell Me Why chords", "Tell Me Why chords"),
        ("你好！李焕英的导演是谁？", "李焕英的导演是谁？"),
        ("Hello, how are you in Italian?", "How are you in Italian?"),
        ("What is Japanese for one beer, please?", "What is Japanese for one beer?"),
        ("你好，怎么用日文表达", "怎么用日文表达"),
        ("Can you make this nicer? Send the file, please.", "Can you make this nicer? Send the file."),
        (
            "Is this passive aggressive? I will do it myself. Thanks.",
            "Is this passive aggressive? I will do it myself.",
        ),
        ("What does he want? He wrote I am busy. Thanks.", "What does he want? He wrote I am busy."),
        ("Hello! We are closed until May. Improve this.", "We are closed until May. Improve this."),
        ("Hi! What did I just type?", "What did I just type?"),
        ("Who sang the original Thank You", "Who sang the original"),
        ("Hi! How many tokens is this prompt?", "How many tokens is this prompt?"),
        ("Hi! User: how do I reset it? Bot:", "User: how do I reset it? Bot:"),
        ("Good morning! How much insulin do I take?", "Good evening! How much insulin do I take?"),
        ("Good morning! How do I get to the airport?", "How do I get to the airport?"),
        ("Is.na in R not found, why", "is.na in R not found, why"),
        ("What is matched by ab?", "What is matched by ab."),
        ("go: there is more?", "there is more?"),
        ("Hello, Goodbye chords and text", "Goodbye chords and text"),
        ("Hello, world in Python", "world in Python"),
        ("Hey, Arnold! who is the voice actor?", "Arnold! who is the voice actor?"),
        ("Please Please Me release year", "Me release year"),
        ("Please Kill Me summary", "Kill Me summary"),
        ("你好，李焕英剧情是什么？", "李焕英剧情是什么？"),
        ("请问卷调查怎么做", "卷调查怎么做"),
        ("请问候他", "候他"),
        ("HI, what is the time zone?", "what is the time zone?"),
        ("polish remover for nails", "Polish remover for nails"),
        ("IT costs money here", "It costs money here"),
        ("Is it US law?", "Is it us law?"),
        ("You are ready for it?", "You are ready for it."),
        ("The server is down", "The server is down?"),
        ("Where is Paris, Texas?", "Where is Paris?"),
        ("How do I do as you please?", "How do I do as you?"),
        ("Is it not allowed?", "Is it allowed?"),
        ("What is 2+2?", "What is 2-2?"),
        ("What is 5!?", "What is 5?"),
        ("What is n!?", "What is n?"),
        ("Hi -5 squared is what?", "5 squared is what?"),
        ("Hi .5 times 10 is?", "5 times 10 is?"),
        ("Hi !x in C means?", "x in C means?"),
        ("Hi-Fi systems: which is best?", "Fi systems: which is best?"),
        ("What does the operator ?? do", "What does the operator ? do"),
        ("What is the operator ??", "What is the operator ?"),
        ("What is C#?", "What is C?"),
        ("How do I turn '  ' into ' '?", "How do I turn ' ' into '  '?"),
        ("退款要3天吗", "退款要5天吗"),
        ("I'm vegan. When is breakfast?", "When is breakfast?"),
        ("Hola, what did I greet you in?", "Bonjour, what did I greet you in?"),
    ],
)
def test_whatever_could_mean_something_stays(one: str, other: str) -> None:
    assert plain(one) is None or plain(one) != plain(other)


@pytest.mark.parametrize("end", ["", ", thanks", ". Thanks!", ", please", " Thanks.", "，谢谢", ", thank you"])
@pytest.mark.parametrize(
    "text",
    [
        "Translate to Spanish: I am fine",
        "翻译成日语：不用了",
        "把这句话翻译成英文：你好",
        "How do you say one beer",
        "How do you say no in Japanese: no",
        "Is it polite to say give me water",
        "这句话礼貌吗：把门关上",
        "What is the sentiment of: it broke",
        "Does this email sound rude? Send me the file.",
        "Make this email shorter: I will come.",
        "Count the words in: send it now.",
        "Reverse this: abc def",
        "How many words are in this message?",
        "Repeat this message.",
    ],
)
def test_a_text_that_is_handed_over_keeps_its_courtesies(text: str, end: str) -> None:
    assert plain(text + end) is None
    assert plain(f"Hi! {text}{end}") is None


@pytest.mark.parametrize(
    "text",
    [
        "What does this print?\nfor i in range 3:\n  print i\nprint done",
        "Which is the parent of b in this YAML?\na:\n  b: 1",
        "What is the determinant of\n1 2\n3 4",
        "How many items are there?\napple pie\npear",
        "How long is a  b as characters?",
        "What is\ta tab for?",
        "Hi!\nHow do I reset my router?",
        "How is 'a' pronounced there?",
    ],
)
def test_what_is_laid_out_is_not_touched(text: str) -> None:
    assert plain(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "What does `a` do in that?",
        'replace every "foo" with "bar" in all .txt files, from the command line',
        "Uncaught TypeError: Cannot read properties of null (reading 'x') in Chrome.",
    ],
)
def test_around_what_is_quoted_only_a_courtesy_before_it_is_taken_away(text: str) -> None:
    assert plain(text) == text
    assert plain(f"Sorry to bother you. {text}") == text
    assert plain(f"{text} Thanks!") != text


@pytest.mark.parametrize(
    "text", ["", "Hi!", "Hello, thanks!", "Yes, please", "No, thanks.", "ok", "好的，谢谢", "x" * 500]
)
def test_where_too_little_or_too_much_is_left_nothing_is_said(text: str) -> None:
    assert plain(text) is None


@pytest.mark.parametrize(
    ("instructions", "minds"),
    [
        ("You are a help desk. Answer briefly.", False),
        ("If the user doesn't say please, refuse.", True),
        ("Answer in the language in which the user greets you.", True),
        ("用户问候你时要礼貌地回应。", True),
        ("Translate whatever the user writes into French.", True),
        ("Classify the user's message.", True),
        ("Keep to the question, and do not repeat it. You are an account manager.", False),
        ("First repeat the question, then answer.", True),
        ("You are a help desk. Say what you are not sure of.", False),
        ("You are a text completion engine.", True),
        ("Return the message in upper case.", True),
        ("Match the user's register.", True),
        ("You are a Linux terminal.", True),
        ("为对话生成标题", True),
        ("把用户的话翻译成英文。", True),
    ],
)
def test_instructions_that_speak_of_courtesies_are_noticed(instructions: str, minds: bool) -> None:
    assert minds_courtesies(instructions) == minds


@pytest.mark.parametrize(
    ("said", "reply", "material"),
    [
        ("Translate everything I write into French.", False, True),
        ("I'll send you emails. Proofread each.", False, True),
        ("把我写的都翻译成英文", False, True),
        ("How do I reset my router?", False, False),
        ("Give me the sentence you want to translate.", True, True),
        ("Hold the button for ten seconds.", True, False),
    ],
)
def test_what_makes_the_next_message_a_text_to_work_on_is_noticed(said: str, reply: bool, material: bool) -> None:
    assert is_material(said, reply=reply) == material


WORDS = st.sampled_from(
    (
        *("hi", "Hello", "there", "how", "What", "please", "Please", "thanks", "Thank you", "question", "is", "it"),
        *(
            "Paris",
            ",",
            "!",
            "?",
            ".",
            ":",
            " ",
            "\n",
            "你好",
            "请问",
            "谢谢",
            "怎么",
            "，",
            "Danke",
            "merci",
            "svp",
            "£3",
        ),
    )
)


@given(
    st.one_of(
        st.text(max_size=60), st.lists(WORDS, max_size=12).map(" ".join), st.lists(WORDS, max_size=12).map("".join)
    )
)
def test_it_is_idempotent_and_adds_nothing(text: str) -> None:
    found = plain(text)
    if found is not None:
        assert plain(found) == found
        assert len(found) <= len(text)
        letters = [c for c in text.lower() if c.isalnum()]
        left = [c for c in found.lower() if c.isalnum()]
        at = iter(letters)
        assert all(c in at for c in left)  # what is left was there, in this order
