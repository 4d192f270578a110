"""Boosted trees read from a plain ``.npz``: no pickle, no scikit-learn at run time.

ONNX Runtime walks them (a row in about 10 µs; the same walk in numpy takes 160): they are handed to it as a
``TreeEnsembleRegressor`` (ONNX-ML operator set 3) when they are first asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import IO

import numpy as np
from numpy.typing import NDArray

from fingerprint.runtime import one_thread_options, ort

__all__ = ["Forest", "ForestError"]

FORMAT = 1
_IR_VERSION = 8


class ForestError(RuntimeError):
    """The artefact is damaged, of another format, or made for other comparisons."""


@dataclass(frozen=True, eq=False)
class Forest:
    """A sum of regression trees.

    ``feature`` (nodes,) is the column a node asks about, ``threshold`` (nodes,) what it is held against: at most that
    goes left, more goes right. A leaf points at itself; ``value`` (nodes,) is what it adds. ``roots`` (trees,),
    ``depth`` the deepest tree.
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
        (summed,) = self._session.run(["sum"], {"row": row[np.newaxis]})
        return self.baseline + self.scale * float(np.asarray(summed)[0, 0])

    @cached_property
    def _session(self) -> ort.InferenceSession:
        try:
            return ort.InferenceSession(self._graph(), one_thread_options(), providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime raises many kinds
            raise ForestError(f"these trees cannot be walked: {error}") from error

    def _graph(self) -> bytes:
        from onnx import TensorProto, helper

        numbers = np.arange(len(self.feature))
        leaf = self.left == numbers
        owner = self._owners()
        trees = helper.make_node(
            "TreeEnsembleRegressor",
            ["row"],
            ["sum"],
            domain="ai.onnx.ml",
            n_targets=1,
            nodes_treeids=owner.tolist(),
            nodes_nodeids=numbers.tolist(),
            nodes_featureids=self.feature.tolist(),
            nodes_modes=np.where(leaf, "LEAF", "BRANCH_LEQ").tolist(),
            nodes_values=np.where(leaf, 0.0, self.threshold).tolist(),
            nodes_truenodeids=np.where(leaf, 0, self.left).tolist(),
            nodes_falsenodeids=np.where(leaf, 0, self.right).tolist(),
            target_treeids=owner[leaf].tolist(),
            target_nodeids=numbers[leaf].tolist(),
            target_ids=[0] * int(leaf.sum()),
            target_weights=self.value[leaf].tolist(),
        )
        graph = helper.make_graph(
            [trees],
            "trees",
            [helper.make_tensor_value_info("row", TensorProto.FLOAT, [1, None])],
            [helper.make_tensor_value_info("sum", TensorProto.FLOAT, [1, 1])],
        )
        operators = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
        made: bytes = helper.make_model(graph, opset_imports=operators, ir_version=_IR_VERSION).SerializeToString()
        return made

    def _owners(self) -> NDArray[np.int64]:
        """The tree each node belongs to, shape ``(nodes,)``."""
        owner = np.full(len(self.feature), -1, np.int64)
        level, tree = self.roots, np.arange(len(self.roots))
        for _ in range(self.depth + 1):
            owner[level] = tree
            inner = self.left[level] != level
            level, tree = level[inner], tree[inner]
            level, tree = np.concatenate([self.left[level], self.right[level]]), np.concatenate([tree, tree])
        if len(level):
            raise ForestError("the trees are deeper than they say, or have loops")
        return owner

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
