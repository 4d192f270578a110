"""What the admin surface shows of entries and of the whole store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Row

from fingerprint.keys import IdentityParts
from store.codec import unpack_answer, unpack_question

__all__ = ["EntryRow", "StoreStats", "row_of"]

_EXCERPT: Final = 500  # characters


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
    prompt_tokens: int
    completion_tokens: int
    seconds: float


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


def row_of(row: Row[Any]) -> EntryRow:
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
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
        seconds=row.seconds,
    )
