"""The comparisons of two turns: one vector of plain numbers, the same whichever turn comes first.

A comparison that has a direction ("what A says that B does not") enters twice, as the lesser and the greater of its two
values, so that "one side says more" and "both say something else" look different and the vector stays symmetric.

Groups: the last messages; what they leave open and the other conversation says; facts and closed classes; where the two
histories part, and what each says there that the other does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from rapidfuzz import fuzz
from rapidfuzz.distance import OSA, LCSseq, Levenshtein

from fingerprint.comparisons.lexicon import CLASSES, Language, lexicon
from fingerprint.comparisons.view import View, language_of, view
from fingerprint.comparisons.words import WIDTH
from fingerprint.conversation import Message, Turn

__all__ = ["NAMES", "SCHEMA_VERSION", "compare"]

SCHEMA_VERSION = "comparisons-3"

MAX_MESSAGES = 24
"""Messages of a history that are compared, counted from its end."""
MAX_CONTENT = 400
"""Content words of a whole conversation that are compared."""

Floats = NDArray[np.float32]
_NOTHING: frozenset[str] = frozenset()


class _Row:
    """Collects named values; the first row made fixes the order of the names."""

    __slots__ = ("names", "values")

    def __init__(self) -> None:
        self.names: list[str] = []
        self.values: list[float] = []

    def one(self, name: str, value: float) -> None:
        self.names.append(name)
        self.values.append(value)

    def two(self, name: str, ab: float, ba: float) -> None:
        self.names += (name + ".min", name + ".max")
        self.values += (ab, ba) if ab <= ba else (ba, ab)


@dataclass(slots=True)
class _Side:
    """One turn, prepared: its last message, its history from the oldest to the newest, and all it says."""

    last: View
    asking: View
    history: list[View]
    roles: list[str]
    stems: frozenset[str] = _NOTHING
    numbers: frozenset[str] = _NOTHING
    words: tuple[str, ...] = ()
    vectors: Floats = field(default_factory=lambda: np.zeros((0, WIDTH), np.float32))

    def gather(self) -> None:
        """Fill in what the whole conversation says."""
        views = [*self.history, self.last]
        self.stems = frozenset().union(*(v.stem_set for v in views))
        self.numbers = frozenset().union(*(v.numbers for v in views))
        self.vectors = np.concatenate([v.vectors for v in views])[-MAX_CONTENT:]


def _order(turn: Turn) -> tuple[str, tuple[tuple[str, str], ...]]:
    return turn.message.text, tuple((m.role, m.text) for m in turn.history)


def _side(turn: Turn, history: Sequence[Message], language: Language) -> _Side:
    kept = [m for m in history if m.role in ("user", "assistant") and m.text.strip()][-MAX_MESSAGES:]
    last = view(turn.message.text, language)
    asking = view(last.asking, language) if len(last.sentences) > 1 else last
    return _Side(last, asking, [view(m.text, language) for m in kept], [m.role for m in kept])


def compare(a: Turn, b: Turn, *, similarity: float, same_place: bool) -> Floats:
    """Comparisons of two turns, float32 of shape ``(len(NAMES),)``.

    ``similarity`` is the cosine of the two last messages, -1 … 1. ``same_place``: both hang from the same node, so the
    histories mean the same however they are worded, and are not compared. System messages are not compared: they belong
    to the identity. Symmetric in ``a`` and ``b``; never raises on any text.
    """
    if _order(b) < _order(a):  # edit scripts depend on which comes first
        a, b = b, a
    history_a, history_b = a.history, b.history
    if same_place:
        history_a = history_b = min(history_a, history_b, key=len)
    texts = (a.message.text, b.message.text)
    language: Language = "zh" if "zh" in map(language_of, texts) else "en"
    if language == "en" and any(language_of(m.text) == "zh" for h in (history_a, history_b) for m in h[-4:]):
        language = "zh"
    one, two = _side(a, history_a, language), _side(b, history_b, language)
    row = _Row()
    _same_question(row, one.last, two.last, similarity)
    _facts(row, one.last, two.last)
    equal_history = [v.text for v in one.history] == [v.text for v in two.history]
    one.gather()
    two.gather()
    _open_ends(row, one, two)
    _asked(row, one, two)
    _histories(row, one, two, equal_history)
    return np.array(row.values, np.float32)


# -- the last messages -----------------------------------------------------------------------------------------------


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 1.0


def _is_typo(one: str, two: str) -> bool:
    if min(len(one), len(two)) < 4 or not (one.isascii() and two.isascii()):
        return False
    most = 1 if min(len(one), len(two)) < 7 else 2
    return OSA.distance(one, two, score_cutoff=most) <= most


def _cover(a: View, stems: frozenset[str], vectors: Floats, others: View | None) -> Floats:
    """How well the other side meets each content word of ``a``, 0 … 1: itself 1, misspelt 0.9, else a cosine."""
    if not a.content:
        return np.zeros(0, np.float32)
    best = (a.vectors @ vectors.T).max(axis=1) if len(vectors) else np.zeros(len(a.content), np.float32)
    best = np.maximum(best, 0.0)
    for place, root in enumerate(a.content):
        if root in stems:
            best[place] = 1.0
        elif others is not None and best[place] < 0.9:
            # Only a word nobody knows can be a misspelling: enable and disable are both known.
            for other in others.content:
                if (root in a.unknown or other in others.unknown) and _is_typo(root, other):
                    best[place] = 0.9
                    break
    out: Floats = best
    return out


def _same_question(row: _Row, a: View, b: View, similarity: float) -> None:
    row.one("cos", similarity)
    row.one("language", 1.0 if a.language == "zh" else 0.0)
    row.one("ratio", fuzz.ratio(a.text[:2000], b.text[:2000]) / 100)
    row.one("sorted_ratio", fuzz.ratio(" ".join(sorted(a.stems)), " ".join(sorted(b.stems))) / 100)
    row.one("equal_stems", float(a.stems == b.stems))
    common = a.stem_set & b.stem_set
    row.one("jaccard", _ratio(len(common), len(a.stem_set | b.stem_set)))
    row.two("contained", _ratio(len(common), len(a.stem_set)), _ratio(len(common), len(b.stem_set)))
    row.two("tokens", len(a.stems), len(b.stems))
    row.two("mass", a.mass, b.mass)
    row.one("mean_cos", float(a.mean @ b.mean))

    shared = [w for w in a.content if w in b.content_index]
    shared_mass = float(sum(a.weights[a.content_index[w]] for w in shared))
    row.one("shared_mass", shared_mass)
    row.one("content_jaccard", _ratio(shared_mass, a.mass + b.mass - shared_mass))
    ca, cb = _cover(a, b.stem_set, b.vectors, b), _cover(b, a.stem_set, a.vectors, a)
    _soft(row, "soft", a, b, ca, cb)

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
    order_a = [w for w in a.stems if w in common]
    order_b = [w for w in b.stems if w in common]
    longest = LCSseq.similarity(order_a[:200], order_b[:200])
    row.one("order.lcs", _ratio(longest, max(len(order_a[:200]), len(order_b[:200]))))
    bigrams_a, bigrams_b = set(zip(a.stems, a.stems[1:], strict=False)), set(zip(b.stems, b.stems[1:], strict=False))
    row.one("order.bigrams", _ratio(len(bigrams_a & bigrams_b), len(bigrams_a | bigrams_b)))
    content_a = [w for w in a.stems if w in b.content_index][:100]
    content_b = [w for w in b.stems if w in a.content_index][:100]
    row.one("order.content", _ratio(LCSseq.similarity(content_a, content_b), max(len(content_a), len(content_b))))


def _soft(row: _Row, name: str, a: View, b: View, ca: Floats, cb: Floats) -> None:
    """How much of each side the other covers: mean, worst weighted gap, mass and number of words that meet nothing."""
    values = []
    for v, c in ((a, ca), (b, cb)):
        if not len(c):
            values.append((1.0, 0.0, 0.0, 0.0, 0.0))
            continue
        gaps = v.weights * (1.0 - c)
        values.append(
            (
                1.0 - _ratio(float(gaps.sum()), v.mass) if v.mass else 1.0,
                float(gaps.max()),
                float(gaps.sum()),
                float((c < 0.5).sum()),
                float((c < 0.75).sum()),
            )
        )
    for place, what in enumerate(("mean", "worst", "gap", "missing", "doubtful")):
        row.two(f"{name}.{what}", values[0][place], values[1][place])


def _mean(v: View, stems: Sequence[str]) -> Floats | None:
    places = [v.content_index[s] for s in stems if s in v.content_index]
    if not places:
        return None
    total: Floats = v.weights[places] @ v.vectors[places]
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
            x, y = _mean(a, a.stems[i:j]), _mean(b, b.stems[k:m])
            content = any(s in a.content_index for s in a.stems[i:j]), any(s in b.content_index for s in b.stems[k:m])
            if all(content):
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
        row.two(f"{name}.only", len(x - y), len(y - x))
    row.one("asks.jaccard", _ratio(len(a.asks & b.asks), len(a.asks | b.asks)))
    row.two("asks.only", len(a.asks - b.asks), len(b.asks - a.asks))
    row.one("antonyms", _antonyms(a.tokens, b.tokens, a.language))
    row.one("prefixes", _negating_prefixes(a, b))
    row.one("symbols", len(a.symbols ^ b.symbols))
    row.two("acknowledging", a.acknowledging, b.acknowledging)
    row.two("pronouns", min(a.pronouns, 6), min(b.pronouns, 6))
    row.one("questions", float(a.question) + float(b.question))


def _antonyms(a: Sequence[str], b: Sequence[str], language: Language) -> float:
    """Words of one side whose opposite the other side says, each side's own word missing over there."""
    table = lexicon(language).antonyms
    x, y = frozenset(a), frozenset(b)
    return float(sum(1 for w in x - y if w in table and table[w] & (y - x)))


