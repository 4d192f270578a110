"""What the admin surface shows of entries and of the whole store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Row

from fingerprint.keys import IdentityParts
from store.budget import KindReport
from store.codec import unpack_answer, unpack_question
from store.drift import UNSETTLED

__all__ = ["EntryRow", "StoreStats", "VersionRow", "row_of"]

_EXCERPT: Final = 500  # characters


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One answer in the history of a question, compared with the one before it."""

    entry: str
    at: float
    state: str  # of the entry now; "gone" where it was removed
    verdict: str  # "first", "agree", "differ", "unclear"
    why: str  # the kind of fact that differs, or "cosine", "words", "length", "text"
    cosine: float | None  # −1 … 1


@dataclass(frozen=True, slots=True)
class EntryRow:
    """One entry as an operator sees it. Times in seconds since the epoch."""

    id: str
    state: str
    version: int
    supersedes: str | None
    parent: str | None  # the node it hangs from
    partition: str  # hexadecimal
    identity: str  # hexadecimal
    parts: IdentityParts
    question: str  # the last message, at most 500 characters
    answer: str  # the text, at most 500 characters
    semantic: bool
    created_at: float
    expires_at: float
    last_used_at: float
    hits: int
    wordings: int
    thumbs_up: int
    thumbs_down: int
    doubts: int  # weak signs that it was wrong: asked again, regenerated, corrected
    sightings: int  # times it was asked while it was not served
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    unserved: str  # "": it is served; "unsettled": its answers keep changing; "barred": its checks failed
    unserved_until: float  # 0 where it is served, and where nobody knows
    history: tuple[VersionRow, ...] = ()  # of its question, oldest first; for a single entry only


@dataclass(frozen=True, slots=True)
class StoreStats:
    """The store in numbers."""

    entries: int
    by_state: dict[str, int]
    expired: int  # active ones past their lifetime, not yet removed
    wordings: int
    places: int
    hits: int
    tokens_saved: int  # completion tokens that hits did not cost
    seconds_saved: float  # what the answers had cost
    indexed: int
    buckets: int
    in_memory: int
    memory_bytes: int
    database_bytes: int
    queued_writes: int
    failures: dict[str, int]  # by kind, such as "read.locked"
    breakers: dict[str, str]  # part ("read", "embed", "decide") → "closed", "open" or "trying"
    breaker_trips: dict[str, int]  # part → how often its breaker opened
    index_rebuilds: int
    epoch: int
    suspects: int = 0  # wordings that are not verified yet
    unsettled: int = 0  # entries not served because the answers to their question keep changing
    barred: int = 0  # entries not served because checks of their question failed
    wrong_hits_limit: float | None = None  # the error budget, 0 … 1
    budget: tuple[KindReport, ...] = ()  # what is known of each kind of hit


def row_of(row: Row[Any], now: float) -> EntryRow:
    """Turn a row of `store.reads.listing` into what is shown; damaged texts are shown as such."""
    try:
        question = unpack_question(row.question, ()).message.text
        text = unpack_answer(row.answer, prompt_tokens=0, completion_tokens=0, seconds=0.0).text
    except ValueError:
        question = text = "(cannot be read)"
    return EntryRow(
        id=row.id,
        state=row.state,
        version=row.version,
        supersedes=row.supersedes,
        parent=row.parent,
        partition=row.partition.hex(),
        identity=row.identity.hex(),
        parts=IdentityParts(
            endpoint=row.endpoint,
            model=row.model,
            weights_version=row.weights_version,
            tokenizer=row.tokenizer,
            lora=row.lora,
            system_prompt=row.system_prompt,
            tools=row.tools,
            knowledge_version=row.knowledge_version,
            fingerprint_schema=row.fingerprint_schema,
            embedder=row.embedder,
            decision=row.decision,
            fields=row.fields,
        ),
        question=question[:_EXCERPT],
        answer=text[:_EXCERPT],
        semantic=row.semantic,
        created_at=row.created_at,
        expires_at=row.expires_at,
        last_used_at=row.last_used_at,
        hits=row.hit_count,
        wordings=row.wordings,
        thumbs_up=row.thumbs_up,
        thumbs_down=row.thumbs_down,
        doubts=row.doubts,
        sightings=row.sightings,
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
        seconds=row.seconds,
        unserved="" if row.unserved_until <= now else "unsettled" if row.unserved_until >= UNSETTLED else "barred",
        unserved_until=row.unserved_until if now < row.unserved_until < UNSETTLED else 0.0,
    )
