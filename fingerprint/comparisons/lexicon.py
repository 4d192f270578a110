"""Words known by name, one data table a language."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

__all__ = ["CLASSES", "Language", "Lexicon", "lexicon"]

Language = Literal["en", "zh"]

CLASSES = (
    "negation",
    "scope",
    "comparative",
    "time",
    "direction",
    "modality",
    "other_person",
    "we_person",
    "first_person",
)
"""Closed classes whose words are compared set by set: where one side has a word the other lacks, the meaning moved."""


@dataclass(frozen=True, slots=True)
class Lexicon:
    """The table of one language.

    ``rewrites`` are ways of asking that are read as one.
    ``asks`` maps a word to the things it may ask for; ``antonyms`` a word to its opposites; ``units`` a spelling to its
    unit, one of the ``unit_names``; ``numbers`` and ``multipliers`` a number word to its value.
    """

    language: Language
    function_words: frozenset[str]
    courtesy: frozenset[str]
    acknowledgement: frozenset[str]
    pronouns: frozenset[str]
    negating_prefixes: tuple[str, ...]
    rewrites: tuple[tuple[re.Pattern[str], str], ...]
    classes: Mapping[str, frozenset[str]]
    asks: Mapping[str, frozenset[str]]
    antonyms: Mapping[str, frozenset[str]]
    numbers: Mapping[str, float]
    multipliers: Mapping[str, float]
    units: Mapping[str, str]
    unit_names: frozenset[str]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _inverted(table: Mapping[str, str]) -> dict[str, frozenset[str]]:
    out: dict[str, set[str]] = {}
    for name, words in table.items():
        for word in words.split():
            out.setdefault(word, set()).add(name)
    return {word: frozenset(names) for word, names in out.items()}


def _opposites(pairs: list[list[str]]) -> dict[str, frozenset[str]]:
    out: dict[str, set[str]] = {}
    for left, right in pairs:
        for one, other in ((left, right), (right, left)):
            for word in one.split():
                out.setdefault(word, set()).update(other.split())
    return {word: frozenset(others - {word}) for word, others in out.items()}


@functools.cache
def lexicon(language: Language) -> Lexicon:
    """The table of ``language``, read once."""
    text = resources.files("fingerprint.comparisons").joinpath(f"lexicon_{language}.toml").read_text(encoding="utf-8")
    table: dict[str, Any] = tomllib.loads(text)
    units = {spelling: next(iter(names)) for spelling, names in _inverted(table["units"]).items()}
    return Lexicon(
        language=language,
        function_words=_words(table["function_words"]),
        courtesy=_words(table["courtesy"]),
        acknowledgement=_words(table["acknowledgement"]),
        pronouns=_words(table["pronouns"]),
        negating_prefixes=tuple(table["negating_prefixes"]),
        rewrites=tuple((re.compile(pattern), replacement) for pattern, replacement in table["rewrites"]),
        classes={name: _words(table[name]) for name in CLASSES},
        asks=_inverted(table["asks"]),
        antonyms=_opposites(table["antonyms"]["pairs"]),
        numbers=table["numbers"],
        multipliers=table["multipliers"],
        units=units,
        unit_names=frozenset(units.values()),
    )
