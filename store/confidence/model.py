"""The shipped reuse confidence: two stages, their combination, its calibration, and the thresholds that belong to it.

First stage: trees over the comparisons of the two turns, a fraction of a millisecond. Second stage: a cross-encoder
that reads both conversations, for the few candidates the first does not rule out. Their logits are brought to one scale
and added, and the sum is read off a calibration curve (``thresholds.json``, written by ``eval.train.calibrate``).

What the model was not made for it does not judge: a message in a language it cannot read, or in none, gets 0.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fingerprint.comparisons import NAMES, SCHEMA_VERSION, compare
from fingerprint.comparisons.readable import readable
from fingerprint.comparisons.view import language_of
from fingerprint.conversation import Turn
from fingerprint.facts.extract import facts_of
from store.confidence.trees import Forest
from store.types import Candidate, Policy

__all__ = [
    "ConfidenceError",
    "LearnedConfidence",
    "SecondStage",
    "Where",
    "load",
    "shipped_numbers",
    "thresholds",
    "too_far",
    "where",
]

FOLDER = "store.confidence"

Where = Literal["start", "same", "alone", "other"]


class ConfidenceError(RuntimeError):
    """The shipped numbers are damaged or do not belong to the shipped trees."""


class SecondStage(Protocol):
    """What ``cross_encoder.CrossEncoder`` is to this module."""

    def score(self, query: Turn, candidate: Turn, *, enough: Callable[[float], bool] | None = None) -> float:
        """Logit that one answer serves both; symmetric. A first look that is ``enough`` spares the second."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A calibration curve: non-decreasing, straight between its points, flat beyond its ends."""

    scores: NDArray[np.float64]
    probabilities: NDArray[np.float64]

    def __call__(self, score: float) -> float:
        """Probability, 0 … 1."""
        return float(np.interp(score, self.scores, self.probabilities))

    def at(self, probability: float) -> float:
        """The score at which the curve reaches a probability; one of its ends where it never does."""
        return float(np.interp(probability, self.probabilities, self.scores))

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> Curve:
        """Raises ``ConfidenceError`` for a curve that falls or leaves 0 … 1."""
        scores = np.array(table["scores"], np.float64)
        probabilities = np.array(table["probabilities"], np.float64)
        rising = len(scores) == len(probabilities) > 0 and bool((np.diff(scores) > 0).all())
        if not rising or (np.diff(probabilities) < 0).any() or probabilities[0] < 0 or probabilities[-1] > 1:
            raise ConfidenceError("a calibration curve is not a rising curve of probabilities")
        return cls(scores, probabilities)


@dataclass(frozen=True, slots=True)
class Scale:
    """Brings one stage's logit to mean 0 and deviation 1 over the calibration pairs."""

    mean: float
    deviation: float

    def __call__(self, logit: float) -> float:
        return (logit - self.mean) / self.deviation


@dataclass(frozen=True, slots=True)
class Line:
    """Log odds from both stages' sum and from how near the two messages are (cosine −1 … 1)."""

    slope: float = 1.0
    shift: float = 0.0
    near: float = 0.0

    def __call__(self, value: float, similarity: float) -> float:
        return self.slope * value + self.shift + self.near * similarity


