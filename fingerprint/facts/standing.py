"""What a user has laid down for a conversation: how to answer, what holds for the user, what has changed on the way.

"Answer in miles from now on", "I have a nut allergy", "Wait, it's Thursday now": said once, it stands for every later
turn. A conversation in which it was said and one in which it was not cannot share an answer, however equal their last
messages: an instruction always counts, the user's circumstances where the question may turn on them, a change where
it revises what was said before it.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any, Final

from fingerprint.conversation import Message, Turn
from fingerprint.facts.extract import facts_of, is_slip
from fingerprint.facts.relation import Relation

__all__ = ["standing_relation"]

_MESSAGES = 40  # how far back a conversation is read
_SENTENCES = 60  # of one message
_READ = 8_000  # characters of one message
_LONG = 400  # characters; a longer sentence is a given text, not something laid down
_COVERED = 0.6  # share of an instruction's content words that the other conversation must hold
_TOUCHED = 0.34  # the same of a statement about the user, which may be worded freely
_NEEDED: Final = {"instruction": _COVERED, "state": _TOUCHED, "change": _COVERED}
_CALLED: Final = {"instruction": "an instruction", "state": "something about the user", "change": "a change"}
_NUMBER = re.compile(r"\d+")
_SENTENCE = re.compile(r"[^.!?。！？\n;；]+[.!?。！？;；]*")


@dataclass(frozen=True, slots=True)
class _Table:
    instruction: re.Pattern[str]
    state: re.Pattern[str]
    change: re.Pattern[str]
    personal: re.Pattern[str]


@cache
def _tables() -> tuple[_Table, ...]:
    raw: dict[str, Any] = tomllib.loads(
        resources.files("fingerprint.facts").joinpath("standing.toml").read_text(encoding="utf-8")
    )
    return tuple(
        _Table(**{kind: re.compile("|".join(f"(?:{p})" for p in patterns)) for kind, patterns in table.items()})
        for table in raw.values()
    )


@lru_cache(maxsize=1024)
def _laid_down(text: str) -> tuple[tuple[str, str], ...]:
    """The sentences of a user's message that stand from then on, with the kind; one may be of several."""
    found = []
    for sentence in _SENTENCE.findall(text[:_READ].lower().replace("’", "'"))[:_SENTENCES]:
        said = sentence.strip()
        if not said or said[-1] in "?？" or len(said) > _LONG:
            continue
        found += [(said, kind) for kind in _NEEDED if any(getattr(table, kind).search(said) for table in _tables())]
    return tuple(found)


def standing_relation(a: Turn, b: Turn) -> Relation:
    """Whether something stands in one conversation that was not said in the other; symmetric."""
    for mine, theirs in ((a, b), (b, a)):
        words: frozenset[str] | None = None
        numbers: frozenset[str] = frozenset()
        longer = _asked(mine) > _asked(theirs)
        answered = False
        for message in mine.history[-_MESSAGES:]:
            if message.role != "user":
                answered = True
                continue
            for said, kind in _laid_down(message.text):
                # Both have said something in as many messages: free wording, which the other guards compare.
                if kind == "state" and not (longer and (_turns_on_user(a) or _turns_on_user(b))):
                    continue
                if kind == "change" and not (longer and answered):
                    continue
                if words is None:
                    words = _everything_said(theirs)
                    numbers = _numbers(*(m.text for m in _said_by(theirs)))
                content = facts_of(said).content
                if kind == "state":  # "I take warfarin" is not told by "Can I take aspirin?"
                    content = content - facts_of(mine.message.text).content or content
                held = sum(1 for word in content if word in words or any(is_slip(word, w, names=False) for w in words))
                if not content:  # "let x = 4": nothing but signs
                    held = int(kind != "instruction" or any(said in m.text.lower() for m in theirs.history))
                    content = frozenset([said])
                revised = kind != "instruction" and not _numbers(said) <= numbers
                if revised or held < _NEEDED[kind] * len(content):
                    return Relation(
                        "standing", "conflict", f"Only one conversation holds {_CALLED[kind]}: {said[:80]!r}."
                    )
    return Relation("standing", "compatible", "Nothing stands in one conversation alone.")


def _turns_on_user(turn: Turn) -> bool:
    said = turn.message.text.lower()
    return any(table.personal.search(said) for table in _tables())


def _asked(turn: Turn) -> int:
    return sum(1 for message in turn.history if message.role == "user")


def _said_by(turn: Turn) -> list[Message]:
    return [*(m for m in turn.history[-_MESSAGES:] if m.role != "assistant"), turn.message]


def _everything_said(turn: Turn) -> frozenset[str]:
    return frozenset().union(*(facts_of(m.text).content for m in _said_by(turn)))


def _numbers(*texts: str) -> frozenset[str]:
    return frozenset(number for text in texts for number in _NUMBER.findall(text[:_READ]))
