"""The admin surface under ``/antiphon/``.

Who gets in: whoever shows the admin token; else, while the proxy listens on loopback only, a local caller. Local means
that the TCP peer is on loopback, that the ``Host`` it asked for is a local name (a web page that re-binds its own name
to 127.0.0.1 fails here), that no web page of another origin sent it, and that no reverse proxy handed it on. ``health``
and ``ready`` are open to everybody. ``feedback`` is also open to ordinary callers, for answers of their own partition.

Every error is JSON in OpenAI's form: ``{"error": {"message", "type", "param", "code"}}``.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hmac
import ipaddress
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeGuard
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from fingerprint.errors import NotUnderstood
from proxy.metrics import CONTENT_TYPE, Metrics
from proxy.settings import Settings, nearest
from store.audit import ACTIONS
from store.errors import StoreError, UnknownDimension
from store.reads import DIMENSIONS
from store.types import Decision, Query

if TYPE_CHECKING:
    from store.cache import Cache

__all__ = ["ADMIN_TOKEN_HEADER", "AdminError", "Readiness", "Turns", "root", "routes"]

log = logging.getLogger(__name__)

ADMIN_TOKEN_HEADER = "X-Antiphon-Admin-Token"  # noqa: S105
_SMALL_BODY_BYTES = 64 * 1024
_STATS_PATIENCE_S = 2.0
_PAGE_DEFAULT, _PAGE_MOST = 50, 500
_STATES = ("active", "suspect", "frozen", "retracted")
_ENTRY_ID = re.compile(r"[0-9a-f]{32}")
# Any of these says that somebody handed the request on: its origin is then not the TCP peer.
_HANDED_ON = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")

State = Literal["starting", "ready", "degraded", "stopping"]


class Turns(Protocol):
    """What this module needs of the part that lives the life of a turn."""

    def query_for(self, headers: Headers, path: str, body: bytes, *, peer: str | None) -> Query:
        """The query a request would be; raises :class:`NotUnderstood`."""

    def partitions_for(self, headers: Headers, *, peer: str | None, user: str | None = None) -> tuple[bytes, ...]:
        """Every partition in which an answer of this caller may have been stored."""

    def shows_credential(self, headers: Headers) -> bool:
        """Whether a request says by any header who it comes from."""

    async def prompts_for(
        self, headers: Headers, path: str, body: bytes, *, peer: str | None, decision: Decision | None
    ) -> dict[str, Any] | None:
        """The conversation of a request as it came and as it would be forwarded; ``None`` where it is not read."""


class Readiness:
    """Whether the proxy can serve: ``starting``, then ``ready`` or ``degraded``, at last ``stopping``."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        self.state: State = "starting"
        self.why = ""
        self._metrics = metrics
        self._settled = asyncio.Event()

    def ready(self) -> None:
        """Store open, embedder loaded."""
        self._become("ready", "")

    def degraded(self, why: str) -> None:
        """Requests are answered, though not from the cache, or not by meaning; ``why`` in a sentence."""
        self._become("degraded", why)

    def stopping(self) -> None:
        """No new traffic, please."""
        self._become("stopping", "")

    async def wait(self) -> State:
        """Wait until starting has come to an end, and how it ended."""
        await self._settled.wait()
        return self.state

    @property
    def serves(self) -> bool:
        """Whether requests are served."""
        return self.state in ("ready", "degraded")

    def _become(self, state: State, why: str) -> None:
        self.state, self.why = state, why
        self._settled.set()
        if self._metrics is not None:
            self._metrics.ready.set(self.serves)
            self._metrics.degraded.set(state == "degraded")


