"""Two answers compared with the help of the embedder. Blocks: for background threads only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fingerprint.embedding.base import Embedding
from store.agreement import Agreement, Limits, compare
from store.counters import Failures
from store.window import cosine

__all__ = ["Compared", "Comparer"]

Floats = NDArray[np.float32]
Embed = Callable[[Sequence[str]], Sequence[Embedding | None]]


@dataclass(frozen=True, slots=True)
class Compared:
    """The agreement of two answers, and their vectors, shape (d,), where both were read to their end in one space."""

    agreement: Agreement
    space: str = ""
    one: Floats | None = None
    other: Floats | None = None


class Comparer:
    """Compares answers; without an embedder by their words and facts alone."""

    def __init__(self, embed: Embed | None, failures: Failures) -> None:
        self._embed = embed
        self._failures = failures

    def compare(self, one: str, other: str, limits: Limits) -> Compared:
        """Compare two answers to one question; never raises."""
        space, mine, theirs = self._vectors(one, other)
        near = None if mine is None or theirs is None else cosine(mine, theirs)
        try:
            return Compared(compare(one, other, near, limits=limits), space, mine, theirs)
        except Exception as error:  # whatever it is, it is no approval
            self._failures.note("compare", error)
            return Compared(Agreement("unclear", "The comparison failed.", near, "error"), space, mine, theirs)

    def _vectors(self, one: str, other: str) -> tuple[str, Floats | None, Floats | None]:
        if self._embed is None or not one.strip() or not other.strip():
            return "", None, None
        try:
            mine, theirs = self._embed([one, other])
        except Exception as error:
            self._failures.note("compare", error)
            return "", None, None
        if mine is None or theirs is None or mine.partial or theirs.partial or mine.space != theirs.space:
            return "", None, None
        return mine.space, mine.vector, theirs.vector
