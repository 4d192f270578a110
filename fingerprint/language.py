"""Which language a message is written in: enough to choose its table of signals, and to know when there is none.

A script settles most of it. Texts in Latin letters are told apart by their function words (``latin.toml``), in one pass
over the words; where there are none ("weather today") nothing is said.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from importlib import resources
from typing import Any, Final, TypeAlias

from fingerprint.text import script_of, scripts_of

__all__ = ["Language", "first_person", "language_of", "languages_in", "latin_language_of"]

Language: TypeAlias = str
"""An ISO 639-1 code; of a script without a table that script's name; "latin" for an unknown one in Latin letters."""

_WORD: Final = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*")
_CONTRACTION: Final = re.compile(r"(?:'(?:s|re|ve|ll|m|d)|n't)$")
_KANA: Final = re.compile(r"[\u3041-\u3096\u30a1-\u30fa]")
_CHINESE: Final = re.compile(r"什么|[的吗么怎们这哪谁您呢]")  # unknown to Japanese; around a Japanese word asked about
_HAN: Final = re.compile(r"[\u4e00-\u9fff]")
_ACCENTED: Final = re.compile(r"(?<!\w)[a-z]*[\u00df-\u00f6\u00f8-\u024f\u1e00-\u1eff]")
_OWN: Final = 4  # what a word of one language only weighs
_SHARED: Final = 3  # a word of several
_ENGLISH: Final = 2  # a word that English texts hold as well
_JAPANESE: Final = 6  # at least one kana to so many Han letters; の alone is seen in Chinese names too


def language_of(text: str) -> Language | None:
    """Return the language of a lower-case ``text``; ``None`` where nothing tells (no words, keywords, numbers)."""
    if text.isascii():
        return latin_language_of(text)
    script = script_of(text)
    if script in ("han", "kana"):
        if _CHINESE.search(text):
            return "zh"
        kana, han = len(_KANA.findall(text)), len(_HAN.findall(text))
        return "kana" if kana > 1 and kana * _JAPANESE >= han else ("zh" if han else "kana")
    if script == "latin":
        return latin_language_of(text)
    return None if script == "none" else script


def latin_language_of(text: str) -> Language | None:
    """Return the language of the words in Latin letters in a lower-case ``text``; ``None`` where nothing tells."""
    scores: Counter[Language] = Counter()
    foreign: set[Language] = set()  # with a word or letter that English texts do not hold
    for word in _WORD.findall(text):
        for language, weight in _WEIGHTS.get(word, ()):
            scores[language] += weight
            if weight > _ENGLISH:
                foreign.add(language)
        if "'" in word and word not in _WEIGHTS and _CONTRACTION.search(word):
            scores["en"] += _ENGLISH
    accented = not text.isascii() and _ACCENTED.search(text) is not None
    if accented or "¿" in text or "¡" in text:
        for language, marks in _MARKS:
            if any(mark in text for mark in marks):
                scores[language] += _OWN
                foreign.add(language)
    english = scores.pop("en", 0)
    if foreign:
        language = max(foreign, key=lambda name: (scores[name], name))
        if scores[language] > english:
            return language
    if english:
        return "en"
    return "latin" if accented else None


def first_person(text: str, language: Language) -> bool:
    """Say whether a lower-case ``text`` in a language without a table of signals speaks of the one who asks."""
    pattern = _FIRST_PERSON.get(language)
    return pattern is not None and pattern.search(text) is not None


def languages_in(text: str, language: Language | None) -> frozenset[Language]:
    """Return every language whose table should read ``text``, which is mostly in ``language``.

    In a Chinese message English words are read as English; keywords in Latin letters are as well. Accented keywords
    may be of any language.
    """
    found = set(_TRIED) if language == "latin" else {language or "en"}
    if not text.isascii():
        scripts = scripts_of(text)
        if "latin" in scripts and script_of(text) != "latin":
            found.add(latin_language_of(text) or "en")
        if "han" in scripts and language != "kana":
            found.add("zh")
    return frozenset(found)


def _weights(raw: dict[str, Any]) -> dict[str, tuple[tuple[Language, int], ...]]:
    holders: dict[str, list[Language]] = {}
    for language, words in raw["words"].items():
        for word in dict.fromkeys(words):
            holders.setdefault(word, []).append(language)
    names = frozenset(raw["names"])

    def weight(word: str) -> int:
        holding = holders[word]
        if word in names or ("en" in holding and len(holding) > 1):
            return _ENGLISH
        return _OWN if len(holding) == 1 else _SHARED

    return {word: tuple((language, weight(word)) for language in holding) for word, holding in holders.items()}


_RAW: Final = tomllib.loads(resources.files("fingerprint").joinpath("latin.toml").read_text("utf-8"))
_WEIGHTS: Final = _weights(_RAW)
_MARKS: Final[tuple[tuple[Language, str], ...]] = tuple(_RAW["marks"].items())
_TRIED: Final[frozenset[Language]] = frozenset(_RAW["words"])
_FIRST_PERSON: Final[dict[Language, re.Pattern[str]]] = {
    language: re.compile(pattern) for language, pattern in _RAW["first_person"].items()
}
