"""The vectors of a turn: of its message, and of the context before it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fingerprint.conversation import Message, Turn
from fingerprint.embedding.base import Embedding
from fingerprint.facts import direct_key
from store.counters import BreakerState, Failures
from store.embedding import EmbeddingService, EmbeddingUnavailable
from store.pool import Unanswered
from store.stages import staged
from store.window import Context, ContextStrategy, ContextVectors, context_name, context_of, said, window_vector
from store.writer import Writer
from store.writes import Followers, VectorsWrite

__all__ = ["MessageVector", "Vectors"]

Floats = NDArray[np.float32]

_BACKGROUND_DEADLINE_S: Final = 60.0  # for vectors nobody waits for
_LEAST_S: Final = 0.02  # for a window, however long the message took: most of it is in memory
_WAITING: Final = 1_000  # entries; the others get their vectors at the next start


@dataclass(frozen=True, slots=True)
class MessageVector:
    """A message in its space."""

    vector: Floats  # (d,), length 1
    space: str


class Vectors:
    """Makes vectors for look-ups (within a deadline) and for new entries (in the background)."""

    def __init__(
        self,
        service: EmbeddingService | None,
        writer: Writer,
        followers: Followers,
        failures: Failures,
        *,
        deadline_s: float,
        strategy: ContextStrategy,
        rounds: int,
    ) -> None:
        self._service = service
        self._writer = writer
        self._followers = followers
        self._failures = failures
        self._deadline_s = deadline_s
        self._strategy = strategy
        self._rounds = rounds
        self.context_name = context_name(strategy, rounds)
        """What the vectors of contexts are stored under."""
        self._pool = ThreadPoolExecutor(1, "antiphon-vectors")
        self._waiting: set[Future[None]] = set()
        self._lock = threading.Lock()

    @property
    def pausing(self) -> tuple[BreakerState, int]:
        """Whether the embedder is given a pause after failures, and how often it was so far."""
        return ("closed", 0) if self._service is None else (self._service.state, self._service.trips)

    @property
    def available(self) -> bool:
        """Whether there is an embedder at all."""
        return self._service is not None

    @staged("embed", lambda vector: {"space": vector.space})
    async def of_message(self, turn: Turn) -> MessageVector:
        """Embed the last message. Raises `Unanswered` where nobody can read it, or all of it, or not in time."""
        (embedding,) = await self._embed([turn.message.text], self._deadline_s)
        if embedding is None:
            raise Unanswered("no embedder reads this text")
        if embedding.partial:
            raise Unanswered("the message is longer than the embedder reads")
        return MessageVector(embedding.vector, embedding.space)

    async def of_context(self, turn: Turn, space: str, spent_s: float) -> ContextVectors:
        """Return the vectors of the context in ``space``; those that are not there in time say nothing.

        All vectors of a look-up share one deadline; ``spent_s`` of it went into the message.
        """
        context = context_of(turn, self._strategy, self._rounds)
        if not context.texts:
            return ContextVectors(None, None, context.fresh)
        try:
            left_s = max(self._deadline_s - spent_s, _LEAST_S)
            return _in_space(context, await self._embed(context.texts, left_s), space)
        except Unanswered:
            return ContextVectors(None, None, context.fresh)

    def prefetch(self, turn: Turn) -> None:
        """Have the message embedded when there is time: the next turn's context needs it. Never raises."""
        if self._service is not None and self._rounds and turn.message.text.strip():
            self._service.prefetch([turn.message.text])

    def make(self, entry_id: str, turn: Turn, answer: str) -> None:
        """Have the vectors of an entry made and written when there is time; never blocks."""
        if self._service is None:
            return
        with self._lock:
            busy = len(self._waiting) >= _WAITING
        if busy:
            self._failures.note("vectors", "busy")
            return
        self._start(entry_id, turn, answer)

    def make_later(self, entries: Sequence[tuple[str, Turn]]) -> None:
        """Make what was left undone before the last stop, however much it is."""
        for entry_id, turn in entries:
            self._start(entry_id, turn, "")

    def embed_background(self, texts: Sequence[str]) -> Sequence[Embedding | None]:
        """Embed texts nobody waits for; blocks. Raises `EmbeddingUnavailable`."""
        if self._service is None:
            return [None] * len(texts)
        return self._service.embed_background(texts, _BACKGROUND_DEADLINE_S)

    def wait(self, timeout_s: float | None = None) -> None:
        """Block until everything asked for so far is made, or has failed."""
        with self._lock:
            waiting = set(self._waiting)
        wait(waiting, timeout_s)

    def close(self, timeout_s: float) -> None:
        """Stop after the entry in hand; what is not made then is made at the next start."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.wait(timeout_s)
        if self._service is not None:
            self._service.close()

    async def _embed(self, texts: Sequence[str], deadline_s: float) -> Sequence[Embedding | None]:
        if self._service is None:
            raise Unanswered("no embedder")
        try:
            return await self._service.embed(texts, deadline_s)
        except EmbeddingUnavailable as error:
            self._failures.note("embed", type(error).__name__.removeprefix("Embedder").lower())
            raise Unanswered("no vector in time") from None
        except Exception as error:
            self._failures.note("embed", error)
            raise Unanswered("no vector") from None

    def _start(self, entry_id: str, turn: Turn, answer: str) -> None:
        try:
            future = self._pool.submit(self._make, entry_id, turn, answer)
        except RuntimeError:  # closing
            return
        with self._lock:
            self._waiting.add(future)
        future.add_done_callback(self._finished)

    def _finished(self, future: Future[None]) -> None:
        with self._lock:
            self._waiting.discard(future)

    def _make(self, entry_id: str, turn: Turn, answer: str) -> None:
        service = self._service
        if service is None:
            return
        context = context_of(turn, self._strategy, self._rounds)
        try:
            message, *before = service.embed_background([turn.message.text, *context.texts], _BACKGROUND_DEADLINE_S)
        except EmbeddingUnavailable as error:
            self._failures.note("vectors", type(error).__name__.removeprefix("Embedder").lower())
            return
        except Exception as error:
            self._failures.note("vectors", error)
            return
        if message is None or message.partial:
            # Nothing to be found by; said in the database, so that nobody tries again at every start.
            nothing = ContextVectors(None, None, context.fresh)
            self._writer.put(VectorsWrite(self._followers, entry_id, "", None, nothing, self.context_name, None))
        else:
            around = _in_space(context, before, message.space)
            direct = direct_key(turn)
            self._writer.put(
                VectorsWrite(
                    self._followers, entry_id, message.space, message.vector, around, self.context_name, direct
                )
            )
        if answer.strip() and self._rounds:
            service.prefetch([said(Message("assistant", answer))])  # the next turn's window needs it


def _in_space(context: Context, embedded: Sequence[Embedding | None], space: str) -> ContextVectors:
    """Return the vectors of what was said in ``space``; ``embedded`` in the order of ``context.texts``."""
    vectors = [None if one is None or one.space != space else one.vector for one in embedded]
    parts = [
        (vector, weight)
        for vector, (_, weight) in zip(vectors[: len(context.window)], context.window, strict=True)
        if vector is not None
    ]
    return ContextVectors(window_vector(parts), vectors[-1] if context.topic else None, context.fresh)
