"""The operator's thresholds file: what is taken, what is refused, and how its curve corrects the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerprint.conversation import Message, Turn
from store.confidence.thresholds_file import (
    Correction,
    Refitted,
    ThresholdsError,
    ThresholdsFile,
    confidence_of,
    read_thresholds,
)
from store.types import Candidate

GOOD: dict[str, Any] = {"format": "antiphon-thresholds-1", "model": "m-1", "answer": 0.9, "verify": 0.5}
TURN = Turn((), (), Message("user", "where is the shop"))


class Fixed:
    """Always as sure."""

    version = "m-1"

    def __init__(self, first: float, second: float) -> None:
        self._first, self._second = first, second

    def first(self, query: Turn, candidate: Candidate) -> float:
        return self._first

    def second(self, query: Turn, candidate: Candidate, first: float) -> float:
        assert first == self._first  # its own number, not the corrected one
        return self._second


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    curve = Correction(scores=(0.0, 1.0), probabilities=(0.1, 0.8))
    made = ThresholdsFile(model="m-1", answer=0.9, verify=0.5, correction=curve, evidence={"n": 400})
    made.write(file)
    assert read_thresholds(file, "m-1") == made
    assert [f.name for f in tmp_path.iterdir()] == ["mine.json"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"verify": 0.95}, "greater than answer"),
        ({"answer": 0.0, "verify": 0.0}, "serve anything"),
        ({"answer": 1.5}, "less than or equal to 1"),
        ({"answer": "high"}, "answer"),
        ({"format": "antiphon-thresholds-9"}, "format"),
        ({"answre": 0.9}, "answre"),
        ({"model": "m-0"}, "calibrate again"),
        ({"correction": {"scores": [0.5, 0.1], "probabilities": [0, 1]}}, "must rise"),
        ({"correction": {"scores": [0, 1], "probabilities": [1, 0]}}, "must not fall"),
        ({"correction": {"scores": [0, 1], "probabilities": [0, 0.5, 1]}}, "as many"),
    ],
)
def test_a_file_that_could_mislead_is_refused_in_one_line(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(GOOD | change))
    with pytest.raises(ThresholdsError, match=why) as raised:
        read_thresholds(file, "m-1")
    assert "\n" not in str(raised.value) and str(file) in str(raised.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"null", b'{"answer": NaN}', b" " * 2_000_000])
def test_a_broken_file_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "mine.json"
    file.write_bytes(content)
    with pytest.raises(ThresholdsError):
        read_thresholds(file, "m-1")
    with pytest.raises(ThresholdsError):
        read_thresholds(tmp_path / "absent.json", "m-1")
    with pytest.raises(ThresholdsError):
        read_thresholds(tmp_path, "m-1")


def test_a_curve_corrects_both_stages_and_leaves_a_guards_no_alone() -> None:
    curve = Correction(scores=(0.0, 1.0), probabilities=(0.2, 0.6))
    candidate = Candidate("e", TURN, 1.0, 1.0, True)
    refitted = Refitted(Fixed(0.5, 0.75), curve)
    assert refitted.first(TURN, candidate) == pytest.approx(0.4)
    assert refitted.second(TURN, candidate, refitted.first(TURN, candidate)) == pytest.approx(0.5)
    assert Refitted(Fixed(0.0, 0.0), curve).first(TURN, candidate) == 0.0
    assert refitted.version.startswith("m-1+")
    file = ThresholdsFile(model="m-1", answer=0.9, verify=0.5)
    plain = Fixed(0.5, 0.75)
    assert confidence_of(file, plain) is plain


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=20), st.floats(0, 1))
def test_a_curve_never_leaves_the_range_of_a_probability(points: list[tuple[float, float]], at: float) -> None:
    scores = sorted({s for s, _ in points})
    if len(scores) < 2:
        return
    probabilities = sorted(p for _, p in points)[: len(scores)]
    curve = Correction(scores=tuple(scores), probabilities=tuple(probabilities))
    assert 0.0 <= curve(at) <= 1.0
