"""What was said before: which differences of the histories the turns rely on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from rapidfuzz import fuzz

from fingerprint.conversation import Turn
from fingerprint.facts.edits import edits_between
from fingerprint.facts.extract import Facts
from fingerprint.facts.relation import Relation
from fingerprint.facts.rules import comparison_of, message_relations, replaced_words
from fingerprint.facts.sides import Side
from fingerprint.facts.tables import lexicon

__all__ = ["context_relations"]


def context_relations(a: Turn, b: Turn, one: Side, two: Side) -> list[Relation]:
    """The relation of what was said before the two last messages."""
    if tuple((m.role, m.text, m.opaque) for m in a.history) == tuple((m.role, m.text, m.opaque) for m in b.history):
        return [Relation("context", "equal", "The same was said before.")]
    if any(m.opaque for m in (*a.history, *b.history)):
        return [Relation("context", "conflict", "Something other than text was part of one of the conversations.")]
    for pair in _aligned(one, two):
        comparison = comparison_of(one, two, pair.mine, pair.theirs, loose=False)
        replaced = replaced_words(comparison) if pair.back <= _LAST_EXCHANGE else None
        if replaced is not None:
            sentence = f"What was said just before differs: {replaced[0]} against {replaced[1]}."
            return [Relation("context", "conflict", sentence)]
        for relation in message_relations(comparison):
            if relation.kind == "conflict" and _relied_on(relation.name, pair, one, two):
                return [Relation("context", "conflict", f"What was said before differs: {relation.sentence}")]
    if replies := _answered_otherwise(one, two):
        return [
            Relation(
                "context", "conflict", f"The same was asked before and answered {replies[0]!r} and {replies[1]!r}."
            )
        ]
    if one.last.elliptic and two.last.elliptic:
        if _hangs_in_the_air(one, two) or _hangs_in_the_air(two, one):
            return [
                Relation("context", "conflict", "The turn leans on what was said before in one conversation alone.")
            ]
        if _other_offer(one, two):
            return [Relation("context", "conflict", "A short reply answers another offer.")]
        if not _same_ground(one, two):
            return [
                Relation("context", "conflict", "The turn leans on what was said before, and that was something else.")
            ]
    elif _points_elsewhere(one, two) or _points_elsewhere(two, one):
        return [
            Relation("context", "conflict", "One turn names what the other only points at, and that is something else.")
        ]
    return [
        Relation(
            "context", "compatible", "What was said before differs in words only, or in what the turn does not rely on."
        )
    ]


def _hangs_in_the_air(bare: Side, other: Side) -> bool:
    """Whether a turn that cannot stand alone has nothing before it to lean on, while the other has: "How much does it
    cost?", asked at once."""
    told, asked = (any(role == "user" and facts.content for role, facts in side.history) for side in (other, bare))
    more = bare.last.content - other.last.content - _NAMELESS  # "what about disadvantages", "... of a 529 plan"
    return told and not asked and not more and _leans(bare.last) and _leans(other.last)


def _leans(last: Facts) -> bool:
    """Whether a message names nothing to speak of, or points at something."""
    if last.content <= _NAMELESS:
        return True
    said = _EXPLETIVE.sub(" ", last.folded)
    return len(last.content) <= _BARE and bool(_FOLLOWS.search(said) or lexicon(last.language).anaphora.search(said))


def _answered_otherwise(a: Side, b: Side) -> tuple[str, str] | None:
    """What both users replied to one question of the assistant's before the last one, where the replies are a few words
    each and have none of them in common."""
    theirs = {asked.folded: reply for asked, reply in _replies(b)}
    for asked, mine in _replies(a):
        other = theirs.get(asked.folded)
        if other is None or mine.folded == other.folded:
            continue
        decided = (mine.affirms and other.affirms) or (mine.declines and other.declines)
        if not decided and mine.content.isdisjoint(other.content):
            return mine.folded, other.folded
    return None


def _replies(side: Side) -> list[tuple[Facts, Facts]]:
    """The assistant's questions that were answered in a few words, and the answers."""
    return [
        (asked, reply)
        for (role, asked), (speaker, reply) in pairwise(side.history)
        if role == "assistant"
        and speaker == "user"
        and 0 < len(reply.content) <= _A_FEW
        and any(sentence.asks for sentence in asked.sentences)
        and not any(sentence.asks for sentence in reply.sentences)
    ]


def _points_elsewhere(pointing: Side, naming: Side) -> bool:
    """Whether one turn says nearly nothing itself and points back ("its advantages"), and the other, which nothing was
    said before, names a matter ("of renewable energy") that the first one's conversation has no word of."""
    last = pointing.last
    if not last.elliptic or not pointing.history or naming.last.elliptic or naming.history:
        return False
    if len(last.content) > _POINTING or last.literals.quoted or last.literals.given or last.literals.code:
        return False
    if lexicon(last.language).anaphora.search(last.folded) is None:
        return False
    named = naming.last.content - last.content
    return bool(named) and not any(named & facts.content for _, facts in pointing.history)


def _other_offer(a: Side, b: Side) -> bool:
    """Whether two replies answer assistant messages that differ in a word or two: the same sentence with something else
    in it is another offer, while an offer in free wording may be the same one (measured: 0 of 49 such pairs deserved
    one answer). Only where both replies say yes or no, or are the same words."""
    if a.offer is None or b.offer is None or a.offer.folded == b.offer.folded:
        return False
    decided = (a.last.affirms or a.last.declines) and (b.last.affirms or b.last.declines)
    if not decided and fuzz.ratio(a.last.folded, b.last.folded) < 85:
        return False
    if (
        fuzz.token_set_ratio(a.offer.folded[:2000], b.offer.folded[:2000]) >= 80
        and not _holds(a, b.offer)
        and not _holds(b, a.offer)
    ):
        return True
    edits, _, _ = edits_between(a.offer, b.offer)
    return edits.small and any(t.content for place in edits.places for t in (*place.mine, *place.theirs)) and decided


