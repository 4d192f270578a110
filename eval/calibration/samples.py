"""What thresholds are chosen from: a confidence, and whether serving the stored answer would have been right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eval.pairs import Outcome
from fingerprint.conversation import Turn
from fingerprint.facts import fingerprint_of

__all__ = ["Flags", "Sample", "Scores", "intent_of", "of_outcomes", "rights", "scores"]

Scores = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Sample:
    """One look-up. ``score`` is the confidence in the best stored turn, 0 where admission or a guard forbade it."""

    id: str
    score: float
    right: bool
    lang: str = ""
    intent: str = ""
    category: str = ""


def intent_of(turn: Turn) -> str:
    """What a turn wants (how_to, status, definition, …), ``other`` where no rule says; never raises."""
    try:
        return fingerprint_of(turn).intent or "other"
    except Exception:
        return "other"


def of_outcomes(outcomes: Sequence[Outcome]) -> list[Sample]:
    """Samples of labelled pairs that went through the cache one by one."""
    return [
        Sample(
            o.pair.id, o.score, o.pair.equivalent, o.pair.lang, intent_of(o.pair.b), o.pair.category or o.pair.subtype
        )
        for o in outcomes
    ]


def scores(samples: Sequence[Sample]) -> Scores:
    """Their confidences, shape (n,)."""
    return np.array([s.score for s in samples], np.float64)


def rights(samples: Sequence[Sample]) -> Flags:
    """Their labels, shape (n,)."""
    return np.array([s.right for s in samples], bool)
