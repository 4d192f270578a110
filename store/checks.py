"""Checks of served answers, and what follows from them.

A *check* compares an answer that was served, or could have been, with a fresh one for the same turn. A reworded turn
that was served as *suspect* is promoted after enough checks agree, and retracted by the first that differs. A
question whose checks fail too often is barred for a day. Every check that says yes or no is evidence for the error
budget (`store.budget`), which moves the thresholds of the decisions to come.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from store.agreement import Agreement, Limits
from store.bounded import Bounded
from store.budget import Budget, KindReport, Observation
from store.comparing import Comparer
from store.counters import Failures
from store.memory import Kept, Memory
from store.models import Entry, Evidence, Purge, Wording
from store.replicas import announce
from store.settings import CheckSettings
from store.types import KINDS, Hit, Kind, Policy
from store.writer import AfterCommit, Writer

__all__ = ["CheckSettings", "CheckWrite", "Checked", "Checks", "Source"]

Source = Literal["hit", "suspect", "miss", "feedback"]
"""Where evidence comes from: a served hit that was drawn, a suspect one, a candidate not served, a complaint."""

_KEPT_EVIDENCE: Final = 50_000  # rows
_REMEMBERED: Final = 16_384


@dataclass(frozen=True, slots=True)
class Checked:
    """What followed from one check."""

    promoted: bool = False
    retracted: bool = False
    barred: bool = False


_ENTRY = select(Entry.number, Entry.question_key).where(Entry.id == bindparam("id"))
_LAST = (
    select(Evidence.wrong)
    .where(Evidence.question_key == bindparam("key"))
    .order_by(Evidence.number.desc())
    .limit(bindparam("window"))
)


@dataclass(frozen=True, slots=True)
class CheckWrite:
    """The outcome of one check."""

    memory: Memory
    settings: CheckSettings
    entry_id: str
    exact_key: bytes | None  # of the turn that was served; None: it was not served
    kind: Kind
    confidence: float
    wrong: bool
    source: Source
    model: str
    now: float

    def apply(self, connection: Connection) -> tuple[Any, AfterCommit | None]:
        """Write the evidence, promote or retract the wording, bar the question; tells what followed (`Checked`)."""
        entry = connection.execute(_ENTRY, {"id": self.entry_id}).first()
        served = self.exact_key is not None and entry is not None
        key = entry.question_key if served and entry is not None else None
        connection.execute(
            insert(Evidence),
            {
                "kind": self.kind,
                "confidence": self.confidence,
                "wrong": self.wrong,
                "source": self.source,
                "model": self.model,
                "question_key": key,
                "at": self.now,
            },
        )
        announce(connection, "evidence", self.model, self.kind, str(self.confidence), str(int(self.wrong)))
        newest = connection.execute(select(func.max(Evidence.number))).scalar_one()
        connection.execute(delete(Evidence).where(Evidence.number <= newest - _KEPT_EVIDENCE))
        if not served or entry is None:
            return Checked(), None
        promoted = retracted = False
        this = (Wording.exact_key == self.exact_key) & (Wording.entry_number == entry.number)
        if self.wrong:
            retracted = connection.execute(delete(Wording).where(this)).rowcount > 0
        else:
            connection.execute(update(Wording).where(this).values(agreements=Wording.agreements + 1))
            enough = Wording.suspect & (Wording.agreements >= self.settings.agreements)
            promoted = connection.execute(update(Wording).where(this, enough).values(suspect=False)).rowcount > 0
        barred = self._bar(connection, key) if self.wrong and key is not None else None
        if retracted or promoted:
            announce(connection, "key", self.exact_key or b"")

        def forget() -> None:
            for entry_id in (self.entry_id, *(barred or ())):  # whatever the memory holds of these is read again
                self.memory.remove(entry_id)

        return Checked(promoted, retracted, barred is not None), forget

    def _bar(self, connection: Connection, key: bytes) -> list[str] | None:
        """Bar the question if its checks fail too often; returns the entries that served it, None where it is not."""
        settings = self.settings
        last = connection.scalars(_LAST, {"key": key, "window": settings.window}).all()
        right = len(last) - sum(last)
        if len(last) < settings.least_checks or right / len(last) >= settings.accuracy:
            return None
        until = self.now + settings.bar_s
        mine = Entry.question_key == key
        connection.execute(update(Entry).where(mine, Entry.unserved_until < until).values(unserved_until=until))
        entries = connection.execute(select(Entry.id, Entry.exact_key).where(mine, Entry.state == "active")).all()
        for entry in entries:
            announce(connection, "gone", entry.id, entry.exact_key)
        # What was held against it once is not held against it again when the day is over.
        connection.execute(update(Evidence).where(Evidence.question_key == key).values(question_key=None))
        connection.execute(
            insert(Purge),
            {
                "at": self.now,
                "actor": "verification",
                "action": "bar",
                "target": json.dumps({"entry": self.entry_id}),
                "entries": 1,
            },
        )
        return [entry.id for entry in entries]


def _observations(connection: Connection, model: str, limit: int) -> list[Observation]:
    """Read the newest ``limit`` pieces of evidence about the decisions of ``model``, oldest first."""
    rows = connection.execute(
        select(Evidence.kind, Evidence.confidence, Evidence.wrong)
        .where(Evidence.model == model)
        .order_by(Evidence.number.desc())
        .limit(limit)
    ).all()
    return [Observation(cast("Kind", r.kind), r.confidence, r.wrong) for r in reversed(rows) if r.kind in KINDS]


class Checks:
    """Keeps the evidence and the thresholds that follow from it; part of a `store.cache.Cache`."""

    def __init__(
        self,
        settings: CheckSettings,
        base: Policy,
        *,
        model: str,
        writer: Writer,
        memory: Memory,
        comparer: Comparer,
        pool: ThreadPoolExecutor,
        failures: Failures,
        clock: Callable[[], float],
    ) -> None:
        self.settings = settings
        self.base = base
        self._model = model
        self._budget = Budget(settings.wrong_hits, base, alpha=settings.alpha, window=settings.evidence)
        self._policy = self._budget.policy(band=settings.suspects)
        self._writer = writer
        self._memory = memory
        self._comparer = comparer
        self._pool = pool
        self._failures = failures
        self._clock = clock
        self._limits = Limits(agree=settings.agree_cosine, differ=settings.differ_cosine)
        self._last: Bounded[str, tuple[Kind, float]] = Bounded(_REMEMBERED)

    @property
    def policy(self) -> Policy:
        """The thresholds in force."""
        return self._policy

    def rebase(self, base: Policy) -> None:
        """Take other thresholds to start from; the evidence stays."""
        self.base = base
        self._budget = self._budget.over(base)
        self._policy = self._budget.policy(band=self.settings.suspects)

    def load(self, connection: Connection) -> None:
        """Take over what was observed before the last stop."""
        self._observe(_observations(connection, self._model, len(KINDS) * self.settings.evidence))

    def serves(self, kept: Kept) -> bool:
        """Whether a stored answer may be served for the turn it is kept under, as far as that turn's decision goes.

        A wording is as good as the decision it comes from: one that today's thresholds would not make is not served,
        unless checks have confirmed it.
        """
        if kept.kind == "exact" or kept.agreements >= self.settings.agreements:
            return True
        if kept.suspect or kept.kind == "band":
            band = self._policy.band
            return band is not None and kept.confidence >= band
        return kept.confidence >= self._policy.least(same_place=kept.kind == "same_place")

    def served(self, hit: Hit) -> None:
        """Note that a hit was served: a complaint about its entry is a complaint about this decision."""
        self._last[hit.entry_id] = (hit.kind, hit.decided)

    def complained(self, entry_id: str) -> None:
        """Somebody says that what was served of an entry is wrong; no evidence where it was no hit."""
        last = self._last.get(entry_id)
        self._last.pop(entry_id)
        if last is not None:
            self.checked(entry_id, None, *last, wrong=True, source="feedback")

    def wanted(self, kind: Kind, rate: float) -> float:
        """Return the share of decisions of a kind to check, 0 … 1; ``rate`` is the share in the long run."""
        return self._budget.wanted(kind, rate)

    async def compare(self, one: str, other: str) -> Agreement:
        """Compare two answers to one question, in a background thread. Never raises but when the store is closing."""
        loop = asyncio.get_running_loop()
        compared = await loop.run_in_executor(self._pool, self._comparer.compare, one, other, self._limits)
        return compared.agreement

    def checked(
        self, entry_id: str, exact_key: bytes | None, kind: Kind, confidence: float, *, wrong: bool, source: Source
    ) -> Future[Any]:
        """Take the outcome of one check; the future's result is what followed (`Checked`) once it is written.

        ``exact_key`` is that of the turn that was served; None where nothing was.
        """
        self._observe([Observation(kind, confidence, wrong)])
        return self._writer.ask(
            CheckWrite(
                memory=self._memory,
                settings=self.settings,
                entry_id=entry_id,
                exact_key=exact_key,
                kind=kind,
                confidence=confidence,
                wrong=wrong,
                source=source,
                model=self._model,
                now=self._clock(),
            )
        )

    def heard(self, values: Sequence[bytes]) -> None:
        """Take what a check of another process on this database found."""
        model, kind, confidence, wrong = (value.decode("utf-8", "surrogatepass") for value in values)
        if model == self._model and kind in KINDS:
            self._observe([Observation(kind, float(confidence), wrong == "1")])

    def report(self) -> tuple[KindReport, ...]:
        """Say what is known of each kind of hit."""
        return self._budget.report()

    def _observe(self, observed: Iterable[Observation]) -> None:
        self._budget.observe(observed)
        self._policy = self._budget.policy(band=self.settings.suspects)
