"""The comparisons of two turns: one vector of plain numbers, the same whichever turn comes first.

A comparison that has a direction ("what A says that B does not") enters twice, as the lesser and the greater of its two
values, so that "one side says more" and "both say something else" look different and the vector stays symmetric.

Groups: the last messages; what they leave open and the other conversation says; facts and closed classes; where the two
histories part, and what each says there that the other does not.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rapidfuzz import fuzz
from rapidfuzz.distance import OSA, LCSseq, Levenshtein

from fingerprint.comparisons.lexicon import CLASSES, Language, lexicon
from fingerprint.comparisons.view import View, language_of, view
from fingerprint.conversation import Message, Turn

__all__ = ["NAMES", "SCHEMA_VERSION", "compare"]

SCHEMA_VERSION = "comparisons-3"

MAX_MESSAGES = 24
"""Messages of a history that are compared, counted from its end."""
MAX_CONTENT = 400
"""Content words of a whole conversation that are compared."""

Floats = NDArray[np.float32]
_NOTHING: frozenset[str] = frozenset()
_MISSPELT = float(np.float32(0.9))
"""How well a misspelling meets the word."""


class _Row:
    """Collects values in the order of the names."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values: list[float] = []

    def one(self, name: str, value: float) -> None:
        self.values.append(value)

    def two(self, name: str, ab: float, ba: float) -> None:
        self.values += (ab, ba) if ab <= ba else (ba, ab)

    def each(self, name: str, parts: Sequence[str], ab: Sequence[float], ba: Sequence[float]) -> None:
        """`two` of every part of a group."""
        for x, y in zip(ab, ba, strict=True):
            self.values += (x, y) if x <= y else (y, x)


class _Named(_Row):
    """Collects the names too: the first row made fixes their order."""

    __slots__ = ("names",)

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def one(self, name: str, value: float) -> None:
        super().one(name, value)
        self.names.append(name)

    def two(self, name: str, ab: float, ba: float) -> None:
        super().two(name, ab, ba)
        self.names += (name + ".min", name + ".max")

    def each(self, name: str, parts: Sequence[str], ab: Sequence[float], ba: Sequence[float]) -> None:
        for part, x, y in zip(parts, ab, ba, strict=True):
            self.two(f"{name}.{part}", x, y)


@dataclass(slots=True, eq=False)
class _Said:
    """What a message, or a whole conversation, says."""

    stems: frozenset[str]
    numbers: frozenset[str]
    vectors: Floats


def _said(views: list[View]) -> _Said:
    return _Said(
        frozenset().union(*[v.stem_set for v in views]),
        frozenset().union(*[v.numbers for v in views]),
        np.concatenate([v.vectors for v in views])[-MAX_CONTENT:],
    )


class _Cover(NamedTuple):
    """How well another side meets the content words of a message.

    ``met`` a word, 0 … 1: itself 1, misspelt 0.9, else a cosine. ``gaps``: what it lacks of 1, by the word's weight.
    ``mean``, ``worst`` and ``gap`` sum the gaps up; ``missing`` and ``doubtful`` count the words that meet little.
    """

    met: Sequence[float]
    gaps: Floats
    mean: float = 1.0
    worst: float = 0.0
    gap: float = 0.0
    missing: float = 0.0
    doubtful: float = 0.0


_EMPTY = _Cover((), np.zeros(0, np.float32))
_SUMS = ("mean", "worst", "gap", "missing", "doubtful")


