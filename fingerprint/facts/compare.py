"""What two messages have in common and what each says that the other does not: the material of relations and guards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from fingerprint.facts.extract import Facts, Sentence, Token, is_slip

__all__ = ["Frame", "frame_of", "unmatched_words"]


@dataclass(frozen=True, slots=True)
class Frame:
    """Two messages laid side by side: content words without counterpart, and how much is shared.

    ``likeness`` is shared content words over the longer side, ``cover`` over the shorter, both 0 … 1.
    """

    only_a: tuple[Token, ...]
    only_b: tuple[Token, ...]
    shared: int
    likeness: float
    cover: float


def _content(sentences: Iterable[Sentence]) -> list[Token]:
    return [token for sentence in sentences for token in sentence.tokens if token.content][:400]


def _alike(a: Token, b: Token) -> bool:
    if a.stem == b.stem:
        return True
    if (
        len(a.stem) >= 4
        and len(b.stem) >= 4
        and (a.stem.startswith(b.stem) or b.stem.startswith(a.stem))
        and not (a.capital and b.capital)
    ):
        return True
    return is_slip(a.low, b.low, names=a.capital and b.capital)


def unmatched_words(a: Iterable[Token], b: Iterable[Token]) -> tuple[list[Token], list[Token]]:
    """The tokens of each side left when equal, inflected and misspelt ones have been paired off."""
    left_a: list[Token] = []
    counts = Counter(token.stem for token in b)
    for token in a:
        if counts[token.stem] > 0:
            counts[token.stem] -= 1
        else:
            left_a.append(token)
    mine = Counter(token.stem for token in a)
    left_b: list[Token] = []
    for token in b:
        if mine[token.stem] > 0:
            mine[token.stem] -= 1
        else:
            left_b.append(token)
    # A word said twice on one side only is no difference.
    stems_a, stems_b = {t.stem for t in a}, {t.stem for t in b}
    left_a = [t for t in left_a if t.stem not in stems_b]
    left_b = [t for t in left_b if t.stem not in stems_a]
    if len(left_a) * len(left_b) > 900:
        return left_a, left_b
    for token in list(left_a):
        partner = next((other for other in left_b if _alike(token, other)), None)
        if partner is not None:
            left_a.remove(token)
            left_b.remove(partner)
    return _joined(left_a, left_b)


def _joined(left_a: list[Token], left_b: list[Token]) -> tuple[list[Token], list[Token]]:
    """Pairs off compounds ("time out" / "timeout") and segmentations of Chinese that differ only in their borders."""
    text_a, text_b = "".join(t.low for t in left_a), "".join(t.low for t in left_b)
    if text_a == text_b:
        return [], []
    keep_a = [t for t in left_a if not (len(t.low) >= 2 and t.low in text_b)]
    keep_b = [t for t in left_b if not (len(t.low) >= 2 and t.low in text_a)]
    return keep_a, keep_b


def frame_of(a: Facts, b: Facts, *, focus: bool) -> Frame:
    """Lays two messages side by side; ``focus``: only the sentences that ask."""
    tokens_a = _content(a.focus if focus else a.sentences)
    tokens_b = _content(b.focus if focus else b.sentences)
    only_a, only_b = unmatched_words(tokens_a, tokens_b)
    distinct_a, distinct_b = len({t.stem for t in tokens_a}), len({t.stem for t in tokens_b})
    shared = max(0, min(distinct_a - len({t.stem for t in only_a}), distinct_b - len({t.stem for t in only_b})))
    return Frame(
        only_a=tuple(only_a),
        only_b=tuple(only_b),
        shared=shared,
        likeness=shared / max(distinct_a, distinct_b, 1),
        cover=shared / max(1, min(distinct_a, distinct_b)),
    )
