"""What an embedder is, and the errors of getting one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Embedder",
    "EmbedderError",
    "Embedding",
    "NotPreparedError",
    "TextEmbedder",
    "UnreadableError",
    "Vector",
    "WeightsError",
]

Vector = NDArray[np.float32]


class EmbedderError(Exception):
    """Root of what can go wrong with an embedder; to the cache each of these is a miss."""


class WeightsError(EmbedderError):
    """The package that carries the weights is missing, or its file is not the expected one."""


class NotPreparedError(EmbedderError):
    """The export made from the weights is missing or damaged and could not be made anew."""


class UnreadableError(EmbedderError):
    """A text is in a script, or holds signs, that the embedder has no tokens for."""


@dataclass(frozen=True, slots=True, eq=False)
class Embedding:
    """The vector of one text."""

    vector: Vector  # (dimensions,), L2 norm 1
    space: str  # name of the embedder; vectors of different spaces are never compared
    partial: bool = False  # longer than the embedder's window: good for a context, never for matching the message


class TextEmbedder(Protocol):
    """Whatever turns texts into embeddings; a text nobody can read gives ``None``."""

    @property
    def name(self) -> str:
        """Names the weights and the pipeline of every space that may be used; part of the identity."""

    def encode(self, texts: Sequence[str]) -> list[Embedding | None]:
        """Embed each text by itself: a result never depends on what else is asked for."""


class Embedder(TextEmbedder, Protocol):
    """One vector space."""

    @property
    def dimensions(self) -> int:
        """Length of every vector."""

    def readable(self, text: str) -> bool:
        """Say whether there are tokens for everything in ``text`` (and anything in it at all)."""

    def embed(self, texts: Sequence[str]) -> Vector:
        """Return float32 (texts, dimensions), L2 norm 1; raises `UnreadableError` where ``readable`` is false."""
