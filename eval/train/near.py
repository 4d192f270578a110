"""What a full cache offers beside the right entry, to train on: turns of other families, nearest first.

The labelled pairs are look-alikes and equivalents, hardly ever two questions that merely stand near one another. Both
stages are trained on such neighbours too. (`eval.train.neighbours` measures the same on held-out domains.)
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eval.data import Pair

__all__ = ["Floats", "Vectors", "comparable", "neighbours"]

Floats = NDArray[np.float32]


def comparable(pair: Pair) -> bool:
    """Whether the two turns could meet in one identity at all."""
    return [m.text for m in pair.a.system] == [m.text for m in pair.b.system]


class Vectors:
    """Sentence vectors by text, kept on disk; made by the embedders the proxy uses."""

    def __init__(self, file: Path, *others: Path) -> None:
        """What ``file`` and ``others`` hold; new ones are kept in ``file``."""
        self._file = file
        self._known: dict[tuple[str, str], Floats] = {}
        for known in (*others, file):
            if known.is_file():
                with np.load(known, allow_pickle=False) as table:
                    texts = json.loads(bytes(table["texts"]).decode())
                    self._known |= {(s, t): v for (s, t), v in zip(texts, table["vectors"], strict=True)}

    def add(self, pairs: Iterable[Pair]) -> None:
        """Embed what is missing."""
        from fingerprint.embedding.prepare import MINILM, MULTILINGUAL_E5
        from fingerprint.embedding.router import load_embedder

        wanted = sorted(
            {(pair.lang, t.message.text) for pair in pairs for t in (pair.a, pair.b)} - self._known.keys(),
            key=lambda key: (key[0], len(key[1])),
        )
        started = time.time()
        for lang in ("en", "zh"):
            texts = [t for s, t in wanted if s == lang]
            if not texts:
                continue
            embedder = load_embedder(MINILM if lang == "en" else MULTILINGUAL_E5)
            for place, text in enumerate(texts):
                (embedding,) = embedder.encode((text,))
                vector = embedding.vector if embedding is not None else np.zeros(384, np.float32)
                self._known[lang, text] = vector.astype(np.float16).astype(np.float32)
                if place % 2000 == 1999:
                    print(f"{lang}: {place + 1} of {len(texts)} embedded, {time.time() - started:.0f} s", flush=True)
        if wanted:
            self.save()

    def save(self) -> None:
        """Keep them."""
        keys = list(self._known)
        np.savez(
            self._file,
            texts=np.frombuffer(json.dumps(keys).encode(), np.uint8),
            vectors=np.stack([self._known[k] for k in keys]).astype(np.float16),
        )

    def of(self, lang: str, text: str) -> Floats:
        """The vector of one text, which must have been added."""
        return self._known[lang, text]

    def cosine(self, pair: Pair) -> float:
        """Cosine of the two last messages in the space of the pair's language."""
        return float(self._known[pair.lang, pair.a.message.text] @ self._known[pair.lang, pair.b.message.text])


def neighbours(pairs: Sequence[Pair], vectors: Vectors, seed: int) -> list[Pair]:
    """What retrieval would offer: turns of one family against the nearest of other families, and against some further.

    Both come from one fold, so that a held-out domain stays unseen. Short questions and long ones with much background
    meet here as they do in a full cache; taken for different, whatever they share.
    """
    rng = np.random.default_rng(seed)
    turns: dict[tuple[str, int], dict[str, Pair]] = {}
    for pair in pairs:
        if pair.is_family and pair.equivalent and pair.label_origin != "generated":
            held = turns.setdefault((pair.lang, pair.fold), {})
            for turn in (pair.a, pair.b):
                held.setdefault(turn.message.text, replace(pair, a=turn))
    out: list[Pair] = []
    for (lang, _fold), held in sorted(turns.items()):
        rows = list(held.values())
        matrix = np.stack([vectors.of(lang, r.a.message.text) for r in rows])
        for place in rng.permutation(len(rows))[: len(rows) // 2]:
            mine = rows[place]
            nearest = np.argsort(-(matrix @ matrix[place]))
            others = [i for i in nearest[:60] if rows[i].family != mine.family]
            for i in (*others[:2], *rng.choice(others[2:], 1)):
                other = rows[int(i)]
                made = replace(
                    mine, id=f"{mine.id}~near{i}", b=other.a, equivalent=False, subtype="generated_neighbour",
                    category="related", label_origin="generated",
                )  # fmt: skip
                if comparable(made):
                    out.append(made)
    return out
