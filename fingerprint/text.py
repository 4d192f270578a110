"""The one text pipeline: whatever becomes a key, a vector or a fingerprint passes through here, online and offline."""

from __future__ import annotations

import re
import unicodedata
from typing import Final, Literal, TypeAlias

__all__ = ["SCHEMA_VERSION", "Script", "has_lone_surrogates", "normalise", "script_of", "scripts_of", "utf8"]

SCHEMA_VERSION: Final = "1"
"""Part of every identity. Raise it when `normalise`, the encoding of keys or a fingerprint changes its meaning."""

Script: TypeAlias = Literal[
    "latin", "han", "kana", "hangul", "cyrillic", "greek", "arabic", "hebrew", "devanagari", "thai", "other", "none"
]

# Blocks rather than the Script property: the standard library has no such property, and for choosing an embedder or a
# language table the block of a letter is enough. Kana and Hangul are told from Han because their words are different.
_BLOCKS: Final[dict[Script, str]] = {
    "latin": "A-Za-zªºÀ-ÖØ-öø-ʯḀ-ỿⱠ-ⱿꜢ-ꟿff-stＡ-Ｚａ-ｚ",
    "han": "々〇㐀-䶿一-鿿豈-﫿\U00020000-\U000323af",
    "kana": "ぁ-ゖゝ-ゟァ-ヺヽ-ヿㇰ-ㇿｦ-ﾝ",
    "hangul": "ᄀ-ᇿ㄰-㆏ꥠ-꥿가-힣ힰ-퟿",
    "cyrillic": "Ѐ-ҁҊ-ԯᲀ-ᲈꙀ-ꙮꚀ-ꚝ",
    "greek": "Ͱ-ͳͶͷͺ-ͽΆΈ-Ͽἀ-ῼ",
    "arabic": "ؠ-يٮ-ۓەۺ-ۼݐ-ݿࢠ-ࣇﭐ-ﷻﹰ-ﻼ",
    "hebrew": "א-תװ-ײיִ-ﭏ",
    "devanagari": "ऄ-हॐक़-ॡॱ-ॿ",
    "thai": "ก-ฺเ-๏",
}
_PATTERNS: Final = {script: re.compile(f"[{block}]") for script, block in _BLOCKS.items()}
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
# A Chinese word has one or two characters, a Latin one about five: counted letter by letter, one product name in Latin
# letters would outweigh the Chinese sentence around it.
_WEIGHT: Final[dict[Script, int]] = {"han": 3, "kana": 2, "hangul": 2}


def normalise(text: str) -> str:
    """Return ``text`` in Unicode Normalization Form C (UAX #15) and otherwise untouched.

    Case, width and white space keep their meaning: keys must tell "us" from "US". Any ``str`` is accepted, lone
    surrogates included. Idempotent.
    """
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def has_lone_surrogates(text: str) -> bool:
    r"""Say whether ``text`` holds surrogate code points (JSON may bring them as ``\ud83d``; UTF-8 cannot carry them)."""
    return not text.isascii() and _SURROGATE.search(text) is not None


def utf8(text: str) -> bytes:
    """Encode any ``str``, lone surrogates included, injectively (they keep their WTF-8 form)."""
    return text.encode("utf-8", "surrogatepass")


def _letters(text: str) -> dict[Script, int]:
    """Count the letters of each script that occurs in ``text``."""
    if text.isascii():
        count = sum(map(str.isalpha, text))
        return {"latin": count} if count else {}
    counts: dict[Script, int] = {}
    for script, pattern in _PATTERNS.items():
        if found := len(pattern.findall(text)):
            counts[script] = found
    other = sum(map(str.isalpha, text)) - sum(counts.values())
    if other > 0:
        counts["other"] = other
    return counts


def scripts_of(text: str) -> frozenset[Script]:
    """Return the scripts of the letters in ``text``; empty where there are none."""
    if text.isascii():  # the common case, without counting
        return frozenset(("latin",)) if any(map(str.isalpha, text)) else frozenset()
    return frozenset(_letters(text))


def script_of(text: str) -> Script:
    """Return the script that most of the words in ``text`` are written in, "none" where it has no letters.

    Letters of scripts with short words count more, so "把 Kubernetes 升级" is Chinese text.
    """
    if text.isascii():
        return "latin" if any(map(str.isalpha, text)) else "none"
    counts = _letters(text)
    return max(counts, key=lambda script: counts[script] * _WEIGHT.get(script, 1), default="none")
