"""Boosted trees read from a plain ``.npz`` and walked with numpy: no pickle, no scikit-learn at run time.

All trees stand in one set of arrays. A row walks down every tree at once, one level a step, so the cost is the depth
of the deepest tree and not the number of trees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO

import numpy as np
from numpy.typing import NDArray

__all__ = ["Forest", "ForestError"]

FORMAT = 1


class ForestError(RuntimeError):
    """The artefact is damaged, of another format, or made for other comparisons."""


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """A sum of regression trees.

    ``feature`` (nodes,) is the column a node asks about, ``threshold`` (nodes,) what it is held against: at most that
    goes left, more goes right. A leaf asks about column 0 with threshold infinity and points at itself, so walking on
    does no harm. ``value`` (nodes,) is what a leaf adds. ``roots`` (trees,), ``depth`` the deepest tree.
    """

    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: NDArray[np.float32]
    roots: NDArray[np.int32]
    depth: int
    baseline: float
    scale: float

    def score(self, row: NDArray[np.float32]) -> float:
        """The logit of one row of comparisons, shape ``(columns,)``."""
        node = self.roots
        for _ in range(self.depth):
            node = np.where(row[self.feature[node]] <= self.threshold[node], self.left[node], self.right[node])
        return self.baseline + self.scale * float(self.value[node].sum())

    @classmethod
    def read(cls, file: IO[bytes], *, names: tuple[str, ...]) -> Forest:
        """Read an artefact. Raises ``ForestError`` where it was not made for the comparisons called ``names``."""
        try:
            with np.load(file, allow_pickle=False) as table:
                if int(table["format"]) != FORMAT:
                    raise ForestError(f"trees of format {int(table['format'])}, this code reads {FORMAT}")
                if bytes(table["names"]).decode() != "\n".join(names):
                    raise ForestError("the trees were made for other comparisons than this code computes")
                forest = cls(
                    feature=table["feature"].astype(np.int32),
                    threshold=table["threshold"].astype(np.float32),
                    left=table["left"].astype(np.int32),
                    right=table["right"].astype(np.int32),
                    value=table["value"].astype(np.float32),
                    roots=table["roots"].astype(np.int32),
                    depth=int(table["depth"]),
                    baseline=float(table["baseline"]),
                    scale=float(table["scale"]),
                )
        except (KeyError, ValueError, OSError) as error:
            raise ForestError(f"unreadable trees: {error}") from error
        nodes = len(forest.feature)
        for pointer in (forest.left, forest.right, forest.roots):
            if len(pointer) and (pointer.min() < 0 or pointer.max() >= nodes):
                raise ForestError("a node points outside the trees")
        if nodes and (forest.feature.min() < 0 or forest.feature.max() >= len(names)):
            raise ForestError("a node asks about a comparison that does not exist")
        return forest

    def write(self, file: IO[bytes], *, names: tuple[str, ...]) -> None:
        """Write the artefact that ``read`` reads."""
        np.savez_compressed(
            file,
            format=np.int32(FORMAT),
            names=np.frombuffer("\n".join(names).encode(), np.uint8),
            feature=self.feature.astype(np.int16),
            threshold=self.threshold.astype(np.float32),
            left=self.left,
            right=self.right,
            value=self.value.astype(np.float32),
            roots=self.roots,
            depth=np.int32(self.depth),
            baseline=np.float64(self.baseline),
            scale=np.float64(self.scale),
        )
