"""Guard on slight differences: one small word or one ending, in short questions of otherwise the same words.

"Who wrote Faust?" and "Who wrote about Faust?", Alien and Aliens, Prince and the prince, 猫怕狗 and 狗怕猫: a model
that weighs what two messages share sees next to nothing there, and the question is another one. Where the difference
would have been harmless ("search for a person") a veto costs a miss.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from fingerprint.facts.relation import Relation
from fingerprint.facts.wording import DETERMINERS, WORD

__all__ = ["slight_relation"]

_MOST: Final = 16  # words, or Chinese characters, of what counts as short
_SHORT: Final = 60  # characters of a question in which who gives and who gets is the matter
_LONGEST: Final = 400  # characters that are looked at
_HAN: Final = re.compile(r"[\u3400-\u9fff]")
_SMALL: Final = frozenset(
    [
        "about", "for", "with", "on", "in", "of", "by", "at", "against", "without", "from", "to", "into", "onto",
        "over", "through", "after", "before", "under", "as", "than", "off", "out", "up", "down", "around", "across",
        "along", "behind", "beside", "between", "near", "since", "until", "upon", "within",
    ]
)  # fmt: skip
# Before these a preposition may stand or not: (on) Monday, (at) what time.
_OPTIONAL_BEFORE: Final = re.compile(
    r"\d.*|what|which|each|every|next|last|this|today|tonight|tomorrow|yesterday|noon|weekends?|time|"
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?|january|february|march|april|may|june|july|august|september|october|"
    r"november|december"
)
_OPTIONAL_AFTER: Final = {
    "to": frozenset(["help", "helps", "me", "us"]),
    "of": frozenset(["all", "both", "outside", "inside", "off"]),
}
# One for the other hardly says anything else.
_ALIKE: Final = frozenset(
    frozenset(pair.split())
    for pair in (
        "in into", "on onto", "on upon", "in at", "in on", "on at", "to into", "in within", "by near", "of in", "of on",
        "of for", "for to", "by until", "from of", "near around", "along across", "by with", "in for", "on for",
    )
)  # fmt: skip
_FEW: Final = (("a", "few"), ("a", "little"))
_ENDING: Final = re.compile("(?<=[a-z]{2})(?:es|ed|ing|s|d|e)$")
_DO: Final = frozenset(["do", "does", "did"])
_PREFIXES: Final = frozenset(
    ["re", "un", "dis", "mis", "over", "under", "pre", "non", "in", "im", "de", "out", "sub", "anti"]
)
_ASIDE: Final = frozenset(["do", "mean", "look", "cost", "stand", "say", "feel", "have", "has", "had"])
_PASSIVE: Final = frozenset(["is", "are", "was", "were", "be", "been", "being", "by"])
_JOINING: Final = re.compile("[和与跟及或同的]|还是|什么|怎么|为何|[哪谁几]")
_ASKED: Final = re.compile("什么|怎么|哪|几|多少|为何|如何")  # 什么是篮球 asks what 篮球是什么 asks
_WHOSE: Final = re.compile("(.+)是(谁|什么|哪里|哪儿|哪个)的(.+)")
_MOOD: Final = re.compile("[吗呢啊呀吧]+$")
_INSTITUTION: Final = re.compile(
    "大学|学院|银行|日报|晚报|电视台|出版社|航空|饭店|宾馆|集团|公司|医院|机场|铁路|动物园"
)
# One word for both sides of a loan or a lease: who gives is told by the words around it alone.
_LENDS_OR_BORROWS: Final = re.compile(
    r"[借租](?![款条据金客])|\b(?:rent|leas|hir|lend|borrow|sublet)(?:e|s|es|ed|ing|ting)?\b", re.I
)
_PEOPLE: Final = (
    r"(?:some(?:one|body)|anyone|others?|another|people|persons?|friends?|famil(?:y|ies)|neighbou?rs?|tenants?|guests?"
    r"|strangers?|students?|colleagues?|compan(?:y|ies)|him|her|them)"
)
_LENDS: Final = re.compile(
    r"[借租](?![款条据金客])[^，。？?！!]{0,10}给|给[^，。？?！!]{1,8}[借租](?![款条据金客])|[出外][借租]|转租"
    r"|\b(?:lends?|sublet(?:s|ting)?)\b"
    rf"|\b(?:rent|leas|hir)(?:e|s|es|ed|ing|ting)?\b.*\b(?:out|to (?:(?!do)\w+ ){{0,2}}{_PEOPLE})\b",
    re.I,
)
_SUFFERS: Final = re.compile(
    "被(?![子褥套罩单])[^，。？?！!被]{0,6}?([\u3400-\u9fff]{2})(?=了|过|吗|怎|[，。？?！!]|$)"
)
_SERVES: Final = re.compile("([\u3400-\u9fff]{1,4})(?:怎么|怎样|如何|能不能|可以)给[我咱他她]")
_CAUSES: Final = re.compile(
    r"\b(?:get|gets|getting|have|make|makes|ask|convince|persuade|force|let)\s+(?:\w+['’]?\w*\s+){1,3}?(?:to\s+)?(?=\w)"
    r"|\bfor (?:my|our|a|an|the|his|her|their) \w+ to\b",
    re.I,
)
_HELPERS: Final = frozenset(
    ["get", "gets", "getting", "have", "make", "makes", "ask", "let", "to", "for", "my", "our", "me", "i", "a", "an",
     "the", "s", "his", "her", "their", "us", "we"]
)  # fmt: skip
_TWO_DEEDS: Final = re.compile("(?<=[么样何能以我想要])([\u3400-\u9fff]{2})([\u3400-\u9fff]{2})(?=过?的)")
_ASIDE_ZH: Final = re.compile("[让叫我给跟向帮对了]")
_WORDS_OF_TWO: Final = 4
_STAGE: Final = re.compile(r"\b(?:done|finish(?:ed|ing)?|about to|planning to|used to|stopped|quit|no longer)\b", re.I)
_STAGES: Final = frozenset(
    ["done", "finish", "finished", "finishing", "about", "to", "planning", "used", "stopped", "quit", "no", "longer",
     "i", "i'm", "i've", "am", "have", "just", "my", "with", "been", "being", "start", "starting", "taking", "on"]
)  # fmt: skip
_FINE: Final = Relation("slight", "compatible", "No small word or ending makes another question of the same words.")


def slight_relation(mine: str, theirs: str) -> Relation:
    """Compare two messages; symmetric. Only short ones of otherwise the same words can conflict."""
    mine, theirs = mine[: _LONGEST + 1], theirs[: _LONGEST + 1]
    if mine == theirs or max(len(mine), len(theirs)) > _LONGEST:
        return _FINE
    if found := _other_side(mine, theirs) or _other_side(theirs, mine):
        return Relation("slight", "conflict", found)
    found = _chinese(mine, theirs) if _HAN.search(mine) and _HAN.search(theirs) else _words(mine, theirs)
    return Relation("slight", "conflict", found) if found else _FINE


def _other_side(one: str, other: str) -> str:
    """Whether one lends what the other borrows, or suffers what the other does."""
    if max(len(one), len(other)) > _SHORT or abs(len(one) - len(other)) > _SHORT // 6:
        return ""
    both = _LENDS_OR_BORROWS.search(one) and _LENDS_OR_BORROWS.search(other)
    if both and _LENDS.search(one) and not _LENDS.search(other):
        return "One gives what the other gets."
    serving = _SERVES.search(one)
    if serving and f"给{serving[1]}" in other:
        return f"{serving[1]} does in one what is done for {serving[1]} in the other."
    suffered = _SUFFERS.search(one)
    if suffered and "被" not in other and suffered[1] in other:
        return "One suffers what the other does."
    return ""


def _words(mine: str, theirs: str) -> str:
    a, b = WORD.findall(mine), WORD.findall(theirs)
    if not a or not b or max(len(a), len(b)) > _MOST:
        return ""
    if found := _other_part(mine, theirs, [[w.casefold() for w in words] for words in (a, b)]):
        return found
    if abs(len(a) - len(b)) > 2:
        return ""
    bare = [[w for w in words if w.casefold() not in DETERMINERS] for words in (a, b)]
    low = [[w.casefold() for w in words] for words in bare]
    if not all(low):
        return ""
    if low[0] == low[1]:
        few = [any(pair in _FEW for pair in pairwise(w.casefold() for w in words)) for words in (a, b)]
        return "A few is not few." if few[0] != few[1] else _named_by_article(a, b)
    if abs(len(low[0]) - len(low[1])) == 1:
        longer, shorter = sorted(low, key=len, reverse=True)
        at = _inserted(longer, shorter)
        if at is not None and longer[at] in _SMALL and not _optional(longer, at):
            return f"Only one message says {longer[at]}."
    at = _exchanged_word(low[0], low[1])
    if at is not None and (
        _other_name(bare[0], bare[1], at) or _other_small(low[0], low[1], at) or _prefixed(low[0][at], low[1][at])
    ):
        return f"{bare[0][at]} is not {bare[1][at]}."
    shared = frozenset.intersection(*(frozenset(w.removesuffix("'s") for w in words) for words in low)) - _PASSIVE
    if {low[0][0], low[1][0]} in ({"whose", "who"}, {"whose", "who's"}) and len(shared) > 1:
        return "One asks whose it is, the other who it is."
    active = [[_ENDING.sub("", w) for w in words if w not in _PASSIVE] for words in low]
    if active[0] == active[1] and ("by" in low[0]) != ("by" in low[1]):
        return "Who does it to whom has changed places."
    if _parts_exchanged(*low) or _parts_exchanged(*reversed(low)):
        return "Who or what does it, and to whom, have changed places."
    first, second = ([w for w in words if w != "by"] for words in low)
    apart = _acting(first, second)
    return f"{apart[0]} is not {apart[1]}." if apart else ""


def _other_part(mine: str, theirs: str, low: Sequence[Sequence[str]]) -> str:
    """Whether only one message has somebody else do it ("get my landlord to return my deposit"), or is past it ("I'm
    done taking it")."""
    if bool(_CAUSES.search(mine)) != bool(_CAUSES.search(theirs)):
        one, other = ({part for w in words for part in re.split("['’]", w)} - _HELPERS for words in low)
        if one == other:
            return "Somebody else does it in one message alone."
    if bool(_STAGE.search(mine)) != bool(_STAGE.search(theirs)) and {*low[0]} - _STAGES == {*low[1]} - _STAGES:
        return "It is over, or has not begun, in one message alone."
    return ""


def _inserted(longer: Sequence[str], shorter: Sequence[str]) -> int | None:
    """The place of the one word that only ``longer`` has; None where there is more to it."""
    at = next((n for n, (x, y) in enumerate(zip(longer, shorter, strict=False)) if x != y), len(shorter))
    return at if list(longer[at + 1 :]) == list(shorter[at:]) else None


def _exchanged_word(a: Sequence[str], b: Sequence[str]) -> int | None:
    """The place of the one word in which equally many differ; None where there is more to it."""
    apart = [n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y]
    return apart[0] if len(a) == len(b) and len(apart) == 1 else None


def _optional(words: Sequence[str], at: int) -> bool:
    after = words[at + 1] if at + 1 < len(words) else ""
    before = words[at - 1] if at else ""
    return bool(
        (after and _OPTIONAL_BEFORE.fullmatch(after))
        or before in _OPTIONAL_AFTER.get(words[at], ())
        or (not after and words[0] in ("where", "where's") and words[at] == "at")
    )


def _named_by_article(a: Sequence[str], b: Sequence[str]) -> str:
    """Whether an article that one side has makes a name or unmakes one: Prince, the prince; Heat, The Heat."""
    if not (a[0][0].isupper() and b[0][0].isupper()):
        return ""  # whoever writes all small says nothing by it
    for one, two in ((a, b), (b, a)):
        plain = [w for w in two if w.casefold() not in DETERMINERS]
        before = {word for article, word in pairwise(w.casefold() for w in two) if article in DETERMINERS}
        written = {w.casefold(): w for w in plain}
        for article, word in pairwise(one[1:]):
            if article.casefold() not in DETERMINERS or word.casefold() in before:
                continue
            other = written.get(word.casefold(), word)
            name = word[0].isupper() and not word.isupper()  # the Amazon is not Amazon, the FBI is FBI
            if article[0].isupper() or name or word[0].isupper() != other[0].isupper():
                return f"{article} {word} is not {other}."
    return ""


def _other_name(a: Sequence[str], b: Sequence[str], at: int) -> bool:
    """Whether two names differ by a plural s: in mid-sentence, where not every word has a capital."""
    one, two = a[at], b[at]
    short, long = sorted((one.casefold(), two.casefold()), key=len)
    if at == 0 or long not in (f"{short}s", f"{short}es") or not (one[0].isupper() or two[0].isupper()):
        return False
    if not (a[0][0].isupper() and b[0][0].isupper()):
        return False
    return any(w[0].islower() for n, w in enumerate(a) if n != at and len(w) > 1)


def _other_small(a: Sequence[str], b: Sequence[str], at: int) -> bool:
    """Whether two prepositions stand for one another that hardly ever mean the same: for, against; at, like."""
    pair = frozenset((a[at], b[at]))
    return pair <= _SMALL | {"like"} and pair not in _ALIKE and not _optional(a, at)


def _prefixed(one: str, other: str) -> bool:
    """Whether one word is the other with a prefix: discovered, rediscovered; cook, undercook."""
    short, long = sorted((one, other), key=len)
    return len(short) > 3 and long.endswith(short) and long.removesuffix(short) in _PREFIXES


def _parts_exchanged(asked: Sequence[str], other: Sequence[str]) -> bool:
    """Whether ``asked`` asks after the object, and ``other``, of the same words, after the subject: "What does winter
    follow?", "What follows winter?"; "What is Spain north of?", "What is north of Spain?"."""
    if asked[0] != other[0] or asked[0] not in ("who", "what", "which"):
        return False
    if (
        len(asked) > 3  # who taught Aristotle, who did Aristotle teach: whatever the verbs' forms
        and asked[1] in _DO
        and asked[2:-1] == other[2:]
        and other[1] not in _PASSIVE | _DO | _ASIDE
        and asked[-1] not in _ASIDE | _SMALL
    ):
        return True
    helped = not _DO.isdisjoint(asked) and _DO.isdisjoint(other)
    stranded = asked[-1] in _SMALL and other[-1] not in _SMALL
    if not helped and not stranded:
        return False
    if stranded and asked[-1] not in other:
        asked = asked[:-1]
    one, two = ([_ENDING.sub("", w) for w in words if w not in _PASSIVE | _DO] for words in (asked, other))
    return one != two and sorted(one) == sorted(two)


def _acting(a: Sequence[str], b: Sequence[str]) -> tuple[str, str] | None:
    """Who does it and to whom it is done: interviewing, interviewed."""
    at = _exchanged_word(a, b)
    if at is None:
        return None
    doing, done = sorted((a[at], b[at]), key=lambda w: not w.endswith("ing"))
    return (a[at], b[at]) if doing.endswith("ing") and done == f"{doing[:-3]}ed" and len(doing) > 5 else None


def _chinese(mine: str, theirs: str) -> str:
    a, b = (_MOOD.sub("", "".join(c for c in text.casefold() if c.isalnum())) for text in (mine, theirs))
    if a == b or max(len(a), len(b)) > _MOST:
        return ""
    if exchanged := _exchanged(a, b):
        return f"{exchanged[0]} and {exchanged[1]} have changed places."
    for one, two in ((a, b), (b, a)):
        whose = _WHOSE.fullmatch(one)
        if whose and two == f"{whose[1]}的{whose[3]}是{whose[2]}":
            return "One asks whose it is, the other who or what it is."
        if len(one) > 3 and one.startswith(("怎么样", "怎样")) and two.endswith("怎么样"):
            return "One asks how to do it, the other how it is."
        if (
            "什么" in one
            and one.replace("什么", "", 1) == two
            and theirs.rstrip("？?。 ").endswith("吗") != mine.rstrip("？?。 ").endswith("吗")
        ):
            return "One asks what, the other whether."
    if found := _chinese_part(a, b) or _chinese_part(b, a):
        return found
    longer, shorter = sorted((a, b), key=len, reverse=True)
    if longer == f"{shorter}来的":
        return "One asks where something comes from."
    if len(longer) == len(shorter) + 1:
        at = _inserted(longer, shorter)
        if at is not None and longer[at] == "的" and _INSTITUTION.match(longer, at + 1):
            return f"{shorter} names what {longer} describes."
    return ""


def _chinese_part(a: str, b: str) -> str:
    """Who does it in ``a`` and has it done in ``b``, or what is to be done here and has been done there:
    让房东退我押金, 退房东押金; 喜欢我的人, 我喜欢的人; 恢复删除的照片, 删除恢复的照片; 感冒好了, 感冒了."""
    for found in _TWO_DEEDS.finditer(a):
        if b == f"{a[: found.start()]}{found[2]}{found[1]}{a[found.end() :]}":
            return f"{found[1]} and {found[2]} have changed places."
    at = a.find("我的")
    if at > 0 and any(b == f"{a[: at - n]}我{a[at - n : at]}的{a[at + 2 :]}" for n in range(1, min(at, 4) + 1)):
        return "Who does it and to whom have changed places."
    if "好了" in a and b in (a.replace("好了", "了", 1), a.replace("好了", "", 1)):
        return "It is over in one message alone."
    rest = [_ASIDE_ZH.sub("", text) for text in (a, b)]
    if sorted(rest[0]) == sorted(rest[1]):
        if ("让" in a or "叫" in a) and "让" not in b and "叫" not in b:
            return "Somebody else does it in one message alone."
        if "我" in a and "我" not in b and rest[0] != rest[1] and len(a) > _WORDS_OF_TWO:
            return "In one message I do it, in the other it happens."
    return ""


def _exchanged(a: str, b: str) -> tuple[str, str] | None:
    """What stands on either side of the same word, the other way round in the other message: 猫怕狗, 狗怕猫."""
    if len(a) != len(b) or sorted(a) != sorted(b):
        return None
    start = next(n for n, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)
    end = next(n for n, (x, y) in enumerate(zip(a[::-1], b[::-1], strict=True)) if x != y)
    return _turned(a, b) or _turned(a[start : len(a) - end], b[start : len(b) - end])


def _turned(a: str, b: str) -> tuple[str, str] | None:
    for first in range(1, len(a) - 1):
        head = a[:first]
        if not b.endswith(head):
            continue
        for last in range(1, len(a) - first):
            tail, between = a[len(a) - last :], a[first : len(a) - last]
            if b != f"{tail}{between}{head}" or _JOINING.search(between):
                continue
            if not _ASKED.search(f"{head} {tail}") and not ("谁" in (head, tail) and between == "是"):
                return head, tail
    return None
