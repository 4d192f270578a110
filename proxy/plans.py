"""What is to be done with a request, read off the request alone: no look-up, no I/O.

A `Plan` depends only on the body, the headers that matter and the settings, so the plans of recent requests are kept:
a request that is repeated byte for byte is neither parsed nor keyed a second time.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import re
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from hashlib import blake2b
from typing import Any, Final

import msgspec

from fingerprint import keys
from fingerprint.conversation import Turn
from fingerprint.dates import Relative, relative_dates_of, resolve
from fingerprint.errors import NotUnderstood
from fingerprint.signals import Signals, signals_of
from proxy import cache_control
from proxy.cache_control import Directives
from proxy.callers import CallerHeaders
from proxy.endpoints import Endpoint, Json
from proxy.headers import RawHeaders, values_of
from proxy.settings import Settings
from proxy.versions import Version
from store.types import IdentityParts, Query

__all__ = ["Plan", "Planner"]

log = logging.getLogger(__name__)

_DECODE: Final = msgspec.json.Decoder().decode
_MSGPACK: Final = msgspec.msgpack.Encoder().encode

# Headers that change what the backend answers.
_CHANGING: Final = frozenset({b"anthropic-version", b"anthropic-beta", b"openai-beta"})
_ASKING: Final = frozenset(
    {
        b"cache-control", b"pragma", b"x-antiphon-session", b"x-antiphon-tenant", b"x-antiphon-knowledge-version",
        b"x-antiphon-ttl", b"x-antiphon-canonical-history",
    }
)  # fmt: skip

_KEPT_BODY: Final = 64 * 1024  # bytes; larger bodies are read afresh each time
_KEPT_BYTES: Final = 16 * 1024 * 1024  # of all bodies whose plans are kept
_KEPT_PLANS: Final = 4096
_MOST_EXPLAINED: Final = 1 << 20  # bytes of an unreadable body that are looked at a second time
# Behind every key, and behind some other quotes too: never fewer than there are keys.
_AFTER_KEY: Final = re.compile(rb'"[ \t\r\n]*:')
_OPENING: Final = re.compile(rb"\s*\{\s*")


@dataclass(slots=True)
class Plan:
    """One request, understood. ``bypass`` says why it is neither looked up nor stored; ``None`` where it may be."""

    endpoint: Endpoint
    directives: Directives
    bypass: str | None = None
    understood: bool = False  # False: forwarded byte for byte
    body: Json = field(default_factory=dict)
    stream: bool = False
    include_usage: bool = False
    correction: bool = False
    corrected: tuple[bytes, ...] = ()  # partitions in which a correction finds what it corrects
    turn: Turn | None = None
    partition: bytes = b""
    base: bytes = b""  # partition of this caller's turns that are not narrowed to a session or user
    alone: bool = False  # whether it wants no call that was made for another request
    canonical: bool = False  # whether earlier turns may be sent in the words of their node
    salt: str | None = None  # sent to the backend as ``cache_salt``
    knowledge_version: str = ""
    session: str | None = None
    semantic: bool = False
    ttl_s: float | None = None
    extra_identity: Json = field(default_factory=dict)
    relative: frozenset[Relative] = frozenset()  # dates such as "yesterday"
    _query: Query | None = None
    _made_for: tuple[Version, str, str, str] | None = None

    def query(
        self,
        version: Version,
        embedder: str,
        volatile: tuple[re.Pattern[str], ...] = (),
        *,
        decision: str = "",
        today: date | None = None,
    ) -> Query:
        """Return the turn as the store sees it while the backend is at ``version``. Raises `NotUnderstood`.

        ``embedder`` and ``decision`` are the names of what finds and what judges; both are part of the identity.
        ``today`` is what relative dates are seen from; it must be given where `relative` has any.
        """
        dates = resolve(self.relative, today) if today is not None else ""
        made_for = (version, embedder, decision, dates)
        if self._query is None or self._made_for != made_for:
            self._query = self._make(version, embedder, volatile, decision, dates, today)
            self._made_for = made_for
        return self._query

    def _make(
        self,
        version: Version,
        embedder: str,
        volatile: tuple[re.Pattern[str], ...],
        decision: str,
        dates: str,
        today: date | None,
    ) -> Query:
        assert self.turn is not None
        parts = keys.identity_parts(
            self.endpoint.name,
            self.body | self.extra_identity,
            self.turn,
            weights_version=version.weights,
            tokenizer=version.tokenizer,
            knowledge_version=self.knowledge_version,
            embedder=embedder,
            decision=decision,
            volatile_patterns=volatile,
        )
        identity = keys.identity_key(parts)
        history = self.turn.history
        return Query(
            turn=self.turn,
            partition=self.partition,
            identity=identity,
            parts=_store_parts(parts),
            exact_key=keys.dated_key(keys.exact_key(self.partition, identity, self.turn), dates),
            place_key=keys.place_key(self.partition, identity, history) if history else None,
            session=self.session,
            max_age_s=None if self.directives.max_age_s is None else float(self.directives.max_age_s),
            semantic=self.semantic,
            ttl_s=self.ttl_s,
            dates=dates,
            today=today if dates else None,
        )

    def corrections(self, query: Query) -> list[Query]:
        """Return the correction ``query`` once for each partition in which the answer before it may be stored.

        What is personal is stored for a session or a user only, and the words of a correction do not tell whether what
        they correct was.
        """
        history = query.turn.history
        return [
            dataclasses.replace(
                query,
                partition=partition,
                exact_key=keys.exact_key(partition, query.identity, query.turn),
                place_key=keys.place_key(partition, query.identity, history) if history else None,
            )
            for partition in self.corrected or (query.partition,)
        ]

    def forward_body(self, raw: bytes, *, salted: bool, with_usage: bool) -> bytes:
        """Return what goes to the backend: ``raw`` but for ``cache_salt`` and the request for a usage event.

        Members are written in right behind the opening brace; every other byte stays what it was.
        """
        added: list[bytes] = []
        if salted and self.salt is not None:
            added.append(b'"cache_salt":"%s"' % self.salt.encode())
        if with_usage:
            options = self.body.get("stream_options")
            if options is None and "stream_options" not in self.body:
                added.append(b'"stream_options":{"include_usage":true}')
            else:
                raw = _with_usage_asked(raw, options)
        opening = _OPENING.match(raw)
        if not added or opening is None:
            return raw
        comma = b"" if raw[opening.end() : opening.end() + 1] == b"}" else b","
        return raw[: opening.end()] + b",".join(added) + comma + raw[opening.end() :]


class Planner:
    """Makes plans, and keeps those of recent requests."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._kept: OrderedDict[bytes, tuple[Plan, int]] = OrderedDict()
        self._bytes = 0
        self._callers = CallerHeaders(settings.sharing.credential_headers, settings.sharing.ignored_headers)

    def shows_credential(self, headers: RawHeaders) -> bool:
        """Whether a request says by any header who it comes from."""
        return any(name in self._callers for name, _ in headers)

    def plan(self, endpoint: Endpoint, headers: RawHeaders, query_string: bytes, body: bytes, peer: str | None) -> Plan:
        """Return the plan for one request; never raises for anything a client may send."""
        callers = self._callers
        relevant = [pair for pair in headers if (name := pair[0]) in _ASKING or name in _CHANGING or name in callers]
        if len(body) > _KEPT_BODY:
            return self._make(endpoint, relevant, query_string, body, peer)
        if not any(name == b"x-antiphon-tenant" for name, _ in relevant):
            peer = None  # then it does not matter who the caller is
        # The first part ends by itself (MessagePack), so the digest is over an injective encoding.
        key = blake2b(_MSGPACK((endpoint.name, query_string, relevant, peer)) + body, digest_size=32).digest()
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
            return kept[0]
        plan = self._make(endpoint, relevant, query_string, body, peer)
        self._kept[key] = (plan, len(body))
        self._bytes += len(body)
        while self._bytes > _KEPT_BYTES or len(self._kept) > _KEPT_PLANS:
            _, (_, size) = self._kept.popitem(last=False)
            self._bytes -= size
        return plan

    def partitions(self, headers: RawHeaders, peer: str | None, user: str | None = None) -> tuple[bytes, ...]:
        """Return every partition in which an answer given to this caller may have been stored."""
        scope = self._scope(headers, peer)
        session = _first(headers, b"x-antiphon-session")
        narrowed = [keys.Scope(**scope, session=session)] if session is not None else []
        if user is not None:
            narrowed.append(keys.Scope(**scope, user=user))
        return tuple(dict.fromkeys(map(keys.partition_key, [keys.Scope(**scope), *narrowed])))

    def _make(self, endpoint: Endpoint, headers: RawHeaders, query_string: bytes, raw: bytes, peer: str | None) -> Plan:
        directives = cache_control.parse(values_of(headers, b"cache-control"), _first(headers, b"pragma"))
        plan = Plan(endpoint, directives)
        try:
            self._read(plan, headers, query_string, raw, peer)
        except NotUnderstood as error:
            return Plan(endpoint, directives, bypass=f"not-understood: {error.reason}")
        except Exception:
            # A request that trips the cache is still a request.
            log.exception("a request could not be read; it is passed through")
            return Plan(endpoint, directives, bypass="not-understood")
        return plan

    def _read(self, plan: Plan, headers: RawHeaders, query_string: bytes, raw: bytes, peer: str | None) -> None:
        endpoint = plan.endpoint
        body = _json_object(raw)
        plan.body = body
        for name in ("stream", "model", "user"):
            _check(body, name)
        plan.stream = body.get("stream") is True
        options = body.get("stream_options")
        if options is not None and (type(options) is not dict or not options.keys() <= {"include_usage"}):
            raise NotUnderstood("stream_options")
        plan.include_usage = plan.stream and bool(options and options.get("include_usage"))
        # Thousands of messages would have to be normalised, hashed and written, for a turn that hardly comes again.
        too_long = _messages_in(body) > self._settings.limits.max_messages
        turn = None if too_long else endpoint.read(body)
        plan.turn = turn
        plan.extra_identity = {
            f"http:{name.decode()}": [v.decode("latin-1") for n, v in headers if n == name]
            for name in {n for n, _ in headers if n in _CHANGING}
        } | ({"http:query": query_string.decode("latin-1")} if query_string else {})
        if any(name.startswith("http:") for name in body):
            raise NotUnderstood("a field is named http:")

        scope = self._scope(headers, peer)
        base = keys.partition_key(keys.Scope(**scope))
        plan.partition = plan.base = base
        off = plan.alone = _switched_off(_first(headers, b"x-antiphon-canonical-history"))
        kv = self._settings.kv
        plan.canonical = kv.canonical_history and endpoint.rewordable and not plan.directives.no_store and not off
        plan.knowledge_version = scope["knowledge_version"] or ""
        if self._settings.kv.cache_salt and endpoint.salted and "cache_salt" not in body and "extra_key" not in body:
            plan.salt = blake2b(base, digest_size=16, person=b"antiphon.salt").hexdigest()
        plan.understood = True
        if turn is None:
            plan.bypass, plan.canonical = "too-many-messages", False
            return

        session = _first(headers, b"x-antiphon-session")
        if session is not None:
            plan.session = keys.digest("sess", session.encode("latin-1")).hex()
        ttl = cache_control.ttl_seconds(_first(headers, b"x-antiphon-ttl"))
        if ttl is not None:
            plan.ttl_s = min(ttl, self._settings.store.default_ttl_s)
        plan.semantic = self._settings.decision.enabled and not endpoint.exact_only(body, turn)
        plan.bypass = endpoint.bypass(body) or self._admission(plan, scope, session)
        if plan.bypass is None:
            plan.relative = relative_dates_of(turn)

    def _admission(self, plan: Plan, scope: dict[str, str | None], session: str | None) -> str | None:
        """Narrow who shares, forbid what must not be reused; return the reason for a bypass."""
        admission, share = self._settings.admission, self._settings.sharing.share
        body = plan.body
        if not admission.tools and (body.get("tools") or body.get("functions")):
            return "tools"
        asked = _as_asked(plan.turn)
        signals = signals_of(asked) if asked is not None else Signals()
        user = body.get("user") if plan.endpoint.name != "messages" else _anthropic_user(body)
        if signals.correction:
            plan.correction = asked is plan.turn
            narrowed = [keys.Scope(**scope, user=user)] if user else []
            narrowed += [keys.Scope(**scope, session=session)] if session is not None else []
            plan.corrected = tuple(dict.fromkeys(map(keys.partition_key, [keys.Scope(**scope), *narrowed])))
            return _because("correction", signals)
        if signals.time_sensitive:
            if admission.time_sensitive == "never":
                return _because("time-sensitive", signals)
            plan.semantic = False
            plan.ttl_s = min(plan.ttl_s or admission.time_sensitive_ttl_s, admission.time_sensitive_ttl_s)
        if signals.creative and not admission.creative:
            return _because("creative", signals)
        if signals.smalltalk and not admission.smalltalk:
            return _because("smalltalk", signals)
        if not signals.language_known:
            plan.semantic = False
        if signals.about_asker or not signals.language_known or share in ("session", "user"):
            if share != "session" and user:
                plan.partition = keys.partition_key(keys.Scope(**scope, user=user))
            elif share != "user" and session is not None:
                plan.partition = keys.partition_key(keys.Scope(**scope, session=session))
            elif signals.personal:
                return _because("personal", signals)
            elif share in ("session", "user"):
                return f"no-{share}"
        return None

    def _scope(self, headers: RawHeaders, peer: str | None) -> dict[str, Any]:
        """Who asks, as the parts of a scope that hold for all turns of this caller."""
        sharing = self._settings.sharing
        bearer = _bearer(_first(headers, b"authorization"))
        tenant = _first(headers, b"x-antiphon-tenant")
        if tenant is not None and not sharing.trusts(peer, bearer):
            tenant = None
        credential: str | None = None
        if sharing.share != "tenant" or tenant is None:
            shown = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in headers if n in self._callers]
            credential = msgspec.json.encode(sorted(shown)).decode() if shown else None
        return {
            "credential": credential,
            "tenant": tenant,
            "knowledge_version": _first(headers, b"x-antiphon-knowledge-version"),
        }


