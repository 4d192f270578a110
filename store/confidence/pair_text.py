"""What the cross-encoder reads of two conversations: the last messages, and as much context as tells them apart.

A long history is mostly the same on both sides, or mostly irrelevant. Kept are, in this order of importance, the turn
being answered, every earlier sentence that says something the other side does not say, and what the last message
seems to lean on; all within a fixed number of tokens. Each token is then marked by who said it and by whether its word
also occurs in the other side's last message, elsewhere on the other side, or nowhere there: a small encoder finds
"12 against 20" far more easily when both are already marked as unmatched.

Used by the trainer and by the runtime alike, so both read the very same thing. Pure and bounded: texts are cut to
``MAX_MESSAGE_CHARS`` and ``MAX_MESSAGES`` before anything else looks at them.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fingerprint.conversation import Message, Turn

__all__ = [
    "MARKERS",
    "SCHEMA_VERSION",
    "Encoded",
    "PairReader",
    "Sentence",
    "Side",
    "Tokenise",
    "apart",
    "compact",
]

SCHEMA_VERSION = 1
"""Raised whenever the same two conversations would be read differently; part of the artefact's identity."""

READING = 2
"""The same for what a pair is read without (`apart`), where the artefacts stay as they are."""

MAX_MESSAGES = 40
MAX_MESSAGE_CHARS = 3000
MAX_SENTENCES = 160

_SYSTEM, _ASSISTANT, _USER, _LAST = range(4)
_IN_LAST, _ELSEWHERE, _NOWHERE = range(3)
_SPECIAL = 12
MARKERS = 26
"""Number of markers: two sides × (four speakers × three kinds of occurrence, and one for special tokens)."""

_SENTENCE = re.compile(r"[^.!?。！？；;\n]*(?:[.!?](?=\s|$)|[。！？；;\n]|[.!?]|$)")
_WORD = re.compile(r"[^\W\d_\u3400-\u9fff]+(?:['’][^\W\d_\u3400-\u9fff]+)*|\d+(?:[.,:/]\d+)*|[\u3400-\u9fff]|[^\w\s]")
_HAN = re.compile(r"[\u3400-\u9fff]")
_NUMBER_WORDS = {
    "zero": "0", "one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8",
    "nine": "9", "ten": "10", "eleven": "11", "twelve": "12", "thirteen": "13", "fourteen": "14", "fifteen": "15",
    "sixteen": "16", "seventeen": "17", "eighteen": "18", "nineteen": "19", "twenty": "20",
    "first": "1", "second": "2", "third": "3", "fourth": "4", "fifth": "5",
}  # fmt: skip


def _cut(text: str) -> str:
    """Beginning and end of a text, in NFKC (as both tokenizers would fold it themselves)."""
    if len(text) > MAX_MESSAGE_CHARS:
        half = MAX_MESSAGE_CHARS // 2
        text = text[:half] + "\n" + text[-half:]
    return unicodedata.normalize("NFKC", text)


@functools.lru_cache(maxsize=65_536)
def _fold(word: str) -> str:
    """One form for words that mean the same to a marker: case, possessive and plural s, small number words."""
    word = word.lower().replace("’", "'")
    word = _NUMBER_WORDS.get(word, word)
    if word.endswith("'s"):
        word = word[:-2]
    elif len(word) > 3 and word[-1] == "s" and word[-2] not in "su'":
        word = word[:-1]
    return word


@functools.lru_cache(maxsize=16_384)
def _words(text: str) -> tuple[tuple[int, int, str], ...]:
    """Words of a text: start, end, folded form."""
    return tuple((m.start(), m.end(), _fold(m.group())) for m in _WORD.finditer(text))


@dataclass(frozen=True, slots=True)
class Sentence:
    """A piece of one message; ``speaker`` is 0 system, 1 assistant, 2 user, 3 the last message itself."""

    speaker: int
    text: str
    message: int  # index of its message in the (cut) conversation


