"""From vectors and places to the few stored turns that are worth a decision."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from fingerprint.facts import direct_key, unpack
from fingerprint.keys import canonical, digest
from store.codec import unpack_question, unpack_vector
from store.neighbours import Bucket, Neighbours
from store.reads import Near, children, direct, nearest, node_of
from store.types import Candidate, Query
from store.window import ContextVectors, cosine

__all__ = ["ROUNDING", "Found", "candidates", "could_be_chosen", "retrieve", "scoped_direct"]

Floats = NDArray[np.float32]

ROUNDING: Final = 1e-3
"""The index keeps vectors in half precision: a cosine may be so far off."""
_DEEPER: Final = 8  # times the depth, where most of what was found may not be served
_CHILDREN: Final = 64  # newest turns under the same node that are looked at
_WINDOW_SHARE: Final = 0.2  # of the context, and of the same node, against the message, in the order of candidates
_TOPIC_SHARE: Final = 0.3  # of the topic, in a context that has one
_DIRECT_SHARE: Final = 2.0  # what asks the same of the same numbered thing comes first
_DIRECT: Final = 4  # newest entries of one direct key that are looked at


@dataclass(frozen=True, slots=True)
class Found:
    """What was found near a query."""

    near: list[tuple[Near, float]]  # with the cosine of the two messages
    node: str | None  # the node the query hangs from; None: the root, or not known
    direct: frozenset[int] = frozenset()  # numbers of those that ask the same of the same numbered thing
    horizon: float = -1.0  # the cosine that an entry must exceed to be found by its vector; -1 where any would be


def retrieve(
    connection: Connection,
    index: Neighbours,
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
    bucket = Bucket(query.partition, query.identity, space)
    similarities = dict(index.search(bucket, vector, depth, connection=connection))
    near = nearest(connection, list(similarities), now)
    horizon = min(similarities.values()) if len(similarities) >= depth else -1.0
    if len(similarities) >= depth and 2 * len(near) < depth:
        # The nearest have expired and are not removed yet: they must not hide what lies behind them.
        similarities = dict(index.search(bucket, vector, _DEEPER * depth, connection=connection))
        near = nearest(connection, list(similarities), now)
        near = sorted(near, key=lambda one: -similarities[one.number])[:depth]
        horizon = similarities[near[-1].number] if len(near) == depth else -1.0
    found = [(one, similarities[one.number]) for one in near]
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
    key = direct_key(query.turn)
    if key is None:
        return Found(found, node, horizon=horizon)
    same = direct(connection, scoped_direct(query.partition, query.identity, key), space=space, limit=_DIRECT, now=now)
    known = {one.number for one, _ in found}
    found += [(one, _cosine(vector, of)) for one, of in same if one.number not in known]
    return Found(found, node, frozenset(one.number for one, _ in same), horizon)


def could_be_chosen(found: Found, cosine: float, *, root: bool, count: int) -> bool:
    """Whether one more entry could have changed which ``count`` candidates a turn without history gets of ``found``.

    ``cosine`` is that of the two messages, ``root`` whether the entry was asked without history too. Right where every
    entry found may be served; cautious by `ROUNDING`.
    """
    if cosine < found.horizon - ROUNDING:
        return False
    bonus = 2 * _WINDOW_SHARE  # of what was asked where nothing was said before
    worths = sorted(
        (near + bonus * (one.depth == 0) + _DIRECT_SHARE * (one.number in found.direct) for one, near in found.near),
        reverse=True,
    )
    if len(worths) < count:
        return True
    least = worths[count - 1] - ROUNDING
    # Itself, or in place of the one that is found last.
    return cosine + bonus * root >= least or found.horizon + bonus >= least


def scoped_direct(partition: bytes, identity: bytes, key: bytes) -> bytes:
    """The direct key of a turn within its partition and identity, 32 bytes."""
    return digest("direct", canonical((partition, identity, key)))


def candidates(
    query: Query,
    found: Found,
    *,
    context: ContextVectors | None,
    context_name: str,
    count: int,
    now: float,
    servable: Callable[[Near], bool],
) -> list[Candidate]:
    """Return the ``count`` most promising of ``found`` as candidates, best first.

    ``context`` is the query's; None where no stored turn has one. Two turns before which nothing was said (or nothing
    that counts) have the same, empty context. One that is missing on one side, was made by another strategy, or stands
    against a new topic says nothing: in the order it counts as the mean of those that are known, neither for a
    candidate nor against it (measured: `eval.bench.context`).
    """
    known: list[tuple[Near, float, bool, float | None]] = []
    for one, similarity in found.near:
        if servable(one):
            rootless = not query.turn.history and one.depth == 0
            same_place = rootless or (found.node is not None and one.parent == found.node)
            known.append((one, similarity, same_place, 1.0 if rootless else _around(query, one, context, context_name)))
    told = [around for _, _, _, around in known if around is not None]
    mean = sum(told) / len(told) if told else 0.0
    ranked: list[_Ranked] = []
    for one, similarity, same_place, around in known:
        is_direct = one.number in found.direct
        near = mean if around is None else around
        worth = similarity + _WINDOW_SHARE * (near + same_place) + _DIRECT_SHARE * is_direct
        fresh = around is None and _both_fresh(query, one, context, context_name)
        ranked.append(
            _Ranked(worth, one, similarity, float(fresh) if around is None else around, same_place, is_direct)
        )
    ranked.sort(key=lambda item: item.worth, reverse=True)
    return list(_candidates(query, ranked[:count], now))


def _around(query: Query, one: Near, context: ContextVectors | None, name: str) -> float | None:
    """How alike the contexts are, −1 … 1; None where that says nothing."""
    if not query.turn.history:  # roots come first; of the rest, a topic of its own says no more than any other context
        return 0.0
    if context is None or context.fresh or one.fresh or one.depth == 0 or one.context != name:
        return None
    if context.window is None or one.window is None:
        return None
    around, topic = _cosine(context.window, one.window), _cosine(context.topic, one.topic)
    return (1 - _TOPIC_SHARE) * around + _TOPIC_SHARE * topic if topic else around


def _both_fresh(query: Query, one: Near, context: ContextVectors | None, name: str) -> bool:
    """Whether nothing that counts was said before either of them."""
    fresh = not query.turn.history if context is None else context.fresh
    return fresh and (one.depth == 0 or (one.fresh and one.context == name))


class _Ranked(NamedTuple):
    worth: float
    near: Near
    similarity: float
    around: float
    same_place: bool
    direct: bool


def _cosine(vector: Floats | None, stored: bytes | None) -> float:
    """Return the cosine with a stored vector; 0 where one is missing or damaged."""
    if vector is None or stored is None:
        return 0.0
    try:
        return cosine(vector, unpack_vector(stored))
    except ValueError:
        return 0.0


def _candidates(query: Query, ranked: Iterable[_Ranked], now: float) -> Iterable[Candidate]:
    for _, one, similarity, around, same_place, is_direct in ranked:
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
            direct=is_direct,
            fingerprint=None if one.fingerprint is None else unpack(one.fingerprint),
        )