def _messages_in(body: Json) -> int:
    """How many messages a request holds, by whatever name its endpoint calls them."""
    return max((len(body[name]) for name in ("messages", "input") if isinstance(body.get(name), list)), default=0)


def _because(word: str, signals: Signals) -> str:
    """Return ``word``, with what the table of signals says about it."""
    kind = word.replace("-", "_")
    return next(
        (f"{word}: {why.strip()}" for k, _, why in (r.partition(":") for r in signals.reasons) if k == kind), word
    )


def _json_object(raw: bytes) -> Json:
    try:
        body = _DECODE(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise NotUnderstood(_why_unreadable(raw)) from None
    if type(body) is not dict:
        raise NotUnderstood("the body is not an object")
    # More colons after quotes than keys: colons in texts, or a key that stands twice.
    try:
        if len(_AFTER_KEY.findall(_without_quotes(raw) if b'\\"' in raw else raw)) != _keys_in(body):
            json.loads(raw, object_pairs_hook=_no_key_twice)
    except RecursionError:
        raise NotUnderstood("the body is nested too deeply") from None
    except ValueError:
        raise NotUnderstood("a key stands twice") from None
    return body


def _keys_in(value: Any) -> int:
    """Count the keys of all objects in an object or list."""
    count = 0
    if type(value) is dict:
        count = len(value)
        value = value.values()
    for item in value:
        if type(item) is dict or type(item) is list:
            count += _keys_in(item)
    return count


def _without_quotes(raw: bytes) -> bytes:
    """Drop the quotes inside of texts: a run of backslashes pairs up from its beginning (RFC 8259 §7)."""
    return raw.replace(b"\\\\", b"").replace(b'\\"', b"")


def _no_key_twice(pairs: list[tuple[str, Any]]) -> None:
    """Refuse an object in which a key stands twice: which of them a backend takes is its own affair (RFC 8259 §4)."""
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError


def _why_unreadable(raw: bytes) -> str:
    """Say what is wrong with a body that the strict reader refuses; backends may be less strict."""
    if raw.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        return "the body begins with a byte order mark"
    if len(raw) > _MOST_EXPLAINED:
        return "the body is not JSON"
    try:
        json.loads(raw, parse_constant=_no_constant)
    except _Constant:
        return "the body has a number that JSON does not have"
    except UnicodeDecodeError:
        return "the body is not UTF-8"
    except (ValueError, RecursionError):
        return "the body is not JSON"
    # Only half a surrogate pair and a number out of range are fine for the one reader and not for the other.
    return "the body has a number or a character out of range"


class _Constant(Exception):  # noqa: N818
    """NaN, Infinity or -Infinity."""


def _no_constant(name: str) -> None:
    raise _Constant(name)


def _check(body: Json, name: str) -> None:
    """Refuse a field of a type that a backend may read in a way of its own."""
    value = body.get(name)
    if value is not None and type(value) is not (bool if name == "stream" else str):
        raise NotUnderstood(f"{name} has another type than expected")


def _as_asked(turn: Turn | None) -> Turn | None:
    """Return the turn up to the last user message: what an agent's later rounds are still about."""
    if turn is None or turn.message.role == "user":
        return turn
    for index in range(len(turn.history) - 1, -1, -1):
        if turn.history[index].role == "user":
            return Turn(turn.system, turn.history[:index], turn.history[index])
    return None


def _switched_off(value: str | None) -> bool:
    """Whether a switch that can only be turned off is; whatever else is said leaves it as it is set."""
    return value is not None and value.strip().lower() in ("off", "false", "no", "0")


def _anthropic_user(body: Json) -> str | None:
    metadata = body.get("metadata")
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    return user if isinstance(user, str) else None


def _first(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> str | None:
    for name, value in headers:
        if name == wanted:
            return value.decode("latin-1")
    return None


def _bearer(authorization: str | None) -> str | None:
    scheme, _, token = (authorization or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def _with_usage_asked(raw: bytes, options: object) -> bytes:
    """Set ``include_usage`` where the client sent other ``stream_options``; unchanged where it cannot be found."""
    found = list(re.finditer(rb'"stream_options"\s*:\s*(null|\{[^{}"]*(?:"include_usage"[^{}"]*)?\})', raw))
    if len(found) != 1 or (options is not None and type(options) is not dict):
        return raw
    start, end = found[0].span(1)
    return raw[:start] + b'{"include_usage":true}' + raw[end:]


def _store_parts(parts: keys.IdentityParts) -> IdentityParts:
    return IdentityParts(**{name: getattr(parts, name) for name in IdentityParts.__dataclass_fields__})
