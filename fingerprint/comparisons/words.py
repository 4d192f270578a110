"""Word vectors and word weights, one small table a language.

A vector is what the sentence embedder makes of the word alone, projected on its main directions (``eval.train.words``
builds the tables): near for words that mean nearly the same, also for opposites, which is why the antonyms are a list.
"""

from __future__ import annotations

import functools
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from fingerprint.comparisons.lexicon import Language

__all__ = ["WIDTH", "WordTable", "word_table"]

WIDTH = 96
"""Dimensions of a word vector."""


_ENDINGS = ("ing", "ed", "es", "d", "s", "e", "")


class WordTable:
    """Vectors (unit length, float32) and weights (0 … 1, rare words heavy) of the words of one language."""

    def __init__(self, words: list[str], vectors: NDArray[np.int8], weights: NDArray[np.uint8]) -> None:
        self._row = {word: row for row, word in enumerate(words)}
        self._vectors = vectors
        self._weights = weights
        self.entry = functools.lru_cache(maxsize=4096)(self._entry)
        """Weight and vector of a word, and whether the table holds it."""

    def __contains__(self, word: str) -> bool:
        return self._find(word) is not None

    def weight(self, word: str) -> float:
        """How much a word says, 0 … 1; unknown words say the most."""
        row = self._find(word)
        return 1.0 if row is None else float(self._weights[row]) / 255.0

    def vector(self, word: str) -> NDArray[np.float32]:
        """Unit vector of shape ``(WIDTH,)``; an unknown word is put together from its parts, or is all zeros."""
        row = self._find(word)
        if row is None:
            rows = [self._row[part] for part in self._parts(word)]
            if not rows:
                return np.zeros(WIDTH, np.float32)
            out: NDArray[np.float32] = self._vectors[rows].astype(np.float32).sum(axis=0)
        else:
            out = self._vectors[row].astype(np.float32)
        norm = float(np.sqrt(out @ out))
        if norm:
            out /= np.float32(norm)
        return out

    def _entry(self, word: str) -> tuple[float, NDArray[np.float32], bool]:
        return self.weight(word), self.vector(word), word in self

    def _find(self, word: str) -> int | None:
        """Row of a word, or of another form of the same English word where only that is in the table."""
        row = self._row.get(word)
        if row is None and len(word) > 3 and word.isascii():
            for ending in _ENDINGS:
                if word.endswith(ending):
                    root = word[: len(word) - len(ending)]
                    for other in _ENDINGS:
                        row = self._row.get(root + other) if len(root) > 2 else None
                        if row is not None:
                            return row
        return row

    def _parts(self, word: str) -> list[str]:
        """Longest known parts from the left, of three letters or more (in Chinese one character)."""
        shortest = 3 if word.isascii() else 1
        parts: list[str] = []
        at = 0
        word = word[:40]
        while at < len(word):
            for end in range(len(word), at + shortest - 1, -1):
                if word[at:end] in self._row:
                    parts.append(word[at:end])
                    at = end
                    break
            else:
                at += 1
        return parts


@functools.cache
def word_table(language: Language) -> WordTable:
    """The table of ``language``, read once (about 2 MB)."""
    with (
        resources.files("fingerprint.comparisons").joinpath(f"words_{language}.npz").open("rb") as file,
        np.load(file, allow_pickle=False) as table,
    ):
        words = bytes(table["words"]).decode().split("\n")
        return WordTable(words, table["vectors"], table["weights"])