@dataclass(frozen=True, slots=True)
class Calibration:
    """The numbers of one language.

    ``alone`` reads the first stage's scaled logit; ``together`` the sum of both, which is brought to log odds first by
    the line of the place the two turns stand at (``where``): the same sum means more after one history than after two,
    and less the further away the messages are, for what is far away in a full cache is nearly always something else.
    ``most`` is the scaled logit that the second stage is credited with before it is asked: where even that would leave
    a pair under the log odds ``reach`` of the ``verify`` threshold, it is not asked.
    ``nearest`` is by place the cosine of the last messages under which nothing is served, unless both say yes or no to
    the same: most of a full cache is that far away, and nearly all of it is something else. ``unsure`` are the log
    odds, from and to, between which a pair is read in both orders; outside, the other order would change nothing.
    """

    first: Scale
    alone: Curve
    second: Scale | None
    together: Curve | None
    most: float = math.inf
    reach: float = -math.inf
    nearest: Mapping[Where, float] = field(default_factory=dict)
    places: Mapping[Where, Line] = field(default_factory=dict)
    unsure: tuple[float, float] = (-math.inf, math.inf)

    @classmethod
    def read(cls, table: Mapping[str, Any], policy: Policy) -> Calibration:
        """``policy`` are the thresholds that belong to it. Raises ``ConfidenceError``, ``KeyError``, ``TypeError``."""
        second = table.get("second")
        together = Curve.read(table["together"]) if second else None
        margin = float(table["margin"]) if second else math.inf
        return cls(
            first=Scale(**table["first"]),
            alone=Curve.read(table["alone"]),
            second=Scale(**second) if second else None,
            together=together,
            most=float(table["most"]) if second else math.inf,
            reach=together.at(policy.verify) if together else -math.inf,
            nearest={place: float(cosine) for place, cosine in table["nearest"].items()},
            places={place: Line(**line) for place, line in table.get("places", {}).items()},
            unsure=(together.at(policy.verify) - margin, together.at(policy.answer) + margin)
            if together
            else (-math.inf, math.inf),
        )


class LearnedConfidence:
    """Calibrated probability that a candidate's answer is right for a turn. A ``store.types.ReuseConfidence``."""

    def __init__(
        self,
        forests: Mapping[str, Forest],
        calibrations: Mapping[str, Calibration],
        second: SecondStage | None,
        version: str,
    ) -> None:
        self._forests = forests
        self._calibrations = calibrations
        self._second = second
        self._version = version
        self._last: tuple[Turn, Candidate, tuple[Calibration, float] | None] | None = None

    @property
    def version(self) -> str:
        """Name of the artefact."""
        return self._version

    @property
    def nearest(self) -> dict[str, float]:
        """By language: the cosine under which nothing is served, wherever the two turns stand, unless both follow one
        history."""
        return {lang: min(found.nearest.values(), default=-1.0) for lang, found in self._calibrations.items()}

    def _first_scaled(self, query: Turn, candidate: Candidate) -> tuple[Calibration, float] | None:
        # The second stage is asked right after the first, of the same pair.
        last = self._last
        if last is not None and last[0] is query and last[1] is candidate:
            return last[2]
        found = self._compared(query, candidate)
        self._last = (query, candidate, found)
        return found

    def _compared(self, query: Turn, candidate: Candidate) -> tuple[Calibration, float] | None:
        texts = query.message.text, candidate.turn.message.text
        if not all(map(readable, texts)):
            return None
        language = "zh" if "zh" in map(language_of, texts) else "en"
        calibration = self._calibrations[language]
        if too_far(query, candidate, calibration.nearest):
            return None
        row = compare(query, candidate.turn, similarity=candidate.similarity, same_place=candidate.same_place)
        return calibration, calibration.first(self._forests[language].score(row))

    def logits(self, query: Turn, candidate: Candidate, language: str) -> tuple[float, float]:
        """What both stages say of a pair, before any calibration. For training."""
        assert self._second is not None
        row = compare(query, candidate.turn, similarity=candidate.similarity, same_place=candidate.same_place)
        other = _at_one_place(candidate.turn, query) if candidate.same_place else candidate.turn
        return self._forests[language].score(row), self._second.score(query, other)

    def first(self, query: Turn, candidate: Candidate) -> float:
        """Cheap estimate over comparisons, 0 … 1."""
        found = self._first_scaled(query, candidate)
        return 0.0 if found is None else found[0].alone(found[1])

    def second(self, query: Turn, candidate: Candidate, first: float) -> float:
        """Best estimate, 0 … 1; ``first`` itself where there is no second stage."""
        found = self._first_scaled(query, candidate)
        if found is None:
            return 0.0
        calibration, scaled = found
        if self._second is None or calibration.second is None or calibration.together is None:
            return first
        together, line = calibration.together, calibration.places.get(where(query, candidate), Line())
        near = candidate.similarity
        best = line(scaled + calibration.most, near)
        if best < calibration.reach:
            return min(first, together(best))
        other = _at_one_place(candidate.turn, query) if candidate.same_place else candidate.turn
        low, high = calibration.unsure

        def enough(logit: float) -> bool:
            return not low <= line(scaled + second(logit), near) <= high

        second = calibration.second
        return together(line(scaled + second(self._second.score(query, other, enough=enough)), near))


