"""What is written: each change as an object that the writer applies in one transaction.

Index and memory follow after the commit, through `Followers`: what the database does not hold, they never serve again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, and_, bindparam, case, delete, func, insert, not_, or_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert  # SQLite compiles it to the same words

from fingerprint.conversation import Turn
from fingerprint.keys import IdentityParts
from store import branches, drift, epochs, value
from store.bars import ENTRY_ITEM, SESSION_SCOPE, Bars, items_of, text_digest
from store.codec import pack_answer, pack_question, pack_vector, unpack_answer
from store.memory import Memory
from store.models import Bar, Change, ClosedNode, Entry, Identity, Place, Purge, SessionTurn, Vector, Wording
from store.neighbours import Bucket, Neighbours
from store.reads import conditions
from store.replicas import announce
from store.retrieval import scoped_direct
from store.types import Answer, Kind
from store.value import Lives
from store.window import ContextVectors
from store.writer import AfterCommit

__all__ = [
    "CorrectWrite",
    "EpochWrite",
    "FingerprintWrite",
    "Followers",
    "Gone",
    "HitsWrite",
    "PlaceWrite",
    "PurgeWrite",
    "RecordWrite",
    "Result",
    "RetractWrite",
    "SessionWrite",
    "TidyWrite",
    "VectorsWrite",
    "WordingWrite",
    "log_change",
    "retract",
    "served",
]

_LIVING: Final = ("active", "suspect")
_OPEN: Final = ("active", "frozen")  # what is served to somebody
_SLICE: Final = 500  # ids in one statement
_CHANGES_S: Final = 86_400.0  # for which changes are kept: a process that heard nothing for an hour forgets everything
_BARRED_BELOW: Final = 1_000  # entries below a corrected one that are barred by name in its session

Result = tuple[Any, AfterCommit | None]


@dataclass(frozen=True, slots=True)
class Followers:
    """What has to follow the database."""

    index: Neighbours
    memory: Memory
    bars: Bars

    def without(self, gone: Sequence[Gone]) -> AfterCommit | None:
        """Return what takes entries out of index and memory."""
        if not gone:
            return None

        def follow() -> None:
            by_bucket: dict[Bucket, list[int]] = {}
            for one in gone:
                self.memory.remove(one.id)
                if one.bucket is not None:
                    by_bucket.setdefault(one.bucket, []).append(one.number)
            for bucket, numbers in by_bucket.items():
                self.index.remove(bucket, numbers)

        return follow

    def out_of_search(self, frozen: Sequence[Gone]) -> AfterCommit | None:
        """Return what takes entries out of the index only: their literal conversation still finds them."""
        if not any(one.bucket for one in frozen):
            return None

        def follow() -> None:
            for one in frozen:
                if one.bucket is not None:
                    self.index.remove(one.bucket, [one.number])

        return follow


@dataclass(frozen=True, slots=True)
class Gone:
    """An entry that is no longer served."""

    number: int
    id: str
    exact_key: bytes
    bucket: Bucket | None  # None where it has no vector


_GONE = (
    select(Entry.number, Entry.id, Entry.exact_key, Entry.partition, Identity.identity, Vector.space)
    .join(Identity, Identity.number == Entry.identity_number)
    .outerjoin(Vector, Vector.number == Entry.number)
)


def served(connection: Connection, *where: ColumnElement[bool]) -> list[Gone]:
    """Return the entries that meet every condition, as what may have to go."""
    rows = connection.execute(_GONE.where(*where)).all()
    return [
        Gone(
            row.number,
            row.id,
            row.exact_key,
            None if row.space is None else Bucket(row.partition, row.identity, row.space),
        )
        for row in rows
    ]


def retract(connection: Connection, gone: Sequence[Gone], state: str = "retracted") -> None:
    """Take entries out of circulation with their wordings. Their nodes stay: conversations went through them."""
    _announce(connection, gone)
    for start in range(0, len(gone), _SLICE):
        numbers = [one.number for one in gone[start : start + _SLICE]]
        connection.execute(update(Entry).where(Entry.number.in_(numbers)).values(state=state))
        connection.execute(delete(Vector).where(Vector.number.in_(numbers)))
        connection.execute(delete(Wording).where(Wording.entry_number.in_(numbers)))


def _announce(connection: Connection, gone: Sequence[Gone]) -> None:
    if gone:
        announce(connection, "gone", *(value for one in gone for value in (one.id, one.exact_key)))


def _delete(connection: Connection, gone: Sequence[Gone]) -> None:
    _announce(connection, gone)
    for start in range(0, len(gone), _SLICE):
        numbers = [one.number for one in gone[start : start + _SLICE]]
        # Vectors and wordings go with them (ON DELETE CASCADE).
        connection.execute(delete(Entry).where(Entry.number.in_(numbers)))


# Statements of the frequent writes, built once: putting one together costs more than running it.
_NODE = select(Place.node).where(Place.place_key == bindparam("key"))


def _node(connection: Connection, place_key: bytes | None) -> str | None:
    return None if place_key is None else connection.execute(_NODE, {"key": place_key}).scalar()


_PLACE = upsert(Place)
_PLACE = _PLACE.on_conflict_do_update(
    index_elements=[Place.place_key], set_={"node": _PLACE.excluded.node, "used_at": _PLACE.excluded.used_at}
)
_SESSION = upsert(SessionTurn)
_SESSION = _SESSION.on_conflict_do_update(
    index_elements=[SessionTurn.session, SessionTurn.exact_key],
    set_={"node": _SESSION.excluded.node, "at": _SESSION.excluded.at},
)
_BAR = upsert(Bar)
_BAR = _BAR.on_conflict_do_update(index_elements=[Bar.scope, Bar.item], set_={"at": _BAR.excluded.at})
_WORDING = upsert(Wording)
_SAME_ENTRY = Wording.entry_number == _WORDING.excluded.entry_number
_WORDING = _WORDING.on_conflict_do_update(
    index_elements=[Wording.exact_key],
    set_={
        **{
            name: _WORDING.excluded[name]
            for name in ("node", "entry_number", "parent", "created_at", "kind", "confidence")
        },
        # Found afresh before its first writing was done: what checks have said of it stands.
        "suspect": case((_SAME_ENTRY, Wording.suspect), else_=_WORDING.excluded.suspect),
        "agreements": case((_SAME_ENTRY, Wording.agreements), else_=0),
    },
)
_IDENTITY = upsert(Identity).on_conflict_do_nothing(index_elements=[Identity.identity])


_IDENTITY_NUMBER = select(Identity.number).where(Identity.identity == bindparam("key"))
_OLD = (
    select(
        Entry.id,
        Entry.version,
        Entry.state,
        Entry.hit_count,
        Entry.sightings,
        Entry.thumbs_up,
        Entry.thumbs_down,
        Entry.doubts,
    )
    .where(Entry.exact_key == bindparam("key"))
    .order_by(Entry.number.desc())
    .limit(1)
)
_DROP_WORDING = delete(Wording).where(Wording.exact_key == bindparam("key"))
_NEW_ENTRY = insert(Entry)
_NEW_VECTOR = insert(Vector)
_WITHOUT_VECTOR = (
    select(Entry.number, Entry.partition, Identity.identity)
    .join(Identity, Identity.number == Entry.identity_number)
    .outerjoin(Vector, Vector.number == Entry.number)
    .where(Entry.id == bindparam("id"), Entry.state == "active", Vector.number.is_(None))
)
_ACTIVE = select(Entry.number).where(Entry.id == bindparam("id"), Entry.state == "active")


def _identity_number(connection: Connection, identity: bytes, parts: IdentityParts) -> int:
    number = connection.execute(_IDENTITY_NUMBER, {"key": identity}).scalar()
    if number is None:
        connection.execute(_IDENTITY, {"identity": identity, **asdict(parts)})
        number = connection.execute(_IDENTITY_NUMBER, {"key": identity}).scalar_one()
    return number


@dataclass(frozen=True, slots=True)
class PlaceWrite:
    """A literal history (ending in an answer) stands on this node."""

    place_key: bytes
    node: str
    now: float
    parent_place: bytes | None = None  # the node hangs from there, where nothing else is written of it

    def apply(self, connection: Connection) -> Result:
        """Write the place."""
        if self.parent_place is not None and branches.is_closed(connection, _node(connection, self.parent_place)):
            branches.close(connection, [self.node], self.now)
        connection.execute(_PLACE, {"place_key": self.place_key, "node": self.node, "used_at": self.now})
        return None, None


@dataclass(frozen=True, slots=True)
class SessionWrite:
    """A session was given an answer."""

    session: str
    exact_key: bytes
    node: str
    now: float

    def apply(self, connection: Connection) -> Result:
        """Write the session's turn."""
        connection.execute(
            _SESSION, {"session": self.session, "exact_key": self.exact_key, "node": self.node, "at": self.now}
        )
        announce(connection, "session", self.session, self.exact_key)
        return None, None


