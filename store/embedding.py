"""One thread that embeds, behind a bounded queue, a deadline and a memory of what was embedded before.

Turns that wait for a vector go before background work (replies, entries read back from the database). A text asked for
twice at the same moment is embedded once. When the embedder fails or falls behind several times in a row, callers are
told at once for a while, instead of each of them losing its whole deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from fingerprint.embedding.base import Embedding, TextEmbedder
from fingerprint.text import utf8
from store.counters import BreakerState

__all__ = [
    "EmbedderBusy",
    "EmbedderDown",
    "EmbedderFailed",
    "EmbedderSlow",
    "EmbeddingService",
    "EmbeddingStats",
    "EmbeddingUnavailable",
]

_LOG: Final = logging.getLogger("antiphon.embedding")
_LOG_EVERY_S: Final = 60.0
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0


class EmbeddingUnavailable(Exception):  # noqa: N818 - reads as what it says
    """No vector now, for whatever reason; to a turn it is a miss."""


class EmbedderBusy(EmbeddingUnavailable):
    """The queue is full."""


class EmbedderSlow(EmbeddingUnavailable):
    """The deadline passed first."""


class EmbedderFailed(EmbeddingUnavailable):
    """The embedder raised; the cause is chained."""


class EmbedderDown(EmbeddingUnavailable):
    """Closed, or pausing after several failures in a row; nothing was tried."""


@dataclass(frozen=True, slots=True)
class EmbeddingStats:
    """Counts since the start, but ``waiting`` and ``remembered``, which are now."""

    embedded: int  # texts that went through the embedder
    from_memory: int  # texts that did not have to
    refused: int  # texts no embedder can read
    busy: int
    slow: int
    failed: int
    down: int
    waiting: int
    remembered: int
    seconds: float  # spent in the embedder


@dataclass(slots=True, eq=False)
class _Job:
    key: bytes
    text: str
    urgent: bool
    running: bool = False
    background: bool = False  # wanted even when nobody waits
    waiters: list[Future[Embedding | None]] = field(default_factory=list)


class EmbeddingService:
    """Vectors for texts, from memory or from one worker thread. All methods may be called from any thread."""

    def __init__(
        self,
        embedder: TextEmbedder,
        *,
        remembered: int = 8192,
        queue: int = 256,
        background_queue: int = 4096,
        failures: int = 5,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``remembered``: texts whose vector is kept (about 2 KiB each); ``queue`` and ``background_queue``: texts that
        may wait; ``failures``: how many in a row make callers fail at once for a while (1 s, doubling up to 60 s).
        """  # fmt: skip
        self._embedder = embedder
        self._limit = remembered
        self._queue_limit = queue
        self._background_limit = background_queue
        self._failures_allowed = failures
        self._clock = clock
        self._memory: OrderedDict[bytes, Embedding | None] = OrderedDict()
        self._jobs: dict[bytes, _Job] = {}
        self._urgent: deque[_Job] = deque()
        self._background: deque[_Job] = deque()
        self._urgent_count = 0  # urgent jobs not yet running; the deque may also hold stale ones
        self._background_count = 0
        self._failures_in_a_row = 0
        self._pause_s = _FIRST_PAUSE_S
        self._paused_until = float("-inf")
        self.trips = 0  # pauses so far
        self._logged_at = float("-inf")
        self._counts = dict.fromkeys(("embedded", "from_memory", "refused", "busy", "slow", "failed", "down"), 0)
        self._seconds = 0.0
        self._closed = False
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="antiphon-embedder", daemon=True)
        self._thread.start()

    @property
    def name(self) -> str:
        """Name of the embedder; part of the identity."""
        return self._embedder.name

    @property
    def state(self) -> BreakerState:
        """Whether the embedder is asked at all, after failures."""
        if self._clock() < self._paused_until:
            return "open"
        return "trying" if self._pause_s > _FIRST_PAUSE_S else "closed"  # a success ends it

    def remembered(self, text: str) -> tuple[bool, Embedding | None]:
        """Return whether the vector of ``text`` is in memory, and it (``None`` there: no embedder can read it)."""
        key = _key(text)
        with self._wake:
            if key in self._memory:
                self._memory.move_to_end(key)
                return True, self._memory[key]
        return False, None

    async def embed(self, texts: Sequence[str], deadline_s: float) -> list[Embedding | None]:
        """Return the embedding of each text, ``None`` for one that no embedder can read.

        Raises `EmbedderBusy`, `EmbedderSlow`, `EmbedderFailed` or `EmbedderDown`, at the latest after ``deadline_s``.
        Texts left unfinished at the deadline and not begun are dropped from the queue.
        """
        answers = self._submit(texts, urgent=True)
        waiting = [answer for answer in answers if not answer.done()]
        if waiting:
            wrapped = [asyncio.wrap_future(answer) for answer in waiting]
            try:
                done, late = await asyncio.wait(wrapped, timeout=deadline_s)
            except asyncio.CancelledError:
                _give_up(waiting)
                raise
            for future in done:
                if not future.cancelled():
                    future.exception()  # seen here; raised from the answers below
            if late:
                _give_up(waiting)
                self._missed()
                raise EmbedderSlow(f"{len(late)} of {len(texts)} texts not embedded within {deadline_s:g} s")
        return [_result(answer) for answer in answers]

    def embed_background(self, texts: Sequence[str], deadline_s: float) -> list[Embedding | None]:
        """Like `embed`, for a thread that can wait: behind every turn, blocking the caller. Not for the event loop."""
        answers = self._submit(texts, urgent=False)
        end = time.monotonic() + deadline_s
        results: list[Embedding | None] = []
        for answer in answers:
            try:
                answer.exception(max(0.0, end - time.monotonic()))
            except TimeoutError:
                _give_up(answers)
                with self._wake:
                    self._counts["slow"] += 1
                raise EmbedderSlow(f"not embedded within {deadline_s:g} s, in the background") from None
            results.append(_result(answer))
        return results

    def prefetch(self, texts: Sequence[str]) -> int:
        """Have texts embedded when there is time, for later; returns how many are in memory or queued. Never raises."""
        taken = 0
        with self._wake:
            for text in texts:
                key = _key(text)
                if key in self._memory:
                    taken += 1
                elif (job := self._jobs.get(key)) is not None:
                    job.background = True
                    taken += 1
                elif not self._closed and self._background_count < self._background_limit:
                    self._enqueue(_Job(key, text, urgent=False, background=True))
                    taken += 1
                else:
                    self._counts["busy"] += 1
        return taken

    def stats(self) -> EmbeddingStats:
        """Return the counts."""
        with self._wake:
            return EmbeddingStats(
                **self._counts,
                waiting=self._urgent_count + self._background_count,
                remembered=len(self._memory),
                seconds=self._seconds,
            )

    def close(self, timeout_s: float = 5.0) -> None:
        """Let everyone who waits fail with `EmbedderDown` and stop the thread, waiting for it at most ``timeout_s``."""
        with self._wake:
            self._closed = True
            jobs = list(self._jobs.values())
            self._jobs.clear()
            self._urgent.clear()
            self._background.clear()
            self._urgent_count = self._background_count = 0
            self._wake.notify_all()
        for job in jobs:
            _fail(job, EmbedderDown("the embedder is closed"))
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    # -- asking

    def _submit(self, texts: Sequence[str], *, urgent: bool) -> list[Future[Embedding | None]]:
        answers: list[Future[Embedding | None]] = []
        try:
            with self._wake:
                for text in texts:
                    answer: Future[Embedding | None] = Future()
                    self._ask(text, answer, urgent=urgent)
                    answers.append(answer)
        except EmbeddingUnavailable:
            _give_up(answers)
            raise
        return answers

    def _ask(self, text: str, answer: Future[Embedding | None], *, urgent: bool) -> None:
        key = _key(text)
        if key in self._memory:
            self._memory.move_to_end(key)
            self._counts["from_memory"] += 1
            answer.set_result(self._memory[key])
            return
        if self._closed or (urgent and self._clock() < self._paused_until):
            self._counts["down"] += 1
            raise EmbedderDown("the embedder is closed" if self._closed else "the embedder keeps failing; pausing")
        job = self._jobs.get(key)
        if job is None:
            full = (
                self._urgent_count >= self._queue_limit if urgent else self._background_count >= self._background_limit
            )
            if full:
                self._counts["busy"] += 1
                raise EmbedderBusy("too many texts are waiting to be embedded")
            job = _Job(key, text, urgent=urgent)
            self._enqueue(job)
        elif urgent and not job.urgent and not job.running:
            # Overtakes: the old place in the background queue is skipped when its turn comes.
            self._background_count -= 1
            job.urgent = True
            self._urgent.append(job)
            self._urgent_count += 1
            self._wake.notify()
        job.waiters.append(answer)

    def _enqueue(self, job: _Job) -> None:
        self._jobs[job.key] = job
        if job.urgent:
            self._urgent.append(job)
            self._urgent_count += 1
        else:
            self._background.append(job)
            self._background_count += 1
        self._wake.notify()

    # -- working

    def _work(self) -> None:
        while (job := self._next()) is not None:
            started = self._clock()
            try:
                (embedding,) = self._embedder.encode((job.text,))
            except Exception as error:  # whatever an embedder can think of is one and the same to a turn
                self._finish(job, None, error, self._clock() - started)
            else:
                self._finish(job, embedding, None, self._clock() - started)

    def _next(self) -> _Job | None:
        with self._wake:
            while True:
                if self._closed:
                    return None
                while self._urgent:
                    job = self._urgent.popleft()
                    self._urgent_count -= 1
                    if self._start(job):
                        return job
                while self._background:
                    job = self._background.popleft()
                    if job.urgent or job.running:
                        continue  # overtaken: done, running or waiting among the urgent
                    self._background_count -= 1
                    if self._start(job):
                        return job
                self._wake.wait()

    def _start(self, job: _Job) -> bool:
        """Begin ``job`` unless nobody wants it any more."""
        if not job.background and all(waiter.cancelled() for waiter in job.waiters):
            self._jobs.pop(job.key, None)
            return False
        job.running = True
        return True

    def _finish(self, job: _Job, embedding: Embedding | None, error: Exception | None, seconds: float) -> None:
        with self._wake:
            self._jobs.pop(job.key, None)
            self._seconds += seconds
            if error is None:
                self._counts["embedded"] += 1
                self._counts["refused"] += embedding is None
                self._memory[job.key] = embedding
                while len(self._memory) > self._limit:
                    self._memory.popitem(last=False)
                if any(not waiter.cancelled() for waiter in job.waiters) or not job.waiters:
                    self._failures_in_a_row = 0  # in time for somebody, or nobody was in a hurry
                    self._pause_s = _FIRST_PAUSE_S
            else:
                self._counts["failed"] += 1
                self._failed()
                self._log("embedding failed: %r", error)
        if error is None:
            for waiter in job.waiters:
                with contextlib.suppress(InvalidStateError):  # given up in this moment
                    waiter.set_result(embedding)
        else:
            failure = EmbedderFailed(f"the embedder raised {type(error).__name__}")
            failure.__cause__ = error
            _fail(job, failure)

    def _missed(self) -> None:
        with self._wake:
            self._counts["slow"] += 1
            self._failed()
            self._log("embedding is slower than its deadline")

    def _failed(self) -> None:
        self._failures_in_a_row += 1
        if self._failures_in_a_row >= self._failures_allowed and self._clock() >= self._paused_until:
            self._paused_until = self._clock() + self._pause_s
            self.trips += 1
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
            # One more failure after the pause starts the next one; a success starts the count anew.
            self._failures_in_a_row = self._failures_allowed - 1

    def _log(self, message: str, *values: object) -> None:
        now = self._clock()
        if now - self._logged_at >= _LOG_EVERY_S:
            self._logged_at = now
            _LOG.warning(message, *values)


def _key(text: str) -> bytes:
    # The router behind this sends equal texts to equal spaces, so that the text alone names its vector.
    return blake2b(utf8(text), digest_size=16, person=b"antiphon.embed").digest()


def _give_up(answers: Sequence[Future[Embedding | None]]) -> None:
    for answer in answers:
        answer.cancel()  # at once, where the worker can see it; a finished one stays as it is


def _fail(job: _Job, failure: EmbeddingUnavailable) -> None:
    for waiter in job.waiters:
        with contextlib.suppress(InvalidStateError):
            waiter.set_exception(failure)


def _result(answer: Future[Embedding | None]) -> Embedding | None:
    if answer.cancelled():
        raise EmbedderDown("the embedder is closed")
    return answer.result()
