"""One rule a field: how two messages compare in it. Every rule is symmetric up to the order in which values are named.

Two kinds of evidence. A *changed place* (`edits`) between messages that otherwise agree word for word is read strictly:
any fact in it counts, said on one side only too. Messages in free wording conflict only where each holds a fact of one
kind that is found nowhere in the other's conversation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fingerprint.facts.compare import Frame, frame_of, unmatched_words
from fingerprint.facts.details import ordered
from fingerprint.facts.edits import Edit, Edits, edits_between
from fingerprint.facts.extract import Facts, Sentence, Token, is_noun
from fingerprint.facts.quantities import Quantity
from fingerprint.facts.relation import Relation
from fingerprint.facts.sides import Side
from fingerprint.facts.tables import Lexicon, lexicon

# Likeness of what two messages in free wording ask, from which a fact on each side, or on one, is a difference. Below
# ``_SAME_FRAME`` reworded and different questions were equally frequent whatever the fact (measured: eval/guards.py).
_SAME_FRAME = 0.2
_MOVED = re.compile("[换改变转调]成|[转换存充导移搬传拷调]到|(?:提现|移动|迁移|同步|复制|切换|转籍)到|转入")
"""What moves or turns something into something, in Chinese."""
_CLOSE = 0.5
_ALL_BUT_EQUAL = 0.75

_GLUED = 6  # characters on either side of a Chinese ordering word that are tried

# What most pairs of messages get.
_NO_NUMBER = Relation("numbers", "equal", "Neither message holds a number.")
_NO_UNIT = Relation("units", "compatible", "No number has another unit on the other side.")
_NO_TIME = Relation("dates", "equal", "Neither message names a time.")
_NO_OPTION = Relation("options", "equal", "No other option is chosen by its position.")
_NOT_GIVEN = Relation("given_text", "equal", "Neither message hands over a text.")
_NOT_TURNED = Relation("polarity", "equal", "Nothing is turned into its opposite.")
_NO_SCOPE = Relation("scope", "compatible", "Nothing says that another person or another number of things is meant.")
_ONE_MOOD = Relation("modality", "equal", "Both ask in the same mood.")
_NO_ACTION = Relation("action", "compatible", "Nothing says that something else is to be done.")
_NO_NAME = Relation("entities", "compatible", "No name is replaced by another.")
_NO_TURN = Relation("direction", "compatible", "Nothing has changed places.")
_NO_FORMAT = Relation("format", "compatible", "No other form of answer is asked for.")

__all__ = ["Comparison", "comparison_of", "message_relations", "replaced_words"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two messages side by side. ``mine`` and ``theirs`` are the sentences compared most closely."""

    a: Side
    b: Side
    one: Facts
    two: Facts
    edits: Edits
    frame: Frame
    mine: tuple[Sentence, ...]
    theirs: tuple[Sentence, ...]
    words: Lexicon
    near: bool  # whether what differs is a changed place or two in otherwise equal words
    loose: bool  # whether messages in free wording are compared too

    def alike(self, least: float) -> bool:
        """Whether messages in free wording may be compared and share at least this much."""
        return self.loose and self.frame.likeness >= least


def comparison_of(a: Side, b: Side, one: Facts, two: Facts, *, loose: bool = True) -> Comparison:
    """Lays message ``one`` of conversation ``a`` beside message ``two`` of ``b``."""
    edits, mine, theirs = edits_between(one, two)
    frame, words = frame_of(one, two, focus=True), lexicon(one.language)
    return Comparison(a, b, one, two, edits, frame, mine, theirs, words, edits.small, loose)


def message_relations(c: Comparison) -> tuple[Relation, ...]:
    """Every field of two messages, conflicts and agreements."""
    return tuple([rule(c) for rule in _RULES])


def _differ(name: str, what: str, a: Iterable[object], b: Iterable[object]) -> Relation:
    said = [", ".join(sorted(map(str, side))) or "nothing" for side in (a, b)]
    return Relation(name, "conflict", f"{what}: {said[0]} against {said[1]}.")


# --- numbers, units, dates -----------------------------------------------------------------------------------------


def _counts(sentences: Sequence[Sentence]) -> list[Quantity]:
    return list(dict.fromkeys(q for s in sentences for q in s.numbers if q.dimension != "ordinal"))


def _lost(mine: Iterable[Quantity], there: Side) -> list[Quantity]:
    return [
        q
        for q in mine
        if q.value not in there.numbers and q.written not in there.numbers and not there.says(f"{q.written:g}")
    ]