def where(query: Turn, candidate: Candidate) -> Where:
    """Where the two turns stand: both at the ``start``, after the ``same`` history, one ``alone`` that says everything
    itself while the other has a history, or each after an ``other`` one."""
    if not query.history and not candidate.turn.history:
        return "start"
    if _after_the_same(query, candidate):
        return "same"
    return "other" if query.history and candidate.turn.history else "alone"


def too_far(query: Turn, candidate: Candidate, nearest: Mapping[Where, float]) -> bool:
    """Whether the last messages are less alike than ``nearest`` asks for where the two turns stand, and are not both a
    yes or a no to the same."""
    place = where(query, candidate)
    if candidate.similarity >= nearest.get(place, -1.0):
        return False
    said = [facts_of(turn.message.text) for turn in (query, candidate.turn)]
    return not (place == "same" and all(f.affirms or f.declines for f in said))


def _after_the_same(query: Turn, candidate: Candidate) -> bool:
    """Whether both stand after one history, and not merely both at the beginning."""
    return bool(query.history) and (candidate.same_place or query.history == candidate.turn.history)


def _at_one_place(candidate: Turn, query: Turn) -> Turn:
    """The candidate's message after the query's history: at one node both histories mean the same."""
    return Turn(candidate.system, query.history, candidate.message)


def load(trees: Path | None = None, *, warm: bool = True) -> LearnedConfidence:
    """The shipped model. Raises ``ConfidenceError`` or ``store.confidence.trees.ForestError`` where it is damaged.

    ``trees`` names another folder of ``trees_LANG.npz``: to measure on pairs the shipped ones have seen. Not ``warm``,
    the second stage takes no memory until it is asked.
    """
    numbers = shipped_numbers()
    forests: dict[str, Forest] = {}
    for lang in ("en", "zh"):
        name = f"trees_{lang}.npz"
        with (trees / name if trees else resources.files(FOLDER).joinpath(name)).open("rb") as file:
            forests[lang] = Forest.read(file, names=NAMES)
    try:
        if numbers["comparisons"] != SCHEMA_VERSION:
            raise ConfidenceError("thresholds.json was made for other comparisons")
        policy = thresholds()
        calibrations = {lang: Calibration.read(table, policy) for lang, table in numbers["languages"].items()}
        version = str(numbers["version"])
    except (KeyError, TypeError) as error:
        raise ConfidenceError(f"thresholds.json: {error!r}") from error
    second: SecondStage | None = None
    if any(c.second is not None for c in calibrations.values()):
        from store.confidence.cross_encoder import CrossEncoder

        cross_encoder = CrossEncoder.load()
        if warm:
            cross_encoder.warm_up()  # the first turns that need it have a deadline
        second = cross_encoder
    return LearnedConfidence(forests, calibrations, second, version)


def thresholds() -> Policy:
    """``answer`` and ``verify`` of the shipped ``thresholds.json``."""
    numbers = shipped_numbers()
    return Policy(answer=float(numbers["answer"]), verify=float(numbers["verify"]))


def shipped_numbers() -> dict[str, Any]:
    """``thresholds.json`` as it is shipped. Raises `ConfidenceError` where it is damaged."""
    try:
        numbers: dict[str, Any] = json.loads(
            resources.files(FOLDER).joinpath("thresholds.json").read_text(encoding="utf-8")
        )
    except ValueError as error:
        raise ConfidenceError(f"thresholds.json is not JSON: {error}") from error
    return numbers
