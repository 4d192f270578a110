"""The forest: what it computes, and what it refuses to load."""

from __future__ import annotations

import io

import numpy as np
import pytest

from store.confidence.trees import Forest, ForestError

NAMES = ("first", "second")


def stump() -> Forest:
    """One tree: first <= 0.5 gives -1; else second <= 2 gives 3, else 5."""
    inf = np.inf
    return Forest(
        feature=np.array([0, 0, 1, 0, 0], np.int32),
        threshold=np.array([0.5, inf, 2.0, inf, inf], np.float32),
        left=np.array([1, 1, 3, 3, 4], np.int32),
        right=np.array([2, 1, 4, 3, 4], np.int32),
        value=np.array([0, -1, 0, 3, 5], np.float32),
        roots=np.array([0], np.int32),
        depth=2,
        baseline=0.25,
        scale=1.0,
    )


@pytest.mark.parametrize(("row", "score"), [((0.5, 9), -0.75), ((0.6, 2), 3.25), ((0.6, 2.1), 5.25)])
def test_a_row_walks_to_its_leaf(row: tuple[float, float], score: float) -> None:
    assert stump().score(np.array(row, np.float32)) == pytest.approx(score)


def test_what_is_written_is_read() -> None:
    file = io.BytesIO()
    stump().write(file, names=NAMES)
    file.seek(0)
    again = Forest.read(file, names=NAMES)
    assert again.score(np.array([0.6, 3], np.float32)) == pytest.approx(5.25)


def test_trees_for_other_comparisons_are_refused() -> None:
    file = io.BytesIO()
    stump().write(file, names=NAMES)
    file.seek(0)
    with pytest.raises(ForestError, match="other comparisons"):
        Forest.read(file, names=("first", "third"))


def test_a_damaged_file_is_refused() -> None:
    with pytest.raises(ForestError):
        Forest.read(io.BytesIO(b"not an archive"), names=NAMES)


def test_a_pointer_outside_the_trees_is_refused() -> None:
    broken = stump()
    broken.left[0] = 99
    file = io.BytesIO()
    broken.write(file, names=NAMES)
    file.seek(0)
    with pytest.raises(ForestError, match="outside"):
        Forest.read(file, names=NAMES)


def test_pickles_are_never_loaded() -> None:
    file = io.BytesIO()
    np.savez(file, format=np.array([{"a": 1}], dtype=object))
    file.seek(0)
    with pytest.raises(ForestError):
        Forest.read(file, names=NAMES)
