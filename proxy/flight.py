"""Single flight: identical turns that arrive while the first of them is being answered share its call to the backend.

The call belongs to nobody's request: it runs in a task of its own, and everyone, the first caller included, only
listens. Whoever leaves stops listening; when nobody listens any more, the call is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from proxy.errors import UpstreamError
from proxy.forwarding import Forwarded
from proxy.headers import RawHeaders
from store.types import Decision, Hit

if TYPE_CHECKING:
    from proxy.verification import Near

__all__ = ["Chunk", "Flight", "Flights", "Head", "Listener"]

_WINDOW_BYTES: Final = 1 << 20  # how far the slowest listener of a reply too large to keep may lag behind
_LAST_BYTE_S: Final = 5.0  # how long an answer whose end has been seen may take to its last byte, when nobody listens


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of the backend's reply. ``whole``: the body is gathered and stands in one piece."""

    status: int
    headers: RawHeaders
    kind: Literal["stream", "whole", "raw"]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes of the reply as they came; ``usage``: the event that only callers who asked for it get."""

    data: bytes
    usage: bool = False


class Listener:
    """One caller's place in a flight."""

    __slots__ = ("_wake", "first", "flight", "gone", "position")

    def __init__(self, flight: Flight, *, first: bool) -> None:
        self.flight = flight
        self.first = first
        self.position = 0
        self.gone = False
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Something has happened."""
        self._wake.set()

    def leave(self) -> None:
        """The client has hung up."""
        self.gone = True
        self._wake.set()

    async def news(self) -> None:
        """Wait until something happens."""
        await self._wake.wait()
        self._wake.clear()


class Flight:
    """One call to the backend and those who listen to it."""

    def __init__(self) -> None:
        self.listeners: set[Listener] = set()
        self.open = True  # whether others may still join
        self.task: asyncio.Task[None] | None = None
        self.ttl_s: float | None = None  # the shortest anyone asked for
        self.watched = False  # shadow mode: the answer goes to whoever watches, not straight to the store
        # What has happened so far:
        self.hit: Hit | None = None
        self.decision: Decision | None = None
        self.near: Near | None = None  # the candidate that the answer will be compared with
        self.forwarded: Forwarded | None = None
        self.head: Head | None = None
        self.entry_id: str | None = None
        self.recorded: str | None = None  # the entry, once it was handed to the store
        self.chunks: list[Chunk] = []
        self.dropped = 0  # chunks at the front that are no longer kept
        self.error: UpstreamError | None = None
        self.complete = False  # the whole answer is here, perhaps not yet the last byte
        self.landed = False  # the last byte is here
        self.shareable = False  # whether the finished reply may be given to those who have nothing yet
        self.reply: dict[str, Any] | None = None  # the whole reply, where it could be put together
        self._room = asyncio.Event()

    def notify(self) -> None:
        """Tell every listener that something has happened."""
        for listener in self.listeners:
            listener.wake()

    def add(self, data: bytes, *, usage: bool = False) -> None:
        """Hand on the next bytes."""
        self.chunks.append(Chunk(data, usage))
        self.notify()

    def next_chunks(self, listener: Listener) -> list[Chunk]:
        """Return what the listener has not got yet."""
        chunks = self.chunks[listener.position - self.dropped :]
        listener.position += len(chunks)
        self._room.set()
        return chunks

    async def drain(self) -> None:
        """Forget what everybody has got, and wait for the slowest listener. For replies too large to keep."""
        self.open = False
        while self.listeners:
            reached = min(listener.position for listener in self.listeners)
            del self.chunks[: reached - self.dropped]
            self.dropped = max(self.dropped, reached)
            if sum(len(chunk.data) for chunk in self.chunks) <= _WINDOW_BYTES:
                return
            self._room.clear()
            await self._room.wait()

    def drop(self, listener: Listener) -> None:
        """Forget a listener; the call is cancelled when it was the last one and there is still something to come.

        Clients hang up as soon as they have read a stream's end event: only the end of the body is to come then.
        """
        self.listeners.discard(listener)
        self._room.set()
        if not self.listeners and not self.landed and self.task is not None:
            self.open = False
            if self.complete:
                asyncio.get_running_loop().call_later(_LAST_BYTE_S, self._give_up)
            else:
                self.task.cancel()

    def _give_up(self) -> None:
        if not self.landed and self.task is not None:
            self.task.cancel()


class Flights:
    """All flights under way."""

    def __init__(self) -> None:
        self._by_key: dict[bytes, Flight] = {}  # what can be joined
        self._by_turn: dict[bytes, set[Flight]] = {}  # all
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, key: bytes) -> Flight | None:
        """Return the flight for this key that can still be joined: whoever comes after the answer asks the store."""
        flight = self._by_key.get(key)
        return flight if flight is not None and flight.open and not flight.complete else None

    async def settled(self, turn: bytes, patience_s: float) -> bool:
        """Wait until every answer to this turn that is complete is recorded; return whether there was one.

        Between its last byte and its record a flight may have to ask the backend for its version.
        """
        flights = self._by_turn.get(turn)
        if flights is None:
            return False
        tasks = {flight.task for flight in flights if flight.complete and flight.task is not None}
        if not tasks:
            return False
        await asyncio.wait(tasks, timeout=patience_s)
        return True

    def join(self, flight: Flight, *, ttl_s: float | None = None) -> Listener:
        """Listen to a flight; ``ttl_s`` can only shorten the life of what it brings."""
        return self._join(flight, ttl_s, first=False)

    def _join(self, flight: Flight, ttl_s: float | None, *, first: bool) -> Listener:
        listener = Listener(flight, first=first)
        flight.listeners.add(listener)
        if ttl_s is not None:
            flight.ttl_s = ttl_s if flight.ttl_s is None else min(flight.ttl_s, ttl_s)
        return listener

    def launch(
        self,
        turn: bytes,
        work: Callable[[Flight], Coroutine[Any, Any, None]],
        *,
        shared: bool,
        ttl_s: float | None = None,
    ) -> Listener:
        """Start a flight for a turn (its exact key); only a ``shared`` one can be joined. Returns the first's place."""
        flight = Flight()
        listener = self._join(flight, ttl_s, first=True)
        if shared:
            self._by_key[turn] = flight
        self._by_turn.setdefault(turn, set()).add(flight)
        flight.task = task = asyncio.create_task(work(flight), name="antiphon-flight")
        self._tasks.add(task)

        def finished(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if self._by_key.get(turn) is flight:
                del self._by_key[turn]
            others = self._by_turn[turn]
            others.discard(flight)
            if not others:
                del self._by_turn[turn]
            flight.open = False
            if not task.cancelled():
                task.exception()  # taken note of by the work itself
            flight.notify()

        task.add_done_callback(finished)
        return listener

    async def drain(self, patience_s: float) -> None:
        """Wait until all flights have ended, then cancel the rest."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=patience_s)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