def _numbers(c: Comparison) -> Relation:
    if not c.one.numbers and not c.two.numbers:
        return _NO_NUMBER
    mine, theirs = _counts(c.one.sentences), _counts(c.two.sentences)
    if not mine and not theirs:
        return _NO_NUMBER
    if c.near:
        left, right = _counts(c.mine), _counts(c.theirs)
        lost = [q for q in left if q not in right and not _equal_to_one_of(q, right)]
        gained = [q for q in right if q not in left and not _equal_to_one_of(q, left)]
        if lost and gained:
            return _differ("numbers", "The numbers differ", lost, gained)
        only = [q for q in (*lost, *gained) if q.written != 1 and not _chatty(q, c) and not _said_by_both(q, c)]
        if only and not (c.a.says(f"{only[0].written:g}") and c.b.says(f"{only[0].written:g}")):
            return _differ("numbers", "Only one message holds the number", lost, gained)
    lost_a, lost_b = _lost(mine, c.b), _lost(theirs, c.a)
    pairs = [(p, q) for p in lost_a for q in lost_b if _same_kind(p, q) and not _about_equal(p, q)]
    if not pairs and c.alike(_SAME_FRAME):
        focused = _counts(c.one.focus), _counts(c.two.focus)
        pairs = [
            (p, q) for p in lost_a if p in focused[0] for q in lost_b if q in focused[1] and not _about_equal(p, q)
        ]
    if pairs and 1.0 not in {pairs[0][0].written, pairs[0][1].written}:
        return _differ("numbers", "The numbers differ", [pairs[0][0]], [pairs[0][1]])
    if c.alike(_CLOSE) and bool(lost_a) != bool(lost_b):
        only = [
            q
            for q in (*lost_a, *lost_b)
            if q.written > 2
            and not _chatty(q, c)
            and not _said_by_both(q, c)
            and q in _counts((*c.one.focus, *c.two.focus))
        ]
        if only:
            return _differ("numbers", "Only one message holds the number", lost_a, lost_b)
    if mine and theirs and not lost_a and not lost_b:
        return Relation("numbers", "equal", "The numbers are the same.")
    return Relation("numbers", "compatible", "One message holds a number that the other leaves open.")


def _said_by_both(q: Quantity, c: Comparison) -> bool:
    """Whether both conversations hold the digits, as 830 and 8:30 do."""
    digits = f"{q.written:g}"
    return len(digits) >= 3 and digits in c.a.squeezed and digits in c.b.squeezed


def _chatty(q: Quantity, c: Comparison) -> bool:
    """ "4" and "2" written for "for" and "to"."""
    return (
        q.written in {2, 4}
        and not q.dimension
        and c.words.language == "en"
        and (not q.noun or q.noun in c.words.verbs or q.noun in c.words.after_to or _stands_for_a_word(q, c))
    )


def _stands_for_a_word(q: Quantity, c: Comparison) -> bool:
    """Whether the message without the number says "for" (or "to") once more than the one that holds it."""
    word = {4.0: "for", 2.0: "to"}[q.written]
    here, there = (c.one, c.two) if q in c.one.numbers else (c.two, c.one)
    counts = [sum(t.low == word for s in facts.sentences for t in s.tokens) for facts in (here, there)]
    return not q.noun.endswith("s") and counts[1] > counts[0]


def _equal_to_one_of(q: Quantity, others: list[Quantity]) -> bool:
    """The same amount in another unit or without one."""
    return any(
        (q.value == o.value and q.dimension == o.dimension)
        or (q.written == o.written and (not q.dimension or not o.dimension or q.dimension == o.dimension == ""))
        or (o.value == q.written and not q.dimension)
        or (q.value == o.written and not o.dimension)
        for o in others
    )


def _about_equal(p: Quantity, q: Quantity) -> bool:
    """Two months and eight weeks: other units, and less than a tenth apart."""
    return (
        p.written != q.written
        and p.dimension == q.dimension != ""
        and abs(p.value - q.value) <= 0.1 * max(p.value, q.value)
    )


def _same_kind(p: Quantity, q: Quantity) -> bool:
    if p.dimension or q.dimension:
        return p.dimension == q.dimension
    return bool(p.noun) and p.noun == q.noun


