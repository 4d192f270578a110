"""Cutting a stored text into the pieces in which a model would have streamed it."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["natural_pieces"]

_MOST_PIECES: Final = 512  # longer texts get longer pieces
_RUN: Final = 24  # characters without white space from which on a run is looked at more closely
_STEP: Final = 4  # ideographs or syllables to a piece

_WORD: Final = re.compile(r"\s*\S+\s*")
# Between two of these a text may be cut anywhere: Han, Hiragana, Katakana, Hangul syllables, CJK punctuation. Combining
# marks, joiners, variation selectors and emoji are not among them, so no character the reader sees is taken apart.
_FREE: Final = re.compile(
    r"[\u3001-\u3029\u3041-\u3096\u30a1-\u30fa\u30fc\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uff01-\uff60]"
)


def natural_pieces(text: str) -> list[str]:
    """Cut ``text`` into words with the white space after them, or a few characters where a script has no spaces.

    Joined, the pieces are the text. No piece begins inside a grapheme cluster that the text does not itself break with
    white space. At most a few hundred pieces.
    """
    words = _WORD.findall(text)
    if not words:
        return [text] if text else []
    pieces = [piece for word in words for piece in ([word] if len(word) < _RUN else _inside(word))]
    if len(pieces) > _MOST_PIECES:
        together = -(-len(pieces) // _MOST_PIECES)
        pieces = ["".join(pieces[i : i + together]) for i in range(0, len(pieces), together)]
    return pieces


def _inside(run: str) -> list[str]:
    pieces: list[str] = []
    begin = 0
    for position in range(1, len(run)):
        if position - begin >= _STEP and _FREE.match(run[position - 1]) and _FREE.match(run[position]):
            pieces.append(run[begin:position])
            begin = position
    pieces.append(run[begin:])
    return pieces
