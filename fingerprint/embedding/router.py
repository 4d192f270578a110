"""Sends each text to the embedder that can read it, and opens the embedders the project comes with."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fingerprint.embedding.base import Embedder, Embedding
from fingerprint.embedding.bert import BertEmbedder, Pieces, UnigramPieces, WordPieces
from fingerprint.embedding.prepare import (
    MINILM,
    MODEL,
    MULTILINGUAL_E5,
    TOKENIZER,
    WORDS,
    Manifest,
    Source,
    ensure,
)
from fingerprint.embedding.unigram import load_unigram

__all__ = ["Router", "load_embedder", "load_router"]


class Router:
    """Asks its embedders in order; the first that can read a text embeds it. A `TextEmbedder`.

    Each result names its space. A text no embedder can read is refused with ``None``, never embedded badly: to an
    English model all Chinese questions are the same one.
    """

    def __init__(self, embedders: Sequence[Embedder]) -> None:
        """Raises `ValueError` for no embedder, or two of one name."""
        names = [embedder.name for embedder in embedders]
        if not names or len(set(names)) != len(names):
            raise ValueError("a router needs embedders with different names")
        self._embedders = tuple(embedders)
        self._name = "+".join(names)

    @property
    def name(self) -> str:
        """The names of all spaces, in order of preference."""
        return self._name

    @property
    def spaces(self) -> dict[str, int]:
        """The spaces and their dimensions."""
        return {embedder.name: embedder.dimensions for embedder in self._embedders}

    def encode(self, texts: Sequence[str]) -> list[Embedding | None]:
        """Embed each text in the space of the first embedder that can read it; ``None`` where there is none."""
        return [self._encode(text) for text in texts]

    def encode_many(self, texts: Sequence[str]) -> list[Embedding | None]:
        """The same for many texts, at less cost each where an embedder has a way for that."""
        out: list[Embedding | None] = [None] * len(texts)
        left = list(range(len(texts)))
        for embedder in self._embedders:
            many = getattr(embedder, "encode_many", embedder.encode)
            made: list[Embedding | None] = many([texts[place] for place in left])
            for place, one in zip(left, made, strict=True):
                out[place] = one
            left = [place for place in left if out[place] is None]
            if not left:
                break
        return out

    def rest(self) -> None:
        """Give up the memory of embedders that can be loaded anew when they are asked."""
        for embedder in self._embedders:
            getattr(embedder, "rest", lambda: None)()

    def _encode(self, text: str) -> Embedding | None:
        for embedder in self._embedders:
            (embedding,) = embedder.encode((text,))
            if embedding is not None:
                return embedding
        return None


def load_router(folders: Sequence[Path] | None = None) -> Router:
    """Open the default embedders: MiniLM for Latin scripts, multilingual-e5-small for all others.

    Both are prepared here where that has not been done (a few seconds, once), and ready when this returns: a first text
    that had to wait for its embedder would miss its deadline. Raises `NotPreparedError`.
    """
    latin = load_embedder(MINILM, folders)
    others = load_embedder(MULTILINGUAL_E5, folders)
    latin.warm_up()
    others.warm_up()
    return Router([latin, others])


def load_embedder(source: Source, folders: Sequence[Path] | None = None) -> BertEmbedder:
    """Open one embedder, prepared first where needed; raises `NotPreparedError`."""
    export, manifest = ensure(source, folders)
    return BertEmbedder(
        manifest.name,
        manifest.dimensions,
        window=manifest.window,
        prefix=manifest.prefix,
        first=manifest.first,
        last=manifest.last,
        model=export / MODEL,
        words=export / WORDS,
        pieces=partial(_pieces, export / TOKENIZER, manifest),
    )


def _pieces(file: Path, manifest: Manifest) -> Pieces:
    if manifest.tokenizer == "wordpiece":
        return WordPieces(file)
    return UnigramPieces(load_unigram(file, manifest.unknown, frozenset(manifest.special)))
