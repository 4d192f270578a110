"""The life of a turn, from request to reply: exact repeat, single flight, reworded repeat, backend, record.

Nothing that goes wrong in the cache goes wrong for the client: every call into the store is fenced off in time and in
errors, and counted; what fails is a miss.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar
from zoneinfo import ZoneInfo

import msgspec
from starlette.datastructures import Headers

from fingerprint.errors import NotUnderstood
from proxy.capture import Capture
from proxy.codings import can_decode, decoded
from proxy.elsewhere import answered_elsewhere
from proxy.endpoints import ENDPOINTS, Assembler, Endpoint, Json, Template, Verdict
from proxy.endpoints.sse import EventReader
from proxy.errors import ClientGone, ProxyError, ReplyCut, TooLarge, UpstreamError
from proxy.flight import Chunk, Flight, Flights, Head, Listener
from proxy.forwarding import Forwarded, Forwarder, prompts
from proxy.headers import RawHeaders, cache_status, date_now, field_value, forwarded
from proxy.hygiene import Hygiene
from proxy.judge import Judge
from proxy.logs import event as log_event
from proxy.metrics import ErrorKind, Metrics
from proxy.plans import Plan, Planner
from proxy.settings import Settings
from proxy.shadow import Shadow
from proxy.tracing import current, of_search
from proxy.upstream import Forwardable, Receive, Reply, Scope, Send, Upstream, client_gone, refused, reply_error
from proxy.usage import UsageTap
from proxy.verification import Verifier
from proxy.versions import Version, VersionWatcher
from store.stages import staged, watched
from store.types import Answer, Decision, Hit, Level, Query

if TYPE_CHECKING:
    from store.cache import Cache

__all__ = ["Turns"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_DECODE: Final = msgspec.json.Decoder().decode
_ENCODE: Final = msgspec.json.Encoder().encode

_MOST_AT_ONCE: Final = 128 * 1024  # bytes of a request that are read on the event loop
_MOST_BODY: Final = 8 << 20  # bytes of a reply that are gathered; a longer one is only handed on
_MOST_TEMPLATES: Final = 32 << 20  # bytes of prepared replies
_ALONE_AT_ONCE: Final = 16  # followers of a failed flight that call the backend at the same time
_FENCE_EXTRA_S: Final = 0.25  # the store keeps its own deadlines; this catches it when it does not
_CORRECT_PATIENCE_S: Final = 1.0
_SETTLE_PATIENCE_S: Final = 1.0  # for an answer that is complete but not recorded yet

_JSON: Final = (b"content-type", b"application/json")
_STREAM: Final = (b"content-type", b"text/event-stream; charset=utf-8")
_SHARED_HEADERS: Final = frozenset({b"content-type", b"date"})
_ANSWER: Final = (b"x-antiphon-reuse", b"answer")
_KV: Final = (b"x-antiphon-reuse", b"kv")
_MISS: Final = (b"x-antiphon-reuse", b"miss")
_BYPASS: Final = (b"x-antiphon-reuse", b"bypass")


class _Exchange:
    """One request being answered."""

    __slots__ = ("_send", "body", "plan", "receive", "scope", "started", "watched")

    def __init__(self, scope: Scope, receive: Receive, send: Send, body: bytes, plan: Plan) -> None:
        self.scope = scope
        self.receive = receive
        self.body = body
        self.plan = plan
        self.started = False  # whether the client has had anything
        self.watched = False  # shadow mode: nothing of the cache is to be seen in what becomes of it
        self._send = send

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Send one ASGI message."""
        self.started = True
        await self._send(message)


