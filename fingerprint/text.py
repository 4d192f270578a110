"""The one text pipeline: whatever becomes a key, a vector or a fingerprint passes through here, online and offline."""

from __future__ import annotations

import re
import unicodedata
from typing import Final, Literal, TypeAlias

__all__ = [
    "SCHEMA_VERSION",
    "Script",
    "encodable",
    "has_lone_surrogates",
    "normalise",
    "script_of",
    "scripts_of",
    "utf8",
]

SCHEMA_VERSION: Final = "1"
"""Part of every identity. Raise it when `normalise`, the encoding of keys or a fingerprint changes its meaning."""

Script: TypeAlias = Literal[
    "latin", "han", "kana", "hangul", "cyrillic", "greek", "arabic", "hebrew", "devanagari", "thai", "other", "none"
]

# Blocks rather than the Script property: the standard library has no such property, and for choosing an embedder or a
# language table the block of a letter is enough. Kana and Hangul are told from Han because their words are different.
_BLOCKS: Final[dict[Script, str]] = {
    "latin": r"A-Za-z\u00aa\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02af\u1e00-\u1eff\u2c60-\u2c7f\ua722-\ua7ff"
    r"\ufb00-\ufb06\uff21-\uff3a\uff41-\uff5a",
    "han": r"\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af",
    "kana": r"\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fd-\u30ff\u31f0-\u31ff\uff66-\uff9d",
    "hangul": r"\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\uac00-\ud7a3\ud7b0-\ud7ff",
    "cyrillic": r"\u0400-\u0481\u048a-\u052f\u1c80-\u1c88\ua640-\ua66e\ua680-\ua69b",
    "greek": r"\u0370-\u0373\u0376-\u037d\u0386\u0388-\u03ff\u1f00-\u1ffc",
    "arabic": r"\u0620-\u064a\u066e-\u06d3\u06fa-\u06ff\u0750-\u077f\u08a0-\u08c7\ufb50-\ufdfb\ufe70-\ufefc",
    "hebrew": r"\u05d0-\u05f2\ufb1d-\ufb4f",
    "devanagari": r"\u0904-\u0939\u0950\u0958-\u0961\u0971-\u097f",
    "thai": r"\u0e01-\u0e30\u0e32\u0e33\u0e40-\u0e46",
}
_UNSPACED: Final[frozenset[Script]] = frozenset({"han", "kana", "thai"})
_LETTERS: Final = {script: re.compile(f"[{block}]") for script, block in _BLOCKS.items()}
_WORDS: Final = {script: re.compile(f"[{block}][{block}0-9]*") for script, block in _BLOCKS.items()}
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
# Weight of a letter in a script without spaces, and of a word in one with spaces: counted letter by letter, one product
# name in Latin letters would outweigh the Chinese sentence around it.
_LETTER_WEIGHT: Final = 2
_WORD_WEIGHT: Final = 3


def normalise(text: str) -> str:
    """Return ``text`` in Unicode Normalization Form C (UAX #15) and otherwise untouched.

    Case, width and white space keep their meaning: keys must tell "us" from "US". Any ``str`` is accepted, lone
    surrogates included. Idempotent.
    """
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def has_lone_surrogates(text: str) -> bool:
    r"""Say whether ``text`` holds surrogate code points, which JSON can bring (``\ud83d``) and UTF-8 cannot carry."""
    return not text.isascii() and _SURROGATE.search(text) is not None


def encodable(text: str) -> str:
    """``text`` with a question mark for each lone surrogate: for code that takes nothing but UTF-8."""
    return _SURROGATE.sub("?", text) if has_lone_surrogates(text) else text


def utf8(text: str) -> bytes:
    """Encode any ``str``, lone surrogates included, injectively (they keep their WTF-8 form)."""
    return text.encode("utf-8", "surrogatepass")


def scripts_of(text: str) -> frozenset[Script]:
    """Return the scripts of the letters in ``text``; empty where there are none."""
    if text.isascii():  # the common case, without counting
        return frozenset(("latin",)) if any(map(str.isalpha, text)) else frozenset()
    counts = {script: len(pattern.findall(text)) for script, pattern in _LETTERS.items()}
    found = {script for script, count in counts.items() if count}
    if sum(map(str.isalpha, text)) > sum(counts.values()):
        found.add("other")
    return frozenset(found)


def script_of(text: str) -> Script:
    """Return the script that most of the words in ``text`` are written in, "none" where it has no letters.

    Words count, not letters: a Chinese sentence stays Chinese whatever product names it holds.
    """
    if text.isascii():
        return "latin" if any(map(str.isalpha, text)) else "none"
    scripts = scripts_of(text)
    if len(scripts) < 2:
        return next(iter(scripts), "none")
    weights: dict[Script, int] = {}
    for script in _BLOCKS:  # in a fixed order, so that a tie is always decided alike
        if script in _UNSPACED:
            weights[script] = _LETTER_WEIGHT * len(_LETTERS[script].findall(text))
        elif script in scripts:
            weights[script] = _WORD_WEIGHT * len(_WORDS[script].findall(text))
    return max(weights, key=weights.__getitem__)
