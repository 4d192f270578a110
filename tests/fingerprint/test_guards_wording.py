"""Guards on how a message is written: case, signs, layout and order."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerprint.conversation import Message, Turn
from fingerprint.facts import objections
from fingerprint.facts.wording import wording_relations


def _vetoes(a: str, b: str) -> set[str]:
    turns = [Turn((), (), Message("user", text)) for text in (a, b)]
    return set(objections(turns[0], turns[1], same_place=True))


@pytest.mark.parametrize(
    ("a", "b", "guard"),
    [
        ("What does sort -r do?", "What does sort -R do?", "signs"),
        ("What does \\s match?", "What does \\S match?", "signs"),
        ("What is 3 mW in dBm?", "What is 3 MW in dBm?", "case"),
        ("Who was last on the throne of China?", "Who was last on the throne of china?", "case"),
        ("Which variable is shown, bar or baz?", "Which variable is shown, Bar or baz?", "case"),
        ("What does IT mean?", "What does it mean?", "case"),
        ("What is the sha256 of hello?", "What is the sha256 of Hello?", "case"),
    ],
)
def test_letters_of_another_case_are_another_question(a: str, b: str, guard: str) -> None:
    assert guard in _vetoes(a, b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("What is (4+1)*2?", "What is 4+(1*2)?"),
        ("Is -7 larger than -9?", "Is 7 larger than -9?"),
        ("What does && do in bash?", "What does || do in bash?"),
        ("Is group B+ safe to give to AB-?", "Is group B+ safe to give to AB+?"),
        ("When did Pius XI rule?", "When did Pius XII rule?"),
        ("What does vitamin K do?", "What does vitamin E do?"),
        ("Is 6 < 4?", "Is 6 > 4?"),
    ],
)
def test_another_sign_letter_or_numeral_is_another_question(a: str, b: str) -> None:
    assert _vetoes(a, b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Did Sweden invade Denmark?", "Did Denmark invade Sweden?"),
        ("Are all roses flowers?", "Are all flowers roses?"),
        ("What eats a stoat?", "What does a stoat eat?"),
        ("Can my lodger sue me?", "Could I sue my lodger?"),
        ("Did Cain kill Abel?", "Did Abel murder Cain?"),
        ("Does iron rust copper?", "Does copper rust iron?"),
        ("Swap commas with dots in awk", "Swap dots with commas in awk"),
        ("May my tenant sue me?", "May I sue my tenant?"),
        ("What is a house boat?", "What is a boat house?"),
        ("Is whale a fish?", "Is fish a whale?"),
        ("Context:\nBolt acquired Wolt.\n\nQuestion: Who acquired whom?",
         "Context:\nWolt acquired Bolt.\n\nQuestion: Who acquired whom?"),
        ("Pick one: A) tea B) milk C) juice. What wakes?", "Pick one: A) milk B) tea C) juice. What wakes?"),
        ("First fry, then boil the rice?", "First boil, then fry the rice?"),
        ("Is freight to Peru expensive?", "Is freight from Peru expensive?"),
        ("Who ruled since 1848?", "Who ruled until 1848?"),
        ("What is the second longest river in Asia?", "What is the longest river in Asia?"),
        ("张三借给李四多少钱？", "李四借给张三多少钱？"),
    ],
)  # fmt: skip
def test_the_same_words_in_another_order_are_another_question(a: str, b: str) -> None:
    assert _vetoes(a, b)


def test_indentation_and_lines_are_part_of_given_text() -> None:
    code = "What does this print?\nif x:\n    a()\nb()"
    assert "layout" in _vetoes(code, code.replace("\nb()", "\n    b()"))
    assert "layout" in _vetoes("Count the lines:\nold pond\nfrog leaps in", "Count the lines:\nold pond frog\nleaps in")


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("how do i fly from lisbon to turin", "How do I fly from Lisbon to Turin?"),
        ("what is the population of the uk", "What is the population of the UK?"),
        ("How do I use Docker with GitHub?", "How do I use docker with github?"),
        ("If the pump stops, what should be done?", "What should be done if the pump stops?"),
        ("What's the difference between rye and wheat?", "What is the difference between wheat and rye?"),
        ("Our flat is old. How do I bleed a radiator?", "How do I bleed a radiator? Our flat is old."),
        ("What is 8 / 2 * 4?", "What is 8/2*4?"),
        ("How do I reset the modem's password?", "modem password reset"),
        ("怎么重置路由器的密码？", "路由器的密码怎么重置？"),
        ("Which town is the seat of Kent County?", "What's the seat town of Kent County?"),
        ("How do I rename a branch in git?", "How do I rename a git branch?"),
        ("How do I change my password?", "How can I update my password?"),
        ("How can I drop the last stash in git?", "What's the git command to drop my last stash?"),
        ("What is the melting point of tin at sea level?", "At what temperature does tin melt at sea level?"),
        ("What's the difference between HDMI and DVI?", "How do HDMI and DVI differ?"),
        ("What are the visiting hours of the castle?", "When may I visit the castle?"),
        ("How do I round a corner with CSS?", "What is the CSS to round a corner?"),
        ("How much does the family ticket cost?", "What's the price of the family ticket?"),
        ("Does the gold tariff include roadside help?", "Is roadside help part of the gold tariff?"),
        ("Where is my **invoice**?", "Where is my invoice?"),
    ],
)
def test_the_same_question_written_otherwise_is_not_refused_for_its_writing(a: str, b: str) -> None:
    assert not {r.name for r in wording_relations(a, b) if r.kind == "conflict"}


@given(st.text(max_size=200), st.text(max_size=200))
def test_the_guards_on_writing_are_symmetric_and_never_object_to_the_same_text(a: str, b: str) -> None:
    conflicts = [{r.name for r in wording_relations(x, y) if r.kind == "conflict"} for x, y in ((a, b), (b, a), (a, a))]
    assert conflicts[0] == conflicts[1]
    assert not conflicts[2]


def test_a_huge_message_is_read_in_bounded_work() -> None:
    text = "if (a[b] == c) { swap(x, y); } " * 3_500
    began = time.process_time()
    wording_relations(text, text.replace("swap(x", "swap(z", 1))
    wording_relations("a b " * 25_000, "b a " * 25_000)
    assert time.process_time() - began < 20  # a guard against exponential work, not a speed test


@pytest.mark.parametrize(
    ("a", "b", "refused"),
    [
        ("router", "How do I reset my router?", True),
        ("Rental property", "Do I get a tax deduction if I buy a property to rent out?", True),
        ("退货", "退货的运费谁出？", True),
        ("opening hours of the museum", "What are the opening hours of the museum?", False),
        ("yes", "yes please", False),
        ("reset modem password", "How do I reset the modem's password?", False),
        ("lamps?", "What about illumination?", False),
        ("lamps", "illumination", True),
        ("灯呢", "照明怎么安排？", False),
    ],
)
def test_a_bare_topic_is_not_a_question_about_it(a: str, b: str, refused: bool) -> None:
    assert ("topic" in _vetoes(a, b)) is refused


@pytest.mark.parametrize(
    "text",
    ["The server is down", "He is a doctor", "My flight is cancelled", "You are a doctor", "他是医生", "这是真的"],
)
def test_a_statement_is_not_the_question_whether_it_holds(text: str) -> None:
    mark = "？" if not text.isascii() else "?"
    for one, other in ((text, text + mark), (text + mark, text), (text + ("。" if mark == "？" else "."), text + mark)):
        assert "question" in _vetoes(one, other)


@pytest.mark.parametrize("text", ["how do I reset it", "Is homework allowed", "what is DNS", "怎么退款", "可以退款吗"])
def test_a_question_is_one_with_its_mark_or_without(text: str) -> None:
    mark = "？" if not text.isascii() else "?"
    assert not _vetoes(text, text + mark)
