"""Decisions in other processes: two threads of one interpreter never decide at the same time.

Each process makes its own confidence (a model cannot be sent) and asks the guards of ``fingerprint.facts``; what is
sent are turns and candidates, what comes back is the decision. For many turns that nobody waits for, as in an audit.
"""

from __future__ import annotations

import copyreg
import gc
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, wait
from dataclasses import fields
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess
from operator import attrgetter
from types import TracebackType
from typing import Any, Final, Self

from fingerprint import facts
from fingerprint.conversation import Message, Turn
from store.decide import decide
from store.index import one_thread
from store.types import Candidate, Decision, Judgement, Policy, Relation, ReuseConfidence

__all__ = ["GARBAGE", "Judges", "guards"]

_confidence: ReuseConfidence | None = None  # of a judging process
_START_S: Final = 120.0
GARBAGE: Final = 50_000  # objects between two looks for garbage


def guards(query: Turn, candidate: Turn, same_place: bool) -> tuple[tuple[Relation, ...], tuple[str, ...]]:
    """The guards that are shipped: every relation of two turns, and the names of those that veto."""
    found = facts.relations(query, candidate, same_place=same_place)
    return found, facts.vetoes(found)


class Judges:
    """Processes that decide, each with the confidence that ``make`` returns there."""

    def __init__(self, processes: int, make: Callable[[], ReuseConfidence]) -> None:
        """Start them. ``make`` must be a function of a module, or a `functools.partial` of one."""
        _pickle_plainly()
        # "spawn": a fork would copy locks that threads of this process may hold.
        self.executor: Executor = ProcessPoolExecutor(
            processes, mp_context=get_context("spawn"), initializer=_start, initargs=(make,)
        )
        self._ready = [self.executor.submit(_version) for _ in range(processes)]

    def version(self) -> str:
        """Wait until a process is ready; returns the version of its confidence. Raises what ``make`` raised there as
        `concurrent.futures.process.BrokenProcessPool`."""
        done, _ = wait(self._ready, _START_S)
        return next(iter(done)).result() if done else ""

    def work(
        self, query: Turn, candidates: Sequence[Candidate], policy: Policy, *, thorough: bool
    ) -> Callable[[], Decision]:
        """What `executor` is to do for one decision (`store.decide`)."""
        return partial(_decide, query, tuple(candidates), policy, thorough)

    def close(self) -> None:
        """Stop them; what is not decided is not."""
        self.executor.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _start(make: Callable[[], ReuseConfidence]) -> None:
    global _confidence
    _pickle_plainly()
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), name="antiphon-judge-watch", daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the main process's to handle
    one_thread()
    _confidence = make()
    # What is kept of texts is many small objects that refer to nothing: looking through them all finds no garbage.
    gc.freeze()
    gc.set_threshold(GARBAGE)


def _end_with(parent: BaseProcess) -> None:
    """Killed, the main process closes nothing: its judges would wait for work for ever."""
    parent.join()
    os._exit(1)


def _pickle_plainly() -> None:
    """Have values sent as their class and its arguments: what dataclasses with slots do by default takes several times
    as long, half of what it takes to send a decision."""
    for kind in (Message, Turn, Candidate, facts.Relation, Judgement, Decision):
        values = attrgetter(*(field.name for field in fields(kind)))
        copyreg.pickle(kind, partial(_reduced, kind, values))


def _reduced(kind: Callable[..., Any], values: Callable[[Any], tuple[Any, ...]], one: object) -> Any:
    return kind, values(one)


def _version() -> str:
    assert _confidence is not None
    return _confidence.version


def _decide(query: Turn, candidates: Sequence[Candidate], policy: Policy, thorough: bool) -> Decision:
    assert _confidence is not None
    return decide(query, candidates, policy, _confidence, guards, thorough=thorough)
