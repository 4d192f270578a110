"""The cache: what the proxy and the evaluator use of the store.

Threads: the event loop calls everything here. Reading the database, deciding and embedding each have threads of their
own and a deadline; one thread writes (`store.writer`). What a call finds in memory it answers without any of them.

On the path of a request nothing raises: a failure is "not found" or a dropped write, counted in `Cache.failures`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Final, Literal, TypeVar

from sqlalchemy import Connection

from fingerprint.conversation import Message, Turn
from fingerprint.dates import agree
from fingerprint.embedding.base import TextEmbedder
from fingerprint.keys import place_key
from fingerprint.text import normalise, utf8
from store import audit, epochs, reads
from store.asked_again import AskedAgain, rater_of
from store.audit import AuditRow, NoteWrite
from store.bars import Bars, items_of, scopes_of, text_digest
from store.canonical import Canonical, Reference, Servable, canonical, reference
from store.checks import Checks, CheckSettings
from store.codec import unpack_question
from store.comparing import Comparer
from store.counters import BreakerState, Failures, kind_of
from store.database import Database
from store.decide import Objections, decide
from store.drift import Drift
from store.embedding import EmbeddingService
from store.errors import StoreError, StoreUnavailable, UnknownDimension
from store.hits import Hits
from store.ids import IdMaker
from store.index import one_thread
from store.judges import Judges, guards
from store.known import MOST_KEYS, KnownKeys
from store.marks import DoubtWrite, FeedbackWrite, SightingWrite
from store.memory import Kept, Memory
from store.opinion import NoOpinion, Opinion, asked, served_by
from store.plain import plain_key
from store.pool import Pool, Unanswered
from store.prints import Prints
from store.projection import ProjectedEmbedder
from store.rebuild import Rebuilder
from store.recent import Recent
from store.replicas import Followed
from store.retrieval import Found, candidates, retrieve
from store.rows import EntryRow, StoreStats, row_of
from store.settings import StoreSettings
from store.stages import staged
from store.types import Answer, Candidate, Decision, Hit, Judgement, Policy, Query, ReuseConfidence
from store.value import Lives, expected_saving, length_of
from store.vectors import Vectors
from store.writer import Writer
from store.writes import (
    CorrectWrite,
    EpochWrite,
    Followers,
    PlaceWrite,
    PurgeWrite,
    RecordWrite,
    RetractWrite,
    SessionWrite,
    TidyWrite,
    WordingWrite,
)

__all__ = ["Cache"]

T = TypeVar("T")

_GONE: Final = "the entry is gone"
_TIDY_EVERY_S: Final = 60.0
_BACKFILL: Final = 10_000  # entries without vectors that are made up for at a start
_SESSIONS: Final = 100_000
_BARS_DAYS: Final = 30.0
_CLOSE_S: Final = 10.0  # for what is queued for writing
_VECTOR_S: Final = 1.0  # for the vectors in hand


class Cache:
    """Entries, their places and their vectors, behind one door. Make one with `Cache.open`, on the event loop."""

    def __init__(
        self,
        settings: StoreSettings,
        database: Database,
        service: EmbeddingService | None,
        confidence: ReuseConfidence,
        policy: Policy,
        objections: Objections,
        clock: Callable[[], float],
        checks: CheckSettings,
        judges: Judges | None = None,
    ) -> None:
        self.settings = settings
        self.failures = Failures()
        self._database = database
        self._confidence = confidence
        self.decision = confidence.version
        """The version of the artefact that decides: part of every identity. Other thresholds (`decide_by`) make no
        other artefact: what was stored stays reachable."""
        self._objections = objections
        self._judges = judges
        self._clock = clock
        self._new_id = IdMaker()
        self._memory = Memory(int(settings.memory_mib * 2**20))
        self._index = database.neighbours(settings)
        self._bars = Bars()
        self._recent = Recent()
        self._known = KnownKeys()
        self._known_plainly = KnownKeys()  # the same for plain keys
        self._again = AskedAgain()
        self._lives = Lives(settings.long_life_tokens, settings.no_life_tokens, settings.medium_ttl_s)
        self.epoch = 0  # see `store.epochs`
        self._followers = Followers(self._index, self._memory, self._bars)
        self._writer = Writer(
            database.writer,
            self.failures,
            queue_size=settings.write_queue_size,
            locked_patience_s=settings.locked_patience_s,
            linger_s=settings.write_linger_ms / 1000,
        )
        self._hits = Hits(self._writer)
        self._vectors = Vectors(
            service,
            self._writer,
            self._followers,
            self.failures,
            deadline_s=settings.embed_deadline_ms / 1000,
            strategy=settings.context_strategy,
            rounds=settings.window_rounds,
        )
        self.opinion: Opinion | None = None
        """Who is asked about the middle band; None: nobody."""
        self._prints = Prints(self._writer, self.failures)
        comparer = Comparer(self._vectors.embed_background if self._vectors.available else None, self.failures)
        self._comparing = ThreadPoolExecutor(1, "antiphon-checks", initializer=one_thread)
        self.checks = Checks(
            checks,
            policy,
            model=confidence.version,
            writer=self._writer,
            memory=self._memory,
            comparer=comparer,
            pool=self._comparing,
            failures=self.failures,
            clock=clock,
        )
        self._drift = Drift(
            settings, self._comparing, database.upkeep, self._writer, self._memory, comparer, self.failures
        )
        self._readers = Pool("read", settings.read_threads, settings.lookup_deadline_ms / 1000, self.failures)
        self._deciders = Pool(
            "decide",
            settings.decide_threads,
            settings.decide_deadline_ms / 1000,
            self.failures,
            executor=None if judges is None else judges.executor,
        )
        self._link = database.link(settings, self.failures)
        self._leases = database.leases(settings, self.failures)
        self._rebuilder = Rebuilder(self._index, database.upkeep, self.failures, clock)
        self._trips = 0
        self._upkeep = ThreadPoolExecutor(1, "antiphon-upkeep", initializer=one_thread)
        self._tending = ThreadPoolExecutor(1, "antiphon-tending", initializer=one_thread)
        self._tidy: asyncio.Task[None] | None = None
        self._closed = False

    # ------------------------------------------------------------------------------------------ opening, closing

    @classmethod
    async def open(
        cls,
        settings: StoreSettings,
        *,
        embedder: TextEmbedder | None,
        confidence: ReuseConfidence,
        policy: Policy,
        objections: Objections | None = None,
        clock: Callable[[], float] = time.time,
        checks: CheckSettings = CheckSettings(),  # noqa: B008 - a frozen value
        judges: Judges | None = None,
    ) -> Cache:
        """Open the store that ``settings.url`` names and make it ready to serve.

        ``embedder`` None leaves exact look-ups only. ``objections`` are the guards, by default those of
        ``fingerprint.facts``. ``judges`` decide elsewhere, with a confidence of their own; by default threads of this
        process do. A damaged database is moved aside and a fresh one started. Raises the errors of
        `store.errors` (URL not supported, database in use or not usable, schema of a newer release).
        """
        objections = objections or guards
        database = await asyncio.to_thread(Database.open, settings)
        service = None
        if embedder is not None:
            embedder = await asyncio.to_thread(_projected, embedder, database)
            service = EmbeddingService(embedder)
        cache = cls(settings, database, service, confidence, policy, objections, clock, checks, judges)
        try:
            left = await asyncio.get_running_loop().run_in_executor(cache._upkeep, cache._load)
        except BaseException as error:
            cache._stop_threads(0.0)
            # Damage that the check at opening did not look for.
            damaged = kind_of(error) == "corrupt"
            if not damaged or not await asyncio.to_thread(database.replace, str(getattr(error, "orig", error))):
                database.close()
                if not isinstance(error, Exception) or isinstance(error, StoreError):
                    raise
                raise StoreUnavailable(f"the store {database.name} cannot be read ({kind_of(error)})") from error
            return await cls.open(
                settings,
                embedder=embedder,
                confidence=confidence,
                policy=policy,
                objections=objections,
                clock=clock,
                checks=checks,
                judges=judges,
            )
        cache._vectors.make_later(left)
        cache._tidy = asyncio.create_task(cache._keep_tidy())
        return cache

    async def close(self) -> None:
        """Write what is queued, stop the threads, close the database. Closing twice does nothing."""
        if self._closed:
            return
        self._closed = True
        if self._tidy is not None:
            self._tidy.cancel()
        self._hits.write()
        await asyncio.to_thread(self._stop_threads, _CLOSE_S)
        await asyncio.to_thread(self._index.close)
        await asyncio.to_thread(self._database.close)

    async def flush(self) -> bool:
        """Wait until everything queued is committed, vectors under way too; False where a write was dropped."""
        dropped = self._writer.dropped
        await asyncio.to_thread(self._vectors.wait)
        await asyncio.to_thread(self._prints.wait)
        self._hits.write()
        try:
            await asyncio.wrap_future(self._writer.ask(None))
            await asyncio.get_running_loop().run_in_executor(self._comparing, _nothing)
            await asyncio.wrap_future(self._writer.ask(None))
        except StoreUnavailable:
            return False
        return self._writer.dropped == dropped

    @property
    def confidence(self) -> ReuseConfidence:
        """What judges the candidates."""
        return self._confidence

    @property
    def policy(self) -> Policy:
        """The thresholds in force, without what the error budget asks for on top."""
        return self.checks.base

    def decide_by(self, policy: Policy, confidence: ReuseConfidence) -> None:
        """Take other thresholds, and the confidence they belong to, from the next decision on."""
        self._confidence = confidence
        self.checks.rebase(policy)

    # ------------------------------------------------------------------------------------------ looking up

    def exact_now(self, query: Query) -> Hit | None:
        """Return the answer to this literal turn where it is in memory; microseconds, no thread."""
        if not self._in_step():
            return None
        kept = self._memory.get(query.exact_key)
        return None if kept is None else self._hit(query, kept, confidence=1.0, exact=True)

    async def exact(self, query: Query) -> Hit | None:
        """Return the answer to this literal turn from memory or database, within ``lookup_deadline_ms``."""
        hit = self.exact_now(query)
        if hit is not None:
            return hit
        if not self._in_step() or self._known.absent(query.exact_key):
            return None
        generation = self._memory.generation
        try:
            kept = await self._read(partial(reads.exact, key=query.exact_key, now=self._clock()))
        except Unanswered:
            return None
        if kept is None:
            return None
        hit = self._hit(query, kept, confidence=1.0, exact=True)
        if hit is not None:
            self._memory.put(query.exact_key, kept, generation=generation)
        return hit

    async def search(
        self, query: Query, *, thorough: bool = False, found: Callable[[Found], None] | None = None
    ) -> tuple[Decision, Hit | None]:
        """Look for an answer to the same turn in other words: embed, retrieve, decide.

        ``thorough`` judges every candidate, also those behind one that is sure enough. ``found`` is told what lay near,
        for whoever must know which later entry could have changed the decision.

        The decision holds every candidate judged; the hit is there where its level is "answer". A failure or a missed
        deadline is a miss with its reason.
        """
        if not query.semantic:
            return Decision("miss", "exact look-up only"), None
        if not self._in_step():
            return Decision("miss", "no word from the database"), None
        try:
            same = None if thorough else await self._in_the_same_words(query)
            if same is not None:
                return self._unless_asked_again(query, _same_words(same), same)
            chosen = await self._candidates(query, found)
            if not chosen:
                return Decision("miss", "no candidate"), None
            decision = await self._decide(query, chosen, thorough)
            self._prints.lacking(chosen, decision, self.checks.policy.verify)
            if self.opinion is not None and not thorough and asked(decision, self.checks.policy):
                return await self._third(query, decision, chosen, self.opinion)
            if decision.level != "answer" or decision.entry_id is None:
                return decision, None
            while True:
                hit, why_not = await self._hit_for(query, decision, chosen)
                if hit is not None:
                    return self._unless_asked_again(query, decision, hit)
                # Expired or taken out of circulation while it was being judged, or said here already: the next one.
                chosen = [one for one in chosen if one.entry_id != decision.entry_id]
                if not chosen or why_not != _GONE:
                    return Decision("miss", why_not, None, 0.0, decision.judgements), None
                decision = await self._decide(query, chosen, thorough)
                if decision.level != "answer" or decision.entry_id is None:
                    return decision, None
        except Unanswered as miss:
            return Decision("miss", miss.reason), None
        except Exception as error:  # whatever it is, the request must go on
            self.failures.note("search", error)
            return Decision("miss", "look-up failed"), None

    async def explain(self, query: Query) -> Decision:
        """Return what would be decided, with every candidate judged; nothing is counted or served."""
        exact = await self.exact(query)
        decision, _ = await self.search(query, thorough=True)
        if exact is not None:
            return Decision("answer", "exact", exact.entry_id, 1.0, decision.judgements)
        with contextlib.suppress(Unanswered):
            same = await self._in_the_same_words(query)
            if same is not None:
                return replace(_same_words(same), judgements=decision.judgements)
        return decision

    def served_before(self, query: Query) -> bool:
        """Whether the same session already got an answer to this literal turn; False without a session."""
        return query.session is not None and self._recent.has_answered(query.session, query.exact_key)

    def paused(self) -> bool:
        """Whether look-ups in the database are pausing after failures: turns are better forwarded at once."""
        return self._readers.breaker.state == "open"

    # ------------------------------------------------------------------------------------------ for the backend's cache

    async def canonical(self, query: Query, *, rounds: int | None = None) -> Canonical:
        """Say which earlier user messages to send in the words of their node (`store.canonical`), within the deadline.

        Only the first ``rounds`` rounds of the history are looked at. A failure replaces nothing.
        """
        work = partial(
            canonical,
            query=query,
            places=self._recent.places.get,
            wordings=self._recent.wordings.get,
            servable=self._still(query),
            now=self._clock(),
            rounds=rounds,
        )
        try:
            return await self._read(work)
        except Unanswered as miss:
            return Canonical(ended=miss.reason)
        except Exception as error:
            self.failures.note("canonical", error)
            return Canonical(ended="look-up failed")

    async def reference(self, query: Query, entry_id: str) -> Reference | None:
        """Return question and answer of an entry that may be shown to the model for this turn, within the deadline."""
        try:
            return await self._read(
                partial(reference, entry_id=entry_id, servable=self._still(query), now=self._clock())
            )
        except Unanswered:
            return None
        except Exception as error:
            self.failures.note("canonical", error)
            return None

    def _still(self, query: Query) -> Servable:
        """Whether nothing that happened since speaks against an entry that the database shows."""

        def still(entry_id: str, key: bytes, digest: bytes | None) -> bool:
            items = items_of(entry_id=entry_id, exact_key=key, answer_digest=digest)
            return not self._recent.outdated(entry_id, key) and not self._bars.bars(query, items)

        return still

    @property
    def shared(self) -> bool:
        """Whether other processes may use the same database."""
        return self._leases is not None

    async def lease(self, query: Query) -> bool:
        """Whether nobody else is answering this literal turn just now, as far as can be known in time.

        Where True, the turn is this process's until `release`. Always True where the database is not shared.
        """
        return self._leases is None or await self._leases.take(query.exact_key)

    def release(self, query: Query) -> None:
        """Let others answer this turn, once what was recorded so far is committed."""
        leases = self._leases
        if leases is not None:
            self._writer.ask(None).add_done_callback(lambda _: leases.give_back(query.exact_key))

    # ------------------------------------------------------------------------------------------ writing

    def reserve(self) -> str:
        """Return a fresh entry id, for headers that are sent before the answer is known."""
        return self._new_id(self._clock())

    def record(self, query: Query, answer: Answer, *, entry_id: str | None = None, epoch: int | None = None) -> str:
        """Store a complete answer; returns its entry id (``entry_id`` where one was reserved, else a new one).

        `exact_now` finds it at once, `search` as soon as its vectors are ready, and it survives once it is committed
        (`flush`). It replaces what answered this exact key before. Where the queue is full, or question and answer
        together are over ``max_entry_kib``, it is not stored, and counted. ``epoch`` is that in which the turn was
        begun (default: the present one): an answer of an older one is not stored.
        """
        now = self._clock()
        new = entry_id or self._new_id(now)
        try:
            if epoch is None or epoch == self.epoch:
                self._record(query, answer, new, now)
        except Exception as error:
            self.failures.note("record", error)
        return new

    def follow(self, query: Query, hit: Hit, *, said: str | None = None) -> None:
        """Note that a hit was served: its use, the session's turn, and where the conversation stands now.

        ``said`` is what the client got instead of the stored answer, where it was only watched (`store.shadow`).

        An answer taken from another context (or worded differently) makes this turn findable by its own exact key. It
        is a node of its own, unless the entry hangs from the very same node, which is then this turn's node too.
        """
        try:
            self._follow(query, hit, said)
        except Exception as error:
            self.failures.note("follow", error)

    def regenerated(self, query: Query) -> None:
        """A session asks once more for an answer it has had: a doubt about what it was served, if that was a hit."""
        now = self._clock()
        entry_id = self._again.regenerated(query, now)
        if entry_id is not None:
            self._doubt(query, entry_id, "regenerate", now)

    async def correct(self, query: Query) -> int:
        """The turn corrects the answer before it: that answer is withdrawn; returns how many entries were affected.

        The entry becomes suspect (served to nobody until a fresh answer replaces it) and its wordings are dropped; what
        hangs from it is frozen (`store.branches`). In this session, and in this conversation from here on, neither the
        entry, nor whatever answers its exact key, nor the same answer text is served again.
        """
        try:
            scopes = scopes_of(query, here=True)
            digest = _answer_before(query.turn)
            # At once, whatever the database does:
            self._bars.add(scopes, items_of(entry_id=None, exact_key=None, answer_digest=digest))
            write = CorrectWrite(
                self._followers,
                query.place_key,
                query.partition,
                scopes,
                digest,
                "a conversation" if query.session is None else f"session {query.session[:12]}",
                self._clock(),
                self._again.last(query),
            )
            asked = asyncio.wrap_future(self._writer.ask(write))
            done, _ = await asyncio.wait({asked}, timeout=self.settings.lookup_deadline_ms / 1000)
            if not done:  # it goes on being written
                asked.add_done_callback(lambda late: late.cancelled() or late.exception())
                self.failures.note("correct", "slow")
                return 0
            return int(asked.result())
        except Exception as error:
            self.failures.note("correct", error)
            return 0

    # ------------------------------------------------------------------------------------------ administration

    async def retract(self, entry_id: str, *, partition: bytes | None = None, actor: str = "admin") -> bool:
        """Take an entry and its wordings out of circulation; False where there is none (in ``partition``).

        Raises `StoreUnavailable` where it could not be written; this process does not serve it even then.
        """
        self._recent_if_any(entry_id, partition)
        write = RetractWrite(self._followers, entry_id, partition, actor, "retract", self._clock())
        return self._gone_if(entry_id, await asyncio.wrap_future(self._writer.ask(write)))

    async def feedback(
        self,
        entry_id: str,
        rating: Literal["up", "down"],
        *,
        partition: bytes | None,
        rater: bytes | None = None,
        actor: str = "",
    ) -> bool:
        """Take an app's rating: "down" retracts. False where there is no such entry in ``partition`` (None: in any).

        The same rating of the same ``rater`` (default: the partition) again changes nothing. Raises `StoreUnavailable`
        where it could not be written.
        """
        who = actor or ("admin" if partition is None else f"partition {partition.hex()[:16]}")
        by = rater or partition or b"admin"
        write = FeedbackWrite(self._followers, entry_id, partition, by, rating, who, self._clock())
        if rating == "up":
            return bool(await asyncio.wrap_future(self._writer.ask(write)))
        self._recent_if_any(entry_id, partition)
        found = self._gone_if(entry_id, await asyncio.wrap_future(self._writer.ask(write)))
        if found:
            self.checks.complained(entry_id)
        return found

    async def purge(self, where: Mapping[str, str], *, dry_run: bool, actor: str = "admin") -> int:
        """Delete every entry that has all the values of ``where`` (dimension → value); returns how many.

        With ``dry_run`` they are only counted. Raises `UnknownDimension` (also for an empty ``where``) and
        `StoreUnavailable`.
        """
        if not where:
            raise UnknownDimension(f"name at least one dimension of {', '.join(reads.DIMENSIONS)}")
        reads.conditions(where)  # complains before anything is queued
        if dry_run:
            await asyncio.wrap_future(self._writer.ask(None))  # what is on its way is counted too
            return await self._admin_read(partial(reads.count, where=where))
        # What is in memory may be among them; what is read while this goes on is not kept either.
        self._memory.clear()
        write = PurgeWrite(self._followers, dict(where), actor, self._clock())
        purged = int(await asyncio.wrap_future(self._writer.ask(write)))
        self._memory.clear()
        return purged

    async def raise_epoch(self, *, dry_run: bool, actor: str = "admin", reason: str = "") -> int:
        """Make every answer there is unreachable at once, in every process; returns how many there were.

        Answers whose generation began before are not stored. Raises `StoreUnavailable`.
        """
        if dry_run:
            await asyncio.wrap_future(self._writer.ask(None))
            return await self._admin_read(epochs.reachable)
        self._memory.clear()
        write = EpochWrite(actor, reason, self._clock(), self._forget_all)
        raised: epochs.Raised = await asyncio.wrap_future(self._writer.ask(write))
        self._learn_epoch(raised.number)
        return raised.left

    async def audit(self, *, limit: int, before: int | None = None, action: str | None = None) -> list[AuditRow]:
        """Return the audit log, newest first, below the line ``before``. Raises `StoreUnavailable`."""
        return await self._admin_read(partial(audit.log, limit=limit, before=before, action=action))

    def note(self, action: str, target: Mapping[str, str], *, actor: str) -> None:
        """Write a line of the audit log about something that changed no entry; never raises, never blocks."""
        self._writer.put(NoteWrite(actor, action, target, self._clock()))

    async def entries(self, *, limit: int, after: str | None, where: Mapping[str, str]) -> list[EntryRow]:
        """List entries, newest first, below the id ``after``. Raises `UnknownDimension`, `StoreUnavailable`."""
        reads.conditions(where)
        rows = await self._admin_read(partial(reads.listing, where=where, after=after, limit=limit))
        now = self._clock()
        return [row_of(row, now) for row in rows]

    async def entry(self, entry_id: str) -> EntryRow | None:
        """Return one entry, in whatever state, with the history of its question. Raises `StoreUnavailable`."""
        rows = await self.entries(limit=1, after=None, where={"entry": entry_id})
        if not rows:
            return None
        return replace(rows[0], history=tuple(await self._admin_read(partial(reads.history, entry_id=entry_id))))

    async def stats(self) -> StoreStats:
        """Count what there is. Raises `StoreUnavailable`."""
        now = self._clock()
        totals, (indexed, buckets), size = await self._admin_read(
            lambda connection: (
                reads.totals(connection, now),
                self._index.totals(connection),
                self._database.size_bytes(),
            )
        )
        return StoreStats(
            entries=sum(totals.by_state.values()),
            by_state=totals.by_state,
            expired=totals.expired,
            wordings=totals.wordings,
            places=totals.places,
            hits=totals.hits,
            tokens_saved=totals.tokens_saved,
            seconds_saved=totals.seconds_saved,
            indexed=indexed,
            buckets=buckets,
            in_memory=len(self._memory),
            memory_bytes=self._memory.size_bytes,
            database_bytes=size,
            queued_writes=len(self._writer),
            failures=self.failures.counts(),
            suspects=totals.suspects,
            unsettled=totals.unsettled,
            barred=totals.barred,
            wrong_hits_limit=self.checks.settings.wrong_hits,
            budget=self.checks.report(),
            breakers={name: state for name, (state, _) in self.breakers().items()},
            breaker_trips={name: trips for name, (_, trips) in self.breakers().items()},
            index_rebuilds=self._rebuilder.count,
            epoch=self.epoch,
        )

    async def answer_of(self, entry_id: str) -> Answer | None:
        """Return the answer of an entry that may be served; None where there is none, or it cannot be read in time."""
        try:
            kept = await self._read(partial(reads.entry, entry_id=entry_id, now=self._clock()))
        except Unanswered:
            return None
        except Exception as error:
            self.failures.note("check", error)
            return None
        return None if kept is None else kept.answer

    async def turn_of(self, entry_id: str, query: Query) -> Turn | None:
        """Return the turn an entry answers; None where there is none, or it cannot be read in time."""
        try:
            question = await self._read(partial(reads.question, entry_id=entry_id))
            return None if question is None else unpack_question(question, query.turn.system)
        except (Unanswered, ValueError):
            return None

    # ------------------------------------------------------------------------------------------ inside: looking up

    def _in_step(self) -> bool:
        """Whether what other processes took out of circulation is known here; else nothing may be served."""
        if self._link is None or self._link.fresh():
            return True
        self.failures.note("link", "out_of_step")
        return False

    def breakers(self) -> dict[str, tuple[BreakerState, int]]:
        """Part of the look-up → whether it is pausing after failures, and how often it was; asks no database."""
        read, decide = self._readers.breaker, self._deciders.breaker
        return {
            "read": (read.state, read.trips),
            "embed": self._vectors.pausing,
            "decide": (decide.state, decide.trips),
        }

    def _servable(self, query: Query, *, entry_id: str, exact_key: bytes, created_at: float, now: float) -> bool:
        """Whether an entry that the database (or the memory) shows may be served to this turn."""
        if query.max_age_s is not None and now - created_at >= query.max_age_s:
            return False
        if self._recent.outdated(entry_id, exact_key):
            return False
        return not self._bars.bars(query, items_of(entry_id=entry_id, exact_key=exact_key, answer_digest=None))

    def _hit(self, query: Query, kept: Kept, *, confidence: float, exact: bool) -> Hit | None:
        now = self._clock()
        if now >= kept.expires_at:
            self._memory.forget(query.exact_key)
            return None
        if kept.sightings <= self.settings.min_repeats:
            return None
        if (
            not self.checks.serves(kept)
            or not self._servable(
                query, entry_id=kept.id, exact_key=kept.exact_key, created_at=kept.created_at, now=now
            )
            or self._bars.bars(query, items_of(entry_id=None, exact_key=None, answer_digest=kept.text_digest))
        ):
            return None
        return Hit(
            entry_id=kept.id,
            answer=kept.answer,
            age_s=max(0.0, now - kept.created_at),
            confidence=confidence,
            exact=exact,
            state="suspect" if kept.suspect else "active",
            node=kept.node,
            kind=kept.kind,
            decided=kept.confidence,
        )

    @staged("same_words", lambda hit: {"hit": hit is not None})
    async def _in_the_same_words(self, query: Query) -> Hit | None:
        """The answer to the same question at the same place, with or without a courtesy around it (`store.plain`)."""
        if not query.semantic or self.checks.policy.least(same_place=True) > 1.0:
            return None
        key = _plain_key(query)
        if key is None or self._known_plainly.absent(key):
            return None
        found = await self._read(
            partial(
                reads.in_the_same_words,
                key=key,
                place_key=query.place_key,
                node=None if query.place_key is None else self._recent.places.get(query.place_key),
                now=self._clock(),
            )
        )
        hit = None if found is None else self._hit(query, found[0], confidence=1.0, exact=False)
        if found is None or hit is None:
            return None
        if query.session is not None and self._recent.has_answered(query.session, found[0].exact_key):
            return None  # asked again in one session: with a courtesy around it this time
        stored = unpack_question(found[1], query.turn.system)
        _, vetoes = await self._deciders.run(partial(self._objections, query.turn, stored, True))
        return None if vetoes else replace(hit, kind="same_place")

    @staged("retrieve", lambda chosen: {"candidates": len(chosen)})
    async def _candidates(self, query: Query, told: Callable[[Found], None] | None = None) -> list[Candidate]:
        began = time.monotonic()
        message = await self._vectors.of_message(query.turn)
        spent_s = time.monotonic() - began
        now = self._clock()
        found = await self._read(
            partial(
                retrieve,
                index=self._index,
                query=query,
                vector=message.vector,
                space=message.space,
                node=None if query.place_key is None else self._recent.places.get(query.place_key),
                depth=self.settings.retrieval_depth,
                now=now,
            )
        )
        if told is not None:
            told(found)
        context = None
        if query.turn.history and any(one.fresh or one.window is not None for one, _ in found.near):
            context = await self._vectors.of_context(query.turn, message.space, spent_s)
        return candidates(
            query,
            found,
            context=context,
            context_name=self._vectors.context_name,
            count=self.checks.policy.max_candidates,
            now=now,
            servable=lambda one: (
                self._servable(query, entry_id=one.id, exact_key=one.exact_key, created_at=one.created_at, now=now)
                and agree(query.dates, one.dates)
            ),
        )

    @staged("decide", lambda decision: {"level": decision.level, "candidates": len(decision.judgements)})
    async def _decide(self, query: Query, chosen: list[Candidate], thorough: bool) -> Decision:
        policy = self.checks.policy
        if self._judges is not None:
            return await self._deciders.run(self._judges.work(query.turn, chosen, policy, thorough=thorough))
        work = partial(decide, query.turn, chosen, policy, self._confidence, self._objections, thorough=thorough)
        return await self._deciders.run(work)

    async def _third(
        self, query: Query, decision: Decision, chosen: list[Candidate], opinion: Opinion
    ) -> tuple[Decision, Hit | None]:
        """Ask a model about a candidate that is neither good enough nor bad enough; whatever fails is a no."""
        hit, _ = await self._hit_for(query, served_by(decision), chosen)
        stored = next((one.turn for one in chosen if one.entry_id == decision.entry_id), None)
        if hit is None or stored is None:
            return decision, None
        try:
            if await opinion.serves(query, stored, hit.answer.text) >= opinion.least:
                return self._unless_asked_again(query, served_by(decision), hit)
        except NoOpinion:
            pass
        except Exception as error:
            self.failures.note("opinion", error)
        return decision, None

    @staged("load")
    async def _hit_for(self, query: Query, decision: Decision, chosen: list[Candidate]) -> tuple[Hit | None, str]:
        """The hit that was decided for, or why it cannot be had."""
        entry_id = str(decision.entry_id)
        kept = await self._read(partial(reads.entry, entry_id=entry_id, now=self._clock()))
        if kept is None:
            return None, _GONE
        if kept.sightings <= self.settings.min_repeats:
            if kept.exact_key != query.exact_key:  # the same words again are counted with the new answer
                self._writer.put(SightingWrite(entry_id))
            return None, "not asked often enough yet"
        hit = self._hit(query, kept, confidence=decision.confidence, exact=False)
        if hit is None:
            return None, _GONE
        same_place = any(one.entry_id == entry_id and one.same_place for one in chosen)
        decided = replace(
            hit,
            state="suspect" if decision.suspect else "active",
            node=hit.node if same_place else None,
            kind=decision.kind or ("same_place" if same_place else "other_context"),
            decided=decision.confidence,
        )
        return decided, ""

    def _unless_asked_again(self, query: Query, decision: Decision, hit: Hit) -> tuple[Decision, Hit | None]:
        now = self._clock()
        again = self._again.again(query, hit.entry_id, now)
        if again is None:
            return decision, hit
        self._doubt(query, hit.entry_id, "reask", now)
        if again == "beside":
            return decision, hit
        return Decision("miss", "asked again right after it", None, 0.0, decision.judgements), None

    def _doubt(self, query: Query, entry_id: str, kind: Literal["regenerate", "reask"], now: float) -> None:
        limit = self.settings.doubts_to_suspect
        self._writer.put(DoubtWrite(self._followers, entry_id, rater_of(query), kind, limit, now))

    async def _read(self, work: Callable[[Connection], T]) -> T:
        def connected() -> T:
            with self._database.readers.connect() as connection:
                return work(connection)

        try:
            return await self._readers.run(connected)
        finally:
            trips = self._readers.breaker.trips
            if trips > self._trips:  # slow or broken: what the index holds is made anew, off everybody's path
                self._trips = trips
                if self._rebuilder.ask() and not self._closed:
                    self._tending.submit(self._rebuilder.run)

    # ------------------------------------------------------------------------------------------ inside: writing

    def _record(self, query: Query, answer: Answer, entry_id: str, now: float) -> None:
        after = _place_after(query, answer)
        if after is not None:
            self._recent.places[after] = entry_id
        if query.session is not None:
            self._recent.answered(query.session, query.exact_key)
        self._recent.wordings.pop(query.exact_key)
        # Whatever happens below, an older answer to this exact key is no longer the right one.
        self._recent.recorded(query.exact_key, entry_id)
        self._memory.forget(query.exact_key)
        ttl = self.settings.default_ttl_s if query.ttl_s is None else query.ttl_s
        longest = ttl
        self._known.add(query.exact_key)
        if ttl > 0:
            ttl = self._lives.of(expected_saving(length_of(answer.completion_tokens, answer.text), 0, 1.0), ttl)
        large = _weight(query, answer) > self.settings.max_entry_kib * 1024
        if ttl <= 0 or large:
            if large:
                self.failures.note("record", "too_large")
            if after is not None:
                self._writer.put(PlaceWrite(after, entry_id, now, query.place_key))
            return
        plainly = _plain_key(query)
        if plainly is not None:
            self._known_plainly.add(plainly)
        stored = self._writer.put(
            RecordWrite(
                followers=self._followers,
                id=entry_id,
                partition=query.partition,
                identity=query.identity,
                parts=query.parts,
                exact_key=query.exact_key,
                place_key=query.place_key,
                semantic=query.semantic,
                created_at=now,
                expires_at=now + ttl,
                turn=query.turn,
                answer=answer,
                place_after=after,
                session=query.session,
                replaced=self._drift.replaced,
                epoch=self.epoch,
                lives=self._lives,
                longest_s=longest,
                dates=query.dates,
                plain_key=plainly,
            )
        )
        if not stored:
            return
        self._recent.settle(query.exact_key, now)
        if not self.settings.min_repeats:  # else only the database knows how often it was asked
            self._memory.put(
                query.exact_key,
                Kept(entry_id, query.exact_key, entry_id, answer, text_digest(answer.text), now, now + ttl),
            )
        if query.semantic:
            self._vectors.make(entry_id, query.turn, answer.text)

    def _follow(self, query: Query, hit: Hit, said: str | None) -> None:
        now = self._clock()
        self._hits.count(hit.entry_id, now)
        self.checks.served(hit)
        node = hit.node or self._new_id(now)
        after = _place_after(query, hit.answer if said is None else replace(hit.answer, text=said))
        self._again.served(query, hit.entry_id, after, now)
        # A turn that was found by its own exact key is settled already, unless that write was dropped or is long ago.
        if not hit.exact or said is not None or not self._recent.settled(query.exact_key, now):
            if not hit.exact:
                self._known.add(query.exact_key)
                if query.semantic:
                    self._vectors.prefetch(query.turn)
                suspect = hit.state == "suspect"
                if not suspect and said is None:
                    self._recent.wordings[query.exact_key] = (node, hit.entry_id)
                self._writer.put(
                    WordingWrite(
                        node, hit.entry_id, query.exact_key, query.place_key, now, hit.kind, hit.decided, suspect
                    )
                )
            if after is not None:
                self._recent.places[after] = node
                self._writer.put(PlaceWrite(after, node, now, query.place_key))
            self._recent.settle(query.exact_key, now)
        if query.session is not None and self._recent.answered(query.session, query.exact_key):
            self._writer.put(SessionWrite(query.session, query.exact_key, node, now))

    def _recent_if_any(self, entry_id: str, partition: bytes | None) -> None:
        if partition is None:
            self._recent.retracted(entry_id)  # at once; whose entry it is is known to the database only

    def _gone_if(self, entry_id: str, found: object) -> bool:
        if found:
            self._recent.retracted(entry_id)
            self._memory.remove(entry_id)
        return bool(found)

    def _forget_all(self) -> None:
        self._memory.clear()
        self._index.clear()

    def _learn_epoch(self, number: int) -> None:
        """Another process may have raised it."""
        if number > self.epoch:
            self.epoch = number
            self._forget_all()

    async def _admin_read(self, work: Callable[[Connection], T]) -> T:
        def connected() -> T:
            with self._database.upkeep.connect() as connection:
                return work(connection)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._upkeep, connected)
        except Exception as error:
            self.failures.note("admin", error)
            raise StoreUnavailable(f"the store could not be read ({kind_of(error)})") from error

    # ------------------------------------------------------------------------------------------ inside: upkeep

    async def _keep_tidy(self) -> None:
        """Every minute: remove what expired or is too much, and give the index what a grown store needs."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                now = self._clock()
                write = TidyWrite(
                    self._followers,
                    now,
                    places_since=now - self.settings.place_days * 86_400,
                    sessions_since=now - self.settings.session_hours * 3_600,
                    bars_since=now - _BARS_DAYS * 86_400,
                    max_entries=self.settings.max_entries,
                    max_bytes=self.settings.max_mib * 2**20,
                    cold_since=now - self.settings.cold_days * 86_400,
                    cold_hits=self.settings.cold_hits,
                )
                while await asyncio.wrap_future(self._writer.ask(write)) >= write.limit:
                    pass
                if self._rebuilder.due:
                    await loop.run_in_executor(self._tending, self._rebuilder.run)
                self._learn_epoch(await self._admin_read(epochs.current))
                await loop.run_in_executor(self._tending, self._index.keep_up)
            except Exception as error:
                self.failures.note("tidy", error)
            await asyncio.sleep(_TIDY_EVERY_S)

    def _load(self) -> list[tuple[str, Turn]]:
        """Fill index, sessions and bars from the database (in a thread); returns what has no vectors yet."""
        now = self._clock()
        left: list[tuple[str, Turn]] = []
        if self._link is not None:  # before anything is read that others might change
            followed = Followed(self._memory, self._recent, self._bars)
            handlers = {
                **followed.handlers(),
                "evidence": self.checks.heard,
                "epoch": lambda values: self._learn_epoch(max(int(value) for value in values)),
            }
            self._link.start(handlers, followed.forget)
            self._known.forget()  # others write, too
            self._known_plainly.forget()
        with self._database.upkeep.connect() as connection:
            if self._link is None:
                for known, keys in ((self._known, reads.exact_keys), (self._known_plainly, reads.plain_keys)):
                    for key in keys(connection, MOST_KEYS + 1):
                        known.add(key)
            self.epoch = epochs.current(connection)
            self._index.load(connection, now, self.failures)
            for scope, item in reads.bars(connection, now - _BARS_DAYS * 86_400):
                self._bars.add((scope,), (item,))
            self.checks.load(connection)
            for session, key in reads.sessions(connection, now - self.settings.session_hours * 3_600, _SESSIONS):
                self._recent.answered(session, key)
            for entry in reads.unembedded(connection, now, _BACKFILL) if self._vectors.available else ():
                try:
                    left.append((entry.id, unpack_question(entry.question, ())))
                except ValueError as error:
                    self.failures.note("load", error)
        return left

    def _stop_threads(self, timeout_s: float) -> None:
        self._comparing.shutdown(wait=False, cancel_futures=True)
        self._vectors.close(min(timeout_s, _VECTOR_S))
        self._prints.close()
        self._writer.close(timeout_s)
        self._readers.close()
        self._deciders.close()
        self._upkeep.shutdown(wait=False, cancel_futures=True)
        self._tending.shutdown(wait=False, cancel_futures=True)
        if self._link is not None:
            self._link.close()
        if self._leases is not None:
            self._leases.close()


