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

__all__ = ["minds_courtesies", "plain"]

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


_ASKS: Final = frozenset(_EN["asks"].split())
_BEGINS: Final = _ASKS | frozenset(_EN["tells"].split())
_HEADS: Final = _BEGINS | frozenset(_EN["heads"].lower().split())
_EN_BEGIN: Final = rf"(?:{'|'.join(sorted(map(re.escape, _BEGINS), key=len, reverse=True))})(?![\w'])"
_ZH_BEGIN: Final = rf"(?:{_either('openers')})?(?:{'|'.join(sorted(_ZH['asks'].split(), key=len, reverse=True))})"
_LABELS: Final = rf"(?:{'|'.join(map(re.escape, _EN['labels'].split()))}): "
_BEGIN: Final = rf"(?=(?i:{_LABELS}{_EN_BEGIN})|(?i:{_EN_BEGIN})|[Mm]y [a-z]|{_ZH_BEGIN})"
# Behind it begins a new sentence; behind a comma (or a colon, where nothing but an announcement stands before it) or
# nothing, a question or an order.
_GREETING: Final = re.compile(
    rf"(?:{_either('greetings')})(?:[.!] +(?=[^\W\d_])|[！。!] *(?=[^\W\d_])|,? +{_BEGIN}|[,，] *{_BEGIN})"
)
_PREFACE: Final = re.compile(
    rf"(?:{_either('prefaces')})(?:[.!?] +(?=[^\W\d_])|[！。？] *(?=[^\W\d_])|[,:] +{_BEGIN}|[，：] *{_BEGIN})"
)
_BY_DAY: Final = re.compile(rf"(?:{_either('by_day')})(?:[.!,] +|[！。!，,] *)(?={_EN['timeless']}|{_ZH['timeless']})")
_DAILY: Final = re.compile(f"{_EN['daily']}|{_ZH['daily']}", re.IGNORECASE)
_ANNOUNCED: Final = re.compile(rf"(?:{_either('prefaces')}): +(?=[^\W\d_])")
_OPENER: Final = re.compile(rf"(?:{_either('openers')})[，,]? *{_BEGIN}")
_PLEASE_FIRST: Final = re.compile(rf"(?:{_either('please')}),? +{_BEGIN}")
_PLEASE_LAST: Final = re.compile(rf", (?:{_either('please')})(?=[.?]?$)")
_THANKS: Final = re.compile(
    rf"(?<=[.?!。？！]) ?(?:{_either('thanks')})(?: (?:{'|'.join(_EN['in_advance'])}))?[.!。！]?$"
)
_LABEL: Final = re.compile(rf"(?i:{_LABELS})(?=(?i:{_EN_BEGIN}))")
_I: Final = re.compile(rf"[Ii] (?:{'|'.join(_EN['head_i'].split())})\b")
_FIRST: Final = re.compile(r"[^\W\d_]+(?:'[a-z]+)?")
_HAN: Final = re.compile("[\u3400-\u9fff]")
_CHINESE_ASKS: Final = re.compile("[什怎哪谁几吗呢]|为何|如何|多少|是否|能否|可否")
# Behind a word only: "What is 5!?" asks for a factorial, and "??" may be an operator.
_END: Final = re.compile(r"(?<=[^\W\d_])[.?。？]$|(?<=[\d)\]）])[.?。？]$")
_STOP: Final = re.compile(r"(?<=[^\W\d_])[.。]$")
_LAID_OUT: Final = re.compile(r"[^\S ]|  ")
_HANDED_OVER: Final = re.compile("[:：\"`“”‘’「」『』{}\\\\]|(?:^|\\s)'|'(?:\\s|$)")
_OPERATORS: Final = re.compile("[<>=|]")  # of a question they are words, elsewhere they may be something to be read
_ABOUT_WORDS: Final = re.compile("|".join(table["words"] for table in (_EN, _ZH)), re.IGNORECASE)
_MINDED: Final = re.compile(
    r"please|thank|greet|polite|courte|manner|friendl|hello|\bhi\b|谢|问候|礼貌|你好|您好|请字"
    # The message itself is what is worked on:
    r"|translat|rewrit|rephras|paraphras|proofread|grammar|spell|summar|classif|categor|sentiment|\btone\b|label|echo"
    r"|(?<!not )(?<!n't )(?<!never )repeat"
    r"|revers|transcri|tokeni|\bcount\b|extract|翻译|改写|润色|校对|纠|语法|总结|摘要|分类|情感|语气|复述|重复|提取",
    re.IGNORECASE,
)


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
    if _ABOUT_WORDS.search(left):
        return None
    if _HANDED_OVER.search(left, begin):
        # To the letter, and only where nothing was taken from its end: that may be part of what is handed over.
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


@lru_cache(maxsize=256)
def minds_courtesies(instructions: str) -> bool:
    """Whether a system prompt speaks of courtesies, or of something to be done with the message itself (to translate
    it): they may matter to the answer then."""
    return _MINDED.search(instructions) is not None


def _less(text: str) -> str:
    """Take one courtesy away."""
    for form in (_GREETING, _PREFACE, _ANNOUNCED, _OPENER, _PLEASE_FIRST):
        found = form.match(text)
        if found is not None and found.end() < len(text):
            return text[found.end() :]
    greeted = _BY_DAY.match(text)
    if greeted is not None and not _DAILY.search(text, greeted.end()):
        return text[greeted.end() :]
    for form in (_THANKS, _PLEASE_LAST):
        found = form.search(text)
        if found is not None and found.start() > 0:
            return text[: found.start()] + text[found.end() :]
    return text