@dataclass(slots=True)
class _Side:
    """One turn, prepared: its last message, its history from the oldest to the newest, and all it says."""

    last: View
    asking: View
    history: list[View]
    roles: list[str]
    alone: _Said
    whole: _Said
    covers: dict[tuple[str, View], _Cover] = field(default_factory=dict)

    def cover(self, v: View) -> _Cover:
        """How well the whole conversation meets a message of the other side, letter by letter."""
        found = self.covers.get(("whole", v))
        if found is None:
            found = self.covers["whole", v] = _cover(v, self.whole)
        return found

    def lenient(self, v: View) -> _Cover:
        """The same, where a word may be a misspelling of one of the last message."""
        found = self.covers.get(("lenient", v))
        if found is None:
            found = self.covers["lenient", v] = _forgiven(v, self.cover(v), self.last)
        return found

    def last_cover(self, v: View) -> _Cover:
        """How well the last message alone meets one of the other side, misspellings apart."""
        if self.alone is self.whole:
            return self.lenient(v)
        found = self.covers.get(("alone", v))
        if found is None:
            found = self.covers["alone", v] = _forgiven(v, _cover(v, self.alone), self.last)
        return found


def _before(b: Turn, a: Turn) -> bool:
    """Whether ``b`` comes first; the histories decide between equal messages."""
    if a.message.text != b.message.text:
        return b.message.text < a.message.text
    return [(m.role, m.text) for m in b.history] < [(m.role, m.text) for m in a.history]


def _side(turn: Turn, history: Sequence[Message], language: Language) -> _Side:
    kept = [m for m in history if m.role in ("user", "assistant") and m.text.strip()][-MAX_MESSAGES:]
    last = view(turn.message.text, language)
    asking = view(last.asking, language) if len(last.sentences) > 1 else last
    views = [view(m.text, language) for m in kept]
    alone = _Said(last.stem_set, last.numbers, last.vectors)
    whole = _said([*views, last]) if views or len(last.vectors) > MAX_CONTENT else alone
    return _Side(last, asking, views, [m.role for m in kept], alone, whole)


def compare(a: Turn, b: Turn, *, similarity: float, same_place: bool) -> Floats:
    """Comparisons of two turns, float32 of shape ``(len(NAMES),)``.

    ``similarity`` is the cosine of the two last messages, -1 … 1. ``same_place``: both hang from the same node, so the
    histories mean the same however they are worded, and are not compared. System messages are not compared: they belong
    to the identity. Symmetric in ``a`` and ``b``; never raises on any text.
    """
    if _before(b, a):  # edit scripts depend on which comes first
        a, b = b, a
    history_a, history_b = a.history, b.history
    if same_place:
        history_a = history_b = min(history_a, history_b, key=len)
    language = language_of(a.message.text)
    if language == "en":
        language = language_of(b.message.text)
    if language == "en" and any(language_of(m.text) == "zh" for h in (history_a, history_b) for m in h[-4:]):
        language = "zh"
    row = _Row()
    _fill(row, _side(a, history_a, language), _side(b, history_b, language), similarity)
    return np.array(row.values, np.float32)


def _fill(row: _Row, one: _Side, two: _Side, similarity: float) -> None:
    _same_question(row, one, two, similarity)
    _facts(row, one.last, two.last)
    _open_ends(row, one, two)
    _asked(row, one, two)
    _histories(row, one, two)


# -- the last messages -----------------------------------------------------------------------------------------------


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 1.0


def _jaccard(one: frozenset[str], two: frozenset[str]) -> float:
    common = len(one & two)
    return _ratio(common, len(one) + len(two) - common)


def _is_typo(one: str, two: str) -> bool:
    """Whether two words of four ASCII characters or more can be spellings of one."""
    shorter = min(len(one), len(two))
    most = 1 if shorter < 7 else 2
    if abs(len(one) - len(two)) > most or (most == 1 and one[0] != two[0] and one[-1] != two[-1]):
        return False
    return OSA.distance(one, two, score_cutoff=most) <= most


def _summed(v: View, met: Sequence[float]) -> _Cover:
    gaps = v.weights * (1.0 - np.array(met, np.float32))
    gap = float(np.add.reduce(gaps))
    return _Cover(
        met,
        gaps,
        1.0 - gap / v.mass if v.mass else 1.0,
        max(gaps.tolist()),
        gap,
        float(sum([m < 0.5 for m in met])),
        float(sum([m < 0.75 for m in met])),
    )


