"""Relations of two turns and the guards that veto: plain facts, compared where the turns rely on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rapidfuzz import fuzz

from fingerprint.conversation import Message, Turn
from fingerprint.facts.compare import Frame, frame_of
from fingerprint.facts.extract import Facts, facts_of
from fingerprint.facts.quantities import Quantity
from fingerprint.facts.relation import Relation, RelationKind

__all__ = ["objections", "relations"]

_NEAR = 0.6  # likeness from which a fact said on one side only counts as a difference


@dataclass(frozen=True, slots=True)
class _Side:
    """One turn's facts: the last message, and everything said in the conversation for looking up counterparts."""

    last: Facts
    history: tuple[tuple[str, Facts], ...]  # role and facts
    everything: str  # every message folded, to find a counterpart in

    def says(self, value: str) -> bool:
        return f" {value} " in self.everything if value.isascii() else value in self.everything


def _side(turn: Turn) -> _Side:
    messages = [m for m in (*turn.history, turn.message) if m.text][-40:]
    history = tuple((m.role, facts_of(m.text)) for m in turn.history[-39:] if m.text)
    folded = " ".join(facts_of(m.text).folded for m in messages)
    return _Side(last=facts_of(turn.message.text), history=history, everything=f" {folded} ")


def _relation(name: str, kind: RelationKind, sentence: str) -> Relation:
    return Relation(name, kind, sentence)


def _differ(name: str, what: str, a: list[str] | tuple[str, ...], b: list[str] | tuple[str, ...]) -> Relation:
    return _relation(
        name, "conflict", f"{what}: {', '.join(sorted(a)) or 'none'} against {', '.join(sorted(b)) or 'none'}."
    )


def relations(query: Turn, candidate: Turn, *, same_place: bool) -> tuple[Relation, ...]:
    """How the two turns compare, field by field; symmetric in them. ``same_place``: both hang from one node of the
    forest, so what was said before is known to mean the same and only the last messages are compared."""
    a, b = sorted((query, candidate), key=_order)  # one order, so that no rule can favour a side
    return tuple(_compare(a, b, same_place=same_place))


def objections(query: Turn, candidate: Turn, *, same_place: bool) -> tuple[str, ...]:
    """Names of the guards that veto an answer, in a fixed order, none twice; empty where none objects. Symmetric."""
    return tuple(
        dict.fromkeys(r.name for r in relations(query, candidate, same_place=same_place) if r.kind == "conflict")
    )


def _order(turn: Turn) -> tuple[tuple[str, str], ...]:
    return tuple((m.role, m.text) for m in (turn.message, *turn.history))


def _compare(a: Turn, b: Turn, *, same_place: bool) -> list[Relation]:
    one, two = _side(a), _side(b)
    frame = frame_of(one.last, two.last, focus=True)
    found: list[Relation] = []
    for rule in _MESSAGE_RULES:
        found.append(rule(one, two, frame))
    found.append(_opaque(a.message, b.message))
    if not same_place:
        found.extend(_context(a, b, one, two))
    return found


# --- the last messages ---------------------------------------------------------------------------------------------


def _values(numbers: tuple[Quantity, ...], *, ordinal: bool) -> tuple[Quantity, ...]:
    return tuple(q for q in numbers if (q.dimension == "ordinal") == ordinal)


def _missing(mine: tuple[Quantity, ...], other: _Side) -> list[Quantity]:
    theirs = {q.value for q in other.last.numbers} | {q.value for _, facts in other.history for q in facts.numbers}
    return [q for q in mine if q.value not in theirs and not other.says(f"{q.value:g}")]


def _numbers(a: _Side, b: _Side, frame: Frame) -> Relation:
    mine, theirs = _values(a.last.numbers, ordinal=False), _values(b.last.numbers, ordinal=False)
    if not mine and not theirs:
        return _relation("numbers", "equal", "Neither message holds a number.")
    lost_a, lost_b = _missing(mine, b), _missing(theirs, a)
    if lost_a and lost_b:
        return _differ("numbers", "The numbers differ", [str(q) for q in lost_a], [str(q) for q in lost_b])
    if (lost_a or lost_b) and frame.likeness >= _NEAR and not (mine and theirs):
        return _differ(
            "numbers", "Only one message holds the number", [str(q) for q in lost_a], [str(q) for q in lost_b]
        )
    if lost_a or lost_b or not (mine and theirs):
        return _relation("numbers", "compatible", "One message holds a number that the other leaves open.")
    return _relation("numbers", "equal", "The numbers are the same.")


