"""Everything plain code can see in one message: ``facts_of(text)``."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from hashlib import blake2b
from importlib import resources
from typing import NamedTuple

import rjieba
from rapidfuzz.distance import DamerauLevenshtein

from fingerprint.facts.literals import Literals, literals_of, plain
from fingerprint.facts.quantities import Quantity, fold_numerals, numbers_of, times_of
from fingerprint.facts.tables import Lexicon, lexicon
from fingerprint.text import encodable

__all__ = [
    "MAX_CHARACTERS",
    "Facts",
    "Sentence",
    "Token",
    "facts_of",
    "is_negation",
    "is_noun",
    "is_slip",
    "language_of",
    "spelt_out",
    "stem",
]

MAX_CHARACTERS = 8_000  # what lies beyond is compared as a whole, by digest

_TOKEN = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]{1,3})?|\d+(?:[.,:]\d+)*|[\U0001F1E6-\U0001F1FF]{2}|[%€$£&+#]")
_HAN = re.compile(r"[\u4e00-\u9fff\u3400-\u4dbf]+")
_OTHER_CJK = re.compile(r"[\u3040-\u30ff\uac00-\ud7af]")
_SENTENCE = re.compile(r"[^.!?。！？\n;；]+(?:\.(?=\S)[^.!?。！？\n;；]*)*[.!?。！？\n;；]*")
_HESITATION = re.compile(
    r"\b(?:no,? wait|wait,? no|scratch that|or uh|or um|uh+m?|er|um|no not|no,? sorry|or rather"
    r"|i mean|make that|not right|(?:no|sorry|actually) (?:what|which|who|when|where|how|not|that|it|in|to|i|the))\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"\S+")
_PIECE = re.compile(r"\d+(?:\.\d+)?|[A-Za-z]+|[^\W\d]")
_ABBREVIATION = re.compile(
    r"\b(jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|nr|no(?=\.\s?\d)|vs|approx|dr|mrs?|ms|st|etc|e\.g|i\.e)\.(?=\s)",
    re.IGNORECASE,
)
_WITHOUT = re.compile(r"(?<![\w/])w/(?:o|out)(?![\w/])", re.IGNORECASE)
_LATIN = re.compile(r"[A-Za-z\u00c0-\u024f]")


class Token(NamedTuple):
    """One word: ``low`` as folded text, ``stem`` as compared, ``content`` where it is no function word."""

    low: str
    stem: str
    content: bool
    capital: bool


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence with what its words say; ``asks`` where it holds the question or request."""

    text: str
    tokens: tuple[Token, ...]
    asks: bool
    negations: int
    antonyms: frozenset[tuple[int, int]]
    quantifiers: frozenset[str]
    modals: frozenset[str]
    persons: frozenset[str]
    numbers: tuple[Quantity, ...]
    times: tuple[str, ...]
    names: frozenset[str]


@dataclass(frozen=True)
class Facts:
    """The facts of one message. Tuples keep the order of the text."""

    language: str
    solid: str  # the text in lower case without spaces
    folded: str  # the text as searched for a counterpart: ``literals.plain`` of it
    overflow: str  # digest of what lies beyond MAX_CHARACTERS, "" where nothing does
    literals: Literals
    sentences: tuple[Sentence, ...]
    question: str
    intent: str
    formats: frozenset[str]
    direction: tuple[str, str]  # stems after "from" and after "to", "" where not said
    affirms: bool
    declines: bool
    corrected: bool  # the speaker corrects himself in the message
    elliptic: bool  # cannot be understood without what was said before
    stems: frozenset[str]  # every stem, function words too
    content: frozenset[str]  # stems of content words

    @cached_property
    def focus(self) -> tuple[Sentence, ...]:
        """The sentences that ask; all of them where none does."""
        asking = tuple(sentence for sentence in self.sentences if sentence.asks)
        return asking if 0 < len(asking) < len(self.sentences) else self.sentences

    @cached_property
    def numbers(self) -> tuple[Quantity, ...]:
        """Every quantity, in order, none twice."""
        return tuple(dict.fromkeys(q for sentence in self.sentences for q in sentence.numbers))

    @cached_property
    def times(self) -> tuple[str, ...]:
        """Every date and time, in order, none twice."""
        return tuple(dict.fromkeys(t for sentence in self.sentences for t in sentence.times))

    @cached_property
    def names(self) -> frozenset[str]:
        """Every capitalised name, folded."""
        return frozenset(name for sentence in self.sentences for name in sentence.names)

    @cached_property
    def persons(self) -> frozenset[str]:
        """Everybody the message is about."""
        return frozenset(person for sentence in self.sentences for person in sentence.persons)

    @cached_property
    def tokens(self) -> tuple[Token, ...]:
        """Every word, in order."""
        return tuple(token for sentence in self.sentences for token in sentence.tokens)

    @cached_property
    def focus_tokens(self) -> tuple[Token, ...]:
        """Every word of the sentences that ask, in order."""
        return tuple(token for sentence in self.focus for token in sentence.tokens)

    @cached_property
    def words(self) -> frozenset[str]:
        """Every word, as written (folded) and as stem."""
        return self.stems.union([token.low for token in self.tokens])

    @cached_property
    def squeezed(self) -> str:
        """The letters and digits of the message, folded."""
        return "".join(filter(str.isalnum, self.folded))


