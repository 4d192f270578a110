"""Chat messages as clients send them, read into a `Turn`; whatever is not understood completely is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fingerprint.conversation import Message, Turn
from fingerprint.errors import NotUnderstood
from fingerprint.keys import canonical
from fingerprint.text import normalise

__all__ = ["ROLES", "NotUnderstood", "message_from_dict", "turn_from_messages"]

ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_LEADING: Final = frozenset({"system", "developer"})
_TEXT_PART: Final = {"type", "text"}


def turn_from_messages(messages: object) -> Turn:
    """Read the ``messages`` of an OpenAI chat body (parsed JSON).

    The last message becomes ``Turn.message`` whatever its role: whether a turn that ends in a tool result or in an
    assistant prefix may be reused is for the caller to decide. Raises `NotUnderstood` for anything that is not a
    non-empty list of messages with a known role and readable content.
    """
    if type(messages) is not list:
        raise NotUnderstood("messages is not a list")
    if not messages:
        raise NotUnderstood("messages is empty")
    read = [message_from_dict(message) for message in messages]
    last = read.pop()
    leading = 0
    for message in read:
        if message.role not in _LEADING:
            break
        leading += 1
    return Turn(tuple(read[:leading]), tuple(read[leading:]), last)


def message_from_dict(message: object) -> Message:
    """Read one message: string content, a list of parts, or none at all (tool calls, refusals).

    Two messages are equal exactly if their role, their content and their other fields are, up to NFC, the form of a
    single text part (the same as a plain string), and fields that are ``null`` (an SDK writes every absent field so
    when it sends an answer back). Raises `NotUnderstood`.
    """
    if type(message) is not dict:
        raise NotUnderstood("a message is not an object")
    role = message.get("role")
    if type(role) is not str or role not in ROLES:
        raise NotUnderstood("a message has an unknown role")
    content = message.get("content")
    if type(content) is str:
        text = normalise(content)
        if len(message) == 2:  # role and content: nearly every message there is
            return Message(role, text)
        rest = _rest(message)
        return Message(role, text, canonical(rest) if rest else b"")
    rest = _rest(message)
    if type(content) is list:
        texts = [normalise(part) for part in map(_text_of, content) if part is not None]
        if len(content) != 1 or len(texts) != 1 or content[0].keys() != _TEXT_PART:
            rest["content"] = content  # where one part ends is not visible in the joined text
        return Message(role, "\n".join(texts), canonical(rest) if rest else b"")
    if content is None:
        rest["content"] = None  # not the same as an empty string
        return Message(role, "", canonical(rest))
    raise NotUnderstood("a message has content that is neither text nor parts")


def _rest(message: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in message.items() if value is not None and key != "role" and key != "content"}


def _text_of(part: object) -> str | None:
    """Return the text of a text part, ``None`` for a part of another kind (image, audio, …)."""
    if type(part) is not dict:
        raise NotUnderstood("a content part is not an object")
    kind = part.get("type")
    if type(kind) is not str:
        raise NotUnderstood("a content part has no type")
    if kind != "text":
        return None
    text = part.get("text")
    if type(text) is not str:
        raise NotUnderstood("a text part has no text")
    return text
