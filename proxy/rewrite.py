"""Writes a changed request body: what is not changed keeps its bytes, and the result is read back and compared."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec

from fingerprint.keys import canonical

__all__ = ["Altered", "StableForms", "rewritten"]

_DECODE: Final = msgspec.json.Decoder().decode
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_ENCODE: Final = msgspec.json.Encoder().encode

_KEPT_BYTES: Final = 16 << 20
_KEPT_FORMS: Final = 2048


class Altered(Exception):  # noqa: N818 - the request is then forwarded as it came
    """What was written is not what was meant."""


def rewritten(
    raw: bytes,
    *,
    texts: Mapping[int, str],
    before_last: Sequence[Mapping[str, str]] = (),
    members: Mapping[str, bytes] | None = None,
) -> bytes:
    """Return ``raw`` (a JSON object with ``messages``) with some message texts, and whole members, exchanged.

    ``texts`` holds new texts by index in ``messages``; such a message keeps its other fields and its form (a string, or
    a list of one text part). ``before_last`` are messages put in before the last one, ``members`` the bytes of members
    whose value is the same and whose writing is another. Raises `Altered` where the result does not read as meant.
    """
    parts = _MEMBERS(raw)
    for name, data in (members or {}).items():
        parts[name] = msgspec.Raw(data)
    if texts or before_last:
        items = _ITEMS(parts["messages"])
        for index, text in texts.items():
            items[index] = _with_text(items[index], text)
        items[-1:-1] = [msgspec.Raw(_ENCODE(message)) for message in before_last]
        parts["messages"] = msgspec.Raw(b"[" + b",".join(map(bytes, items)) + b"]")
    written = b"{" + b",".join(_ENCODE(name) + b":" + bytes(value) for name, value in parts.items()) + b"}"
    _compare(_DECODE(raw), _DECODE(written), texts, before_last)
    return written


def _with_text(message: msgspec.Raw, text: str) -> msgspec.Raw:
    fields = _MEMBERS(message)
    content = _DECODE(fields["content"])
    value: Any = text
    if type(content) is list:
        if len(content) != 1 or type(content[0]) is not dict or content[0].keys() != {"type", "text"}:
            raise Altered("a message is not plain text")
        value = [{**content[0], "text": text}]
    elif type(content) is not str:
        raise Altered("a message is not plain text")
    fields["content"] = msgspec.Raw(_ENCODE(value))
    return msgspec.Raw(b"{" + b",".join(_ENCODE(name) + b":" + bytes(data) for name, data in fields.items()) + b"}")


def _compare(
    before: dict[str, Any], after: dict[str, Any], texts: Mapping[int, str], added: Sequence[Mapping[str, str]]
) -> None:
    """Whether two bodies differ in nothing but what was asked for."""
    expected = dict(before)
    if texts or added:
        messages = list(before["messages"])
        for index, text in texts.items():
            message = messages[index]
            content = message["content"]
            new = text if type(content) is str else [{**content[0], "text": text}]
            messages[index] = {**message, "content": new}
        messages[-1:-1] = [dict(message) for message in added]
        expected["messages"] = messages
    if canonical(expected) != canonical(after):
        raise Altered("the body read back is another one")


class StableForms:
    """One writing for each value: the one it was first seen in.

    Tools stand in the prompt as the client wrote them. A client whose JSON library orders keys by chance so breaks the
    prefix of its own conversation in every turn. Here equal values (keys in any order) are sent in the bytes of the
    first of them: nothing changes for a client that always writes the same, and no order is invented that a model might
    read otherwise than the one its developer chose.
    """

    def __init__(self) -> None:
        self._forms: OrderedDict[bytes, bytes] = OrderedDict()
        self._bytes = 0

    def members(self, scope: bytes, body: Mapping[str, Any], raw: bytes, names: Sequence[str]) -> dict[str, bytes]:
        """Return the members of ``body`` among ``names`` that ``raw`` holds in another writing than seen first.

        ``scope`` keeps callers apart who must not learn from each other. Raises what a body that cannot be read raises.
        """
        present = [name for name in names if body.get(name)]
        if not present:
            return {}
        parts = _MEMBERS(raw)
        changed = {}
        for name in present:
            now = bytes(parts[name])
            first = self._first(scope, name, body[name], now)
            if first != now:
                changed[name] = first
        return changed

    def _first(self, scope: bytes, name: str, value: Any, now: bytes) -> bytes:
        key = blake2b(
            scope + name.encode() + b"\0" + canonical(value), digest_size=32, person=b"antiphon.form"
        ).digest()
        first = self._forms.get(key)
        if first is not None and _DECODE(first) == value:  # equal up to Unicode normalisation is not equal
            self._forms.move_to_end(key)
            return first
        if first is None:
            self._forms[key] = now
            self._bytes += len(now)
            while self._bytes > _KEPT_BYTES or len(self._forms) > _KEPT_FORMS:
                _, old = self._forms.popitem(last=False)
                self._bytes -= len(old)
        return now
