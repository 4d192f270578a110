"""Watching instead of serving: the decision is taken as ever, and the answer it would have served is compared.

What is observed here is what shadow mode writes down, what ``antiphon replay`` makes out of a log, and what
``antiphon calibrate --from-shadow`` chooses thresholds from: one code, so that the estimate is the live rate.

The store goes the way it would have gone: a turn that would have been served records nothing, and its conversation
stands on the node of the stored answer, under the words that the client really got.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from fingerprint.comparisons.view import language_of
from fingerprint.conversation import Turn
from fingerprint.facts import fingerprint_of
from store.agreement import Agreement, AgreementVerdict
from store.types import Answer, Decision, Hit, Level, Query

if TYPE_CHECKING:
    from store.cache import Cache

__all__ = ["Conflict", "Judge", "Observation", "Outcome", "bypassed", "follow", "observe", "outcome_of"]

Outcome = Literal["right", "wrong", "doubtful", "unknown"]
"""Of a stored answer that was or would have been served: by its comparison with the real one."""

Judge = Callable[[Turn, str, str], Awaitable[bool | None]]
"""Whether two answers to a turn come to the same; None where it does not say. Never raises."""

_EXCERPT: Final = 600  # characters of a message or answer that are kept


class Conflict(msgspec.Struct, frozen=True):
    """A conflict of the turn with its best candidate; ``sentence`` is for people, empty where texts are not kept."""

    name: str
    sentence: str


class Observation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One turn, what would have become of it, and how the stored answer compares with the real one."""

    time: float
    """Seconds since the epoch at which it was observed (in a replay: at which it was asked)."""
    level: Level
    reason: str = ""
    exact: bool = False
    confidence: float = 0.0
    """In the best candidate; 0 where a guard objected or there was none; 1 for an exact repeat."""
    entry: str = ""
    """Best candidate, served or not; empty where there was none."""
    similarity: float = 0.0
    same_place: bool = False
    objections: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    verdict: AgreementVerdict | None = None
    """How the best candidate's answer compares with the real one; None where one of them is missing."""
    why: str = ""
    cosine: float | None = None
    lang: str = ""
    intent: str = ""
    model: str = ""
    session: str = ""
    """Digest of the session, or of how the conversation began."""
    turn: int = 0
    """Rounds before this one."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    """What the real answer cost the backend."""
    decide_seconds: float = 0.0
    before: str = ""
    """What the assistant had said last, in this conversation; with the next five: texts, where those are kept."""
    question: str = ""
    answer: str = ""
    stored_before: str = ""
    stored_question: str = ""
    stored_answer: str = ""
    id: str = ""
    reaction: str = ""
    """What the user did next, where a log tells: corrected, reasked, edited, left."""
    v: int = 1

    @property
    def hit(self) -> bool:
        """Whether the stored answer would have been served."""
        return self.level == "answer"


def outcome_of(seen: Observation) -> Outcome:
    """What serving the best candidate would have been."""
    outcomes: dict[AgreementVerdict | None, Outcome] = {"agree": "right", "differ": "wrong", "unclear": "doubtful"}
    return outcomes.get(seen.verdict, "unknown")


def bypassed(reason: str, *, now: float, session: str = "", model: str = "") -> Observation:
    """A turn that admission keeps from the cache."""
    return Observation(time=now, level="bypass", reason=reason.partition(":")[0], session=session, model=model)


async def observe(
    cache: Cache,
    query: Query,
    answer: Answer | None,
    *,
    now: float,
    texts: bool = True,
    name: str = "",
    judge: Judge | None = None,
) -> tuple[Observation, Hit | None]:
    """Decide about a turn as if it were to be served, and compare. Never raises; nothing is written.

    ``answer`` is what the model really said, None where that is not known or not complete; ``name`` becomes the id of
    the observation; ``judge`` is asked where facts and similarity leave it open. The second value is the hit that would
    have been served.
    """
    began = time.perf_counter()
    hit = await cache.exact(query)
    if hit is not None:
        decision = Decision("answer", "exact", hit.entry_id, 1.0)
    else:
        decision, hit = await cache.search(query)
    seconds = time.perf_counter() - began
    best = decision.judgements[0] if decision.judgements else None
    entry = decision.entry_id or (best.entry_id if best is not None else "")
    stored: Answer | None = None
    if hit is not None:
        stored = hit.answer
    elif entry:
        stored = await cache.answer_of(entry)
    agreement: Agreement | None = None
    if answer is not None and stored is not None:
        agreement = await cache.checks.compare(answer.text, stored.text)
        if agreement.verdict == "unclear" and judge is not None and answer.text.strip() and stored.text.strip():
            same = await judge(query.turn, stored.text, answer.text)
            if same is not None:
                agreement = Agreement("agree" if same else "differ", "The judge says so.", agreement.cosine, "judge")
    other = await cache.turn_of(entry, query) if entry and texts else None
    lang, intent = await asyncio.to_thread(_kind_of, query.turn)
    turn = query.turn
    seen = Observation(
        time=now,
        id=name,
        level=decision.level,
        reason=decision.reason,
        exact=hit is not None and hit.exact,
        confidence=decision.confidence,
        entry=entry,
        similarity=1.0 if best is None and entry else (0.0 if best is None else best.similarity),
        same_place=best is not None and best.same_place,
        objections=() if best is None else best.objections,
        conflicts=()
        if best is None
        else tuple(Conflict(r.name, r.sentence if texts else "") for r in best.relations if r.kind == "conflict"),
        verdict=None if agreement is None else agreement.verdict,
        why="" if agreement is None or not texts else agreement.reason,
        cosine=None if agreement is None else agreement.cosine,
        lang=lang,
        intent=intent,
        model=query.parts.model,
        session=query.session or "",
        turn=sum(m.role == "user" for m in turn.history),
        prompt_tokens=0 if answer is None else answer.prompt_tokens,
        completion_tokens=0 if answer is None else answer.completion_tokens,
        seconds=0.0 if answer is None else answer.seconds,
        decide_seconds=seconds,
        before=_said_before(turn) if texts else "",
        question=turn.message.text[:_EXCERPT] if texts else "",
        answer=answer.text[:_EXCERPT] if texts and answer is not None else "",
        stored_before=_said_before(other) if other is not None else "",
        stored_question=other.message.text[:_EXCERPT] if other is not None else "",
        stored_answer=stored.text[:_EXCERPT] if texts and stored is not None else "",
    )
    return seen, hit


def follow(cache: Cache, query: Query, hit: Hit, answer: Answer | None) -> None:
    """Let the conversation stand where it would, had the hit been served; the client got ``answer`` instead."""
    cache.follow(query, hit, said=None if answer is None else answer.text)


def _said_before(turn: Turn) -> str:
    return next((m.text[:_EXCERPT] for m in reversed(turn.history) if m.role == "assistant"), "")


def _kind_of(turn: Turn) -> tuple[str, str]:
    """Language and intent, as the figures are grouped by."""
    try:
        return language_of(turn.message.text), fingerprint_of(turn).intent or "other"
    except Exception:
        return "", "other"
