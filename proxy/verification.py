"""Served answers checked against fresh ones, in the background.

After a hit the same request may be sent to the backend once more, nobody waiting for it: always where the hit was
served as suspect, else for a random share. Misses that had a near candidate are checked for nothing: the fresh answer
is there. What follows from a check is the store's business (`store.checks`).

Bounded in every way: so many a minute, so many at once, so many waiting, for so long. What is dropped is counted. A
check that fails, or cannot tell, never counts as approval.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from proxy.codings import decoded
from proxy.endpoints import Json
from proxy.errors import UpstreamError
from proxy.headers import RawHeaders, forwarded
from proxy.judge import Judge
from proxy.metrics import CheckOutcome, Metrics
from proxy.plans import Plan
from proxy.settings import VerificationSettings
from proxy.upstream import Scope, Upstream
from proxy.versions import Version, VersionWatcher
from store.agreement import Agreement
from store.types import Answer, Decision, Hit, Kind, Query

if TYPE_CHECKING:
    from store.cache import Cache

__all__ = ["Near", "Verifier"]

log = logging.getLogger(__name__)

_DECODE: Final = msgspec.json.Decoder().decode
_ENCODE: Final = msgspec.json.Encoder().encode

_LONGEST_REPLY: Final = 8 << 20  # bytes
_LONGEST_WAIT_S: Final = 600.0  # in the queue: the request holds the caller's credential
_NEARS: Final = 64  # misses whose candidates are looked at, at the same time
_DROPPED_HEADERS: Final = frozenset({b"content-length", b"transfer-encoding", b"accept-encoding"})


@dataclass(frozen=True, slots=True)
class _Job:
    """A hit to be checked: the request as it came, and what was served."""

    plan: Plan
    body: bytes
    headers: RawHeaders
    raw_path: bytes
    query_string: bytes
    query: Query
    hit: Hit
    at: float


@dataclass(frozen=True, slots=True)
class Near:
    """The candidate of a miss that is to be compared with the fresh answer."""

    entry_id: str
    kind: Kind
    confidence: float
    answer: asyncio.Task[Answer | None]


class Verifier:
    """Takes hits and misses, and checks what it has the means for. Everything on the path of a request only queues."""

    def __init__(
        self,
        settings: VerificationSettings,
        upstream: Upstream,
        versions: VersionWatcher,
        metrics: Metrics,
        *,
        cache_of: Callable[[], Cache | None],
        query_of: Callable[[Plan], Query],
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._settings = settings
        self._upstream = upstream
        self._versions = versions
        self._metrics = metrics
        self._cache_of = cache_of
        self._query_of = query_of
        self._chance = chance
        self._judge = Judge(settings) if settings.judge_url else None
        self._queue: asyncio.Queue[_Job] = asyncio.Queue(settings.queue_size)
        self._queued: set[bytes] = set()  # exact keys of what waits or runs
        self._tasks: set[asyncio.Task[None]] = set()
        self._workers: list[asyncio.Task[None]] = []
        self._next_at = 0.0

    # ------------------------------------------------------------------------------------ on the path of a request

    def served(self, scope: Scope, body: bytes, plan: Plan, query: Query, hit: Hit) -> None:
        """A hit was served; check it where it is suspect, or where it is drawn."""
        cache = self._cache_of()
        if cache is None or not self._settings.enabled or query.exact_key in self._queued:
            return
        suspect = hit.state == "suspect"
        if not suspect and self._chance() >= cache.checks.wanted(hit.kind, self._settings.sample_rate):
            return
        if not self._workers:
            self._workers = [
                asyncio.create_task(self._work(), name="antiphon-verification")
                for _ in range(self._settings.max_running)
            ]
        job = _Job(plan, body, scope["headers"], scope["raw_path"], scope["query_string"], query, hit, time.monotonic())
        try:
            self._queue.put_nowait(job)
        except asyncio.QueueFull:
            self._count(_source(hit), "dropped")
            return
        self._queued.add(query.exact_key)

    def near(self, decision: Decision | None) -> Near | None:
        """A turn is a miss; return its candidate where that is to be compared with the fresh answer.

        The candidate's answer is read at once: recording the fresh one may replace it.
        """
        cache = self._cache_of()
        if cache is None or not self._settings.enabled or decision is None:
            return None
        if decision.level != "kv" or decision.kind is None or decision.entry_id is None or len(self._tasks) >= _NEARS:
            return None
        if self._chance() >= cache.checks.wanted(decision.kind, self._settings.sample_rate):
            return None
        return Near(
            decision.entry_id,
            decision.kind,
            decision.confidence,
            asyncio.create_task(cache.answer_of(decision.entry_id)),
        )

    def missed(self, near: Near, query: Query, text: str) -> None:
        """The fresh answer to a miss is complete: compare it with the candidate's, in the background."""
        task = asyncio.create_task(self._compare_near(near, query, text), name="antiphon-near")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Stop; what waits is not checked."""
        tasks = [*self._workers, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._judge is not None:
            await self._judge.close()

    # ------------------------------------------------------------------------------------------------ in the background

    async def _work(self) -> None:
        while True:
            job = await self._queue.get()
            try:
                await self._pace()
                await self._check(job)
            except Exception:  # whatever it is, the next one is checked
                log.exception("a check failed")
                self._count(_source(job.hit), "failed")
            finally:
                self._queued.discard(job.query.exact_key)

    async def _pace(self) -> None:
        """Wait for this check's turn: they are spread evenly over the minute."""
        now = time.monotonic()
        at = max(now, self._next_at)
        self._next_at = at + 60.0 / self._settings.max_per_minute
        await asyncio.sleep(at - now)

    async def _check(self, job: _Job) -> None:
        source, cache = _source(job.hit), self._cache_of()
        if cache is None or time.monotonic() - job.at > _LONGEST_WAIT_S:
            return self._count(source, "dropped")
        version = self._versions.current
        if self._query_of(job.plan).exact_key != job.query.exact_key:
            return self._count(source, "stale")
        fresh = await self._regenerate(job, version)
        if isinstance(fresh, str):
            return self._count(source, fresh)
        hit = job.hit
        found = await self._agreement(cache, job.query, hit.answer.text, fresh.text)
        self._count(source, found.verdict)
        log.debug("a %s hit of entry %s was checked: %s (%s)", hit.kind, hit.entry_id, found.verdict, found.what)
        if found.verdict != "unclear":
            wrong = found.verdict == "differ"
            await asyncio.wrap_future(
                cache.checks.checked(
                    hit.entry_id, job.query.exact_key, hit.kind, hit.decided, wrong=wrong, source=source
                )
            )
            if not wrong:
                return None
        elif source != "suspect":
            return None
        # The turn's own answer is at hand: from now on it answers this turn.
        cache.record(job.query, fresh)
        return None

    async def _compare_near(self, near: Near, query: Query, text: str) -> None:
        cache = self._cache_of()
        try:
            stored = await near.answer
            if cache is None or stored is None:
                return
            found = await self._agreement(cache, query, stored.text, text)
            self._count("miss", found.verdict)
            if found.verdict != "unclear":
                wrong = found.verdict == "differ"
                cache.checks.checked(near.entry_id, None, near.kind, near.confidence, wrong=wrong, source="miss")
        except Exception:
            log.exception("a check failed")
            self._count("miss", "failed")

    async def _agreement(self, cache: Cache, query: Query, stored: str, fresh: str) -> Agreement:
        """Compare two answers, by the judge where facts and similarity leave it open."""
        found = await cache.checks.compare(stored, fresh)
        if found.verdict != "unclear" or self._judge is None or not stored.strip() or not fresh.strip():
            return found
        same = await self._judge.same(query.turn, stored, fresh)
        if same is None:
            return found
        return Agreement("agree" if same else "differ", "The judge says so.", found.cosine, "judge")

    async def _regenerate(self, job: _Job, version: Version) -> Answer | Literal["failed", "stale"]:
        """Ask the backend once more; the answer, or why there is none that counts."""
        target = self._upstream.target(job.raw_path, job.query_string)
        if target is None:
            return "failed"
        body = self._body(job)
        headers = [pair for pair in forwarded(job.headers) if pair[0] not in _DROPPED_HEADERS]
        headers += [(b"content-length", b"%d" % len(body)), (b"accept-encoding", b"identity")]
        began = time.perf_counter()
        try:
            reply = await self._upstream.open("POST", target, headers, body, repeatable=True)
            try:
                data = bytearray()
                async for piece in reply:
                    data += piece
                    if len(data) > _LONGEST_REPLY:
                        return "failed"
            finally:
                await reply.aclose()
        except UpstreamError:
            return "failed"
        seconds = time.perf_counter() - began
        plain = decoded(bytes(data), reply.header(b"content-encoding").strip().lower(), _LONGEST_REPLY)
        if not 200 <= reply.status < 300 or plain is None:
            return "failed"
        try:
            parsed = _DECODE(plain)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return "failed"
        verdict = job.plan.endpoint.judge(parsed, job.plan.body)
        if verdict.why_not is not None or not isinstance(parsed, dict):
            return "failed"
        if verdict.weight_version is not None:
            if verdict.weight_version != version.reported:
                return "stale"
        elif not await self._versions.unchanged(version):
            return "stale"
        return Answer(_ENCODE(parsed), verdict.text, verdict.prompt_tokens, verdict.completion_tokens, seconds)

    def _body(self, job: _Job) -> bytes:
        """The request without streaming, and behind everybody else's where the backend has priorities."""
        salted = job.plan.forward_body(job.body, salted=self._versions.sglang is not False, with_usage=False)
        body: Json = _DECODE(salted)
        body.pop("stream", None)
        body.pop("stream_options", None)
        if self._settings.priority is not None and self._versions.sglang is not False:
            body["priority"] = self._settings.priority
        return _ENCODE(body)

    def _count(self, source: Literal["hit", "suspect", "miss"], outcome: CheckOutcome) -> None:
        with contextlib.suppress(Exception):
            self._metrics.checks.labels(source, outcome).inc()


def _source(hit: Hit) -> Literal["hit", "suspect"]:
    return "suspect" if hit.state == "suspect" else "hit"
