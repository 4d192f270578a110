"""Logged traffic as plain values: what `capture` writes is what the tools read.

One JSON object a line (JSON Lines, UTF-8). A line is one request with the answer it got (``turns: "last"``: what stands
before the last user message is its history), or a whole conversation (``turns: "all"``: every user message is a turn of
its own and the assistant message behind it its answer). ``docs/traffic.md`` describes the format for people.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import msgspec

__all__ = ["FORMAT_VERSION", "Reaction", "Record", "decode_record", "encode_record"]

FORMAT_VERSION: Final = 1

Turns: TypeAlias = Literal["last", "all"]
Reaction: TypeAlias = Literal["edited", "corrected", "reasked", "left"]
"""What the user did next: edited the message, corrected the answer, asked the same again, or left."""


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a traffic log. Only ``messages`` is needed; what is not known is left out."""

    messages: list[dict[str, Any]]
    """OpenAI chat messages, system messages first. In a whole conversation each may carry its own ``time``."""
    answer: str | None = None
    """Text of the answer to the last message; None where it is not known or there was none (an error)."""
    turns: Turns | None = None
    """None: "all" where the messages end in an assistant's or carry times of their own, else "last"."""
    id: str | None = None
    time: float | None = None
    """Seconds since the epoch, UTC, at which the request came in."""
    session: str | None = None
    user: str | None = None
    caller: str | None = None
    """Whose credential (a digest, never the key itself): callers do not share answers by default."""
    model: str | None = None
    endpoint: str = "chat.completions"
    request: dict[str, Any] = {}
    """Every other field of the request body (``temperature``, ``tools``, …): part of the identity of an answer."""
    knowledge_version: str = ""
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    """Of the prompt's tokens, how many the backend had in its prefix cache."""
    failed: bool = False
    """Whether the request ended in an error: it was asked, and there is nothing to store."""
    seconds: float | None = None
    """First byte sent to the backend until the last byte received."""
    reuse: Literal["answer", "kv", "miss", "bypass"] | None = None
    """What Antiphon did, where it was in front, with the next three."""
    reason: str | None = None
    entry: str | None = None
    confidence: float | None = None
    feedback: Literal["up", "down"] | None = None
    reaction: Reaction | None = None
    redacted: tuple[str, ...] = ()
    """Kinds of personal data that were replaced before this was written."""
    meta: dict[str, Any] = {}
    """Whatever else is known; read by nobody."""
    v: int = FORMAT_VERSION


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Record)


def encode_record(record: Record) -> bytes:
    """Return a record as one line of JSON, its line feed included. Fields at their default are left out."""
    return _ENCODER.encode(record) + b"\n"


def decode_record(line: bytes | str) -> Record:
    """Read one line. Raises `msgspec.MsgspecError` (which says where and why) for anything else."""
    return _DECODER.decode(line)