def _plain_key(query: Query) -> bytes | None:
    """The query's plain key; None where it is found literally only."""
    return plain_key(query.turn, query.partition, query.identity, query.dates) if query.semantic else None


def _same_words(hit: Hit) -> Decision:
    judgement = Judgement(hit.entry_id, similarity=1.0, same_place=True, confidence=1.0)
    return Decision("answer", "same words", hit.entry_id, 1.0, (judgement,), "same_place")


def _nothing() -> None:
    """What a queue of one thread is waited for with."""


def _projected(embedder: TextEmbedder, database: Database) -> TextEmbedder:
    """Return the embedder that makes vectors as the database keeps them."""
    with database.upkeep.connect() as connection:
        known = reads.projections(connection)
    return ProjectedEmbedder(embedder, known) if known else embedder


def _place_after(query: Query, answer: Answer) -> bytes | None:
    """Return where the next turn will hang from; None where the answer has no text (the client's form is not known)."""
    if not answer.text:
        return None
    said = Message("assistant", normalise(answer.text))
    return place_key(query.partition, query.identity, (*query.turn.history, query.turn.message, said))


def _answer_before(turn: Turn) -> bytes | None:
    """Return the digest of the last thing the assistant said."""
    for message in reversed(turn.history):
        if message.role == "assistant" and message.text.strip():
            return text_digest(message.text)
    return None


def _weight(query: Query, answer: Answer) -> int:
    """Bytes of question and answer, before compression."""
    return sum(len(utf8(m.text)) + len(m.opaque) for m in query.turn.messages) + len(answer.body)
