"""What was said before: which differences of the histories the turns rely on."""

from __future__ import annotations

from rapidfuzz import fuzz

from fingerprint.conversation import Turn
from fingerprint.facts.extract import Facts
from fingerprint.facts.relation import Relation
from fingerprint.facts.rules import comparison_of, message_relations
from fingerprint.facts.sides import Side

__all__ = ["context_relations"]


def context_relations(a: Turn, b: Turn, one: Side, two: Side) -> list[Relation]:
    """The relation of what was said before the two last messages."""
    if tuple((m.role, m.text, m.opaque) for m in a.history) == tuple((m.role, m.text, m.opaque) for m in b.history):
        return [Relation("context", "equal", "The same was said before.")]
    if any(m.opaque for m in (*a.history, *b.history)):
        return [Relation("context", "conflict", "Something other than text was part of one of the conversations.")]
    for mine, theirs in _aligned(one, two):
        for relation in message_relations(comparison_of(one, two, mine, theirs)):
            if relation.kind == "conflict":
                return [Relation("context", "conflict", f"What was said before differs: {relation.sentence}")]
    if one.last.elliptic and two.last.elliptic and fuzz.ratio(one.last.folded, two.last.folded) >= 90 and not _offer_same(one, two):
        return [Relation("context", "conflict", "A short reply answers another message.")]
    return [Relation("context", "compatible", "What was said before differs in words only, or in what the turn does not rely on.")]


def _offer_same(a: Side, b: Side) -> bool:
    if a.offer is None or b.offer is None:
        return a.offer is b.offer
    return fuzz.token_set_ratio(a.offer.folded, b.offer.folded) >= 50


def _aligned(a: Side, b: Side) -> list[tuple[Facts, Facts]]:
    """Pairs of earlier messages of one role that say nearly the same and are not identical."""
    theirs = list(b.history)
    identical = {facts.folded for _, facts in a.history} & {facts.folded for _, facts in b.history}
    pairs: list[tuple[Facts, Facts]] = []
    for role, mine in a.history:
        if mine.folded in identical:
            continue
        scored = [
            (fuzz.ratio(mine.folded[:2000], other.folded[:2000]), position)
            for position, (their_role, other) in enumerate(theirs)
            if their_role == role and other.folded not in identical
        ]
        if not scored:
            continue
        best, position = max(scored)
        if best >= 60:
            pairs.append((mine, theirs[position][1]))
    return pairs
