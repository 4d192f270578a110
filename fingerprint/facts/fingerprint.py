"""The structural fingerprint of a turn: what plain code can say about it, in one stored value."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from fingerprint.conversation import Turn
from fingerprint.facts.extract import Facts, Token
from fingerprint.facts.quantities import Quantity
from fingerprint.facts.sides import side_of
from fingerprint.facts.tables import Lexicon, lexicon

__all__ = ["FACTS_SCHEMA", "Fingerprint", "direct_key", "fingerprint_of"]

FACTS_SCHEMA = 1  # raise it whenever a table or a rule changes what the same text yields

_MOST = 24  # values kept of each kind


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a turn says, field by field. Everything is folded and in the order of the text; "" and () where not said.

    Plain strings, numbers and tuples only, so that ``msgspec.msgpack`` and ``msgspec.json`` read and write it.
    """

    schema: int
    language: str  # "en" (any Latin script), "zh", "other"
    question: str  # kind of answer wanted: "how", "how_many", "when", "yes_no", …
    intent: str  # "how_to", "status", "definition", "comparison", "troubleshooting", "transform", "create", "reason"
    actions: tuple[str, ...]  # verbs, each the name of its synonym class where it has one
    objects: tuple[str, ...]  # stems of the other content words
    numbers: tuple[Quantity, ...]
    times: tuple[str, ...]  # "day:02-09", "year:2024", "weekday:1", "clock:19:30", "relative:+1d"
    versions: tuple[str, ...]
    ids: tuple[str, ...]
    urls: tuple[str, ...]
    code: tuple[str, ...]
    quoted: tuple[str, ...]
    given: str  # hex digest of the text handed over, with what lies beyond the part read closely
    symbols: tuple[str, ...]  # flags and other signs that are no mood
    names: tuple[str, ...]
    direction: tuple[str, str]  # after "from", after "to"
    negated: bool  # an odd number of negations in what is asked
    poles: tuple[str, ...]  # sides of opposites: "enable", "minimum", 开启, …, each the first form of its table
    quantifiers: tuple[str, ...]
    modality: tuple[str, ...]
    persons: tuple[str, ...]
    formats: tuple[str, ...]
    reply: str  # "yes", "no" or ""
    self_contained: bool
    answers: str  # hex digest of the assistant message it follows, where it is not self-contained


def fingerprint_of(turn: Turn) -> Fingerprint:
    """The fingerprint of a turn. Never raises; linear in the length of its messages."""
    side = side_of(turn)
    facts = side.last
    words = lexicon(facts.language)
    actions, objects = _words(facts, words)
    literals = facts.literals
    return Fingerprint(
        schema=FACTS_SCHEMA,
        language=facts.language,
        question=facts.question,
        intent=facts.intent,
        actions=actions,
        objects=objects,
        numbers=facts.numbers[:_MOST],
        times=facts.times[:_MOST],
        versions=literals.versions[:_MOST],
        ids=literals.ids[:_MOST],
        urls=literals.urls[:_MOST],
        code=literals.code[:_MOST],
        quoted=literals.quoted[:_MOST],
        given=_digest(literals.given + facts.overflow) if literals.given or facts.overflow else "",
        symbols=literals.emoji[:_MOST],
        names=tuple(sorted(facts.names))[:_MOST],
        direction=facts.direction,
        negated=sum(s.negations for s in facts.focus) % 2 == 1,
        poles=_poles(facts, words),
        quantifiers=_sorted(x for s in facts.focus for x in s.quantifiers),
        modality=_sorted(x for s in facts.focus for x in s.modals),
        persons=_sorted(x for s in facts.sentences for x in s.persons),
        formats=_sorted(facts.formats),
        reply="yes" if facts.affirms else "no" if facts.declines else "",
        self_contained=not facts.elliptic,
        answers=_digest(side.offer.folded) if facts.elliptic and side.offer is not None else "",
    )


def _sorted(values: object) -> tuple[str, ...]:
    return tuple(sorted(set(values)))[:_MOST]  # type: ignore[call-overload]


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _poles(facts: Facts, words: Lexicon) -> tuple[str, ...]:
    names: dict[tuple[int, int], str] = {}
    for form, sides in words.antonym_sides.items():
        for side in sides:
            names.setdefault(side, form)
    return tuple(sorted({names[side] for s in facts.focus for side in s.antonyms}))[:_MOST]


def _is_action(token: Token, words: Lexicon) -> bool:
    return token.low in words.verbs


def _words(facts: Facts, words: Lexicon) -> tuple[tuple[str, ...], tuple[str, ...]]:
    actions: dict[str, None] = {}
    objects: dict[str, None] = {}
    for sentence in facts.focus:
        for token in sentence.tokens:
            if _is_action(token, words):
                actions[token.stem] = None
            elif token.content:
                objects[token.stem] = None
    return tuple(actions)[:_MOST], tuple(objects)[:_MOST]


def direct_key(turn: Turn) -> bytes | None:
    """Key of the direct look-up level: 32 bytes over (entity id, action, object type), where the last message says
    nothing else. "check order #ORD-789" and "order 789, what's its status?" have one key.

    ``None`` wherever anything is left over or ambiguous: another number, date, name, negation, quoted or given text,
    two ids, no known object, another question than "what about it". The key says nothing about history: whoever uses it
    keeps to one partition and identity, as for every key.
    """
    facts = side_of(turn).last
    words = lexicon(facts.language)
    literals = facts.literals
    extra = literals.code or literals.urls or literals.versions or literals.quoted or literals.given or literals.emoji
    if extra or facts.overflow or facts.times or facts.affirms or facts.declines or len(facts.sentences) > 2:
        return None
    if (
        facts.corrected
        or any(s.negations for s in facts.sentences)
        or facts.question not in {"", "what", "where", "yes_no", "how"}
    ):
        return None
    numbers = [q for q in facts.numbers if q.dimension != "ordinal"]
    if len(numbers) + len(literals.ids) != 1:
        return None
    objects: set[str] = set()
    actions: set[str] = set()
    for sentence in facts.sentences:
        status = words.status.search(sentence.text)
        if status is not None:
            actions.add("status")
        for token in sentence.tokens:
            if token.low in words.objects or token.low.removesuffix("s") in words.objects:
                objects.add(token.low if token.low in words.objects else token.low.removesuffix("s"))
            elif words.status.fullmatch(token.low) or token.low[0].isdigit() or not token.content:
                continue
            elif _is_action(token, words):
                actions.add(token.stem)
            elif status is None or token.low not in status.group():
                return None
    actions -= {"status"} if len(actions) > 1 else set()
    if len(objects) != 1 or len(actions) > 1 or (numbers and numbers[0].dimension):
        return None
    kind = objects.pop()
    entity = literals.ids[0] if literals.ids else f"{numbers[0].written:.0f}" if numbers[0].written.is_integer() else ""
    letters = entity.rstrip("0123456789")
    if letters and kind.startswith(letters) and len(letters) < len(entity):  # ORD-789 is order 789
        entity = entity[len(letters) :]
    if not entity:
        return None
    key = blake2b(digest_size=32, person=b"antiphon-direct")
    for part in (str(FACTS_SCHEMA), facts.language, entity, next(iter(actions), "status"), kind):
        encoded = part.encode("utf-8", "surrogatepass")
        key.update(len(encoded).to_bytes(8, "big") + encoded)
    return key.digest()
