"""A log through the code that serves: each turn is asked of a cache that holds what was asked before it.

The cache is `store.cache.Cache` itself, on a temporary file, with the log's clock: look-up, guards, confidence,
thresholds, places, corrections and lifetimes are those of the proxy. Several turns are judged at the same time, and the
outcome is that of asking one by one: what may depend on another turn by its keys waits for it; what was found before an
earlier turn's entry was there, and would have found that too, is asked again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

import numpy as np

from eval.admission import Admitted, Rules, admit
from eval.audit.spool import Spool
from eval.audit.vectors import KeptVectors
from eval.traffic.turns import LoggedTurn
from fingerprint.embedding.base import Embedding
from fingerprint.facts import direct_key
from store.cache import Cache
from store.judges import Judges
from store.plain import plain_key
from store.retrieval import ROUNDING, Found, could_be_chosen
from store.settings import StoreSettings
from store.types import Answer, Decision, Hit, Judgement, Policy, Query, ReuseConfidence

__all__ = ["KINDS", "Kind", "Outcome", "Walk", "store_settings"]

Kind: TypeAlias = Literal["exact", "reworded", "in context", "not sure", "new", "regenerate", "not looked up"]
KINDS: Final[tuple[Kind, ...]] = (
    "exact", "reworded", "in context", "not sure", "new", "regenerate", "not looked up"
)  # fmt: skip
_AT_ONCE: Final = 20  # looked up at a time
_AHEAD: Final = 64  # turns whose outcome may wait for that of an earlier one
_UNWRITTEN: Final = 48  # entries that may wait to be written while nothing depends on them
_LINGER_MS: Final = 1_000.0  # they are written when something does, or when there are so many
_STEP_S: Final = 1.0  # between turns of a log without times
_LATIN_NEAREST, _OTHER_NEAREST = "en", "zh"  # the languages whose calibration holds in each vector space
_BODY: Final = b"{}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What would have become of a turn.

    ``exact``: asked literally before. ``reworded``: in other words, at the beginning of a conversation; ``in context``:
    in other words, after others. ``not sure``: a candidate between the two thresholds. ``regenerate``: the same again
    in the same session. ``earlier`` is the number of the turn whose answer would have been served (where none would, of
    the best candidate; another where several are as good), ``gap_s`` how long before this one it was asked.
    """

    number: int
    logged: LoggedTurn
    kind: Kind
    reason: str
    confidence: float = 0.0
    similarity: float | None = None
    earlier: int | None = None
    gap_s: float | None = None
    vetoes: tuple[str, ...] = ()

    @property
    def served(self) -> bool:
        """Whether an answer from the cache would have been given."""
        return self.kind in ("exact", "reworded", "in context")


def store_settings(settings: StoreSettings, turns: int, threads: int) -> StoreSettings:
    """The operator's store settings for a temporary store that nobody waits for."""
    return settings.model_copy(
        update={
            "url": "sqlite://",
            "lookup_deadline_ms": 60_000.0,
            "embed_deadline_ms": 60_000.0,
            "decide_deadline_ms": 60_000.0,
            "write_queue_size": 1_000_000,
            "memory_mib": min(settings.memory_mib, 16.0),
            "max_entries": max(settings.max_entries, turns + 1),
            "decide_threads": threads,
            "write_linger_ms": _LINGER_MS,
        }
    )


@dataclass(slots=True, eq=False)
class _Asked:
    """A turn under way, or one whose entry is not written yet."""

    number: int
    logged: LoggedTurn
    query: Query
    vector: Embedding | None = None
    direct: bytes | None = None
    plain: bytes | None = None
    task: asyncio.Task[tuple[Decision, Hit | None]] | None = None
    outcome: Outcome | None = None  # where it is known already
    entry: bool = False  # it was recorded
    unseen: list[_Asked] = field(default_factory=list)  # earlier turns whose entries were not there when it was asked
    found: Found | None = None


