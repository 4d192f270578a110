"""Text to vectors. Import the modules you need: this package itself loads nothing heavy."""

from fingerprint.embedding.base import (
    Embedder,
    EmbedderError,
    Embedding,
    NotPreparedError,
    TextEmbedder,
    UnreadableError,
    WeightsError,
)

__all__ = [
    "Embedder",
    "EmbedderError",
    "Embedding",
    "NotPreparedError",
    "TextEmbedder",
    "UnreadableError",
    "WeightsError",
]
