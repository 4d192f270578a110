"""Whether a message is in a language the comparisons can read."""

from __future__ import annotations

import functools
import re
import tomllib
import unicodedata
from importlib import resources

from fingerprint.comparisons.lexicon import lexicon

__all__ = ["readable"]

_HEAD = 2000
_WORD = re.compile(r"[^\W\d_]+")
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")


def _is_known_script(letter: str) -> bool:
    point = ord(letter)
    # Latin with its extensions, and Han; Greek letters occur as symbols.
    return point < 0x250 or 0x370 <= point < 0x400 or 0x1E00 <= point < 0x1F00 or bool(_HAN.match(letter))


@functools.cache
def _foreign() -> frozenset[str]:
    text = resources.files("fingerprint.comparisons").joinpath("lexicon_other.toml").read_text(encoding="utf-8")
    table: dict[str, str] = tomllib.loads(text)
    known = lexicon("en").function_words
    return frozenset(word for words in table.values() for word in words.split()) - known


@functools.lru_cache(maxsize=8192)
def readable(text: str) -> bool:
    """English or Chinese (or no words at all): the languages there are tables for.

    False where a tenth or more of the letters are of other scripts (kana, Hangul, Cyrillic, Arabic …), or where the
    little words of other Latin-script languages outnumber the English ones: negation there would go unseen.
    """
    head = unicodedata.normalize("NFKC", text[:_HEAD])
    letters = [c for c in head if c.isalpha()]
    if not letters:
        return True
    strange = sum(1 for c in letters if not _is_known_script(c))
    if strange * 10 >= len(letters):
        return False
    if _HAN.search(head):
        return True
    words = _WORD.findall(head.casefold())
    english = sum(1 for w in words if w in lexicon("en").function_words)
    foreign = sum(1 for w in words if w in _foreign())
    return foreign <= english
