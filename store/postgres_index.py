"""Nearest neighbours by pgvector: partition, identity and vector space are a condition of the query itself.

A small bucket is compared vector by vector, which is exact and, up to some thousand vectors, also fastest. A large one
is searched through an HNSW index over all vectors of its space; pgvector goes on reading that index until enough of
the bucket was found (iterative scan). The larger the share of the bucket, the less of the index is read for it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import URL, Connection, create_engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from fingerprint.text import utf8
from store.bounded import Bounded
from store.counters import Failures
from store.halves import to_halfvec
from store.neighbours import Bucket
from store.postgres import connect_args, lock_number

__all__ = ["PostgresIndex"]

Floats = NDArray[np.float32]
Numbers = NDArray[np.int64]

_SIZES: Final = 10_000  # buckets whose size is remembered
_SIZE_S: Final = 60.0
_STEPS: Final = 3.0  # vectors that are compared in the index for each one that is read from it, about
_MOST_DIMENSIONS: Final = 4_000  # what pgvector indexes as halfvec
_NEIGHBOURS_BYTES: Final = 900  # what a vector takes beside its numbers while an index is made
_MOST_MEMORY: Final = 4 << 30  # bytes of the server's memory that making an index may take
_NO_ROOM: Final = ("53100", "53200")  # disk_full (so a full /dev/shm is called), out_of_memory

_IN_EPOCH: Final = "number > (SELECT coalesce(max(last_entry), 0) FROM epochs)"
_SIZE = text("SELECT count(*) FROM (SELECT FROM vectors WHERE bucket = :bucket LIMIT :most) AS part")
_ALL = text("SELECT greatest(reltuples, 0) FROM pg_class WHERE oid = 'vectors'::regclass")
_EXACT = text(
    "SELECT number, -(query <#> :vector) AS similarity FROM vectors "  # noqa: S608 - nothing from outside
    f"WHERE bucket = :bucket AND {_IN_EPOCH} AND vector_dims(query) = :dimension "
    "ORDER BY query <#> :vector LIMIT :count"
)
_IN_SPACE = text(
    "SELECT count(*) FROM (SELECT FROM vectors WHERE space = :space AND bucket IS NOT NULL LIMIT :most) AS part"
)
_INDEXES = text(
    "SELECT c.relname AS name, i.indisvalid AS valid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
    "WHERE i.indrelid = 'vectors'::regclass AND c.relname LIKE 'ix\\_vectors\\_near\\_%'"
)
_MEMORY = text(
    "SELECT set_config('maintenance_work_mem', greatest(setting::bigint, :kib)::text, false) "
    "FROM pg_settings WHERE name = 'maintenance_work_mem'"
)
_TOTALS = text("SELECT count(bucket), count(DISTINCT bucket) FROM vectors")


class PostgresIndex:
    """Searches the table ``vectors``. ``exact_below``: a space with fewer vectors than this gets no HNSW index."""

    def __init__(self, url: URL, *, exact_below: int) -> None:
        self._engine = create_engine(
            url, poolclass=NullPool, connect_args=connect_args(), isolation_level="AUTOCOMMIT", hide_parameters=True
        )
        self._exact_below = exact_below
        self._sizes: Bounded[bytes, tuple[int, float]] = Bounded(_SIZES)
        self._spaces: dict[tuple[str, int], Any] = {}  # (space, dimension) → the query that its index answers
        self._counted: dict[tuple[str, int], int] = {}  # size of the whole table when a space was last too small
        self._valid: frozenset[str] = frozenset()  # names of the indexes that can be used
        self._all = 0  # vectors in the table, about

    def search(self, bucket: Bucket, vector: Floats, count: int, *, connection: Connection) -> list[tuple[int, float]]:
        """Return up to ``count`` nearest of a unit vector of shape (d,), as (number, cosine −1 … 1), nearest first."""
        dimension = len(vector)
        statement = self._known(bucket.space, dimension)
        if _name(bucket.space, dimension) not in self._valid or self._is_small(bucket, count, connection):
            statement = _EXACT
        values = {"bucket": bucket.digest(), "vector": to_halfvec(vector), "count": count, "dimension": dimension}
        rows = connection.execute(statement, values).all()
        found = [(int(row.number), max(-1.0, min(1.0, float(row.similarity)))) for row in rows]
        found.sort(key=lambda one: -one[1])
        return found

    def add(self, bucket: Bucket, numbers: Sequence[int] | Numbers, vectors: Floats) -> None:
        """Nothing is held here but the name of the space."""
        self._known(bucket.space, vectors.shape[1])

    def remove(self, bucket: Bucket, numbers: Sequence[int]) -> int:
        """Nothing is held here."""
        return 0

    def load(self, connection: Connection, now: float, failures: Failures) -> None:
        """Find the indexes there are."""
        self._find(connection)

    def rebuild(self, connection: Connection, now: float, failures: Failures) -> None:
        """Nothing is held here; the indexes there are may be others."""
        self._find(connection)

    def clear(self) -> None:
        """Nothing is held here: the entries themselves say that they are no longer reached."""

    def keep_up(self) -> None:
        """Give each space that has grown large an index (minutes for a million vectors), unless another process does.

        Reading and writing go on meanwhile.
        """
        with self._engine.connect() as connection:
            if not connection.execute(text("SELECT pg_try_advisory_lock(:n)"), {"n": lock_number(b"index")}).scalar():
                self._find(connection)
                return
            self._find(connection)
            there = {row.name: row.valid for row in connection.execute(_INDEXES)}
            for space, dimension in list(self._spaces):
                name = _name(space, dimension)
                if there.get(name) or not self._is_large(space, dimension, connection):
                    continue
                self._make(name, space, dimension, connection)
            self._find(connection)

    def close(self) -> None:
        """Nothing is held here."""

    def totals(self, connection: Connection) -> tuple[int, int]:
        """Return how many vectors can be found, in how many buckets."""
        vectors, buckets = connection.execute(_TOTALS).one()
        return int(vectors), int(buckets)

    def _known(self, space: str, dimension: int) -> Any:
        statement = self._spaces.get((space, dimension))
        if statement is None:
            statement = self._spaces[space, dimension] = _nearest(space, dimension)
        return statement

    def _find(self, connection: Connection) -> None:
        self._all = int(connection.execute(_ALL).scalar_one())
        self._valid = frozenset(row.name for row in connection.execute(_INDEXES) if row.valid)

    def _make(self, name: str, space: str, dimension: int, connection: Connection) -> None:
        """Make an index, in memory as far as this may take it: on disk it takes ten times as long."""
        drop = f"DROP INDEX CONCURRENTLY IF EXISTS {name}"  # there where a process that was making it was stopped
        needed = min(self._all * (2 * dimension + _NEIGHBOURS_BYTES), _MOST_MEMORY) // 1024
        connection.execute(_MEMORY, {"kib": needed})
        connection.exec_driver_sql(drop)
        try:
            connection.exec_driver_sql(_made(name, space, dimension))
        except OperationalError as error:
            if getattr(error.orig, "sqlstate", "") not in _NO_ROOM:
                raise
            # Several workers share their memory in /dev/shm, which is small in most containers; one needs none of it.
            connection.exec_driver_sql("SET max_parallel_maintenance_workers = 0")
            connection.exec_driver_sql(drop)
            connection.exec_driver_sql(_made(name, space, dimension))

    def _is_large(self, space: str, dimension: int, connection: Connection) -> bool:
        """Whether a space is worth an index; counted again only when the table has doubled since."""
        if self._all < max(self._exact_below, 2 * self._counted.get((space, dimension), 0)):
            return False
        if dimension > _MOST_DIMENSIONS:
            return False
        size = connection.execute(_IN_SPACE, {"space": space, "most": self._exact_below}).scalar_one()
        if size < self._exact_below:
            self._counted[space, dimension] = self._all
        return bool(size >= self._exact_below)

    def _is_small(self, bucket: Bucket, count: int, connection: Connection) -> bool:
        """Whether comparing the whole bucket costs less than reading the index until ``count`` of it are found.

        Reading the index costs about ``_STEPS * count * all / size`` comparisons, comparing the bucket ``size``.
        """
        least = max(self._exact_below // 8, math.isqrt(int(_STEPS * count * max(self._all, 1))))
        digest, now = bucket.digest(), time.monotonic()
        known = self._sizes.get(digest)
        if known is None or now > known[1]:
            size = connection.execute(_SIZE, {"bucket": digest, "most": least + 1}).scalar_one()
            known = self._sizes[digest] = (size, now + _SIZE_S)
        return known[0] <= least


def _name(space: str, dimension: int) -> str:
    digest = blake2b(utf8(space), digest_size=8, person=b"antiphon.space").hexdigest()
    return f"ix_vectors_near_{dimension}_{digest}"


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _made(name: str, space: str, dimension: int) -> str:
    return (
        f"CREATE INDEX CONCURRENTLY {name} ON vectors USING hnsw ((query::halfvec({dimension})) halfvec_ip_ops) "
        f"WHERE space = {_literal(space)} AND bucket IS NOT NULL"
    ).replace("%", "%%")


def _nearest(space: str, dimension: int) -> Any:
    """Return the query that the index of a space answers: its conditions are literally the index's.

    The epoch is no condition here: it would make the planner expect few rows, and compare them all. Entries of an older
    one are left out when they are read.
    """
    column = f"(query::halfvec({dimension}))"
    literal = _literal(space).replace(":", "\\:")
    return text(
        f"SELECT number, -({column} <#> :vector) AS similarity FROM vectors "  # noqa: S608 - a quoted name only
        f"WHERE space = {literal} AND bucket IS NOT NULL AND bucket = :bucket "
        f"ORDER BY {column} <#> :vector LIMIT :count"
    )
