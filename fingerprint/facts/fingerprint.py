"""The structural fingerprint of a turn: what plain code can say about it, in one stored value."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import msgspec

from fingerprint.conversation import Turn
from fingerprint.facts import details
from fingerprint.facts.extract import Facts, is_slip
from fingerprint.facts.sides import side_of
from fingerprint.facts.tables import Lexicon, lexicon
from fingerprint.signals import Signals, signals_of

__all__ = ["FACTS_SCHEMA", "Amount", "Fingerprint", "fingerprint_equal", "fingerprint_of", "pack", "unpack"]

FACTS_SCHEMA: Final = 2
"""Raise it whenever a table or a rule changes what the same text yields. Part of the identity of what is stored."""

_MOST: Final = 24  # values kept of each kind


class Amount(msgspec.Struct, frozen=True, array_like=True):
    """A number with its unit and role: ``value`` in base units of ``dimension`` ("time", "mass", "eur", "ordinal", ""
    for a count of ``noun``), ``role`` "minimum", "maximum", "from", "to", "about", "rate", … or ""."""

    value: float
    dimension: str
    noun: str
    role: str


class Fingerprint(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What a turn says, field by field. Everything is folded; "" and () where not said. At most 24 values a field.

    Stored as a MessagePack array (`pack`): fields are only ever added at the end, and ``schema`` says what they mean.
    """

    schema: int
    language: str  # "en" (any Latin script), "zh", "other"
    intent: str
    """"reply" (yes or no to what was offered), "smalltalk", "transform", "comparison", "definition", "troubleshooting",
    "status", "how_to", "create", "reason", "yes_no", "question" (any other), "command", "statement"."""
    question: str  # kind of answer wanted: "how", "how_many", "when", "yes_no", …
    actions: tuple[str, ...]  # verbs with their particles, each the name of its synonym class where it has one
    objects: tuple[str, ...]  # stems of the other content words of what is asked
    entities: tuple[tuple[str, str], ...]  # (kind, value), see `details.entities`
    numbers: tuple[Amount, ...]
    times: tuple[str, ...]  # "day:02-09", "year:2024", "weekday:1", "clock:19:30", "relative:+1d"
    periods: tuple[str, ...]  # "since", "until", "within", "last", "every", …
    versions: tuple[str, ...]
    ids: tuple[str, ...]
    quoted: tuple[str, ...]
    given: str  # hex digest of the text handed over, with what lies beyond the part read closely
    symbols: tuple[str, ...]  # flags and other signs that are no mood
    direction: tuple[str, str]  # after "from", after "to"
    ordered: tuple[tuple[str, str], ...]  # what stands before and after "to", "than", "into", 比, …
    negated: bool  # an odd number of negations in what is asked
    negations: tuple[str, ...]  # what each negation covers
    poles: tuple[str, ...]  # sides of opposites: "enable", "minimum", 开启, …, each the first form of its table
    quantifiers: tuple[str, ...]
    comparatives: tuple[str, ...]
    modality: tuple[str, ...]
    persons: tuple[str, ...]  # whom it is about, besides the speaker
    formats: tuple[str, ...]
    reply: str  # "yes", "no" or ""
    time_sensitive: bool
    personal: bool
    self_contained: bool
    answers: str  # hex digest of the assistant message it follows, where it is not self-contained
    literal: str  # hex digest of the message without spaces, where no action, object or name could be read from it


@lru_cache(maxsize=256)  # a turn is looked at when it is asked and when its answer is written
def fingerprint_of(turn: Turn) -> Fingerprint:
    """The fingerprint of a turn. Never raises; linear in the length of its messages."""
    side = side_of(turn)
    facts = side.last
    words = lexicon(facts.language)
    signals = signals_of(turn)
    actions, objects = details.actions_and_objects(facts, words)
    entities = details.entities(facts, words)
    literals = facts.literals
    return Fingerprint(
        schema=FACTS_SCHEMA,
        language=facts.language,
        intent=_intent(facts, words, signals),
        question=facts.question,
        actions=tuple(actions[:_MOST]),
        objects=tuple(objects[:_MOST]),
        entities=tuple(entities[:_MOST]),
        numbers=tuple(Amount(q.value, q.dimension, q.noun, q.role) for q in facts.numbers[:_MOST]),
        times=facts.times[:_MOST],
        periods=tuple(details.periods(facts, words)),
        versions=literals.versions[:_MOST],
        ids=literals.ids[:_MOST],
        quoted=literals.quoted[:_MOST],
        given=_digest(literals.given + facts.overflow) if literals.given or facts.overflow else "",
        symbols=literals.emoji[:_MOST],
        direction=facts.direction,
        ordered=tuple(sorted(details.ordered(facts.focus, words)))[:_MOST],
        negated=sum(s.negations for s in facts.focus) % 2 == 1,
        negations=tuple(details.negated(facts, words))[:_MOST],
        poles=_poles(facts, words),
        quantifiers=_sorted(x for s in facts.focus for x in s.quantifiers),
        comparatives=tuple(details.comparatives(facts, words))[:_MOST],
        modality=_sorted(x for s in facts.focus for x in s.modals),
        persons=_sorted(x for s in facts.sentences for x in s.persons),
        formats=_sorted(facts.formats),
        reply="yes" if facts.affirms else "no" if facts.declines else "",
        time_sensitive=signals.time_sensitive,
        personal=signals.personal,
        self_contained=not facts.elliptic,
        answers=_digest(side.offer.folded) if facts.elliptic and side.offer is not None else "",
        literal="" if actions or objects or entities else _digest(facts.solid),
    )


