"""What the life of a turn needs to know about an endpoint's format, and the small values that are passed around."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final
from uuid import uuid4

import msgspec

from fingerprint.conversation import Turn

__all__ = ["Assembled", "Assembler", "Endpoint", "Json", "Template", "Verdict"]

Json = dict[str, Any]

# What stands for the id and the time of creation in a template. Random, so that no answer can contain it.
_ID: Final = f"antiphon-id-{uuid4().hex}"
_CREATED: Final = f"antiphon-created-{uuid4().hex}"
_ENCODE: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a finished reply is worth.

    ``why_not`` says why it must not be stored (``None``: it may). ``shareable`` is false where not even a caller who
    sent the same request at the same time should get it (errors, aborts). Tokens are 0 where the backend said nothing.
    """

    why_not: str | None
    text: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int | None = None
    weight_version: str | None = None
    shareable: bool = True


@dataclass(frozen=True, slots=True)
class Assembled:
    """A streamed reply put together: the whole reply in its non-streamed form, or why that cannot be done."""

    reply: Json | None
    why_not: str | None = None


class Assembler:
    """Puts a streamed reply together, event by event."""

    def add(self, data: bytes) -> bool:
        """Take the data of one event; return whether it is the usage event that ``include_usage`` adds."""
        raise NotImplementedError

    def finish(self) -> Assembled:
        """The stream has ended cleanly."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Template:
    """A reply ready to be sent, but for its id and its time of creation."""

    pieces: tuple[bytes, ...]
    fields: tuple[bool, ...]  # what stands between the pieces: True the id, False the time of creation
    prefix: str
    size: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", sum(map(len, self.pieces)))

    @classmethod
    def of(cls, data: bytes, prefix: str) -> Template:
        """Cut ``data``, written with `Template.ID` and `Template.CREATED`, into a template."""
        pieces: list[bytes] = []
        fields: list[bool] = []
        ident, created = b'"%s"' % _ID.encode(), b'"%s"' % _CREATED.encode()
        for number, part in enumerate(data.split(ident)):
            if number:
                fields.append(True)
            for inner, piece in enumerate(part.split(created)):
                if inner:
                    fields.append(False)
                pieces.append(piece)
        return cls(tuple(pieces), tuple(fields), prefix)

    ID: ClassVar[str] = _ID
    CREATED: ClassVar[str] = _CREATED

    def fill(self, created: int) -> bytes:
        """Return the reply with a fresh id, created at ``created`` (seconds since the epoch)."""
        values = (b"%d" % created, b'"%s%s"' % (self.prefix.encode(), uuid4().hex.encode()))
        parts = [self.pieces[0]]
        for piece, is_id in zip(self.pieces[1:], self.fields, strict=True):
            parts.append(values[is_id])
            parts.append(piece)
        return b"".join(parts)


class Endpoint:
    """One endpoint's format. Stateless; every method is pure."""

    name: ClassVar[str]
    path: ClassVar[str]
    anthropic: ClassVar[bool] = False  # the shape of errors
    salted: ClassVar[bool] = False  # whether the backend takes ``cache_salt`` here
    rewordable: ClassVar[bool] = False  # ``messages`` are what `read` reads, one for one, in order
    id_field: ClassVar[str] = "id"
    created_field: ClassVar[str | None] = "created"
    id_prefix: ClassVar[str] = ""

    def read(self, body: Json) -> Turn:
        """Read the conversation. Raises `NotUnderstood`."""
        raise NotImplementedError

    def bypass(self, body: Json) -> str | None:
        """Why this request must neither be looked up nor stored, whatever it says; ``None`` where it may be."""
        return None

    def exact_only(self, body: Json, turn: Turn) -> bool:
        """Whether only a repeat of the very same request may be answered from the cache."""
        return True

    def streams(self) -> bool:
        """Whether streamed replies can be put together and replayed."""
        return False

    def assembler(self) -> Assembler:
        """Return a fresh assembler for one streamed reply."""
        raise NotImplementedError

    def judge(self, reply: object, body: Json) -> Verdict:
        """Judge a complete reply in its non-streamed form; ``body`` is the request."""
        raise NotImplementedError

    def as_json(self, reply: Json) -> Template:
        """Prepare a stored reply for a caller who did not ask for a stream."""
        shown = dict(reply)
        shown[self.id_field] = Template.ID
        if self.created_field is not None and self.created_field in shown:
            shown[self.created_field] = Template.CREATED
        return Template.of(_ENCODE(shown), self.id_prefix)

    def as_stream(self, reply: Json, *, include_usage: bool) -> Template:
        """Prepare a stored reply as server-sent events."""
        raise NotImplementedError


def text_of(value: object) -> str:
    """Return a string as it is and anything else as the empty string."""
    return value if isinstance(value, str) else ""


def count_of(usage: object, *path: str) -> int | None:
    """Follow ``path`` through nested objects to a number of tokens; ``None`` where it leads nowhere."""
    for key in path:
        usage = usage.get(key) if isinstance(usage, Mapping) else None
    return usage if isinstance(usage, int) and not isinstance(usage, bool) else None