def _units(a: _Side, b: _Side, frame: Frame) -> Relation:
    by_value: dict[float, set[str]] = {}
    clash: list[tuple[str, str]] = []
    for q in a.last.numbers:
        by_value.setdefault(q.value, set()).add(q.dimension)
    for q in b.last.numbers:
        mine = by_value.get(q.value)
        if (
            mine
            and q.dimension
            and q.dimension not in mine
            and "" not in mine
            and "ordinal" not in mine
            and q.dimension != "ordinal"
        ):
            clash.append((f"{q.value:g} {next(iter(sorted(mine)))}", str(q)))
    if clash:
        return _differ("units", "The same number has another unit", [clash[0][0]], [clash[0][1]])
    units_a = {q.dimension for q in a.last.numbers if q.dimension not in {"", "ordinal"}}
    units_b = {q.dimension for q in b.last.numbers if q.dimension not in {"", "ordinal"}}
    return _relation(
        "units", "equal" if units_a == units_b else "compatible", "No number has another unit on the other side."
    )


def _by_kind(times: tuple[str, ...]) -> dict[str, set[str]]:
    kinds: dict[str, set[str]] = {}
    for time in times:
        kind, _, value = time.partition(":")
        kinds.setdefault(kind, set()).add(value)
    return kinds


def _all_times(side: _Side) -> set[str]:
    return set(side.last.times) | {time for _, facts in side.history for time in facts.times}


def _dates(a: _Side, b: _Side, frame: Frame) -> Relation:
    if not a.last.times and not b.last.times:
        return _relation("dates", "equal", "Neither message names a time.")
    all_a, all_b = _all_times(a), _all_times(b)
    lost_a = _by_kind(tuple(t for t in a.last.times if t not in all_b))
    lost_b = _by_kind(tuple(t for t in b.last.times if t not in all_a))
    for kind in sorted(lost_a.keys() & lost_b.keys()):
        return _differ(
            "dates", "The times differ", [f"{kind} {v}" for v in lost_a[kind]], [f"{kind} {v}" for v in lost_b[kind]]
        )
    if (lost_a or lost_b) and frame.likeness >= _NEAR and (bool(a.last.times) != bool(b.last.times)):
        return _differ("dates", "Only one message names the time", [*a.last.times], [*b.last.times])
    if lost_a or lost_b:
        return _relation("dates", "compatible", "One message names a time that the other leaves open.")
    return _relation("dates", "equal", "The times are the same.")


def _ordinals(a: _Side, b: _Side, frame: Frame) -> Relation:
    mine, theirs = _values(a.last.numbers, ordinal=True), _values(b.last.numbers, ordinal=True)
    if not mine or not theirs or {q.value for q in mine} & {q.value for q in theirs}:
        return _relation(
            "options", "compatible" if mine or theirs else "equal", "No other option is chosen by its position."
        )
    if _offers_reordered(a, b):
        return _relation("options", "compatible", "Another position is chosen, and the options stand in another order.")
    return _differ("options", "Another position is chosen", [str(q) for q in mine], [str(q) for q in theirs])


def _last_assistant(side: _Side) -> Facts | None:
    return next((facts for role, facts in reversed(side.history) if role == "assistant"), None)


def _offers_reordered(a: _Side, b: _Side) -> bool:
    mine, theirs = _last_assistant(a), _last_assistant(b)
    return mine is not None and theirs is not None and mine.folded != theirs.folded


def _literal_rule(
    name: str, what: str, read: Callable[[Facts], tuple[str, ...]], near: float | None
) -> Callable[[_Side, _Side, Frame], Relation]:
    """A rule for facts that either are the same characters or are another thing."""

    def rule(a: _Side, b: _Side, frame: Frame) -> Relation:
        mine, theirs = read(a.last), read(b.last)
        if not mine and not theirs:
            return _relation(name, "equal", f"Neither message holds {what}.")
        everything_a = {v for _, facts in a.history for v in read(facts)} | set(mine)
        everything_b = {v for _, facts in b.history for v in read(facts)} | set(theirs)
        lost_a = [v for v in mine if v not in everything_b and not _said(v, b)]
        lost_b = [v for v in theirs if v not in everything_a and not _said(v, a)]
        if lost_a and lost_b:
            return _differ(name, f"The messages hold other {what}", lost_a, lost_b)
        if (lost_a or lost_b) and near is not None and frame.likeness >= near and not (mine and theirs):
            return _differ(name, f"Only one message holds {what}", lost_a, lost_b)
        if lost_a or lost_b:
            return _relation(name, "compatible", f"One message holds {what} that the other leaves out.")
        return _relation(name, "equal", f"The messages hold the same {what}.")

    return rule


def _said(value: str, side: _Side) -> bool:
    folded = value.casefold()
    return side.says(folded) or folded.replace(" ", "") in side.everything.replace(" ", "")


def _given(a: _Side, b: _Side, frame: Frame) -> Relation:
    mine, theirs = a.last.literals.given, b.last.literals.given
    if a.last.overflow != b.last.overflow:
        return _relation("given_text", "conflict", "The texts differ beyond the part that is read closely.")
    if mine == theirs:
        return _relation(
            "given_text", "equal", "The same text is handed over." if mine else "Neither message hands over a text."
        )
    if mine and theirs:
        return _relation("given_text", "conflict", "Another text is handed over.")
    text, other = (mine, b) if mine else (theirs, a)
    if other.says(text):
        return _relation("given_text", "compatible", "The text handed over stands elsewhere in the other conversation.")
    return _relation("given_text", "compatible", "Only one message hands over a text.")


