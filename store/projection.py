"""Fewer dimensions for a vector space: the principal directions of what is stored in it.

The matrix is made of the leading eigenvectors of the second-moment matrix of the stored unit vectors (principal
component analysis without centring, so that inner products, which are what is compared, are kept as well as any
projection of that rank can: Eckart and Young, 1936). Projected vectors are scaled to length 1 again and live in a space
of their own, whose name says what was done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fingerprint.embedding.base import Embedding, TextEmbedder

__all__ = ["Loss", "ProjectedEmbedder", "Projection", "fit", "loss_of"]

Floats = NDArray[np.float32]

_NEAREST: Final = 10
_QUERIES: Final = 1_000


@dataclass(frozen=True, slots=True, eq=False)
class Projection:
    """From one space to a smaller one."""

    space: str
    matrix: Floats  # (dimensions before, after), orthonormal columns

    @property
    def target(self) -> str:
        """The name of the smaller space."""
        digest = blake2b(np.ascontiguousarray(self.matrix, dtype="<f4").tobytes(), digest_size=4).hexdigest()
        return f"{self.space}/pca{self.matrix.shape[1]}-{digest}"

    def apply(self, vectors: Floats) -> Floats:
        """Project unit vectors of shape (…, before) to unit vectors of shape (…, after)."""
        projected: Floats = vectors.astype(np.float32) @ self.matrix
        lengths = np.linalg.norm(projected, axis=-1, keepdims=True)
        scaled: Floats = projected / np.maximum(lengths, np.float32(1e-12))
        return scaled


@dataclass(frozen=True, slots=True)
class Loss:
    """What a projection costs, measured on vectors it was not fitted on."""

    cosine_p99: float  # 99th percentile of the change of the cosine of a vector and each of its 10 nearest, 0 … 2
    recall: float  # share of the 10 nearest that are among the 10 nearest after it, 0 … 1
    kept: float  # share of the squared length that is kept, 0 … 1


def fit(space: str, vectors: Floats, dimensions: int) -> Projection:
    """Fit on unit vectors of shape (n, d), d > ``dimensions``."""
    moments = vectors.astype(np.float64).T @ vectors.astype(np.float64)
    _, directions = np.linalg.eigh(moments)  # ascending
    return Projection(space, np.ascontiguousarray(directions[:, ::-1][:, :dimensions], dtype=np.float32))


def loss_of(projection: Projection, vectors: Floats) -> Loss:
    """Measure on unit vectors of shape (n, d), n > 10, that the projection was not fitted on."""
    after = projection.apply(vectors)
    queries = min(_QUERIES, len(vectors))
    before_cosines = vectors[:queries] @ vectors.T
    after_cosines = after[:queries] @ after.T
    for cosines in (before_cosines, after_cosines):
        np.fill_diagonal(cosines, -2.0)  # not itself
    nearest = np.argpartition(-before_cosines, _NEAREST, axis=1)[:, :_NEAREST]
    nearest_after = np.argpartition(-after_cosines, _NEAREST, axis=1)[:, :_NEAREST]
    change = np.abs(
        np.take_along_axis(before_cosines, nearest, axis=1) - np.take_along_axis(after_cosines, nearest, axis=1)
    )
    # By value, not by number: where vectors are equal, any of them is right.
    worst = np.take_along_axis(before_cosines, nearest, axis=1).min(axis=1, keepdims=True)
    right = np.take_along_axis(before_cosines, nearest_after, axis=1) >= worst - 1e-6
    kept = float(np.mean(np.sum((vectors @ projection.matrix) ** 2, axis=1)))
    return Loss(float(np.percentile(change, 99)), float(right.mean()), kept)


class ProjectedEmbedder:
    """An embedder whose vectors are projected, in the spaces that have a projection."""

    def __init__(self, embedder: TextEmbedder, projections: Mapping[str, Projection]) -> None:
        self._embedder = embedder
        self._projections = {space: (projection, projection.target) for space, projection in projections.items()}

    @property
    def name(self) -> str:
        """The embedder's own: identities do not depend on how vectors are kept."""
        return self._embedder.name

    def encode(self, texts: Sequence[str]) -> list[Embedding | None]:
        """Embed each text by itself."""
        return [None if one is None else self._projected(one) for one in self._embedder.encode(texts)]

    def _projected(self, one: Embedding) -> Embedding:
        projection, target = self._projections.get(one.space, (None, ""))
        if projection is None or one.vector.shape != projection.matrix.shape[:1]:
            return one
        return Embedding(projection.apply(one.vector), target, one.partial)
