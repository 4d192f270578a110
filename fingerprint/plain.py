"""A question without the courtesies around it: "Hi! How do I reset it? Thanks!" asks "how do I reset it".

Two messages at one place of a conversation that are plainly the same have the same answer; no model need be asked.
So only what means nothing whatever stands beside it is taken away: a greeting, a preface ("quick question:"), thanks, a
please before a question or an order, a final full stop, the question mark of a sentence that is a question without it,
its first capital. Everything else, case included, stays. Where something is quoted or handed over only what stands
before it all is taken away; where the words themselves may be the matter (a text to translate, what is polite, how many
words), or something is laid out, nothing is said at all.
"""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache
from importlib import resources
from typing import Any, Final

__all__ = ["is_material", "minds_courtesies", "plain"]

_LONGEST: Final = 300  # characters; in a longer message a courtesy is the least of what may differ
_LEAST_WORDS: Final = 3  # of what is left; less than that stands for too much
_LEAST_CHINESE: Final = 2  # two characters count as a word
_MOST_TAKEN: Final = 4


_TABLES: Final[dict[str, dict[str, Any]]] = tomllib.loads(
    resources.files(__package__).joinpath("courtesies.toml").read_text("utf-8")
)
_EN, _ZH = _TABLES["en"], _TABLES["zh"]


def _either(name: str) -> str:
    return "|".join(f"(?:{form})" for table in _TABLES.values() for form in table[name])


def _any_of(*names: str) -> re.Pattern[str]:
    return re.compile("|".join(table[name] for table in (_EN, _ZH) for name in names), re.IGNORECASE)


_ASKS: Final = frozenset(_EN["asks"].split())
_BEGINS: Final = _ASKS | frozenset(_EN["tells"].split())
_HEADS: Final = _BEGINS | frozenset(_EN["heads"].lower().split())
_EN_BEGIN: Final = rf"(?:{'|'.join(sorted(map(re.escape, _BEGINS), key=len, reverse=True))})(?![\w'])"
_ZH_BEGIN: Final = rf"(?:{_either('openers')})?(?:{'|'.join(sorted(_ZH['asks'].split(), key=len, reverse=True))})"
_LABELS: Final = rf"(?:{'|'.join(map(re.escape, _EN['labels'].split()))}): "
# A title has capitals: "Hello, Is It Me You're Looking For".
_BEGIN: Final = rf"(?![A-Z][\w']* (?!I\b)[A-Z][a-z])(?=(?i:{_LABELS}{_EN_BEGIN})|(?i:{_EN_BEGIN})|{_ZH_BEGIN})"
_BEGINS_WITH: Final = re.compile(_BEGIN)
# Behind it begins a new sentence; behind a comma (or a colon, where nothing but an announcement stands before it) or
# nothing, a question or an order.
_PLAINLY: Final = (
    rf"(?=[a-z]|(?:{'|'.join(_EN['plainly'].split())})\b|[{_ZH['plainly'].replace(' ', '')}]"
    rf"|{_either('prefaces')}|{_BEGIN})"
)
_GREETING: Final = re.compile(
    rf"(?:{_either('greetings')})(?:[.!] +{_PLAINLY}|[！。!] *{_PLAINLY}"
    rf"|,? +{_BEGIN}|[,，] *{_BEGIN}|, +(?=[Mm]y [a-z]))"
)
_PREFACE: Final = re.compile(
    rf"(?:{_either('prefaces')})(?:[.!?] +(?=[^\W\d_])|[！。？] *(?=[^\W\d_])|[,:] +{_BEGIN}|[，：] *{_BEGIN})"
)
_BY_DAY: Final = re.compile(rf"(?:{_either('by_day')})(?:[.!,] +|[！。!，,] *)(?={_EN['timeless']}|{_ZH['timeless']})")
_DAILY: Final = _any_of("daily")
_ANNOUNCED: Final = re.compile(rf"(?:{_either('prefaces')}): +(?=[^\W\d_])")
_OPENER: Final = re.compile(rf"(?:{_either('openers')})[，,]? *{_BEGIN}")
_PLEASE_FIRST: Final = re.compile(rf"(?:{_either('please')}),? +{_BEGIN}")
_PLEASE_LAST: Final = re.compile(rf", (?:{_either('please')})(?=[.?]?$)")
_THANKS: Final = re.compile(
    rf"(?<=[.?!。？！]) ?(?:{_either('thanks')})(?: (?:{'|'.join(_EN['in_advance'])}))?[.!。！]?$"
)
# Without a mark before it only where it says what for.
_THANKS_FOR: Final = re.compile(rf"(?<=\w) (?:Thanks|Thank you) (?:{'|'.join(_EN['in_advance'])})[.!]?$")
_LABEL: Final = re.compile(rf"(?i:{_LABELS})(?=(?i:{_EN_BEGIN}))")
_I: Final = re.compile(rf"[Ii] (?:{'|'.join(_EN['head_i'].split())})\b")
_FIRST: Final = re.compile(r"[^\W\d_]+(?:'[a-z]+)?(?![.\w(\[-])")
_HAN: Final = re.compile("[\u3400-\u9fff]")
_CHINESE_ASKS: Final = re.compile("[什怎哪谁几吗呢]|为何|如何|多少|是否|能否|可否")
# Behind a word only: "What is 5!?" asks for a factorial, and "??" may be an operator.
_END: Final = re.compile(r"(?<=[^\W\d_])[.?。？]$|(?<=[\d)\]）])[.?。？]$")
_STOP: Final = re.compile(r"(?<=[^\W\d_])[.。]$")
_LAID_OUT: Final = re.compile(r"[^\S ]|  ")
_HANDED_OVER: Final = re.compile("[:：\"`“”‘’「」『』{}\\\\]|(?:^|\\s)'|'(?:\\s|$)")
_OPERATORS: Final = re.compile("[<>=|]")  # of a question they are words, elsewhere they may be something to be read
_ABOUT_WORDS: Final = _any_of("words")

