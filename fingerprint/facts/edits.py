"""What was changed between two messages that are nearly the same: the sharpest evidence there is.

Where two messages agree word for word but in one or two places, what stands in those places is a difference somebody
meant. Where they are worded freely, only facts can be compared (`rules`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rapidfuzz.distance import Indel

from fingerprint.facts.extract import Facts, Sentence, Token, is_slip

__all__ = ["Edit", "Edits", "edits_between", "edits_of"]


@dataclass(frozen=True, slots=True)
class Edit:
    """One place: what stands there in each message, and the word before it."""

    mine: tuple[Token, ...]
    theirs: tuple[Token, ...]
    before: str


@dataclass(frozen=True, slots=True)
class Edits:
    """All places in which two messages differ. ``common`` and ``changed`` count words."""

    places: tuple[Edit, ...]
    common: int
    changed: int

    @property
    def small(self) -> bool:
        """Few enough that every one of them is meant: at most three places, at least twice as much in common."""
        return (
            bool(self.places)
            and len(self.places) <= 3
            and self.common >= 2
            and self.changed <= max(2, self.common // 2)
        )


_NONE = Edits((), 0, 10_000)
_LEAST = 4  # words that two sentences of longer messages must have in common


def edits_of(mine: Iterable[Token], theirs: Iterable[Token]) -> Edits:
    """The places in which two token sequences differ, misspellings and inflections apart. Reads 160 words."""
    a, b = tuple(mine)[:160], tuple(theirs)[:160]
    if not a or not b:
        return _NONE
    places: list[Edit] = []
    common = changed = 0
    start_a = start_b = 0
    # Indel blocks are the runs in common; between two of them lies one place.
    for block in [*_runs([t.stem for t in a], [t.stem for t in b]), (len(a), len(b), 0)]:
        at_a, at_b, length = block
        if at_a > start_a or at_b > start_b:
            places.append(Edit(a[start_a:at_a], b[start_b:at_b], a[start_a - 1].low if start_a else ""))
        common += length
        start_a, start_b = at_a + length, at_b + length
    kept: list[Edit] = []
    for place in places:
        left, right = _without_slips(place.mine, place.theirs)
        common += len(place.mine) - len(left)
        if left or right:
            kept.append(Edit(left, right, place.before))
            changed += max(len(left), len(right))
    return Edits(tuple(kept), common, changed)


def _runs(a: list[str], b: list[str]) -> list[tuple[int, int, int]]:
    """The runs two sequences have in common, in order: start in ``a``, start in ``b``, length."""
    return [(m.a, m.b, m.size) for m in Indel.opcodes(a, b).as_matching_blocks() if m.size]


def _without_slips(mine: tuple[Token, ...], theirs: tuple[Token, ...]) -> tuple[tuple[Token, ...], tuple[Token, ...]]:
    left, right = list(mine), list(theirs)
    initials = {t.low[0] for t in theirs}  # a slip leaves the first letter as it is
    for token in mine:
        if token.low[0] in initials:
            partner = next((other for other in right if _slipped(token, other)), None)
            if partner is not None:
                left.remove(token)
                right.remove(partner)
    if "".join(t.low for t in left) == "".join(t.low for t in right):  # other word borders only
        return (), ()
    return tuple(left), tuple(right)


def _slipped(a: Token, b: Token) -> bool:
    return a.low[0] == b.low[0] and is_slip(a.low, b.low, names=a.capital and b.capital)


def edits_between(a: Facts, b: Facts) -> tuple[Edits, tuple[Sentence, ...], tuple[Sentence, ...]]:
    """The smallest edits between two messages, and the sentences they were taken from: the whole messages where these
    are nearly the same, else what they ask, else the two sentences that are most alike."""
    whole = edits_of(a.tokens, b.tokens) if len(a.sentences) == len(b.sentences) else None
    if whole is not None and whole.small:
        return whole, a.sentences, b.sentences
    if whole is None or a.focus is not a.sentences or b.focus is not b.sentences:
        whole = edits_of(a.focus_tokens, b.focus_tokens)
    best = (whole, a.focus, b.focus)
    if len(a.focus) > 1 or len(b.focus) > 1:
        for mine in (sentence for sentence in a.focus[-4:] if len(sentence.tokens) >= _LEAST):
            for theirs in b.focus[-4:]:
                found = edits_of(mine.tokens, theirs.tokens)
                if found.common >= _LEAST and found.changed * (best[0].common + 1) < best[0].changed * (
                    found.common + 1
                ):
                    best = (found, (mine,), (theirs,))
    return best
