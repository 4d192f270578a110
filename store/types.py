"""The plain values that cross the border of the store. No behaviour here.

Bytes keys are 32-byte BLAKE2b digests made by ``fingerprint.keys``. Times are seconds since the epoch (float, UTC) and
always passed in: nothing below ``store.cache`` reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from typing import Final, Literal, Protocol

from fingerprint.conversation import Turn
from fingerprint.facts.fingerprint import Fingerprint
from fingerprint.facts.relation import Relation
from fingerprint.keys import IdentityParts

__all__ = [
    "KINDS",
    "Answer",
    "Candidate",
    "Decision",
    "EntryState",
    "Hit",
    "IdentityParts",
    "Judgement",
    "Kind",
    "Level",
    "Policy",
    "Query",
    "Relation",
    "ReuseConfidence",
]

Level = Literal["answer", "kv", "miss", "bypass"]
EntryState = Literal["active", "suspect", "frozen", "retracted"]
Kind = Literal["exact", "same_place", "other_context", "band"]
"""Kinds of decision: the literal turn; reworded at the same node; reworded elsewhere; between the two thresholds."""
KINDS: Final[tuple[Kind, ...]] = ("exact", "same_place", "other_context", "band")


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete, successful answer.

    ``body`` is the whole reply in its non-streamed JSON form (a streamed one has been assembled), ``text`` the text of
    the first choice: what the client's next request will carry in its history.
    """

    body: bytes
    text: str
    prompt_tokens: int
    completion_tokens: int
    seconds: float  # what the answer cost: first byte sent upstream to last byte received


@dataclass(frozen=True, slots=True)
class Query:
    """One turn as the store sees it."""

    turn: Turn
    partition: bytes
    identity: bytes
    parts: IdentityParts
    exact_key: bytes
    place_key: bytes | None  # key of the literal history before ``turn.message``; None where there is no history
    session: str | None = None  # hashed session id where the caller sent one
    max_age_s: float | None = None  # the caller's Cache-Control: max-age
    semantic: bool = True  # False: exact look-up only (opaque parts, tools, time-sensitive, …)
    ttl_s: float | None = None  # asked for by the caller or set by admission; None: the configured default
    dates: str = ""  # what the turn's relative dates mean now (`fingerprint.dates`); part of ``exact_key`` already
    today: date | None = None  # the day they are seen from; None where the user speaks of none


@dataclass(frozen=True, slots=True)
class Hit:
    """An entry that may be served."""

    entry_id: str
    answer: Answer
    age_s: float
    confidence: float  # 1.0 for an exact hit
    exact: bool
    state: EntryState = "active"  # "suspect": served although not verified yet
    node: str | None = None  # where the turn stands once this is served; None: on a new node (see `Cache.follow`)
    kind: Kind = "exact"  # of the decision that found it; a reworded turn that comes again keeps its kind
    decided: float = 1.0  # the confidence of that decision


@dataclass(frozen=True, slots=True)
class Candidate:
    """A stored turn that might answer the query."""

    entry_id: str
    turn: Turn
    similarity: float  # cosine of the two last messages, −1 … 1
    window_similarity: float  # of what was said before, −1 … 1; 1.0 where nothing that counts was said before either
    same_place: bool  # both hang from the same node of the forest
    age_s: float = 0.0
    state: EntryState = "active"
    direct: bool = False  # both ask the same of the same numbered thing (`fingerprint.facts.direct_key`)
    fingerprint: Fingerprint | None = None  # as stored; None: not made yet, or of another schema

    @property
    def meaning(self) -> Fingerprint | Turn:
        """What `fingerprint.facts.fingerprint_equal` compares: the stored fingerprint, else the turn itself."""
        return self.turn if self.fingerprint is None else self.fingerprint


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was thought of one candidate."""

    entry_id: str
    similarity: float
    same_place: bool
    confidence: float  # 0 … 1, calibrated; 0.0 where a guard objected before it was asked
    relations: tuple[Relation, ...] = ()
    objections: tuple[str, ...] = ()  # names of the guards that vetoed
    direct: bool = False  # both ask the same of the same numbered thing


@dataclass(frozen=True, slots=True)
class Policy:
    """The thresholds of one decision, each 0 … 1; over 1 nothing reaches them."""

    answer: float
    verify: float
    max_candidates: int = 8
    # What the error budget asks for on top (`store.budget`):
    same_place: float = 0.0
    other_context: float = 0.0
    band: float | None = None  # from here on a candidate with an equal fingerprint is served as suspect; None: never

    def least(self, *, same_place: bool) -> float:
        """Return the least confidence at which a candidate is served."""
        return max(self.answer, self.same_place if same_place else self.other_context)


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome, with everything that led to it."""

    level: Level
    reason: str
    entry_id: str | None = None
    confidence: float = 0.0
    judgements: tuple[Judgement, ...] = field(default=())
    kind: Kind | None = None  # of the hit it is, or of the one that the best candidate would have been
    suspect: bool = False  # served although not sure enough: to be verified


class ReuseConfidence(Protocol):
    """Calibrated probability that a candidate's answer is right for a turn."""

    @property
    def version(self) -> str:
        """Name of the artefact; part of the decision's identity."""

    def first(self, query: Turn, candidate: Candidate) -> float:
        """Cheap estimate over comparisons, 0 … 1; asked for every candidate no guard objects to."""

    def second(self, query: Turn, candidate: Candidate, first: float) -> float:
        """Best estimate, 0 … 1; asked for the most promising candidates only (about 10–25 ms)."""
