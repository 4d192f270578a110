"""The shipped cross-encoder, run as it runs in the proxy."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from fingerprint.conversation import Message, Turn
from fingerprint.embedding.base import EmbedderError
from store.confidence.cross_encoder import ArtefactError, CrossEncoder

GOLDEN = Path(__file__).parent / "cross_encoder_golden.json"


def turn(*texts: str) -> Turn:
    roles = ["user", "assistant"]
    history = [Message(roles[i % 2], text) for i, text in enumerate(texts[:-1])]
    return Turn((), tuple(history), Message("user", texts[-1]))


@pytest.fixture(scope="module")
def encoder() -> CrossEncoder:
    loaded = CrossEncoder.load()
    try:
        loaded.warm_up()
    except EmbedderError as error:
        pytest.skip(f"the weights of the embedders are not installed: {error}")
    return loaded


def golden() -> list[tuple[list[str], list[str], float]]:
    rows: list[tuple[list[str], list[str], float]] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return rows


@pytest.mark.parametrize("a, b, expected", golden())
def test_scores_are_those_of_the_trained_model(
    encoder: CrossEncoder, a: list[str], b: list[str], expected: float
) -> None:
    # Expected: float32 torch. Int8 differs from it by 0.1 on average, 0.5 at worst, and a little between kinds of CPU.
    assert encoder.score(turn(*a), turn(*b)) == pytest.approx(expected, abs=0.8)


@pytest.mark.parametrize("a, b, _expected", golden())
def test_the_order_of_a_pair_does_not_matter(
    encoder: CrossEncoder, a: list[str], b: list[str], _expected: float
) -> None:
    assert encoder.score(turn(*a), turn(*b)) == encoder.score(turn(*b), turn(*a))
    assert once(encoder, turn(*a), turn(*b)) == once(encoder, turn(*b), turn(*a))


def once(encoder: CrossEncoder, a: Turn, b: Turn) -> float:
    return encoder.score(a, b, enough=lambda _: True)


def test_both_readings_count_unless_the_first_is_enough(encoder: CrossEncoder) -> None:
    pair = turn("How do I renew my passport?"), turn("What do I need to get a new passport?")
    first: list[float] = []
    score = encoder.score(*pair, enough=lambda logit: bool(first.append(logit)))  # type: ignore[func-returns-value]
    assert first == [once(encoder, *pair)]
    assert score != first[0]


OFFERS = ("My parcel has not come.", "Shall I send a new one?"), ("My parcel has not come.", "Shall I refund it?")


@pytest.mark.parametrize(
    "base, same, different",
    [
        (
            turn("How do I reset my password?"),
            turn("Hi, how can I reset my password? Thanks!"),
            turn("How do I reset my PIN?"),
        ),
        (
            turn("What does a ticket from Porto to Lisbon cost?"),
            turn("what's the price of a ticket from Porto to Lisbon"),
            turn("What does a ticket from Lisbon to Porto cost?"),
        ),
        (turn(*OFFERS[0], "yes please"), turn(*OFFERS[0], "Yes, do that please."), turn(*OFFERS[1], "yes please")),
        (turn("怎么开通国际漫游？"), turn("请问如何开通国际漫游"), turn("怎么关闭国际漫游？")),
        (turn("退货运费谁出？"), turn("您好，退货的运费由谁承担？"), turn("换货运费谁出？")),
    ],
)
def test_the_same_question_scores_above_one_that_differs_in_a_word(
    encoder: CrossEncoder, base: Turn, same: Turn, different: Turn
) -> None:
    assert encoder.score(base, same) > encoder.score(base, different)


@pytest.mark.parametrize(
    "strange",
    ["", " ", "[SEP] [CLS] <s> </s>", "\ud800 half a pair", "\x00\u200b\ufeff", "🙂" * 50, "ünïcödé ßtraße", "ਪੰਜਾਬੀ"],
)
def test_any_text_gets_a_finite_score(encoder: CrossEncoder, strange: str) -> None:
    score = encoder.score(turn(strange, strange, strange), turn("What is the fee?"))
    assert abs(score) < 100


def test_a_hundred_kilobytes_are_scored_from_a_bounded_part(encoder: CrossEncoder) -> None:
    long = turn("word 1 " * 15_000, "很长的回答。" * 15_000, "And the price of it? " * 5_000)
    assert abs(encoder.score(long, long)) < 100


def test_english_and_chinese_have_a_model_each() -> None:
    assert CrossEncoder.route(turn("How?"), turn("Why?")) == "en"
    assert CrossEncoder.route(turn("How?"), turn("怎么办")) == "zh"
    assert CrossEncoder.route(turn("怎么办"), turn("How?")) == "zh"
    assert CrossEncoder.route(turn("123"), turn("!")) == "en"


def test_the_version_names_the_artefacts(encoder: CrossEncoder, tmp_path: Path) -> None:
    assert CrossEncoder.load().version == encoder.version
    artefacts = {route: tmp_path / path.name for route, path in encoder._artefacts.items()}
    for route, path in encoder._artefacts.items():
        shutil.copyfile(path, artefacts[route])
    assert CrossEncoder(artefacts).version == encoder.version
    with artefacts["en"].open("ab") as file:
        file.write(b"\0")
    assert CrossEncoder(artefacts).version != encoder.version


def test_a_missing_or_damaged_artefact_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    with pytest.raises(ArtefactError, match=r"broken\.onnx"):
        CrossEncoder({"en": broken, "zh": broken})
    broken.write_bytes(b"not a graph")
    with pytest.raises(ArtefactError, match=r"broken\.onnx"):
        CrossEncoder({"en": broken, "zh": broken}).score(turn("a"), turn("b"))