def _cover(v: View, other: _Said) -> _Cover:
    """How well the other side meets each content word of ``v``."""
    stems = other.stems
    if stems.issuperset(v.content):
        return _Cover((1.0,) * len(v.content), np.zeros(len(v.content), np.float32)) if v.content else _EMPTY
    if len(other.vectors):
        best = np.maximum.reduce(v.vectors @ other.vectors.T, axis=1).tolist()
    else:
        best = [0.0] * len(v.content)
    return _summed(
        v, [1.0 if root in stems else x if x > 0.0 else 0.0 for root, x in zip(v.content, best, strict=True)]
    )


def _forgiven(v: View, cover: _Cover, other: View) -> _Cover:
    """The cover with 0.9 for each word of ``v`` that meets less and is spelt otherwise in ``other``."""
    if not v.strange and not other.strange:
        return cover
    met = cover.met
    places = [
        n for n, root in enumerate(v.content) if met[n] < _MISSPELT and root in v.spelt and _misspelt(v, root, other)
    ]
    if not places:
        return cover
    return _summed(v, [_MISSPELT if n in places else m for n, m in enumerate(met)])


def _misspelt(v: View, root: str, other: View) -> bool:
    # Only a word nobody knows can be a misspelling: enable and disable are both known.
    return any(_is_typo(root, word) for word in (other.spelt if root in v.unknown else other.strange))


@functools.lru_cache(maxsize=4096)
def _sorted_stems(v: View) -> str:
    return " ".join(sorted(v.stems))


@functools.lru_cache(maxsize=4096)
def _bigrams(v: View) -> frozenset[tuple[str, str]]:
    return frozenset(zip(v.stems, v.stems[1:], strict=False))


def _same_question(row: _Row, one: _Side, two: _Side, similarity: float) -> None:
    a, b = one.last, two.last
    row.one("cos", similarity)
    row.one("language", 1.0 if a.language == "zh" else 0.0)
    row.one("ratio", fuzz.ratio(a.text[:2000], b.text[:2000]) / 100)
    row.one("sorted_ratio", fuzz.ratio(_sorted_stems(a), _sorted_stems(b)) / 100)
    row.one("equal_stems", float(a.stems == b.stems))
    common = a.stem_set & b.stem_set
    row.one("jaccard", _jaccard(a.stem_set, b.stem_set))
    row.two("contained", _ratio(len(common), len(a.stem_set)), _ratio(len(common), len(b.stem_set)))
    row.two("tokens", len(a.stems), len(b.stems))
    row.two("mass", a.mass, b.mass)
    row.one("mean_cos", float(a.mean @ b.mean))

    shared = [n for n, w in enumerate(a.content) if w in b.content_index]
    # Added up one by one, in float32.
    shared_mass = float(np.add.accumulate(a.weights[shared])[-1]) if shared else 0.0
    row.one("shared_mass", shared_mass)
    row.one("content_jaccard", _ratio(shared_mass, a.mass + b.mass - shared_mass))
    _soft(row, "soft", two.last_cover(a), one.last_cover(b))

    # What was put in the place of what.
    spans = _replaced(a, b)
    row.one("edit.replaced", spans[0])
    row.two("edit.only", spans[1], spans[2])
    row.one("edit.share", _ratio(spans[0] + spans[1] + spans[2], max(len(a.stems), len(b.stems))))
    row.one("edit.span_cos_min", spans[3])
    row.one("edit.span_cos_mean", spans[4])
    row.one("edit.content_spans", spans[5])
    row.one("edit.one_word", spans[6])

    # Order: the words both have, in another order.
    order_a = [w for w in a.stems if w in common][:200]
    order_b = [w for w in b.stems if w in common][:200]
    row.one("order.lcs", _in_order(order_a, order_b))
    bigrams_a, bigrams_b = _bigrams(a), _bigrams(b)
    shared_bigrams = len(bigrams_a & bigrams_b)
    row.one("order.bigrams", _ratio(shared_bigrams, len(bigrams_a) + len(bigrams_b) - shared_bigrams))
    content_a = [w for w in a.stems if w in b.content_index][:100]
    content_b = [w for w in b.stems if w in a.content_index][:100]
    row.one("order.content", _in_order(content_a, content_b))


