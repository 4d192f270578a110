"""What one message looks like to the comparisons: tokens, content words, numbers, names, closed classes.

Pure and cached by text: the messages of a conversation come back with every turn. Bounded: of a very long message the
first and last ``HEAD`` and ``TAIL`` characters are read, and the rest enters as one token made of its hash, so that two
long messages are never taken for equal because their ends are.
"""

from __future__ import annotations

import functools
import hashlib
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import rjieba
from numpy.typing import NDArray

from fingerprint.comparisons.lexicon import CLASSES, Language, Lexicon, lexicon
from fingerprint.comparisons.words import WIDTH, WordTable, word_table
from fingerprint.text import encodable

__all__ = ["HEAD", "TAIL", "View", "language_of", "stem", "view"]

HEAD, TAIL = 4000, 1000
MAX_TOKENS = 800

_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_QUOTES = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "–": "-", "—": "-", "…": " "})
# What a text must hold for a rewriting to apply, the rewriting, and what it makes of it.
_CONTRACTIONS = (
    ("can", re.compile(r"\bcan'?t\b|\bcannot\b"), "can not"),
    ("won't", re.compile(r"\bwon't\b"), "will not"),
    ("", re.compile(r"\b(do|does|did|is|are|was|were|has|have|had|would|could|should|must|need|ai)n'?t\b"), r"\1 not"),
    ("n't", re.compile(r"n't\b"), " not"),
    ("'s", re.compile(r"\b(what|where|when|how|who|that|it|there|here|he|she)'s\b"), r"\1 is"),
    ("whats", re.compile(r"\bwhats\b"), "what is"),
    ("hows", re.compile(r"\bhows\b"), "how is"),
    ("", re.compile(r"\bi'?m\b"), "i am"),
    ("'re", re.compile(r"'(re)\b"), " are"),
    ("'ve", re.compile(r"'(ve)\b"), " have"),
    ("'ll", re.compile(r"'(ll)\b"), " will"),
    ("'d", re.compile(r"'d\b"), " would"),
    ("'s", re.compile(r"'s\b"), ""),
    ("pl", re.compile(r"\bpls\b|\bplz\b"), "please"),
    ("", re.compile(r"\bthx\b|\bty\b"), "thanks"),
    ("", re.compile(r"\bu\b"), "you"),
    ("ur", re.compile(r"\bur\b"), "your"),
    ("gonna", re.compile(r"\b(gonna)\b"), "going to"),
    ("wanna", re.compile(r"\b(wanna)\b"), "want to"),
    ("w/", re.compile(r"\bw/o\b"), "without"),
    ("w/", re.compile(r"\bw/(?=\s)"), "with"),
    ("log", re.compile(r"\blog(ging|ged)?[ -]in\b"), "login"),
    ("", re.compile(r"\blog(ging|ged)?[ -]?out\b|\bsign(ing|ed)?[ -]?out\b|\blog(ging|ged)?[ -]off\b"), "logout"),
    ("sign", re.compile(r"\bsign(ing|ed)?[ -]in\b"), "login"),
    (" on", re.compile(r"\b(turn|switch)(ing|ed|s)? (on)\b"), "enable"),
    (" off", re.compile(r"\b(turn|switch|shut)(ing|ed|s)? (off)\b"), "disable"),
    (" on", re.compile(r"\b(turn|switch)(?:ing|ed|s)? ((?:\w+ ){1,3}?)on\b"), r"enable \2"),
    (" off", re.compile(r"\b(turn|switch|shut)(?:ing|ed|s)? ((?:\w+ ){1,3}?)off\b"), r"disable \2"),
    ("set", re.compile(r"\bset(ting)? up\b|\bset-up\b"), "setup"),
    ("back", re.compile(r"\bback(ing|ed)? up\b|\bback-up\b"), "backup"),
    (" rid of", re.compile(r"\bget(ting)? rid of\b"), "remove"),
    (" out", re.compile(r"\btake(s|n)? out\b|\btook out\b"), "remove"),
    ("mail", re.compile(r"\be-?mails?\b"), "email"),
    ("wi-fi", re.compile(r"\bwi-fi\b"), "wifi"),
)
_SENTENCE = re.compile(r"[^.!?。！？；;\n]+(?:\.(?=\S)[^.!?。！？；;\n]*)*[.!?。！？；;\n]*")
_ASKING = {
    "en": re.compile(
        r"\b(how|what|when|where|which|who|whose|why|can i|could|should i|do i|is there|tell me|need|want|help)\b"
    ),
    "zh": re.compile("怎么|如何|怎样|什么|多少|多久|哪|谁|为何|吗|能不能|可以|请|帮|想|要"),
}
_EDGE = ".,!?;:()[]\"'`*"
_CHUNK = re.compile(r"\S+")
_IDENTIFIER = re.compile(
    r"^(?:--?[a-z][\w-]*|[a-z]+[-_.]?\d[\w.-]*|#?\d+[a-z]+\d\w*|#\w+|.*[/_@\\={}|<>^~].*|[a-z]\w*(?:\.\w+)+\.?|[a-z]\+\+|[a-z]#)$"
)
_PLAIN = re.compile(r"[$€£¥]?\d+(?:[.,:]\d+)*|%|°[cf]?|[^\W\d_]+")
_NUMBER = re.compile(r"[$€£¥]?\d+(?:[.,:]\d+)*")
_ORDINAL = {"st", "nd", "rd", "th"}
_SYMBOLS = frozenset("+-*/=<>&|!^~@#%{}[]()$\\")
_HAN_NUMERAL = "零〇一二两俩三四五六七八九十百千万亿半壹贰叁肆伍陆柒捌玖拾佰仟廿"
_HAN_NUMBER = re.compile(
    rf"(?P<n>\d+(?:[.,:：]\d+)*|[{_HAN_NUMERAL}]+)\s*(?P<m>[万亿千百])?\s*(?P<u>%|％|个小时|个月|分钟|小时|[a-zA-Z℃°$€¥]{{1,4}}|[一-鿿])?"
)
_IDIOMS = re.compile(
    "一下|一些|一起|一样|一般|一直|一定|一点|一边|一共|统一|唯一|万一|千万|百度|十分|一键|半天|一会|三方|二维|两步|一旦|一切|第三方|进一步|另一|万能|九九|零食|零售|零钱|百货"
)
_LEXICAL_NEGATION = re.compile(
    "不好意思|不错|无线|非常|别的|没错|未来|不过|不同|不仅|不管|不论|无论|特别|区别|差别|级别|分别|类别|性别|别人|不客气|不知道|没事|不如|非洲|无锡|不少|不但|莫非|不断|有没有|是不是|能不能|可不可以|要不要|会不会|对不对|行不行|好不好|用不用"
)


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """One message.

    ``tokens`` in reading order; ``stems`` beside them. ``content`` are the distinct stems that carry meaning, with
    their ``weights`` (0 … 1) and ``vectors`` (shape ``(len(content), WIDTH)``, zero rows for numbers and identifiers).
    ``quantities`` are numbers with their unit. ``mean`` is the weighted mean of the vectors, unit length or zero.
    ``sentences`` as written, and the one of them that is ``asking``. ``unknown`` are the content words of no table,
    ``spelt`` those whose spelling can be compared (four ASCII characters or more), ``strange`` the unknown of these;
    ``opposable`` the tokens that have an opposite; ``prefixed`` the stems that begin with a negating prefix, each with
    what follows it.
    """

    text: str
    language: Language
    tokens: tuple[str, ...]
    stems: tuple[str, ...]
    stem_set: frozenset[str]
    content: tuple[str, ...]
    content_index: dict[str, int]
    surface: tuple[str, ...]
    weights: NDArray[np.float32]
    vectors: NDArray[np.float32]
    mean: NDArray[np.float32]
    mass: float
    numbers: frozenset[str]
    quantities: frozenset[str]
    identifiers: frozenset[str]
    names: frozenset[str]
    classes: dict[str, frozenset[str]]
    asks: frozenset[str]
    negations: int
    symbols: frozenset[str]
    acknowledging: float
    pronouns: int
    question: bool
    sentences: tuple[str, ...]
    asking: str
    unknown: frozenset[str]
    spelt: frozenset[str]
    strange: frozenset[str]
    opposable: frozenset[str]
    prefixed: tuple[tuple[str, str], ...]