def _units(c: Comparison) -> Relation:
    if not c.one.numbers or not c.two.numbers:
        return _NO_UNIT
    left = c.mine if c.near else c.one.sentences
    right = c.theirs if c.near else c.two.sentences
    for q in _counts(left):
        for other in _counts(right):
            apart = (q.value, q.dimension) != (other.value, other.dimension)
            if (
                apart
                and q.written == other.written
                and q.dimension
                and other.dimension
                and not _amounts(q, right)
                and not _amounts(other, left)
            ):
                return _differ("units", "The same number has another unit", [q], [other])
    return _NO_UNIT


def _amounts(q: Quantity, sentences: Sequence[Sentence]) -> bool:
    """Whether the sentences hold the very amount."""
    return any((o.value, o.dimension) == (q.value, q.dimension) for o in _counts(sentences))


def _kinds(times: Iterable[str]) -> dict[str, set[str]]:
    kinds: dict[str, set[str]] = {}
    for time in times:
        kind, _, value = time.partition(":")
        kinds.setdefault(kind, set()).add(value)
    return kinds


def _times(sentences: Iterable[Sentence]) -> list[str]:
    return list(dict.fromkeys(t for s in sentences for t in s.times))


def _dates(c: Comparison) -> Relation:
    if not c.one.times and not c.two.times:
        return _NO_TIME
    if c.near:
        left, right = _times(c.mine), _times(c.theirs)
        lost, gained = [t for t in left if t not in right], [t for t in right if t not in left]
        kinds = _kinds(lost), _kinds(gained)
        one_clock = all({*times} == {"clock"} for times in kinds) and _same_half_day(
            kinds[0]["clock"], kinds[1]["clock"], c
        )
        if lost and gained and not one_clock and _kinds(lost).keys() & _kinds(gained).keys():
            return _differ("dates", "The times differ", lost, gained)
        only = [t for t in (*lost, *gained) if not t.startswith("relative:0") and not _digits_of_both(t, c)]
        if c.loose and only and not one_clock and (only[0] not in c.a.times or only[0] not in c.b.times):
            return _differ("dates", "Only one message names the time", lost, gained)
    lost_a = _kinds(t for t in _times(c.one.focus) if t not in c.b.times)
    lost_b = _kinds(t for t in _times(c.two.focus) if t not in c.a.times)
    for kind in sorted((lost_a.keys() & lost_b.keys()) - {"part"}):
        if kind == "clock" and _same_half_day(lost_a[kind], lost_b[kind], c):
            continue
        return _differ("dates", "The times differ", lost_a[kind], lost_b[kind])
    if set(c.one.times) == set(c.two.times):
        return Relation("dates", "equal", "The times are the same.")
    return Relation("dates", "compatible", "One message names a time that the other leaves open.")


def _digits_of_both(time: str, c: Comparison) -> bool:
    """Whether both conversations hold the digits of a time of day, as 8:30 and 830 do."""
    kind, _, value = time.partition(":")
    digits = value.replace(":", "").lstrip("0")
    return kind == "clock" and len(digits) >= 3 and digits in c.a.squeezed and digits in c.b.squeezed


def _same_half_day(mine: Iterable[str], theirs: Iterable[str], c: Comparison) -> bool:
    """Whether Chinese times of day are one on a clock of twelve hours (两点, 14点) and no word tells which half."""
    if c.words.language != "zh" or any(t.startswith("part:") for t in (*c.a.times, *c.b.times)):
        return False
    halves = [{(int(t[:2]) % 12, t[3:]) for t in times} for times in (mine, theirs)]
    return halves[0] == halves[1]


def _options(c: Comparison) -> Relation:
    if not c.one.numbers and not c.two.numbers:
        return _NO_OPTION
    mine = {q.value for q in c.one.numbers if q.dimension == "ordinal"}
    theirs = {q.value for q in c.two.numbers if q.dimension == "ordinal"}
    if not mine and not theirs:
        return _NO_OPTION
    if not mine or not theirs or mine & theirs:
        return Relation("options", "compatible", _NO_OPTION.sentence)
    one, two = c.a.offer, c.b.offer
    if one is not None and two is not None and one.folded != two.folded:
        return Relation("options", "compatible", "Another position is chosen from another list.")
    return _differ("options", "Another position is chosen", [f"{v:g}" for v in mine], [f"{v:g}" for v in theirs])


# --- what stands there character for character ----------------------------------------------------------------------


