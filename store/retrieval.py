"""From vectors and places to the few stored turns that are worth a decision."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from store.codec import unpack_question, unpack_vector
from store.index import Bucket, VectorIndex
from store.reads import Near, children, nearest, node_of
from store.types import Candidate, Query
from store.window import cosine

__all__ = ["Found", "candidates", "retrieve"]

Floats = NDArray[np.float32]

_CHILDREN: Final = 64  # newest turns under the same node that are looked at
_WINDOW_SHARE: Final = 0.2  # of the window, and of the same node, against the message, in the order of candidates


@dataclass(frozen=True, slots=True)
class Found:
    """What was found near a query."""

    near: list[tuple[Near, float]]  # with the cosine of the two messages
    node: str | None  # the node the query hangs from; None: the root, or not known


def retrieve(
    connection: Connection,
    index: VectorIndex,
    query: Query,
    *,
    vector: Floats,
    space: str,
    node: str | None,
    depth: int,
    now: float,
) -> Found:
    """Return the ``depth`` nearest of a query's bucket, and what hangs from its node. Blocks for about a millisecond.

    ``node`` is what is known of the query's place already; where it is None the database is asked.
    """
    if node is None and query.place_key is not None:
        node = node_of(connection, query.place_key)
    similarities = dict(index.search(Bucket(query.partition, query.identity, space), vector, depth))
    found = [(one, similarities[one.number]) for one in nearest(connection, list(similarities), now)]
    if node is not None:
        under = children(
            connection,
            node,
            partition=query.partition,
            space=space,
            limit=_CHILDREN,
            now=now,
        )
        found += [(one, _cosine(vector, of)) for one, of in under if one.number not in similarities]
    return Found(found, node)


def candidates(
    query: Query,
    found: Found,
    *,
    window: Floats | None,
    count: int,
    now: float,
    servable: Callable[[Near], bool],
) -> list[Candidate]:
    """Return the ``count`` most promising of ``found`` as candidates, best first.

    ``window`` is the query's, shape (d,), None where it has no history or none that could be embedded. Two turns
    without history have the same (empty) context: their place is the same, the root. A window that is missing on one
    side says nothing, so its similarity is 0.
    """
    ranked: list[tuple[float, Near, float, float, bool]] = []
    for one, similarity in found.near:
        if not servable(one):
            continue
        rootless = not query.turn.history and one.depth == 0
        same_place = rootless or (found.node is not None and one.parent == found.node)
        around = 1.0 if rootless else _cosine(window, one.window)
        ranked.append((similarity + _WINDOW_SHARE * (around + same_place), one, similarity, around, same_place))
    ranked.sort(key=lambda item: item[0], reverse=True)
    return list(_candidates(query, ranked[:count], now))


def _cosine(vector: Floats | None, stored: bytes | None) -> float:
    """Return the cosine with a stored vector; 0 where one is missing or damaged."""
    if vector is None or stored is None:
        return 0.0
    try:
        return cosine(vector, unpack_vector(stored))
    except ValueError:
        return 0.0


def _candidates(
    query: Query, ranked: Iterable[tuple[float, Near, float, float, bool]], now: float
) -> Iterable[Candidate]:
    for _, one, similarity, around, same_place in ranked:
        try:
            turn = unpack_question(one.question, query.turn.system)
        except ValueError:  # damaged: as good as not there
            continue
        yield Candidate(
            entry_id=one.id,
            turn=turn,
            similarity=similarity,
            window_similarity=around,
            same_place=same_place,
            age_s=max(0.0, now - one.created_at),
        )
