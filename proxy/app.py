"""The ASGI app: four endpoints that are understood, the admin surface, and everything else passed through."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.routing import Mount

from fingerprint.embedding.base import EmbedderError, TextEmbedder
from proxy import admin
from proxy.admin import Readiness
from proxy.capture import Capture
from proxy.checking import checks_of
from proxy.endpoints import ENDPOINTS
from proxy.errors import ClientGone, ReplyCut, TooLarge, UpstreamError
from proxy.limits import Limits, Place, Refusal
from proxy.logs import AccessLog
from proxy.metrics import Metrics
from proxy.opinion import BackendOpinion
from proxy.schedule import Schedule
from proxy.settings import Settings, data_folder, policy_of
from proxy.thresholds import ThresholdsWatch
from proxy.tracing import NotInstalled, Tracing
from proxy.turns import Turns
from proxy.upstream import Receive, Scope, Send, Upstream, reply_error
from proxy.versions import Version, VersionWatcher
from store.confidence.thresholds_file import NoConfidence
from store.errors import SchemaTooNew, StoreError, UnsupportedStore
from store.types import Policy, ReuseConfidence

if TYPE_CHECKING:
    from store.cache import Cache

__all__ = ["Antiphon", "Opened", "Opener", "create_app", "open_cache"]

log = logging.getLogger(__name__)

_BY_RAW_PATH: Final = {path.encode(): endpoint for path, endpoint in ENDPOINTS.items()}
_ADMIN: Final = "/antiphon"
# Embedding, deciding and writing have threads of their own: none of them may keep the event loop waiting for Python's
# default of 5 ms.
_SWITCH_S: Final = 0.0005
# Between two tries to open a store that another process holds, or whose disk is full.
_FIRST_PAUSE_S: Final = 2.0
_LONGEST_PAUSE_S: Final = 30.0
_QUIET_S: Final = 60.0  # between two lines in the log on what clients send that is not HTTP


@dataclass(frozen=True, slots=True)
class Opened:
    """An open cache; ``why`` says in a sentence what does not work, empty where everything does."""

    cache: Cache
    embedder: str
    why: str = ""
    decision: str = ""  # version of the reuse confidence


OpenCache = Callable[[Settings], Awaitable[Opened]]


class Antiphon(Starlette):
    """The proxy. Turns and pass-through never meet Starlette's middleware: they are answered on bare ASGI."""

    turns: Turns
    upstream: Upstream
    metrics: Metrics
    limits: Limits
    tracing: Tracing | None = None
    access: AccessLog | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await receive()
                await send({"type": "websocket.close", "code": 1011, "reason": "websockets are not supported"})
                return
            await super().__call__(scope, receive, send)
            return
        path: str = scope["path"]
        if path.startswith(_ADMIN) and (len(path) == len(_ADMIN) or path[len(_ADMIN)] == "/"):
            await super().__call__(scope, receive, send)
            return
        in_flight = self.metrics.in_flight
        in_flight.inc()
        trace, failed = None, ""
        if self.tracing is not None and (trace := self.tracing.begin(scope)) is not None:
            send = trace.sending(send)
        if self.access is not None:
            send = self.access.sending(scope, send)
        place = self.limits.enter(scope)
        try:
            if isinstance(place, Refusal):
                await self._refuse(place, scope, send)
                return
            receive = self.limits.bounded(receive)
            if scope["method"] == "POST" and (endpoint := _BY_RAW_PATH.get(scope["raw_path"])) is not None:
                await self.turns.answer(endpoint, scope, receive, send)
            elif _asks_for_websocket(scope):
                await reply_error(
                    send, 501, "websockets are not supported by this proxy", kind="invalid_request_error",
                    code="websocket_not_supported",
                )  # fmt: skip
            else:
                self.metrics.request("bypass", "other", "path")
                await self.upstream.pass_through(scope, receive, send, on_error=self._count)
        except ClientGone:
            failed = "client_gone"
            log.debug("the client hung up")
        except TooLarge as error:
            with contextlib.suppress(Exception):
                await self._refuse(self.limits.too_large(str(error)), scope, send)
        except ReplyCut as error:
            failed = "cut"
            # Returning without an end makes the server close the connection: the client must see that it was cut.
            log.warning("a reply was cut: %s", error)
        except Exception:
            failed = "internal"
            log.exception("a request failed")
            with contextlib.suppress(Exception):
                await reply_error(send, 500, "the proxy failed; its log says why", kind="server_error", code="internal")
        finally:
            in_flight.dec()
            if isinstance(place, Place):
                self.limits.leave(place)
            if trace is not None:
                trace.end(failed)

    async def _refuse(self, refusal: Refusal, scope: Scope, send: Send) -> None:
        """Answer a request that is not taken on."""
        self.metrics.refused.labels(str(refusal.status)).inc()
        endpoint = _BY_RAW_PATH.get(scope["raw_path"])
        await reply_error(
            send, refusal.status, refusal.message, kind=refusal.kind, code=refusal.code, extra=refusal.headers,
            anthropic=endpoint is not None and endpoint.anthropic,
        )  # fmt: skip

    def _count(self, error: UpstreamError) -> None:
        self.metrics.upstream_errors.labels(error.kind).inc()
        self.upstream.note(error)