def _in_order(a: list[str], b: list[str]) -> float:
    """The longest common subsequence over the longer of two lists."""
    return 1.0 if a == b else _ratio(LCSseq.similarity(a, b), max(len(a), len(b)))


def _soft(row: _Row, name: str, a: _Cover, b: _Cover) -> None:
    """How much of each side the other covers: mean, worst weighted gap, mass and number of words that meet nothing."""
    row.each(name, _SUMS, a[2:], b[2:])


def _holds_content(v: View, start: int, end: int) -> bool:
    return not v.content_index.keys().isdisjoint(v.stems[start:end])


@functools.lru_cache(maxsize=4096)
def _mean(v: View, start: int, end: int) -> Floats | None:
    """The mean of the vectors of a span of tokens, unit length; None where they cancel out."""
    places = [v.content_index[s] for s in v.stems[start:end] if s in v.content_index]
    one = places[0]
    total: Floats = v.weights[one] * v.vectors[one] if len(places) == 1 else v.weights[places] @ v.vectors[places]
    norm = float(np.sqrt(total @ total))
    return total / np.float32(norm) if norm else None


def _replaced(a: View, b: View) -> tuple[float, float, float, float, float, float, float]:
    """Edits between two token lists: replaced, only in a, only in b; cosines of replaced spans; spans with content."""
    replaced = only_a = only_b = spans = 0
    one_word = 0.0
    cosines: list[float] = []
    for edit in Levenshtein.opcodes(a.stems[:200], b.stems[:200]):
        i, j, k, m = edit.src_start, edit.src_end, edit.dest_start, edit.dest_end
        if edit.tag == "replace":
            replaced += max(j - i, m - k)
            if _holds_content(a, i, j) and _holds_content(b, k, m):
                x, y = _mean(a, i, j), _mean(b, k, m)
                spans += 1
                cosines.append(float(x @ y) if x is not None and y is not None else 0.0)
                one_word += j - i == 1 and m - k == 1
        elif edit.tag == "delete":
            only_a += j - i
        elif edit.tag == "insert":
            only_b += m - k
    lowest = min(cosines) if cosines else 1.0
    mean = sum(cosines) / len(cosines) if cosines else 1.0
    return float(replaced), float(only_a), float(only_b), lowest, mean, float(spans), one_word


# -- facts and closed classes ----------------------------------------------------------------------------------------


def _facts(row: _Row, a: View, b: View) -> None:
    row.two("numbers.only", len(a.numbers - b.numbers), len(b.numbers - a.numbers))
    row.one("numbers.shared", len(a.numbers & b.numbers))
    row.two("quantities.only", len(a.quantities - b.quantities), len(b.quantities - a.quantities))
    row.two("identifiers.only", len(a.identifiers - b.stem_set), len(b.identifiers - a.stem_set))
    row.two("names.only", len(a.names - b.stem_set), len(b.names - a.stem_set))
    row.one("names.shared", len(a.names & b.stem_set | b.names & a.stem_set))
    row.two("negations", a.negations, b.negations)
    row.one("negations.parity", (a.negations ^ b.negations) & 1)
    for name in CLASSES:
        x, y = a.classes[name], b.classes[name]
        row.two(name + ".only", len(x - y), len(y - x))
    row.one("asks.jaccard", _jaccard(a.asks, b.asks))
    row.two("asks.only", len(a.asks - b.asks), len(b.asks - a.asks))
    row.one("antonyms", _antonyms([a], [b]))
    row.one("prefixes", _negating_prefixes(a, b))
    row.one("symbols", len(a.symbols ^ b.symbols))
    row.two("acknowledging", a.acknowledging, b.acknowledging)
    row.two("pronouns", min(a.pronouns, 6), min(b.pronouns, 6))
    row.one("questions", float(a.question) + float(b.question))