class Turns:
    """Answers the requests to the endpoints that are understood."""

    def __init__(self, settings: Settings, upstream: Upstream, versions: VersionWatcher, metrics: Metrics) -> None:
        self._settings = settings
        self._upstream = upstream
        self._versions = versions
        self._metrics = metrics
        self._planner = Planner(settings)
        self._flights = Flights()
        self._templates: OrderedDict[tuple[str, str], Template] = OrderedDict()
        self._template_bytes = 0
        self._alone = asyncio.Semaphore(_ALONE_AT_ONCE)
        self._most_read = int(settings.server.max_body_mib * (1 << 20))
        store = settings.store
        self._exact_fence_s = store.lookup_deadline_ms / 1000 + _FENCE_EXTRA_S
        self._search_fence_s = (
            store.lookup_deadline_ms
            + store.embed_deadline_ms
            + store.decide_deadline_ms
            + (settings.decision.verifier_deadline_ms if settings.decision.verifier == "backend" else 0.0)
        ) / 1000 + _FENCE_EXTRA_S
        self._logged: dict[str, float] = {}
        self._forwarder = Forwarder(settings.kv, metrics, fence_s=self._exact_fence_s)
        self._hygiene = Hygiene(metrics) if settings.kv.hygiene else None
        self._turn_level = logging.INFO if settings.logging.access else logging.DEBUG
        self._shadow: Shadow | None = None
        if settings.rollout.mode == "shadow":
            judge = Judge(settings.verification) if settings.verification.judge_url else None
            self._shadow = Shadow(settings.rollout, metrics, judge)
        zone = settings.admission.time_zone
        self._zone = ZoneInfo(zone) if zone else None  # None: the machine's own
        self.capture: Capture | None = None  # where what passes is kept
        self.cache: Cache | None = None
        self.verifier = Verifier(
            settings.verification, upstream, versions, metrics, cache_of=lambda: self.cache, query_of=self._query
        )
        self.embedder = ""  # name of the embedder, part of the identity
        self.decision = ""  # version of the reuse confidence, part of the identity

    # ------------------------------------------------------------------------------------------ for the admin surface

    def query_for(self, headers: Headers, path: str, body: bytes, *, peer: str | None) -> Query:
        """Return the query a request would be. Raises `NotUnderstood`, with the reason, for one that is bypassed."""
        endpoint = ENDPOINTS.get(path)
        if endpoint is None:
            raise NotUnderstood("the path is not one of the endpoints that are understood")
        plan = self._planner.plan(endpoint, headers.raw, b"", body, peer)
        if plan.bypass is not None:
            raise NotUnderstood(plan.bypass)
        return self._query(plan)

    async def prompts_for(
        self, headers: Headers, path: str, body: bytes, *, peer: str | None, decision: Decision | None
    ) -> dict[str, Any] | None:
        """Return the conversation of a request as it came and as it would be forwarded; ``None`` where unread."""
        endpoint = ENDPOINTS.get(path)
        if endpoint is None or not endpoint.rewordable:
            return None
        plan = self._planner.plan(endpoint, headers.raw, b"", body, peer)
        if not plan.understood:
            return None
        forwarded = await self._forwarder.make(
            plan, body, self._guarded("lookup", lambda: self._query(plan), None), self.cache, decision,
            salted=False, with_usage=False,
        )  # fmt: skip
        return prompts(body, forwarded)

    def partitions_for(self, headers: Headers, *, peer: str | None, user: str | None = None) -> tuple[bytes, ...]:
        """Return every partition in which an answer of this caller may have been stored."""
        return self._planner.partitions(headers.raw, peer, user)

    def shows_credential(self, headers: Headers) -> bool:
        """Whether a request says by any header who it comes from."""
        return self._planner.shows_credential(headers.raw)

    async def drain(self, patience_s: float) -> None:
        """Wait for the calls that are under way."""
        await self._flights.drain(patience_s)
        if self._shadow is not None:
            await self._shadow.close(patience_s)

    # ------------------------------------------------------------------------------------------------------ the turn

    async def answer(self, endpoint: Endpoint, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one POST to ``endpoint``. Raises `ReplyCut` and `ClientGone`."""
        message = await receive()
        body: bytes = message.get("body", b"")
        if message.get("more_body", False):
            pieces, size = [body], len(body)
            more = True
            while more and size <= self._most_read:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                pieces.append(message.get("body", b""))
                size += len(pieces[-1])
                more = message.get("more_body", False)
            body = b"".join(pieces)
            if more:
                self._metrics.request("bypass", endpoint.name, "too-large")
                await self._upstream.pass_through(
                    scope, receive, send, read=body, extra=_bypass_headers("too-large"), on_error=self._count_error,
                    anthropic=endpoint.anthropic,
                )  # fmt: skip
                return
        elif message["type"] == "http.disconnect":
            raise ClientGone
        client = scope.get("client")
        peer = client[0] if client else None
        began = time.time_ns()
        if len(body) <= _MOST_AT_ONCE:
            plan = self._planner.plan(endpoint, scope["headers"], scope["query_string"], body, peer)
        else:  # reading, normalising and hashing megabytes would hold up everybody else
            plan = await asyncio.to_thread(self._plan_large, endpoint, scope, body, peer)
        if self.capture is not None:
            send = self.capture.tap(endpoint, scope, plan, send)
        ex = _Exchange(scope, receive, send, body, plan)
        if (trace := current()) is not None:
            trace.planned(began, plan)
        if plan.bypass == "too-many-messages" and self._settings.limits.over == "refuse":
            raise TooLarge(f"the turn has more than {self._settings.limits.max_messages} messages")
        try:
            await self._live(ex)
        except ProxyError:
            raise
        except Exception as error:
            understood = not isinstance(error, NotUnderstood)
            if understood:
                self._failed("serve")
            if ex.started:
                raise
            ex.plan = Plan(endpoint, plan.directives)  # forwarded byte for byte
            await self._bypass(ex, "internal" if understood else f"not-understood: {error}")

    def _plan_large(self, endpoint: Endpoint, scope: Scope, body: bytes, peer: str | None) -> Plan:
        plan = self._planner.plan(endpoint, scope["headers"], scope["query_string"], body, peer)
        if plan.understood:
            self._query(plan)  # kept in the plan
        return plan

    async def _live(self, ex: _Exchange) -> None:
        plan = ex.plan
        directives = plan.directives
        cache = self.cache
        watching = None if cache is None else self._watching(plan)
        ex.watched = watching is not None
        if not plan.understood:
            # Even a broken request must not reach the backend when the caller has forbidden that.
            if directives.only_if_cached:
                return await self._absent(ex)
            return await self._bypass(ex, plan.bypass or "not-understood")
        if plan.correction and watching is not None and cache is not None:
            for correction in plan.corrections(self._query(plan)):
                watching.correct(cache, correction)
        elif plan.correction and cache is not None:
            await self._fenced(
                "invalidate",
                lambda: watched("correct", self._correct(cache, plan), lambda affected: {"affected": affected}),
                _CORRECT_PATIENCE_S,
                0,
            )
        if plan.bypass is not None:
            if directives.only_if_cached:
                return await self._absent(ex)
            if watching is not None:
                watching.bypass(plan.bypass, str(plan.body.get("model", "")))
            return await self._bypass(ex, plan.bypass)
        if directives.no_store:
            if directives.only_if_cached:
                return await self._absent(ex)
            return await self._bypass(ex, "no-store", fwd="request")
        query = self._query(plan)
        if cache is None:
            if directives.only_if_cached:
                return await self._absent(ex)
            return await self._listen(ex, query, self._launch(ex, query, search=False), reason="store-closed")
        if watching is None:  # who is only watched waits for nothing
            await self._flights.settled(query.exact_key, _SETTLE_PATIENCE_S)
        if directives.no_cache or self._again(query, cache):
            if directives.only_if_cached:
                return await self._absent(ex)
            reason = "no-cache" if directives.no_cache else "regenerate"
            self._guarded("record", lambda: cache.regenerated(query), None)
            listener = self._launch(ex, query, search=False)
            return await self._listen(
                ex, query, listener, reason=reason, fwd="request" if directives.no_cache else "miss"
            )
        if watching is not None:
            if directives.only_if_cached:
                return await self._absent(ex)
            return await self._listen(ex, query, self._launch(ex, query, search=False, observed=True), reason="shadow")

        hit = self._guarded("lookup", lambda: cache.exact_now(query), None)
        if hit is not None and await self._serve(ex, query, hit, "exact"):
            return None
        if hit is None:
            began = time.perf_counter()
            hit = await self._fenced(
                "lookup",
                lambda: watched("exact", cache.exact(query), lambda found: {"found": found is not None}),
                self._exact_fence_s,
                None,
            )
            self._metrics.exact_seconds.observe(time.perf_counter() - began)
            if hit is not None and await self._serve(ex, query, hit, "exact"):
                return None
        if hit is None and self._guarded("lookup", cache.paused, False):
            if directives.only_if_cached:
                return await self._absent(ex)
            listener = self._launch(ex, query, search=False)
            return await self._listen(
                ex, query, listener, reason="breaker: look-ups pause after failures", fwd="bypass"
            )
        if directives.only_if_cached:
            found, decision = await self._search(cache, query)
            if found is not None and await self._serve(ex, query, found, decision.reason if decision else "similar"):
                return None
            return await self._absent(ex)
        return await self._share(ex, query, cache)

    async def _correct(self, cache: Cache, plan: Plan) -> int:
        """Withdraw what a turn corrects; returns how many entries were affected."""
        return sum(await asyncio.gather(*map(cache.correct, plan.corrections(self._query(plan)))))

    async def _share(self, ex: _Exchange, query: Query, cache: Cache) -> None:
        """Join the flight that is under way for this turn, or launch one."""
        # A flight may have landed since we looked.
        if await self._flights.settled(query.exact_key, _SETTLE_PATIENCE_S) and self._again(query, cache):
            return await self._listen(ex, query, self._launch(ex, query, search=False), reason="regenerate")
        hit = self._guarded("lookup", lambda: cache.exact_now(query), None)
        if hit is not None and await self._serve(ex, query, hit, "exact"):
            return None
        flight = self._flights.find(query.exact_key)
        if flight is not None and not ex.plan.alone:
            return await self._listen(ex, query, self._flights.join(flight, ttl_s=query.ttl_s), reason="collapsed")
        shared = self._settings.flight.enabled and not ex.plan.alone
        return await self._listen(ex, query, self._launch(ex, query, shared=shared, search=hit is None), reason="miss")

    def _watching(self, plan: Plan) -> Shadow | None:
        """Return what watches this turn instead of serving it: in doubt a turn of shadow mode is never served."""
        shadow = self._shadow
        if shadow is None or not plan.understood or plan.turn is None:  # with too many messages no turn is made
            return shadow
        watches = self._guarded("lookup", lambda: shadow.watches(self._query(plan)), True)
        return shadow if watches else None

    def _again(self, query: Query, cache: Cache) -> bool:
        """Whether this session has had an answer to this turn, so that it asks for another one."""
        return query.session is not None and self._guarded("lookup", lambda: cache.served_before(query), False)

    # ------------------------------------------------------------------------------------------------ serving a hit

    async def _serve(self, ex: _Exchange, query: Query, hit: Hit, reason: str) -> bool:
        """Serve a stored answer; ``False`` (and nothing sent) where it cannot be given in the form asked for."""
        plan = ex.plan
        template = self._template(plan, hit.entry_id, hit.answer.body)
        if template is None:
            return False
        data = template.fill(int(time.time()))
        headers = [
            _STREAM if plan.stream else _JSON,
            (b"content-length", b"%d" % len(data)),
            (b"date", date_now()),
            (b"cache-status", b"antiphon; hit" if hit.exact else b"antiphon; hit; detail=reworded"),
            (b"age", b"%d" % max(0, int(hit.age_s))),
            _ANSWER,
            (b"x-antiphon-reason", b"suspect" if hit.state == "suspect" else field_value(reason)),
            (b"x-antiphon-confidence", b"%.4f" % hit.confidence),
            (b"x-antiphon-entry", hit.entry_id.encode("ascii")),
        ]
        await ex.send({"type": "http.response.start", "status": 200, "headers": headers})
        await ex.send({"type": "http.response.body", "body": data, "more_body": False})
        if (trace := current()) is not None:
            trace.answer(hit.answer.text)
        metrics = self._metrics
        metrics.request("answer", plan.endpoint.name, "exact" if hit.exact else "reworded")
        metrics.saved(hit.answer.prompt_tokens, hit.answer.completion_tokens, hit.answer.seconds)
        if self.cache is not None:
            cache = self.cache
            self._guarded("record", lambda: cache.follow(query, hit), None)
            self._guarded("verify", lambda: self.verifier.served(ex.scope, ex.body, plan, query, hit), None)
        return True

    def _template(self, plan: Plan, entry_id: str, body: bytes) -> Template | None:
        mode = ("u" if plan.include_usage else "s") if plan.stream else "j"
        key = (entry_id, mode)
        template = self._templates.get(key)
        if template is not None:
            self._templates.move_to_end(key)
            return template
        try:
            template = _prepare(plan.endpoint, _DECODE(body), mode)
        except Exception:
            self._failed("serve")
            return None
        if template is None:
            return None
        self._templates[key] = template
        self._template_bytes += template.size
        while self._template_bytes > _MOST_TEMPLATES:
            _, old = self._templates.popitem(last=False)
            self._template_bytes -= old.size
        return template

    # ------------------------------------------------------------------------------------- listening to a flight

    def _launch(
        self, ex: _Exchange, query: Query, *, search: bool, shared: bool = False, observed: bool = False
    ) -> Listener:
        def work(flight: Flight) -> Coroutine[Any, Any, None]:
            flight.watched = observed
            return self._fly(flight, ex, query, search=search)

        return self._flights.launch(
            query.exact_key,
            work,
            shared=shared,
            ttl_s=query.ttl_s,
        )

    async def _listen(self, ex: _Exchange, query: Query, listener: Listener, *, reason: str, fwd: str = "miss") -> None:
        """Hand on to one client what its flight brings."""
        watching = asyncio.ensure_future(client_gone(ex.receive))
        watching.add_done_callback(lambda _: listener.leave())
        try:
            alone = await self._hand_on(ex, query, listener, reason, fwd)
        finally:
            listener.flight.drop(listener)
            watching.cancel()
        if alone:
            # The flight failed, and this client has had nothing of it: it gets a call of its own.
            async with self._alone:
                await self._bypass(ex, "flight-failed", reuse="miss", fwd="miss")

    async def _hand_on(self, ex: _Exchange, query: Query, listener: Listener, reason: str, fwd: str) -> bool:
        """Return whether the client has to be answered by a call of its own. Raises `ClientGone`, `ReplyCut`."""
        flight, plan, first = listener.flight, ex.plan, listener.first
        task = flight.task
        assert task is not None
        while flight.head is None and flight.hit is None and flight.error is None:
            if task.done():
                return True  # a fault of ours, counted where it happened
            await self._news(listener)
        if flight.hit is not None:
            too_old = query.max_age_s is not None and flight.hit.age_s >= query.max_age_s
            why = flight.decision.reason if flight.decision else "exact" if flight.hit.exact else "similar"
            return too_old or not await self._serve(ex, query, flight.hit, why)
        if flight.error is not None and flight.head is None:
            if not first:
                return True
            await self._fail(ex, flight.error)
            return False
        head = flight.head
        assert head is not None
        if first:
            if flight.decision is not None and reason == "miss":
                reason = flight.decision.reason
            await self._hand_on_as_is(
                ex, listener, head, self._miss_headers(flight, reason, fwd), bypassed=fwd == "bypass"
            )
            return False
        if head.kind == "raw":  # not gathered, so there is nothing to join in the middle of
            return True
        self._metrics.followers.inc()
        extra = self._miss_headers(flight, "collapsed", fwd, collapsed=True)
        if head.kind == "stream" and plan.stream:
            # Cookies and request ids in the reply are the first caller's.
            head = Head(head.status, [pair for pair in head.headers if pair[0] in _SHARED_HEADERS], head.kind)
            await self._hand_on_as_is(ex, listener, head, extra)
        else:
            while not flight.landed and flight.error is None and not task.done():
                listener.position = flight.dropped + len(flight.chunks)
                await self._news(listener)
            if flight.error is not None or not flight.landed or not flight.shareable or flight.reply is None:
                return True
            mode = ("u" if plan.include_usage else "s") if plan.stream else "j"
            template = _prepare(plan.endpoint, flight.reply, mode)
            if template is None:
                return True
            data = template.fill(int(time.time()))
            headers = [
                _STREAM if plan.stream else _JSON,
                (b"content-length", b"%d" % len(data)),
                (b"date", date_now()),
                *extra,
            ]
            await ex.send({"type": "http.response.start", "status": 200, "headers": headers})
            await ex.send({"type": "http.response.body", "body": data, "more_body": False})
            self._metrics.request(_level(flight), plan.endpoint.name, "collapsed")
        if query.session is not None:
            await self._followed(flight, query)
        return False

    async def _hand_on_as_is(
        self, ex: _Exchange, listener: Listener, head: Head, extra: RawHeaders, *, bypassed: bool = False
    ) -> None:
        flight, with_usage = listener.flight, ex.plan.include_usage
        task = flight.task
        assert task is not None
        first = listener.first
        await ex.send({"type": "http.response.start", "status": head.status, "headers": head.headers + extra})
        while True:
            chunks = flight.next_chunks(listener)
            landed = flight.landed
            if chunks:
                data = b"".join([chunk.data for chunk in chunks if with_usage or not chunk.usage])
                if data or landed:
                    await ex.send({"type": "http.response.body", "body": data, "more_body": not landed})
                if landed:
                    break
            elif landed:
                await ex.send({"type": "http.response.body", "body": b"", "more_body": False})
                break
            elif flight.error is not None or task.done():
                raise ReplyCut(str(flight.error))
            else:
                await self._news(listener)
        level: Level = "bypass" if bypassed else _level(flight)
        word = "breaker" if bypassed else "miss" if first else "collapsed"
        self._metrics.request(level, ex.plan.endpoint.name, word)

    async def _followed(self, flight: Flight, query: Query) -> None:
        """Note for a follower's session that it has got this answer, once it is stored."""
        if flight.task is not None:
            await asyncio.wait({flight.task}, timeout=_CORRECT_PATIENCE_S)
        cache, entry_id = self.cache, flight.recorded
        if cache is None or entry_id is None:
            return
        hit = self._guarded("lookup", lambda: cache.exact_now(query), None)
        if hit is not None and hit.entry_id == entry_id:
            self._guarded("record", lambda: cache.follow(query, hit), None)

    async def _news(self, listener: Listener) -> None:
        await listener.news()
        if listener.gone:
            raise ClientGone

    def _miss_headers(self, flight: Flight, reason: str, fwd: str, *, collapsed: bool = False) -> RawHeaders:
        whole = flight.head is not None and flight.head.kind == "whole"
        stored = whole and flight.entry_id is not None
        headers = [
            (b"cache-status", cache_status(fwd=fwd, stored=stored, collapsed=collapsed)),
            _BYPASS if fwd == "bypass" else _KV if _level(flight) == "kv" else _MISS,
            (b"x-antiphon-reason", field_value(reason)),
            *_replaced_header(flight.forwarded),
        ]
        if flight.decision is not None and flight.decision.confidence > 0:
            headers.append((b"x-antiphon-confidence", b"%.4f" % flight.decision.confidence))
        if flight.entry_id is not None:
            headers.append((b"x-antiphon-entry", flight.entry_id.encode("ascii")))
        return headers

    async def _fail(self, ex: _Exchange, error: UpstreamError) -> None:
        self._metrics.request("miss", ex.plan.endpoint.name, "upstream-error")
        extra = [(b"cache-status", b"antiphon; fwd=miss"), _MISS, (b"x-antiphon-reason", b"upstream-error")]
        await reply_error(
            ex.send, error.status, str(error), kind="upstream_error", code=error.code, extra=extra,
            anthropic=ex.plan.endpoint.anthropic,
        )  # fmt: skip

    # ------------------------------------------------------------------------------------------------- flying

    async def _fly(self, flight: Flight, ex: _Exchange, query: Query, *, search: bool) -> None:
        """What one flight does: search, else call the backend, hand on, record."""
        cache = self.cache
        try:
            if search and cache is not None and query.semantic:
                hit, flight.decision = await self._search(cache, query)
                if hit is not None and self._template(ex.plan, hit.entry_id, hit.answer.body) is not None:
                    flight.hit, flight.complete, flight.landed = hit, True, True
                    flight.notify()
                    return
                flight.near = self._guarded("verify", lambda: self.verifier.near(flight.decision), None)
            if search and cache is not None and await self._elsewhere(flight, ex, query, cache):
                return
            await self._call(flight, ex, query, cache)
        except UpstreamError as error:
            self._count_error(error)
            flight.error = error
            if flight.watched and self._shadow is not None and cache is not None:
                self._shadow.put(cache, query, None, None)
        except Exception:
            self._failed("serve")
        finally:
            flight.notify()
            if search and cache is not None and cache.shared:
                cache.release(query)

    async def _elsewhere(self, flight: Flight, ex: _Exchange, query: Query, cache: Cache) -> bool:
        """Whether another proxy on the same store had this turn answered meanwhile; the flight then has its answer."""
        if not self._settings.flight.enabled or not cache.shared:
            return False
        hit = await answered_elsewhere(cache, query, self._settings.flight.elsewhere_wait_s)
        if hit is None or self._template(ex.plan, hit.entry_id, hit.answer.body) is None:
            return False
        flight.decision, flight.hit, flight.complete, flight.landed = None, hit, True, True
        flight.notify()
        return True

    async def _call(self, flight: Flight, ex: _Exchange, query: Query, cache: Cache | None) -> None:
        plan = ex.plan
        endpoint = plan.endpoint
        version = self._versions.current
        epoch = 0 if cache is None else cache.epoch
        with_usage = cache is not None and plan.stream and not plan.include_usage and endpoint.streams()
        sent = await self._forwarder.make(
            plan, ex.body, query, None if ex.watched else cache, flight.decision,
            salted=self._versions.sglang is not False, with_usage=with_usage,
        )  # fmt: skip
        if sent.ended:
            self._metrics.canonical_ended.labels(sent.ended.partition(" (")[0]).inc()
        target = self._upstream.target(ex.scope["raw_path"], ex.scope["query_string"])
        assert target is not None  # an understood path has no ".." in it
        began = time.perf_counter()
        headers = _for_body(forwarded(ex.scope["headers"]), sent.body, plain=True)
        reply = await self._upstream.open("POST", target, headers, sent.body, repeatable=True)
        if sent.changed and refused(reply.status):
            # The node's words may be too long where the user's were not.
            await reply.aclose()
            self._metrics.canonical_refused.inc()
            sent = sent.untouched()
            headers = _for_body(forwarded(ex.scope["headers"]), sent.body, plain=True)
            reply = await self._upstream.open("POST", target, headers, sent.body, repeatable=True)
        flight.forwarded = sent
        if sent.reference is not None:  # what the model says with a hint of ours in its prompt serves nobody else
            cache = None
        try:
            self._metrics.upstream_first_byte_seconds.observe(time.perf_counter() - began)
            coding = reply.header(b"content-encoding").strip().lower()
            if b"no-store" in reply.header(b"cache-control").lower():  # RFC 9111 §5.2.2.5
                cache = None
            kind = reply.header(b"content-type").split(b";")[0].strip().lower()
            good = 200 <= reply.status < 300
            if good and not can_decode(coding, streamed=plan.stream):
                good = False
                self._note_coding(coding)
            if good and plan.stream and kind == b"text/event-stream" and endpoint.streams():
                verdict = await self._gather_stream(flight, reply, endpoint, plan.body, cache)
            elif plan.stream and kind == b"text/event-stream":
                verdict = await self._only_hand_on(flight, reply)
            else:
                verdict = await self._gather_whole(flight, reply, endpoint, plan.body, cache, good=good, coding=coding)
        finally:
            await reply.aclose()
        seconds = time.perf_counter() - began
        self._metrics.upstream_seconds.observe(seconds)
        self._account(plan, sent, _level(flight), verdict.prompt_tokens, verdict.cached_tokens, seconds)
        # Those who wait get their last byte first.
        await asyncio.sleep(0)
        if verdict.weight_version is not None:
            self._versions.observed(verdict.weight_version)
        if flight.watched:
            self._watch(flight, plan, query, cache, verdict, version, epoch, seconds)
            return
        if cache is None or verdict.why_not is not None or flight.reply is None or flight.entry_id is None:
            return
        await self._record(flight, plan, query, cache, verdict, version, epoch, seconds)

    async def _gather_stream(
        self, flight: Flight, reply: Reply, endpoint: Endpoint, body: Json, cache: Cache | None
    ) -> Verdict:
        """Hand on the events as they come, and put the reply together on the side."""
        if cache is not None and flight.ttl_s != 0 and not flight.watched:
            flight.entry_id = self._guarded("record", cache.reserve, None)
        flight.head = Head(reply.status, _without_length(reply.headers), "stream")
        flight.notify()
        reader, assembler = EventReader(), endpoint.assembler()
        size = 0
        async for piece in reply:
            size += len(piece)
            _hand_on_events(flight, reader.feed(piece), assembler)
            if size > _MOST_BODY:
                await flight.drain()
        _hand_on_events(flight, reader.close(), assembler)
        if rest := reader.rest:
            flight.add(rest)
        flight.complete = flight.landed = True
        flight.notify()
        if rest.strip():
            return Verdict("torn", shareable=False)
        if size > _MOST_BODY:
            return Verdict("too-large", shareable=False)
        assembled = assembler.finish()
        if assembled.reply is None:
            return Verdict(assembled.why_not or "unknown", shareable=False)
        verdict = endpoint.judge(assembled.reply, body)
        flight.reply, flight.shareable = assembled.reply, verdict.shareable
        return verdict

    async def _gather_whole(
        self,
        flight: Flight,
        reply: Reply,
        endpoint: Endpoint,
        body: Json,
        cache: Cache | None,
        *,
        good: bool,
        coding: bytes,
    ) -> Verdict:
        """Gather a reply that is not streamed, so that its headers can say what became of it; then hand it on."""
        pieces: list[bytes] = []
        size = 0
        pending = reply.__aiter__()
        async for piece in pending:
            pieces.append(piece)
            size += len(piece)
            if size > _MOST_BODY:
                break
        data = b"".join(pieces)
        if size > _MOST_BODY:
            flight.head = Head(reply.status, reply.headers, "raw")
            flight.add(data)
            async for piece in pending:
                flight.add(piece)
                await flight.drain()
            flight.complete = flight.landed = True
            flight.notify()
            return Verdict("too-large", shareable=False)
        verdict = Verdict("status", shareable=False)
        if good:
            plain = decoded(data, coding, _MOST_BODY)
            parsed = None if plain is None else _parsed(plain)
            verdict = endpoint.judge(parsed, body) if parsed is not None else Verdict("not-json", shareable=False)
            if parsed is not None:
                flight.reply, flight.shareable = parsed, verdict.shareable
            if cache is not None and verdict.why_not is None and flight.ttl_s != 0 and not flight.watched:
                flight.entry_id = self._guarded("record", cache.reserve, None)
        flight.chunks.append(Chunk(data))
        flight.head = Head(reply.status, reply.headers, "whole")
        flight.complete = flight.landed = True
        flight.notify()
        return verdict

    async def _only_hand_on(self, flight: Flight, reply: Reply) -> Verdict:
        """Hand on a stream that cannot be put together."""
        flight.head = Head(reply.status, reply.headers, "raw")
        flight.notify()
        async for piece in reply:
            flight.add(piece)
            await flight.drain()
        flight.complete = flight.landed = True
        flight.notify()
        return Verdict("raw", shareable=False)

    def _watch(
        self, flight: Flight, plan: Plan, query: Query, store: Cache | None, verdict: Verdict, version: Version,
        epoch: int, seconds: float,
    ) -> None:  # fmt: skip
        """Queue what the model said to be compared with what would have been served; ``store`` None: not to be kept."""
        cache, shadow = self.cache, self._shadow
        if cache is None or shadow is None:
            return
        answer: Answer | None = None
        if verdict.why_not is None and flight.reply is not None:
            answer = Answer(b"", verdict.text, verdict.prompt_tokens, verdict.completion_tokens, seconds)

        async def record() -> None:
            flight.entry_id = cache.reserve()
            await self._record(flight, plan, query, cache, verdict, version, epoch, seconds)

        keep = answer is not None and store is not None and flight.ttl_s != 0
        self._guarded("record", lambda: shadow.put(cache, query, answer, record if keep else None), None)

    @staged("record")
    async def _record(
        self,
        flight: Flight,
        plan: Plan,
        query: Query,
        cache: Cache,
        verdict: Verdict,
        version: Version,
        epoch: int,
        seconds: float,
    ) -> None:
        """Hand the answer to the store, under the version of the backend that gave it."""
        assert flight.reply is not None
        if flight.ttl_s == 0:
            return
        try:
            if verdict.weight_version is not None:
                if verdict.weight_version != version.reported:
                    query = self._at(query, plan, self._versions.version_of(verdict.weight_version))
            elif not await self._versions.unchanged(version):
                return
            if query.ttl_s == 0:
                return
            if (near := flight.near) is not None and query.exact_key == self._query(plan).exact_key:
                self._guarded("verify", lambda: self.verifier.missed(near, query, verdict.text), None)
            if query.ttl_s != flight.ttl_s:
                query = dataclasses.replace(query, ttl_s=flight.ttl_s)
            answer = Answer(
                body=_ENCODE(flight.reply),
                text=verdict.text,
                prompt_tokens=verdict.prompt_tokens,
                completion_tokens=verdict.completion_tokens,
                seconds=seconds,
            )
            flight.recorded = cache.record(query, answer, entry_id=flight.entry_id, epoch=epoch)
            if (trace := current()) is not None:
                trace.answer(verdict.text)
            self._metrics.recorded.inc()
        except Exception:
            self._failed("record")

    def _at(self, query: Query, plan: Plan, version: Version) -> Query:
        """Return the query as it is at another version of the backend, its relative dates seen from the same day."""
        made = self._query(plan, version)
        # Past midnight "yesterday" is another day than the one that was asked about.
        return made if made.dates == query.dates else dataclasses.replace(query, ttl_s=0.0)

    # ------------------------------------------------------------------------------------------------- forwarding

    async def _bypass(self, ex: _Exchange, reason: str, *, reuse: str = "bypass", fwd: str = "bypass") -> None:
        """Forward a request that the cache has no part in; one that was understood keeps its partition's salt."""
        plan = ex.plan
        scope, sent = ex.scope, Forwarded(ex.body, ex.body)
        plain: Forwardable | None = None
        if plan.understood:
            sent = await self._forwarder.make(
                plan, ex.body,
                None if plan.turn is None else self._guarded("lookup", lambda: self._query(plan), None),
                None if ex.watched else self.cache, None,
                salted=self._versions.sglang is not False, with_usage=False,
            )  # fmt: skip
            if sent.body is not ex.body:
                scope = {**scope, "headers": _for_body(scope["headers"], sent.body)}
        word = reason.partition(":")[0]
        usual: Level = "miss" if reuse == "miss" else "bypass"
        level: Level = "kv" if sent.changed else usual

        def extra(level: Level, sent: Forwarded) -> RawHeaders:
            return [
                (b"cache-status", cache_status(fwd=fwd)),
                {"kv": _KV, "miss": _MISS}.get(level, _BYPASS),
                (b"x-antiphon-reason", field_value(reason)),
                *_replaced_header(sent),
            ]

        if sent.changed:
            headers = _for_body(ex.scope["headers"], sent.plain)
            plain = Forwardable(headers, sent.plain, extra(usual, sent.untouched()))
        tap, began = UsageTap(), time.perf_counter()
        good = False

        def on_reply(reply: Reply) -> Callable[[bytes], None] | None:
            nonlocal good
            good = 200 <= reply.status < 300 and not reply.header(b"content-encoding")
            return tap.feed if good else None

        try:
            await self._upstream.pass_through(
                scope, ex.receive, ex.send, read=sent.body, complete=True, extra=extra(level, sent), repeatable=True,
                on_error=self._count_error, anthropic=plan.endpoint.anthropic, plain=plain,
                on_reply=on_reply if plan.understood else None,
            )  # fmt: skip
        finally:
            if plain is not None and plain.sent:
                self._metrics.canonical_refused.inc()
                level, sent = usual, sent.untouched()
            self._metrics.request(level, plan.endpoint.name, word)
        if good:
            prompt_tokens, cached_tokens = tap.tokens() or (0, None)
            self._account(plan, sent, level, prompt_tokens, cached_tokens, time.perf_counter() - began)

    def _account(
        self, plan: Plan, sent: Forwarded, level: Level, prompt_tokens: int, cached_tokens: int | None, seconds: float
    ) -> None:
        """Count what a forwarded request cost the backend, as the backend says."""
        turns = len(sent.replaced)
        self._metrics.prefilled(prompt_tokens, cached_tokens, turns_replaced=turns)
        if sent.reference is not None:
            self._metrics.reference_turns.inc()
        log_event(
            log, self._turn_level, "forwarded", endpoint=plan.endpoint.name, reuse=level,
            prompt_tokens=prompt_tokens, cached_tokens="unknown" if cached_tokens is None else cached_tokens,
            prefilled_tokens="unknown" if cached_tokens is None else max(0, prompt_tokens - cached_tokens),
            turns_replaced=turns, seconds=round(seconds, 4),
        )  # fmt: skip
        if self._hygiene is not None and plan.understood:
            self._guarded("canonical", lambda: self._see(plan, sent, prompt_tokens), None)

    def _see(self, plan: Plan, sent: Forwarded, prompt_tokens: int) -> None:
        assert self._hygiene is not None
        self._hygiene.see(plan, sent, prompt_tokens or None)

    async def _absent(self, ex: _Exchange) -> None:
        """``only-if-cached``, and there is nothing (RFC 9111 §5.2.1.7)."""
        self._metrics.request("miss", ex.plan.endpoint.name, "only-if-cached")
        extra = [
            (b"cache-status", b"antiphon; detail=only-if-cached"),
            _MISS,
            (b"x-antiphon-reason", b"only-if-cached"),
        ]
        await reply_error(
            ex.send, 504, "no stored answer, and the request allows nothing else (Cache-Control: only-if-cached)",
            kind="cache_miss", code="only_if_cached", extra=extra, anthropic=ex.plan.endpoint.anthropic,
        )  # fmt: skip

    # ------------------------------------------------------------------------------------------- fencing off the cache

    @property
    def _volatile(self) -> tuple[Any, ...]:
        return self._settings.sharing.volatile_system_parts

    def _query(self, plan: Plan, version: Version | None = None) -> Query:
        version = version or self._versions.current
        today = datetime.now(self._zone).date() if plan.relative else None
        return plan.query(version, self.embedder, self._volatile, decision=self.decision, today=today)

    async def _search(self, cache: Cache, query: Query) -> tuple[Hit | None, Decision | None]:
        began = time.perf_counter()
        found: tuple[Decision, Hit | None] | None = await self._fenced(
            "search", lambda: watched("search", cache.search(query), of_search), self._search_fence_s, None
        )
        self._metrics.search_seconds.observe(time.perf_counter() - began)
        if found is None:
            return None, None
        decision, hit = found
        return hit, decision

    async def _fenced(self, kind: ErrorKind, work: Callable[[], Awaitable[T]], limit_s: float, otherwise: T) -> T:
        try:
            async with asyncio.timeout(limit_s):
                return await work()
        except Exception:
            self._failed(kind)
            return otherwise

    def _guarded(self, kind: ErrorKind, work: Callable[[], T], otherwise: T) -> T:
        try:
            return work()
        except Exception:
            self._failed(kind)
            return otherwise

    def _failed(self, kind: ErrorKind) -> None:
        """Count a failure inside the cache; log it once a minute for each kind."""
        self._metrics.cache_error(kind)
        now = time.monotonic()
        if now - self._logged.get(kind, -60.0) >= 60.0:
            self._logged[kind] = now
            log.exception("a failure in the cache became a miss (%s)", kind)

    def _note_coding(self, coding: bytes) -> None:
        """Count an answer that cannot be read, and so not stored; say so once a minute."""
        self._metrics.cache_error("coding")
        now = time.monotonic()
        if now - self._logged.get("coding", -60.0) >= 60.0:
            self._logged["coding"] = now
            log.warning(
                "the backend sends answers in content-encoding %s though asked for none: they are not stored",
                coding.decode("ascii", "replace")[:40],
            )

    def _count_error(self, error: UpstreamError) -> None:
        self._metrics.upstream_errors.labels(error.kind).inc()
        self._upstream.note(error)


def _level(flight: Flight) -> Level:
    """``kv`` where the prefix was made to be reused, or where a stored answer was nearly good enough."""
    nearly = flight.decision is not None and flight.decision.level == "kv"
    return "kv" if nearly or (flight.forwarded is not None and flight.forwarded.changed) else "miss"


def _replaced_header(sent: Forwarded | None) -> RawHeaders:
    if sent is None or not sent.changed:
        return []
    headers = [(b"x-antiphon-turns-replaced", b"%d" % len(sent.replaced))]
    if sent.reference is not None:
        headers.append((b"x-antiphon-reference", sent.reference.encode("ascii")))
    return headers


def _prepare(endpoint: Endpoint, reply: Json, mode: str) -> Template | None:
    """Prepare a reply for a mode (``j`` JSON, ``s`` stream, ``u`` stream with usage); ``None`` where usage is unknown.

    ``usage: null`` stands in replies put together from a stream that told none: a caller who would get usage from
    the backend then has to ask the backend.
    """
    if mode != "s" and "usage" in reply and reply["usage"] is None:
        return None
    return endpoint.as_json(reply) if mode == "j" else endpoint.as_stream(reply, include_usage=mode == "u")


def _hand_on_events(flight: Flight, events: list[Any], assembler: Assembler) -> None:
    run: list[bytes] = []
    for event in events:
        if event.data == b"[DONE]":
            flight.complete = True
        if event.data is not None and assembler.add(event.data):
            if run:
                flight.add(b"".join(run))
                run = []
            flight.add(event.raw, usage=True)
        else:
            run.append(event.raw)
    if run:
        flight.add(b"".join(run))


def _parsed(data: bytes) -> Json | None:
    try:
        value = _DECODE(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _for_body(headers: RawHeaders, body: bytes, *, plain: bool = False) -> RawHeaders:
    """Set the length of a body that was added to; ``plain`` asks for a reply that can be shared and stored."""
    dropped = {b"content-length", b"transfer-encoding"} | ({b"accept-encoding"} if plain else set())
    kept = [pair for pair in headers if pair[0] not in dropped]
    kept.append((b"content-length", b"%d" % len(body)))
    if plain:
        kept.append((b"accept-encoding", b"identity"))
    return kept


def _without_length(headers: RawHeaders) -> RawHeaders:
    """A stream of which an event may be held back has no length known beforehand."""
    return [pair for pair in headers if pair[0] != b"content-length"]


def _bypass_headers(reason: str) -> RawHeaders:
    return [(b"cache-status", cache_status(fwd="bypass")), _BYPASS, (b"x-antiphon-reason", field_value(reason))]
