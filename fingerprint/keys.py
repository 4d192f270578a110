"""Keys: who may share (partition), what produced an answer (identity), and the literal conversation (exact, place).

Every key is a 32-byte BLAKE2b digest (RFC 7693) with a personalisation string of its own, over an injective encoding:
two requests have the same key only if they are the same request up to Unicode NFC, the order of object members, and the
fields in `DENY`. The encoding is MessagePack with sorted maps: every value carries its type and its length, so no
border can be imitated from inside a text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import msgspec

from fingerprint.conversation import Message, Turn
from fingerprint.errors import NotUnderstood
from fingerprint.facts import FACTS_SCHEMA
from fingerprint.text import SCHEMA_VERSION, has_lone_surrogates, normalise, utf8

__all__ = [
    "CONVERSATION_FIELDS",
    "DENY",
    "FINGERPRINT_SCHEMA",
    "IdentityParts",
    "Scope",
    "canonical",
    "dated_key",
    "digest",
    "exact_key",
    "identity_key",
    "identity_parts",
    "partition_key",
    "place_key",
]

DENY: Final = frozenset(
    {
        # how the answer travels, not what it says
        "stream", "stream_options",
        # who asks, and labels for the operator's books
        "user", "safety_identifier", "metadata", "store", "rid", "request_id",
        # caching and scheduling at the backend
        "prompt_cache_key", "prompt_cache_retention", "cache_salt", "extra_key", "priority", "service_tier",
        # SGLang: which worker runs it (prefill/decode disaggregation, data parallelism)
        "bootstrap_host", "bootstrap_port", "bootstrap_room", "data_parallel_rank", "routed_dp_rank",
    }
)  # fmt: skip
"""Body fields that do not change an answer. Fields that add something to the reply (``return_hidden_states``,
``logprobs``, …) are deliberately not here: a stored reply without it would be the wrong reply."""

CONVERSATION_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "chat.completions": frozenset({"messages"}),
    "completions": frozenset({"prompt"}),
    "responses": frozenset({"input", "instructions"}),
    "messages": frozenset({"messages", "system"}),
}
"""Body fields of each endpoint that the `Turn` made from them represents completely."""

_TOOL_FIELDS: Final = ("tools", "tool_choice", "functions", "function_call", "parallel_tool_calls")
_ENCODE: Final = msgspec.msgpack.Encoder(order="deterministic").encode
_BIG_INT, _ODD_TEXT, _ODD_MAP = 1, 2, 3  # MessagePack extension types of our own
_KEY_BYTES: Final = 32

FINGERPRINT_SCHEMA: Final = f"text-{SCHEMA_VERSION}/facts-{FACTS_SCHEMA}"
"""What texts were read with: the text pipeline and the structural fingerprint. Part of every identity."""


@dataclass(frozen=True, slots=True)
class IdentityParts:
    """What produced an answer, part by part, so that each can be purged by its own dimension (DESIGN §6)."""

    endpoint: str  # "chat.completions" | "completions" | "responses" | "messages"
    model: str
    weights_version: str
    tokenizer: str
    lora: str
    system_prompt: str  # hex digest, "" where there is none
    tools: str  # hex digest, "" where there are none
    knowledge_version: str
    fingerprint_schema: str
    embedder: str
    decision: str  # version of the reuse confidence that decides what may stand for what
    fields: str  # hex digest of every other request field that changes an answer


@dataclass(frozen=True, slots=True)
class Scope:
    """Who may share an answer; ``None`` is "not restricted by this", and differs from an empty string."""

    credential: str | None = None  # as the caller sent it; leaves this module only as a digest
    tenant: str | None = None
    knowledge_version: str | None = None
    session: str | None = None
    user: str | None = None


def canonical(value: object) -> bytes:
    """Encode a JSON value (``None``, bool, int, float, str, bytes, list, tuple, dict with str keys) injectively.

    Equal results mean equal values up to the NFC form of strings, the order of object members and list against tuple:
    1, 1.0, True and "1" all differ, and so do 0.0 and -0.0. Integers of any size, NaN, infinities and lone surrogates
    are encoded like anything else. Raises `TypeError` for other types and `NotUnderstood` for values nested too deeply.
    """
    try:
        return _encode(_plain(value))
    except RecursionError:
        raise NotUnderstood("the body is nested too deeply") from None


def digest(purpose: str, data: bytes) -> bytes:
    """Return 32 bytes of BLAKE2b of ``data``; ``purpose`` (at most 6 ASCII characters) keeps kinds of key apart."""
    return blake2b(data, digest_size=_KEY_BYTES, person=b"antiphon." + purpose.encode("ascii")).digest()


def partition_key(scope: Scope) -> bytes:
    """Return the key of everyone who may share with ``scope``, 32 bytes."""
    return digest(
        "part",
        canonical((scope.credential, scope.tenant, scope.knowledge_version, scope.session, scope.user)),
    )


def identity_parts(
    endpoint: str,
    body: Mapping[str, Any],
    turn: Turn,
    *,
    weights_version: str = "",
    tokenizer: str = "",
    knowledge_version: str = "",
    embedder: str = "",
    decision: str = "",
    volatile_patterns: Sequence[re.Pattern[str]] = (),
    conversation_fields: frozenset[str] | None = None,
) -> IdentityParts:
    """Return what would produce the answer to ``body``, whose conversation has been read into ``turn``.

    Every field of the body enters, known or not, but those in `DENY` and those the turn represents
    (``conversation_fields``; by default `CONVERSATION_FIELDS` of the endpoint). A field that is sent with its default
    value and one that is not sent are told apart. What ``volatile_patterns`` match in the leading system messages (a
    date, a request id) is left out of ``system_prompt``, and with it of every key.
    """
    if conversation_fields is None:
        conversation_fields = CONVERSATION_FIELDS.get(endpoint, frozenset())
    model = lora = tools = ""
    fields: dict[str, Any] = {}
    tool_fields: dict[str, Any] = {}
    for name, value in body.items():
        if name in DENY or name in conversation_fields:
            continue
        if name in _TOOL_FIELDS:
            tool_fields[name] = value
        elif name == "model" and _is_name(value):
            model = value
        elif name == "lora_path" and _is_name(value):
            lora = value
        else:
            fields[name] = value
    if tool_fields:
        tools = _hex("tools", canonical(tool_fields))
    return IdentityParts(
        endpoint=endpoint,
        model=model,
        weights_version=weights_version,
        tokenizer=tokenizer,
        lora=lora,
        system_prompt=_system_digest(turn.system, volatile_patterns),
        tools=tools,
        knowledge_version=knowledge_version,
        fingerprint_schema=FINGERPRINT_SCHEMA,
        embedder=embedder,
        decision=decision,
        fields=_hex("fields", canonical(fields)),
    )


def identity_key(parts: IdentityParts) -> bytes:
    """Return the key of everything that produced an answer, 32 bytes."""
    return digest(
        "ident",
        canonical(
            (
                parts.endpoint,
                parts.model,
                parts.weights_version,
                parts.tokenizer,
                parts.lora,
                parts.system_prompt,
                parts.tools,
                parts.knowledge_version,
                parts.fingerprint_schema,
                parts.embedder,
                parts.decision,
                parts.fields,
            )
        ),
    )


def exact_key(partition: bytes, identity: bytes, turn: Turn) -> bytes:
    """Return the key of the literal conversation, 32 bytes.

    The leading system messages are part of ``identity`` (there with their volatile parts masked), so only what follows
    them is read here. Raises `ValueError` unless both keys have 32 bytes.
    """
    return digest("exact", _bound(partition, identity) + _encode_messages((*turn.history, turn.message)))


def dated_key(key: bytes, dates: str) -> bytes:
    """Return an exact key that holds only while the relative dates of its turn mean ``dates``; ``key`` where empty."""
    return digest("dated", canonical((key, dates))) if dates else key


def place_key(partition: bytes, identity: bytes, messages: Sequence[Message]) -> bytes:
    """Return the key of a literal history, 32 bytes: where in the forest the next turn stands.

    ``messages`` are those after the leading system messages (``turn.history``) and end in an assistant message; the
    place after an answer is the key of ``(*turn.history, turn.message, Message("assistant", answer.text))``. Never
    equal to an exact key. Raises `ValueError` unless both keys have 32 bytes.
    """
    return digest("place", _bound(partition, identity) + _encode_messages(tuple(messages)))


def _bound(partition: bytes, identity: bytes) -> bytes:
    # Fixed lengths are what makes the concatenation injective.
    if len(partition) != _KEY_BYTES or len(identity) != _KEY_BYTES:
        raise ValueError("partition and identity are keys of 32 bytes")
    return partition + identity


def _is_name(value: object) -> bool:
    # What cannot be written down as a name (nothing, a list, lone surrogates) still counts, among the other fields.
    return type(value) is str and value != "" and not has_lone_surrogates(value)


def _hex(purpose: str, data: bytes) -> str:
    return digest(purpose, data).hex()


def _encode_messages(messages: tuple[Message, ...]) -> bytes:
    # msgspec writes a dataclass as the map of its fields, in C; texts are in NFC already (see `Message`).
    try:
        return _ENCODE(messages)
    except UnicodeEncodeError:
        return _encode([{"role": m.role, "text": m.text, "opaque": m.opaque} for m in messages])


def _system_digest(system: tuple[Message, ...], volatile: Sequence[re.Pattern[str]]) -> str:
    if not system:
        return ""
    if not volatile:
        return _hex("system", _encode_messages(system))
    return _hex("system", canonical([(m.role, _kept(m.text, volatile), m.opaque) for m in system]))


def _kept(text: str, volatile: Sequence[re.Pattern[str]]) -> list[str] | str:
    """Cut out of ``text`` what the patterns match; the pieces stay apart, so a cut is never taken for plain text."""
    spans = sorted(match.span() for pattern in volatile for match in pattern.finditer(text))
    pieces: list[str] = []
    position = 0
    merged: list[tuple[int, int]] = []
    for start, end in spans:
        if start == end:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    for start, end in merged:
        pieces.append(text[position:start])
        position = end
    if not merged:
        return text
    pieces.append(text[position:])
    return pieces


def _plain(value: object) -> object:
    """Bring strings into NFC and refuse what JSON does not have; returns the value itself where nothing changes."""
    kind = type(value)
    if kind is str:
        return normalise(value)  # type: ignore[arg-type]
    if kind is dict:
        items = value.items()  # type: ignore[attr-defined]
        for key in value:  # type: ignore[attr-defined]
            if type(key) is not str:
                raise TypeError("an object's keys are strings")
        plain = {normalise(key): _plain(item) for key, item in items}
        if len(plain) != len(value):  # type: ignore[arg-type]
            # Two members that only differ in normalisation form: keep both, in an order of their own.
            pairs = sorted((_encode([normalise(key), _plain(item)]) for key, item in items))
            return msgspec.msgpack.Ext(_ODD_MAP, b"".join(pairs))
        return plain
    if kind is list or kind is tuple:
        return [_plain(item) for item in value]  # type: ignore[attr-defined]
    if value is None or kind is bool or kind is int or kind is float or kind is bytes:
        return value
    raise TypeError(f"{kind.__name__} is not a JSON value")


def _portable(value: object) -> object:
    """Replace what MessagePack cannot carry (integers over 64 bits, lone surrogates) by extension values."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return msgspec.msgpack.Ext(_ODD_TEXT, utf8(value))
        return value
    if isinstance(value, int) and not -(1 << 63) <= value < (1 << 64):
        return msgspec.msgpack.Ext(_BIG_INT, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))
    if isinstance(value, dict):
        pairs = [(_portable(key), _portable(item)) for key, item in value.items()]
        if all(isinstance(key, str) for key, _ in pairs):
            return dict(pairs)
        return msgspec.msgpack.Ext(_ODD_MAP, b"".join(sorted(_ENCODE([key, item]) for key, item in pairs)))
    if isinstance(value, list):
        return [_portable(item) for item in value]
    return value


def _encode(value: object) -> bytes:
    try:
        return _ENCODE(value)
    except (UnicodeEncodeError, OverflowError):
        return _ENCODE(_portable(value))