@dataclass(frozen=True, slots=True)
class RecordWrite:
    """A new entry, with everything that has to appear together with it."""

    followers: Followers
    id: str
    partition: bytes
    identity: bytes
    parts: IdentityParts
    exact_key: bytes
    place_key: bytes | None  # the turn hangs from there
    semantic: bool
    created_at: float
    expires_at: float
    turn: Turn
    answer: Answer
    place_after: bytes | None  # the next turn will hang from there
    session: str | None
    epoch: int  # in which the turn was begun
    lives: Lives
    longest_s: float  # what it may live if its value allows
    dates: str = ""
    plain_key: bytes | None = None  # `store.plain`
    replaced: Callable[[bytes, str, str], None] | None = None  # told after the commit: question key, old id, new id

    def apply(self, connection: Connection) -> Result:
        """Replace what answered this question before, and write entry, place and session.

        Not stored is an answer begun in an older epoch, one that is not worth it, and one that would replace a frozen
        entry. On a corrected branch it is frozen from the start.
        """
        if epochs.current(connection) != self.epoch:
            return None, self._forget
        parent = _node(connection, self.place_key)
        closed = branches.is_closed(connection, parent)
        if closed:
            branches.close(connection, [self.id], self.created_at)
        same: Any = connection.execute(_OLD, {"key": self.exact_key}).first()
        expires_at = self._expires_at(same)
        replaced: list[Gone] = []
        if same is not None:
            replaced = served(connection, Entry.exact_key == self.exact_key, Entry.state.in_(_LIVING))
        if expires_at <= self.created_at or (same is not None and same.state == "frozen"):
            retract(connection, replaced)
            if self.place_after is not None:
                PlaceWrite(self.place_after, self.id, self.created_at).apply(connection)
            return None, self._forget
        old = same
        question = drift.question_key(self.turn, self.partition, self.identity, self.place_key)
        others = drift.earlier(connection, question, self.exact_key, self.turn)
        if others:
            replaced += served(connection, Entry.number.in_([one.number for one in others]))
            old = max([*others, *([] if old is None else [old])], key=lambda one: str(one.id))
        retract(connection, replaced)
        unserved_until = drift.unserved_until(connection, question)
        # It may have been answered from another entry before; now it has an answer of its own.
        dropped = connection.execute(_DROP_WORDING, {"key": self.exact_key}).rowcount
        if old is not None or dropped:
            announce(connection, "key", self.exact_key)
        connection.execute(
            _NEW_ENTRY,
            {
                "id": self.id,
                "partition": self.partition,
                "identity_number": _identity_number(connection, self.identity, self.parts),
                "exact_key": self.exact_key,
                "parent": parent,
                "depth": len(self.turn.history),
                "state": "frozen" if closed else "active",
                "version": 1 if old is None else old.version + 1,
                "supersedes": None if old is None else old.id,
                "semantic": self.semantic and not closed,
                "created_at": self.created_at,
                "expires_at": expires_at,
                "hit_count": 0,
                "last_used_at": self.created_at,
                "thumbs_up": 0,
                "thumbs_down": 0,
                "prompt_tokens": self.answer.prompt_tokens,
                "completion_tokens": self.answer.completion_tokens,
                "seconds": self.answer.seconds,
                "fingerprint": None,
                "question_key": question,
                "unserved_until": unserved_until,
                # Compressed here, in the writer's thread: a long history takes milliseconds.
                "question": pack_question(self.turn),
                "answer": pack_answer(self.answer),
                "sightings": 1 if same is None else same.sightings + 1,
                "doubts": 0 if same is None else same.doubts,
                "dates": self.dates,
                "plain_key": self.plain_key,
            },
        )
        if self.place_after is not None:
            PlaceWrite(self.place_after, self.id, self.created_at).apply(connection)
        if self.session is not None:
            SessionWrite(self.session, self.exact_key, self.id, self.created_at).apply(connection)
        take_out = self.followers.without(replaced)

        def follow() -> None:
            if take_out is not None:
                take_out()

            if unserved_until > self.created_at or expires_at < self.expires_at:
                self._forget()  # it is not served, or would live too long in the memory
            if old is not None and self.replaced is not None:
                self.replaced(question, old.id, self.id)

        return None, follow

    def _expires_at(self, same: Any) -> float:
        """When it expires, by what is known of the last answer to this literal turn."""
        if same is None:
            return self.expires_at
        trust = value.stability(same.thumbs_up, same.thumbs_down, same.doubts)
        length = value.length_of(self.answer.completion_tokens, self.answer.text)
        worth = value.expected_saving(length, max(same.hit_count, same.sightings), trust)
        return self.created_at + self.lives.of(worth, self.longest_s)

    def _forget(self) -> None:
        self.followers.memory.remove(self.id)


