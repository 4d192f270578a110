"""What is read from the database. Every function takes a reading connection and returns plain values."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, Row, bindparam, case, func, select

from store.bars import text_digest
from store.codec import unpack_answer
from store.drift import UNSETTLED
from store.epochs import in_epoch, last_entry
from store.errors import UnknownDimension
from store.memory import Kept
from store.models import AnswerVersion, Bar, Entry, Identity, Place, SessionTurn, Vector, VectorSpace, Wording
from store.projection import Projection
from store.rows import VersionRow

__all__ = [
    "DIMENSIONS",
    "Near",
    "bars",
    "bucket_of",
    "children",
    "conditions",
    "count",
    "direct",
    "entry",
    "every_vector",
    "exact",
    "exact_keys",
    "history",
    "listing",
    "nearest",
    "node_of",
    "numbers_by_bucket",
    "projections",
    "sessions",
    "totals",
    "unembedded",
    "vectors_of",
]

_SERVABLE: Final = "active"
_LOOKED_AT: Final = 100_000  # entries, for vectors that were not made before the last stop
_SERVED: Final = Entry.unserved_until <= bindparam("now")
# What people are shown: an entry of an older epoch is in no state any more, though its row is there until it is tidied.
_SHOWN: Final = case((in_epoch(), Entry.state), else_="out_of_epoch")
_READABLE: Final = ("active", "frozen")  # by the literal conversation; frozen ones are found in no other way

_KEPT = (
    Entry.id,
    Entry.exact_key,
    Entry.answer,
    Entry.created_at,
    Entry.expires_at,
    Entry.prompt_tokens,
    Entry.completion_tokens,
    Entry.seconds,
    Entry.sightings,
)
_EXACT = (
    select(*_KEPT)
    .where(
        Entry.exact_key == bindparam("key"),
        Entry.state.in_(_READABLE),
        _SERVED,
        Entry.expires_at > bindparam("now"),
        in_epoch(),
    )
    .order_by(Entry.number.desc())
    .limit(1)
)
_WORDING = (
    select(*_KEPT, Wording.node, Wording.kind, Wording.confidence, Wording.suspect, Wording.agreements)
    .join(Entry, Entry.number == Wording.entry_number)
    .where(
        Wording.exact_key == bindparam("key"),
        Entry.state.in_(_READABLE),
        _SERVED,
        Entry.expires_at > bindparam("now"),
        in_epoch(),
    )
    .limit(1)
)
_ENTRY = select(*_KEPT).where(
    Entry.id == bindparam("id"), Entry.state == _SERVABLE, _SERVED, Entry.expires_at > bindparam("now"), in_epoch()
)
_QUESTION_OF = select(Entry.question).where(Entry.id == bindparam("id"))
_NODE = select(Place.node).where(Place.place_key == bindparam("key"))
_NEAR = (
    Entry.number,
    Entry.id,
    Entry.exact_key,
    Entry.parent,
    Entry.depth,
    Entry.created_at,
    Entry.question,
    Entry.fingerprint,
    Entry.dates,
    Vector.window,
    Vector.topic,
    Vector.context,
    Vector.fresh,
)
_OFFERED: Final = (  # what an entry must be to be found by its meaning
    Entry.state == _SERVABLE,
    _SERVED,
    Entry.semantic,
    Entry.expires_at > bindparam("now"),
    in_epoch(),
)
# Not by number: a planner without statistics would walk all numbers backwards to spare itself the sorting.
_PLAIN = (
    select(*_KEPT, Entry.question)
    .where(Entry.plain_key == bindparam("key"), *_OFFERED)
    .order_by(Entry.created_at.desc())
    .limit(1)
)
_NEAREST = (
    select(*_NEAR)
    .join(Vector, Vector.number == Entry.number)
    .where(
        Entry.number.in_(bindparam("numbers", expanding=True)),
        *_OFFERED,
    )
)
_CHILDREN = (
    select(*_NEAR, Vector.query)
    .join(Vector, Vector.number == Entry.number)
    .where(
        # A place belongs to one partition and identity, and so does what hangs from it. The identity is not asked for
        # again: SQLite would then walk through everything that has it.
        Entry.parent == bindparam("node"),
        *_OFFERED,
        Entry.partition == bindparam("partition"),
        Vector.space == bindparam("space"),
        Vector.query.is_not(None),
    )
    .order_by(Entry.number.desc())
    .limit(bindparam("limit"))
)


_DIRECT = (
    select(*_NEAR, Vector.query)
    .join(Vector, Vector.number == Entry.number)
    .where(
        Entry.direct == bindparam("key"),
        *_OFFERED,
        Vector.space == bindparam("space"),
        Vector.query.is_not(None),
    )
    .order_by(Entry.number.desc())
    .limit(bindparam("limit"))
)


def _kept(row: Any, node: str) -> Kept | None:
    try:
        answer = unpack_answer(
            row.answer,
            prompt_tokens=row.prompt_tokens,
            completion_tokens=row.completion_tokens,
            seconds=row.seconds,
        )
    except ValueError:  # damaged: as good as not there
        return None
    return Kept(
        id=row.id,
        exact_key=row.exact_key,
        node=node,
        answer=answer,
        text_digest=text_digest(answer.text),
        created_at=row.created_at,
        expires_at=row.expires_at,
        sightings=row.sightings,
    )


def exact(connection: Connection, key: bytes, now: float) -> Kept | None:
    """Return the newest entry that answered this exact key, else the entry it is a wording of; servable ones only."""
    own = connection.execute(_EXACT, {"key": key, "now": now}).first()
    if own is not None:
        return _kept(own, own.id)
    wording = connection.execute(_WORDING, {"key": key, "now": now}).first()
    if wording is None:
        return None
    kept = _kept(wording, wording.node)
    if kept is None:
        return None
    return replace(
        kept,
        kind=wording.kind,
        confidence=wording.confidence,
        suspect=wording.suspect,
        agreements=wording.agreements,
    )


def exact_keys(connection: Connection, limit: int) -> Iterator[bytes]:
    """Read the exact keys of entries and of wordings, in whatever state, each once and at most ``limit`` of either."""
    for column in (Entry.exact_key, Wording.exact_key):
        yield from _keys(connection, column, limit)


def plain_keys(connection: Connection, limit: int) -> Iterator[bytes]:
    """Read the plain keys of entries, each once and at most ``limit``."""
    return _keys(connection, Entry.plain_key, limit)


def _keys(connection: Connection, column: Any, limit: int) -> Iterator[bytes]:
    statement = select(column).where(column.is_not(None)).distinct().limit(limit)
    for part in connection.execution_options(stream_results=True).execute(statement).partitions(8_192):
        yield from (row[0] for row in part)


def entry(connection: Connection, entry_id: str, now: float) -> Kept | None:
    """Return an entry by its id where it may be served."""
    row = connection.execute(_ENTRY, {"id": entry_id, "now": now}).first()
    return None if row is None else _kept(row, row.id)


def in_the_same_words(
    connection: Connection, key: bytes, place_key: bytes | None, node: str | None, now: float
) -> tuple[Kept, bytes] | None:
    """Return the newest servable entry under a plain key (`store.plain`) at one place, and its packed turn.

    ``place_key`` None: the root. ``node`` is what is known of the place already.
    """
    if node is None and place_key is not None:
        node = node_of(connection, place_key)
    if node is None and place_key is not None:
        return None
    here = Entry.depth == 0 if node is None else Entry.parent == node
    row = connection.execute(_PLAIN.where(here), {"key": key, "now": now}).first()
    kept = None if row is None else _kept(row, row.id)
    return None if row is None or kept is None else (kept, row.question)


def question(connection: Connection, entry_id: str) -> bytes | None:
    """Return the packed turn of an entry, in whatever state."""
    return connection.execute(_QUESTION_OF, {"id": entry_id}).scalar()


def node_of(connection: Connection, place_key: bytes) -> str | None:
    """Return the node a literal history stands on."""
    return connection.execute(_NODE, {"key": place_key}).scalar()


@dataclass(frozen=True, slots=True)
class Near:
    """A stored turn near a query, as far as the database knows it."""

    number: int
    id: str
    exact_key: bytes
    parent: str | None
    depth: int  # messages before it
    created_at: float
    question: bytes
    fingerprint: bytes | None
    dates: str
    window: bytes | None
    topic: bytes | None
    context: str  # the strategy that made window and topic
    fresh: bool  # nothing said before it counts


def nearest(connection: Connection, numbers: Sequence[int], now: float) -> list[Near]:
    """Return the servable entries among ``numbers``, in any order."""
    if not numbers:
        return []
    rows = connection.execute(_NEAREST, {"numbers": list(numbers), "now": now}).all()
    return [_near(row) for row in rows]


def children(
    connection: Connection,
    node: str,
    *,
    partition: bytes,
    space: str,
    limit: int,
    now: float,
) -> list[tuple[Near, bytes]]:
    """Return the newest ``limit`` servable entries that hang from a node, each with its query vector."""
    scope = {"node": node, "partition": partition, "space": space, "limit": limit, "now": now}
    return [(_near(row[:-1]), row.query) for row in connection.execute(_CHILDREN, scope).all()]


def direct(connection: Connection, key: bytes, *, space: str, limit: int, now: float) -> list[tuple[Near, bytes]]:
    """Return the newest ``limit`` servable entries of one (scoped) direct key, each with its query vector."""
    rows = connection.execute(_DIRECT, {"key": key, "space": space, "limit": limit, "now": now}).all()
    return [(_near(row[:-1]), row.query) for row in rows]


def _near(row: Any) -> Near:
    return Near(*row)


# Whether an entry is served still (state, lifetime) is seen when it was found: it would cost reading all entries here.
_FINDABLE = (Vector.bucket.is_not(None), Vector.number > last_entry())


def numbers_by_bucket(connection: Connection) -> dict[bytes, NDArray[np.int64]]:
    """Return the numbers (n,) of all vectors, ascending, by the digest of their bucket. Reads an index only."""
    found: dict[bytes, list[NDArray[np.int64]]] = {}
    rows: Any = connection.execution_options(stream_results=True).execute(
        select(Vector.bucket, Vector.number).where(*_FINDABLE).order_by(Vector.bucket, Vector.number)
    )
    for part in rows.partitions(65_536):
        numbers = np.fromiter((row[1] for row in part), dtype=np.int64, count=len(part))
        digests = [row[0] for row in part]
        start = 0
        while start < len(digests):  # runs of the same bucket
            stop = bisect_right(digests, digests[start], start)
            found.setdefault(digests[start], []).append(numbers[start:stop])
            start = stop
    return {digest: np.concatenate(parts) for digest, parts in found.items()}


_BUCKET_OF = (
    select(Entry.partition, Identity.identity, Vector.space)
    .join(Identity, Identity.number == Entry.identity_number)
    .join(Vector, Vector.number == Entry.number)
    .where(Entry.number == bindparam("number"))
)


def bucket_of(connection: Connection, number: int) -> tuple[bytes, bytes, str] | None:
    """Return partition, identity and space of an entry that has a vector."""
    row = connection.execute(_BUCKET_OF, {"number": number}).first()
    return None if row is None else (row.partition, row.identity, row.space)


_VECTORS = select(Vector.number, Vector.query).where(Vector.number.in_(bindparam("numbers", expanding=True)))
_EVERY_VECTOR = select(Vector.number, Vector.query, Vector.bucket).where(*_FINDABLE)


def vectors_of(connection: Connection, numbers: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """Read the vectors of some entries, in any order."""
    for start in range(0, len(numbers), 500):
        for number, query in connection.execute(_VECTORS, {"numbers": list(numbers[start : start + 500])}):
            if query is not None:
                yield number, query


def every_vector(connection: Connection, chunk: int) -> Iterator[Sequence[tuple[int, bytes, bytes]]]:
    """Read all vectors as (number, vector, digest of the bucket), in chunks of at most ``chunk`` rows."""
    rows: Any = connection.execution_options(stream_results=True).execute(_EVERY_VECTOR)
    yield from rows.partitions(chunk)


def bars(connection: Connection, since: float) -> Iterator[tuple[bytes, bytes]]:
    """Read every bar (scope, item) put up since then."""
    for row in connection.execute(select(Bar.scope, Bar.item).where(Bar.at > since)):
        yield row.scope, row.item


def sessions(connection: Connection, since: float, limit: int) -> Iterator[tuple[str, bytes]]:
    """Read the newest answered turns of sessions since then, as (session, exact key), oldest first."""
    newest = (
        select(SessionTurn.session, SessionTurn.exact_key)
        .where(SessionTurn.at > since)
        .order_by(SessionTurn.at.desc())
        .limit(limit)
    )
    for row in reversed(connection.execute(newest).all()):
        yield row.session, row.exact_key


@dataclass(frozen=True, slots=True)
class Unembedded:
    """An entry whose vectors were not made before the last stop."""

    id: str
    question: bytes


def unembedded(connection: Connection, now: float, limit: int) -> list[Unembedded]:
    """Return the newest servable entries without vectors.

    Only the newest hundred thousand are looked at: reading a million large rows would take longer than a start may.
    """
    newest = select(func.coalesce(func.max(Entry.number), 0)).scalar_subquery()
    rows = connection.execute(
        select(Entry.id, Entry.question)
        .outerjoin(Vector, Vector.number == Entry.number)
        .where(Entry.state == _SERVABLE, Entry.semantic, Entry.expires_at > now, in_epoch(), Vector.number.is_(None))
        .where(Entry.number > newest - _LOOKED_AT)
        .order_by(Entry.number.desc())
        .limit(limit)
    )
    return [Unembedded(*row) for row in rows]


def projections(connection: Connection) -> dict[str, Projection]:
    """Return the projections of vector spaces, by the embedder's name of the space."""
    found = {}
    for row in connection.execute(select(VectorSpace.space, VectorSpace.dimensions, VectorSpace.matrix)):
        matrix = np.frombuffer(row.matrix, dtype="<f4").reshape(-1, row.dimensions).astype(np.float32)
        found[row.space] = Projection(row.space, matrix)
    return found