def _negating_prefixes(a: View, b: View) -> float:
    """Pairs like paid and unpaid, 准时 and 不准时."""
    prefixes = lexicon(a.language).negating_prefixes
    x, y = a.stem_set - b.stem_set, b.stem_set - a.stem_set
    return float(sum(1 for s, t in ((x, y), (y, x)) for w in s for p in prefixes if p + w in t))


# -- what a last message leaves open and the other conversation says -------------------------------------------------


def _open_ends(row: _Row, one: _Side, two: _Side) -> None:
    ca = _cover(one.last, two.stems, two.vectors, two.last)
    cb = _cover(two.last, one.stems, one.vectors, one.last)
    _soft(row, "open", one.last, two.last, ca, cb)
    row.two("open.numbers", len(one.last.numbers - two.numbers), len(two.last.numbers - one.numbers))
    row.two("open.names", len(one.last.names - two.stems), len(two.last.names - one.stems))
    union = one.stems | two.stems
    row.one("whole.jaccard", _ratio(len(one.stems & two.stems), len(union)))
    row.two(
        "whole.contained",
        _ratio(len(one.stems & two.stems), len(one.stems)),
        _ratio(len(one.stems & two.stems), len(two.stems)),
    )


def _asked(row: _Row, one: _Side, two: _Side) -> None:
    """The sentence of each last message that asks, apart from what is said around it."""
    a, b = one.asking, two.asking
    row.two("asked.sentences", len(one.last.sentences), len(two.last.sentences))
    row.one("asked.equal", float(a.stems == b.stems))
    row.one("asked.cos", float(a.mean @ b.mean))
    row.one("asked.jaccard", _ratio(len(a.stem_set & b.stem_set), len(a.stem_set | b.stem_set)))
    row.two("asked.mass", a.mass, b.mass)
    ca, cb = (
        _cover(a, two.last.stem_set, two.last.vectors, two.last),
        _cover(b, one.last.stem_set, one.last.vectors, one.last),
    )
    _soft(row, "asked", a, b, ca, cb)
    wa, wb = _cover(a, two.stems, two.vectors, None), _cover(b, one.stems, one.vectors, None)
    _soft(row, "asked.open", a, b, wa, wb)
    row.one("asked.antonyms", _antonyms(a.tokens, b.tokens, a.language))
    row.two("asked.negations", a.negations, b.negations)
    row.two("asked.asks", len(a.asks - b.asks), len(b.asks - a.asks))
    row.two("asked.numbers", len(a.numbers - two.numbers), len(b.numbers - one.numbers))
    # What is said around the question on one side only: background, or a condition.
    values = []
    for mine, other, asking in ((one, two, a), (two, one, b)):
        v = mine.last
        rest = [i for i, w in enumerate(v.content) if w not in asking.stem_set]
        if not rest:
            values.append((0.0, 0.0, 0.0))
            continue
        gaps = (v.weights * (1.0 - _cover(v, other.stems, other.vectors, None)))[rest]
        near = float((v.vectors[rest] @ asking.vectors.T).max()) if len(asking.content) else 0.0
        values.append((float(gaps.sum()), float(gaps.max()), near))
    for place, what in enumerate(("gap", "worst", "near")):
        row.two(f"around.{what}", values[0][place], values[1][place])


