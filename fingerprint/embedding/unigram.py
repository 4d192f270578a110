"""A Unigram tokenizer (Kudo 2018, arXiv:1804.10959) small enough for a 250,000-piece vocabulary.

The `tokenizers` library needs about 280 MB of memory for this vocabulary, as much as everything else in the proxy; a
dictionary of the pieces needs 40. Segmentation is the same best path, word by word after Metaspace.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

__all__ = ["Unigram", "load_unigram"]

_MARK: Final = "▁"
_SPACE: Final = re.compile(r"\s+")
_UNKNOWN_PENALTY: Final = 10.0  # below the worst piece, as in SentencePiece


class Unigram:
    """Splits text into the pieces whose scores (log probabilities) have the greatest sum."""

    def __init__(self, pieces: Sequence[str], scores: Sequence[float], unknown: int, special: frozenset[int]) -> None:
        """``special`` are ids that text never yields (``<s>`` and the like); ``unknown`` stands for all else."""
        self._ids = {piece: i for i, piece in enumerate(pieces) if i != unknown and i not in special}
        self._scores = array("d", scores)  # as the library: rounded, two paths of nearly one weight change places
        self._longest = max(map(len, self._ids))
        self._unknown_score = min(self._scores) - _UNKNOWN_PENALTY
        self.unknown = unknown
        self.pieces: tuple[str, ...] = tuple(pieces)

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text`` after NFKC and joining white space; no special tokens. Any ``str`` is accepted."""
        folded = _SPACE.sub(" ", unicodedata.normalize("NFKC", text)).strip()
        if not folded:
            return []
        ids: list[int] = []
        for word in folded.split(" "):
            ids.extend(self._word(_MARK + word))
        return ids

    def _word(self, word: str) -> list[int]:
        whole = self._ids.get(word)
        length = len(word)
        best: list[float] = [0.0] + [float("-inf")] * length  # score of the best path to each position
        came: list[int] = [0] * (length + 1)  # where its last piece starts
        piece_of: list[int] = [self.unknown] * (length + 1)
        find, scores, longest, unknown_score = self._ids.get, self._scores, self._longest, self._unknown_score
        if whole is not None and length == 1:
            return [whole]
        for start in range(length):
            base = best[start]
            single = False
            for end in range(start + 1, min(start + longest, length) + 1):
                piece = find(word[start:end])
                if piece is not None:
                    score = base + scores[piece]
                    if score > best[end]:
                        best[end], came[end], piece_of[end] = score, start, piece
                    if end == start + 1:
                        single = True
            if not single and base + unknown_score > best[start + 1]:
                best[start + 1], came[start + 1], piece_of[start + 1] = base + unknown_score, start, self.unknown
        ids: list[int] = []
        position = length
        while position:
            piece = piece_of[position]
            if not (piece == self.unknown and ids and ids[-1] == self.unknown):  # neighbours that are unknown fuse
                ids.append(piece)
            position = came[position]
        ids.reverse()
        return ids


@lru_cache(maxsize=2)
def load_unigram(file: Path, unknown: int, special: frozenset[int]) -> Unigram:
    """Read an exported vocabulary, once for all who use it: 250,000 pieces take 60 MB."""
    pieces, scores = msgspec.msgpack.decode(file.read_bytes(), type=tuple[tuple[str, ...], list[float]])
    return Unigram(pieces, scores, unknown, special)