# ------------------------------------------------------------------------------------------- administration

_PARTS: Final = (
    "endpoint",
    "model",
    "weights_version",
    "tokenizer",
    "lora",
    "system_prompt",
    "tools",
    "knowledge_version",
    "fingerprint_schema",
    "embedder",
    "decision",
    "fields",
)
DIMENSIONS: Final = ("entry", "partition", "identity", "state", *_PARTS)
"""What a purge or a listing can select by. ``partition`` and ``identity`` are given in hexadecimal."""


def conditions(where: Mapping[str, str]) -> list[ColumnElement[bool]]:
    """Turn dimensions into conditions on `Entry`. Raises `UnknownDimension`, which names the nearest known one."""
    made: list[ColumnElement[bool]] = []
    for name, value in where.items():
        if name == "entry":
            made.append(Entry.id == value)
        elif name == "state":
            made.append(_SHOWN.in_((value,)))
        elif name == "partition":
            made.append(Entry.partition == _bytes(name, value))
        elif name == "identity":
            made.append(
                Entry.identity_number.in_(select(Identity.number).where(Identity.identity == _bytes(name, value)))
            )
        elif name in _PARTS:
            made.append(Entry.identity_number.in_(select(Identity.number).where(getattr(Identity, name) == value)))
        else:
            raise UnknownDimension(_unknown(name))
    return made