def language_of(text: str) -> str:
    """ "zh", "en" (any Latin script without a table of its own) or "other"."""
    sample = text[:4000]
    if sample.isascii():
        return "en"
    if _OTHER_CJK.search(sample):
        return "other"
    han = sum(len(run) for run in _HAN.findall(sample))
    latin = len(_LATIN.findall(sample))
    if han and han * 4 >= latin:
        return "zh"
    return "en" if latin or not sample.strip() or not any(c.isalpha() for c in sample) else "other"


_IRREGULAR = dict(
    pair.split(":", 1)
    for pair in [
        "children:child",
        "people:person",
        "men:man",
        "women:woman",
        "feet:foot",
        "paid:pay",
        "bought:buy",
        "sent:send",
        "wrote:write",
        "written:write",
        "broke:break",
        "broken:break",
        "went:go",
        "gone:go",
        "made:make",
        "lost:lose",
        "kept:keep",
        "left:leave",
        "took:take",
        "taken:take",
        "gave:give",
        "given:give",
        "said:say",
        "found:find",
        "began:begin",
        "chose:choose",
        "chosen:choose",
    ]
)
# Longest first, with the least number of letters that must remain.
_SUFFIXES = tuple(
    (suffix, least)
    for least, suffixes in ((3, "ations ation ing ies ied ed es"), (4, "ings ers ly er"), (3, "s e y"))
    for suffix in suffixes.split()
)


@lru_cache(maxsize=16384)
def stem(word: str) -> str:
    """A crude stem of an English word, the same for its usual inflections; other words unchanged."""
    if not word.isascii() or len(word) < 4:
        return _IRREGULAR.get(word, word)
    word = word.removesuffix("'s").removesuffix("’s")
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    for suffix, least in _SUFFIXES:
        if not word.endswith(suffix) or len(word) - len(suffix) < least:
            continue
        if suffix == "s" and word.endswith(("ss", "us", "is")):
            continue
        word = word[: -len(suffix)]
        doubled = len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz"
        if suffix in {"ing", "ed", "ings", "er", "ers"} and doubled:
            word = word[:-1]
        if suffix == "s" and len(word) > 3 and word.endswith("e"):
            word = word[:-1]
        break
    return word


@cache
def common_words() -> frozenset[str]:
    """English words of four letters and more that are no misspelling of one another."""
    text = resources.files(__package__).joinpath("words_en.toml").read_text(encoding="ascii")
    return frozenset(tomllib.loads(text)["words"].split())


def is_slip(one: str, other: str, *, names: bool = False) -> bool:
    """Whether two words can be spellings of one word. Two capitalised ``names`` must be closer than two common words.

    Damerau–Levenshtein distance at most 1 for four to seven letters, 2 from eight on, same first letter; numbers never,
    and never two words of the dictionary (horse, house).
    """
    if one == other:
        return True
    size, other_size = len(one), len(other)
    # The cheapest tests first: no two words are compared more often than those that have nothing in common.
    if size < 4 or other_size < 4 or one[0] != other[0] or not -2 <= size - other_size <= 2:
        return False
    if not (one.isascii() and other.isascii() and one.isalpha() and other.isalpha()):
        return False
    longest = max(size, other_size)
    if names:  # one letter missing, doubled or two in the wrong order; another letter is another name
        return (
            longest >= 5
            and one[-1] == other[-1]
            and (size != other_size or sorted(one) == sorted(other))
            and DamerauLevenshtein.distance(one, other, score_cutoff=1) <= 1
        )
    known = common_words()
    if one in known and other in known:
        return False
    allowed = 1 if longest < 8 else 2
    return DamerauLevenshtein.distance(one, other, score_cutoff=allowed) <= allowed


@lru_cache(maxsize=8192)
def is_noun(word: str) -> bool:
    """Whether a Chinese word names a thing: by the segmenter's part of speech."""
    return all(flag[:1] in {"n", "j", "s", "e", "z"} and flag != "z" for _, flag in rjieba.tag(word))