def language_of(text: str) -> Language:
    """``zh`` where the text holds any Han character, else ``en``."""
    return "zh" if not text.isascii() and _HAN.search(text) else "en"


@functools.lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """A rough English stem: plural, -ing, -ed, silent e. Equal stems count as the same word."""
    if not word.isascii() or len(word) <= 3 or not word.isalpha():
        return word
    w = word
    if w.endswith("ies") and len(w) > 4:
        w = w[:-3] + "y"
    elif w.endswith("sses"):
        w = w[:-2]
    elif w.endswith("s") and not w.endswith(("ss", "us", "is")):
        w = w[:-1]
    if w.endswith("ing") and len(w) > 5:
        w = _undouble(w[:-3])
    elif w.endswith("ed") and len(w) > 4:
        w = _undouble(w[:-2])
    if w.endswith("e") and len(w) > 3:
        w = w[:-1]
    if w.endswith("y") and len(w) > 3:
        w = w[:-1] + "i"
    return w


def _undouble(w: str) -> str:
    return w[:-1] if len(w) > 3 and w[-1] == w[-2] and w[-1] not in "lsz" else w


def _bounded(text: str) -> str:
    if len(text) <= HEAD + TAIL:
        return text
    middle = hashlib.blake2b(text[HEAD:-TAIL].encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{text[:HEAD]} id{middle} {text[-TAIL:]}"


def _value(digits: str) -> str:
    """Canonical form of a number as written: ``1,200`` -> ``1200``, ``3.20`` -> ``3.2``, ``17:40`` as it is."""
    if ":" in digits or "：" in digits:
        return digits.replace("：", ":")
    if re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", digits):
        digits = digits.replace(",", "")
    digits = digits.replace(",", ".")
    if digits.count(".") > 1 or len(digits) > 15:
        return digits
    return f"{float(digits):.12g}"


@functools.lru_cache(maxsize=4096)
def view(text: str, language: Language) -> View:
    """The view of one message; ``language`` is that of the conversation it stands in."""
    table, words = lexicon(language), word_table(language)
    bounded = _bounded(unicodedata.normalize("NFKC", text).translate(_QUOTES))
    return _english(text, bounded, table, words) if language == "en" else _chinese(text, bounded, table, words)


def _english(text: str, bounded: str, table: Lexicon, words: WordTable) -> View:
    names = _capitalised(bounded)
    folded = bounded.casefold()
    for needed, pattern, replacement in _CONTRACTIONS:
        if needed in folded:
            folded = pattern.sub(replacement, folded)
    for pattern, replacement in table.rewrites:
        folded = pattern.sub(replacement, folded)
    tokens: list[str] = []
    identifiers: set[str] = set()
    numbers: set[str] = set()
    quantities: set[str] = set()
    for match in _CHUNK.finditer(folded):
        raw = match.group()
        chunk = raw.strip(_EDGE)
        if chunk and not chunk.isalpha() and len(chunk) < 200 and _IDENTIFIER.match(chunk):
            name = chunk.replace("-", "") if any(c.isdigit() for c in chunk) and "/" not in chunk else chunk
            tokens.append(name)
            identifiers.add(name)
            numbers.update(_value(d) for d in re.findall(r"\d{2,}", chunk))
        else:
            tokens.extend(_PLAIN.findall(raw))
        if len(tokens) > MAX_TOKENS:
            break
    tokens, spoken = _read_numbers(tokens, table)
    for value, unit in spoken:
        numbers.add(value)
        if unit:
            quantities.add(f"{value} {unit}")
    return _finish(text, table, words, tokens, numbers, quantities, identifiers, names, stem)


def _capitalised(text: str) -> frozenset[str]:
    """Words written with a capital inside a sentence, or with a capital after the first letter, folded to stems."""
    out: set[str] = set()
    opening = True
    for match in re.finditer(r"[^\W\d_][\w'-]*|[.!?:\n]", text):
        word = match.group()
        if word in ".!?:\n":
            opening = True
            continue
        inner = not word.islower() and any(map(str.isupper, word[1:]))
        if ((word[0].isupper() and not opening) or inner) and word not in {"I", "I'm", "I've", "I'd", "I'll", "OK"}:
            out.add(stem(word.casefold().removesuffix("'s")))
        opening = False
    return frozenset(out)


def _read_numbers(tokens: list[str], table: Lexicon) -> tuple[list[str], list[tuple[str, str]]]:
    """Tokens with every number in one canonical spelling, and the (value, unit) pairs found."""
    out: list[str] = []
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        currency = ""
        value: str | None = None
        if _NUMBER.fullmatch(token):
            if token[0] in "$€£¥":
                currency, token = table.units.get(token[0], token[0]), token[1:]
            value = _value(token)
            at += 1
            while at < len(tokens) and tokens[at] in table.multipliers and "." not in value and ":" not in value:
                value = f"{float(value) * table.multipliers[tokens[at]]:.12g}"
                at += 1
        elif token in table.numbers and token not in {
            "one",
            "once",
            "second",
            "pair",
            "first",
            "third",
            "half",
            "double",
        }:
            total = table.numbers[token]
            at += 1
            while at < len(tokens) and (tokens[at] in table.multipliers or tokens[at] in table.numbers):
                if tokens[at] in table.multipliers:
                    total *= table.multipliers[tokens[at]]
                elif total >= 20 and table.numbers[tokens[at]] < 20:
                    total += table.numbers[tokens[at]]
                else:
                    break
                at += 1
            value = f"{total:.12g}"
        else:
            out.append(token)
            at += 1
            continue
        unit = currency
        if at < len(tokens) and tokens[at] in _ORDINAL:
            at += 1
        elif at < len(tokens) and not unit:
            unit = table.units.get(tokens[at], "")
            if unit in {"am", "pm"}:
                hour = value.split(":")[0]
                if hour.isdigit() and ((unit == "pm" and int(hour) < 12) or (unit == "am" and int(hour) == 12)):
                    shifted = str((int(hour) + 12) % 24)
                    value = shifted + value[len(hour) :]
                value, unit = (value if ":" in value else f"{value}:00"), ""
                at += 1
            elif unit:
                at += 1
                out.append(value)
                out.append(unit)
                found.append((value, unit))
                continue
        elif at < len(tokens) and table.units.get(tokens[at], "") == unit:
            at += 1
        out.append(value)
        if unit:
            out.append(unit)
        found.append((value, unit))
    return out, found


def _han_value(numeral: str, table: Lexicon) -> str | None:
    """Value of a Chinese numeral (三十五, 两千, 二〇二六), or None where it is none."""
    if not any(c in table.multipliers for c in numeral):
        digits = [table.numbers[c] for c in numeral]
        if len(digits) == 1:
            return f"{digits[0]:g}"
        return None if any(d != int(d) for d in digits) else "".join(str(int(d)) for d in digits).lstrip("0") or "0"
    total, section, digit = 0.0, 0.0, 0.0
    for c in numeral[:20]:
        if c in table.multipliers:
            size = table.multipliers[c]
            if size >= 10000:
                total = (total + section + digit) * size
                section, digit = 0.0, 0.0
            else:
                section += (digit or 1.0) * size
                digit = 0.0
        else:
            digit = table.numbers[c]
    return f"{total + section + digit:.12g}"


def _chinese(text: str, bounded: str, table: Lexicon, words: WordTable) -> View:
    folded = bounded.casefold()
    for pattern, replacement in table.rewrites:
        folded = pattern.sub(replacement, folded)
    tokens: list[str] = []
    identifiers: set[str] = set()
    for piece in rjieba.cut(encodable(folded)):
        token = piece.strip()
        if token and (token[0].isalnum() or token[-1].isalnum()):
            tokens.append(token)
            if len(tokens) > MAX_TOKENS:
                break
    numbers: set[str] = set()
    quantities: set[str] = set()
    for chunk in re.findall(r"[a-z0-9][a-z0-9._/@#:+-]*", folded)[:MAX_TOKENS]:
        core = chunk.strip("._/:-")
        if core and any(c.isalpha() for c in core) and (any(c.isdigit() for c in core) or not core.isalpha()):
            identifiers.add(core.replace("-", ""))
    for match in _HAN_NUMBER.finditer(_IDIOMS.sub(lambda m: "〡" * len(m.group()), folded)):
        raw, size, unit = match["n"], match["m"], match["u"] or ""
        value = _value(raw) if raw[0].isdigit() else _han_value(raw, table)
        if value is None:
            continue
        if size and ":" not in value and value.count(".") <= 1:
            value = f"{float(value) * table.multipliers[size]:.12g}"
        name = table.units.get(unit, "")
        if value == "1" and not name and not raw[0].isdigit():
            continue
        numbers.add(value)
        if name:
            quantities.add(f"{value} {name}")
    names = frozenset(t for t in tokens if t.isascii() and t.isalpha() and len(t) > 1)
    return _finish(text, table, words, tokens, numbers, quantities, identifiers, names, str)


def _negations(tokens: list[str], table: Lexicon) -> frozenset[str]:
    if table.language == "en":
        return frozenset(t for t in tokens if t in table.classes["negation"])
    out = set()
    for token in tokens:
        if _LEXICAL_NEGATION.fullmatch(token):
            continue
        if token in table.classes["negation"] or (len(token) <= 4 and token.startswith(table.negating_prefixes)):
            out.add(token)
    return frozenset(out)


def _asking(sentences: tuple[str, ...], table: Lexicon) -> str:
    """The last sentence that asks: with a question mark, else with a word that asks, else the last one."""
    for sentence in reversed(sentences):
        if sentence.endswith(("?", "？")):
            return sentence
    for sentence in reversed(sentences):
        if _ASKING[table.language].search(sentence.casefold()):
            return sentence
    return sentences[-1] if sentences else ""


def _finish(
    text: str,
    table: Lexicon,
    words: WordTable,
    tokens: list[str],
    numbers: set[str],
    quantities: set[str],
    identifiers: set[str],
    names: frozenset[str],
    stemmer: Callable[[str], str],
) -> View:
    tokens = tokens[:MAX_TOKENS]
    stems = tuple(map(stemmer, tokens))
    index: dict[str, int] = {}
    surface: list[str] = []
    weights: list[float] = []
    rows: list[NDArray[np.float32]] = []
    unknown: set[str] = set()
    zero = np.zeros(WIDTH, np.float32)
    skipped = table.function_words, table.courtesy, table.unit_names
    for token, root in zip(tokens, stems, strict=True):
        if root in index or token in skipped[0] or token in skipped[1] or token in skipped[2]:
            continue
        index[root] = len(surface)
        surface.append(token)
        if token in numbers or token in identifiers or not (token.isalpha() or any(map(str.isalpha, token))):
            weights.append(1.0)
            rows.append(zero)
            continue
        said, vector, known = words.entry(token)
        weights.append(said)
        rows.append(vector)
        if not known:
            unknown.add(root)
    weight = np.array(weights, np.float32)
    vectors = np.concatenate(rows).reshape(-1, WIDTH) if rows else np.zeros((0, WIDTH), np.float32)
    mean = weight @ vectors if rows else zero
    norm = float(np.sqrt(mean @ mean))
    token_set = frozenset(tokens)
    classes = {name: token_set & members for name, members in table.classes.items() if name != "negation"}
    classes["negation"] = _negations(tokens, table)
    asks: set[str] = set()
    for token in token_set:
        asks.update(table.asks.get(token, ()))
    letters = [t for t in tokens if t[0].isalnum()]
    sentences = tuple(s.strip() for s in _SENTENCE.findall(text[: HEAD + TAIL]) if any(map(str.isalnum, s)))[:20]
    stripped = text.rstrip()
    stem_set = frozenset(stems)
    spelt = frozenset(root for root in index if len(root) >= 4 and root.isascii())
    return View(
        text=text,
        language=table.language,
        tokens=tuple(tokens),
        stems=stems,
        stem_set=stem_set,
        content=tuple(index),
        content_index=index,
        surface=tuple(surface),
        weights=weight,
        vectors=vectors,
        mean=mean / np.float32(norm) if norm else zero,
        mass=float(weight.sum()),
        numbers=frozenset(numbers),
        quantities=frozenset(quantities),
        identifiers=frozenset(identifiers),
        names=names & stem_set,
        classes={name: classes[name] for name in CLASSES},
        asks=frozenset(asks),
        negations=sum(1 for t in tokens if t in classes["negation"]),
        symbols=frozenset(text[:HEAD]) & _SYMBOLS,
        acknowledging=sum(1 for t in letters if t in table.acknowledgement) / len(letters) if letters else 1.0,
        pronouns=sum(1 for t in tokens if t in table.pronouns),
        question=stripped.endswith(("?", "？")),
        sentences=sentences,
        asking=_asking(sentences, table),
        unknown=frozenset(unknown),
        spelt=spelt,
        strange=spelt & unknown,
        opposable=frozenset(token for token in token_set if token in table.antonyms),
        prefixed=tuple(
            (root, root.removeprefix(prefix))
            for root in stem_set
            if root.startswith(table.negating_prefixes)
            for prefix in table.negating_prefixes
            if root.startswith(prefix)
        ),
    )