def _literal(
    name: str, what: str, read: Callable[[Facts], tuple[str, ...]], *, one_sided: bool
) -> Callable[[Comparison], Relation]:
    none = Relation(name, "equal", f"Neither message holds {what}.")

    def rule(c: Comparison) -> Relation:
        mine, theirs = read(c.one), read(c.two)
        if not mine and not theirs:
            return none
        if set(mine) == set(theirs):
            return Relation(name, "equal", f"The messages hold the same {what}.")
        lost_a = [v for v in mine if v not in theirs and not _stands_in(v, c.b, read)]
        lost_b = [v for v in theirs if v not in mine and not _stands_in(v, c.a, read)]
        if lost_a and lost_b:
            return _differ(name, f"The messages hold other {what}", lost_a, lost_b)
        if (lost_a or lost_b) and one_sided and c.near and (c.loose or name != "ids") and (not mine or not theirs):
            return _differ(name, f"Only one message holds {what}", lost_a, lost_b)
        return Relation(name, "compatible", f"One message holds {what} that the other leaves out.")

    return rule


def _stands_in(value: str, side: Side, read: Callable[[Facts], tuple[str, ...]]) -> bool:
    if any(value in read(facts) for _, facts in side.history):
        return True
    folded = "".join(value.casefold().split())
    if len(folded) < 2:
        return False
    return folded in side.solid or (folded.isalnum() and folded in side.squeezed)


def _given(c: Comparison) -> Relation:
    if c.one.overflow != c.two.overflow:
        return Relation("given_text", "conflict", "The texts differ beyond the part that is read closely.")
    mine, theirs = c.one.literals.given, c.two.literals.given
    if not mine and not theirs:
        return _NOT_GIVEN
    if mine == theirs:
        return Relation("given_text", "equal", "The same text is handed over.")
    if mine and theirs:
        return Relation("given_text", "conflict", "Another text is handed over.")
    return Relation("given_text", "compatible", "Only one message hands over a text.")


# --- polarity, scope, question --------------------------------------------------------------------------------------


def _sides(sentences: Sequence[Sentence]) -> frozenset[tuple[int, int]]:
    return frozenset().union(*[s.antonyms for s in sentences])


def _opposite(c: Comparison, left: tuple[Sentence, ...], right: tuple[Sentence, ...]) -> tuple[int, int] | None:
    """A pair of opposites of which each side says one, and says the other nowhere in its message."""
    mine, theirs = _sides(left), _sides(right)
    if not mine or not theirs:
        return None
    all_mine, all_theirs = _sides(c.one.sentences), _sides(c.two.sentences)
    for pair, side in sorted(mine):
        if (pair, 1 - side) in theirs and (pair, 1 - side) not in all_mine and (pair, side) not in all_theirs:
            return pair, side
    return None


def _polarity(c: Comparison) -> Relation:
    if (c.one.declines and c.two.affirms) or (c.one.affirms and c.two.declines):
        return Relation("polarity", "conflict", "One message says yes, the other says no.")
    if _reordered(c):
        return Relation("polarity", "compatible", "The options that are chosen from stand in another order.")
    opposite = _opposite(c, c.mine, c.theirs)
    parity = sum([s.negations for s in (*c.mine, *c.theirs)]) % 2
    corrected = bool(parity) and (c.one.corrected or c.two.corrected or _takes_back(c))
    if c.near:
        if opposite and not parity:
            return Relation(
                "polarity", "conflict", f"One message says the opposite of the other ({_named(opposite, c)})."
            )
        if parity and not opposite and not corrected:
            return Relation("polarity", "conflict", "One message negates what the other asks.")
        prefixed = _prefixed(c)
        if prefixed and not parity:
            return Relation("polarity", "conflict", f"One message says {prefixed[0]}, the other {prefixed[1]}.")
    elif parity and not opposite and not corrected and c.alike(_ALL_BUT_EQUAL):
        return Relation("polarity", "conflict", "One message negates what the other asks.")
    elif opposite and not parity and c.alike(_SAME_FRAME):
        return Relation("polarity", "conflict", f"One message says the opposite of the other ({_named(opposite, c)}).")
    if parity or opposite:
        return Relation("polarity", "compatible", "The messages are worded with and without negation or opposites.")
    return _NOT_TURNED


def _takes_back(c: Comparison) -> bool:
    """Whether a changed place holds a bare "no" between content words: "in England no France" takes back, while "takes
    no arguments", with nothing else in the place, negates."""
    for place in c.edits.places:
        for tokens in (place.mine, place.theirs):
            for at, token in enumerate(tokens):
                others = [t for t in tokens if t.content]
                if token.low == "no" and others and at and tokens[at - 1].content:
                    return True
                if token.low == "no" and others and not at and place.before and place.before not in c.words.stop:
                    return True
    return False


