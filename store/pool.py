"""Threads with a deadline, so that nothing slow is ever waited for longer than a turn can afford."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Final, TypeVar

from store.counters import Breaker, Failures, kind_of
from store.index import one_thread

__all__ = ["Pool", "Unanswered"]

T = TypeVar("T")

_WAITING_FOR_EACH: Final = 16  # pieces of work for each thread, running or queued


class Unanswered(Exception):  # noqa: N818 - to a turn it is a miss, not an error
    """No answer in time; ``reason`` is a short phrase for a header."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Pool:
    """A few threads that do one kind of work. `run` is for the event loop; it never waits longer than the deadline.

    A piece of work that hangs keeps its thread and stays counted; once too much waits, or several in a row failed,
    callers are told at once instead of losing the deadline each.
    """

    def __init__(
        self, name: str, threads: int, deadline_s: float, failures: Failures, *, executor: Executor | None = None
    ) -> None:
        """``executor`` is whose threads (or processes, ``threads`` of them) do the work; by default the pool's own."""
        self._name = name
        self._deadline_s = deadline_s
        self._failures = failures
        self._limit = _WAITING_FOR_EACH * threads
        self._pending = 0
        self.breaker = Breaker()
        self._own = executor is None
        self._pool = executor or ThreadPoolExecutor(threads, f"antiphon-{name}", initializer=one_thread)

    async def run(self, work: Callable[[], T]) -> T:
        """Return what ``work`` returns; any failure is counted and raised as `Unanswered`."""
        if not self.breaker.allows():
            raise Unanswered(f"{self._name}: pausing after failures")
        if self._pending >= self._limit:
            self._failures.note(self._name, "busy")
            raise Unanswered(f"{self._name}: busy")
        try:
            future = self._pool.submit(work)
        except RuntimeError:
            raise Unanswered(f"{self._name}: closing") from None
        self._pending += 1
        loop = asyncio.get_running_loop()
        # Counted down when the thread is done, not when somebody stopped waiting for it.
        future.add_done_callback(lambda done: self._later(loop, done))
        try:
            async with asyncio.timeout(self._deadline_s):
                result = await asyncio.wrap_future(future)
        except Exception as error:
            self.breaker.failed()
            self._failures.note(self._name, error)
            raise Unanswered(f"{self._name}: {kind_of(error)}") from None
        self.breaker.worked()
        return result

    def close(self) -> None:
        """Start nothing more. A thread that hangs is left behind: it must not keep the program from ending."""
        if self._own:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _later(self, loop: asyncio.AbstractEventLoop, _done: Future[T]) -> None:
        try:
            loop.call_soon_threadsafe(self._finished)
        except RuntimeError:  # the loop ended before the thread did
            return

    def _finished(self) -> None:
        self._pending -= 1