def _polarity(a: _Side, b: _Side, frame: Frame) -> Relation:
    if (a.last.declines and b.last.affirms) or (a.last.affirms and b.last.declines):
        return _relation("polarity", "conflict", "One message says yes, the other says no.")
    parity_a = sum(s.negations for s in a.last.focus) % 2
    parity_b = sum(s.negations for s in b.last.focus) % 2
    flipped = _antonym_pairs(a.last, b.last)
    if frame.likeness >= _NEAR and (parity_a + parity_b + (1 if flipped else 0)) % 2 == 1 and parity_a != parity_b:
        return _relation("polarity", "conflict", "One message negates what the other asks.")
    if parity_a == parity_b and flipped and frame.likeness >= 0.34:
        return _relation("polarity", "conflict", f"Opposites: {flipped[0]} against {flipped[1]}.")
    return _relation(
        "polarity", "equal" if parity_a == parity_b else "compatible", "Nothing is turned into its opposite."
    )


def _antonym_pairs(a: Facts, b: Facts) -> tuple[str, str] | None:
    """A pair of opposites of which each side says one and not the other."""
    mine = {side for s in a.focus for side in s.antonyms}
    theirs = {side for s in b.focus for side in s.antonyms}
    all_a = {side for s in a.sentences for side in s.antonyms}
    all_b = {side for s in b.sentences for side in s.antonyms}
    for pair, side in sorted(mine):
        opposite = (pair, 1 - side)
        if opposite in theirs and opposite not in all_a and (pair, side) not in all_b:
            return f"pair {pair} side {side}", f"side {1 - side}"
    return None


_MESSAGE_RULES: tuple[Callable[[_Side, _Side, Frame], Relation], ...] = (
    _numbers,
    _units,
    _ordinals,
    _dates,
    _literal_rule("versions", "a version", lambda f: f.literals.versions, _NEAR),
    _literal_rule("ids", "an id", lambda f: f.literals.ids, _NEAR),
    _literal_rule("urls", "an address", lambda f: f.literals.urls, _NEAR),
    _literal_rule("code", "code", lambda f: f.literals.code, _NEAR),
    _literal_rule("quoted_text", "quoted text", lambda f: f.literals.quoted, None),
    _literal_rule("symbols", "a sign", lambda f: f.literals.emoji, 0.5),
    _given,
    _polarity,
)


def _opaque(a: Message, b: Message) -> Relation:
    if a.opaque == b.opaque:
        return _relation("attachments", "equal", "The messages carry the same attachments, or none.")
    return _relation("attachments", "conflict", "The messages carry other attachments.")


# --- what was said before ------------------------------------------------------------------------------------------


def _context(a: Turn, b: Turn, one: _Side, two: _Side) -> list[Relation]:
    if tuple((m.role, m.text, m.opaque) for m in a.history) == tuple((m.role, m.text, m.opaque) for m in b.history):
        return [_relation("context", "equal", "The same was said before.")]
    if any(m.opaque for m in (*a.history, *b.history)):
        return [_relation("context", "conflict", "Something other than text was part of one of the conversations.")]
    conflicts: list[str] = []
    for mine, theirs in _aligned(one, two):
        conflicts.extend(_message_conflicts(mine, theirs, one, two))
    if conflicts:
        return [_relation("context", "conflict", f"What was said before differs: {conflicts[0]}")]
    if (
        one.last.elliptic
        and two.last.elliptic
        and fuzz.ratio(one.last.folded, two.last.folded) >= 90
        and not _offer_same(one, two)
    ):
        return [_relation("context", "conflict", "A short reply answers another message.")]
    return [
        _relation(
            "context", "compatible", "What was said before differs in words only, or in what the turn does not rely on."
        )
    ]


def _offer_same(a: _Side, b: _Side) -> bool:
    mine, theirs = _last_assistant(a), _last_assistant(b)
    if mine is None or theirs is None:
        return mine is theirs
    return fuzz.token_set_ratio(mine.folded, theirs.folded) >= 50


def _aligned(a: _Side, b: _Side) -> list[tuple[Facts, Facts]]:
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


def _message_conflicts(mine: Facts, theirs: Facts, one: _Side, two: _Side) -> list[str]:
    a = _Side(mine, one.history, one.everything)
    b = _Side(theirs, two.history, two.everything)
    frame = frame_of(mine, theirs, focus=False)
    return [
        relation.sentence for rule in _MESSAGE_RULES for relation in (rule(a, b, frame),) if relation.kind == "conflict"
    ]
