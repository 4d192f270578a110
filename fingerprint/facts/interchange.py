"""Whether two wordings of one question can stand for one another in a history, as far as a later turn can tell.

That one answer serves both is not enough. "I'm vegan. When is breakfast?" has the answer of "When is breakfast?", but
what is asked next may turn on it, and what one user told of herself must not stand in another's conversation. So a
wording is interchangeable with another only if it says neither more nor less: other words for the same, a courtesy, a
spelling slip, another order are no difference; a fact, a name, a sentence of background, a group the speaker belongs
to are.

Strict on purpose: where this says no, a history is forwarded as its user wrote it, which costs time and nothing else.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Final

from fingerprint.facts.extract import Facts, Sentence, Token, facts_of, is_slip

__all__ = ["says_otherwise"]

_MOST_UNMATCHED: Final = 4  # other words for the same, on one side


@cache
def _words(name: str) -> frozenset[str]:
    """A list of ``interchange.toml``, of all languages together."""
    tables = tomllib.loads(resources.files(__package__).joinpath("interchange.toml").read_text("utf-8"))
    return frozenset(word for table in tables.values() for word in table[name].split())


def says_otherwise(one: str, other: str) -> str:
    """Return why ``one`` must not stand in for ``other``, in a few words; empty where it may. Symmetric."""
    mine, theirs = facts_of(one), facts_of(other)
    for what, a, b in (
        ("language", mine.language, theirs.language),
        ("length", mine.overflow, theirs.overflow),
        ("literals", mine.literals, theirs.literals),
        ("numbers", frozenset(mine.numbers), frozenset(theirs.numbers)),
        ("dates", frozenset(mine.times), frozenset(theirs.times)),
        ("format", mine.formats, theirs.formats),
        ("consent", (mine.affirms, mine.declines), (theirs.affirms, theirs.declines)),
        ("negation", _negations(mine), _negations(theirs)),
    ):
        if a != b:
            return what
    extra, missing = _unmatched(mine, theirs), _unmatched(theirs, mine)
    if any(s not in side.focus for side, words in ((mine, extra), (theirs, missing)) for s, _ in words):
        return "background"
    if any(token.capital and not _opens(sentence, token) for sentence, token in extra + missing):
        return "names"
    if any(letter.isdigit() for _, token in extra + missing for letter in token.low):
        return "numbers"
    if max(len(extra), len(missing)) > _MOST_UNMATCHED:
        return "words"
    if len(extra) != len(missing):
        richer = extra if len(extra) > len(missing) else missing
        if abs(len(extra) - len(missing)) > 1 or any(_of_self(sentence) for sentence, _ in richer):
            return "words"
    return ""


def _negations(facts: Facts) -> int:
    return sum(sentence.negations for sentence in facts.sentences) % 2


def _unmatched(mine: Facts, theirs: Facts) -> list[tuple[Sentence, Token]]:
    """Content words of one side that the other has in no form."""
    there = [token for sentence in theirs.sentences for token in sentence.tokens]
    stems = {token.stem for token in there} | {token.low for token in there}
    found = []
    for sentence in mine.sentences:
        for token in sentence.tokens:
            if not token.content or token.low in _words("empty") or token.stem in stems or token.low in stems:
                continue
            if any(other.content and is_slip(token.low, other.low) for other in there):
                continue
            found.append((sentence, token))
    return found


def _opens(sentence: Sentence, token: Token) -> bool:
    return bool(sentence.tokens) and sentence.tokens[0] is token


def _of_self(sentence: Sentence) -> bool:
    """Whether the sentence speaks of the speaker, or puts somebody into a class ("as a vegan")."""
    words = [token.low for token in sentence.tokens]
    return any(word in _words("speaker") for word in words) or ("as" in words and ("a" in words or "an" in words))