# -- the histories ---------------------------------------------------------------------------------------------------

_HISTORY_CLASSES = ("negation", "scope", "time", "direction", "comparative", "other_person", "modality")


def _histories(row: _Row, one: _Side, two: _Side, equal: bool) -> None:
    row.two("history.turns", len(one.history), len(two.history))
    row.one("history.equal", float(equal))
    row.one("history.none", float(not one.history) + float(not two.history))
    texts_a, texts_b = [v.text for v in one.history], [v.text for v in two.history]
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
    same = a.text == b.text
    ga = np.zeros(0, np.float32) if same else a.weights * (1.0 - _cover(a, two.stems, two.vectors, None))
    gb = np.zeros(0, np.float32) if same else b.weights * (1.0 - _cover(b, one.stems, one.vectors, None))
    row.two("answered.worst", float(ga.max()) if len(ga) else 0.0, float(gb.max()) if len(gb) else 0.0)
    row.two("answered.gap", float(ga.sum()), float(gb.sum()))
    row.two("answered.numbers", len(a.numbers - two.numbers), len(b.numbers - one.numbers))
    row.two("answered.names", len(a.names - two.stems), len(b.names - one.stems))
    row.one("answered.antonyms", _antonyms(a.tokens, b.tokens, a.language))
    row.one("answered.negations", abs(a.negations - b.negations))