@dataclass(frozen=True, slots=True)
class VectorsWrite:
    """The vectors of an entry are ready."""

    followers: Followers
    entry_id: str
    space: str
    query: NDArray[np.float32] | None  # None: no embedder reads it, and none needs to try again
    around: ContextVectors
    context: str  # the strategy that made them
    direct: bytes | None  # the turn's direct key; None: it asks for no numbered thing

    def apply(self, connection: Connection) -> Result:
        """Write them, unless the entry has been taken out of circulation meanwhile."""
        row = connection.execute(_WITHOUT_VECTOR, {"id": self.entry_id}).first()
        if row is None:
            return False, None
        query = self.query
        bucket = Bucket(row.partition, row.identity, self.space)
        connection.execute(
            _NEW_VECTOR,
            {
                "number": row.number,
                "space": self.space,
                "query": None if query is None else pack_vector(query),
                "window": None if self.around.window is None else pack_vector(self.around.window),
                "topic": None if self.around.topic is None else pack_vector(self.around.topic),
                "context": self.context,
                "fresh": self.around.fresh,
                "bucket": None if query is None else bucket.digest(),
            },
        )
        if self.direct is not None:
            key = scoped_direct(row.partition, row.identity, self.direct)
            connection.execute(update(Entry).where(Entry.number == row.number).values(direct=key))
        if query is None:
            return True, None
        vector = query[np.newaxis]
        return True, lambda: self.followers.index.add(bucket, [row.number], vector)