def _reordered(c: Comparison) -> bool:
    """Whether the messages choose from the same options in another order: "the first", "the last" can meet."""
    one, two = c.a.offer, c.b.offer
    if (
        c.one is not c.a.last
        or one is None
        or two is None
        or one.folded == two.folded
        or not c.one.elliptic
        or not c.two.elliptic
    ):
        return False
    return one.content == two.content


def _named(opposite: tuple[int, int], c: Comparison) -> str:
    pair = opposite[0]
    return " / ".join(
        next((form for form, sides in c.words.antonym_sides.items() if (pair, side) in sides), "") for side in (0, 1)
    )


def _prefixed(c: Comparison) -> tuple[str, str] | None:
    """Two words of one changed place of which one is the other with a negating prefix."""
    for place in c.edits.places:
        for p in place.mine:
            for q in place.theirs:
                short, long = sorted((p.low, q.low), key=len)
                if len(short) >= 4 and any(long == prefix + short for prefix in c.words.prefixes):
                    return p.low, q.low
    return None


_STRICT = frozenset({"all", "both", "only", "half", "none"})
_FIRST = frozenset(
    [
        "i",
        "me",
        "my",
        "mine",
        "myself",
        "we",
        "us",
        "our",
        "ours",
        "i'm",
        "i've",
        "i'd",
        "i'll",
        "we're",
        "we've",
        "我",
        "我们",
        "咱",
        "咱们",
        "本人",
    ]
)
_THIRD = frozenset(
    ["he", "him", "his", "she", "her", "hers", "they", "them", "their", "theirs", "他", "她", "他们", "她们"]
)


def _scope(c: Comparison) -> Relation:
    if c.near:
        for place in c.edits.places:
            found = _scope_in(place, c)
            if found:
                return found
    mine, theirs = (frozenset().union(*[s.persons for s in facts.focus]) for facts in (c.one, c.two))
    said_by_both = bool(mine and theirs)
    one_sided = bool(mine or theirs) and not said_by_both and not (c.one.elliptic or c.two.elliptic)
    one_sided = one_sided and not (mine & c.b.persons or theirs & c.a.persons)
    if (said_by_both and not mine & theirs and c.alike(0.0)) or (one_sided and c.alike(_CLOSE) and not c.near):
        return _differ("scope", "It is about somebody else", mine, theirs)
    counts = [frozenset().union(*[s.quantifiers for s in facts.focus]) & _STRICT for facts in (c.one, c.two)]
    if counts[0] and counts[1] and not counts[0] & counts[1] and c.alike(_SAME_FRAME):
        return _differ("scope", "Another number of things is meant", counts[0], counts[1])
    return _NO_SCOPE


def _scope_in(place: Edit, c: Comparison) -> Relation | None:
    sides = []
    for tokens in (place.mine, place.theirs):
        low = [t.low for t in tokens]
        sides.append(
            (
                {c.words.quantifiers[w] for w in low if w in c.words.quantifiers},
                {c.words.persons[w] for w in low if w in c.words.persons},
                {"first" if w in _FIRST else "third" for w in low if w in _FIRST or w in _THIRD},
            )
        )
    (quantity_a, person_a, self_a), (quantity_b, person_b, self_b) = sides
    if (
        quantity_a != quantity_b
        and not (bool(quantity_a) != bool(quantity_b) and (c.a.history or c.b.history) and c.a.history != c.b.history)
        and (quantity_a | quantity_b) & _STRICT
    ):
        return _differ("scope", "Another number of things is meant", quantity_a, quantity_b)
    if (
        person_a != person_b
        and not (person_a <= c.b.persons and person_b <= c.a.persons)
        and not (bool(person_a) != bool(person_b) and (c.one.elliptic or c.two.elliptic))
    ):
        return _differ("scope", "It is about somebody else", person_a, person_b)
    if self_a and self_b and self_a != self_b:
        return _differ("scope", "It is about somebody else", self_a, self_b)
    return None


def _modality(c: Comparison) -> Relation:
    """Whether one asks what must be done and the other, in the same place, what may or can be."""
    for place in c.edits.places if c.near else ():
        mine, theirs = (
            {c.words.modality[t.low] for t in tokens if t.low in c.words.modality}
            for tokens in (place.mine, place.theirs)
        )
        if mine and theirs and (mine == {"must"}) != (theirs == {"must"}):
            return _differ("modality", "One asks what must be done, the other what may", mine, theirs)
    said = [frozenset().union(*[s.modals for s in facts.focus]) for facts in (c.one, c.two)]
    if said[0] == said[1]:
        return _ONE_MOOD
    return Relation("modality", "compatible", "Nothing says that one must and the other may.")


