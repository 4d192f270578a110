"""What two messages have in common and what each says that the other does not: the material of relations and guards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fingerprint.facts.extract import Facts, Token, is_slip

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


def _content(tokens: Iterable[Token]) -> list[Token]:
    return [token for token in tokens if token.content][:400]


def _alike(a: Token, b: Token) -> bool:
    one, other = a.stem, b.stem
    if one == other:
        return True
    both = a.capital and b.capital
    if not both and (one.startswith(other) or other.startswith(one)) and len(one) >= 4 and len(other) >= 4:
        return True
    return a.low[0] == b.low[0] and is_slip(a.low, b.low, names=both)


def unmatched_words(a: Sequence[Token], b: Sequence[Token]) -> tuple[list[Token], list[Token]]:
    """The tokens of each side left when equal, inflected and misspelt ones have been paired off."""
    # A word said twice on one side only is no difference.
    stems_a, stems_b = {t.stem for t in a}, {t.stem for t in b}
    left_a = [t for t in a if t.stem not in stems_b]
    left_b = [t for t in b if t.stem not in stems_a]
    if len(left_a) * len(left_b) > 900:
        return left_a, left_b
    initials = {t.low[:1] for t in left_b} | {t.stem[:1] for t in left_b}  # words alike begin with one letter
    for token in [t for t in left_a if t.low[:1] in initials or t.stem[:1] in initials]:
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
    tokens_a = _content(a.focus_tokens if focus else a.tokens)
    tokens_b = _content(b.focus_tokens if focus else b.tokens)
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