class AdminError(Exception):
    """An error reply of the admin surface."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.headers = dict(headers or {})

    def response(self) -> JSONResponse:
        """The error as OpenAI would shape it."""
        kind = {401: "authentication_error", 403: "permission_error", 404: "not_found_error"}.get(
            self.status, "invalid_request_error" if self.status < 500 else "server_error"
        )
        # Either may repeat what a caller sent, which JSON can hold and UTF-8 cannot.
        message, param = (
            None if text is None else text.encode("utf-8", "backslashreplace").decode()
            for text in (str(self), self.param)
        )
        error = {"message": message, "type": kind, "param": param, "code": self.code}
        return JSONResponse({"error": error}, self.status, self.headers)


# ------------------------------------------------------------------------------------------------------- who gets in


def _local_name(name: str | None) -> bool:
    if not name:
        return False
    if name.lower().rstrip(".") == "localhost":
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(name).is_loopback
    return False


def _host_of(value: str, *, origin: bool) -> str | None:
    with suppress(ValueError):
        return urlsplit(value if origin else f"//{value}").hostname
    return None


def _from_another_site(headers: Headers) -> bool:
    """Whether a web page of an origin that is not on this machine caused the request."""
    origins = headers.getlist("origin")
    if any(not _local_name(_host_of(origin, origin=True)) for origin in origins):
        return True
    return headers.get("sec-fetch-site", "none") == "cross-site"


def is_local(request: Request, settings: Settings) -> bool:
    """Whether the request comes from this machine, to a proxy that only this machine can reach."""
    headers = request.headers
    hosts = headers.getlist("host")
    return (
        _local_name(settings.server.host)
        and request.client is not None
        and _local_name(request.client.host)
        and len(hosts) == 1
        and _local_name(_host_of(hosts[0], origin=False))
        and not _from_another_site(headers)
        and not any(name in headers for name in _HANDED_ON)
    )


def _bearer(headers: Headers) -> str | None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token else None


def _shows_token(headers: Headers, settings: Settings) -> bool:
    if settings.admin.token is None:
        return False
    wanted = settings.admin.token.get_secret_value().encode()
    shown = (headers.get(ADMIN_TOKEN_HEADER), _bearer(headers))
    # Both are compared whatever the first says, each in constant time.
    matches = [hmac.compare_digest(wanted, token.encode()) for token in shown if token is not None]
    return any(matches)


def _is_admin(request: Request) -> bool:
    settings: Settings = request.app.state.settings
    return _shows_token(request.headers, settings) or is_local(request, settings)


def _refusal(request: Request) -> AdminError:
    settings: Settings = request.app.state.settings
    if settings.admin.token is None:
        if _local_name(settings.server.host):
            message = (
                "The admin surface is open to direct local callers only, under a local host name and not from a web "
                "page of another origin. Set admin.token to open it to others."
            )
        else:
            message = (
                "The admin surface is closed: the proxy does not listen on loopback only, and admin.token is not set."
            )
        return AdminError(403, message, code="admin_closed")
    return AdminError(
        401,
        f"The admin token is missing or wrong; send it in {ADMIN_TOKEN_HEADER} or as Authorization: Bearer.",
        code="invalid_admin_token",
        headers={"WWW-Authenticate": 'Bearer realm="antiphon"'},
    )


# ----------------------------------------------------------------------------------------------------------- requests

Handler = Callable[[Request], Awaitable[Response]]


class _Endpoint:
    """One admin path as an ASGI app: method, admission, handler, and every failure as a JSON error."""

    def __init__(self, handler: Handler, *methods: str, for_everybody: bool = False) -> None:
        self._handler = handler
        self._methods = methods
        self._for_everybody = for_everybody

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._respond(request)
        except AdminError as error:
            response = error.response()
        except UnknownDimension as error:
            response = AdminError(400, str(error), code="unknown_dimension").response()
        except StoreError as error:
            response = AdminError(503, str(error), code="store_unavailable").response()
        except ClientDisconnect:
            return
        except Exception:
            log.exception("an admin request failed")
            response = AdminError(
                503, "The store could not answer; the proxy's log says why.", code="store_unavailable"
            ).response()
        response.headers.setdefault("Cache-Control", "no-store")
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        if not self._for_everybody and not _is_admin(request):
            raise _refusal(request)
        if request.method not in self._methods:
            allowed = ", ".join(self._methods)
            raise AdminError(
                405,
                f"{request.method} is not possible here; use {allowed}.",
                code="method_not_allowed",
                headers={"Allow": allowed},
            )
        return await self._handler(request)


async def _body(request: Request, limit: int) -> bytes:
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > limit:
            raise AdminError(413, f"The body is longer than {limit} bytes.", code="body_too_large")
    return bytes(data)


async def _json_object(request: Request, *known: str) -> dict[str, Any]:
    """The body as a JSON object that has no other fields than ``known``."""
    try:
        value = json.loads(await _body(request, _SMALL_BODY_BYTES))
    except (ValueError, RecursionError):
        raise AdminError(400, "The body is not valid JSON.", code="invalid_json") from None
    if not isinstance(value, dict):
        raise AdminError(400, "The body must be a JSON object.", code="invalid_json")
    for name in value:
        if name not in known:
            guess = nearest(name, known)
            hint = f"did you mean {guess}?" if guess else f"known are {', '.join(known)}."
            raise AdminError(400, f"Unknown field {name!r}; {hint}", code="unknown_field", param=name)
    return value


def _is_text(value: object) -> TypeGuard[str]:
    """Whether a value is a text that a database can take: no lone surrogate, no NUL."""
    return isinstance(value, str) and "\x00" not in value and not any("\ud800" <= char <= "\udfff" for char in value)


def _text_field(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not value or not _is_text(value):
        raise AdminError(400, f"{name} must be a text that is not empty.", code="invalid_value", param=name)
    return value


def _where(values: Mapping[str, Any]) -> dict[str, str]:
    for name, value in values.items():
        if name not in DIMENSIONS:
            guess = nearest(name, DIMENSIONS)
            hint = f"did you mean {guess}?" if guess else f"known are {', '.join(DIMENSIONS)}."
            raise AdminError(400, f"Unknown dimension {name!r}; {hint}", code="unknown_dimension", param=name)
        if not _is_text(value):
            raise AdminError(400, f"{name} must be a text.", code="invalid_value", param=name)
        _check_value(name, value)
    return dict(values)


def _check_value(name: str, value: str) -> None:
    """Refuse a value that no entry can have: a purge that finds nothing must not look like one that is done."""
    if name == "state" and value not in _STATES:
        raise AdminError(
            400, f"There is no state {value!r}; known are {', '.join(_STATES)}.", code="invalid_value", param=name
        )


def _cache(request: Request) -> Cache:
    cache: Cache | None = request.app.state.cache
    if cache is None:
        raise AdminError(503, "The store is not open.", code="store_unavailable")
    return cache


def plain(value: Any) -> Any:
    """A value of the store as JSON has it: dataclasses as objects, bytes in hexadecimal."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return value