_UNORDERED: Final = ("actions", "entities", "times", "periods", "versions", "ids", "quoted", "symbols")


def fingerprint_equal(one: Fingerprint | Turn, other: Fingerprint | Turn) -> bool:
    """Whether two turns have equal fingerprints: every field says the same, in whatever order things were named.

    Misspelt objects count as the same ("pasword"). Symmetric. Fingerprints of another schema, or of two schemas, equal
    nothing: what their fields mean is not known here.
    """
    a = fingerprint_of(one) if isinstance(one, Turn) else one
    b = fingerprint_of(other) if isinstance(other, Turn) else other
    if not a.schema == b.schema == FACTS_SCHEMA:
        return False
    for name in Fingerprint.__struct_fields__:
        mine, theirs = getattr(a, name), getattr(b, name)
        if name in _UNORDERED:
            mine, theirs = frozenset(mine), frozenset(theirs)
        elif name == "numbers":
            mine, theirs = _amounts(mine), _amounts(theirs)
        elif name == "objects":
            if not _same_objects(frozenset(mine), frozenset(theirs)):
                return False
            continue
        elif name == "ordered":  # the same things may be said in another order, but not turned round
            if any((right, left) in theirs and (left, right) not in theirs for left, right in mine):
                return False
            continue
        if mine != theirs:
            return False
    return True


def _amounts(numbers: Iterable[Amount]) -> frozenset[tuple[float, str, str]]:
    """Amounts as compared: what is counted is compared as an object already, and the words after a number vary."""
    return frozenset((n.value, n.dimension, n.role) for n in numbers)


def _same_objects(a: frozenset[str], b: frozenset[str]) -> bool:
    """Whether the words that only one side has can be paired off as spellings of one another."""
    left, right = sorted(a - b), sorted(b - a)
    if len(left) != len(right):
        return False
    for word in left:
        partner = next((other for other in right if is_slip(word, other)), None)
        if partner is None:
            return False
        right.remove(partner)
    return True


def pack(fingerprint: Fingerprint) -> bytes:
    """The fingerprint as it is stored, a few hundred bytes."""
    try:
        return msgspec.msgpack.encode(fingerprint)
    except UnicodeEncodeError:  # lone surrogates, which no encoding carries
        return msgspec.msgpack.encode(_encodable(msgspec.to_builtins(fingerprint)))


def _encodable(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list | tuple):
        return [_encodable(item) for item in value]
    return value


def unpack(data: bytes) -> Fingerprint | None:
    """What `pack` wrote; ``None`` where the bytes are damaged or of another schema: it is then made anew."""
    try:
        found = msgspec.msgpack.decode(data, type=Fingerprint)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if found.schema == FACTS_SCHEMA else None


def _intent(facts: Facts, words: Lexicon, signals: Signals) -> str:
    if facts.affirms or facts.declines:
        return "reply"
    if signals.smalltalk:
        return "smalltalk"
    if facts.intent:
        return facts.intent
    if facts.question:
        return "yes_no" if facts.question == "yes_no" else "question"
    if any(words.commands.search(s.text.strip()) for s in facts.focus):
        return "command"
    return "question" if any(s.asks for s in facts.sentences) else "statement"


def _sorted(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(values)))[:_MOST]


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _poles(facts: Facts, words: Lexicon) -> tuple[str, ...]:
    sides = {side for s in facts.focus for side in s.antonyms}
    if not sides:
        return ()
    names: dict[tuple[int, int], str] = {}
    for form, its in words.antonym_sides.items():
        for side in its:
            names.setdefault(side, form)
    return tuple(sorted({names[side] for side in sides}))[:_MOST]
