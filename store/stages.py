"""The stages of a decision, told to whoever watches: how long each took and what came of it.

Nobody watches unless the proxy traces a request: a stage then costs one look into a context variable. An observer
belongs to a request and travels with its context, into the tasks that are started for it too.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar, Token
from typing import Any, ParamSpec, Protocol, TypeVar

__all__ = ["Observer", "Value", "forget", "observer", "observing", "staged", "watched"]

P = ParamSpec("P")
R = TypeVar("R")

Value = str | int | float | bool
Describe = Callable[[Any], Mapping[str, Value]]


class Observer(Protocol):
    """Whoever watches one request. Its methods are quick and never raise."""

    def stage(self, name: str, began_ns: int, ended_ns: int, attributes: Mapping[str, Value], failed: str) -> None:
        """Take note of a stage; times in nanoseconds since the epoch, ``failed`` names the error, empty if none."""


_OBSERVER: ContextVar[Observer | None] = ContextVar("antiphon_observer", default=None)


def observer() -> Observer | None:
    """Return who watches the request at hand, ``None`` where nobody does."""
    return _OBSERVER.get()


def observing(watcher: Observer) -> Token[Observer | None]:
    """Let ``watcher`` see the stages of what this context does from here on; `forget` ends it."""
    return _OBSERVER.set(watcher)


def forget(token: Token[Observer | None]) -> None:
    """End what `observing` began."""
    _OBSERVER.reset(token)


def staged(
    name: str, describe: Describe | None = None
) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Awaitable[R]]]:
    """Make an asynchronous function a stage; ``describe`` says of its result what may be told (never content)."""

    def wrap(work: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        @functools.wraps(work)
        def staged_work(*args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:
            if _OBSERVER.get() is None:
                return work(*args, **kwargs)
            return watched(name, work(*args, **kwargs), describe)

        return staged_work

    return wrap


async def watched(name: str, work: Awaitable[R], describe: Describe | None = None) -> R:
    """Await ``work`` as a stage of the request that is watched."""
    watcher = _OBSERVER.get()
    if watcher is None:
        return await work
    began = time.time_ns()
    try:
        result = await work
    except BaseException as error:
        watcher.stage(name, began, time.time_ns(), {}, type(error).__name__)
        raise
    watcher.stage(name, began, time.time_ns(), {} if describe is None else describe(result), "")
    return result
