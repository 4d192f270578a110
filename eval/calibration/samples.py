"""What thresholds are chosen from: a confidence, and whether serving the stored answer would have been right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eval.pairs import Outcome
from fingerprint.conversation import Turn
from fingerprint.facts import fingerprint_of
from store.shadow import Conflict, Observation

__all__ = ["Flags", "Sample", "Scores", "intent_of", "observed", "of_outcomes", "rights", "scores"]

_EXCERPT = 600

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


def observed(outcomes: Sequence[Outcome], answer: float) -> list[Observation]:
    """Labelled pairs as if they had been watched with the threshold ``answer``, so that mistakes can be looked at."""
    seen = []
    for o in outcomes:
        best = o.decision.judgements[0] if o.decision.judgements else None
        served = o.score > 0 and o.score >= answer
        conflicts = (
            () if best is None else tuple(Conflict(r.name, r.sentence) for r in best.relations if r.kind == "conflict")
        )
        seen.append(
            Observation(
                time=0.0,
                id=o.pair.id,
                level="answer" if served else "miss",
                exact=o.decision.reason == "exact",
                confidence=o.score,
                entry="a" if best is not None or served else "",
                similarity=0.0 if best is None else best.similarity,
                same_place=best is not None and best.same_place,
                objections=() if best is None else best.objections,
                conflicts=conflicts,
                verdict="agree" if o.pair.equivalent else "differ",
                lang=o.pair.lang,
                before=_before(o.pair.b),
                question=o.pair.b.message.text[:_EXCERPT],
                stored_before=_before(o.pair.a),
                stored_question=o.pair.a.message.text[:_EXCERPT],
            )
        )
    return seen


def _before(turn: Turn) -> str:
    return next((m.text[:_EXCERPT] for m in reversed(turn.history) if m.role == "assistant"), "")


def scores(samples: Sequence[Sample]) -> Scores:
    """Their confidences, shape (n,)."""
    return np.array([s.score for s in samples], np.float64)


def rights(samples: Sequence[Sample]) -> Flags:
    """Their labels, shape (n,)."""
    return np.array([s.right for s in samples], bool)
