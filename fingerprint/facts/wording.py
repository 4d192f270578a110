"""Guards on how a message is written: case, signs, layout and the order of words.

A vector hardly sees any of these, and folding them away makes two questions one: ``grep -v`` and ``grep -V``,
``(2+3)*4`` and ``2+(3*4)``, ``Did Brutus kill Caesar?`` and the reverse. Each guard objects only where the messages
hold the same words otherwise (order, layout) or where the very words differ in writing (case, signs).
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Final

from rapidfuzz.distance import DamerauLevenshtein

from fingerprint.facts.extract import (
    MAX_CHARACTERS,
    Facts,
    Token,
    common_words,
    facts_of,
    is_noun,
    is_slip,
    spelt_out,
)
from fingerprint.facts.relation import Relation
from fingerprint.facts.tables import lexicon

__all__ = ["DETERMINERS", "WORD", "wording_relations"]

_TABLE: Final = {
    name: frozenset(words)
    for name, words in tomllib.loads(resources.files("fingerprint.facts").joinpath("wording.toml").read_text()).items()
}
WORD: Final = re.compile(r"[^\W_]+(?:['’][^\W\d_]{1,3})?")
_ASCII_RUN: Final = re.compile(r"[!-~×÷−±–√∞≤≥≠≈]+")
_SPACED_OPERATOR: Final = re.compile(r"(?<=[\d)\]])[ \t]*([-+*/^=<>×÷−]+)[ \t]*(?=[\d(\[])")
_SIGN: Final = re.compile(r"[%+*/=<>^&|~\\{}\[\]_$#@`()×÷−±√∞≤≥≠≈!-]")
_URL: Final = re.compile(r"://|^www\.|^[\w.+-]+@[\w-]+\.\w")
# Runs whose signs say nothing, or what other guards read: hyphenated words, and/or, $50, 25%, #123, 12/05/2024, 9-5.
_PLAIN_RUN: Final = re.compile(
    r"[A-Za-z]+(?:['’][A-Za-z]+)?(?:[-/&][A-Za-z0-9]+)*|\d+(?:[.,:]\d+)*(?:[-–/:][A-Za-z]+)+"
    r"|[$€£¥]?\d[\d.,:]*\s?[%$€£¥kKmM]?|#\d+|\d{1,4}(?:[-/.]\d{1,4}){1,2}|[A-Za-z]+-?\d[\w-]*|[-–—&/|*!_#`]+|[(\[{)\]}]+"
)
_EDGES_LEFT: Final = "\"'“‘(,;:"
_EDGES_RIGHT: Final = "\"'”’,;:?.…"
_ROMAN_WORD: Final = re.compile(
    r"\b(?=[IVXLCDM]{2})M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})\b|(?<=[A-Za-z] )[IVX]\b(?! [a-z])"
)
_OPPOSITES: Final = frozenset(
    frozenset(pair.split())
    for pair in (
        "to from", "since until", "before after", "above below", "over under", "in out", "on off", "up down",
        "with without", "into from", "since before", "by after", "more less", "most least", "until after",
        "within after",
    )
)  # fmt: skip
_JOINING: Final = frozenset(["and", "or", "vs", "versus", "&", "nor", "和", "与", "或", "跟", "及", "还是", "、"])
_PHRASE: Final = frozenset(["is", "are", "of", "in", "for", "on", "at", "from", "的", "是", "里", "上", "中"])
DETERMINERS: Final = frozenset(["a", "an", "the"])
_ARTICLES: Final = frozenset(["a", "an", "the", "my", "our", "your", "his", "her", "its", "their", "this", "that"])
# :-) and its kin, standing alone: they show a mood. The initial of whoever signs: "Yours faithfully, D. Larkin".
_MOOD: Final = frozenset(":;<")
_OPENING: Final = frozenset('.!?:\n。！？"“')  # what a sentence may begin after
_EMOTICON: Final = re.compile(r"(?<!\S)(?:[:;]['^-]?[()DPp|/\\*]{1,4}|<3)(?!\S)")
_SIGNED: Final = re.compile(
    r"(?:regards|faithfully|sincerely|truly|wishes|thanks|cheers|greetings|love|best),?\s{1,3}(?:[A-Z]\.\s?){1,3}(?=[A-Z][a-z])",
    re.IGNORECASE,
)
_CLAUSE_END: Final = re.compile(r"[,;，；、。！？!?\n]|\.(?=\s|$)|\s[-–—]\s")
_BE: Final = frozenset(["be", "been", "being", "is", "are", "was", "were", "am", "get", "gets", "got", "getting"])
_SHELL: Final = re.compile(r"(?<!\S)\$[?!#@*$\d](?!\S)")
_MOST_WORDS: Final = 400
_TOPIC_WORDS: Final = 3  # a message of more words that say something says more than a topic

Key = tuple[str, int]  # a stem, and which of its occurrences


@dataclass(frozen=True, slots=True)
class _Written:
    """One message as it is written."""

    forms: dict[str, frozenset[str]]  # folded word -> how it is written, the first words of sentences apart
    strict: bool  # letters count
    secret: bool  # letters of what is no ordinary word count
    last: str  # the last word: even an ordinary one is then what the others speak of ("the md5 of hello")
    shouted: bool  # mostly in capitals
    signs: Counter[str]
    romans: frozenset[str]
    capitals: frozenset[str]  # abbreviations, where the message is not all in capitals
    letters: Counter[str]  # letters that stand alone
    emoji: frozenset[str]
    ranks: frozenset[str]
    lines: tuple[str, ...]
    solid: str  # letters, digits and signs only, case kept
    keys: tuple[Key, ...]  # the content words and numbers in order
    topic: bool  # names a topic and asks nothing in particular


@lru_cache(maxsize=4096)
def _written(text: str) -> _Written:
    facts = facts_of(text)
    text = spelt_out(text[:MAX_CHARACTERS])
    if not _MOOD.isdisjoint(text):
        text = _EMOTICON.sub(" ", text)
    if "." in text:
        text = _SIGNED.sub(" ", text)
    forms: dict[str, set[str]] = {}
    folded: set[str] = set()
    words: list[str] = []
    start = 0
    for match in WORD.finditer(text):
        word = match.group()
        between = text[start : match.start()]
        first = match.start() == 0 or start == 0 or not _OPENING.isdisjoint(between)
        start = match.end()
        words.append(word)
        low = word.casefold()
        folded.add(low)
        if not (first and len(word) > 1 and word[1:] == word[1:].lower()) and not (first and len(word) == 1):
            forms.setdefault(low, set()).add(word)
    upper = sum(map(str.isupper, text))
    lines = tuple(line.rstrip() for line in text.splitlines() if line.strip())
    return _Written(
        forms={low: frozenset(written) for low, written in forms.items()},
        strict=bool(folded & _TABLE["spelling"]),
        secret=bool(folded & _TABLE["secrets"]),
        last=words[-1].casefold() if words else "",
        shouted=upper > 6 and 2 * upper > sum(map(str.isalpha, text)) > 12,
        signs=Counter(_signs_of(text)),
        romans=frozenset(_ROMAN_WORD.findall(text)) if upper else frozenset(),
        capitals=frozenset(w for w in words if len(w) > 1 and w.isascii() and w.isupper()) if upper else frozenset(),
        letters=Counter(w for n, w in enumerate(words) if len(w) == 1 and _stands_alone(w, first=n == 0)),
        emoji=frozenset(c for c in _not_ascii(text) if ord(c) >= 0x2600 and unicodedata.category(c) == "So"),
        ranks=frozenset(folded & _TABLE["ranks"]),
        lines=lines if len(lines) > 1 else (),
        solid="".join(text.split()),
        keys=tuple(key for key, _ in _numbered(facts)),
        topic=_bare(facts),
    )


def _not_ascii(text: str) -> Iterable[str]:
    return () if text.isascii() else (c for c in text if not c.isascii())


def _stands_alone(word: str, *, first: bool) -> bool:
    """Whether a word is a letter that names something (vitamin C), and no pronoun, article or chat spelling."""
    return (
        len(word) == 1
        and word.isascii()
        and word.isalpha()
        and word not in "aiIsturnkcmgwxUR"
        and not (first and word == "A")
    )


def _signs_of(text: str) -> Iterable[str]:
    joined = _SPACED_OPERATOR.sub(r"\1", text)
    for run in _ASCII_RUN.findall(joined):
        if not _SIGN.search(run):
            continue
        kept = run.strip(_EDGES_LEFT if run.count("(") > run.count(")") or run[0] != "(" else _EDGES_LEFT[:-1])
        kept = kept if kept else run
        kept = kept.rstrip(_EDGES_RIGHT)
        if kept.endswith("!") and not kept[:-1].isdigit():
            kept = kept.rstrip("!")
        if kept.startswith("(") and kept.endswith(")") and kept.count("(") == 1:
            kept = kept[1:-1]
        if kept.endswith(")") and "(" not in kept:
            kept = kept.rstrip(")")
        kept = kept.strip("*`") if kept.strip("*`").isalnum() else kept
        if not kept or not _SIGN.search(kept) or _PLAIN_RUN.fullmatch(kept) or _URL.search(kept):
            continue
        yield kept
    yield from _SHELL.findall(text)
    yield from (c for c in _not_ascii(text) if unicodedata.decomposition(c)[:5] in {"<supe", "<sub>", "<frac"})


def wording_relations(mine: str, theirs: str) -> tuple[Relation, ...]:
    """How two messages compare in writing; symmetric, linear in their length but for the order of at most 400 words."""
    a, b = _written(mine), _written(theirs)
    one, two = facts_of(mine), facts_of(theirs)
    near = _nearly_the_same(one, two)
    return (
        _case(a, b, near),
        _signs(a, b, near),
        _ranks(a, b, one, two),
        _layout(a, b),
        _order(one, two, mine, theirs, a.keys, b.keys),
        _topic(a, b, one, two),
    )


def _nearly_the_same(one: Facts, two: Facts) -> bool:
    """Whether nearly every word is in both, so that what is written otherwise was meant otherwise."""
    apart, shared = len(one.content ^ two.content), len(one.content & two.content)
    return apart <= max(2, shared // 2) and 2 * len(one.stems & two.stems) >= max(len(one.stems), len(two.stems))


_ANY_CASE: Final = Relation("case", "compatible", "No word is told from another by its capitals.")
_NO_RANK: Final = Relation("ranks", "compatible", "No other rank is meant.")
_NO_TOPIC: Final = Relation("topic", "compatible", "No message is the bare topic of the other.")
_ONE_LINE: Final = Relation("layout", "equal", "Both messages are one line.")
_ORDERED: Final = Relation(
    "order", "compatible", "The words they share stand in the same order, or hardly any are shared."
)


def _case(a: _Written, b: _Written, near: bool) -> Relation:
    fine = _ANY_CASE
    if not near or a.shouted or b.shouted:
        return fine
    strict = a.strict or b.strict
    for low in sorted(a.forms.keys() & b.forms.keys()):
        if not a.forms[low] & b.forms[low]:
            left, right = min(a.forms[low]), min(b.forms[low])
            ordinary = low in lexicon("en").stop or low in _TABLE["spelling"] or low in _TABLE["secrets"]
            ordinary = ordinary and low not in (a.last, b.last)
            if (strict and not ordinary) or not _same_word(low, left, right):
                return Relation("case", "conflict", f"One message says {left}, the other {right}.")
    if strict or a.secret or b.secret:
        plain = lexicon("en").stop
        left_only = sorted(w for w in a.forms.keys() - b.forms.keys() if w not in plain and len(w) > 1)
        right_only = sorted(w for w in b.forms.keys() - a.forms.keys() if w not in plain and len(w) > 1)
        if (
            len(left_only) == len(right_only) == 1
            and DamerauLevenshtein.distance(left_only[0], right_only[0]) <= 2
            and not _misspelt(left_only[0], right_only[0], strict=strict)
        ):
            return Relation("case", "conflict", f"Letters count, and {left_only[0]} is not {right_only[0]}.")
    return fine


def _misspelt(one: str, other: str, *, strict: bool) -> bool:
    """Whether exactly one of two words is known and the other can be a slip of it: where letters count (``strict``),
    one of the words that say so; else any word of the dictionary."""
    telling = _TABLE["spelling"] | _TABLE["secrets"]
    known = [word in telling or (not strict and word in common_words()) for word in (one, other)]
    return known[0] != known[1] and is_slip(one, other)


def _same_word(low: str, left: str, right: str) -> bool:
    """Whether two spellings in other case are surely one word."""
    if low in {"i", "a"} or low in _TABLE["abbreviations"]:
        return True
    if len(low) < 3 or low in _TABLE["ambiguous"] or not low.isalpha():
        return False
    plain = {left, right} <= {low, low.capitalize(), low.upper()}
    if low.upper() in (left, right) and low in lexicon("en").stop:
        return False
    return plain or len(low) >= 5


def _signs(a: _Written, b: _Written, near: bool) -> Relation:
    lost_a = sorted(sign for sign in _more(a.signs, b.signs) if near or sign not in b.solid)
    lost_b = sorted(sign for sign in _more(b.signs, a.signs) if near or sign not in a.solid)
    if near and a.solid == b.solid:  # spaces only
        lost_a = lost_b = []
    for what, left, right in (
        ("The signs differ", lost_a, lost_b),
        ("Another letter stands alone", [*_more(a.letters, b.letters)], [*_more(b.letters, a.letters)]),
    ):
        if (left or right) if near else (left and right and what.startswith("The")):
            return _differ(what, left, right)
    for what, left_set, right_set in (
        ("Other abbreviations", a.capitals, b.capitals),
        ("The Roman numerals differ", a.romans, b.romans),
        ("The emoji differ", a.emoji, b.emoji),
    ):
        if near and left_set - right_set and right_set - left_set:
            return _differ(what, left_set - right_set, right_set - left_set)
    return Relation("signs", "compatible" if a.signs != b.signs else "equal", "No sign differs that counts.")


def _more(mine: Counter[str], theirs: Counter[str]) -> Counter[str]:
    return mine - theirs if mine else mine


def _differ(what: str, left: Iterable[str], right: Iterable[str]) -> Relation:
    said = [", ".join(sorted(side)) or "none" for side in (left, right)]
    return Relation("signs", "conflict", f"{what}: {said[0]} against {said[1]}.")


def _ranks(a: _Written, b: _Written, one: Facts, two: Facts) -> Relation:
    if a.ranks != b.ranks:
        left_words, right_words = (
            {t.stem for t in _all_tokens(facts) if t.content and t.low not in _TABLE["ranks"]} for facts in (one, two)
        )
        if left_words == right_words and left_words:
            left, right = (", ".join(sorted(side)) or "none" for side in (a.ranks - b.ranks, b.ranks - a.ranks))
            return Relation("ranks", "conflict", f"Another rank is meant: {left} against {right}.")
    return _NO_RANK


def _topic(a: _Written, b: _Written, one: Facts, two: Facts) -> Relation:
    """A bare topic ("fees", "SAP HANA system") asks nothing in particular, and what else the other asks of it is
    something in particular. A yes or no is no topic; where only one is bare and they share no word that says
    something, neither holds the other ("lights?", "What about illumination?")."""
    decided = (one.affirms or one.declines) and (two.affirms or two.declines)
    apart = a.topic != b.topic and one.content.isdisjoint(two.content)
    if not decided and not apart:
        for written, mine, theirs in ((a, one, two), (b, two, one)):
            more = theirs.content - mine.content if written.topic else None
            if more:
                said = " ".join(t.low for t in _all_tokens(mine))
                what = ", ".join(sorted(more))
                return Relation("topic", "conflict", f"One message only names {said!r}, the other also says {what}.")
    return _NO_TOPIC


def _bare(facts: Facts) -> bool:
    tokens = _all_tokens(facts)
    content = sum(t.content for t in tokens)
    joined = all(t.content or not t.low.isalpha() or t.low in _TABLE["topical"] for t in tokens)
    return 0 < content <= _TOPIC_WORDS and joined and not facts.question and not facts.affirms and not facts.declines


def _layout(a: _Written, b: _Written) -> Relation:
    if not a.lines and not b.lines:
        return _ONE_LINE
    if a.solid == b.solid and a.lines != b.lines:
        return Relation("layout", "conflict", "The same text is laid out in other lines.")
    shared = {line.strip() for line in a.lines} & {line.strip() for line in b.lines}
    if len(shared) >= 2:
        left = [line for line in a.lines if line.strip() in shared]
        right = [line for line in b.lines if line.strip() in shared]
        if left != right:
            return Relation("layout", "conflict", "Lines they share stand in another order or depth.")
    return Relation("layout", "compatible", "No line that both hold stands elsewhere.")


# --- order ------------------------------------------------------------------------------------------------------------


def _order(
    one: Facts, two: Facts, mine_text: str, their_text: str, mine: tuple[Key, ...], theirs: tuple[Key, ...]
) -> Relation:
    fine = _ORDERED
    words = lexicon(one.language)
    shared = frozenset(mine).intersection(theirs)
    apart = max(len(mine), len(theirs)) - len(shared)
    if not shared or apart > max(1, len(shared) // 4):
        return fine
    left = [key for key in mine if key in shared]
    right = [key for key in theirs if key in shared]
    if left == right:
        mine_only, their_only = (Counter(_stems(x)) - Counter(_stems(y)) for x, y in ((one, two), (two, one)))
        if len(mine_only) == len(their_only) == 1 and frozenset((*mine_only, *their_only)) in _OPPOSITES:
            return Relation("order", "conflict", f"{next(iter(mine_only))} against {next(iter(their_only))}.")
        if not apart and ("by" in one.stems) != ("by" in two.stems) and len(shared) >= 3:
            return Relation("order", "conflict", "The same words, but only one message says by whom.")
        return fine
    if not _framed_alike(one, two, apart):
        return fine  # another sentence, in which the words stand where they must: its meaning is for others to judge
    if _clauses_exchanged(one, two) or _list_reordered(one, two, left, right) or _compounded(one, two, left, right):
        return fine
    if _one_moved(left, right, one, two, words.verbs):
        return fine
    if _same_way(one, two, left, right) or _passive_of(one, two) or _passive_of(two, one):
        return fine
    if _clauses(mine_text) == _clauses(their_text):
        return fine
    at = next(n for n, (x, y) in enumerate(zip(left, right, strict=True)) if x != y)
    return Relation("order", "conflict", f"The same words stand in another order ({left[at][0]}, {right[at][0]}).")


def _framed_alike(one: Facts, two: Facts, apart: int) -> bool:
    """Whether the words that only join the others are the same, apart from those that a sentence may have or lack.

    Where a word that says something has been exchanged (``apart``) the helping verbs count too: "does X include Y" and
    "is Y part of X" are one question, "did X kill Y" and "did Y murder X" are two.
    """
    light = _TABLE["light"] | (frozenset() if apart else _TABLE["helping"])
    frames = [
        Counter(t.low for t in _all_tokens(facts) if not t.content and t.low.isalpha() and t.low not in light)
        for facts in (one, two)
    ]
    return frames[0] == frames[1]


def _same_way(one: Facts, two: Facts, left: Sequence[Key], right: Sequence[Key]) -> bool:
    """Whether both say from where and to where, the same, and nothing else has moved ("to Rome from Oslo")."""
    if not all(one.direction) or one.direction != two.direction:
        return False
    ends = set(one.direction)
    return [key for key in left if key[0] not in ends] == [key for key in right if key[0] not in ends]


def _passive_of(passive: Facts, active: Facts) -> bool:
    """Whether ``passive`` says by whom ("can it be read by the app") what ``active`` says of the same doer before the
    same thing ("can the app read it")."""
    tokens = _all_tokens(passive)
    at = next((n for n, token in enumerate(tokens) if token.low == "by"), -1)
    if at < 1 or "by" in active.stems or not any(token.low in _BE for token in tokens[:at]):
        return False
    doers = {t.stem for t in tokens[at + 1 : at + 5] if t.content}
    things = {t.stem for t in tokens[:at] if t.content}
    order = [t.stem for t in _all_tokens(active) if t.content]
    found = [n for n, stem in enumerate(order) if stem in doers]
    others = [n for n, stem in enumerate(order) if stem in things]
    return bool(found and others) and max(found) < min(others)


def _clauses(text: str) -> Counter[tuple[str, ...]]:
    """The clauses of a message between its commas and full stops, whole: in another order they say the same."""
    pieces = [piece for piece in _CLAUSE_END.split(text[:2000]) if piece.strip()][:40]
    if len(pieces) < 2:
        return Counter([(text,)])
    return Counter(tuple(_stems_of(piece)) for piece in pieces)


def _stems_of(text: str) -> list[str]:
    return [token.stem for token in _all_tokens(facts_of(text))]


def _all_tokens(facts: Facts) -> tuple[Token, ...]:
    return facts.tokens[:_MOST_WORDS]


def _stems(facts: Facts) -> list[str]:
    return [token.low for token in _all_tokens(facts)]


def _numbered(facts: Facts) -> list[tuple[Key, Token]]:
    """The content words and numbers in order, each occurrence told from the others."""
    seen: Counter[str] = Counter()
    found = []
    for token in _all_tokens(facts):
        letter = len(token.low) == 1 and token.low.isascii() and token.low not in {"i", "a"}
        if token.content or token.low[0].isdigit() or (letter and token.low.isalpha()):
            found.append(((token.stem, seen[token.stem]), token))
            seen[token.stem] += 1
    return found


def _clauses_exchanged(one: Facts, two: Facts) -> bool:
    """Whether one message is the other with two clauses (or sentences) in the other order, each whole."""
    left, right = ([t.stem for t in _all_tokens(facts)] for facts in (one, two))
    if sorted(left) != sorted(right):
        # A courtesy or a reworded function word: compare what is left without them.
        both = Counter(left) & Counter(right)
        if sum(both.values()) < 0.7 * max(len(left), len(right)):
            return False
        left, right = _only(left, both), _only(right, both)
    for cut in range(1, len(left)):
        if left[cut:] + left[:cut] == right:
            return bool(
                left[cut] in _TABLE["subordinators"]
                or left[0] in _TABLE["subordinators"]
                or len(one.sentences) > 1 < len(two.sentences)
            )
    return False


def _only(stems: list[str], kept: Counter[str]) -> list[str]:
    room = Counter(kept)
    found = []
    for stem in stems:
        if room[stem] > 0:
            room[stem] -= 1
            found.append(stem)
    return found


def _list_reordered(one: Facts, two: Facts, left: Sequence[Key], right: Sequence[Key]) -> bool:
    """Whether only neighbours joined by "and" or "or" have changed places."""
    pair = _neighbours_exchanged(left, right)
    if pair is None:
        return False
    return all(
        set(between) & _JOINING and set(between) <= _JOINING | DETERMINERS for between in _between(one, two, pair)
    )


def _compounded(one: Facts, two: Facts, left: Sequence[Key], right: Sequence[Key]) -> bool:
    """Whether two neighbours are a compound here ("git branch") and a phrase there ("a branch in git")."""
    pair = _neighbours_exchanged(left, right)
    if pair is None or any(key[0][0].isdigit() for key in pair):
        return False
    short, long = sorted(_between(one, two, pair), key=len)
    return not short and not _PHRASE.isdisjoint(long) and set(long) <= _PHRASE | DETERMINERS


def _neighbours_exchanged(left: Sequence[Key], right: Sequence[Key]) -> tuple[Key, Key] | None:
    places = [n for n, (x, y) in enumerate(zip(left, right, strict=True)) if x != y]
    if len(places) != 2 or places[1] != places[0] + 1 or left[places[0]] != right[places[1]]:
        return None
    return left[places[0]], left[places[1]]


def _between(one: Facts, two: Facts, pair: tuple[Key, Key]) -> list[list[str]]:
    """The words between two content words, in each message."""
    found = []
    for facts in (one, two):
        numbered = {key: id(token) for key, token in _numbered(facts)}
        tokens = _all_tokens(facts)
        where = [n for n, token in enumerate(tokens) if id(token) in {numbered[pair[0]], numbered[pair[1]]}]
        found.append([token.low for token in tokens[where[0] + 1 : where[-1]]])
    return found


def _one_moved(left: Sequence[Key], right: Sequence[Key], one: Facts, two: Facts, verbs: Iterable[str]) -> bool:
    """Whether one block has moved and nothing is turned round by it.

    That is a verb in Chinese (重置密码, 密码重置), anything in keywords against a sentence ("password reset"), or a
    phrase that kept its preposition ("on Sunday").
    """
    known = frozenset(verbs)
    keywords = [not any(t.low in _TABLE["sentence"] for t in _all_tokens(facts)) for facts in (one, two)]
    if any(keywords) and not all(keywords):
        return True
    if len(left) < 3:
        return False
    for start in range(len(left)):
        for end in range(start + 1, min(len(left), start + 6) + 1):
            block = left[start:end]
            if [key for key in right if key in block] != list(block):
                continue
            at = right.index(block[0])
            if list(right[at : at + len(block)]) != list(block):
                continue
            if [k for k in left if k not in block] != [k for k in right if k not in block]:
                continue
            if one.language == "zh" and len(block) == 1:
                word = block[0][0]
                if word in known or not (is_noun(word) or word[0].isdigit()):
                    return True
            before = [_before(facts, block[0]) for facts in (one, two)]
            if before[0] == before[1] and before[0] in _TABLE["subordinators"]:
                return True
    return False


def _before(facts: Facts, key: Key) -> str:
    """The word before a content word, articles and possessives apart."""
    wanted = next((id(token) for k, token in _numbered(facts) if k == key), 0)
    before = ""
    for token in _all_tokens(facts):
        if id(token) == wanted:
            return before
        if token.low not in _ARTICLES:
            before = token.low
    return ""