def _tokens(text: str, language: str, words: Lexicon) -> list[Token]:
    tokens: list[Token] = []
    for match in _TOKEN.finditer(text):
        piece = match.group()
        if language != "en" and _HAN.search(piece):
            for word in rjieba.cut(piece):
                counted = (
                    word in words.relative or word in words.weekdays or word in words.parts or word in words.seasons
                )
                tokens.append(
                    Token(
                        word,
                        words.classes.get(word, word),
                        word not in words.stop and word not in words.units and not counted,
                        False,
                    )
                )
            continue
        low = piece.casefold().replace("’", "'")
        stemmed, content = _english(low)
        tokens.append(Token(low, stemmed, content, piece[0].isupper()))
        if len(tokens) > 4000:
            break
    return tokens


@lru_cache(maxsize=16384)
def _english(low: str) -> tuple[str, bool]:
    """Stem of a folded word, and whether it says something."""
    english = lexicon("en")
    base = low.removesuffix("'s")
    silent = low in english.stop or base in english.stop or low[0].isdigit() or (len(low) == 1 and low.isascii())
    return stem(english.classes.get(base, base)), not silent and not _counts(low, english)


@lru_cache(maxsize=16384)
def _negates(low: str, language: str) -> bool:
    """Whether a word turns its sentence round, in a script that writes spaces."""
    return low.endswith("n't") or lexicon(language).negations.fullmatch(low) is not None


_ASKING_LAST = frozenset(["不", "没", "没有", "否", "吗", "呢", "吧", "啊", "呀", "嘛", "了"])


def is_negation(tokens: tuple[Token, ...], at: int, words: Lexicon) -> bool:
    """Whether the word turns the sentence round. A Chinese 不 or 没 at the end only asks (好玩不？)."""
    low = tokens[at].low
    if words.language != "zh":
        return _negates(low, words.language)
    if not (words.negations.fullmatch(low) or (low[0] in "不没未" and 2 <= len(low) <= 3)):
        return False
    if low in words.inert or all(token.low in _ASKING_LAST for token in tokens[at:]):
        return False
    return low != "别" or at == 0 or tokens[at - 1].low in {"请", "就", "千万", "可", "你", "您", "先", ","}


def _counts(low: str, words: Lexicon) -> bool:
    """Whether a word is part of a number or a date, which are compared by value."""
    return (
        low in words.number_words
        or low in words.scales
        or low in words.ordinals
        or low in words.months
        or low in words.weekdays
        or low in words.parts
        or low in words.seasons
        or low in words.relative
        or low in words.units
    )


def _sentence(text: str, folded: str, language: str, words: Lexicon) -> Sentence:
    phrased = words.phrases.sub(lambda m: words.classes[m.group()], folded) if words.language == "en" else folded
    times, undated = times_of(text, words)
    numbers = numbers_of(undated, words)
    tokens = tuple(_tokens(text if phrased == folded else phrased, language, words))
    sides = frozenset(side for match in words.antonyms.findall(folded) for side in words.antonym_sides.get(match, ()))
    negations = sum(1 for at in range(len(tokens)) if is_negation(tokens, at, words))
    return Sentence(
        text=folded,
        tokens=tokens,
        asks=_asks(text, folded, tokens, words),
        negations=negations,
        antonyms=sides,
        quantifiers=frozenset(words.quantifiers[m] for m in words.quantifier_words.findall(folded)),
        modals=_modals(folded, tokens, words),
        persons=frozenset(words.persons[m] for m in words.person_words.findall(folded)),
        numbers=numbers,
        times=times,
        names=_names(tokens, words),
    )


def _modals(folded: str, tokens: tuple[Token, ...], words: Lexicon) -> frozenset[str]:
    """The kinds of modal verb said. A single Chinese character counts only as a word of its own: 会员 says no 会."""
    alone = {token.low for token in tokens}
    said = (m for m in words.modal_words.findall(folded) if words.language != "zh" or len(m) > 1 or m in alone)
    return frozenset(words.modality[m] for m in said)


def _asks(text: str, folded: str, tokens: tuple[Token, ...], words: Lexicon) -> bool:
    if "?" in text or "？" in text:
        return True
    if any(pattern.search(folded) for _, pattern in words.questions):
        return True
    first = next(
        (token.low for token in tokens if token.low not in {"please", "kindly", "then", "so", "and", "now"}), ""
    )
    return first in words.verbs or first in {"tell", "explain", "show", "give", "list", "name", "describe", "suggest"}


def _first_kind(patterns: tuple[tuple[str, re.Pattern[str]], ...], texts: list[str]) -> str:
    for kind, pattern in patterns:
        if any(pattern.search(text) for text in texts):
            return kind
    return ""


def _retracted(text: str, words: Lexicon) -> str:
    """``text`` without what the speaker took back in the same breath ("to Spain, no, to Portugal")."""
    match = words.correction.search(text)
    if match is None or match.start() == 0 or match.end() >= len(text.rstrip(" .!?。！？")):
        return text
    cut = _taken_back(text[: match.start()], text[match.end() :].lstrip(" ,，"), spaced=words.language != "zh")
    return text[:cut] + " " * (match.end() - cut) + text[match.end() :]