def _bytes(name: str, value: str) -> bytes:
    try:
        return bytes.fromhex(value)
    except ValueError:
        raise UnknownDimension(f"{name} is given in hexadecimal digits") from None


def _unknown(name: str) -> str:
    from rapidfuzz import fuzz, process

    best = process.extractOne(name, DIMENSIONS, scorer=fuzz.WRatio, score_cutoff=60)
    hint = f"; did you mean {best[0]!r}?" if best else ""
    return f"unknown dimension {name!r}{hint} (known: {', '.join(DIMENSIONS)})"


def listing(connection: Connection, *, where: Mapping[str, str], after: str | None, limit: int) -> Sequence[Row[Any]]:
    """Return entries, newest first, below the id ``after``; with the parts of their identity and their wordings."""
    wordings = select(func.count()).select_from(Wording).where(Wording.entry_number == Entry.number).scalar_subquery()
    statement: Any = (
        select(
            Entry.id,
            Entry.partition,
            _SHOWN.label("state"),
            Entry.version,
            Entry.parent,
            Entry.supersedes,
            Entry.semantic,
            Entry.created_at,
            Entry.expires_at,
            Entry.hit_count,
            Entry.last_used_at,
            Entry.thumbs_up,
            Entry.thumbs_down,
            Entry.doubts,
            Entry.sightings,
            Entry.prompt_tokens,
            Entry.completion_tokens,
            Entry.seconds,
            Entry.unserved_until,
            Entry.question,
            Entry.answer,
            Identity.identity,
            *(getattr(Identity, name) for name in _PARTS),
            wordings.label("wordings"),
        )
        .join(Identity, Identity.number == Entry.identity_number)
        .where(*conditions(where))
        .order_by(Entry.id.desc())
        .limit(limit)
    )
    if after is not None:
        statement = statement.where(Entry.id < after)
    rows: Sequence[Row[Any]] = connection.execute(statement).all()
    return rows