def _holds(side: Side, offer: Facts) -> bool:
    return any(facts.folded == offer.folded for _, facts in side.history)


def _same_ground(a: Side, b: Side) -> bool:
    """Whether two turns that cannot stand alone can lean on the same words. A short yes or no needs the same offer;
    a follow-up needs some message in common. Freely worded last messages are left to the learned confidence."""
    if not a.history or not b.history or fuzz.ratio(a.last.folded, b.last.folded) < 85:
        return True
    if (a.last.affirms or a.last.declines) and a.offer is not None and b.offer is not None:
        return _alike(a.offer, b.offer) or _still_open(a, b) or _still_open(b, a)
    return any(role == other and _alike(mine, theirs) for role, mine in a.history for other, theirs in b.history)


def _still_open(shorter: Side, longer: Side) -> bool:
    """Whether the longer conversation holds the other's offer and nothing was offered or asked after it."""
    assert shorter.offer is not None
    for role, facts in reversed(longer.history):
        if role != "assistant":
            continue
        if _alike(shorter.offer, facts):
            return True
        if any(sentence.asks for sentence in facts.sentences):
            return False
    return False


def _alike(a: Facts, b: Facts) -> bool:
    return fuzz.token_set_ratio(a.folded[:2000], b.folded[:2000]) >= 55


# Facts of an exchange before the last one that later turns seldom rely on: another name, date or version in passing.
_PASSING = frozenset({"entities", "dates", "versions", "options", "question", "quoted_text", "symbols", "format"})
_A_FEW = 4  # content words of a reply that names what was asked for and hardly more
_BARE = 3  # the same of a message that points at something and says what about it
_FOLLOWS = re.compile("^(?:and|but|or|also|what about|how about|what if|what else)\\b|^(?:那|还有|另外)")
_EXPLETIVE = re.compile(r"\bit (?:\w+ )?(?:to|for|that|if|when)\b")  # is it legal to ...
# What is asked of whatever was spoken of: how much it costs, where to start, what comes next.
_NAMELESS = frozenset(
    ["cost", "begin", "start", "next", "long", "tak", "work", "happen", "mean", "help", "need", "wait", "pric", "tim",
     "els", "mor", "exampl", "first", "now", "much", "many", "费用", "开始", "时间", "我下", "步该", "下一步", "需要"]
)  # fmt: skip
_POINTING = 2  # content words at most of a message that says nothing without what it points at
_LAST_EXCHANGE = 2  # how many messages before the last one make up the exchange it follows
_AMOUNTS = frozenset({"how_much", "how_many"})


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two earlier messages that say nearly the same; ``back``: how many messages before the last one, 1 the nearest."""

    role: str
    mine: Facts
    theirs: Facts
    back: int
    exchange: frozenset[str]  # content words of the exchange the messages belong to, both conversations


def _relied_on(name: str, pair: _Pair, one: Side, two: Side) -> bool:
    """Whether a difference in an earlier message bears on the answer. The exchange before the last message always does;
    of older ones what changes the question (negation, scope, direction, a text handed over), numbers where the
    exchange shares a word with the last message or the last exchange, or where an amount is asked for; and every fact
    of an assistant message that shares such a word or may hold the offer a reply takes."""
    if pair.back <= _LAST_EXCHANGE:
        return True
    recent = {stem for side in (one, two) for _, facts in side.history[-2:] for stem in facts.content}
    shared = bool(pair.exchange & (one.last.content | two.last.content | recent))
    if pair.role == "assistant" and (shared or _chooses(one.last) or _chooses(two.last)):
        return True
    if name in _PASSING:
        return False
    if name != "numbers":
        return True
    if one.last.question in _AMOUNTS or two.last.question in _AMOUNTS:
        return True
    return shared


def _chooses(last: Facts) -> bool:
    """Whether the message takes or leaves something that was offered."""
    return last.affirms or last.declines or (last.elliptic and any(q.dimension == "ordinal" for q in last.numbers))


def _exchange(side: Side, at: int) -> frozenset[str]:
    start = at if side.history[at][0] == "user" else max(0, at - 1)
    return frozenset(stem for _, facts in side.history[start : start + 2] for stem in facts.content)


def _aligned(a: Side, b: Side) -> list[_Pair]:
    """Pairs of earlier messages of one role that say nearly the same and are not identical."""
    identical = {facts.folded for _, facts in a.history} & {facts.folded for _, facts in b.history}
    pairs: list[_Pair] = []
    for at, (role, mine) in enumerate(a.history):
        if mine.folded in identical:
            continue
        scored = [
            (fuzz.ratio(mine.folded[:2000], theirs.folded[:2000]), position)
            for position, (their_role, theirs) in enumerate(b.history)
            if their_role == role and theirs.folded not in identical
        ]
        if not scored:
            continue
        best, position = max(scored)
        if best >= 60:
            back = min(len(a.history) - at, len(b.history) - position)
            pairs.append(_Pair(role, mine, b.history[position][1], back, _exchange(a, at) | _exchange(b, position)))
    return pairs