# ----------------------------------------------------------------------------------------------------------- handlers


async def _health(request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _ready(request: Request) -> Response:
    readiness: Readiness = request.app.state.readiness
    reachable: bool | None = request.app.state.upstream.reachable
    backend = "unknown" if reachable is None else "reachable" if reachable else "unreachable"
    body: dict[str, str] = {"status": readiness.state, "backend": backend}
    if readiness.why and _is_admin(request):
        body["reason"] = readiness.why
    return JSONResponse(body, 200 if readiness.serves else 503)


async def _metrics(request: Request) -> Response:
    metrics: Metrics = request.app.state.metrics
    cache: Cache | None = request.app.state.cache
    metrics.see_backend(request.app.state.upstream.reachable)
    if cache is not None:
        metrics.see_breakers(cache.breakers())
        # A store that cannot answer now must not take the other numbers away.
        with suppress(TimeoutError, StoreError):
            async with asyncio.timeout(_STATS_PATIENCE_S):
                metrics.see_store(await cache.stats())
    return Response(metrics.text(), headers={"Content-Type": CONTENT_TYPE})


async def _stats(request: Request) -> Response:
    readiness: Readiness = request.app.state.readiness
    stats = plain(await _cache(request).stats())
    metrics: Metrics = request.app.state.metrics
    return JSONResponse({"status": readiness.state, **stats, "savings": metrics.tally.as_json()})


async def _entries(request: Request) -> Response:
    parameters = dict(request.query_params)
    after = parameters.pop("after", None)
    limit = _number(parameters.pop("limit", str(_PAGE_DEFAULT)), "limit", _PAGE_MOST)
    where = _where(parameters)
    return JSONResponse(await page_of_entries(_cache(request), limit=limit, after=after, where=where))


async def page_of_entries(cache: Cache, *, limit: int, after: str | None, where: Mapping[str, str]) -> dict[str, Any]:
    """A page of entries, newest first, and the id to go on after; raises `UnknownDimension`, `AdminError`."""
    if after is not None and _ENTRY_ID.fullmatch(after) is None:
        raise AdminError(
            400, "after must be the id of an entry: 32 hexadecimal digits.", code="invalid_value", param="after"
        )
    for name, value in where.items():
        _check_value(name, value)
    rows = await cache.entries(limit=limit, after=after, where=where)
    return {"entries": plain(rows), "next": rows[-1].id if len(rows) == limit else None}


async def _audit(request: Request) -> Response:
    parameters = dict(request.query_params)
    limit = _number(parameters.pop("limit", str(_PAGE_DEFAULT)), "limit", _PAGE_MOST)
    before_text = parameters.pop("before", None)
    before = None if before_text is None else _number(before_text, "before", 10**15)
    action = parameters.pop("action", None)
    if parameters:
        name = min(parameters)
        guess = nearest(name, ("limit", "before", "action"))
        hint = f"did you mean {guess}?" if guess else "known are limit, before, action."
        raise AdminError(400, f"Unknown parameter {name!r}; {hint}", code="unknown_field", param=name)
    return JSONResponse(await page_of_audit(_cache(request), limit=limit, before=before, action=action))


async def page_of_audit(cache: Cache, *, limit: int, before: int | None, action: str | None) -> dict[str, Any]:
    """A page of the audit log, newest first, and the line to go on below; raises `AdminError`."""
    if action is not None and action not in ACTIONS:
        raise AdminError(
            400, f"There is no action {action!r}; known are {', '.join(ACTIONS)}.", code="invalid_value", param="action"
        )
    rows = await cache.audit(limit=limit, before=before, action=action)
    return {"audit": plain(rows), "next": rows[-1].number if len(rows) == limit else None}


def _number(text: str, name: str, most: int) -> int:
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:16]) <= most:
        raise AdminError(400, f"{name} must be a number from 1 to {most}.", code="invalid_value", param=name)
    return int(text[:16])