class Walk:
    """One pass over a spool."""

    def __init__(
        self,
        spool: Spool,
        vectors: KeptVectors,
        *,
        confidence: ReuseConfidence,
        policy: Policy,
        settings: StoreSettings,
        rules: Rules | None = None,
        threads: int = 2,
        at_once: int = _AT_ONCE,
        judges: Judges | None = None,
    ) -> None:
        """``at_once`` turns at most are under way; 1 asks strictly one by one. ``judges`` decide, with the same
        confidence; by default ``threads`` of this process."""
        self._judges = judges
        self._spool = spool
        self._vectors = vectors
        self._confidence = confidence
        self._policy = policy
        self._settings = store_settings(settings, len(spool), threads)
        self._rules = rules or Rules()
        self._at_once = at_once
        nearest = getattr(confidence, "nearest", {})
        self._nearest = {
            True: float(nearest.get(_LATIN_NEAREST, -1.0)),
            False: float(nearest.get(_OTHER_NEAREST, -1.0)),
        }
        self._latin = vectors.name.partition("+")[0]
        self._now = 0.0
        self._entries: dict[str, int] = {}  # entry → number of the turn
        self._times: list[float] = []
        self._known: set[bytes] = set()  # exact keys that may be found
        self._under_way: deque[_Asked] = deque()
        self._looked_up = 0
        self._unwritten: list[_Asked] = []
        self.failures: dict[str, int] = {}
        self._corrected: set[str] = set()  # conversations in which something may not be served any more
        self.asked_again = 0
        """Turns that were looked up a second time, for an earlier turn's entry that was not there the first time."""

    async def run(self, admitted: Callable[[Admitted], None] | None = None) -> AsyncIterator[Outcome]:
        """Yield the outcome of every turn, in order. Raises `store.errors.StoreError` where no store can be made."""
        cache = await Cache.open(
            self._settings,
            embedder=self._vectors,
            confidence=self._confidence,
            policy=self._policy,
            clock=lambda: self._now,
            judges=self._judges,
        )
        try:
            for number, logged in enumerate(self._spool.turns()):
                self._now = max(self._now, logged.time) if logged.time is not None else self._now + _STEP_S
                self._times.append(self._now)
                one = admit(logged, self._rules, embedder=self._vectors.name, decision=cache.decision)
                if admitted is not None:
                    admitted(one)
                async for outcome in self._ask(cache, number, logged, one):
                    yield outcome
            while self._under_way:
                yield await self._next(cache)
        finally:
            self.failures = dict(cache.failures.counts())
            await cache.close()

    async def _ask(self, cache: Cache, number: int, logged: LoggedTurn, one: Admitted) -> AsyncIterator[Outcome]:
        query = one.query
        asked = _Asked(number, logged, query)
        if one.bypass is not None:
            if one.correction:  # changes what may be served: everything before it first
                while self._under_way:
                    yield await self._next(cache)
                self._corrected.add(logged.conversation)
                await cache.correct(query)
            asked.outcome = Outcome(number, logged, "not looked up", one.bypass)
        else:
            known = query.exact_key in self._known  # most of what is asked again: no vector is needed
            if not known:
                self._prepare(asked)
            while self._must_wait(asked):
                yield await self._next(cache)
            if not await self._by_its_key(cache, asked):
                if known:
                    self._prepare(asked)
                    while self._must_wait(asked):
                        yield await self._next(cache)
                await self._look_up(cache, asked)
        self._under_way.append(asked)
        while self._looked_up >= self._at_once or len(self._under_way) >= min(_AHEAD, self._at_once * 8):
            yield await self._next(cache)

    def _prepare(self, asked: _Asked) -> None:
        """Make what a look-up by meaning depends on."""
        query = asked.query
        if query.semantic:
            (asked.vector,) = self._vectors.encode([query.turn.message.text])
            asked.direct = direct_key(query.turn)
            asked.plain = plain_key(query.turn, query.partition, query.identity, query.dates)

    def _must_wait(self, asked: _Asked) -> bool:
        return any(self._depends(asked, other) for other in self._under_way if other.task is not None)

    async def _by_its_key(self, cache: Cache, asked: _Asked) -> bool:
        """Whether the outcome is told by the literal turn; it is then."""
        query = asked.query
        if cache.served_before(query):
            self._record(cache, asked)
            asked.outcome = Outcome(asked.number, asked.logged, "regenerate", "asked again in the same session")
            return True
        if query.exact_key in self._known:
            hit = await cache.exact(query)
            if hit is not None:
                self._follow(cache, asked, hit)
                asked.outcome = self._hit(asked, hit, "exact", 1.0)
                return True
        if not query.semantic:
            asked.outcome = Outcome(asked.number, asked.logged, "new", "exact look-up only")
            self._record(cache, asked)
            return True
        return False

    async def _look_up(self, cache: Cache, asked: _Asked) -> None:
        if len(self._unwritten) >= _UNWRITTEN or any(self._depends(asked, other) for other in self._unwritten):
            await self._write(cache)
        asked.unseen = [*self._unwritten, *(other for other in self._under_way if other.task is not None)]
        asked.task = asyncio.create_task(self._search(cache, asked))
        self._looked_up += 1

    async def _search(self, cache: Cache, asked: _Asked) -> tuple[Decision, Hit | None]:
        def found(near: Found) -> None:
            asked.found = near

        return await cache.search(asked.query, found=found)

    async def _write(self, cache: Cache) -> None:
        await cache.flush()
        self._unwritten.clear()

    def _depends(self, asked: _Asked, other: _Asked) -> bool:
        """Whether ``asked`` can be found, or find its place, by a key that ``other`` may give to something."""
        mine, its = asked.query, other.query
        return (
            mine.exact_key == its.exact_key
            or asked.logged.conversation == other.logged.conversation
            or (mine.place_key is not None and mine.place_key == its.place_key)
            or (asked.direct is not None and asked.direct == other.direct)
            or (asked.plain is not None and asked.plain == other.plain)
        )

    def _would_find(self, asked: _Asked, other: _Asked) -> bool:
        """Whether ``asked`` would have found the entry of ``other``, had it been there, and could be served it."""
        mine, its = asked.query, other.query
        if not other.entry or mine.partition != its.partition or mine.identity != its.identity:
            return False
        one, two = asked.vector, other.vector
        if one is None or two is None or one.space != two.space:
            return False
        cosine = float(np.dot(one.vector, two.vector))
        if cosine < self._nearest[one.space == self._latin] and not (mine.turn.history and its.turn.history):
            return False
        if asked.found is None:
            return True
        if not mine.turn.history and not mine.dates and asked.logged.conversation not in self._corrected:
            return could_be_chosen(asked.found, cosine, root=not its.turn.history, count=self._policy.max_candidates)
        if cosine >= asked.found.horizon - ROUNDING:
            return True
        # What hangs from the same node is found whatever its vector.
        return other.found is not None and asked.found.node is not None and asked.found.node == other.found.node

    async def _next(self, cache: Cache) -> Outcome:
        """The outcome of the oldest turn under way; what follows from it is done."""
        asked = self._under_way.popleft()
        if asked.outcome is not None:
            return asked.outcome
        assert asked.task is not None
        decision, hit = await asked.task
        self._looked_up -= 1
        if any(self._would_find(asked, other) for other in asked.unseen):
            self.asked_again += 1
            await self._write(cache)
            decision, hit = await self._search(cache, asked)
        asked.unseen.clear()
        best = decision.judgements[0] if decision.judgements else None
        if hit is not None:
            self._follow(cache, asked, hit)
            best = next((j for j in decision.judgements if j.entry_id == hit.entry_id), best)
            return self._hit(
                asked, hit, "in context" if asked.query.turn.history else "reworded", decision.confidence, best
            )
        self._record(cache, asked)
        earlier = None if best is None else self._entries.get(best.entry_id)
        return Outcome(
            asked.number,
            asked.logged,
            "not sure" if decision.level == "kv" else "new",
            decision.reason,
            decision.confidence,
            None if best is None else best.similarity,
            earlier,
            None if earlier is None else self._times[asked.number] - self._times[earlier],
            () if best is None else best.objections,
        )

    def _hit(self, asked: _Asked, hit: Hit, kind: Kind, confidence: float, best: Judgement | None = None) -> Outcome:
        earlier = self._entries.get(hit.entry_id)
        gap = None if earlier is None else self._times[asked.number] - self._times[earlier]
        similarity = None if best is None else best.similarity
        return Outcome(asked.number, asked.logged, kind, "served", confidence, similarity, earlier, gap)

    def _follow(self, cache: Cache, asked: _Asked, hit: Hit) -> None:
        # The conversation goes on with the answer that the log has, so that is where its next turn stands.
        cache.follow(asked.query, replace(hit, answer=replace(hit.answer, text=asked.logged.answer or "")))
        self._known.add(asked.query.exact_key)

    def _record(self, cache: Cache, asked: _Asked) -> None:
        logged = asked.logged
        if not logged.storable:
            return
        answer = Answer(
            _BODY,
            logged.answer or "",
            logged.record.prompt_tokens or 0,
            logged.record.completion_tokens or 0,
            logged.record.seconds or 0.0,
        )
        self._entries[cache.record(asked.query, answer)] = asked.number
        self._known.add(asked.query.exact_key)
        if asked.query.semantic:
            asked.entry = True
            self._unwritten.append(asked)
