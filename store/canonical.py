"""The canonical history: which earlier turns of a conversation were served from the cache, and how the node words them.

The backend's KV cache reuses equal token prefixes. It has never seen the wording of a user who was served from the
cache; it has seen that of the node the turn stands on (DESIGN §5). So where a conversation goes on with a turn that is
forwarded, its earlier turns are sent in the node's wording.

Only what is beyond doubt is replaced. The conversation is walked from its beginning, round by round, and the walk ends
at the first round about which anything is not as it should be; what lies behind stays as the user wrote it. A user
message is replaced only where

- this literal turn was served at answer level from an entry that hangs from the very node this conversation stood on
  (a *wording* that shares the entry's node), and the model never answered the literal turn itself, as far as is known;
- the conversation holds the entry's answer, word for word;
- the hit needs no verification any more, and the entry is still served: not retracted, suspect, expired, replaced, nor
  barred in this conversation or session;
- both messages are plain text, and neither tells what the other does not (`fingerprint.facts.interchange`): what one
  user said of herself must neither be lost from her conversation nor get into another's.

A turn the model answered for this user, or one served from another context (a node of its own, in this user's words),
stays as it is and the walk goes on from its node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, bindparam, select

from fingerprint.conversation import Message, Turn
from fingerprint.dates import relative_dates_of, resolve
from fingerprint.facts.interchange import says_otherwise
from fingerprint.keys import dated_key, exact_key, place_key
from fingerprint.text import normalise
from store.bars import text_digest
from store.codec import unpack_answer, unpack_question
from store.epochs import in_epoch
from store.models import Entry, Place, SessionTurn, Wording
from store.types import Query

__all__ = ["Canonical", "Reference", "Replaced", "Servable", "canonical", "reference"]

MOST_ROUNDS: Final = 64
"""Rounds that are walked; those behind stay as they are."""
MOST_CHARACTERS: Final = 1 << 20
"""A history longer than this is left alone: keying every prefix of it would take too long."""
_LITERALLY: Final = frozenset({"active", "frozen"})  # served to a literal repeat
_OTHERWISE: Final = frozenset({"active"})  # and in other words

Servable = Callable[[str, bytes, bytes | None], bool]
"""Entry id, its exact key, digest of its answer (``None``: not read yet) -> whether this turn may be served it."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """One user message of the history, and what is sent in its place."""

    index: int  # in ``Turn.history``
    text: str  # the node's own wording
    entry_id: str


@dataclass(frozen=True, slots=True)
class Canonical:
    """What to replace in a history, oldest first; ``ended`` says why the walk ended early, empty where it did not."""

    replaced: tuple[Replaced, ...] = ()
    ended: str = ""


@dataclass(frozen=True, slots=True)
class Reference:
    """A stored question with its answer, as texts."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class _Round:
    """A user message and the answer behind it."""

    user: int  # index in the history
    exact: bytes  # key of the literal turn
    place: bytes  # key of the literal history up to and including the answer


@dataclass(frozen=True, slots=True)
class _Served:
    """A turn that was served in other words."""

    node: str
    entry: Any  # a row of `_ENTRIES`
    suspect: bool = False  # not verified yet


_ENTRY = (
    Entry.number,
    Entry.id,
    Entry.exact_key.label("entry_key"),
    Entry.partition,
    Entry.parent,
    Entry.depth,
    Entry.state,
    Entry.unserved_until,
    Entry.expires_at,
    in_epoch().label("in_epoch"),
)
_ENTRIES = select(*_ENTRY).where(Entry.id.in_(bindparam("ids", expanding=True)))
_WORDINGS = (
    select(*_ENTRY, Wording.exact_key, Wording.node, Wording.suspect)
    .join(Entry, Entry.number == Wording.entry_number)
    .where(Wording.exact_key.in_(bindparam("keys", expanding=True)))
)
_OWN = select(*_ENTRY).where(Entry.exact_key.in_(bindparam("keys", expanding=True)))
_PLACES = select(Place.place_key, Place.node).where(Place.place_key.in_(bindparam("keys", expanding=True)))
_SESSIONS = select(SessionTurn.exact_key, SessionTurn.node).where(
    SessionTurn.session == bindparam("session"), SessionTurn.exact_key.in_(bindparam("keys", expanding=True))
)
_TEXTS = select(Entry.number, Entry.question, Entry.answer).where(
    Entry.number.in_(bindparam("numbers", expanding=True))
)
_REFERENCE = select(*_ENTRY, Entry.question, Entry.answer).where(Entry.id == bindparam("id"))


