"""What a conversation is about: where the topic shifts, and which sentences stand for a long history.

TF-IDF over the messages themselves (smoothed idf, ln((1 + n) / (1 + df)) + 1, as in scikit-learn's
``TfidfVectorizer``); terms are the stems of content words and what is quoted character for character. No model, no
corpus.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from fingerprint.conversation import Message, Turn
from fingerprint.facts.extract import facts_of

__all__ = ["TOPIC_COSINE", "Round", "relevant_rounds", "rounds_of", "shifts", "summary_of"]

TOPIC_COSINE: Final = 0.3
"""Below this cosine with everything said before, a self-contained message opens another topic."""

_SENTENCES: Final = 120  # of one conversation, from the end, that a summary is chosen from
Terms = Counter[str]


@dataclass(frozen=True, slots=True)
class Round:
    """A user message with everything up to the next one; ``messages`` oldest first, users' and assistants' only."""

    messages: tuple[Message, ...]


def rounds_of(history: Sequence[Message], limit: int) -> list[Round]:
    """The last ``limit`` rounds of a history, newest first; tool results and system messages are left out."""
    found: list[Round] = []
    current: list[Message] = []
    for message in reversed(history):
        if len(found) >= limit:
            return found
        if message.role in ("user", "assistant") and message.text.strip():
            current.insert(0, message)
        if message.role == "user":
            if current:
                found.append(Round(tuple(current)))
            current = []
    if current and len(found) < limit:
        found.append(Round(tuple(current)))
    return found


@lru_cache(maxsize=2048)
def _terms(text: str) -> tuple[tuple[str, int], ...]:
    facts = facts_of(text)
    counts: Terms = Counter(token.stem for s in facts.sentences for token in s.tokens if token.content)
    literals = facts.literals
    counts.update([*literals.ids, *literals.code, *literals.urls, *facts.names])
    return tuple(counts.items())


def _terms_of(texts: Iterable[str]) -> Terms:
    total: Terms = Counter()
    for text in texts:
        for term, count in _terms(text):
            total[term] += count
    return total


def _cosine(one: Terms, other: Terms, idf: dict[str, float]) -> float:
    dot = sum(count * other[term] * idf[term] ** 2 for term, count in one.items() if term in other)
    lengths = [math.sqrt(sum((count * idf[term]) ** 2 for term, count in side.items())) for side in (one, other)]
    return dot / (lengths[0] * lengths[1]) if dot else 0.0


def _idf(documents: Sequence[Terms]) -> dict[str, float]:
    seen = Counter(term for document in documents for term in document)
    return {term: math.log((1 + len(documents)) / (1 + df)) + 1 for term, df in seen.items()}


def shifts(message: str, before: Sequence[Message]) -> bool:
    """Whether ``message`` opens another topic than everything in ``before``: it can stand alone, and its TF-IDF cosine
    with each message, and with all of them together, is under `TOPIC_COSINE`. False where nothing was said before."""
    if not before or facts_of(message).elliptic:
        return False
    mine = _terms_of([message])
    if not mine:
        return False
    others = [_terms_of([m.text]) for m in before]
    idf = _idf([mine, *others])
    together: Terms = sum(others, Counter())
    return all(_cosine(mine, other, idf) < TOPIC_COSINE for other in (*others, together))


def relevant_rounds(turn: Turn, limit: int) -> list[Round]:
    """The last rounds that belong to what the turn is about, newest first, at most ``limit``.

    Where the topic shifts, at the turn itself or at an earlier question, what lies before does not count.
    """
    rounds = rounds_of(turn.history, limit)
    question = turn.message.text
    for at, round_ in enumerate(rounds):
        before = [message for older in rounds[at:] for message in older.messages]
        if shifts(question, before):
            return rounds[:at]
        question = next((m.text for m in round_.messages if m.role == "user"), "")
    return rounds


def summary_of(messages: Sequence[Message], max_characters: int = 400) -> str:
    """The sentences that stand for a history, in their order, at most ``max_characters``; "" where it says nothing.

    Extractive (LexRank without the walk: Erkan & Radev 2004, degree centrality): the first user sentence names the
    topic, then those that share most with all others, users' before assistants'.
    """
    sentences = [
        (message.role, sentence.text.strip())
        for message in messages
        if message.role in ("user", "assistant")
        for sentence in facts_of(message.text).sentences
    ][-_SENTENCES:]
    if not sentences:
        return ""
    documents = [_terms_of([text]) for _, text in sentences]
    idf = _idf(documents)
    together: Terms = sum(documents, Counter())
    weight = [
        _cosine(document, together, idf) * (1.5 if role == "user" else 1.0) if document else 0.0
        for document, (role, _) in zip(documents, sentences, strict=True)
    ]
    first = next((n for n, (role, _) in enumerate(sentences) if role == "user" and documents[n]), 0)
    order = [first, *sorted((n for n in range(len(sentences)) if n != first), key=lambda n: -weight[n])]
    chosen: list[int] = []
    room = max_characters
    for number in order:
        text = sentences[number][1]
        if number == first and len(text) > room:
            return text[:max_characters]
        if weight[number] and len(text) <= room:
            chosen.append(number)
            room -= len(text) + 1
    return " ".join(sentences[n][1] for n in sorted(chosen))
