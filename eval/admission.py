"""What the proxy would do with a logged request before any look-up: who shares it, and may it be stored at all.

The rules are those of ``proxy.plans`` (which the evaluator may not import); a test holds the two together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from eval.traffic.turns import LoggedTurn
from fingerprint import keys
from fingerprint.conversation import Turn
from fingerprint.signals import Signals, signals_of
from store.types import Query

__all__ = ["Admitted", "Rules", "admit"]

_FORMED: Final = (
    "tools", "functions", "tool_choice", "function_call", "logprobs", "top_logprobs", "regex", "ebnf", "json_schema",
    "structural_tag", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar",
    "guided_decoding_backend", "modalities", "audio", "prediction", "continue_final_message",
    "custom_logit_processor", "custom_params",
)  # fmt: skip
_STATEFUL: Final = ("session_params", "previous_response_id", "conversation", "background", "web_search_options")


@dataclass(frozen=True, slots=True)
class Rules:
    """The operator's settings that decide about sharing and admission; the defaults are the proxy's."""

    share: Literal["session", "user", "credential", "tenant"] = "credential"
    volatile: tuple[re.Pattern[str], ...] = ()
    time_sensitive: Literal["never", "exact"] = "never"
    time_sensitive_ttl_s: float = 60.0
    creative: bool = False
    smalltalk: bool = False
    tools: bool = True
    semantic: bool = True
    """Whether reworded turns are looked up at all."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """A logged turn as the store would see it. ``bypass`` says why it would be neither looked up nor stored."""

    query: Query
    bypass: str | None
    correction: bool


def admit(logged: LoggedTurn, rules: Rules, *, embedder: str, decision: str) -> Admitted:
    """Return what would become of a logged turn. ``embedder`` and ``decision`` are part of its identity."""
    record, turn, body = logged.record, logged.turn, logged.body
    session, user = record.session, record.user
    scope: dict[str, Any] = {
        "credential": None if rules.share == "tenant" else record.caller,
        "knowledge_version": record.knowledge_version or None,
    }
    semantic = rules.semantic and record.endpoint == "chat.completions" and not _exact_only(body, turn)
    partition = keys.partition_key(keys.Scope(**scope))
    ttl: float | None = None
    bypass: str | None = None
    asked = _as_asked(turn)
    signals = signals_of(asked) if asked is not None else Signals()
    if any(body.get(name) for name in _STATEFUL):
        bypass = "stateful"
    elif not rules.tools and (body.get("tools") or body.get("functions")):
        bypass = "tools"
    elif signals.correction:
        bypass = "correction"
    elif signals.time_sensitive and rules.time_sensitive == "never":
        bypass = "time-sensitive"
    elif signals.creative and not rules.creative:
        bypass = "creative"
    elif signals.smalltalk and not rules.smalltalk:
        bypass = "smalltalk"
    if signals.time_sensitive:
        semantic, ttl = False, rules.time_sensitive_ttl_s
    if not signals.language_known:
        semantic = False
    if bypass is None and (signals.about_asker or not signals.language_known or rules.share in ("session", "user")):
        if rules.share != "session" and user:
            partition = keys.partition_key(keys.Scope(**scope, user=user))
        elif rules.share != "user" and session is not None:
            partition = keys.partition_key(keys.Scope(**scope, session=session))
        elif signals.personal:
            bypass = "personal"
        elif rules.share in ("session", "user"):
            bypass = f"no-{rules.share}"
    parts = keys.identity_parts(
        record.endpoint,
        body,
        turn,
        knowledge_version=record.knowledge_version,
        embedder=embedder,
        decision=decision,
        volatile_patterns=rules.volatile,
    )
    identity = keys.identity_key(parts)
    query = Query(
        turn=turn,
        partition=partition,
        identity=identity,
        parts=parts,
        exact_key=keys.exact_key(partition, identity, turn),
        place_key=keys.place_key(partition, identity, turn.history) if turn.history else None,
        session=None if session is None else keys.digest("sess", session.encode("utf-8", "surrogatepass")).hex(),
        semantic=semantic,
        ttl_s=ttl,
    )
    return Admitted(query, bypass, bypass == "correction" and asked is turn)


def _exact_only(body: Mapping[str, Any], turn: Turn) -> bool:
    if turn.message.role != "user" or body.get("n") not in (None, 1):
        return True
    if any(body.get(name) for name in _FORMED):
        return True
    form = body.get("response_format")
    if form is not None and form != {"type": "text"}:
        return True
    return any(message.opaque or message.role in ("tool", "function") for message in turn.messages)


def _as_asked(turn: Turn) -> Turn | None:
    """The turn up to the last user message: what an agent's later rounds are still about."""
    if turn.message.role == "user":
        return turn
    for index in range(len(turn.history) - 1, -1, -1):
        if turn.history[index].role == "user":
            return Turn(turn.system, turn.history[:index], turn.history[index])
    return None
