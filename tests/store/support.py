"""Turns, answers, and a small embedder whose vectors can be reasoned about."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b

import numpy as np
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from fingerprint.conversation import Message, Turn
from fingerprint.embedding.base import Embedding
from fingerprint.keys import IdentityParts, Scope, exact_key, identity_key, partition_key, place_key
from store.cache import Cache
from store.types import Answer, Candidate, Hit, Query

DIMENSIONS = 64

on_both_engines = pytest.mark.parametrize(
    "store_url", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)], indirect=True
)
"""A test (or, as ``pytestmark``, a module) that is to hold on SQLite and on PostgreSQL."""


@contextmanager
def another_writer(store_url: str) -> Iterator[None]:
    """Another program is in the middle of a write, as long as the context is open."""
    if store_url.startswith("sqlite"):
        blocker = sqlite3.connect(store_url.removeprefix("sqlite:///"), isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            blocker.execute("ROLLBACK")
            blocker.close()
        return
    from store.postgres import lock_number

    with create_engine(store_url, poolclass=NullPool).connect() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:n)"), {"n": lock_number(b"write")})
        yield


class WordEmbedder:
    """Bag of words: every word has a direction of its own, so texts that share words are near each other.

    Texts that begin with "§" cannot be read; words after the 100th are not seen.
    """

    name = "words"

    def __init__(self) -> None:
        self.seen: list[str] = []

    def encode(self, texts: Sequence[str]) -> list[Embedding | None]:
        return [self._encode(text) for text in texts]

    def _encode(self, text: str) -> Embedding | None:
        self.seen.append(text)
        if text.startswith("§"):
            return None
        words = text.lower().replace("?", "").split()
        vector = np.zeros(DIMENSIONS, dtype=np.float32)
        for word in words[:100]:
            seed = int.from_bytes(blake2b(word.encode(), digest_size=4).digest(), "big")
            vector += np.random.default_rng(seed).standard_normal(DIMENSIONS).astype(np.float32)
        return Embedding(vector / np.linalg.norm(vector), "words", partial=len(words) > 100)


class NearEnough:
    """Confidence by similarity of message and window alone."""

    version = "near-enough"

    def first(self, query: Turn, candidate: Candidate) -> float:
        around = 1.0 if candidate.same_place else candidate.window_similarity
        return max(0.0, min(candidate.similarity, around))

    def second(self, query: Turn, candidate: Candidate, first: float) -> float:
        return first


class ByWords(NearEnough):
    """Confidence by similarity of the message alone, whatever was said before."""

    def first(self, query: Turn, candidate: Candidate) -> float:
        return max(0.0, candidate.similarity)


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def no_objections(query: Turn, candidate: Turn, same_place: bool) -> tuple[tuple[()], tuple[()]]:
    return (), ()


def parts_of(**changed: str) -> IdentityParts:
    values = {
        "endpoint": "chat.completions",
        "model": "small",
        "weights_version": "1",
        "tokenizer": "",
        "lora": "",
        "system_prompt": "",
        "tools": "",
        "knowledge_version": "",
        "fingerprint_schema": "1",
        "embedder": "words",
        "decision": "similarity",
        "fields": "",
    }
    return IdentityParts(**{**values, **changed})


def ask(
    *texts: str,
    who: str = "alice",
    session: str | None = None,
    parts: IdentityParts | None = None,
    max_age_s: float | None = None,
    ttl_s: float | None = None,
    semantic: bool = True,
) -> Query:
    """A turn out of user and assistant messages in turn, the last one the user's."""
    parts = parts or parts_of()
    messages = [Message(("user", "assistant")[i % 2], text) for i, text in enumerate(texts)]
    turn = Turn((), tuple(messages[:-1]), messages[-1])
    partition, identity = partition_key(Scope(credential=who)), identity_key(parts)
    return Query(
        turn=turn,
        partition=partition,
        identity=identity,
        parts=parts,
        exact_key=exact_key(partition, identity, turn),
        place_key=place_key(partition, identity, turn.history) if turn.history else None,
        session=session,
        max_age_s=max_age_s,
        semantic=semantic,
        ttl_s=ttl_s,
    )


def say(text: str) -> Answer:
    body = b'{"choices":[{"message":{"role":"assistant","content":"' + text.encode() + b'"}}]}'
    return Answer(body, text, prompt_tokens=10, completion_tokens=5, seconds=0.5)


async def look_up(cache: Cache, query: Query) -> Hit | None:
    """What the proxy does: the literal turn first, then its meaning; a hit is followed."""
    hit = await cache.exact(query)
    if hit is None:
        _, hit = await cache.search(query)
    if hit is not None:
        cache.follow(query, hit)
    return hit


Open = Callable[..., Awaitable[Cache]]