@dataclass(frozen=True, slots=True)
class Side:
    """One conversation, cut to size and taken apart."""

    context: tuple[Sentence, ...]
    last: tuple[Sentence, ...]
    last_words: frozenset[str]
    context_words: frozenset[str]
    last_text: str
    context_text: str
    rounds: int  # messages in the history

    @classmethod
    def of(cls, turn: Turn) -> Side:
        """Take a turn apart. Time is bounded by ``MAX_MESSAGES`` × ``MAX_MESSAGE_CHARS``."""
        history = turn.history
        if len(history) > MAX_MESSAGES:
            history = (*history[:2], *history[2 - MAX_MESSAGES :])
        system = turn.system[:2]
        context: list[Sentence] = []
        for index, message in enumerate((*system, *history)):
            speaker = _USER if message.role == "user" else _ASSISTANT if message.role == "assistant" else _SYSTEM
            context += (Sentence(speaker, s, index) for s in _sentences(message))
        if len(context) > MAX_SENTENCES:
            context = context[: MAX_SENTENCES // 4] + context[-(MAX_SENTENCES - MAX_SENTENCES // 4) :]
        last = tuple(Sentence(_LAST, s, len(system) + len(history)) for s in _sentences(turn.message))[:MAX_SENTENCES]
        return cls(
            context=tuple(context),
            last=last,
            last_words=_word_set(last),
            context_words=_word_set(context),
            last_text=" ".join(s.text for s in last).lower(),
            context_text=" ".join(s.text for s in context).lower(),
            rounds=len(history),
        )


def _sentences(message: Message) -> list[str]:
    found = (" ".join(m.group().split()) for m in _SENTENCE.finditer(_cut(message.text)))
    return [s[:600] for s in found if s]


def _word_set(sentences: Iterable[Sentence]) -> frozenset[str]:
    return frozenset(w for s in sentences for _, _, w in _words(s.text))


def _key(text: str) -> str:
    return " ".join(w for _, _, w in _words(text) if w.isalnum())


def _novelty(sentence: Sentence, other: Side) -> float:
    """How much a sentence says that the other side does not: facts (digits, capitals) count more than words."""
    score = 0.0
    for start, _end, word in _words(sentence.text):
        if not word.isalnum() or word in other.last_words or word in other.context_words:
            continue
        if word[0].isdigit():
            score += 1.5
        elif sentence.text[start].isupper() and start > 0:
            score += 1.0
        else:
            score += 0.25
    return score


def _importance(side: Side, other: Side) -> list[tuple[float, int]]:
    """(importance, index) of each context sentence; those the other side also has, word for word, get next to none."""
    if not side.context:
        return []
    same = {_key(s.text) for s in other.context} | {_key(s.text) for s in other.last}
    newest = side.context[-1].message
    out = []
    count = len(side.context)
    for index, sentence in enumerate(side.context):
        score = 0.3 * index / count
        if sentence.speaker == _SYSTEM:
            score -= 0.3
        if sentence.message == newest:
            score += 3.0
        elif sentence.message == newest - 1:
            score += 1.0
        if _key(sentence.text) not in same:
            score += 0.6 + min(4.0, _novelty(sentence, other))
        words = {w for _, _, w in _words(sentence.text) if len(w) > 3 or w.isdigit()}
        score += 0.4 * min(3, len(words & side.last_words))
        out.append((score, index))
    return out


def compact(side: Side, other: Side, lengths: Sequence[int], budget: int) -> list[int]:
    """Indices of the context sentences worth ``budget`` tokens, in their original order.

    ``lengths`` gives the tokens of each context sentence. The most important sentence is always kept (the reader cuts
    it to size).
    """
    chosen: list[int] = []
    left = budget
    for score, index in sorted(_importance(side, other), key=lambda x: (-x[0], -x[1])):
        if score < 0.75 and chosen:
            break
        if lengths[index] <= left or not chosen:
            chosen.append(index)
            left -= lengths[index]
        if left <= 4:
            break
    return sorted(chosen)


def apart(a: Turn, b: Turn) -> tuple[Turn, Turn]:
    """Both turns as the model is to see them: without a system prompt that is the same on both sides.

    That is every system prompt in the proxy. It tells the two apart in nothing, takes up most of the tokens of a first
    turn, and few of the pairs that models are trained on have one: with it, of the same pairs, fewer equivalents were
    found by far (`eval.bench.held_out --system`). Guards read it on their own (`fingerprint.facts.material`).
    """
    if not a.system or a.system != b.system:
        return a, b
    return replace(a, system=()), replace(b, system=())


@dataclass(frozen=True, slots=True)
class Encoded:
    """One pair in one order, as the encoder reads it: int64 arrays of one length."""

    ids: NDArray[np.int64]
    markers: NDArray[np.int64]  # 0 … MARKERS − 1
    sides: NDArray[np.int64]  # 0 first conversation, 1 second
    last: NDArray[np.int64]  # 1 token of the first last message, 2 of the second, 0 elsewhere


Tokenise = Callable[[str], tuple[Sequence[int], Sequence[tuple[int, int]]]]
"""Text to token ids and, for each, the start and end of its characters in the text."""


class PairReader:
    """Reads pairs of turns with one tokenizer."""

    def __init__(
        self, tokenise: Tokenise, *, cls: int, sep: int, last_tokens: int = 48, context_tokens: int = 72
    ) -> None:
        """``tokenise`` gives ids and places of the tokens of a text, no special ones; ``cls`` and ``sep`` are ids."""
        self._cls, self._sep = cls, sep
        self._last, self._context = last_tokens, context_tokens
        self._tokens = functools.lru_cache(maxsize=4096)(tokenise)

    def _read(self, sentences: Sequence[Sentence], side: int, other: Side, budget: int) -> tuple[list[int], list[int]]:
        ids: list[int] = []
        markers: list[int] = []
        for sentence in sentences:
            piece_ids, offsets = self._tokens(sentence.text)
            kinds = _occurrence(sentence.text, offsets, other)
            ids += piece_ids
            markers += (side * 13 + sentence.speaker * 3 + kind for kind in kinds)
        if len(ids) > budget:  # the end of a message asks, the beginning names
            head = budget // 3
            ids = ids[:head] + ids[head - budget :]
            markers = markers[:head] + markers[head - budget :]
        return ids, markers

    def _last_sentences(self, side: Side, other: Side, budget: int) -> Sequence[Sentence]:
        lengths = [len(self._tokens(s.text)[0]) for s in side.last]
        if sum(lengths) <= budget or len(side.last) == 1:
            return side.last
        count = len(side.last)
        importance = []
        for index, sentence in enumerate(side.last):
            score = min(4.0, _novelty(sentence, other)) + (2.5 if sentence.text[-1] in "?？" else 0.0)
            score += (1.0 if index == count - 1 else 0.0) + (0.8 if index == 0 else 0.0) - 0.05 * index / count
            importance.append((score, index))
        chosen: list[int] = []
        left = budget
        for _score, index in sorted(importance, key=lambda x: (-x[0], x[1])):
            if lengths[index] <= left or not chosen:
                chosen.append(index)
                left -= lengths[index]
        return [side.last[i] for i in sorted(chosen)]

    def _half(self, side: Side, other: Side, position: int) -> tuple[list[int], list[int], int]:
        budget = self._last if side.context else self._last + self._context // 2
        last_ids, last_markers = self._read(self._last_sentences(side, other, budget), position, other, budget)
        if not side.context:
            return last_ids, last_markers, len(last_ids)
        lengths = [len(self._tokens(s.text)[0]) for s in side.context]
        room = self._context + self._last - len(last_ids) if len(last_ids) < self._last // 2 else self._context
        room = min(room, self._context + self._last // 2)
        kept = [side.context[i] for i in compact(side, other, lengths, room)]
        ids, markers = self._read(kept, position, other, room)
        return ids + last_ids, markers + last_markers, len(last_ids)

    def read(self, a: Turn, b: Turn) -> tuple[Encoded, Encoded]:
        """Both orders of a pair; the two have the same length."""
        a, b = apart(a, b)
        side_a, side_b = Side.of(a), Side.of(b)
        return self._join(side_a, side_b), self._join(side_b, side_a)

    def read_one(self, a: Turn, b: Turn) -> Encoded:
        """One order only, for training."""
        a, b = apart(a, b)
        return self._join(Side.of(a), Side.of(b))

    def _join(self, a: Side, b: Side) -> Encoded:
        ids_a, markers_a, last_a = self._half(a, b, 0)
        ids_b, markers_b, last_b = self._half(b, a, 1)
        ids = [self._cls, *ids_a, self._sep, *ids_b, self._sep]
        markers = [_SPECIAL, *markers_a, _SPECIAL, *markers_b, 13 + _SPECIAL]
        first = len(ids_a) + 2
        sides = [0] * first + [1] * (len(ids) - first)
        last = [0] * len(ids)
        last[1 + len(ids_a) - last_a : 1 + len(ids_a)] = [1] * last_a
        last[len(ids) - 1 - last_b : len(ids) - 1] = [2] * last_b
        return Encoded(*(np.asarray(x, dtype=np.int64) for x in (ids, markers, sides, last)))


def _occurrence(text: str, offsets: Sequence[tuple[int, int]], other: Side) -> list[int]:
    """For each token whether its word (or, in Han script, its characters) occurs on the other side, and where."""
    starts: dict[int, int] = {}
    kinds: list[int] = []
    for start, end, word in _words(text):
        kind = _IN_LAST if word in other.last_words else _ELSEWHERE if word in other.context_words else _NOWHERE
        for position in range(start, end):
            starts[position] = kind
    lowered = text.lower() if len(text.lower()) == len(text) else text
    for start, end in offsets:
        if end - start > 1 and _HAN.search(text, start, end):
            piece = lowered[start:end].strip()
            kinds.append(
                _IN_LAST if piece in other.last_text else _ELSEWHERE if piece in other.context_text else _NOWHERE
            )
        else:
            kinds.append(starts.get(start, starts.get(end - 1, _ELSEWHERE)))
    return kinds
