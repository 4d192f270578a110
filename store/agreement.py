"""Whether two answers to one question say the same: facts first, then the cosine of their embeddings. No I/O.

Used wherever an answer can be checked against another one: drift (a new answer beside the stored one), verification (a
served answer beside a regenerated one), shadow mode (what would have been served beside what the backend said).

Three verdicts, because "not shown to be equal" is not "shown to be different". An unclear comparison never counts as
approval.

- ``differ``: each answer states a fact of one kind (number, unit, date, version, id, address, code, name, yes or no, …)
  that the other contradicts, or their cosine is under ``Limits.differ``;
- ``agree``: the same words, or no fact stands against another and the cosine is at least ``Limits.agree``;
- ``unclear``: everything else, answers longer than is read closely and answers without text included.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from fingerprint.conversation import Message, Turn
from fingerprint.facts import relations
from fingerprint.facts.extract import MAX_CHARACTERS, Facts
from fingerprint.facts.sides import Side, side_of
from fingerprint.text import normalise

__all__ = ["Agreement", "AgreementVerdict", "Limits", "compare", "fact_conflicts"]

AgreementVerdict = Literal["agree", "differ", "unclear"]

# Relations of two questions that mean the same for two answers. The others (format, layout, order, quotations, the kind
# of question) are ways of saying something in an answer.
_FACTS: Final = frozenset(
    {"numbers", "units", "dates", "versions", "ids", "urls", "code", "polarity", "scope", "entities", "direction"}
)
_SHORT: Final = 12  # content words up to which an answer is nothing but its facts
_MARKER: Final = re.compile(r"(?m)^[ \t]*(?:\d{1,3}[.)、]|[-*•])[ \t]+|^#{1,6}[ \t]+")
_INLINE_MARKER: Final = re.compile(r"(?<=[.:;!?。：；])[ \t]*\d{1,2}[.)][ \t]+(?=[^\W\d])")
_EMPHASIS: Final = re.compile(r"\*\*|__(?=\w)|(?<=\w)__")


@dataclass(frozen=True, slots=True)
class Limits:
    """Cosines of two answers, each −1 … 1, from which they agree and under which they differ."""

    agree: float = 0.95
    differ: float = 0.75


_DEFAULT: Final = Limits()


@dataclass(frozen=True, slots=True)
class Agreement:
    """What came of a comparison. ``reason`` is a sentence for people and may quote the answers; ``what`` names the kind
    of fact, or "words", "cosine", "length", "text", and quotes nothing."""

    verdict: AgreementVerdict
    reason: str
    cosine: float | None = None
    what: str = "cosine"


def compare(one: str, other: str, cosine: float | None = None, *, limits: Limits = _DEFAULT) -> Agreement:
    """Compare two answers to one question. Symmetric in them.

    ``cosine`` is that of their embeddings, made by one embedder that has read both to their end; None where there is
    none, which leaves answers in different words unclear. Takes about a millisecond a kilobyte.
    """
    mine, theirs = normalise(one).strip(), normalise(other).strip()
    if not mine or not theirs:
        return Agreement("unclear", "One of the answers has no text.", cosine, "text")
    if mine.split() == theirs.split():
        return Agreement("agree", "The same words.", cosine, "words")
    conflicts, doubts = _facts(_plain(mine), _plain(theirs))
    if conflicts:
        return Agreement("differ", conflicts[0], cosine, conflicts[0].partition(":")[0])
    words, others = (set(re.findall(r"\w+", text.casefold())) for text in (mine, theirs))
    if cosine is not None and cosine < limits.differ and not (words <= others or others <= words):
        return Agreement("differ", f"Their cosine is {cosine:.3f}, under {limits.differ:g}.", cosine)
    if doubts:
        return Agreement("unclear", doubts[0], cosine, doubts[0].partition(":")[0])
    if max(len(mine), len(theirs)) > MAX_CHARACTERS:
        why = f"An answer is longer than the {MAX_CHARACTERS} characters read closely."
        return Agreement("unclear", why, cosine, "length")
    if cosine is None:
        return Agreement("unclear", "Other words, and no embeddings to compare.", None)
    if cosine < limits.agree:
        return Agreement("unclear", f"No fact differs, but their cosine is {cosine:.3f}.", cosine)
    return Agreement("agree", f"No fact differs, and their cosine is {cosine:.3f}.", cosine)


def fact_conflicts(one: str, other: str) -> tuple[str, ...]:
    """Return a sentence for each kind of fact in which two answers contradict one another; empty where they do not."""
    return _facts(_plain(normalise(one)), _plain(normalise(other)))[0]


def _plain(text: str) -> str:
    """Drop list markers, headings and emphasis: layout, of which "1." would else be read as a number."""
    return _EMPHASIS.sub("", _INLINE_MARKER.sub(" ", _MARKER.sub("", text)))


def _facts(one: str, other: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Contradictions, and what one answer states while the other is silent, each as sentences."""
    a, b = (Turn((), (), Message("user", text)) for text in sorted((one, other)))
    left, right = side_of(a), side_of(b)
    conflicts: list[str] = []
    doubts: list[str] = []
    for relation in relations(a, b, same_place=True):
        if relation.kind != "conflict" or relation.name not in _FACTS:
            continue
        silent = relation.name == "numbers" and not (_numbers_of(left, right) and _numbers_of(right, left))
        (doubts if silent else conflicts).append(f"{relation.name}: {relation.sentence}")
    if not conflicts:
        conflicts += _short(left, right)
    return tuple(conflicts), tuple(doubts)


def _numbers_of(mine: Side, theirs: Side) -> list[str]:
    """Numbers of one answer that the other does not hold, in whatever unit."""
    return [
        f"{q.written:g}"
        for q in mine.last.numbers
        if q.value not in theirs.numbers and q.written not in theirs.numbers and not theirs.says(f"{q.written:g}")
    ]


def _short(left: Side, right: Side) -> list[str]:
    """Two short answers are their numbers and names: "42" and "It is 43" share no words that could be compared."""
    if max(len(left.last.content), len(right.last.content)) > _SHORT:
        return []
    for what, of in (("numbers", _numbers_of), ("entities", _names_of)):
        mine, theirs = of(left, right), of(right, left)
        if mine and theirs:
            return [f"{what}: {', '.join(mine)} against {', '.join(theirs)}."]
    return []


def _names_of(mine: Side, theirs: Side) -> list[str]:
    return [name for name in _names(mine.last) if not theirs.has_name(name)]


def _names(facts: Facts) -> list[str]:
    return sorted(facts.names)