def create_app(settings: Settings, *, open_with: OpenCache | None = None) -> Antiphon:
    """Put the proxy together. ``open_with`` replaces `open_cache`; requests before it is done are only forwarded."""
    metrics = Metrics()
    upstream = Upstream(settings.upstream)
    readiness = Readiness(metrics)

    def switched(old: Version, new: Version) -> None:
        if turns.cache is not None:  # else the proxy is starting: that is no switch
            changed = {"weights": new.weights, "before": old.weights, "tokenizer": new.tokenizer}
            turns.cache.note("version", changed, actor="backend")

    versions = VersionWatcher(
        upstream, settings.upstream, on_error=lambda: metrics.cache_error("version"), on_change=switched
    )
    turns = Turns(settings, upstream, versions, metrics)

    closing: list[Callable[[], Awaitable[None]]] = []
    opener = open_with or Opener(metrics)

    async def try_to_open() -> Opened | _Failure:
        try:
            return await opener(settings)
        except (UnsupportedStore, SchemaTooNew) as error:
            return _Failure(str(error), lasting=True)
        except StoreError as error:
            return _Failure(str(error))
        except OSError as error:
            return _Failure(f"{error.strerror or error} ({error.filename})" if error.filename else str(error))
        except Exception as error:
            log.exception("the cache could not be opened")
            return _Failure(type(error).__name__, lasting=True)

    async def open_up(app: Antiphon) -> None:
        look = versions.start() if settings.upstream.version_interval_s > 0 else upstream.probe()
        _, opened = await asyncio.gather(look, try_to_open())
        pause_s, told = _FIRST_PAUSE_S, ""
        while isinstance(opened, _Failure):
            if opened.why != told:
                told = opened.why
                log.error("the cache could not be opened; everything is forwarded: %s", told)
            readiness.degraded(f"the cache could not be opened: {told}")
            if opened.lasting:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            opened = await try_to_open()
        if told:
            log.info("the cache is open now; turns are answered from it")
        turns.embedder, turns.decision = opened.embedder, opened.decision
        watch: ThresholdsWatch | None = None
        fault = ""
        try:
            watch = ThresholdsWatch(settings.decision, opened.cache, metrics)
            await watch.begin()
            fault = watch.fault
        except Exception as error:  # whatever it is, requests must be served
            log.exception("the thresholds could not be put in force")
            fault = f"the thresholds could not be put in force: {type(error).__name__}"
        if settings.decision.verifier == "backend":
            opened.cache.opinion = opinion = BackendOpinion(settings.decision, settings.upstream, metrics)
            closing.append(opinion.close)
        app.state.cache = turns.cache = opened.cache

        def settled(fault: str) -> None:
            told = "; ".join(filter(None, (opened.why, fault)))
            if readiness.state != "stopping":
                readiness.degraded(told) if told else readiness.ready()

        settled(fault)
        if settings.rollout.mode == "shadow":
            log.warning(
                "shadow mode: the backend answers every turn, %g %% of sessions excepted; observations go to %s",
                settings.rollout.canary_percent,
                settings.rollout.observations or "nowhere",
            )
        looking = [] if watch is None else [watch.run(settled)]
        if settings.decision.by_traffic:
            looking.append(Schedule(opened.cache, metrics).run())
        await asyncio.gather(*looking)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        assert isinstance(app, Antiphon)
        sys.setswitchinterval(_SWITCH_S)
        turns.capture = await asyncio.to_thread(_capturing, settings, metrics)
        opening = asyncio.create_task(open_up(app), name="antiphon-open")
        try:
            yield
        finally:
            readiness.stopping()
            if not opening.done():
                opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            await turns.drain(settings.server.graceful_shutdown_s)
            await turns.verifier.close()
            for close in closing:
                await close()
            if turns.capture is not None:
                await asyncio.to_thread(turns.capture.close)
            cache, app.state.cache, turns.cache = app.state.cache, None, None
            if cache is not None:
                await cache.close()
            await versions.stop()
            await upstream.aclose()
            if app.tracing is not None:
                await asyncio.to_thread(app.tracing.close)

    app = Antiphon(routes=[admin.root(_ADMIN), Mount(_ADMIN, routes=admin.routes())], lifespan=lifespan)
    app.router.redirect_slashes = False
    app.turns, app.upstream, app.metrics = turns, upstream, metrics
    app.limits = Limits(settings)
    app.access = AccessLog() if settings.logging.access else None
    if settings.tracing.endpoint:
        try:
            app.tracing = Tracing(settings.tracing)
        except NotInstalled as error:
            log.error("no traces: %s", error)
    app.state.settings = settings
    app.state.cache = None
    app.state.metrics = metrics
    app.state.readiness = readiness
    app.state.turns = turns
    app.state.upstream = upstream
    app.state.versions = versions
    _quiet_server_log()
    return app