async def _entry(request: Request) -> Response:
    return JSONResponse(await entry_as_json(_cache(request), request.path_params["entry"]))


async def entry_as_json(cache: Cache, entry_id: str) -> dict[str, Any]:
    """One entry; raises :class:`AdminError` where there is none."""
    row = await cache.entry(entry_id)
    if row is None:
        raise _no_such_entry(entry_id)
    return dict(plain(row))


def _no_such_entry(entry_id: str) -> AdminError:
    return AdminError(404, f"There is no entry {entry_id}.", code="no_such_entry", param="entry")


def decision_as_json(decision: Decision) -> dict[str, Any]:
    """A decision as ``explain`` shows it: the outcome, then every candidate with all that was thought of it."""
    return {
        "level": decision.level,
        "reason": decision.reason,
        "entry": decision.entry_id,
        "confidence": decision.confidence,
        "kind": decision.kind,
        "suspect": decision.suspect,
        "candidates": [
            {
                "entry": judgement.entry_id,
                "similarity": round(judgement.similarity, 6),
                "same_place": judgement.same_place,
                "direct": judgement.direct,
                "confidence": round(judgement.confidence, 6),
                "objections": list(judgement.objections),
                "relations": plain(judgement.relations),
            }
            for judgement in decision.judgements
        ],
    }


async def _explain(request: Request) -> Response:
    state = request.app.state
    settings: Settings = state.settings
    turns: Turns = state.turns
    unknown = set(request.query_params) - {"path"}
    if unknown:
        name = min(unknown)
        raise AdminError(400, f"Unknown parameter {name!r}; known is path.", code="unknown_field", param=name)
    path = request.query_params.get("path", "/v1/chat/completions")
    body = await _body(request, int(settings.server.max_body_mib * 2**20))
    peer = request.client.host if request.client else None
    headers = _without_admin_token(request.headers, settings)
    return JSONResponse(await explained(_cache(request), turns, headers, path, body, peer=peer))


def _without_admin_token(headers: Headers, settings: Settings) -> Headers:
    """The caller's own headers: an admin token sent as the bearer is nobody's credential."""
    token = settings.admin.token
    if token is None or _bearer(headers) != token.get_secret_value():
        return headers
    return Headers(raw=[(name, value) for name, value in headers.raw if name != b"authorization"])


async def explained(
    cache: Cache, turns: Turns, headers: Headers, path: str, body: bytes, *, peer: str | None
) -> dict[str, Any]:
    """What would be decided about a request, without calling the model or counting anything."""
    try:
        query = turns.query_for(headers, path, body, peer=peer)
    except NotUnderstood as error:
        made = Decision(level="bypass", reason=error.reason)
    else:
        made = await cache.explain(query)
    decision = decision_as_json(made)
    decision["prompts"] = await turns.prompts_for(headers, path, body, peer=peer, decision=made)
    for candidate in decision["candidates"]:
        row = await cache.entry(candidate["entry"])
        if row is not None:
            candidate["question"], candidate["answer"] = row.question, row.answer
    return decision


