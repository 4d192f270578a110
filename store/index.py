"""Nearest neighbours in memory: FAISS, one index per bucket. Never the source of truth, rebuilt from the database.

A bucket is what may be compared: partition, identity and vector space. While it is small every vector is compared
(exact inner product); above a threshold an inverted file (IVF-Flat) looks at the nearest cells only. Vectors are held
once, as float16: 768 bytes each for 384 dimensions.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any, Final

import faiss
import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from store import reads
from store.counters import Failures
from store.neighbours import Bucket

__all__ = ["Bucket", "VectorIndex", "one_thread"]

Floats = NDArray[np.float32]
Numbers = NDArray[np.int64]

_TRAIN_PER_CELL: Final = 39  # vectors FAISS wants to see for each cell
_RETRAIN_AT: Final = 4  # times the size it was trained at
_ADD_ROWS: Final = 8_192  # rows turned into float32 at a time


def one_thread() -> None:
    """Keep FAISS to the calling thread (the number is a property of each thread); for a pool's ``initializer``."""
    faiss.omp_set_num_threads(1)


def _cells(size: int) -> int:
    return max(16, min(4_096, math.isqrt(size)))


class _Shelf:
    """The index of one bucket."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self.lock = threading.Lock()
        self.trained_at = 0  # size when the cells were made; 0: every vector is compared
        self.index: Any = faiss.IndexIDMap(
            faiss.IndexScalarQuantizer(dimension, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)
        )
        self.missed: list[tuple[Numbers, Floats | None]] | None = None  # changes made while cells are being made

    @property
    def size(self) -> int:
        return int(self.index.ntotal)

    def add(self, numbers: Numbers, vectors: Floats) -> None:
        with self.lock:
            self.index.add_with_ids(vectors, numbers)
            if self.missed is not None:
                self.missed.append((numbers, vectors))

    def remove(self, numbers: Numbers) -> int:
        with self.lock:
            removed = int(self.index.remove_ids(faiss.IDSelectorBatch(numbers)))
            if self.missed is not None:
                self.missed.append((numbers, None))
            return removed

    def search(self, vector: Floats, count: int) -> tuple[Numbers, Floats]:
        with self.lock:
            similarities, numbers = self.index.search(vector[np.newaxis], count)
        found = numbers[0] >= 0
        return numbers[0][found], np.clip(similarities[0][found], -1.0, 1.0)

    def _contents(self) -> tuple[Numbers, NDArray[np.float16]]:
        """Copy numbers and vectors out, in the form they are held in (under the lock)."""
        if not self.trained_at:
            flat: Any = faiss.downcast_index(self.index.index)
            codes = faiss.vector_to_array(flat.codes)
            return faiss.vector_to_array(self.index.id_map).astype(np.int64), self._floats(codes)
        lists = self.index.invlists
        filled = [(cell, lists.list_size(cell)) for cell in range(lists.nlist) if lists.list_size(cell)]
        width = self.dimension * 2  # bytes of a vector
        numbers = [faiss.rev_swig_ptr(lists.get_ids(cell), length).copy() for cell, length in filled]
        held = [faiss.rev_swig_ptr(lists.get_codes(cell), length * width).copy() for cell, length in filled]
        return np.concatenate(numbers), self._floats(np.concatenate(held))

    def _floats(self, codes: NDArray[np.uint8]) -> NDArray[np.float16]:
        return codes.view(np.float16).reshape(-1, self.dimension)

    def make_cells(self) -> None:
        """Divide the vectors into cells (k-means); searches and changes go on meanwhile."""
        with self.lock:
            numbers, vectors = self._contents()
            self.missed = []
        size = len(numbers)
        cells = _cells(size)
        index = faiss.IndexIVFScalarQuantizer(
            faiss.IndexFlatIP(self.dimension),
            self.dimension,
            cells,
            faiss.ScalarQuantizer.QT_fp16,
            faiss.METRIC_INNER_PRODUCT,
            False,  # plain vectors, not differences to the centre: what is stored is what is compared
        )
        index.cp.niter = 6
        index.cp.min_points_per_centroid = 1
        index.cp.max_points_per_centroid = _TRAIN_PER_CELL
        index.cp.spherical = True
        index.cp.seed = 1
        index.nprobe = max(8, cells // 12)
        sample = np.random.default_rng(1).permutation(size)[: cells * _TRAIN_PER_CELL]
        index.train(vectors[np.sort(sample)].astype(np.float32))
        for start in range(0, size, _ADD_ROWS):
            rows = slice(start, start + _ADD_ROWS)
            index.add_with_ids(vectors[rows].astype(np.float32), numbers[rows])
        del vectors
        with self.lock:
            for changed, added in self.missed or ():
                if added is None:
                    index.remove_ids(faiss.IDSelectorBatch(changed))
                else:
                    index.add_with_ids(added, changed)
            self.index, self.trained_at, self.missed = index, size, None


class VectorIndex:
    """All buckets. Safe to use from any thread; each call may take up to a few milliseconds, so off the event loop."""

    def __init__(self, ivf_threshold: int = 20_000) -> None:
        self._threshold = ivf_threshold
        self._shelves: dict[Bucket, _Shelf] = {}
        self._lock = threading.Lock()
        self._missed: list[tuple[Bucket, Numbers, Floats | None]] | None = None  # changes during `rebuild`

    def __len__(self) -> int:
        with self._lock:
            return sum(shelf.size for shelf in self._shelves.values())

    @property
    def buckets(self) -> int:
        """How many buckets there are."""
        return len(self._shelves)

    def add(self, bucket: Bucket, numbers: Sequence[int] | Numbers, vectors: Floats) -> None:
        """Add unit vectors of shape (n, d) under ``numbers`` (n); a number must not be in the bucket already.

        Raises `ValueError` where the dimension is not the bucket's.
        """
        rows = np.ascontiguousarray(vectors, dtype=np.float32)
        with self._lock:
            if self._missed is not None:
                self._missed.append((bucket, np.asarray(numbers, dtype=np.int64), rows))
            shelf = self._shelves.get(bucket)
            if shelf is None:
                shelf = self._shelves[bucket] = _Shelf(rows.shape[1])
        if rows.shape[1] != shelf.dimension:
            raise ValueError(f"vectors of {rows.shape[1]} dimensions in a space of {shelf.dimension}")
        shelf.add(np.asarray(numbers, dtype=np.int64), rows)

    def remove(self, bucket: Bucket, numbers: Sequence[int] | Numbers) -> int:
        """Remove what is there of ``numbers``; returns how many were."""
        with self._lock:
            if self._missed is not None:
                self._missed.append((bucket, np.asarray(numbers, dtype=np.int64), None))
            shelf = self._shelves.get(bucket)
        if shelf is None:
            return 0
        removed = shelf.remove(np.asarray(numbers, dtype=np.int64))
        if not shelf.size:
            with self._lock:
                if not shelf.size and self._shelves.get(bucket) is shelf:
                    del self._shelves[bucket]
        return removed

    def search(
        self, bucket: Bucket, vector: Floats, count: int, *, connection: Connection | None = None
    ) -> list[tuple[int, float]]:
        """Return up to ``count`` nearest of a unit vector of shape (d,), as (number, cosine −1 … 1), nearest first."""
        with self._lock:
            shelf = self._shelves.get(bucket)
        if shelf is None or vector.shape != (shelf.dimension,):
            return []
        numbers, similarities = shelf.search(np.ascontiguousarray(vector, dtype=np.float32), count)
        return list(zip(numbers.tolist(), similarities.tolist(), strict=True))

    def load(self, connection: Connection, now: float, failures: Failures) -> None:
        """Fill the index with what may be served. What is damaged is left out, and counted."""
        for part in reads.all_vectors(connection, now):
            bucket = Bucket(part.partition, part.identity, part.space)
            try:
                self.add(bucket, part.numbers, part.vectors.astype(np.float32))
            except ValueError as error:
                failures.note("load", error)
        self.keep_up()

    def keep_up(self) -> None:
        """Give outgrown buckets cells."""
        for bucket in self.due():
            self.make_cells(bucket)

    def totals(self, connection: Connection) -> tuple[int, int]:
        """Return how many vectors there are, in how many buckets."""
        return len(self), self.buckets

    def clear(self) -> None:
        """Remove everything."""
        with self._lock:
            self._shelves = {}
            if self._missed is not None:
                self._missed.clear()

    def rebuild(self, connection: Connection, now: float, failures: Failures) -> None:
        """Load a new index, then take its place; searches and changes go on with the old one meanwhile.

        Changes made meanwhile are made in the new one too, whether or not they were loaded already. Only one thread may
        do so at a time. Where loading fails, that is raised and the old index stays.
        """
        with self._lock:
            self._missed = []
        fresh = VectorIndex(self._threshold)
        try:
            fresh.load(connection, now, failures)
        except BaseException:
            with self._lock:
                self._missed = None
            raise
        with self._lock:
            for bucket, numbers, vectors in self._missed or ():
                fresh.remove(bucket, numbers)
                if vectors is not None:
                    fresh.add(bucket, numbers, vectors)
            self._shelves, self._missed = fresh._shelves, None

    def due(self) -> list[Bucket]:
        """Return the buckets that have outgrown their form."""
        with self._lock:
            return [
                bucket
                for bucket, shelf in self._shelves.items()
                if shelf.size >= max(self._threshold, shelf.trained_at * _RETRAIN_AT) and shelf.missed is None
            ]

    def make_cells(self, bucket: Bucket) -> None:
        """Divide a bucket into cells: a few seconds for 100,000 vectors. Only one thread may do so at a time."""
        with self._lock:
            shelf = self._shelves.get(bucket)
        if shelf is not None:
            shelf.make_cells()
