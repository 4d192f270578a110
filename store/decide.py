"""The reuse decision: a pure function over plain values (DESIGN §3.7).

No network, disk or clock: the proxy, the evaluator and the tests run this very code.

Order of judgement. A candidate in a state that may not be served is passed over. The cheap estimate is made of the
others, nearest first; the expensive one of two at most: the first that the cheap one does not doubt, and the best of
the rest (a second one only where the cheap estimate leaves it a chance). Guards are vetoes: they are asked before a
candidate is looked at closely, and only what was looked at closely can be served, so no similarity outvotes them; of
what the cheap estimate leaves behind they are not asked at all. Then two thresholds:

- confidence at or above ``answer`` (or what the error budget asks for, if that is more): the candidate's answer is
  served;
- from ``band`` on (never under ``verify``): served as *suspect* where the structural fingerprints are equal; ``band``
  is None where nothing verifies suspects;
- else from ``verify`` on: ``kv``;
- below: ``miss``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from fingerprint.conversation import Turn
from fingerprint.facts import Fingerprint, fingerprint_equal
from store.types import Candidate, Decision, Judgement, Kind, Policy, Relation, ReuseConfidence

__all__ = ["Objections", "decide"]

Objections = Callable[[Turn, Turn, bool], tuple[tuple[Relation, ...], tuple[str, ...]]]
"""Guards: query, candidate, same node or not -> every relation, and the names of those that veto."""

SERVABLE = frozenset({"active", "frozen"})
CLOSE_LOOKS = 2
"""How many candidates the second stage may look at."""
WORTH_ANOTHER_LOOK = 0.5
"""The share of ``verify`` that the cheap estimate must reach for a second close look: of 123 pairs that reached
``verify`` in 1,500 logged turns one had less, of those looked at a quarter."""


def decide(
    query: Turn,
    candidates: Sequence[Candidate],
    policy: Policy,
    confidence: ReuseConfidence,
    objections: Objections,
    *,
    thorough: bool = False,
    equal: Callable[[Turn, Turn | Fingerprint], bool] = fingerprint_equal,
) -> Decision:
    """Decide whether one of ``candidates`` answers ``query``.

    ``candidates`` in any order; the ``policy.max_candidates`` nearest are judged, those of the same place before the
    rest, nearest first, until one is sure enough: those behind it could only cost time. ``thorough`` judges them all
    and asks the guards about each. ``equal`` says whether two turns have equal structural fingerprints (the candidate's
    as stored, where it is); asked of one candidate at most.
    Every one judged is in ``Decision.judgements``, best first, with relations and objections where guards were asked;
    the first one always is.

    Errors raised by ``confidence`` or ``objections`` are not caught here: a failure is not an approval, and the caller
    counts it as a miss.
    """
    servable = [c for c in candidates if c.state in SERVABLE]
    if not servable:
        return Decision("miss", "no candidate" if not candidates else "no candidate that may be served")
    nearest = sorted(servable, key=lambda c: (not c.same_place, -c.similarity))[: policy.max_candidates]

    def sure(judgement: Judgement) -> bool:
        return judgement.confidence >= policy.least(same_place=judgement.same_place)

    def guarded(candidate: Candidate, judgement: Judgement) -> Judgement:
        relations, vetoes = objections(query, candidate.turn, candidate.same_place)
        sureness = 0.0 if vetoes else judgement.confidence
        return replace(judgement, confidence=sureness, relations=relations, objections=vetoes)

    judged: list[tuple[Candidate, Judgement]] = []
    open_: list[tuple[Candidate, Judgement]] = []  # not looked at closely, and no guard has objected
    close: list[Judgement] = []  # only what was looked at closely can be served

    def look(candidate: Candidate, judgement: Judgement) -> None:
        if not thorough:
            judgement = guarded(candidate, judgement)
        if not judgement.objections:
            judgement = _closely(query, candidate, judgement, confidence)
            close.append(judgement)
        judged.append((candidate, judgement))

    for candidate in nearest:
        judgement = Judgement(
            candidate.entry_id, candidate.similarity, candidate.same_place, 0.0, direct=candidate.direct
        )
        if thorough:
            judgement = guarded(candidate, judgement)
            if judgement.objections:
                judged.append((candidate, judgement))
                continue
        judgement = replace(judgement, confidence=_probability(confidence.first(query, candidate)))
        if thorough or close or judgement.confidence < policy.verify:
            open_.append((candidate, judgement))
            continue
        look(candidate, judgement)
        if close and sure(close[0]):
            break

    def rank(judgement: Judgement) -> tuple[bool, bool, float, float]:
        unopposed = not judgement.objections
        return (unopposed, unopposed and sure(judgement), judgement.confidence, judgement.similarity)

    if not (close and sure(close[0])):
        open_.sort(key=lambda p: rank(p[1]), reverse=True)
        while open_ and len(close) < CLOSE_LOOKS:
            if close and open_[0][1].confidence < WORTH_ANOTHER_LOOK * policy.verify:
                break
            look(*open_.pop(0))
            if close and sure(close[-1]) and not thorough:
                break
    # A candidate nobody looked at closely must not overtake one that was.
    judged = sorted([*judged, *open_], key=lambda p: (p[1] in close, *rank(p[1])), reverse=True)
    judgements = tuple(judgement for _, judgement in judged)
    top = judgements[0]
    if top.objections:
        return Decision("miss", f"guard: {', '.join(top.objections)}", None, 0.0, judgements)
    kind: Kind = "same_place" if top.same_place else "other_context"
    if sure(top):
        return Decision("answer", "confident", top.entry_id, top.confidence, judgements, kind)
    if top.confidence < policy.verify:
        return Decision("miss", "confidence too low", None, top.confidence, judgements)
    if top.confidence >= policy.answer:
        return Decision("kv", "held back by the error budget", top.entry_id, top.confidence, judgements, kind)
    candidate = next(c for c in nearest if c.entry_id == top.entry_id)
    if not equal(query, candidate.meaning):
        return Decision("kv", "not sure enough to answer", top.entry_id, top.confidence, judgements)
    if policy.band is not None and top.confidence >= policy.band:
        return Decision("answer", "suspect", top.entry_id, top.confidence, judgements, "band", suspect=True)
    return Decision("kv", "not verified yet", top.entry_id, top.confidence, judgements, "band")


def _closely(query: Turn, candidate: Candidate, judgement: Judgement, confidence: ReuseConfidence) -> Judgement:
    """The judgement with the best estimate in place of the cheap one."""
    return replace(judgement, confidence=_probability(confidence.second(query, candidate, judgement.confidence)))


def _probability(value: float) -> float:
    """``value`` where it is a probability, else 0: a broken estimate (NaN, out of range) never serves."""
    return value if math.isfinite(value) and 0.0 <= value <= 1.0 else 0.0
