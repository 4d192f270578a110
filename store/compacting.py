"""Makes the stored vectors smaller (`store.projection`), space by space, and says what that costs before it does so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, bindparam, func, insert, select, update

from store.codec import is_damaged, pack_vector, unpack_vector
from store.database import Database
from store.errors import StoreError
from store.models import Entry, Identity, Vector, VectorSpace
from store.neighbours import Bucket
from store.projection import Loss, Projection, fit, loss_of
from store.reads import projections

__all__ = ["CompactFailed", "Compacted", "compact"]

Floats = NDArray[np.float32]

_SAMPLE: Final = 20_000
_PER_DIMENSION: Final = 10  # vectors that are needed to fit each direction
_HELD_OUT: Final = 5  # every fifth is measured on
_SLICE: Final = 2_000

Progress = Callable[[str, int, int], None]
"""Called with the space, vectors done and vectors in all."""


class CompactFailed(StoreError):  # noqa: N818 - reads as what it says
    """Nothing was changed; the message says why."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """What became of one space. ``done``: how many vectors were made smaller."""

    space: str
    target: str
    before: int
    after: int
    vectors: int
    loss: Loss | None  # None: the work of an earlier, interrupted run was finished
    done: int


def compact(
    database: Database,
    *,
    dimensions: int,
    most_loss: float,
    dry_run: bool = False,
    progress: Progress = lambda *_: None,
) -> list[Compacted]:
    """Project every space with more than ``dimensions`` dimensions, unless that costs more than ``most_loss``.

    The bound is on the change of the cosine between a vector and its nearest (99th percentile). The database has to be
    this process's alone. Raises `CompactFailed` before anything is changed where a space is too small to fit a
    projection on, or loses more than the bound.
    """
    with database.upkeep.connect() as connection:
        known = projections(connection)
        plans = [_plan(connection, *space, known, dimensions) for space in _spaces(connection, dimensions, known)]
    for projection, size, loss in plans:
        if loss is not None and loss.cosine_p99 > most_loss:
            raise CompactFailed(
                f"{projection.space} with {dimensions} dimensions would change the similarity of near turns by up to "
                f"{loss.cosine_p99:.4f} (99th percentile; {loss.recall:.1%} of the nearest stay the nearest), more "
                f"than {most_loss:g}: take more dimensions, or allow more with --max-loss. {size} vectors unchanged"
            )
    done = []
    for projection, size, loss in plans:
        before, after = projection.matrix.shape
        changed = 0
        if not dry_run:
            changed = _apply(database, projection, size, isnew=loss is not None, progress=progress)
        done.append(Compacted(projection.space, projection.target, before, after, size, loss, changed))
    if done and not dry_run:
        database.reclaim()
    return done


def _spaces(connection: Connection, dimensions: int, known: dict[str, Projection]) -> list[tuple[str, int, int]]:
    """Return (space, dimensions, vectors) of the spaces that are larger than ``dimensions``."""
    found = []
    results = {projection.target for projection in known.values()}
    for row in connection.execute(
        select(Vector.space, func.count().label("size")).where(Vector.query.is_not(None)).group_by(Vector.space)
    ).all():
        if row.space in results:  # projected already: what was lost once is not lost again
            continue
        first = connection.execute(
            select(Vector.query).where(Vector.space == row.space, Vector.query.is_not(None)).limit(1)
        ).scalar_one()
        before = len(first or b"") // 2
        if before > dimensions:
            found.append((row.space, before, int(row.size)))
    return found


def _plan(
    connection: Connection, space: str, before: int, size: int, known: dict[str, Projection], dimensions: int
) -> tuple[Projection, int, Loss | None]:
    if space in known:  # interrupted before: every vector of a space goes through the same projection
        return known[space], size, None
    needed = dimensions * _PER_DIMENSION * _HELD_OUT // (_HELD_OUT - 1)
    vectors = _sample(connection, space, before)
    if len(vectors) < needed:
        raise CompactFailed(f"{space} has {len(vectors)} vectors: fitting {dimensions} dimensions needs {needed}")
    held_out = np.arange(len(vectors)) % _HELD_OUT == 0
    projection = fit(space, vectors[~held_out], dimensions)
    return projection, size, loss_of(projection, vectors[held_out])


def _sample(connection: Connection, space: str, dimensions: int) -> Floats:
    numbers = (
        connection.execute(select(Vector.number).where(Vector.space == space, Vector.query.is_not(None)))
        .scalars()
        .all()
    )
    chosen = np.random.default_rng(1).permutation(np.array(numbers, dtype=np.int64))[:_SAMPLE]
    rows: list[Floats] = []
    statement = select(Vector.query).where(Vector.number.in_(bindparam("numbers", expanding=True)))
    for start in range(0, len(chosen), 500):
        found = connection.execute(statement, {"numbers": chosen[start : start + 500].tolist()}).scalars()
        rows.extend(
            unpack_vector(query)
            for query in found
            if query is not None and len(query) == 2 * dimensions and not is_damaged(query)
        )
    return np.array(rows, dtype=np.float32).reshape(-1, dimensions)


_ROWS = (
    select(Vector.number, Vector.query, Vector.window, Vector.topic, Entry.partition, Identity.identity)
    .join(Entry, Entry.number == Vector.number)
    .join(Identity, Identity.number == Entry.identity_number)
    .where(Vector.space == bindparam("space"), Vector.number > bindparam("after"))
    .order_by(Vector.number)
    .limit(_SLICE)
)
_SMALLER = (
    update(Vector)
    .where(Vector.number == bindparam("which"))
    .values({name: bindparam(f"new_{name}") for name in ("space", "query", "window", "topic", "bucket")})
)


def _apply(database: Database, projection: Projection, size: int, *, isnew: bool, progress: Progress) -> int:
    if isnew:
        with database.writer.begin() as writing:
            writing.execute(
                insert(VectorSpace),
                {
                    "space": projection.space,
                    "dimensions": projection.matrix.shape[1],
                    "matrix": np.ascontiguousarray(projection.matrix, dtype="<f4").tobytes(),
                },
            )
    target, after, done = projection.target, 0, 0
    while True:
        with database.writer.begin() as writing:
            part = writing.execute(_ROWS, {"space": projection.space, "after": after}).all()
            if not part:
                return done
            after = part[-1].number
            writing.execute(_SMALLER, [_smaller(projection, target, row) for row in part])
        done += len(part)
        progress(projection.space, done, size)


def _smaller(projection: Projection, target: str, row: Any) -> dict[str, Any]:
    query, window, topic = (_projected(projection, data) for data in (row.query, row.window, row.topic))
    bucket = None if query is None else Bucket(row.partition, row.identity, target).digest()
    return {
        "which": row.number,
        "new_space": target,
        "new_query": query,
        "new_window": window,
        "new_topic": topic,
        "new_bucket": bucket,
    }


def _projected(projection: Projection, data: bytes | None) -> bytes | None:
    if data is None or is_damaged(data) or len(data) != 2 * projection.matrix.shape[0]:
        return None
    return pack_vector(projection.apply(unpack_vector(data)))