def _antonyms(a: Sequence[View], b: Sequence[View]) -> float:
    """Words of one side whose opposite the other side says, each side's own word missing over there."""
    words = frozenset().union(*[v.opposable for v in a])
    if not words:
        return 0.0
    table = lexicon(a[0].language).antonyms
    x, y = frozenset().union(*[v.opposable for v in a]), frozenset().union(*[v.opposable for v in b])
    return float(sum(1 for w in x - y if not table[w].isdisjoint(y - x)))


def _negating_prefixes(a: View, b: View) -> float:
    """Pairs like paid and unpaid, 准时 and 不准时."""
    return float(
        sum(
            long not in x.stem_set and short in x.stem_set and short not in y.stem_set
            for x, y in ((a, b), (b, a))
            for long, short in y.prefixed
        )
    )


# -- what a last message leaves open and the other conversation says -------------------------------------------------


def _open_ends(row: _Row, one: _Side, two: _Side) -> None:
    stems_a, stems_b = one.whole.stems, two.whole.stems
    _soft(row, "open", two.lenient(one.last), one.lenient(two.last))
    row.two("open.numbers", len(one.last.numbers - two.whole.numbers), len(two.last.numbers - one.whole.numbers))
    row.two("open.names", len(one.last.names - stems_b), len(two.last.names - stems_a))
    row.one("whole.jaccard", _jaccard(stems_a, stems_b))
    common = len(stems_a & stems_b)
    row.two("whole.contained", _ratio(common, len(stems_a)), _ratio(common, len(stems_b)))


def _asked(row: _Row, one: _Side, two: _Side) -> None:
    """The sentence of each last message that asks, apart from what is said around it."""
    a, b = one.asking, two.asking
    row.two("asked.sentences", len(one.last.sentences), len(two.last.sentences))
    row.one("asked.equal", float(a.stems == b.stems))
    row.one("asked.cos", float(a.mean @ b.mean))
    row.one("asked.jaccard", _jaccard(a.stem_set, b.stem_set))
    row.two("asked.mass", a.mass, b.mass)
    _soft(row, "asked", two.last_cover(a), one.last_cover(b))
    _soft(row, "asked.open", two.cover(a), one.cover(b))
    row.one("asked.antonyms", _antonyms([a], [b]))
    row.two("asked.negations", a.negations, b.negations)
    row.two("asked.asks", len(a.asks - b.asks), len(b.asks - a.asks))
    row.two("asked.numbers", len(a.numbers - two.whole.numbers), len(b.numbers - one.whole.numbers))
    row.each("around", ("gap", "worst", "near"), _around(one, two), _around(two, one))


@functools.lru_cache(maxsize=4096)
def _background(v: View, asking: View) -> tuple[tuple[int, ...], float]:
    """Places of the content words that the sentence that asks does not hold, and their greatest cosine with it."""
    rest = tuple(i for i, w in enumerate(v.content) if w not in asking.stem_set)
    near = float((v.vectors[list(rest)] @ asking.vectors.T).max()) if rest and asking.content else 0.0
    return rest, near


def _around(mine: _Side, other: _Side) -> tuple[float, float, float]:
    """What is said around the question on one side only: background, or a condition."""
    if mine.asking is mine.last:
        return 0.0, 0.0, 0.0
    rest, near = _background(mine.last, mine.asking)
    if not rest:
        return 0.0, 0.0, 0.0
    gaps = other.cover(mine.last).gaps[list(rest)]
    return float(gaps.sum()), float(gaps.max()), near


# -- the histories ---------------------------------------------------------------------------------------------------

_HISTORY_CLASSES = ("negation", "scope", "time", "direction", "comparative", "other_person", "modality")
_NO_WORDS = (0,) * len(_HISTORY_CLASSES)