def canonical(
    connection: Connection,
    query: Query,
    *,
    places: Callable[[bytes], str | None],
    wordings: Callable[[bytes], tuple[str, str] | None],
    servable: Servable,
    now: float,
    rounds: int | None = None,
) -> Canonical:
    """Walk the history of ``query``; reads only, a few milliseconds at most.

    ``places`` and ``wordings`` (exact key → node, entry) tell what is known though perhaps not yet written;
    ``rounds`` is how many rounds are walked at most.
    """
    walked = _rounds(query, MOST_ROUNDS if rounds is None else min(rounds, MOST_ROUNDS))
    if not walked:
        return Canonical()
    keys = [one.exact for one in walked]
    served = _served_in_other_words(connection, keys, wordings)
    if not served:  # nothing was served in other words: the common case ends here
        return Canonical()
    own: dict[bytes, list[Any]] = {}
    for row in connection.execute(_OWN, {"keys": keys}):
        own.setdefault(row.entry_key, []).append(row)
    places_of = connection.execute(_PLACES, {"keys": [one.place for one in walked]})
    stands = {row.place_key: row.node for row in places_of}
    told: Mapping[bytes, str] = {}
    if query.session is not None:
        rows = connection.execute(_SESSIONS, {"session": query.session, "keys": keys})
        told = {row.exact_key: row.node for row in rows}

    found: list[tuple[_Round, Any]] = []
    node: str | None = None  # the root
    ended = ""
    for one in walked:
        here = places(one.place) or stands.get(one.place)
        wording = served.get(one.exact)
        ended = _doubt(one, here, wording, own.get(one.exact, ()), told.get(one.exact), query, node, servable, now)
        if ended:
            break
        if wording is not None and wording.node == wording.entry.id:
            found.append((one, wording.entry))
        node = here
    if not found:
        return Canonical(ended=ended)
    return _with_texts(connection, query.turn.history, found, servable, ended)


def _doubt(
    one: _Round,
    here: str | None,
    wording: _Served | None,
    own: Sequence[Any],
    told: str | None,
    query: Query,
    node: str | None,
    servable: Servable,
    now: float,
) -> str:
    """Why the walk must end before this round; empty where it may go on."""
    if here is None:
        return "place not known"
    if told is not None and told != here:
        return "another answer in this session"
    if wording is None:
        mine = next((row for row in own if row.id == here), None)
        if mine is None:
            return "origin not known"
        return "" if _is_served(mine, _LITERALLY, now, servable) else "entry not served any more"
    if wording.node != here:
        return "another answer"
    if own:
        return "answered by the model before"
    if wording.suspect:
        return "not verified yet"
    entry = wording.entry
    if not _is_served(entry, _OTHERWISE, now, servable):
        return "entry not served any more"
    if wording.node == entry.id and (
        entry.partition != query.partition or entry.depth != one.user or entry.parent != node
    ):
        return "from another place"
    return ""


