"""A question without the courtesies around it: "Hi! How do I reset it? Thanks!" asks "how do I reset it".

Two messages at one place of a conversation that are plainly the same have the same answer; no model need be asked.
So only what means nothing whatever stands beside it is taken away: a greeting, a preface ("quick question:"), thanks, a
please that stands apart, a final full stop, the question mark of a sentence that is a question without it, its first
capital, the width of spaces. Everything else, case included, stays.
"""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache
from importlib import resources
from typing import Any, Final

__all__ = ["plain"]

_LONGEST: Final = 400  # characters; in a longer message a courtesy is the least of what may differ
_LEAST_WORDS: Final = 2  # of what is left; less than that stands for too much
_MARKS: Final = r"[,.!:;~、，。！：；～\u2026\u2013\u2014-]+"
_CHINESE_ASKS: Final = re.compile("[什怎哪谁几吗呢]|为何|如何|多少|是否|能否|可否")
_SMILEYS: Final = r"(?:\s*(?::-?\)|;-?\)|[\U0001f600-\U0001f64f\U0001f44d\U0001f64f\u263a]\ufe0f?))*"


def _table() -> dict[str, dict[str, Any]]:
    return tomllib.loads(resources.files(__package__).joinpath("courtesies.toml").read_text("utf-8"))


def _either(name: str) -> str:
    return "|".join(f"(?:{form})" for table in _table().values() for form in table[name])


_ASKS: Final = frozenset(word for table in _table().values() for word in table["asks"].split())
_FRENCH: Final = frozenset(_table()["fr"]["asks"].split())
_OPENS: Final = _ASKS | {word for table in _table().values() for word in table["tells"].split()}
_WORDS: Final = "|".join(re.escape(word) for word in sorted(_ASKS, key=len, reverse=True))
_GREETING: Final = re.compile(rf"(?:{_either('greetings')})(?:\s*{_MARKS}\s*|\s+(?=(?:{_WORDS})\b))", re.IGNORECASE)
_PREFACE: Final = re.compile(rf"(?:{_either('prefaces')})\s*(?:{_MARKS}|[?？])\s*", re.IGNORECASE)
_OPENER: Final = re.compile(rf"(?:{_either('openers')})[，,:：]?\s*")
_PLEASE_FIRST: Final = re.compile(rf"(?:{_either('please')}),?\s+", re.IGNORECASE)
_PLEASE_LAST: Final = re.compile(rf"\s*[,，]\s*(?:{_either('please')})(?=\s*[.!?。！？]*$)", re.IGNORECASE)
_THANKS: Final = re.compile(
    rf"(?<=[,.!?:;，。！？；～~)]) ?(?:{_either('thanks')})[.!。！~～]*{_SMILEYS}$", re.IGNORECASE
)
_WIDE: Final = re.compile(r"\S(?:[ \t]{2,}|\t)")  # in quotes it may be what is asked about
_QUOTES: Final = re.compile("[\"'`“”‘’「『]")
_FIRST: Final = re.compile(r"[^\W\d_]+(?:'[a-z]+)?")
# Behind a word only: "What is 5!?" asks for a factorial, and "??" may be an operator.
_END: Final = re.compile(r"(?<=[^\W\d_])[.?。？]+$|(?<=[\d)\]\"'”’）」』])[.?。？]$")
_SPACED_END: Final = re.compile(r"(?<=\w) ?\?$")  # as French is written
_STOP: Final = re.compile(r"(?<=[\w)\]\"'”’）」』])[.。]$")
_HAN: Final = re.compile("[\u3400-\u9fff]")


@lru_cache(maxsize=4096)
def plain(text: str) -> str | None:
    """Return the question without its courtesies; None where that is not to be said (too long, too little left, code).

    Idempotent. Never longer than ``text`` without the spaces around it.
    """
    if len(text) > _LONGEST or "```" in text or (_WIDE.search(text) and _QUOTES.search(text)):
        return None
    lines = text.strip()
    if "\n" in lines and len(lines.split("\n")) > 4:  # a layout that may mean something
        return None
    left = " ".join(lines.split())
    while (less := _less(left)) != left:
        left = less
    word = _FIRST.match(left)
    first = word[0].lower() if word else ""
    asks = first in _ASKS or (_HAN.search(left) is not None and _CHINESE_ASKS.search(left) is not None)
    left = (_SPACED_END if first in _FRENCH else _END if asks else _STOP).sub("", left)
    if first in _OPENS:
        left = left[:1].lower() + left[1:]
    words = len(_HAN.sub(" ", left).split()) + len(_HAN.findall(left)) // 2
    return left if words >= _LEAST_WORDS else None


def _less(text: str) -> str:
    """Take one courtesy away."""
    for form in (_GREETING, _PREFACE, _OPENER, _PLEASE_FIRST):
        found = form.match(text)
        if found is not None and found.end() < len(text):
            return text[found.end() :]
    for form in (_THANKS, _PLEASE_LAST):
        found = form.search(text)
        if found is not None and found.start() > 0:
            return (text[: found.start()].rstrip(" ,，;；") + text[found.end() :]).strip()
    return text