def _histories(row: _Row, one: _Side, two: _Side) -> None:
    texts_a, texts_b = [v.text for v in one.history], [v.text for v in two.history]
    row.two("history.turns", len(texts_a), len(texts_b))
    row.one("history.equal", float(texts_a == texts_b))
    row.one("history.none", float(not texts_a) + float(not texts_b))
    tail = 0
    while tail < min(len(texts_a), len(texts_b)) and texts_a[-1 - tail] == texts_b[-1 - tail]:
        tail += 1
    row.one("history.tail", tail)
    known_a, known_b = frozenset(texts_a), frozenset(texts_b)
    new_a = [i for i, t in enumerate(texts_a) if t not in known_b]
    new_b = [i for i, t in enumerate(texts_b) if t not in known_a]
    for role in ("user", "assistant"):
        row.two(
            f"history.new_{role}",
            sum(1 for i in new_a if one.roles[i] == role),
            sum(1 for i in new_b if two.roles[i] == role),
        )
    row.two(
        "history.latest_new",
        len(texts_a) - new_a[-1] if new_a else 99.0,
        len(texts_b) - new_b[-1] if new_b else 99.0,
    )
    _answered(row, one, two)
    _earlier(row, one, two)
    _small_edits(row, one, two, new_a, new_b)
    _residue(row, one, two, new_a, new_b)


def _answered(row: _Row, one: _Side, two: _Side) -> None:
    """The assistant turn each last message answers."""
    a = one.history[-1] if one.roles and one.roles[-1] == "assistant" else None
    b = two.history[-1] if two.roles and two.roles[-1] == "assistant" else None
    if a is None or b is None:
        row.one("answered.equal", 1.0 if a is b else -1.0)
        row.one("answered.ratio", 1.0 if a is b else -1.0)
        row.one("answered.cos", 1.0 if a is b else -1.0)
        row.two("answered.worst", 0.0, 0.0)
        row.two("answered.gap", 0.0, 0.0)
        row.two("answered.numbers", 0.0, 0.0)
        row.two("answered.names", 0.0, 0.0)
        row.one("answered.antonyms", 0.0)
        row.one("answered.negations", 0.0)
        return
    row.one("answered.equal", float(a.text == b.text))
    row.one("answered.ratio", fuzz.ratio(a.text[:2000], b.text[:2000]) / 100)
    row.one("answered.cos", float(a.mean @ b.mean) if a.text != b.text else 1.0)
    ca, cb = (_EMPTY, _EMPTY) if a.text == b.text else (two.cover(a), one.cover(b))
    row.two("answered.worst", ca.worst, cb.worst)
    row.two("answered.gap", ca.gap, cb.gap)
    row.two("answered.numbers", len(a.numbers - two.whole.numbers), len(b.numbers - one.whole.numbers))
    row.two("answered.names", len(a.names - two.whole.stems), len(b.names - one.whole.stems))
    row.one("answered.antonyms", _antonyms([a], [b]))
    row.one("answered.negations", abs(a.negations - b.negations))


def _earlier(row: _Row, one: _Side, two: _Side) -> None:
    """Whether a last message asks what the other conversation asked before, and has got past."""
    base = _jaccard(one.last.stem_set, two.last.stem_set), float(one.last.mean @ two.last.mean)
    parts = ("repeated", "jaccard", "cos", "more_jaccard", "more_cos")
    row.each("earlier", parts, _asked_before(one.last, two, base), _asked_before(two.last, one, base))


def _asked_before(last: View, other: _Side, base: tuple[float, float]) -> tuple[float, float, float, float, float]:
    repeated = jaccard = cosine = 0.0
    for v, role in zip(other.history, other.roles, strict=True):
        if role == "user":
            repeated = max(repeated, float(v.stems == last.stems))
            jaccard = max(jaccard, _jaccard(v.stem_set, last.stem_set))
            cosine = max(cosine, float(v.mean @ last.mean))
    return repeated, jaccard, cosine, jaccard - base[0], cosine - base[1]