# Kinds of question that are another question where the rest is word for word the same.
_ALMOST = frozenset(
    frozenset(pair)
    for pair in (
        ("how", "how_long"),
        ("how", "how_much"),
        ("how", "how_often"),
        ("how", "where"),
        ("how", "who"),
        ("how_many", "yes_no"),
        ("how_long", "yes_no"),
        ("when", "yes_no"),
        ("why", "yes_no"),
        ("what", "when"),
        ("what", "where"),
        ("what", "why"),
        ("which", "why"),
        ("how_much", "which"),
        ("how_long", "which"),
        ("how_many", "which"),
    )
)


def _asks(facts: Facts) -> bool:
    return bool(facts.question) or any(sentence.asks for sentence in facts.sentences)


def _words(facts: Facts) -> list[str]:
    return [token.low for token in facts.tokens]


def _question(c: Comparison) -> Relation:
    if _asks(c.one) != _asks(c.two) and _words(c.one) == _words(c.two):
        said, asked = ["a statement"], ["a question"]
        return _differ("question", "One says what the other asks", *((asked, said) if _asks(c.one) else (said, asked)))
    if not c.one.question or not c.two.question:
        if c.one.intent and c.two.intent and c.one.intent != c.two.intent and c.alike(_CLOSE):
            return _differ("question", "Another thing is wanted", [c.one.intent], [c.two.intent])
        return Relation("question", "compatible", "One message does not say what kind of answer it wants.")
    if c.one.question == c.two.question:
        return Relation("question", "equal", "Both ask for the same kind of answer.")
    kinds = frozenset((c.one.question, c.two.question))
    strict = c.near and not kinds & {"what", "which", "yes_no", "how"}
    strict = strict or (c.near and kinds in _ALMOST)
    if c.one.corrected or c.two.corrected or (not c.near and (len(c.one.focus) > 1 or len(c.two.focus) > 1)):
        return Relation("question", "compatible", "More than one thing is asked.")
    if strict or (kinds in c.words.exclusive and (c.near or c.alike(_CLOSE))):
        return _differ("question", "Another kind of answer is asked for", [c.one.question], [c.two.question])
    if c.alike(_CLOSE) and c.one.intent and c.two.intent and c.one.intent != c.two.intent:
        return _differ("question", "Another thing is wanted", [c.one.intent], [c.two.intent])
    return Relation("question", "compatible", "Both questions can have one answer.")


# --- what is talked about -------------------------------------------------------------------------------------------


def _action(c: Comparison) -> Relation:
    """Another verb of the table in one of two places that were changed: "edit the file" against "delete the file"."""
    for place in c.edits.places if c.near and len(c.edits.places) <= 2 else ():
        left = [t for t in place.mine if t.low in c.words.verbs]
        right = [t for t in place.theirs if t.low in c.words.verbs]
        if len(left) == len(right) == 1 and left[0].stem != right[0].stem:
            return _differ("action", "Something else is to be done", [left[0].low], [right[0].low])
    return _NO_ACTION


def _entities(c: Comparison) -> Relation:
    if c.near:
        for place in c.edits.places:
            left = [t for t in place.mine if t.content]
            right = [t for t in place.theirs if t.content]
            left, right = unmatched_words(left, right)
            left = [t for t in left if not c.b.has_word(t)]
            right = [t for t in right if not c.a.has_word(t)]
            if left and right and len(c.edits.places) == 1 and _things(place, left, right, c):
                return _differ("entities", "Another thing is named", [t.low for t in left], [t.low for t in right])
    alternatives = _alternatives(c)
    if alternatives:
        return _differ(
            "entities", "One of several alternatives is replaced by another", [alternatives[0]], [alternatives[1]]
        )
    mine = [n for n in _focus_names(c.one) if not c.b.has_name(n)]
    theirs = [n for n in _focus_names(c.two) if not c.a.has_name(n)]
    if mine and theirs and (c.near or c.alike(_SAME_FRAME)):
        return _differ("entities", "Another name", mine, theirs)
    if not mine and not theirs and (c.one.names or c.two.names):
        return Relation("entities", "equal", "The same names.")
    return _NO_NAME


