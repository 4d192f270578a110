"""Small questions about foreign rows: when, who, what was said. Every function refuses by `BadRow`, never guesses."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from eval.traffic.errors import BadRow

__all__ = ["answer_of", "first", "integer", "messages_of", "parsed", "seconds_between", "text_or_none", "when"]

_MILLISECONDS: Final = 1e11  # seconds beyond the year 5138: then it is milliseconds (or finer)


def first(row: Mapping[str, Any], names: Iterable[str]) -> Any:
    """Return the first of ``names`` that has a value (not null, not an empty string); a dot goes one level down."""
    for name in names:
        value: Any = row
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is not None and value != "":
            return value
    return None


def parsed(value: Any) -> Any:
    """Return what a string of JSON says, where it is one (exports put JSON into columns); else the value."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def text_or_none(value: Any) -> str | None:
    """Return a name or an id as text."""
    return None if value is None or value == "" or isinstance(value, dict | list) else str(value)


def integer(value: Any) -> int | None:
    """Return a count, None where it is none."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return int(number) if math.isfinite(number) and number >= 0 else None


def when(value: Any) -> float | None:
    """Return seconds since the epoch from a number (s, ms, µs or ns) or an ISO 8601 text; UTC where no zone is said.

    Raises `BadRow` for what is neither.
    """
    if value is None or value == "":
        return None
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            try:
                moment = datetime.fromisoformat(value.strip().replace(" UTC", "+00:00"))
            except ValueError:
                raise BadRow(f"{value[:40]!r} is not a time") from None
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRow(f"{type(value).__name__} is not a time")
    try:
        seconds = float(value)
    except OverflowError:
        raise BadRow("a time is not finite") from None
    if not math.isfinite(seconds):
        raise BadRow("a time is not finite")
    while abs(seconds) >= _MILLISECONDS:
        seconds /= 1000.0
    return seconds


def seconds_between(start: float | None, end: float | None) -> float | None:
    """Return how long something took; None where that is not known or negative."""
    return end - start if start is not None and end is not None and end >= start else None


def messages_of(value: Any) -> list[dict[str, Any]]:
    """Return OpenAI messages from a list of them, or from a plain prompt. Raises `BadRow`."""
    value = parsed(value)
    if isinstance(value, str):
        if not value.strip():
            raise BadRow("the prompt is empty")
        return [{"role": "user", "content": value}]
    if isinstance(value, dict) and "role" in value:
        value = [value]
    if not isinstance(value, list) or not value:
        raise BadRow("no messages")
    for message in value:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadRow("a message has no role")
    return value


def answer_of(value: Any) -> tuple[str | None, str | None]:
    """Return (text, finish reason) of a reply: a chat or text completion, a Responses or Messages object, a message, or
    plain text. (None, None) where there is no text in it."""
    value = parsed(value)
    if isinstance(value, str):
        return (value or None), None
    if isinstance(value, list):  # parts of a message, or output items
        texts = [text for item in value if (text := _part(item))]
        return ("".join(texts) or None), None
    if not isinstance(value, dict):
        return None, None
    choices = value.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        choice = choices[0]
        message = choice.get("message")
        text = answer_of(message)[0] if message is not None else text_or_none(choice.get("text"))
        return text, text_or_none(choice.get("finish_reason"))
    if "content" in value:
        return answer_of(value["content"])[0], text_or_none(first(value, ("finish_reason", "stop_reason")))
    for name in ("output_text", "output", "message", "text", "completion", "response"):
        if value.get(name) is not None:
            text, finish = answer_of(value[name])
            return text, finish or text_or_none(first(value, ("finish_reason", "stop_reason")))
    return None, None


def _part(item: Any) -> str | None:
    if isinstance(item, str):
        return item
    if not isinstance(item, dict):
        return None
    if isinstance(item.get("text"), str) and item.get("type") in (None, "text", "output_text", "input_text"):
        return str(item["text"])
    if item.get("type") == "message" or item.get("role") == "assistant":
        return answer_of(item.get("content"))[0]
    return None