@dataclass(frozen=True, slots=True)
class FingerprintWrite:
    """Fingerprints of entries, made because a candidate needed one."""

    fingerprints: Mapping[str, bytes]  # entry id → facts.pack

    def apply(self, connection: Connection) -> Result:
        """Write them where the entries are still there."""
        for entry_id, packed in self.fingerprints.items():
            connection.execute(update(Entry).where(Entry.id == entry_id).values(fingerprint=packed))
        return None, None


@dataclass(frozen=True, slots=True)
class WordingWrite:
    """A turn was served from an entry that was not its own: found again by exact key and by place."""

    node: str  # of its own, or the entry's
    entry_id: str
    exact_key: bytes
    place_key: bytes | None
    now: float
    kind: Kind = "other_context"
    confidence: float = 1.0
    suspect: bool = False

    def apply(self, connection: Connection) -> Result:
        """Write the wording where its entry is still served."""
        parent = _node(connection, self.place_key)
        if branches.is_closed(connection, parent):
            branches.close(connection, [self.node], self.now)
        number = connection.execute(_ACTIVE, {"id": self.entry_id}).scalar()
        if number is None:
            return False, None
        connection.execute(
            _WORDING,
            {
                "exact_key": self.exact_key,
                "node": self.node,
                "entry_number": number,
                "parent": parent,
                "created_at": self.now,
                "kind": self.kind,
                "confidence": self.confidence,
                "suspect": self.suspect,
                "agreements": 0,
            },
        )
        return True, None


@dataclass(frozen=True, slots=True)
class HitsWrite:
    """Hits since the last time."""

    take: Callable[[], Mapping[str, tuple[int, float]]]  # entry id → hits, last one's time

    def apply(self, connection: Connection) -> Result:
        """Add them up."""
        hits = self.take()
        if hits:
            connection.execute(
                update(Entry)
                .where(Entry.id == bindparam("entry"))
                .values(
                    hit_count=Entry.hit_count + bindparam("more"),
                    last_used_at=case(
                        (Entry.last_used_at < bindparam("at"), bindparam("at")), else_=Entry.last_used_at
                    ),
                ),
                [{"entry": entry, "more": more, "at": at} for entry, (more, at) in hits.items()],
            )
        return None, None