def _capturing(settings: Settings, metrics: Metrics) -> Capture | None:
    """Begin to capture, where that is wanted; the proxy runs without where it cannot be done."""
    if not settings.capture.enabled:
        return None
    capture = Capture(settings.capture, settings.capture.folder or data_folder() / "traffic", metrics)
    try:
        capture.start()
    except OSError as error:
        metrics.capture_dropped.labels("disk").inc()
        log.error("nothing is captured: %s", error)
        return None
    return capture


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why the cache could not be opened, in one line; ``lasting`` where trying again cannot help."""

    why: str
    lasting: bool = False


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What a cache is opened with."""

    name: str
    embedder: TextEmbedder | None
    confidence: ReuseConfidence
    policy: Policy
    why: str


class Opener:
    """Opens the store with the embedders and the reuse confidence the project comes with; ``metrics`` times them.

    Those are loaded once, however often it takes until the store can be opened.
    """

    def __init__(self, metrics: Metrics | None = None) -> None:
        self._metrics = metrics
        self._loaded: _Loaded | None = None

    async def __call__(self, settings: Settings) -> Opened:
        """Open the store. Without a working embedder exact repeats are still served.

        Raises the errors of `store.errors`, and ``OSError``, where the store itself cannot be opened.
        """
        from store.cache import Cache

        loaded = self._loaded = self._loaded or await self._load()
        policy = policy_of(settings.decision, loaded.policy)
        cache = await Cache.open(
            settings.store,
            embedder=loaded.embedder,
            confidence=loaded.confidence,
            policy=policy,
            checks=checks_of(settings.verification, settings.budget),
        )
        return Opened(cache, loaded.name, loaded.why, cache.decision)

    async def _load(self) -> _Loaded:
        from fingerprint.embedding.router import load_router
        from store import confidence as confidences

        why = ""
        name = "none"
        embedder: TextEmbedder | None = None
        try:
            embedder = await asyncio.to_thread(load_router)
            name = embedder.name
            if self._metrics is not None:
                embedder = self._metrics.timed(embedder)
        except EmbedderError as error:
            log.exception("no embedder: only exact repeats are served")
            why = f"no embedder, so only exact repeats are served: {error}"
        confidence: ReuseConfidence
        try:
            confidence = await asyncio.to_thread(confidences.load)
            policy = confidences.thresholds()
        except Exception as error:  # whatever is wrong with the artefact, exact repeats do not need it
            log.exception("no reuse confidence: only exact repeats are served")
            confidence, policy, embedder = NoConfidence(), Policy(answer=1.0, verify=1.0), None
            why = f"no reuse confidence, so only exact repeats are served: {error}"
        return _Loaded(name, embedder, confidence, policy, why)


async def open_cache(settings: Settings, *, metrics: Metrics | None = None) -> Opened:
    """Open the store once, as `Opener` does."""
    return await Opener(metrics)(settings)


def _asks_for_websocket(scope: Scope) -> bool:
    return any(name == b"upgrade" and value.strip().lower() == b"websocket" for name, value in scope["headers"])


def _quiet_server_log() -> None:
    """The server calls a reply that was cut on purpose an error of the app; we have said why already."""
    logger = logging.getLogger("uvicorn.error")
    if not any(isinstance(known, _CutOnPurpose) for known in logger.filters):
        logger.addFilter(_CutOnPurpose())


class _CutOnPurpose(logging.Filter):
    _told = -math.inf

    def filter(self, record: logging.LogRecord) -> bool:
        message = str(record.msg)
        if message == "Invalid HTTP request received.":  # anybody can cause it, as often as they like
            now = time.monotonic()
            quiet = now - self._told < _QUIET_S
            self._told = self._told if quiet else now
            return not quiet
        return "returned without completing response" not in message