def _served_in_other_words(
    connection: Connection, keys: Sequence[bytes], recent: Callable[[bytes], tuple[str, str] | None]
) -> dict[bytes, _Served]:
    """Which of these literal turns were served from an entry that is not their own."""
    served = {
        row.exact_key: _Served(row.node, row, row.suspect) for row in connection.execute(_WORDINGS, {"keys": keys})
    }
    waiting = {key: found for key in keys if key not in served and (found := recent(key)) is not None}
    if waiting:
        ids = sorted({entry for _, entry in waiting.values()})
        entries = {row.id: row for row in connection.execute(_ENTRIES, {"ids": ids})}
        served |= {key: _Served(node, entries[entry]) for key, (node, entry) in waiting.items() if entry in entries}
    return served


def _is_served(row: Any, states: frozenset[str], now: float, servable: Servable) -> bool:
    """Whether an entry (a row of `_ENTRY`) is still served."""
    lives = row.state in states and row.in_epoch and row.unserved_until <= now < row.expires_at
    return lives and servable(row.id, row.entry_key, None)


def _with_texts(
    connection: Connection,
    history: Sequence[Message],
    found: Sequence[tuple[_Round, Any]],
    servable: Servable,
    ended: str,
) -> Canonical:
    """Read the wordings of the nodes, and check each against the conversation once more."""
    numbers = [row.number for _, row in found]
    texts = {row.number: row for row in connection.execute(_TEXTS, {"numbers": numbers})}
    replaced: list[Replaced] = []
    for one, row in found:
        said, answered = history[one.user], history[one.user + 1]
        read = texts.get(row.number)
        if read is None:
            return Canonical(tuple(replaced), "entry not served any more")
        try:
            asked = unpack_question(read.question, ()).message
            answer = unpack_answer(read.answer, prompt_tokens=0, completion_tokens=0, seconds=0.0).text
        except ValueError:
            return Canonical(tuple(replaced), "entry cannot be read")
        if said.opaque or answered.opaque or asked.opaque or asked.role != said.role or not asked.text.strip():
            return Canonical(tuple(replaced), "not plain text")
        if normalise(answer) != answered.text:
            return Canonical(tuple(replaced), "another answer")
        if not servable(row.id, row.entry_key, text_digest(answer)):
            return Canonical(tuple(replaced), "entry not served any more")
        if asked.text != said.text:  # the turns may differ in what stood before them only
            if why := says_otherwise(asked.text, said.text):
                return Canonical(tuple(replaced), f"the wordings tell different things ({why})")
            replaced.append(Replaced(one.user, asked.text, row.id))
    return Canonical(tuple(replaced), ended)


def _rounds(query: Query, most: int) -> list[_Round]:
    """The rounds at the beginning of a history: a user message, an assistant message, and so on.

    What was said of "last week" has the key of the week it means today: on another day nothing is found under it.
    """
    history = query.turn.history
    if sum(len(message.text) + len(message.opaque) for message in history) > MOST_CHARACTERS:
        return []
    rounds: list[_Round] = []
    for user in range(0, min(len(history) - 1, 2 * most), 2):
        if history[user].role != "user" or history[user + 1].role != "assistant":
            break
        turn = Turn(query.turn.system, history[:user], history[user])
        dates = "" if query.today is None else resolve(relative_dates_of(turn), query.today)
        rounds.append(
            _Round(
                user,
                dated_key(exact_key(query.partition, query.identity, turn), dates),
                place_key(query.partition, query.identity, history[: user + 2]),
            )
        )
    return rounds


def reference(connection: Connection, entry_id: str, *, servable: Servable, now: float) -> Reference | None:
    """Return question and answer of an entry where it is served and both are plain text."""
    row = connection.execute(_REFERENCE, {"id": entry_id}).first()
    if row is None or not _is_served(row, _OTHERWISE, now, servable):
        return None
    try:
        asked = unpack_question(row.question, ()).message
        answer = unpack_answer(row.answer, prompt_tokens=0, completion_tokens=0, seconds=0.0).text
    except ValueError:
        return None
    plain = asked.role == "user" and not asked.opaque and asked.text.strip() and answer.strip()
    if not plain or not servable(entry_id, row.entry_key, text_digest(answer)):
        return None
    return Reference(asked.text, answer)
