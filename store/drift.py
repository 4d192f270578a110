"""Drift: a question whose answers change.

A *question key* stands for a question in its literal history, in whatever words have the same structural fingerprint.
A new answer to it makes a new version; the older ones are unreachable from the same transaction on. How the answers
differ is found in the background: each new one is compared with the one before it, and where the last answers scatter
too much (the variance of their unit vectors, 1 minus the squared length of their mean, 0 … 1), the question is not
served until they settle. Every turn then goes to the backend, so each brings an answer of its own to settle it by.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Engine, bindparam, delete, func, insert, select, update

from fingerprint.conversation import Turn
from fingerprint.facts import fingerprint_of, objections
from fingerprint.text import normalise, utf8
from store.agreement import Limits
from store.codec import pack_vector, unpack_answer, unpack_question, unpack_vector
from store.comparing import Compared, Comparer
from store.counters import Failures
from store.memory import Memory
from store.models import AnswerVersion, Entry
from store.replicas import announce
from store.settings import StoreSettings
from store.writer import AfterCommit, Writer

__all__ = ["UNSETTLED", "Drift", "VersionsWrite", "question_key", "same_question", "unserved_until", "variance"]

UNSETTLED: Final = 1e18
"""``Entry.unserved_until`` of a question whose answers keep changing."""

_CAP: Final = 24  # values a fingerprint keeps of each kind; what has as many may have more
_MOST_WAITING: Final = 1_000

Floats = NDArray[np.float32]


def question_key(turn: Turn, partition: bytes, identity: bytes, place_key: bytes | None) -> bytes:
    """Return 32 bytes that stand for a question: its fingerprint behind its literal history. Never raises.

    Where the fingerprint may not hold everything (attachments, as many values as it keeps) the literal message is
    added, so that at worst one question has several keys.
    """
    print_ = fingerprint_of(turn)
    whole = not turn.message.opaque and all(
        len(value) < _CAP for value in msgspec.structs.astuple(print_) if isinstance(value, tuple)
    )
    literal = b"" if whole else utf8(normalise(turn.message.text)) + b"\0" + turn.message.opaque
    parts = (partition, identity, place_key or b"", utf8(turn.message.role), msgspec.msgpack.encode(print_), literal)
    return blake2b(msgspec.msgpack.encode(parts), digest_size=32, person=b"antiphon.drift").digest()


def same_question(one: Turn, other: Turn) -> bool:
    """Whether two turns of one question key may be taken for one question: no guard objects."""
    return one.message.opaque == other.message.opaque and not objections(one, other, same_place=True)


def variance(vectors: Sequence[Floats]) -> float:
    """Return the variance of unit vectors, each of shape (d,): 0 where all are equal, below 1 always."""
    mean = np.mean(np.stack(vectors), axis=0)
    return max(0.0, 1.0 - float(mean @ mean))


_SAME = select(Entry.number, Entry.id, Entry.version, Entry.question).where(
    Entry.question_key == bindparam("key"),
    Entry.exact_key != bindparam("exact"),
    Entry.state.in_(("active", "suspect")),
)
_UNSERVED = select(func.max(Entry.unserved_until)).where(Entry.question_key == bindparam("key"))


@dataclass(frozen=True, slots=True)
class Earlier:
    """An older answer to the same question in other words."""

    number: int
    id: str
    version: int


def earlier(connection: Connection, key: bytes, exact_key: bytes, turn: Turn) -> list[Earlier]:
    """Return the entries that answered this question in other words and are still served."""
    found = []
    for row in connection.execute(_SAME, {"key": key, "exact": exact_key}):
        try:
            if same_question(turn, unpack_question(row.question, turn.system)):
                found.append(Earlier(row.number, row.id, row.version))
        except ValueError:  # damaged: nothing to be compared, and nothing to be served
            found.append(Earlier(row.number, row.id, row.version))
    return found


def unserved_until(connection: Connection, key: bytes) -> float:
    """Return until when no answer to this question is served; 0 where it is."""
    return float(connection.execute(_UNSERVED, {"key": key}).scalar() or 0.0)


@dataclass(frozen=True, slots=True)
class VersionsWrite:
    """A new answer was compared with the one before it."""

    memory: Memory
    settings: StoreSettings
    key: bytes
    old_id: str
    new_id: str
    at: float
    compared: Compared

    def apply(self, connection: Connection) -> tuple[Any, AfterCommit | None]:
        """Write the version down, and whether the question is settled; tells the variance, None where unknown."""
        found, compared = self.compared.agreement, self.compared
        last = connection.execute(
            select(AnswerVersion.entry_id)
            .where(AnswerVersion.question_key == self.key)
            .order_by(AnswerVersion.number.desc())
            .limit(1)
        ).scalar()
        rows = [] if last == self.old_id else [self._row(self.old_id, "first", "", None, compared.one)]
        rows.append(self._row(self.new_id, found.verdict, found.what, found.cosine, compared.other))
        connection.execute(insert(AnswerVersion), rows)
        kept = (
            select(AnswerVersion.number)
            .where(AnswerVersion.question_key == self.key)
            .order_by(AnswerVersion.number.desc())
            .limit(self.settings.drift_window)
        )
        connection.execute(
            delete(AnswerVersion).where(AnswerVersion.question_key == self.key, AnswerVersion.number.not_in(kept))
        )
        vectors = connection.scalars(
            select(AnswerVersion.vector).where(
                AnswerVersion.question_key == self.key,
                AnswerVersion.space == compared.space,
                AnswerVersion.vector.is_not(None),
            )
        ).all()
        if len(vectors) < self.settings.drift_least_answers:
            return None, None
        scatter = variance([unpack_vector(vector) for vector in vectors if vector is not None])
        mine = Entry.question_key == self.key
        if scatter <= self.settings.drift_variance:
            settled = mine & (Entry.unserved_until == UNSETTLED)
            connection.execute(update(Entry).where(settled).values(unserved_until=0.0))
            return scatter, None
        connection.execute(update(Entry).where(mine).values(unserved_until=UNSETTLED))
        living = connection.execute(select(Entry.id, Entry.exact_key).where(mine, Entry.state == "active")).all()
        for one in living:
            announce(connection, "gone", one.id, one.exact_key)

        def forget() -> None:
            for one in living:
                self.memory.remove(one.id)

        return scatter, forget

    def _row(
        self, entry_id: str, verdict: str, why: str, cosine: float | None, vector: Floats | None
    ) -> dict[str, object]:
        return {
            "question_key": self.key,
            "entry_id": entry_id,
            "at": self.at,
            "verdict": verdict,
            "why": why,
            "cosine": cosine,
            "space": self.compared.space,
            "vector": None if vector is None else pack_vector(vector),
        }


_ANSWERS = select(
    Entry.id, Entry.answer, Entry.prompt_tokens, Entry.completion_tokens, Entry.seconds, Entry.created_at
).where(Entry.id.in_(bindparam("ids", expanding=True)))


class Drift:
    """Compares new answers with the ones they replace, in one background thread."""

    def __init__(
        self,
        settings: StoreSettings,
        pool: ThreadPoolExecutor,
        readers: Engine,
        writer: Writer,
        memory: Memory,
        comparer: Comparer,
        failures: Failures,
    ) -> None:
        self._settings = settings
        self._pool = pool
        self._readers = readers
        self._writer = writer
        self._memory = memory
        self._comparer = comparer
        self._failures = failures
        self._waiting = 0
        self._lock = threading.Lock()
        self._limits = Limits(agree=settings.drift_cosine, differ=settings.drift_cosine)

    def replaced(self, key: bytes, old_id: str, new_id: str) -> None:
        """An answer replaced another one; called after the commit, never blocks."""
        with self._lock:
            busy = self._waiting >= _MOST_WAITING
            self._waiting += not busy
        if busy:
            self._failures.note("drift", "busy")
            return
        try:
            self._pool.submit(self._look, key, old_id, new_id)
        except RuntimeError:  # closing
            return

    def _look(self, key: bytes, old_id: str, new_id: str) -> None:
        with self._lock:
            self._waiting -= 1
        try:
            with self._readers.connect() as connection:
                rows = {row.id: row for row in connection.execute(_ANSWERS, {"ids": [old_id, new_id]})}
            if len(rows) < 2:  # purged meanwhile
                return
            old, new = (
                unpack_answer(rows[one].answer, prompt_tokens=0, completion_tokens=0, seconds=0.0).text
                for one in (old_id, new_id)
            )
            compared = self._comparer.compare(old, new, self._limits)
            at = rows[new_id].created_at
            self._writer.put(VersionsWrite(self._memory, self._settings, key, old_id, new_id, at, compared))
        except Exception as error:
            self._failures.note("drift", error)