def _alternatives(c: Comparison) -> tuple[str, str] | None:
    """Words of one set of alternatives of which each message says one and its whole conversation not the other."""
    if not c.near and not c.alike(_SAME_FRAME):
        return None
    mine = {t.low for t in c.one.focus_tokens if t.low in c.words.contrasts}
    theirs = {t.low for t in c.two.focus_tokens if t.low in c.words.contrasts} if mine else set()
    for p in sorted(mine - theirs):
        for q in sorted(theirs - mine):
            if c.words.classes.get(p, p) == c.words.classes.get(q, q):
                continue
            if c.words.contrasts[p] & c.words.contrasts[q] and not c.b.says(p) and not c.a.says(q):
                return p, q
    return None


def _focus_names(facts: Facts) -> list[str]:
    return sorted(frozenset().union(*[s.names for s in facts.focus]))


def replaced_words(c: Comparison) -> tuple[str, str] | None:
    """The content words that have replaced one another in two messages that are otherwise the same."""
    if not c.near:
        return None
    left, right = unmatched_words(
        [t for place in c.edits.places for t in place.mine if t.content],
        [t for place in c.edits.places for t in place.theirs if t.content],
    )
    return (" ".join(t.low for t in left), " ".join(t.low for t in right)) if left and right else None


def _things(place: Edit, left: list[Token], right: list[Token], c: Comparison) -> bool:
    """Whether the words that replace one another name things, not ways of saying something."""
    if all(t.capital for t in left) and all(t.capital for t in right):
        return True
    if any(
        c.words.contrasts.get(p.low, frozenset()) & c.words.contrasts.get(q.low, frozenset())
        for p in left
        for q in right
    ):
        return True
    if c.one.language == "zh":
        text_a, text_b = "".join(t.low for t in left), "".join(t.low for t in right)
        shared = {character for character in set(text_a) & set(text_b) if not character.isascii()}
        if shared or text_a in c.words.verbs or text_b in c.words.verbs:
            return False
        named = [is_noun(t.low) for t in (*left, *right)]
        return all(named) or (any(named) and len(text_a) >= 2 and len(text_b) >= 2)
    if c.one.language == "other":
        return True
    if place.before and place.before not in c.words.before_verb and place.before not in c.words.verbs:
        return True
    return place.before in c.words.before_noun or (
        bool(place.mine) and bool(place.theirs) and place.mine[0].low == place.theirs[0].low in c.words.before_noun
    )


def _direction(c: Comparison) -> Relation:
    (from_a, to_a), (from_b, to_b) = c.one.direction, c.two.direction
    if from_a and to_a and (from_a, to_a) == (from_b, to_b):
        return Relation("direction", "equal", f"Both go from {from_a} to {to_a}.")
    turned = (from_a and from_a == to_b and from_a != to_a) or (from_b and from_b == to_a and from_b != to_b)
    if turned and (c.near or c.alike(_SAME_FRAME)) and len(c.one.focus) == len(c.two.focus) == 1:
        return Relation("direction", "conflict", "The direction is turned round.")
    if from_a and to_a and from_a != to_a and (from_a, to_a) == (to_b, from_b):  # whatever else the messages tell
        return Relation("direction", "conflict", f"One goes from {from_a} to {to_a}, the other back.")
    # "move the money of A to B" names its start without a word for it.
    crossed = to_a and to_b and to_a != to_b and to_a in c.two.stems and to_b in c.one.stems
    moved = crossed and all(_MOVED.search(facts.solid[:400]) for facts in (c.one, c.two))
    if moved and (c.near or c.alike(_SAME_FRAME)):
        return Relation("direction", "conflict", f"One goes to {to_a}, the other to {to_b}.")
    places = c.edits.places
    if c.near and len(places) == 2 and _exchanged(*places) and not _symmetric(places[0], places[1], c):
        return Relation("direction", "conflict", "Two things have changed places.")
    swapped = _swapped(c) or _implied(c.one, c.two) or _implied(c.two, c.one) or _turned_literals(c) or _glued(c)
    if swapped:
        return Relation("direction", "conflict", f"{swapped[0]} and {swapped[1]} have changed places.")
    return _NO_TURN


def _implied(said: Facts, keywords: Facts) -> tuple[str, str] | None:
    """Start and goal that one message names, and that stand side by side the other way round in keywords
    ("from Oslo to Rome" against "flights rome oslo")."""
    start, goal = said.direction
    if not start or not goal or start == goal or any(keywords.direction):
        return None
    tokens = [t for s in keywords.focus for t in s.tokens[:120]]
    if any(not t.content and t.low.isalpha() for t in tokens):  # a sentence, which says its directions itself
        return None
    stems = [t.stem for t in tokens]
    turned = any((one, other) == (goal, start) for one, other in pairwise(stems))
    return (start, goal) if turned else None