_MINDED: Final = _any_of("minded", "material", "instructed")
_MATERIAL: Final = _any_of("material")
_WANTS_A_TEXT: Final = _any_of("wants")
_SENTENCE_END: Final = re.compile(r"(?<=[.?!]) +|(?<=[。？！]) *")
_LATER_HANDED_OVER: Final = re.compile('[.?!。？！] .*[:："“「『]|[:：]$')


@lru_cache(maxsize=4096)
def plain(text: str) -> str | None:
    """Return the question without its courtesies; None where that is not to be said.

    Idempotent. Never longer than ``text`` without the spaces around it.
    """
    left = text.strip(" ")
    if len(left) > _LONGEST or _LAID_OUT.search(left):
        return None
    for _ in range(_MOST_TAKEN):
        less = _less(left)
        if less == left:
            break
        left = less
    else:
        return None
    label = _LABEL.match(left)
    begin = label.end() if label else 0
    if _ABOUT_WORDS.search(left, begin):
        return None
    if _HANDED_OVER.search(left, begin):
        # To the letter, and only where nothing was taken from its end: that may be part of what is handed over; as may
        # be what stands before it, unless it is a sentence with it.
        if _LATER_HANDED_OVER.search(left, begin):
            return None
        return left if text.rstrip(" ").endswith(left) and len(left.split()) >= _LEAST_WORDS else None
    word = _FIRST.match(left, begin)
    first = word[0].lower() if word else ""
    han = len(_HAN.findall(left))
    asks = first in _ASKS or (han > 0 and _CHINESE_ASKS.search(left) is not None)
    if not asks and _OPERATORS.search(left):
        return None
    left = (_END if asks else _STOP).sub("", left)
    if first in _HEADS or _I.match(left):
        left = left[:begin].lower() + left[begin : begin + 1].lower() + left[begin + 1 :]
    words = len(_HAN.sub(" ", left).split()) + han // 2
    return left if words >= (_LEAST_CHINESE if han else _LEAST_WORDS) else None


@lru_cache(maxsize=1024)
def minds_courtesies(instructions: str) -> bool:
    """Whether a system prompt speaks of courtesies, or of something to be done with the message itself (to translate
    it): they may matter to the answer then."""
    return _MINDED.search(instructions) is not None


@lru_cache(maxsize=1024)
def is_material(said: str, *, reply: bool) -> bool:
    """Whether what was said earlier makes the next message something to be worked on ("Translate all I write"); with
    ``reply`` it is the assistant's, who may ask for a text."""
    return (_WANTS_A_TEXT if reply else _MATERIAL).search(said) is not None


def _less(text: str) -> str:
    """Take one courtesy away."""
    for form in (_GREETING, _PREFACE, _ANNOUNCED, _OPENER, _PLEASE_FIRST):
        found = form.match(text)
        if found is not None and found.end() < len(text):
            return text[found.end() :]
    greeted = _BY_DAY.match(text)
    if greeted is not None and not _DAILY.search(text, greeted.end()):
        return text[greeted.end() :]
    for form in (_THANKS, _THANKS_FOR, _PLEASE_LAST):
        found = form.search(text)
        if found is not None and found.start() > 0 and _ends_in_a_question(text[: found.start()]):
            return text[: found.start()] + text[found.end() :]
    return text


def _ends_in_a_question(text: str) -> bool:
    """Whether a text is one sentence, or a story and then the only question or order: behind "Is this polite? Send it."
    a thank-you belongs to what is asked about."""
    *before, last = [part for part in _SENTENCE_END.split(text) if part]
    if not before:
        return True
    asks = last.endswith(("?", "？")) or _BEGINS_WITH.match(last) is not None
    return asks and not any(part.endswith(("?", "？")) for part in before)