def _small_edits(row: _Row, one: _Side, two: _Side, new_a: list[int], new_b: list[int]) -> None:
    """Earlier messages that are nearly the same on both sides: a word changed there is seldom without meaning."""
    ratios: list[float] = []
    cosine, share, content, antonyms, numbers, negations = 1.0, 0.0, 0.0, 0.0, 0.0, 0.0
    small = 0
    free = set(new_b)
    for i in new_a:
        best, best_ratio = -1, 0.0
        for j in free:
            if two.roles[j] != one.roles[i]:
                continue
            ratio = fuzz.ratio(one.history[i].text[:1000], two.history[j].text[:1000])
            if ratio > best_ratio:
                best, best_ratio = j, ratio
        if best < 0:
            continue
        ratios.append(best_ratio / 100)
        if best_ratio < 60:
            continue
        free.discard(best)
        small += 1
        x, y = one.history[i], two.history[best]
        spans = _replaced(x, y)
        cosine = min(cosine, spans[3])
        content += spans[5]
        share = max(share, _ratio(spans[0] + spans[1] + spans[2], max(len(x.stems), len(y.stems))))
        antonyms += _antonyms([x], [y])
        numbers += len(x.numbers ^ y.numbers)
        negations += abs(x.negations - y.negations)
    row.one("small.count", small)
    row.one("small.span_cos", cosine)
    row.one("small.content", content)
    row.one("small.share", share)
    row.one("small.antonyms", antonyms)
    row.one("small.numbers", numbers)
    row.one("small.negations", negations)
    row.one("small.best_ratio", max(ratios) if ratios else 1.0)
    row.one("small.worst_ratio", min(ratios) if ratios else 1.0)


def _residue(row: _Row, one: _Side, two: _Side, new_a: list[int], new_b: list[int]) -> None:
    """What the messages that differ say and the whole other conversation does not, by who says it."""
    for role in ("user", "assistant"):
        parts = ("gap", "worst", "missing", "numbers", "names", "near_last")
        row.each(f"residue.{role}", parts, _residue_of(one, two, new_a, role), _residue_of(two, one, new_b, role))
    views_a, views_b = [one.history[i] for i in new_a], [two.history[i] for i in new_b]
    row.one("residue.antonyms", _antonyms(views_a, views_b))
    # Only what the messages that differ and the last ones say word for word is taken off, beside the stems.
    words_a = frozenset().union(one.last.tokens, *[v.tokens for v in views_a]) if views_b else _NOTHING
    words_b = frozenset().union(two.last.tokens, *[v.tokens for v in views_b]) if views_a else _NOTHING
    only_a, only_b = _only(views_a, two.whole.stems, words_b), _only(views_b, one.whole.stems, words_a)
    row.each("residue", _HISTORY_CLASSES, only_a, only_b)


def _only(views: list[View], stems: frozenset[str], words: frozenset[str]) -> Sequence[int]:
    """How many words of each class are said in ``views`` and neither as stem nor word for word on the other side."""
    if not views:
        return _NO_WORDS
    return [len(frozenset().union(*[v.classes[name] for v in views]) - stems - words) for name in _HISTORY_CLASSES]


def _residue_of(
    mine: _Side, other: _Side, new: list[int], role: str
) -> tuple[float, float, float, float, float, float]:
    gap = worst = missing = near = 0.0
    if not new:
        return gap, worst, missing, 0.0, 0.0, near
    numbers: set[str] = set()
    names: set[str] = set()
    last = mine.last.vectors
    for i in new:
        if mine.roles[i] != role:
            continue
        v = mine.history[i]
        numbers |= v.numbers - other.whole.numbers
        names |= v.names - other.whole.stems
        cover = other.cover(v)
        gap += cover.gap
        worst = max(worst, cover.worst)
        lost = [n for n, m in enumerate(cover.met) if m < 0.6]
        missing += len(lost)
        if lost and len(last):
            near = max(near, float((v.vectors[lost] @ last.T).max()))
    return gap, worst, missing, float(len(numbers)), float(len(names)), near


def _names() -> tuple[str, ...]:
    row = _Named()
    empty = _side(Turn((), (), Message("user", "a")), (), "en")
    _fill(row, empty, empty, 1.0)
    return tuple(row.names)


NAMES: tuple[str, ...] = _names()
"""Names of the comparisons, in the order of the vector."""