def _turned_literals(c: Comparison) -> tuple[str, str] | None:
    """Versions, ids or code that stand in one order here and in the other there, where a word says which comes from
    which ("from version 3 to version 4")."""
    if not (c.near or c.alike(_SAME_FRAME) or c.one.stems == c.two.stems):
        return None
    for mine, theirs in (
        (c.one.literals.versions, c.two.literals.versions),
        (c.one.literals.ids, c.two.literals.ids),
        (c.one.literals.code, c.two.literals.code),
        (c.one.literals.urls, c.two.literals.urls),
    ):
        if len(mine) == len(theirs) == 2 and mine == theirs[::-1] and mine[0] != mine[1]:
            ordering = frozenset((*c.words.direction_from, *c.words.direction_to, "than", "比"))
            said = all(not ordering.isdisjoint(_lows(facts.focus_tokens)) for facts in (c.one, c.two))
            return (mine[0], mine[1]) if said else None
    return None


def _glued(c: Comparison) -> tuple[str, str] | None:
    """What stands before and after an ordering word in one order here and in the other there, where Chinese word
    borders hide it (安卓转苹果, 中译英). Only for messages of the very same characters."""
    if c.words.language != "zh":
        return None
    one, two = (facts.solid[:400] for facts in (c.one, c.two))
    if one == two or sorted(one) != sorted(two):
        return None
    for marker in sorted(c.words.ordered, key=len, reverse=True):
        at = one.find(marker)
        while at > 0:
            after = at + len(marker)
            for left in range(1, min(_GLUED, at) + 1):
                for right in range(1, min(_GLUED, len(one) - after) + 1):
                    start, goal = one[at - left : at], one[after : after + right]
                    rest = one[: at - left], one[after + right :]
                    if start != goal and two == rest[0] + goal + marker + start + rest[1]:
                        return start, goal
            at = one.find(marker, after)
    return None


def _exchanged(first: Edit, second: Edit) -> bool:
    """Whether what stands in the first place here stands in the second there, and the other way round."""
    mine, theirs = _lows(first.mine), _lows(first.theirs)
    return bool(mine and theirs) and mine == _lows(second.theirs) and theirs == _lows(second.mine)


def _lows(tokens: Iterable[Token]) -> list[str]:
    return [t.low for t in tokens]


def _symmetric(first: Edit, second: Edit, c: Comparison) -> bool:
    """Whether only words such as "and" or "or" stand between the two, so that their order says nothing."""
    tokens = [t.low for s in c.mine for t in s.tokens]
    if not first.mine or not second.mine:
        return False
    start = next((at for at, low in enumerate(tokens) if low == first.mine[-1].low), -1)
    end = next((at for at, low in enumerate(tokens) if at > start and low == second.mine[0].low), -1)
    return 0 <= start < end and all(low in c.words.symmetric for low in tokens[start + 1 : end])


def _swapped(c: Comparison) -> tuple[str, str] | None:
    """Two words that stand around an ordering word ("to", "than", 到, 比) in one order here, in the other there."""
    if c.words.ordered.isdisjoint(c.one.words) or c.words.ordered.isdisjoint(c.two.words):
        return None
    around_a, around_b = ordered(c.mine, c.words), ordered(c.theirs, c.words)
    for left, right in sorted(around_a):
        if (right, left) in around_b and (left, right) not in around_b and (right, left) not in around_a:
            return left, right
    return None


def _formats(c: Comparison) -> Relation:
    if c.one.formats and c.two.formats and not c.one.formats & c.two.formats:
        return _differ("format", "Another form of answer is asked for", c.one.formats, c.two.formats)
    return _NO_FORMAT


_RULES: tuple[Callable[[Comparison], Relation], ...] = (
    _numbers,
    _units,
    _options,
    _dates,
    _literal("versions", "a version", lambda f: f.literals.versions, one_sided=True),
    _literal("ids", "an id", lambda f: f.literals.ids, one_sided=True),
    _literal("urls", "an address", lambda f: f.literals.urls, one_sided=True),
    _literal("code", "code", lambda f: f.literals.code, one_sided=True),
    _literal("quoted_text", "quoted text", lambda f: f.literals.quoted, one_sided=False),
    _literal("symbols", "a sign", lambda f: f.literals.emoji, one_sided=True),
    _given,
    _polarity,
    _scope,
    _modality,
    _question,
    _action,
    _entities,
    _direction,
    _formats,
)
