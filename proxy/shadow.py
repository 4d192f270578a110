"""Shadow mode: the model answers every turn, and what the cache would have done is found out afterwards.

Nothing of it lies on a client's path. A turn is queued when its last byte has gone out; one task takes them in order,
decides, compares, writes a line, and only then lets the store have the answer, so that every decision sees the store as
it would have been. What does not fit into the queue is left out and counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import msgspec

from fingerprint.redaction import Redactor
from fingerprint.text import utf8
from proxy.judge import Judge
from proxy.metrics import Metrics
from proxy.settings import RolloutSettings
from store.shadow import Conflict, Observation, bypassed, follow, observe
from store.types import Answer, Query

if TYPE_CHECKING:
    from store.cache import Cache

__all__ = ["ObservationLog", "Shadow", "share_of"]

log = logging.getLogger(__name__)

_ENCODE: Final = msgspec.json.Encoder().encode
_LOG_EVERY_S: Final = 60.0
_TEXTS: Final = ("before", "question", "answer", "stored_before", "stored_question", "stored_answer", "why")

_DIGITS: Final = re.compile(r"\d+")

Record = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Corrected:
    """A turn that corrects the answer before it."""

    cache: Cache
    query: Query


@dataclass(frozen=True, slots=True)
class _Seen:
    """A turn that the model has answered."""

    cache: Cache
    query: Query
    conversation: str
    answer: Answer | None  # None: not complete, so there is nothing to compare with
    record: Record | None  # hands the answer to the store; None where it must not be stored
    time: float


class Shadow:
    """Observes turns. `put`, `correct` and `bypass` are called from the event loop and never block or raise."""

    def __init__(self, settings: RolloutSettings, metrics: Metrics, judge: Judge | None = None) -> None:
        self._settings = settings
        self._metrics = metrics
        self._judge = judge
        self._queue: asyncio.Queue[_Seen | _Corrected | Observation] = asyncio.Queue(settings.queue_size)
        self._task: asyncio.Task[None] | None = None
        self._log = (
            ObservationLog(Path(settings.observations), int(settings.observations_max_mib * 2**20))
            if settings.observations
            else None
        )
        self._logged = -_LOG_EVERY_S
        self._waiting = 0
        self._redactor = Redactor(secrets.token_bytes(32))  # the same value by the same word while this proxy runs

    def watches(self, query: Query) -> bool:
        """Whether this turn is only watched; False for the sessions of the canary."""
        return share_of(_conversation(query)) >= self._settings.canary_percent / 100

    def put(self, cache: Cache, query: Query, answer: Answer | None, record: Record | None) -> None:
        """Have a turn observed that the model has answered (or failed to)."""
        self._add(_Seen(cache, query, _conversation(query), answer, record, time.time()))

    def bypass(self, reason: str, model: str) -> None:
        """Write down a turn that admission keeps from the cache."""
        self._add(bypassed(reason, now=time.time(), model=model))

    def correct(self, cache: Cache, query: Query) -> None:
        """Have the answer before this turn withdrawn, once what is queued before it has been observed."""
        self._add(_Corrected(cache, query))

    @property
    def waiting(self) -> int:
        """Turns that are queued or being observed."""
        return self._waiting

    async def close(self, patience_s: float) -> None:
        """Observe what is queued, within ``patience_s``; then stop."""
        if self._task is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self._queue.join()
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        if self._log is not None:
            await asyncio.to_thread(self._log.close)
        if self._judge is not None:
            await self._judge.close()

    def _add(self, seen: _Seen | _Corrected | Observation) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work(), name="antiphon-shadow")
        try:
            self._queue.put_nowait(seen)
            self._waiting += 1
        except asyncio.QueueFull:
            self._metrics.shadow_dropped.labels("queue").inc()

    async def _work(self) -> None:
        while True:
            seen = await self._queue.get()
            try:
                await self._see(seen)
            except Exception:
                self._failed("error")
            finally:
                self._queue.task_done()
                self._waiting -= 1

    async def _see(self, seen: _Seen | _Corrected | Observation) -> None:
        if isinstance(seen, _Corrected):
            await seen.cache.correct(seen.query)
            return
        if isinstance(seen, Observation):
            found = seen
        else:
            observed, hit = await observe(
                seen.cache,
                seen.query,
                seen.answer,
                now=seen.time,
                texts=self._settings.keep_texts,
                judge=None if self._judge is None else self._judge.same,
            )
            found = self._harmless(msgspec.structs.replace(observed, session=seen.conversation))
            if hit is not None:
                follow(seen.cache, seen.query, hit, seen.answer)
            elif seen.record is not None:
                await seen.record()
        self._metrics.shadow_turns.labels(found.level, found.verdict or "none").inc()
        if self._log is not None:
            try:
                await asyncio.to_thread(self._log.write, _ENCODE(found) + b"\n")
            except OSError:
                self._failed("file")

    def _harmless(self, seen: Observation) -> Observation:
        """The observation without personal data and secrets in its texts."""
        if not self._settings.keep_texts or not self._settings.redact:
            return seen
        text = self._redactor.text
        texts = {name: text(getattr(seen, name)) for name in _TEXTS}
        # What two answers or turns disagree on is named piece by piece: a card number no longer looks like one there.
        texts["why"] = _DIGITS.sub("…", texts["why"])
        conflicts = tuple(Conflict(c.name, _DIGITS.sub("…", text(c.sentence))) for c in seen.conflicts)
        return msgspec.structs.replace(seen, conflicts=conflicts, **texts)

    def _failed(self, why: str) -> None:
        self._metrics.shadow_dropped.labels(why).inc()
        now = time.monotonic()
        if now - self._logged >= _LOG_EVERY_S:
            self._logged = now
            log.exception("a turn could not be observed (%s)", why)


class ObservationLog:
    """A file of lines that is set aside when it is full. Blocks; for one thread at a time."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        self.path = path
        self._most = most_bytes
        self._file: IO[bytes] | None = None

    def write(self, line: bytes) -> None:
        """Append a line. Raises ``OSError``; the next call tries again."""
        try:
            file = self._file or self._open()
            if file.tell() and file.tell() + len(line) > self._most:
                self.close()
                self.path.replace(self.path.with_name(self.path.name + ".1"))
                file = self._open()
            file.write(line)
            file.flush()
        except OSError:
            with contextlib.suppress(OSError):
                self.close()
            raise

    def close(self) -> None:
        """Close the file; the next `write` opens it again."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _open(self) -> IO[bytes]:
        # What people asked is nobody else's business.
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        number = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._file = os.fdopen(number, "ab")
        return self._file


def share_of(name: str) -> float:
    """Place of a name between 0 and 1, always the same, evenly spread."""
    return int.from_bytes(blake2b(utf8(name), digest_size=8, person=b"antiphon.canary").digest(), "big") / 2**64


def _conversation(query: Query) -> str:
    """What tells conversations apart: the session, else how this one began. The same in all its turns."""
    if query.session is not None:
        return query.session
    first = query.turn.history[0] if query.turn.history else query.turn.message
    return blake2b(utf8(first.text), digest_size=16).hexdigest()
