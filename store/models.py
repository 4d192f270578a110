"""The tables (SQLAlchemy 2, typed). Every change goes through a revision in ``store/migrations``.

Keys are 32-byte digests made by ``fingerprint.keys``; node and entry ids are 32 hex digits, ordered by time; times are
seconds since the epoch, UTC. A *node* is the id of an entry or of a wording.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Float, ForeignKey, Index, Integer, LargeBinary, String, Text, false, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from store.halves import Halves

__all__ = [
    "AnswerVersion",
    "Bar",
    "Base",
    "Change",
    "ClosedNode",
    "Entry",
    "Epoch",
    "Evidence",
    "Identity",
    "Mark",
    "Place",
    "Property",
    "Purge",
    "SessionTurn",
    "Vector",
    "VectorSpace",
    "Wording",
]

_Number = BigInteger().with_variant(Integer, "sqlite")  # SQLite counts rows only in a column of type INTEGER
_Key = LargeBinary(32)
_Id = String(32)


class Base(DeclarativeBase):
    """Base of all tables."""


class Identity(Base):
    """What produced an answer, each part in a column of its own, so that each can be purged by its own dimension.

    ``identity`` is the digest of all parts, so one row stands for all entries that share them.
    """

    __tablename__ = "identities"

    number: Mapped[int] = mapped_column(_Number, primary_key=True, autoincrement=True)
    identity: Mapped[bytes] = mapped_column(_Key, unique=True)
    endpoint: Mapped[str] = mapped_column(Text)
    model: Mapped[str] = mapped_column(Text)
    weights_version: Mapped[str] = mapped_column(Text)
    tokenizer: Mapped[str] = mapped_column(Text)
    lora: Mapped[str] = mapped_column(Text)
    system_prompt: Mapped[str] = mapped_column(Text)
    tools: Mapped[str] = mapped_column(Text)
    knowledge_version: Mapped[str] = mapped_column(Text)
    fingerprint_schema: Mapped[str] = mapped_column(Text)
    embedder: Mapped[str] = mapped_column(Text)
    fields: Mapped[str] = mapped_column(Text)
    decision: Mapped[str] = mapped_column(Text, server_default="")  # version of the artefact that decides


class Entry(Base):
    """An answered turn."""

    __tablename__ = "entries"
    __table_args__ = (
        Index("ix_entries_exact_key", "exact_key"),
        Index("ix_entries_parent", "parent"),
        Index("ix_entries_plain_key", "plain_key", "parent"),
        Index("ix_entries_direct", "direct"),
        Index("ix_entries_identity", "identity_number"),
        Index("ix_entries_expires_at", "expires_at"),
        Index("ix_entries_last_used_at", "last_used_at"),
        Index("ix_entries_question_key", "question_key"),
        # Numbers name vectors in the index: one that was used is never given to another entry.
        {"sqlite_autoincrement": True},
    )

    number: Mapped[int] = mapped_column(_Number, primary_key=True, autoincrement=True)
    id: Mapped[str] = mapped_column(_Id, unique=True)
    partition: Mapped[bytes] = mapped_column(_Key)
    identity_number: Mapped[int] = mapped_column(ForeignKey("identities.number"))
    exact_key: Mapped[bytes] = mapped_column(_Key)
    parent: Mapped[str | None] = mapped_column(_Id)  # node this turn hangs from; None: the root, or not known
    depth: Mapped[int] = mapped_column(Integer)  # messages before this one; 0: it hangs from the root
    state: Mapped[str] = mapped_column(String(12))  # EntryState
    version: Mapped[int] = mapped_column(Integer)  # 1 for the first answer to an exact key
    supersedes: Mapped[str | None] = mapped_column(_Id)
    semantic: Mapped[bool] = mapped_column()  # False: found by exact key only
    created_at: Mapped[float] = mapped_column(Float)
    expires_at: Mapped[float] = mapped_column(Float)
    hit_count: Mapped[int] = mapped_column(Integer, default=0)
    last_used_at: Mapped[float] = mapped_column(Float)
    # The question in whatever words (`store.drift.question_key`); its answers are versions of one another.
    question_key: Mapped[bytes | None] = mapped_column(_Key)
    # Not served before this time: barred after failed checks, or while its answers keep changing (`drift.UNSETTLED`).
    unserved_until: Mapped[float] = mapped_column(Float, default=0.0, server_default=text("0"))
    thumbs_up: Mapped[int] = mapped_column(Integer, default=0)
    thumbs_down: Mapped[int] = mapped_column(Integer, default=0)
    prompt_tokens: Mapped[int] = mapped_column(Integer)
    completion_tokens: Mapped[int] = mapped_column(Integer)
    seconds: Mapped[float] = mapped_column(Float)  # what the answer cost
    # The large columns come last, so that reading the others never touches their overflow pages.
    fingerprint: Mapped[bytes | None] = mapped_column(LargeBinary)
    question: Mapped[bytes] = mapped_column(LargeBinary)  # codec.pack_question
    answer: Mapped[bytes] = mapped_column(LargeBinary)  # codec.pack_answer: body and text
    direct: Mapped[bytes | None] = mapped_column(_Key)  # retrieval.scoped_direct; None: it asks for no numbered thing
    # Added by later revisions, so behind the large ones: nothing that is read for every turn.
    sightings: Mapped[int] = mapped_column(Integer, server_default="1")  # times asked, not served included
    doubts: Mapped[int] = mapped_column(Integer, server_default="0")  # weak signs that it was wrong: `store.marks`
    dates: Mapped[str] = mapped_column(Text, server_default="")  # what "yesterday" meant in it: `fingerprint.dates`
    plain_key: Mapped[bytes | None] = mapped_column(_Key)  # `store.plain`; None: it is found by literal key and meaning


class Vector(Base):
    """The vectors of an entry, float16. In a table of their own: a start reads them all at once."""

    __tablename__ = "vectors"
    __table_args__ = (Index("ix_vectors_bucket", "bucket"),)

    number: Mapped[int] = mapped_column(ForeignKey("entries.number", ondelete="CASCADE"), primary_key=True)
    space: Mapped[str] = mapped_column(Text)  # vectors of two spaces are never compared
    query: Mapped[bytes | None] = mapped_column(Halves)  # of the last message; None: no embedder reads it
    window: Mapped[bytes | None] = mapped_column(Halves)  # of the rounds before it
    topic: Mapped[bytes | None] = mapped_column(Halves)  # of the first turn, or of a summary
    context: Mapped[str] = mapped_column(Text, server_default="")  # the strategy that made window and topic
    fresh: Mapped[bool] = mapped_column(server_default=false())  # nothing said before it counts
    bucket: Mapped[bytes | None] = mapped_column(LargeBinary(16))  # neighbours.Bucket.digest; None where query is None


class Wording(Base):
    """A turn that was served from an entry in other words, or under another context.

    Under another context it is a node of its own; where the entry hangs from the same node, both stand on the entry's.
    Found by exact key and by place, never by vector, so wordings cannot drift away from what was answered.
    """

    __tablename__ = "wordings"
    __table_args__ = (
        Index("ix_wordings_entry", "entry_number"),
        Index("ix_wordings_node", "node"),
        Index("ix_wordings_parent", "parent"),
        {"sqlite_with_rowid": False},
    )

    exact_key: Mapped[bytes] = mapped_column(_Key, primary_key=True)
    node: Mapped[str] = mapped_column(_Id)  # of its own, or the entry's
    entry_number: Mapped[int] = mapped_column(ForeignKey("entries.number", ondelete="CASCADE"))
    parent: Mapped[str | None] = mapped_column(_Id)
    created_at: Mapped[float] = mapped_column(Float)
    # The decision that it comes from, so that a threshold raised since then holds for it too:
    kind: Mapped[str] = mapped_column(String(16), default="other_context", server_default="other_context")
    confidence: Mapped[float] = mapped_column(Float, default=1.0, server_default=text("1"))
    suspect: Mapped[bool] = mapped_column(default=False, server_default=false())  # not verified yet
    agreements: Mapped[int] = mapped_column(Integer, default=0, server_default=text("0"))  # checks that it has passed


class Place(Base):
    """Where a literal history (ending in an answer) stands in the forest."""

    __tablename__ = "places"
    __table_args__ = (Index("ix_places_used_at", "used_at"), {"sqlite_with_rowid": False})

    place_key: Mapped[bytes] = mapped_column(_Key, primary_key=True)
    node: Mapped[str] = mapped_column(_Id)
    used_at: Mapped[float] = mapped_column(Float)


class SessionTurn(Base):
    """A session was given an answer to this exact key: the same again is a regenerate."""

    __tablename__ = "sessions"
    __table_args__ = (Index("ix_sessions_at", "at"), {"sqlite_with_rowid": False})

    session: Mapped[str] = mapped_column(Text, primary_key=True)
    exact_key: Mapped[bytes] = mapped_column(_Key, primary_key=True)
    node: Mapped[str] = mapped_column(_Id)
    at: Mapped[float] = mapped_column(Float)


class Bar(Base):
    """Something that was corrected in a session or a conversation (``scope``) and is not served again there."""

    __tablename__ = "bars"
    __table_args__ = (Index("ix_bars_at", "at"), {"sqlite_with_rowid": False})

    scope: Mapped[bytes] = mapped_column(LargeBinary, primary_key=True)
    item: Mapped[bytes] = mapped_column(LargeBinary, primary_key=True)
    at: Mapped[float] = mapped_column(Float)


class ClosedNode(Base):
    """A node on a corrected branch: what hangs from it is read-only (`store.branches`)."""

    __tablename__ = "closed_nodes"
    __table_args__ = (Index("ix_closed_nodes_at", "at"), {"sqlite_with_rowid": False})

    node: Mapped[str] = mapped_column(_Id, primary_key=True)
    at: Mapped[float] = mapped_column(Float)


class Mark(Base):
    """What one rater thinks of an entry; the same said twice counts once (`store.marks`)."""

    __tablename__ = "marks"
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012

    entry_number: Mapped[int] = mapped_column(ForeignKey("entries.number", ondelete="CASCADE"), primary_key=True)
    rater: Mapped[bytes] = mapped_column(LargeBinary, primary_key=True)
    kind: Mapped[str] = mapped_column(String(12), primary_key=True)  # "up", "down", "regenerate", "reask"
    value: Mapped[int] = mapped_column(Integer)  # +1 or -1
    at: Mapped[float] = mapped_column(Float)


class Epoch(Base):
    """A raised epoch: no entry up to ``last_entry`` is reached any more (`store.epochs`)."""

    __tablename__ = "epochs"

    number: Mapped[int] = mapped_column(_Number, primary_key=True, autoincrement=True)
    last_entry: Mapped[int] = mapped_column(_Number)
    at: Mapped[float] = mapped_column(Float)


class Purge(Base):
    """Audit log: who took what out of circulation, and when. Never holds message texts."""

    __tablename__ = "purges"

    number: Mapped[int] = mapped_column(_Number, primary_key=True, autoincrement=True)
    at: Mapped[float] = mapped_column(Float)
    actor: Mapped[str] = mapped_column(Text)
    action: Mapped[str] = mapped_column(Text)  # one of `store.audit.ACTIONS`
    target: Mapped[str] = mapped_column(Text)  # JSON
    entries: Mapped[int] = mapped_column(Integer)  # how many were affected


class Change(Base):
    """What one transaction took out of circulation or told of a session, for the other processes on this database.

    Only written where there may be others (`store.replicas`). Numbers grow in the order of the commits.
    """

    __tablename__ = "changes"
    __table_args__ = (Index("ix_changes_at", "at"), {"sqlite_autoincrement": True})

    number: Mapped[int] = mapped_column(_Number, primary_key=True, autoincrement=True)
    at: Mapped[float] = mapped_column(Float)
    origin: Mapped[str] = mapped_column(_Id)  # the process that made it
    body: Mapped[bytes] = mapped_column(LargeBinary)  # replicas.pack


class AnswerVersion(Base):
    """One of the last answers to a question that was answered more than once: how it compares with the one before."""

    __tablename__ = "answer_versions"
    __table_args__ = (Index("ix_answer_versions_question_key", "question_key"),)

    number: Mapped[int] = mapped_column(_Number, primary_key=True, autoincrement=True)
    question_key: Mapped[bytes] = mapped_column(_Key)
    entry_id: Mapped[str] = mapped_column(_Id)  # that entry may be gone
    at: Mapped[float] = mapped_column(Float)
    verdict: Mapped[str] = mapped_column(String(8))  # of `store.agreement`; "first" where nothing stood before it
    why: Mapped[str] = mapped_column(Text)  # kind of fact or reason, never a text of the answer
    cosine: Mapped[float | None] = mapped_column(Float)
    space: Mapped[str] = mapped_column(Text)
    vector: Mapped[bytes | None] = mapped_column(LargeBinary)


class Evidence(Base):
    """What a check of one decision found: the material of the error budget."""

    __tablename__ = "evidence"
    __table_args__ = (Index("ix_evidence_question_key", "question_key"),)

    number: Mapped[int] = mapped_column(_Number, primary_key=True, autoincrement=True)
    kind: Mapped[str] = mapped_column(String(16))  # Kind
    confidence: Mapped[float] = mapped_column(Float)
    wrong: Mapped[bool] = mapped_column()
    model: Mapped[str] = mapped_column(Text)  # version of the artefact that decided: confidences of two do not compare
    source: Mapped[str] = mapped_column(String(16))  # "hit", "suspect", "miss", "feedback"
    question_key: Mapped[bytes | None] = mapped_column(_Key)  # of the entry; None: not served, or not known any more
    at: Mapped[float] = mapped_column(Float)


class Property(Base):
    """What the database says of itself (`store.properties`)."""

    __tablename__ = "properties"

    name: Mapped[str] = mapped_column(Text, primary_key=True)
    value: Mapped[str] = mapped_column(Text)


class VectorSpace(Base):
    """A space whose vectors are kept with fewer dimensions (`store.projection`)."""

    __tablename__ = "vector_spaces"

    space: Mapped[str] = mapped_column(Text, primary_key=True)  # the embedder's
    dimensions: Mapped[int] = mapped_column(Integer)  # that are kept
    matrix: Mapped[bytes] = mapped_column(LargeBinary)  # float32, little-endian, (before, kept) row by row
