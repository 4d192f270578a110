"""Relations of two turns, and the guards that veto: plain facts, compared where the turns rely on them."""

from __future__ import annotations

from collections.abc import Iterable

from fingerprint.conversation import Message, Turn
from fingerprint.facts.context import context_relations
from fingerprint.facts.material import material_relation
from fingerprint.facts.relation import Relation
from fingerprint.facts.rules import comparison_of, message_relations
from fingerprint.facts.sides import side_of
from fingerprint.facts.slight import slight_relation
from fingerprint.facts.standing import standing_relation
from fingerprint.facts.wording import wording_relations

__all__ = ["objections", "relations", "vetoes"]


def relations(query: Turn, candidate: Turn, *, same_place: bool) -> tuple[Relation, ...]:
    """How the two turns compare, field by field; symmetric in them. ``same_place``: both hang from one node of the
    forest, so what was said before is known to mean the same and only the last messages are compared."""
    a, b = (candidate, query) if _before(candidate, query) else (query, candidate)  # so that no rule favours a side
    one, two = side_of(a), side_of(b)
    found = list(message_relations(comparison_of(one, two, one.last, two.last)))
    found.extend(wording_relations(a.message.text, b.message.text))
    found.append(slight_relation(a.message.text, b.message.text))
    found.append(material_relation(a, b))
    if a.message.opaque != b.message.opaque:
        found.append(Relation("attachments", "conflict", "The messages carry other attachments."))
    if not same_place:
        found.extend(context_relations(a, b, one, two))
        found.append(standing_relation(a, b))
    return tuple(found)


def objections(query: Turn, candidate: Turn, *, same_place: bool) -> tuple[str, ...]:
    """Names of the guards that veto an answer, in a fixed order, none twice; empty where none objects. Symmetric."""
    return vetoes(relations(query, candidate, same_place=same_place))


def vetoes(found: Iterable[Relation]) -> tuple[str, ...]:
    """Names of the relations in conflict, in order, none twice."""
    return tuple(dict.fromkeys(relation.name for relation in found if relation.kind == "conflict"))


def _before(one: Turn, two: Turn) -> bool:
    if one.message != two.message:
        return _key(one.message) < _key(two.message)
    return tuple(map(_key, one.history)) < tuple(map(_key, two.history))


def _key(m: Message) -> tuple[str, str, bytes]:
    return m.role, m.text, m.opaque
