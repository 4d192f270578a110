"""What was corrected in a session or a conversation is not served again there.

A *scope* is a session (as its caller named it) or a conversation, known by the chain of its literal messages up to and
including the correction: every later turn of that conversation has it as a prefix. An *item* is what is barred: an
entry, the exact key it answered (whatever answers it later), or the text of the answer (whatever entry says the same).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Final

import msgspec

from fingerprint.conversation import Message
from fingerprint.text import normalise, utf8
from store.types import Query

__all__ = ["ENTRY_ITEM", "SESSION_SCOPE", "Bars", "items_of", "scopes_of", "text_digest"]

ENTRY_ITEM: Final = b"e"
SESSION_SCOPE: Final = b"s"
_KEY: Final = b"k"
_TEXT: Final = b"t"


def text_digest(text: str) -> bytes:
    """Return 16 bytes that stand for an answer's text."""
    return blake2b(utf8(normalise(text)), digest_size=16, person=b"antiphon.answer").digest()


def items_of(*, entry_id: str | None, exact_key: bytes | None, answer_digest: bytes | None) -> tuple[bytes, ...]:
    """Return the items that stand for an answer; what is None has none."""
    items = []
    if entry_id is not None:
        items.append(ENTRY_ITEM + entry_id.encode())
    if exact_key is not None:
        items.append(_KEY + exact_key)
    if answer_digest is not None:
        items.append(_TEXT + answer_digest)
    return tuple(items)


def scopes_of(query: Query, *, here: bool) -> tuple[bytes, ...]:
    """Return the scopes a turn belongs to: its session, and the chain of its messages.

    With ``here`` only those it opens as a correction (its session, and the whole conversation up to it); without, also
    every shorter prefix of the conversation: one of them may have been a correction.
    """
    scopes = []
    if query.session is not None:
        scopes.append(SESSION_SCOPE + query.partition + utf8(query.session))
    links = list(_chain(query))
    scopes += links[-1:] if here else links[:-1]
    return tuple(scopes)


def _chain(query: Query) -> Iterator[bytes]:
    link = blake2b(query.partition, digest_size=16, person=b"antiphon.chain").digest()
    for message in (*query.turn.history, query.turn.message):
        link = blake2b(link + _encode(message), digest_size=16, person=b"antiphon.chain").digest()
        yield b"c" + link


def _encode(message: Message) -> bytes:
    return msgspec.msgpack.encode((message.role, utf8(message.text), message.opaque))


class Bars:
    """All bars in memory; there are few, one look at a dictionary tells that something is not barred."""

    def __init__(self) -> None:
        self._scopes: dict[bytes, frozenset[bytes]] = {}
        self._lock = threading.Lock()

    def add(self, scopes: Iterable[bytes], items: Iterable[bytes]) -> None:
        """Bar ``items`` in each of ``scopes``. Safe to call from any thread."""
        scopes = frozenset(scopes)
        with self._lock:
            for item in items:
                self._scopes[item] = self._scopes.get(item, frozenset()) | scopes

    def bars(self, query: Query, items: Iterable[bytes]) -> bool:
        """Whether one of ``items`` must not be served to this turn."""
        if not self._scopes:
            return False
        barred: frozenset[bytes] = frozenset().union(*(self._scopes.get(item, frozenset()) for item in items))
        return bool(barred) and not barred.isdisjoint(scopes_of(query, here=False))
