"""The vector index: exact while small, in cells when large, never finding what was removed."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from store.index import VectorIndex
from store.neighbours import Bucket

HERE = Bucket(b"p", b"i", "space")
DIMENSIONS = 24


def unit(count: int, seed: int = 1) -> NDArray[np.float32]:
    vectors = np.random.default_rng(seed).standard_normal((count, DIMENSIONS))
    scaled: NDArray[np.float32] = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return scaled


def nearest(vectors: NDArray[np.float32], query: NDArray[np.float32], count: int) -> list[int]:
    return list(np.argsort(-(vectors @ query))[:count])


def test_while_small_the_nearest_are_exactly_the_nearest() -> None:
    index, vectors = VectorIndex(), unit(500)
    index.add(HERE, range(500), vectors)
    for query in unit(20, seed=2):
        found = index.search(HERE, query, 5)
        assert [number for number, _ in found] == nearest(vectors, query, 5)
        for number, similarity in found:
            assert similarity == pytest.approx(float(vectors[number] @ query), abs=2e-3)


def test_buckets_do_not_see_each_other() -> None:
    index, vectors = VectorIndex(), unit(6)
    others = [HERE._replace(partition=b"q"), HERE._replace(identity=b"j"), HERE._replace(space="other")]
    index.add(HERE, [1], vectors[:1])
    for number, bucket in enumerate(others, start=2):
        assert index.search(bucket, vectors[0], 3) == []
        index.add(bucket, [number], vectors[:1])
    assert [number for number, _ in index.search(HERE, vectors[0], 3)] == [1]
    assert (len(index), index.buckets) == (4, 4)


def test_what_was_removed_is_not_found_and_an_empty_bucket_takes_no_room() -> None:
    index, vectors = VectorIndex(), unit(10)
    index.add(HERE, range(10), vectors)
    assert index.remove(HERE, [3, 4, 99]) == 2
    assert index.remove(HERE, [3]) == 0
    assert {number for number, _ in index.search(HERE, vectors[3], 10)} == {0, 1, 2, 5, 6, 7, 8, 9}
    assert index.remove(HERE, range(10)) == 8
    assert (index.search(HERE, vectors[3], 10), index.buckets) == ([], 0)
    assert index.remove(HERE, [1]) == 0


def test_a_vector_of_another_length_is_refused() -> None:
    index = VectorIndex()
    index.add(HERE, [1], unit(1))
    with pytest.raises(ValueError, match="dimensions"):
        index.add(HERE, [2], np.ones((1, 3), dtype=np.float32))
    assert index.search(HERE, np.ones(3, dtype=np.float32), 1) == []


def test_a_large_bucket_gets_cells_and_still_finds_what_is_near() -> None:
    index = VectorIndex(ivf_threshold=2_000)
    centres = unit(50, seed=3)
    vectors = np.repeat(centres, 60, axis=0) + 0.15 * unit(3_000, seed=4)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    index.add(HERE, range(1_999), vectors[:1_999])
    assert index.due() == []
    index.add(HERE, range(1_999, 3_000), vectors[1_999:])
    assert index.due() == [HERE]
    index.make_cells(HERE)
    assert index.due() == []
    assert len(index) == 3_000

    right = 0
    for number in range(0, 3_000, 30):
        found = index.search(HERE, vectors[number], 5)
        assert found[0][0] == number  # itself, always
        right += len({one for one, _ in found} & set(nearest(vectors, vectors[number], 5)))
    assert right >= 0.95 * 5 * 100

    assert index.remove(HERE, range(100)) == 100
    assert all(one >= 100 for one, _ in index.search(HERE, vectors[5], 50))
    index.add(HERE, [5], vectors[5:6])
    assert index.search(HERE, vectors[5], 1)[0][0] == 5


def test_a_bucket_that_grew_much_gets_new_cells() -> None:
    index, vectors = VectorIndex(ivf_threshold=1_000), unit(4_400)
    index.add(HERE, range(1_100), vectors[:1_100])
    index.make_cells(HERE)
    index.add(HERE, range(1_100, 4_399), vectors[1_100:4_399])
    assert index.due() == []
    index.add(HERE, [4_399], vectors[4_399:])
    assert index.due() == [HERE]
    index.make_cells(HERE)
    assert {index.search(HERE, vectors[number], 1)[0][0] for number in range(0, 4_400, 11)} == set(range(0, 4_400, 11))


def test_changes_made_while_cells_are_being_made_are_in_them() -> None:
    index, vectors = VectorIndex(ivf_threshold=1_000), unit(6_000)
    index.add(HERE, range(5_000), vectors[:5_000])
    making = threading.Thread(target=index.make_cells, args=(HERE,))
    making.start()
    number = 5_000
    while making.is_alive() and number < 6_000:
        index.add(HERE, [number], vectors[number : number + 1])
        index.remove(HERE, [number - 5_000])
        assert index.search(HERE, vectors[number], 1)[0][0] == number
        number += 1
    making.join()
    assert len(index) == 5_000
    for there in range(5_000, number):
        assert index.search(HERE, vectors[there], 1)[0][0] == there
        gone = there - 5_000
        assert gone not in [one for one, _ in index.search(HERE, vectors[gone], 3)]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20)), max_size=60))
def test_adding_and_removing_in_any_order_keeps_exactly_what_is_there(steps: list[tuple[bool, int]]) -> None:
    index, vectors = VectorIndex(), unit(21)
    there: set[int] = set()
    for add, number in steps:
        if add and number not in there:
            index.add(HERE, [number], vectors[number : number + 1])
            there.add(number)
        elif not add:
            assert index.remove(HERE, [number]) == (number in there)
            there.discard(number)
    assert {number for number, _ in index.search(HERE, vectors[0], 21)} == there
    assert len(index) == len(there)