def count(connection: Connection, *, where: Mapping[str, str]) -> int:
    """Count the entries that have all the values of ``where``."""
    return connection.execute(select(func.count()).select_from(Entry).where(*conditions(where))).scalar_one()


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the whole store."""

    by_state: dict[str, int]
    expired: int
    wordings: int
    places: int
    hits: int
    tokens_saved: int
    seconds_saved: float
    suspects: int
    unsettled: int
    barred: int


def totals(connection: Connection, now: float) -> Totals:
    """Count entries by state and what their hits saved."""
    states = connection.execute(select(_SHOWN.label("state"), func.count()).group_by(_SHOWN)).all()
    by_state = {row.state: row[1] for row in states}
    expired = connection.execute(
        select(func.count()).select_from(Entry).where(Entry.state == _SERVABLE, Entry.expires_at <= now, in_epoch())
    ).scalar_one()
    hits, tokens, seconds = connection.execute(
        select(
            func.coalesce(func.sum(Entry.hit_count), 0),
            func.coalesce(func.sum(Entry.hit_count * Entry.completion_tokens), 0),
            func.coalesce(func.sum(Entry.hit_count * Entry.seconds), 0.0),
        ).where(Entry.hit_count > 0)
    ).one()
    return Totals(
        by_state=by_state,
        expired=expired,
        wordings=connection.execute(select(func.count()).select_from(Wording)).scalar_one(),
        places=connection.execute(select(func.count()).select_from(Place)).scalar_one(),
        hits=int(hits),
        tokens_saved=int(tokens),
        seconds_saved=float(seconds),
        suspects=connection.execute(select(func.count()).select_from(Wording).where(Wording.suspect)).scalar_one(),
        unsettled=_unserved(connection, Entry.unserved_until >= UNSETTLED),
        barred=_unserved(connection, (Entry.unserved_until > now) & (Entry.unserved_until < UNSETTLED)),
    )


def _unserved(connection: Connection, when: ColumnElement[bool]) -> int:
    return connection.execute(
        select(func.count()).select_from(Entry).where(Entry.state == _SERVABLE, when, in_epoch())
    ).scalar_one()


def history(connection: Connection, entry_id: str) -> list[VersionRow]:
    """Return the last answers to the question of an entry, oldest first; empty where it was answered once."""
    key = select(Entry.question_key).where(Entry.id == entry_id).scalar_subquery()
    rows = connection.execute(
        select(
            AnswerVersion.entry_id,
            AnswerVersion.at,
            Entry.state,
            AnswerVersion.verdict,
            AnswerVersion.why,
            AnswerVersion.cosine,
        )
        .outerjoin(Entry, Entry.id == AnswerVersion.entry_id)
        .where(AnswerVersion.question_key == key)
        .order_by(AnswerVersion.number)
    )
    return [VersionRow(r.entry_id, r.at, r.state or "gone", r.verdict, r.why, r.cosine) for r in rows]