def _taken_back(before: str, after: str, *, spaced: bool) -> int:
    """Where what is taken back begins: at the word the correction repeats, or at the last number where it gives
    another, else at the last word."""
    clause = max(before.rfind(mark) for mark in "，,。！？!?；;\n.") + 1
    pieces = [match.start() + clause for match in (_WORD if spaced else _PIECE).finditer(before[clause:])] or [clause]
    first = (_WORD if spaced else _PIECE).search(after)
    if first is not None:
        low = first.group().casefold()
        for start in reversed(pieces[-8:]):
            here = before[start:].casefold()
            if here.startswith(low) or (low[0].isdigit() and here[:1].isdigit()):
                return start
    if spaced:
        return pieces[-1]
    run = _HAN.search(before[::-1][:8])
    last = rjieba.cut(encodable(before[clause:]))[-1:] if run else []
    return len(before) - len(last[0]) if last else pieces[-1]


def _direction(sentences: tuple[Sentence, ...], words: Lexicon) -> tuple[str, str]:
    start = goal = ""
    for sentence in sentences:
        for position, token in enumerate(sentence.tokens):
            into = token.low in words.direction_to
            if token.low not in words.direction_from and not into:
                continue
            after = next((t.stem for t in sentence.tokens[position + 1 : position + 4] if t.content), "")
            if into:
                goal = goal or after
            else:
                start = start or after
    return start, goal


def _names(tokens: tuple[Token, ...], words: Lexicon) -> frozenset[str]:
    """Capitalised words that are names, folded; the first word of a sentence only where it is no common opener."""
    return frozenset(
        token.low.removesuffix("'s")
        for position, token in enumerate(tokens)
        if token.capital
        and token.content
        and len(token.low) > 1
        and not (position == 0 and (token.low in words.verbs or token.low in words.classes or len(tokens) < 2))
    )


def spelt_out(text: str) -> str:
    """``text`` with what chat shortens and no table of words can hold ("w/o") written out."""
    return _WITHOUT.sub("without", text) if "w/" in text.casefold() else text


@lru_cache(maxsize=8192)
def facts_of(text: str) -> Facts:
    """The facts of one message, in time linear in its length (the first ``MAX_CHARACTERS`` are read closely)."""
    overflow = (
        blake2b(text[MAX_CHARACTERS:].encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        if len(text) > MAX_CHARACTERS
        else ""
    )
    text = spelt_out(unicodedata.normalize("NFKC", text[:MAX_CHARACTERS]))
    language = language_of(text)
    words = lexicon(language)
    literals, rest = literals_of(text, words)
    if language == "zh":
        rest = fold_numerals(rest, words)
    if "." in rest:
        rest = _ABBREVIATION.sub(r"\1 ", rest)
    whole = rest
    rest = _retracted(rest, words)
    sentences: list[Sentence] = []
    for match in _SENTENCE.finditer(rest):
        piece = match.group()
        piece = words.courtesy.sub(" ", piece)
        if not piece.strip(" ,.!?。，！？"):
            continue
        sentence = _sentence(piece, piece.casefold(), language, words)
        if sentence.tokens:
            sentences.append(sentence)
        if len(sentences) >= 200:
            break
    kept = tuple(sentences)
    asked = [s.text for s in kept if s.asks] or [s.text for s in kept]
    bare = rest.casefold().strip(" ,.!?。，！？")
    replies = not any(mark in text for mark in "?？") and len(bare) <= 160
    affirms, declines = replies and bool(words.affirm.search(bare)), replies and bool(words.decline.search(bare))
    content = frozenset(token.stem for sentence in kept for token in sentence.tokens if token.content)
    return Facts(
        language=language,
        solid="".join(text.casefold().split()),
        folded=plain(text),
        overflow=overflow,
        literals=literals,
        sentences=kept,
        question=_first_kind(words.questions, [text.strip(" ,") for text in asked]),
        intent=_first_kind(words.intents, asked),
        formats=frozenset(words.formats[m] for m in words.format_words.findall(rest.casefold())),
        direction=_direction(kept, words),
        affirms=affirms,
        declines=declines,
        corrected=rest != whole or bool(_HESITATION.search(rest)),
        elliptic=_elliptic(bare, kept, content, words),
        stems=frozenset(token.stem for sentence in kept for token in sentence.tokens),
        content=content,
    )


def _elliptic(bare: str, sentences: tuple[Sentence, ...], content: frozenset[str], words: Lexicon) -> bool:
    if not content or words.opener.search(bare):
        return True
    if len(content) <= 2:
        return True
    return any(words.anaphora.search(s.text) for s in sentences if s.asks) or (
        not any(s.asks for s in sentences) and any(words.anaphora.search(s.text) for s in sentences)
    )
