"""Nearest neighbours in memory: FAISS, one index per bucket. Never the source of truth, rebuilt from the database.

A bucket is what may be compared: partition, identity and vector space. While it is small every vector is compared
(exact inner product); above a threshold an inverted file (IVF-Flat) looks at the nearest cells only. Vectors are held
once, as float16: 768 bytes each for 384 dimensions.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import faiss
import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from store import reads
from store.counters import Failures
from store.index_file import Block, Cell, End, Header, NotThere, ShelfBlock, Unusable, read, write
from store.neighbours import Bucket

__all__ = ["Bucket", "VectorIndex", "one_thread"]

log = logging.getLogger(__name__)

Floats = NDArray[np.float32]
Numbers = NDArray[np.int64]

_TRAIN_PER_CELL: Final = 39  # vectors FAISS wants to see for each cell
_RETRAIN_AT: Final = 4  # times the size it was trained at
_MOST_PROBED: Final = 48  # cells a search looks into
_COMPARED: Final = 128  # vectors of the file that are compared with the database, of the newest and of all
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
        index = _inverted(self.dimension, cells)
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

    # ------------------------------------------------------------------------------------------ loading and saving

    @classmethod
    def trained(cls, sample: Floats, size: int) -> _Shelf:
        """Return an empty shelf with cells made from ``sample`` (n, d), for ``size`` vectors that are to come."""
        shelf = cls(sample.shape[1])
        shelf.index = _inverted(shelf.dimension, _cells(size))
        shelf.index.train(sample)
        shelf.trained_at = size
        return shelf

    @classmethod
    def restored(cls, block: ShelfBlock) -> _Shelf:
        """Return an empty shelf with the cells it had. Raises `Unusable`."""
        shelf = cls(block.dimension)
        if block.centres:
            centres = np.frombuffer(block.centres, dtype="<f4").reshape(-1, block.dimension)
            shelf.index = _inverted(block.dimension, len(centres))
            shelf.index.quantizer.add(np.ascontiguousarray(centres))
            shelf.index.is_trained = True
            shelf.trained_at = block.trained_at
        return shelf

    def put(self, cell: int, numbers: Numbers, codes: NDArray[np.uint8]) -> None:
        """Add vectors of a cell as they are held. Raises `Unusable` where that does not fit."""
        if len(codes) != len(numbers) * self.dimension * 2:
            raise Unusable("is damaged")
        if not self.trained_at:
            self.index.add_with_ids(self._floats(codes).astype(np.float32), numbers)
            return
        if not 0 <= cell < self.index.nlist:
            raise Unusable("is damaged")
        self.index.invlists.add_entries(cell, len(numbers), faiss.swig_ptr(numbers), faiss.swig_ptr(codes))
        self.index.ntotal += len(numbers)

    def numbers(self) -> Numbers:
        """Return the numbers of all vectors, ascending."""
        with self.lock:
            if not self.trained_at:
                return np.sort(faiss.vector_to_array(self.index.id_map).astype(np.int64))
            lists = self.index.invlists
            found = [
                faiss.rev_swig_ptr(lists.get_ids(cell), lists.list_size(cell)).copy()
                for cell in range(lists.nlist)
                if lists.list_size(cell)
            ]
        return np.sort(np.concatenate(found)) if found else np.empty(0, np.int64)

    def blocks(self, bucket: Bucket) -> Iterator[Block]:
        """Return what is in the shelf, cell by cell, so that searches wait for one cell at most.

        What changes meanwhile may be in it or not. Raises `Unusable` where all cells are made anew meanwhile.
        """
        with self.lock:
            index, trained_at = self.index, self.trained_at
            centres = b""
            if trained_at:
                centres = index.quantizer.reconstruct_n(0, index.nlist).astype("<f4").tobytes()
            flat = None if trained_at else self._contents()
        yield ShelfBlock(*bucket, self.dimension, trained_at, centres)
        if flat is not None:
            yield Cell(0, flat[0].astype("<i8").tobytes(), flat[1].astype("<f2").tobytes())
            return
        for cell in range(index.nlist):
            with self.lock:
                if self.index is not index:
                    raise Unusable("it changed meanwhile")
                size = index.invlists.list_size(cell)
                if not size:
                    continue
                numbers = faiss.rev_swig_ptr(index.invlists.get_ids(cell), size).astype("<i8").tobytes()
                codes = faiss.rev_swig_ptr(index.invlists.get_codes(cell), size * self.dimension * 2).tobytes()
            yield Cell(cell, numbers, codes)


def _inverted(dimension: int, cells: int) -> Any:
    index = faiss.IndexIVFScalarQuantizer(
        faiss.IndexFlatIP(dimension),
        dimension,
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
    index.nprobe = max(8, min(cells // 12, _MOST_PROBED))
    return index


class VectorIndex:
    """All buckets. Safe to use from any thread; each call may take up to a few milliseconds, so off the event loop."""

    def __init__(self, ivf_threshold: int = 20_000, *, file: Path | None = None, store: str = "") -> None:
        """``file``: where the index is kept between starts once a bucket has cells; ``store`` names its database."""
        self._threshold = ivf_threshold
        self._file = file
        self._store = store
        self._changed = 0  # vectors that came or went since the file was written
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
            self._changed += len(rows)
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
            self._changed += len(numbers)
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
        """Fill the index with what the database holds: from the file as far as it is right, the rest from the database.

        What is damaged is left out, and counted.
        """
        self._shelves, self._changed = load(connection, self._threshold, failures, file=self._file, store=self._store)
        self.keep_up()

    def keep_up(self) -> None:
        """Give outgrown buckets cells, and write the file anew where much has changed."""
        for bucket in self.due():
            self.make_cells(bucket)
        if self._changed >= max(self._threshold, len(self) // 10):
            self.save()

    def save(self) -> None:
        """Write the file, where the index is large enough to be worth it; else there is none."""
        if self._file is None:
            return
        with self._lock:
            shelves = dict(self._shelves)
            self._changed = 0
        try:
            if any(shelf.trained_at for shelf in shelves.values()):
                write(self._file, _blocks(self._store, shelves))
            else:
                self._file.unlink(missing_ok=True)
        except (OSError, Unusable) as error:  # the next start takes longer, no more
            log.warning("the vector index could not be written to %s: %s", self._file, error)

    def close(self) -> None:
        """Write the file where anything has changed."""
        if self._changed or (self._file is not None and not self._file.exists()):
            self.save()

    def totals(self, connection: Connection) -> tuple[int, int]:
        """Return how many vectors there are, in how many buckets."""
        return len(self), self.buckets

    def clear(self) -> None:
        """Remove everything."""
        with self._lock:
            self._changed += sum(shelf.size for shelf in self._shelves.values())
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
            self._changed += sum(shelf.size for shelf in self._shelves.values())

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


# ---------------------------------------------------------------------------------------------- loading


def load(
    connection: Connection, threshold: int, failures: Failures, *, file: Path | None, store: str
) -> tuple[dict[Bucket, _Shelf], int]:
    """Return the shelves of everything the database holds, and how many vectors were not in the file."""
    stored = reads.numbers_by_bucket(connection)
    buckets = _buckets(connection, stored)
    shelves: dict[Bucket, _Shelf] = {}
    if file is not None:
        try:
            shelves = _restore(connection, file, store, set(buckets.values()), stored)
        except NotThere:
            log.info("there is no saved vector index %s yet: it is made from the database", file)
        except Unusable as why:
            log.info("the vector index is made from the database: %s %s", file, why)
    changed = 0
    missing: dict[bytes, Numbers] = {}
    for digest, bucket in buckets.items():
        numbers, shelf = stored[digest], shelves.get(bucket)
        if shelf is None:
            missing[digest] = numbers
            continue
        there = shelf.numbers()
        gone = np.setdiff1d(there, numbers, assume_unique=True)
        if len(gone):
            shelf.remove(gone)
            changed += len(gone)
        if len(new := np.setdiff1d(numbers, there, assume_unique=True)):
            missing[digest] = new
    for digest, numbers in missing.items():
        if buckets[digest] not in shelves and len(numbers) >= threshold:
            sample = _sample(connection, numbers)
            if sample is not None:
                shelves[buckets[digest]] = _Shelf.trained(sample, len(numbers))
    for digest, new_numbers, rows in _read_missing(connection, missing, sum(map(len, stored.values()))):
        changed += _put(shelves, buckets[digest], new_numbers, rows, failures)
    return {bucket: shelf for bucket, shelf in shelves.items() if shelf.size}, changed


def _buckets(connection: Connection, stored: Mapping[bytes, Numbers]) -> dict[bytes, Bucket]:
    """Return the buckets there are, by digest; one that is not what its digest says is left out."""
    found = {}
    for digest, numbers in stored.items():
        parts = reads.bucket_of(connection, int(numbers[0]))
        if parts is not None and Bucket(*parts).digest() == digest:
            found[digest] = Bucket(*parts)
    return found


def _restore(
    connection: Connection, file: Path, store: str, known: set[Bucket], stored: Mapping[bytes, Numbers]
) -> dict[Bucket, _Shelf]:
    """Return the shelves of a file, of the buckets that are ``known``. Raises `Unusable`."""
    expected = dict(reads.vectors_of(connection, _compared(stored)))
    compared = np.fromiter(expected, dtype=np.int64, count=len(expected))
    shelves: dict[Bucket, _Shelf] = {}
    shelf: _Shelf | None = None
    for nth, block in enumerate(read(file)):
        if nth == 0:
            if not isinstance(block, Header) or block.store != store:
                raise Unusable("belongs to another store")
        elif isinstance(block, ShelfBlock):
            bucket = Bucket(block.partition, block.identity, block.space)
            shelf = _Shelf.restored(block) if bucket in known else None
            if shelf is not None:
                shelves[bucket] = shelf
        elif isinstance(block, Cell) and shelf is not None:
            numbers = np.frombuffer(block.numbers, dtype="<i8").astype(np.int64)
            codes = np.frombuffer(block.vectors, dtype=np.uint8)
            shelf.put(block.cell, numbers, codes)
            width = shelf.dimension * 2
            for row in np.flatnonzero(np.isin(numbers, compared)):
                if codes[row * width : (row + 1) * width].tobytes() != expected[int(numbers[row])]:
                    raise Unusable("holds other vectors than this database")
    return shelves


def _compared(stored: Mapping[bytes, Numbers]) -> list[int]:
    """Return the numbers whose vectors are compared with the file's: the newest, where a restored backup differs, and
    some others.
    """  # fmt: skip
    every = np.sort(np.concatenate(list(stored.values()))) if stored else np.empty(0, np.int64)
    some = np.random.default_rng().choice(every, min(_COMPARED, len(every)), replace=False)
    return [int(number) for number in np.union1d(every[-_COMPARED:], some)]


def _sample(connection: Connection, numbers: Numbers) -> Floats | None:
    """Return vectors to make cells from, shape (n, d); None where none can be read."""
    count = _cells(len(numbers)) * _TRAIN_PER_CELL
    chosen = np.sort(np.random.default_rng(1).permutation(numbers)[:count])
    vectors = [vector for _, vector in reads.vectors_of(connection, [int(number) for number in chosen])]
    if not vectors:
        return None
    width, _ = Counter(map(len, vectors)).most_common(1)[0]
    if width % 2 or not width:
        return None
    data = b"".join(vector for vector in vectors if len(vector) == width)
    return np.frombuffer(data, dtype="<f2").reshape(-1, width // 2).astype(np.float32)


def _read_missing(
    connection: Connection, missing: Mapping[bytes, Numbers], size: int
) -> Iterator[tuple[bytes, list[int], list[bytes]]]:
    """Read the vectors that are not there yet, as (digest, numbers, vectors): all in one pass where they are many."""
    count = sum(map(len, missing.values()))
    if count * 5 < size:
        for digest, numbers in missing.items():
            for start in range(0, len(numbers), _ADD_ROWS):
                part = list(reads.vectors_of(connection, numbers[start : start + _ADD_ROWS].tolist()))
                yield digest, [number for number, _ in part], [vector for _, vector in part]
        return
    for rows in reads.every_vector(connection, _ADD_ROWS) if count else ():
        grouped: dict[bytes, tuple[list[int], list[bytes]]] = {}
        for number, vector, digest in rows:
            if digest in missing and vector is not None:
                numbers_of, vectors_of = grouped.setdefault(digest, ([], []))
                numbers_of.append(number)
                vectors_of.append(vector)
        for digest, (numbers_of, vectors_of) in grouped.items():
            wanted = np.isin(np.array(numbers_of), missing[digest], assume_unique=True)
            if wanted.all():
                yield digest, numbers_of, vectors_of
            elif wanted.any():
                kept = np.flatnonzero(wanted)
                yield digest, [numbers_of[row] for row in kept], [vectors_of[row] for row in kept]


def _put(
    shelves: dict[Bucket, _Shelf], bucket: Bucket, numbers: list[int], vectors: list[bytes], failures: Failures
) -> int:
    """Add vectors to their shelf, which is made where there is none; returns how many were right."""
    added = 0
    widths = Counter(map(len, vectors))
    # The commonest length first: it is the space's, another one is damage.
    for width, _ in widths.most_common():
        rows = [row for row, vector in enumerate(vectors) if len(vector) == width]
        shelf = shelves.get(bucket)
        if width % 2 or not width or (shelf is not None and shelf.dimension * 2 != width):
            failures.note("load", "damaged", times=len(rows))
            continue
        if shelf is None:
            shelf = shelves[bucket] = _Shelf(width // 2)
        data = np.frombuffer(b"".join(vectors[row] for row in rows), dtype="<f2").reshape(len(rows), -1)
        shelf.add(np.array([numbers[row] for row in rows], dtype=np.int64), data.astype(np.float32))
        added += len(rows)
    return added


def _blocks(store: str, shelves: Mapping[Bucket, _Shelf]) -> Iterator[Block]:
    yield Header(store)
    for bucket, shelf in shelves.items():
        yield from shelf.blocks(bucket)
    yield End(sum(shelf.size for shelf in shelves.values()))
