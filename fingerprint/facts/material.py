"""Guard on messages that are not asked but handed over, by what was said before: material for some work.

Under "Translate whatever the user writes", after "Rephrase every sentence I send you", or where the assistant has just
asked for the text, "How do I reset it?" is no question: what is answered are its very words, and other words of the
same meaning need another answer. A system prompt is the same on both sides (it is part of what answers are kept
under), so that no comparison of the two turns shows it.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any, Final

from fingerprint.conversation import Turn
from fingerprint.facts.relation import Relation

__all__ = ["material_relation"]

_LONGEST: Final = 8_000  # characters of a message that are read, of its beginning and of its end
_MESSAGES: Final = 40  # how far back a conversation is read
_FINE: Final = Relation("material", "compatible", "The messages are there to be answered, not to be worked on.")
_CONFLICT: Final = Relation("material", "conflict", "The very words are to be worked on, and they are not the same.")


@dataclass(frozen=True, slots=True)
class _Table:
    system: re.Pattern[str]
    user: re.Pattern[str]
    reply: re.Pattern[str]


@cache
def _table() -> _Table:
    raw: dict[str, dict[str, Any]] = tomllib.loads(
        resources.files("fingerprint.facts").joinpath("material.toml").read_text(encoding="utf-8")
    )

    def any_of(kind: str) -> re.Pattern[str]:
        return re.compile(
            "|".join(
                f"(?:{pattern.replace('{work}', table['work']).replace('{words}', table['words'])})"
                for table in raw.values()
                for pattern in table[kind]
            )
        )

    return _Table(*map(any_of, ("system", "user", "reply")))


def _hands_over(kind: str, text: str) -> bool:
    parts = (text,) if len(text) <= 2 * _LONGEST else (text[:_LONGEST], text[-_LONGEST:])
    return any(_says(kind, part) for part in parts)


@lru_cache(maxsize=1024)  # of what was cut to size: a key may be kept for long
def _says(kind: str, part: str) -> bool:
    said: re.Pattern[str] = getattr(_table(), kind)
    return said.search(part.lower().replace("’", "'")) is not None


def material_relation(a: Turn, b: Turn) -> Relation:
    """Whether the last messages differ and one of them is material; symmetric."""
    if a.message == b.message:
        return _FINE
    return _CONFLICT if _is_material(a) or _is_material(b) else _FINE


def _is_material(turn: Turn) -> bool:
    if any(_hands_over("system", message.text) for message in turn.system):
        return True
    history = turn.history[-_MESSAGES:]
    if any(_hands_over("user", message.text) for message in history if message.role == "user"):
        return True
    return bool(history) and history[-1].role == "assistant" and _hands_over("reply", history[-1].text)
