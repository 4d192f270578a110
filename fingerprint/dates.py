"""Relative dates: "yesterday" is another day every day, so what it meant is part of what was asked.

Pure: the day it is comes from outside (`resolve`). Words are a table, ``dates.toml``. Anything said of a weekday or of
"the last few days" means something else tomorrow and is tied to the day it was said on.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from importlib import resources
from typing import Any, Final, Literal, TypeAlias

from fingerprint.conversation import Turn
from fingerprint.language import language_of, languages_in

__all__ = ["Relative", "agree", "relative_dates", "relative_dates_of", "resolve"]

Unit: TypeAlias = Literal["day", "week", "month", "quarter", "year"]

_UNITS: Final[tuple[Unit, ...]] = ("day", "week", "month", "quarter", "year")
_READ: Final = 2_000  # characters of a message; of a longer one the beginning and the end, half each
_AROUND: Final = 40  # characters before and after a hint in which all of an expression lies
_MOST: Final = 36_500  # of a unit: further away it is no date but a way of speaking
_APOSTROPHES: Final = str.maketrans("’‘ʼ＇", "''''")


@dataclass(frozen=True, slots=True, order=True)
class Relative:
    """A span as seen from today: ``Relative("day", -1)`` is yesterday, ``Relative("week", 0)`` this week."""

    unit: Unit
    offset: int


def relative_dates(text: str) -> frozenset[Relative]:
    """Return the relative dates a text speaks of; none where it speaks of none."""
    if len(text) > _READ:
        text = f"{text[: _READ // 2]}\n{text[-_READ // 2 :]}"
    return _relative_dates(text)


@lru_cache(maxsize=4096)  # a conversation's messages come again with each of its turns
def _relative_dates(text: str) -> frozenset[Relative]:
    text = text.translate(_APOSTROPHES)
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    text = text.lower()
    if _HINTS.search(text) is None:  # most texts
        return frozenset()
    tables = [_TABLES[name] for name in sorted(languages_in(text, language_of(text))) if name in _TABLES]
    return frozenset(
        table.meaning(match)
        for table in tables
        for start, end in table.places(text)
        for match in table.pattern.finditer(text, start, end)
    )


def relative_dates_of(turn: Turn) -> frozenset[Relative]:
    """Return the relative dates of everything the user has said in a conversation."""
    users = [message.text for message in turn.history if message.role == "user"]
    return frozenset().union(*map(relative_dates, (*users, turn.message.text)))


def resolve(relatives: Iterable[Relative], today: date) -> str:
    """Return what relative dates mean on the day ``today``, as one text; empty where there are none.

    Days are written as 2026-11-28, weeks as 2026-W48 (ISO 8601), months as 2026-11, quarters as 2026-Q4, years as 2026.
    """
    return ";".join(sorted({_resolved(relative, today) for relative in relatives}))


def agree(one: str, other: str) -> bool:
    """Whether two resolved texts may mean the same days: they are equal, or one of them says nothing of days."""
    return not one or not other or one == other


def _resolved(relative: Relative, today: date) -> str:
    offset = relative.offset
    if relative.unit in ("day", "week"):
        try:
            day = today + timedelta(days=offset * (7 if relative.unit == "week" else 1))
        except OverflowError:
            return f"{today.isoformat()}{offset:+d}{relative.unit}"
        if relative.unit == "day":
            return day.isoformat()
        year, week, _ = day.isocalendar()
        return f"{year}-W{week:02d}"
    if relative.unit == "year":
        return str(today.year + offset)
    if relative.unit == "month":
        months = today.year * 12 + today.month - 1 + offset
        return f"{months // 12}-{months % 12 + 1:02d}"
    quarters = today.year * 4 + (today.month - 1) // 3 + offset
    return f"{quarters // 4}-Q{quarters % 4 + 1}"


@dataclass(frozen=True, slots=True)
class _Table:
    pattern: re.Pattern[str]
    plain: Mapping[str, Relative]  # group → what it means
    counted: Mapping[str, tuple[Unit, int]]  # group → unit, before or after
    numbers: Mapping[str, int]
    number: re.Pattern[str]
    hints: tuple[str, ...]

    def places(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the stretches of a text around its hints: the pattern need not look elsewhere."""
        found: set[int] = set()
        for hint in self.hints:
            position = text.find(hint)
            while position >= 0:
                found.add(position)
                position = text.find(hint, position + len(hint))
        start = end = -1
        for position in sorted(found):
            if start >= 0 and end >= position - _AROUND:
                end = position + _AROUND
                continue
            if start >= 0:
                yield start, end
            start, end = max(0, position - _AROUND), position + _AROUND
        if start >= 0:
            yield start, end

    def meaning(self, match: re.Match[str]) -> Relative:
        group = match.lastgroup or ""
        known = self.plain.get(group)
        if known is not None:
            return known
        unit, sign = self.counted[group]
        said = self.number.search(match[0])
        words = said[0] if said else "0"
        count = int(words) if words.isdecimal() else self.numbers.get(words, 0)
        return Relative(unit, sign * min(count, _MOST))


def _table(raw: Mapping[str, Any]) -> _Table:
    numbers: dict[str, int] = raw["numbers"]
    words = "|".join(sorted(map(re.escape, numbers), key=len, reverse=True))
    edge = (r"(?<![\w'])", r"(?![\w])") if raw["spaced"] else ("", "")
    number = rf"(?:\d{{1,6}}|{words})"

    def written(pattern: str) -> str:
        return pattern.replace("<n>", number).replace("<weekday>", f"(?:{raw['weekday']})")

    plain: dict[str, Relative] = {}
    counted: dict[str, tuple[Unit, int]] = {}
    alternatives: list[tuple[str, str]] = []
    for unit in _UNITS:
        for pattern, sign in raw["from"].get(unit, ()):
            name = f"c{len(alternatives)}"
            counted[name] = (unit, sign)
            alternatives.append((name, written(pattern)))
        for offset, patterns in raw.get(unit, {}).items():
            for pattern in patterns:
                name = f"p{len(alternatives)}"
                plain[name] = Relative(unit, int(offset))
                alternatives.append((name, written(pattern)))
    # The longer pattern first: "the day before yesterday" is not yesterday.
    alternatives.sort(key=lambda pair: -len(pair[1]))
    joined = "|".join(f"(?P<{name}>{pattern})" for name, pattern in alternatives)
    return _Table(
        pattern=re.compile(f"{edge[0]}(?:{joined}){edge[1]}"),
        plain=plain,
        counted=counted,
        numbers=numbers,
        number=re.compile(f"{edge[0]}{number}{edge[1]}"),
        hints=tuple(raw["hints"]),
    )


def _load() -> dict[str, _Table]:
    raw = tomllib.loads(resources.files("fingerprint").joinpath("dates.toml").read_text("utf-8"))
    return {language: _table(table) for language, table in raw.items()}


_TABLES: Final = _load()
_HINTS: Final = re.compile("|".join(sorted({re.escape(hint) for table in _TABLES.values() for hint in table.hints})))