def log_change(
    connection: Connection, at: float, actor: str, action: str, target: Mapping[str, str], entries: int
) -> None:
    """Write a line of the audit log (`store.audit`)."""
    connection.execute(
        insert(Purge),
        {
            "at": at,
            "actor": actor,
            "action": action,
            "target": json.dumps(dict(target), ensure_ascii=False, sort_keys=True),
            "entries": entries,
        },
    )


@dataclass(frozen=True, slots=True)
class RetractWrite:
    """Take one entry out of circulation, with its wordings."""

    followers: Followers
    entry_id: str
    partition: bytes | None  # only an entry of this partition
    actor: str
    action: str
    now: float

    def apply(self, connection: Connection) -> Result:
        """Retract it; tells whether there was such an entry (retracted before or not)."""
        where = [Entry.id == self.entry_id]
        if self.partition is not None:
            where.append(Entry.partition == self.partition)
        if connection.execute(select(Entry.number).where(*where)).scalar() is None:
            return False, None
        gone = served(connection, *where, Entry.state != "retracted")
        if not gone:
            return True, None
        retract(connection, gone)
        log_change(connection, self.now, self.actor, self.action, {"entry": self.entry_id}, len(gone))
        return True, self.followers.without(gone)


@dataclass(frozen=True, slots=True)
class PurgeWrite:
    """Delete entries by dimension."""

    followers: Followers
    where: Mapping[str, str]
    actor: str
    now: float

    def apply(self, connection: Connection) -> Result:
        """Delete them with vectors and wordings; tells how many."""
        gone = served(connection, *conditions(self.where))
        _delete(connection, gone)
        log_change(connection, self.now, self.actor, "purge", self.where, len(gone))
        return len(gone), self.followers.without(gone)


@dataclass(frozen=True, slots=True)
class CorrectWrite:
    """The answer a conversation stands on was corrected."""

    followers: Followers
    place_key: bytes | None  # where the correction hangs from
    partition: bytes
    scopes: Sequence[bytes]  # session and conversation it was made in
    answer_digest: bytes | None  # of the answer's text, as the conversation holds it
    actor: str
    now: float
    served: str | None = None  # the session's last hit: what is corrected where the place is not known

    def apply(self, connection: Connection) -> Result:
        """Make the entry suspect and put up the bars; tells how many entries were affected."""
        node = _node(connection, self.place_key)
        nodes = set() if node is None else {node}
        number = connection.execute(select(Wording.entry_number).where(Wording.node == node).limit(1)).scalar()
        own = Entry.id == node if number is None else Entry.number == number
        entry = connection.execute(
            select(Entry.number, Entry.id, Entry.exact_key, Entry.state).where(own, Entry.partition == self.partition)
        ).first()
        if entry is None and self.served is not None and self._said(connection):
            entry = connection.execute(
                select(Entry.number, Entry.id, Entry.exact_key, Entry.state).where(Entry.id == self.served)
            ).first()
        items = items_of(
            entry_id=None if entry is None else entry.id,
            exact_key=None if entry is None else entry.exact_key,
            answer_digest=self.answer_digest,
        )
        for scope in self.scopes:
            for item in items:
                connection.execute(_BAR, {"scope": scope, "item": item, "at": self.now})
                announce(connection, "bar", scope, item)
        # Whether the answer was wrong or only the match is not known: the entry waits for a fresh answer, and its
        # wordings are dropped for good.
        if entry is not None:
            nodes |= branches.nodes_of(connection, entry.number, entry.id)
        gone = [] if entry is None or entry.state not in _OPEN else served(connection, Entry.number == entry.number)
        retract(connection, gone, "suspect")
        if gone:
            connection.execute(update(Entry).where(Entry.number == gone[0].number).values(doubts=Entry.doubts + 2))
        frozen, below = self._close(connection, nodes)
        if gone or frozen:
            what = {**({"node": node} if node else {}), **({"entry": gone[0].id} if gone else {})}
            log_change(connection, self.now, self.actor, "correction", what, len(gone) + len(frozen))
        take_out, unindex = self.followers.without(gone), self.followers.out_of_search(frozen)

        def follow() -> None:
            self.followers.bars.add(self.scopes, (*items, *below))
            for then in (take_out, unindex):
                if then is not None:
                    then()

        return len(gone) + len(frozen), follow

    def _said(self, connection: Connection) -> bool:
        """Whether the session's last hit says what the conversation holds, so that it is what was corrected."""
        where = Entry.id == self.served, Entry.partition == self.partition
        packed = connection.execute(select(Entry.answer).where(*where)).scalar()
        if packed is None or self.answer_digest is None:
            return False
        try:
            text = unpack_answer(packed, prompt_tokens=0, completion_tokens=0, seconds=0.0).text
        except ValueError:  # damaged
            return False
        return text_digest(text) == self.answer_digest

    def _close(self, connection: Connection, nodes: set[str]) -> tuple[list[Gone], list[bytes]]:
        """Make what hangs from ``nodes`` read-only; returns what became frozen, and the items to bar here."""
        branch = branches.below(connection, nodes)
        branches.close(connection, branch.nodes, self.now)
        frozen: list[Gone] = []
        numbers = [number for number, _ in branch.entries]
        for start in range(0, len(numbers), _SLICE):
            part = numbers[start : start + _SLICE]
            frozen += served(connection, Entry.number.in_(part), Entry.state == "active")
            of = Entry.number.in_(part), Entry.state == "active"
            connection.execute(update(Entry).where(*of).values(state="frozen"))
            connection.execute(delete(Vector).where(Vector.number.in_(part)))
        # In this very conversation they cannot be met again: its history holds the correction now.
        sessions = [scope for scope in self.scopes if scope.startswith(SESSION_SCOPE)]
        below = [ENTRY_ITEM + entry_id.encode() for _, entry_id in branch.entries[-_BARRED_BELOW:]] if sessions else []
        for scope in sessions:
            for item in below:
                connection.execute(_BAR, {"scope": scope, "item": item, "at": self.now})
                announce(connection, "bar", scope, item)
        return frozen, below