async def _purge(request: Request) -> Response:
    body = await _json_object(request, "entry", "where", "all", "reason", "dry_run")
    dry_run = body.get("dry_run", False)
    if not isinstance(dry_run, bool):
        raise AdminError(400, "dry_run must be true or false.", code="invalid_value", param="dry_run")
    if sum(name in body for name in ("entry", "where", "all")) != 1:
        raise AdminError(400, "Give either entry, or where, or all.", code="invalid_value", param="entry")
    reason = _text_field(body, "reason") if "reason" in body else ""
    if "all" in body:
        if body["all"] is not True:
            raise AdminError(400, "all can only be true.", code="invalid_value", param="all")
        left = await _cache(request).raise_epoch(dry_run=dry_run, actor=_actor(request), reason=reason)
        return JSONResponse({"purged": left, "dry_run": dry_run})
    if reason:
        raise AdminError(400, "reason goes with all only.", code="invalid_value", param="reason")
    entry_id = _text_field(body, "entry") if "entry" in body else None
    where = body.get("where", {})
    if entry_id is None and (not isinstance(where, dict) or not where):
        message = "where must be an object with at least one dimension: " + ", ".join(DIMENSIONS) + "."
        raise AdminError(400, message, code="invalid_value", param="where")
    checked = _where(where)
    purged = await purge_entries(_cache(request), entry=entry_id, where=checked, dry_run=dry_run, actor=_actor(request))
    return JSONResponse({"purged": purged, "dry_run": dry_run})


def _actor(request: Request) -> str:
    """Who is written into the audit log."""
    settings: Settings = request.app.state.settings
    address = request.client.host if request.client else "unknown"
    return f"{'admin token' if _shows_token(request.headers, settings) else 'local caller'} from {address}"


async def purge_entries(
    cache: Cache, *, entry: str | None, where: Mapping[str, str], dry_run: bool, actor: str = "admin"
) -> int:
    """Remove one entry, or all that match ``where``; returns how many it was, or would be.

    Raises :class:`AdminError` where there is no such entry, `UnknownDimension`.
    """
    if entry is None:
        for name, value in where.items():
            _check_value(name, value)
        return await cache.purge(where, dry_run=dry_run, actor=actor)
    found = await cache.entry(entry) is not None if dry_run else await cache.retract(entry, actor=actor)
    if not found:
        raise _no_such_entry(entry)
    return 1


async def _feedback(request: Request) -> Response:
    settings: Settings = request.app.state.settings
    turns: Turns = request.app.state.turns
    # A local caller with a credential of the API's is an app that speaks for its user, not the operator.
    admin = _shows_token(request.headers, settings) or (
        is_local(request, settings) and not turns.shows_credential(request.headers)
    )
    if not admin and _from_another_site(request.headers) and "authorization" not in request.headers:
        # A web page may speak for the app it belongs to, which then sends a credential; never for whoever opened it.
        raise _refusal(request)
    body = await _json_object(request, "entry", "rating", "user")
    entry_id = _text_field(body, "entry")
    rating = body.get("rating")
    if rating != "up" and rating != "down":
        raise AdminError(400, 'rating must be "up" or "down".', code="invalid_value", param="rating")
    user = _text_field(body, "user") if "user" in body else None
    cache = _cache(request)
    if admin:
        known = await cache.feedback(entry_id, rating, partition=None, actor=_actor(request))
    else:
        peer = request.client.host if request.client else None
        known = False
        partitions = turns.partitions_for(request.headers, peer=peer, user=user)
        for partition in partitions:
            # The narrowest partition says best who rates: the same session or user rates once.
            known = known or await cache.feedback(entry_id, rating, partition=partition, rater=partitions[-1])
    if not known:
        raise _no_such_entry(entry_id)  # the same words whether it does not exist or belongs to somebody else
    return JSONResponse({"entry": entry_id, "rating": rating})


async def _nothing(request: Request) -> Response:
    names = [route.path.strip("/") for route in routes() if "{" not in route.path]
    path = request.path_params.get("path", "")
    guess = nearest(path.strip("/"), names)
    hint = f"; did you mean /antiphon/{guess}?" if guess else ""
    raise AdminError(404, f"There is no /antiphon/{path}{hint}", code="no_such_path")


def root(path: str) -> Route:
    """The route of the surface's own path, where there is nothing."""
    return Route(path, _Endpoint(_nothing, "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"))


def routes() -> list[Route]:
    """The routes, relative to ``/antiphon``."""
    return [
        Route("/health", _Endpoint(_health, "GET", "HEAD", for_everybody=True)),
        Route("/ready", _Endpoint(_ready, "GET", "HEAD", for_everybody=True)),
        Route("/metrics", _Endpoint(_metrics, "GET")),
        Route("/stats", _Endpoint(_stats, "GET")),
        Route("/entries", _Endpoint(_entries, "GET")),
        Route("/entries/{entry}", _Endpoint(_entry, "GET")),
        Route("/explain", _Endpoint(_explain, "POST")),
        Route("/purge", _Endpoint(_purge, "POST")),
        Route("/audit-log", _Endpoint(_audit, "GET")),
        Route("/feedback", _Endpoint(_feedback, "POST", for_everybody=True)),
        Route("/{path:path}", _Endpoint(_nothing, "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")),
    ]
