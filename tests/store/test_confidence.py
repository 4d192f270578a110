"""The shipped reuse confidence: what it may never be sure of, and what it must be sure of.

Similarities are given high on purpose: no cosine may talk the model into anything.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from importlib import resources
from typing import get_args

import numpy as np
import pytest

from fingerprint.conversation import Message, Turn
from store.confidence import load, thresholds
from store.confidence.model import (
    Calibration,
    ConfidenceError,
    Curve,
    LearnedConfidence,
    Line,
    Scale,
    Where,
    where,
)
from store.confidence.trees import Forest
from store.types import Candidate


def turn(last: str, *before: str) -> Turn:
    roles = ("user", "assistant")
    return Turn((), tuple(Message(roles[i % 2], text) for i, text in enumerate(before)), Message("user", last))


def candidate(of: Turn, similarity: float = 0.97, *, same_place: bool = False) -> Candidate:
    return Candidate("entry", of, similarity, 1.0, same_place)


@pytest.fixture(scope="module")
def shipped() -> LearnedConfidence:
    try:
        model = load()
        probe = turn("how do I reset it")
        model.second(probe, candidate(turn("how can I reset it")), 0.5)
    except ConfidenceError:
        raise
    except Exception as error:  # the embedders' exports are made on first use, from packages
        if type(error).__name__ in {"NotPreparedError", "WeightsError"}:
            pytest.skip(f"no word tables for the second stage: {error}")
        raise
    return model


DIFFERENT = [
    ("How do I enable two-factor login?", "How do I disable two-factor login?"),
    ("What is the minimum order value?", "What is the maximum order value?"),
    ("What is the purpose of a gearbox?", "What is the purpose of a letterbox?"),
    ("What is the capital of France?", "What is the capital of Spain?"),
    ("How do I import contacts?", "How do I export contacts?"),
    ("Is it safe with alcohol?", "Is it safe without alcohol?"),
    ("What is the boiling point of ethanol?", "What is the melting point of ethanol?"),
    ("Can I bring my dog?", "Can I bring my cat?"),
    ("Who wrote the play?", "Who directed the play?"),
    ("How tall is the tower?", "How old is the tower?"),
    ("How do I sort a list ascending?", "How do I sort a list descending?"),
    ("Can I still return it after 14 days?", "Can I still return it after 40 days?"),
    ("怎么打开两步验证？", "怎么关闭两步验证？"),
    ("退款要几天到账？", "换货要几天到？"),
    ("孩子发烧怎么办", "大人发烧怎么办"),
    ("可以带宠物吗", "不可以带宠物吗"),
    ("套餐每月30元的怎么办理", "套餐每月50元的怎么办理"),
    ("法国的首都是哪里", "西班牙的首都是哪里"),
]

SAME = [
    ("How do I reset my password?", "Hi! How do I reset my password? Thanks"),
    ("How do I reset my password?", "What is the way to reset my password?"),
    ("Do you ship to France?", "do u ship to france"),
    ("I forgot my password. How can I reset it?", "I forgot my pasword, how do I reset it?"),
    ("怎么重置密码？", "请问怎么重置密码？谢谢"),
    ("怎么重置密码？", "如何重置密码"),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_a_different_question_never_reaches_the_answer_threshold(
    shipped: LearnedConfidence, one: str, other: str
) -> None:
    first = shipped.first(turn(one), candidate(turn(other)))
    assert shipped.second(turn(one), candidate(turn(other)), first) < thresholds().answer


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_question_in_other_words_reaches_it(shipped: LearnedConfidence, one: str, other: str) -> None:
    of = candidate(turn(other), 0.95)
    assert shipped.second(turn(one), of, shipped.first(turn(one), of)) >= thresholds().answer


def test_the_same_reply_to_another_offer_never_reaches_it(shipped: LearnedConfidence) -> None:
    one = turn("yes please", "my parcel is late", "Shall I open a claim for it?")
    other = turn("yes please", "my parcel is late", "Shall I cancel the order and refund you?")
    of = candidate(other, 1.0)
    assert shipped.second(one, of, shipped.first(one, of)) < thresholds().answer


def test_a_question_from_earlier_in_the_conversation_never_reaches_it(shipped: LearnedConfidence) -> None:
    one = turn("How long do they live?", "How much does a wolfhound weigh?", "About 60 kg.")
    other = turn("How much does a wolfhound weigh?")
    of = candidate(other, 0.9)
    assert shipped.second(one, of, shipped.first(one, of)) < thresholds().answer


@pytest.mark.parametrize(
    "text", ["Wie setze ich mein Passwort zurück, wenn ich es vergessen habe?", "パスワードを変更したい"]
)
def test_a_language_without_tables_is_not_judged(shipped: LearnedConfidence, text: str) -> None:
    of = candidate(turn(text), 1.0)
    assert shipped.first(turn(text), of) == 0.0
    assert shipped.second(turn(text), of, 0.9) == 0.0


def test_which_turn_is_stored_makes_no_difference(shipped: LearnedConfidence) -> None:
    for one, other in (*DIFFERENT[:3], *SAME[:3]):
        assert shipped.first(turn(one), candidate(turn(other))) == shipped.first(turn(other), candidate(turn(one)))


def test_the_thresholds_are_in_order() -> None:
    policy = thresholds()
    assert 0.5 < policy.verify <= policy.answer < 1.0


def test_the_shipped_numbers_name_their_version() -> None:
    numbers = json.loads(resources.files("store.confidence").joinpath("thresholds.json").read_text(encoding="utf-8"))
    assert load().version == numbers["version"]


# -- the combination, with numbers that can be followed by hand ------------------------------------------------------


def constant(score: float) -> Forest:
    return Forest(
        feature=np.array([0], np.int32),
        threshold=np.array([np.inf], np.float32),
        left=np.array([0], np.int32),
        right=np.array([0], np.int32),
        value=np.array([0.0], np.float32),
        roots=np.array([0], np.int32),
        depth=0,
        baseline=score,
        scale=1.0,
    )


class Second:
    """A second stage that always says the same, first ``once`` and then its ``logit``, and remembers what it saw."""

    def __init__(self, logit: float, once: float | None = None) -> None:
        self.logit = logit
        self.once = logit if once is None else once
        self.seen: list[Turn] = []

    def score(self, query: Turn, candidate: Turn, *, enough: Callable[[float], bool] | None = None) -> float:
        self.seen.append(candidate)
        return self.once if enough is not None and enough(self.once) else self.logit


def combined(first: float, second: float, most: float = math.inf) -> tuple[LearnedConfidence, Second]:
    line = Curve(np.array([-2.0, 2.0]), np.array([0.0, 1.0]))
    calibration = Calibration(Scale(0.0, 1.0), line, Scale(0.0, 1.0), line, most, reach=0.0)
    stage = Second(second)
    return LearnedConfidence({"en": constant(first)}, {"en": calibration}, stage, "test"), stage


def test_the_two_stages_are_added_and_read_off_the_curve() -> None:
    model, _ = combined(0.5, 0.5)
    of = candidate(turn("b"))
    assert model.first(turn("a"), of) == pytest.approx(0.625)
    assert model.second(turn("a"), of, 0.625) == pytest.approx(0.75)


@pytest.mark.parametrize(("once", "counts"), [(-0.6, "once"), (0.0, "both"), (0.4, "both"), (0.6, "once")])
def test_a_second_reading_is_spared_where_it_could_change_nothing(once: float, counts: str) -> None:
    line = Curve(np.array([-2.0, 2.0]), np.array([0.0, 1.0]))
    calibration = Calibration(Scale(0.0, 1.0), line, Scale(0.0, 1.0), line, unsure=(0.0, 1.0))
    model = LearnedConfidence({"en": constant(0.5)}, {"en": calibration}, Second(0.2, once), "test")
    told = model.second(turn("a"), candidate(turn("b")), 0.6)
    assert told == pytest.approx(line(0.5 + (once if counts == "once" else 0.2)))


@pytest.mark.parametrize(
    ("query", "other", "same_place", "place"),
    [
        (turn("a"), turn("b"), True, "start"),
        (turn("a", "q", "r"), turn("b", "q2", "r2"), True, "same"),
        (turn("a", "q", "r"), turn("b", "q", "r"), False, "same"),
        (turn("a of q", ), turn("b", "q", "r"), False, "alone"),
        (turn("a", "q", "r"), turn("b of q"), False, "alone"),
        (turn("a", "q", "r"), turn("b", "q2", "r2"), False, "other"),
    ],
)  # fmt: skip
def test_the_same_scores_mean_more_or_less_by_where_two_turns_stand(
    query: Turn, other: Turn, same_place: bool, place: Where
) -> None:
    line = Curve(np.array([-2.0, 2.0]), np.array([0.0, 1.0]))
    places = {place: Line(slope=0.5, shift=1.0)}
    calibration = Calibration(Scale(0.0, 1.0), line, Scale(0.0, 1.0), line, places=places)
    model = LearnedConfidence({"en": constant(0.5)}, {"en": calibration}, Second(0.1), "test")
    assert where(query, candidate(other, same_place=same_place)) == place
    assert model.second(query, candidate(other, same_place=same_place), 0.6) == pytest.approx(line(0.5 * 0.6 + 1.0))


def test_far_apart_nothing_is_served_unless_both_stand_after_one_history() -> None:
    line = Curve(np.array([-2.0, 2.0]), np.array([0.0, 1.0]))
    calibration = Calibration(Scale(0.0, 1.0), line, None, None, nearest=dict.fromkeys(get_args(Where), 0.45))
    model = LearnedConfidence({"en": constant(2.0)}, {"en": calibration}, None, "test")
    assert model.first(turn("a"), candidate(turn("b"), 0.44)) == 0.0
    assert model.second(turn("a"), candidate(turn("b"), 0.44), 0.9) == 0.0
    assert model.first(turn("a"), candidate(turn("b"), 0.44, same_place=True)) == 0.0
    assert model.first(turn("a"), candidate(turn("b"), 0.45)) == 1.0
    before = ("my parcel is late", "Shall I open a claim?")
    assert model.first(turn("yes", *before), candidate(turn("yes please", *before), 0.1)) == 1.0
    assert model.first(turn("yes", *before), candidate(turn("where is it?", *before), 0.1)) == 0.0


def test_another_follow_up_of_one_conversation_must_be_nearer_than_a_first_message() -> None:
    line = Curve(np.array([-2.0, 2.0]), np.array([0.0, 1.0]))
    calibration = Calibration(Scale(0.0, 1.0), line, None, None, nearest={"start": 0.3, "alone": 0.3, "same": 0.5})
    model = LearnedConfidence({"en": constant(2.0)}, {"en": calibration}, None, "test")
    before = ("tell me of the tower", "It stands in Pisa.")
    assert model.first(turn("how tall is it?", *before), candidate(turn("who built it?", *before), 0.4)) == 0.0
    assert model.first(turn("how tall is it?", *before), candidate(turn("what height?", *before), 0.6)) == 1.0
    assert model.first(turn("how tall is Pisa's tower?"), candidate(turn("height of Pisa's tower"), 0.4)) == 1.0


def test_what_the_first_stage_rules_out_the_second_is_not_asked() -> None:
    model, stage = combined(-1.5, 2.0, most=1.0)  # at best -0.5, and 0 is what it takes
    of = candidate(turn("b"))
    assert model.second(turn("a"), of, model.first(turn("a"), of)) == pytest.approx(0.125)
    assert stage.seen == []
    model, stage = combined(-1.5, 2.0, most=1.5)
    assert model.second(turn("a"), of, model.first(turn("a"), of)) == pytest.approx(0.625)
    assert len(stage.seen) == 1


def test_at_one_place_the_second_stage_reads_both_messages_after_the_same_history() -> None:
    model, stage = combined(0.0, 0.0)
    query, other = turn("a", "my parcel", "Shall I?"), turn("b", "the parcel", "Should I?")
    model.second(query, candidate(other, same_place=True), 0.5)
    assert stage.seen == [Turn((), query.history, other.message)]


@pytest.mark.parametrize(
    "table",
    [
        {"scores": [0, 1], "probabilities": [0.5, 0.4]},
        {"scores": [1, 1], "probabilities": [0.1, 0.2]},
        {"scores": [0], "probabilities": [0.1, 0.2]},
        {"scores": [], "probabilities": []},
        {"scores": [0, 1], "probabilities": [0.5, 1.4]},
    ],
)
def test_a_curve_that_does_not_rise_from_0_to_1_is_refused(table: dict[str, list[float]]) -> None:
    with pytest.raises(ConfidenceError):
        Curve.read(table)
