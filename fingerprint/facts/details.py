"""The finer fields of a fingerprint, read off the facts of a message.

What kind of thing each name is, what is done with which particle, what a negation covers, how times bound what is
asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

import rjieba

from fingerprint.facts.extract import Facts, Sentence, Token, is_negation
from fingerprint.facts.tables import Lexicon

__all__ = ["actions_and_objects", "comparatives", "entities", "negated", "ordered", "periods"]

_FILE = re.compile(r"^[\w-]+\.[a-z0-9]{1,5}$", re.IGNORECASE)
_ERROR = re.compile(r"^(?:err|error|e|0x|hresult|ora|sqlstate|http)[a-f0-9]*\d[a-f0-9]*$", re.IGNORECASE)
_NUMBER_WORDS = ("number", "no", "nr", "num", "id", "code", "编号", "号码", "单号", "号")
_PROPER = {"nr": "person", "nrt": "person", "ns": "place", "nt": "organisation", "nz": "name"}
_REACH = 5  # words after a negation among which stands what it covers
_AROUND = 4  # words on either side of an ordering word


def actions_and_objects(facts: Facts, words: Lexicon) -> tuple[list[str], list[str]]:
    """The verbs of what is asked, each with its particle ("turn_off" for "turn the alarm off"), and the other content
    words, each once, in order. Verbs are named by their synonym class where they have one."""
    actions: dict[str, None] = {}
    objects: dict[str, None] = {}
    for sentence in facts.focus:
        tokens = sentence.tokens
        taken: set[int] = set()
        for at, token in enumerate(tokens):
            if at in taken:
                continue
            particle = _particle(tokens, at, words)
            if particle is not None:
                actions[f"{token.stem}_{tokens[particle].low}"] = None
                taken.add(particle)
            elif token.low in words.verbs or words.classes.get(token.low) in words.verbs:
                actions[token.stem] = None
            elif token.content:
                objects[token.stem] = None
    return list(actions), list(objects)


def _particle(tokens: tuple[Token, ...], at: int, words: Lexicon) -> int | None:
    """Where the particle of a verb stands: behind it, or behind its object where nothing follows but the end or a
    function word ("turn the alarm off", but not "turn to the house on the hill")."""
    token = tokens[at]
    particles = words.particles.get(token.low) or words.particles.get(token.stem, frozenset())
    if at + 1 < len(tokens) and tokens[at + 1].low in particles:
        return at + 1
    for where in range(at + 2, min(len(tokens), at + 5)):
        if tokens[where].low in particles:
            if where + 1 == len(tokens):
                return where
            following = tokens[where + 1]
            free = not following.content and following.low not in words.before_noun
            return where if free or following.low in words.ordered else None
    return None


def entities(facts: Facts, words: Lexicon) -> list[tuple[str, str]]:
    """What is named, each as (kind, value), sorted. Kinds: ``url``, ``email``, ``file``, ``path``, ``code``, ``error``,
    ``id`` or the kind of thing the id is of (``order``, 订单), ``person``, ``place``, ``organisation``, ``name``."""
    found: set[tuple[str, str]] = set()
    for value in facts.literals.urls:
        found.add(("email" if "@" in value and "/" not in value else "url", value))
    for value in facts.literals.code:
        found.add((_code_kind(value), value))
    for value in facts.literals.ids:
        found.add((_id_kind(value, facts, words), value))
    for sentence in facts.sentences:
        before = ""
        for token in sentence.tokens:
            name = token.low.removesuffix("'s")
            if facts.language == "zh" and token.content and len(token.low) > 1 and not token.low.isascii():
                kind = _PROPER.get(_flag(token.low))
                if kind is not None:
                    found.add((kind, token.low))
            elif name in sentence.names and name not in words.titles:
                person, place = before in words.titles, before in words.before_place
                found.add(("person" if person else "place" if place else "name", name))
            before = token.low.rstrip(".")
    return sorted(found)


@lru_cache(maxsize=8192)
def _flag(word: str) -> str:
    """The segmenter's part of speech of one Chinese word; "" where it takes the word apart."""
    tagged = rjieba.tag(word)
    return str(tagged[0][1]) if len(tagged) == 1 else ""


def _code_kind(value: str) -> str:
    if "/" in value or "\\" in value:
        return "path"
    return "file" if _FILE.match(value) else "code"


def _id_kind(value: str, facts: Facts, words: Lexicon) -> str:
    solid = facts.solid.replace("-", "").replace("#", "")
    before = solid[: max(0, solid.find(value))].rstrip(":：.")
    for word in _NUMBER_WORDS:
        if before.endswith(word):
            before = before[: -len(word)]
            break
    kinds = [kind for kind in words.objects if before.endswith(kind) or before.endswith(kind + "s")]
    if kinds:
        return max(kinds, key=len)
    return "error" if _ERROR.match(value) else "id"


def negated(facts: Facts, words: Lexicon) -> list[str]:
    """What each negation of what is asked covers: the stem of the next content word, "" where none follows; sorted."""
    found: list[str] = []
    for sentence in facts.focus:
        for at in range(len(sentence.tokens)):
            if is_negation(sentence.tokens, at, words):
                after = sentence.tokens[at + 1 : at + 1 + _REACH]
                found.append(next((t.stem for t in after if t.content), ""))
    return sorted(found)


def periods(facts: Facts, words: Lexicon) -> list[str]:
    """How times bound what is talked about ("since", "until", "within", …), of sentences that hold a time or a span."""
    found: set[str] = set()
    for sentence in facts.sentences:
        if sentence.times or any(q.dimension == "time" for q in sentence.numbers):
            found.update(name for name, pattern in words.periods if pattern.search(sentence.text))
    return sorted(found)


def comparatives(facts: Facts, words: Lexicon) -> list[str]:
    """The comparatives and superlatives of what is asked, as said, sorted."""
    return sorted({match.group(1) for s in facts.focus for match in words.comparatives.finditer(s.text[:2000])})


def ordered(sentences: Iterable[Sentence], words: Lexicon) -> set[tuple[str, str]]:
    """Pairs of words that stand around an ordering word ("to", "than", "into", 到, 比), in their order."""
    found: set[tuple[str, str]] = set()
    for sentence in sentences:
        tokens = sentence.tokens[:120]
        for at, token in enumerate(tokens):
            if token.low not in words.ordered:
                continue
            before, after = tokens[max(0, at - _AROUND) : at], tokens[at + 1 : at + 1 + _AROUND]
            left = next((t.stem for t in reversed(before) if _counts(t, words)), "")
            right = next((t.stem for t in after if _counts(t, words)), "")
            if left and right and left != right:
                found.add((left, right))
    return found


def _counts(token: Token, words: Lexicon) -> bool:
    """Whether a word names something that can stand on one side: a content word, a number, a unit or currency."""
    return token.content or token.low[0].isdigit() or (token.low in words.units and token.low not in words.stop)
