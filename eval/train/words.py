"""Build the word tables of the comparisons: ``fingerprint/comparisons/words_LANG.npz``.

usage: python -m eval.train.words LANG [--words FILE] [--out FILE]

A word's vector is what the sentence embedder of its language makes of the word alone, less the mean of all words,
projected on the ``WIDTH`` main directions and scaled to length 1. Its weight comes from its place in the list, which is
ordered from frequent to rare (the order of the embedder's own vocabulary; words the vocabulary does not have follow).
Without ``--words`` the list of the present table is built anew; the weights are kept.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fingerprint.comparisons.words import WIDTH
from fingerprint.embedding.base import Embedder
from fingerprint.embedding.prepare import MINILM, MULTILINGUAL_E5
from fingerprint.embedding.router import load_embedder

FOLDER = Path("fingerprint/comparisons")


def weights_by_rank(count: int) -> NDArray[np.float64]:
    """0.05 … 1, growing with the logarithm of the rank: frequent words say little."""
    rank = np.arange(count) + 100.0
    return np.asarray(np.clip(np.log(rank / 100.0) / np.log(296.0), 0.05, 1.0), np.float64)


def project(vectors: NDArray[np.float32]) -> NDArray[np.int8]:
    """Unit vectors on the main directions, int8 with the largest component at 127 (a row's scale does not matter)."""
    centred = vectors - vectors.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T @ centred)
    short = centred @ directions[:, ::-1][:, :WIDTH]
    return np.asarray(np.round(short / np.abs(short).max(axis=1, keepdims=True) * 127), np.int8)


def embed(words: Sequence[str], embedder: Embedder) -> NDArray[np.float32]:
    """One vector a word, shape ``(words, dimensions)``; zeros where a word cannot be read."""
    out = np.zeros((len(words), embedder.dimensions), np.float32)
    for place, word in enumerate(words):
        (embedding,) = embedder.encode((word,))
        if embedding is not None:
            out[place] = embedding.vector
    return out


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lang", choices=["en", "zh"])
    parser.add_argument("--words", type=Path, help="one word a line, frequent ones first")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    present = FOLDER / f"words_{given.lang}.npz"
    if given.words:
        words = given.words.read_text(encoding="utf-8").split()
        weights = np.round(weights_by_rank(len(words)) * 255).astype(np.uint8)
    else:
        with np.load(present, allow_pickle=False) as table:
            words, weights = bytes(table["words"]).decode().split("\n"), table["weights"]
    embedder = load_embedder(MINILM if given.lang == "en" else MULTILINGUAL_E5)
    with (given.out or present).open("wb") as file:
        np.savez_compressed(
            file,
            words=np.frombuffer("\n".join(words).encode(), np.uint8),
            vectors=project(embed(words, embedder)),
            weights=weights,
        )
    print(f"{len(words)} words")


if __name__ == "__main__":
    main()
