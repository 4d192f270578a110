"""The direct look-up level: a key over what a message asks of one numbered thing."""

from __future__ import annotations

from hashlib import blake2b

from fingerprint.conversation import Turn
from fingerprint.facts.extract import facts_of
from fingerprint.facts.fingerprint import FACTS_SCHEMA
from fingerprint.facts.tables import lexicon

__all__ = ["direct_key"]


def direct_key(turn: Turn) -> bytes | None:
    """Key of the direct look-up level: 32 bytes over (entity id, action, object type), where the last message says
    nothing else. "check order #ORD-789" and "order 789, what's its status?" have one key.

    ``None`` wherever anything is left over or ambiguous: another number, date, name, negation, quoted or given text,
    two ids, no known object, another question than "what about it". The key says nothing about history: whoever uses it
    keeps to one partition and identity, as for every key.
    """
    facts = facts_of(turn.message.text)
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
            elif token.low in words.verbs:
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
