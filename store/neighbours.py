"""What finds the nearest stored vectors: FAISS in memory (`store.index`) or pgvector (`store.postgres_index`)."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from fingerprint.text import utf8

if TYPE_CHECKING:
    from store.counters import Failures

__all__ = ["Bucket", "Neighbours"]

Floats = NDArray[np.float32]
Numbers = NDArray[np.int64]


class Bucket(NamedTuple):
    """What may be compared with each other."""

    partition: bytes
    identity: bytes
    space: str

    def digest(self) -> bytes:
        """Return 16 bytes that stand for the bucket in the database (partition and identity are of fixed length)."""
        named = self.partition + self.identity + utf8(self.space)
        return blake2b(named, digest_size=16, person=b"antiphon.bucket").digest()


class Neighbours(Protocol):
    """Nearest neighbours within a bucket. Safe to use from any thread; may block, so keep it off the event loop."""

    def search(self, bucket: Bucket, vector: Floats, count: int, *, connection: Connection) -> list[tuple[int, float]]:
        """Return up to ``count`` nearest of a unit vector of shape (d,), as (number, cosine −1 … 1)."""

    def add(self, bucket: Bucket, numbers: Sequence[int] | Numbers, vectors: Floats) -> None:
        """Unit vectors of shape (n, d) were committed under ``numbers`` (n)."""

    def remove(self, bucket: Bucket, numbers: Sequence[int]) -> int:
        """Those of ``numbers`` are gone from the database; returns how many were known here."""

    def load(self, connection: Connection, now: float, failures: Failures) -> None:
        """Get ready to search what the database holds."""

    def rebuild(self, connection: Connection, now: float, failures: Failures) -> None:
        """Make anew what is held in memory, without keeping anybody waiting."""

    def clear(self) -> None:
        """Nothing that was added so far may be found any more."""

    def keep_up(self) -> None:
        """Do what a grown store needs; may take minutes."""

    def close(self) -> None:
        """Nothing is searched any more."""

    def totals(self, connection: Connection) -> tuple[int, int]:
        """Return how many vectors can be found, in how many buckets."""