@dataclass(frozen=True, slots=True)
class TidyWrite:
    """Remove what can no longer be served, and what is too much."""

    followers: Followers
    now: float
    places_since: float
    sessions_since: float
    bars_since: float
    max_entries: int
    max_bytes: float
    cold_since: float  # entries not used since then, and with fewer hits than …
    cold_hits: int  # … this, are not worth their place
    limit: int = 2_000  # entries at a time, so that other writes need not wait long

    def apply(self, connection: Connection) -> Result:
        """Do it; tells how many entries were removed."""
        over = or_(
            Entry.expires_at <= self.now,
            not_(epochs.in_epoch()),
            # A correction comes before every rule: a suspect stays until its fate is decided, or its time is over.
            and_(Entry.last_used_at < self.cold_since, Entry.hit_count < self.cold_hits, Entry.state != "suspect"),
        )
        gone = served(connection, Entry.number.in_(select(Entry.number).where(over).limit(self.limit)))
        too_many = self._too_many(connection, len(gone))
        if too_many > 0:
            least = (
                select(Entry.number)
                .where(Entry.state != "suspect", Entry.number.not_in([one.number for one in gone]))
                .order_by(*value.eviction_order(self.now))
                .limit(min(self.limit, too_many))
            )
            gone += served(connection, Entry.number.in_(least))
        _delete(connection, gone)
        connection.execute(delete(Place).where(Place.used_at < self.places_since))
        connection.execute(delete(SessionTurn).where(SessionTurn.at < self.sessions_since))
        connection.execute(delete(Bar).where(Bar.at < self.bars_since))
        connection.execute(delete(Change).where(Change.at < self.now - _CHANGES_S))
        connection.execute(delete(ClosedNode).where(ClosedNode.at < min(self.places_since, self.bars_since)))
        return len(gone), self.followers.without(gone)

    def _too_many(self, connection: Connection, going: int) -> int:
        """How many entries are beyond what may be kept, by number and by size; ``going`` go anyway."""
        count = connection.execute(select(func.count()).select_from(Entry)).scalar_one()
        too_many = count - going - self.max_entries
        used = value.used_bytes(connection)
        if count and used > self.max_bytes:
            # Their average is all that is known without reading them; what is still too much goes in the next round.
            too_many = max(too_many, math.ceil((used - self.max_bytes) / (used / count)) - going)
        return too_many


@dataclass(frozen=True, slots=True)
class EpochWrite:
    """Everything there is becomes unreachable."""

    actor: str
    reason: str
    now: float
    follow: AfterCommit

    def apply(self, connection: Connection) -> Result:
        """Raise the epoch; tells the new one."""
        raised = epochs.raise_epoch(connection, self.now)
        what = {"epoch": str(raised.number), **({"reason": self.reason} if self.reason else {})}
        log_change(connection, self.now, self.actor, "epoch", what, raised.left)
        announce(connection, "epoch", str(raised.number))
        return raised, self.follow
