"""What the generator of training pairs makes of a pair."""

from __future__ import annotations

import pytest

from eval.data import Pair
from eval.train.augment import Augmenter
from fingerprint.conversation import Message, Turn


def pair(text: str, lang: str = "en") -> Pair:
    turn = Turn((), (), Message("user", text))
    return Pair(
        id="x", lang=lang, category="paraphrase", a=turn, b=turn, equivalent=True, family="f", domain="d",
        subtype="", label_origin="dataset", source="test",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "lang", "kept"),
    [
        ("My tap drips. How do I change the washer?", "en", ["My tap drips.", "change the washer"]),
        ("What's the difference between rye and spelt?", "en", ["rye and spelt"]),
        ("How much does the family ticket cost?", "en", ["the family ticket"]),
        ("怎么申请护照？", "zh", ["申请", "护照"]),
        ("什么是复利？", "zh", ["复利"]),
    ],
)
def test_a_question_put_in_another_sentence_keeps_what_is_asked(asked: str, lang: str, kept: list[str]) -> None:
    maker = Augmenter([pair(asked, lang)], seed=3)
    same = [p for _ in range(60) if (p := maker.framed(pair(asked, lang))) is not None and p.equivalent]
    said = {turn.message.text for p in same for turn in (p.a, p.b)} - {asked}
    assert len(said) >= 3
    assert all(part.lower() in text.lower() for text in said for part in kept)


def test_another_sentence_says_nothing_about_the_label() -> None:
    one = pair("How do I turn on two-step login?")
    maker = Augmenter([one], seed=4)
    made = [p for _ in range(200) if (p := maker.framed(one)) is not None]
    different = [p for p in made if not p.equivalent]
    assert 0.2 < len(different) / len(made) < 0.6