def _earlier(row: _Row, one: _Side, two: _Side) -> None:
    """Whether a last message asks what the other conversation asked before, and has got past."""
    values = []
    for mine, other in ((one, two), (two, one)):
        last, final = mine.last, other.last
        jaccard = cosine = 0.0
        repeated = 0.0
        for v, role in zip(other.history, other.roles, strict=True):
            if role != "user":
                continue
            repeated = max(repeated, float(v.stems == last.stems))
            jaccard = max(jaccard, _ratio(len(v.stem_set & last.stem_set), len(v.stem_set | last.stem_set)))
            cosine = max(cosine, float(v.mean @ last.mean))
        union = len(last.stem_set | final.stem_set)
        values.append(
            (
                repeated,
                jaccard,
                cosine,
                jaccard - _ratio(len(last.stem_set & final.stem_set), union),
                cosine - float(last.mean @ final.mean),
            )
        )
    for place, what in enumerate(("repeated", "jaccard", "cos", "more_jaccard", "more_cos")):
        row.two(f"earlier.{what}", values[0][place], values[1][place])


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
        antonyms += _antonyms(x.tokens, y.tokens, x.language)
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
        parts = [_residue_of(one, two, new_a, role), _residue_of(two, one, new_b, role)]
        for place, what in enumerate(("gap", "worst", "missing", "numbers", "names", "near_last")):
            row.two(f"residue.{role}.{what}", parts[0][place], parts[1][place])
    words_a = frozenset(t for i in new_a for t in one.history[i].tokens)
    words_b = frozenset(t for i in new_b for t in two.history[i].tokens)
    all_a = words_a | frozenset(one.last.tokens)
    all_b = words_b | frozenset(two.last.tokens)
    language = one.last.language
    row.one("residue.antonyms", _antonyms(tuple(words_a), tuple(words_b), language) if words_a and words_b else 0.0)
    for name in _HISTORY_CLASSES:
        members_a = frozenset().union(*(one.history[i].classes[name] for i in new_a)) if new_a else _NOTHING
        members_b = frozenset().union(*(two.history[i].classes[name] for i in new_b)) if new_b else _NOTHING
        row.two(f"residue.{name}", len(members_a - two.stems - all_b), len(members_b - one.stems - all_a))


def _residue_of(
    mine: _Side, other: _Side, new: list[int], role: str
) -> tuple[float, float, float, float, float, float]:
    gap = worst = missing = near = 0.0
    numbers: set[str] = set()
    names: set[str] = set()
    last = mine.last.vectors
    for i in new:
        if mine.roles[i] != role:
            continue
        v = mine.history[i]
        numbers |= v.numbers - other.numbers
        names |= v.names - other.stems
        covered = _cover(v, other.stems, other.vectors, None)
        if not len(covered):
            continue
        gaps = v.weights * (1.0 - covered)
        gap += float(gaps.sum())
        worst = max(worst, float(gaps.max()))
        lost = covered < 0.6
        missing += float(lost.sum())
        if len(last) and lost.any():
            near = max(near, float((v.vectors[lost] @ last.T).max()))
    return gap, worst, missing, float(len(numbers)), float(len(names)), near


def _names() -> tuple[str, ...]:
    empty = Turn((), (), Message("user", "a"))
    row = _Row()
    one, two = _side(empty, (), "en"), _side(empty, (), "en")
    _same_question(row, one.last, two.last, 1.0)
    _facts(row, one.last, two.last)
    one.gather()
    two.gather()
    _open_ends(row, one, two)
    _asked(row, one, two)
    _histories(row, one, two, True)
    return tuple(row.names)


NAMES: tuple[str, ...] = _names()
"""Names of the comparisons, in the order of the vector."""
