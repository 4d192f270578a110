"""One thread writes. Whatever waits when it is ready goes into one transaction.

A write is an object with ``apply(connection)``; what it returns is called after the commit, in the writer's thread, and
brings index and memory up to date: they never know more than the database.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from typing import Any, Final, Protocol

from sqlalchemy import Connection, Engine

from store.counters import Failures, kind_of
from store.errors import StoreUnavailable

__all__ = ["Write", "Writer"]

log = logging.getLogger(__name__)

_BATCH: Final = 256
_RETRY_S: Final = 0.05
_PASSING: Final = ("locked", "down")  # kinds of failure that are waited for

AfterCommit = Callable[[], None]


class Write(Protocol):
    """Something to be written. ``apply`` may run more than once, each time in a transaction of its own."""

    def apply(self, connection: Connection) -> tuple[Any, AfterCommit | None]:
        """Do it; returns what somebody who waits is told, and what is to be done after the commit."""


@dataclass(slots=True)
class _Waiting:
    write: Write | None  # None: only a mark in the queue
    done: Future[Any] | None  # somebody waits for it


class Writer:
    """The writer thread and its bounded queue."""

    def __init__(
        self,
        engine: Engine,
        failures: Failures,
        *,
        queue_size: int,
        locked_patience_s: float,
        linger_s: float = 0.0,
    ) -> None:
        """``linger_s`` is how long a write that nobody waits for may wait for others to share its transaction."""
        self._linger_s = linger_s
        self._asked = 0  # of the queue: those that somebody waits for
        self._engine = engine
        self._failures = failures
        self._limit = queue_size
        self._patience_s = locked_patience_s
        self._queue: deque[_Waiting] = deque()
        self._in_hand: list[_Waiting] = []
        self._ready = threading.Condition()
        self._closing = False
        self.dropped = 0  # writes that were given up, those refused by a full queue included
        self._thread = threading.Thread(target=self._run, name="antiphon-writer", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        """Writes that are not done: queued, and those being written or waiting for the database."""
        return len(self._queue) + len(self._in_hand)

    def put(self, write: Write) -> bool:
        """Queue a write; False (counted) where the queue is full or closed."""
        with self._ready:
            if self._closing or len(self._queue) >= self._limit:
                reason = "closed" if self._closing else "queue_full"
            else:
                self._queue.append(_Waiting(write, None))
                if not self._linger_s or len(self._queue) in (1, _BATCH):
                    self._ready.notify()
                return True
        self.dropped += 1
        self._failures.note("write", reason)
        return False

    def ask(self, write: Write | None) -> Future[Any]:
        """Queue a write that somebody waits for, however full the queue is; None waits for what is queued so far.

        The future fails with `StoreUnavailable` where the write could not be made.
        """
        done: Future[Any] = Future()
        with self._ready:
            if self._closing:
                done.set_exception(StoreUnavailable("the store is closing"))
                return done
            self._queue.append(_Waiting(write, done))
            self._asked += 1
            self._ready.notify()
        return done

    def close(self, timeout_s: float) -> None:
        """Write what is queued, then stop; what is not written after ``timeout_s`` seconds is dropped and counted."""
        with self._ready:
            self._closing = True
            self._ready.notify()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            with self._ready:
                left = list(self._queue)
                self._queue.clear()
                self._asked = 0
            if left:
                self._failures.note("write", "closed", times=len(left))
            for waiting in (*self._in_hand, *left):
                _fail(waiting, StoreUnavailable("the store is closing"))

    def _run(self) -> None:
        while True:
            with self._ready:
                while not self._queue and not self._closing:
                    self._ready.wait()
                if self._linger_s:
                    self._ready.wait_for(self._urgent, self._linger_s)
                batch = [self._queue.popleft() for _ in range(min(_BATCH, len(self._queue)))]
                self._asked -= sum(waiting.done is not None for waiting in batch)
                self._in_hand = batch
            if not batch:
                return
            try:
                self._write(batch)
            except Exception as error:  # nothing may end this thread
                log.exception("the writer failed")
                for waiting in batch:
                    _fail(waiting, StoreUnavailable(str(error)))
            self._in_hand = []

    def _urgent(self) -> bool:
        return self._closing or self._asked > 0 or len(self._queue) >= _BATCH

    def _write(self, batch: list[_Waiting]) -> None:
        error = self._attempt(batch)
        if error is None:
            return
        if len(batch) == 1 or kind_of(error) in _PASSING:
            self._drop(batch, error)
            return
        # One of them is at fault, or there is no room for all: each by itself.
        for waiting in batch:
            error = self._attempt([waiting])
            if error is not None:
                self._drop([waiting], error)

    def _attempt(self, batch: list[_Waiting]) -> Exception | None:
        """Write a batch in one transaction; a database locked or away is waited for, other failures are returned."""
        give_up = time.monotonic() + self._patience_s
        while True:
            after: list[AfterCommit] = []
            results: list[Any] = []
            try:
                with self._engine.begin() as connection:
                    for waiting in batch:
                        result, then = (None, None) if waiting.write is None else waiting.write.apply(connection)
                        results.append(result)
                        if then is not None:
                            after.append(then)
            except Exception as error:
                kind = kind_of(error)
                if kind not in _PASSING:
                    return error
                self._failures.note("write", "waiting_for_lock" if kind == "locked" else "waiting_for_database")
                # Nobody waits for a lock while the program ends.
                if self._closing or time.monotonic() >= give_up:
                    return error
                time.sleep(_RETRY_S)
                continue
            for then in after:
                try:
                    then()
                except Exception as error:
                    # The row is right; the index lacks it until the next start.
                    self._failures.note("index", error)
            self._in_hand = self._in_hand[len(batch) :]  # before those who wait for it are told
            for waiting, result in zip(batch, results, strict=True):
                if waiting.done is not None:
                    with contextlib.suppress(InvalidStateError):  # nobody waits any more
                        waiting.done.set_result(result)
            return None

    def _drop(self, batch: list[_Waiting], error: Exception) -> None:
        self._in_hand = self._in_hand[len(batch) :]
        if dropped := sum(waiting.write is not None for waiting in batch):
            self.dropped += dropped
            self._failures.note("write", error, times=dropped)
        for waiting in batch:
            _fail(waiting, StoreUnavailable(f"the store could not be written ({kind_of(error)})"))


def _fail(waiting: _Waiting, error: StoreUnavailable) -> None:
    if waiting.done is not None:
        with contextlib.suppress(InvalidStateError):  # nobody waits any more
            waiting.done.set_exception(error)
