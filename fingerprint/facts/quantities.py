"""Numbers with their units, ordinals, dates and times of day, whatever way they are written."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from fingerprint.facts.tables import Lexicon

__all__ = ["Quantity", "fold_numerals", "numbers_of", "times_of"]

_CURRENCY = r"[$€£¥₹₩]"
_NUMBER = re.compile(
    rf"({_CURRENCY})?\s?(?<![\d.])(?<!\d,)([-−+](?=\d)(?<![\w)]-))?"
    rf"(\d{{1,3}}(?:[, '’]\d{{3}}){{1,4}}(?!\d)(?:\.\d{{1,8}})?|\d{{1,15}}(?:\.\d{{1,8}})?|\.\d{{1,8}})"
    rf"\s?({_CURRENCY}|[%°]\s?[CFcf]?(?!\w)|[A-Za-z]{{1,14}}/?h?(?![A-Za-z]))?"
)
_CLOCK = re.compile(
    r"(?<![\d:.])([01]?\d|2[0-4])(?:[:h.]([0-5]\d))?(?::[0-5]\d)?\s?(a\.?m\.?|p\.?m\.?|o'?clock)(?![A-Za-z])|(?<![\d:])([01]?\d|2[0-4]):([0-5]\d)(?![\d:])",
    re.IGNORECASE,
)
_CLOCK_DIGITS = re.compile(r"(?<![\d:.])(\d{1,2})([0-5]\d)\s?(a|p)\.?m\b\.?", re.IGNORECASE)  # 730pm
_ISO = re.compile(r"(?<!\d)(\d{4})[-/.年](\d{1,2})[-/.月](\d{1,2})日?(?!\d)")
_DMY = re.compile(r"(?<![\d./])(\d{1,2})[./](\d{1,2})[./](\d{2,4})(?![\d./])")
_YEAR = re.compile(
    r"(?<![\d.€$£#-])(?<!\d,)(1[5-9]\d\d|20\d\d)(?:年|s)?(?![\d.,]\d|\s?(?:%|€|\$|£|[A-Za-z]{0,2}g\b|m\b|km|euro|pound|dollar|yuan|元|块|米|克))"
)
_ZH_MONTH_DAY = re.compile(r"(\d{1,2})月(?:份)?(?:(\d{1,2})[日号])?")
_ZH_DAY = re.compile(r"(?<![\d月])(\d{1,2})号(?![线楼门店院口库仓机])")
_ZH_CLOCK = re.compile(r"(\d{1,2})[点时](?!间|候|钟头)(?:(\d{1,2})分?|半)?")
_ZH_NUMERAL = re.compile(r"[零〇一壹二贰两三叁四肆五伍六陆七柒八捌九玖十拾百佰千仟万萬亿]{1,16}")
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_DIGIT_ORDINAL = re.compile(r"(?<![\w.])(\d{1,4})(?:st|nd|rd|th)(?!\w)", re.IGNORECASE)
_NEXT_WORD = re.compile(r"\s?(?:more\s|other\s|different\s|new\s|of\s)?([^\W\d_]{1,20})")
_NOT_COUNT_BEFORE = frozenset(
    [
        "the",
        "this",
        "that",
        "which",
        "no",
        "any",
        "every",
        "some",
        "each",
        "other",
        "another",
        "first",
        "second",
        "third",
        "last",
        "next",
        "only",
        "right",
        "wrong",
        "same",
        "good",
        "new",
        "old",
        "big",
        "small",
        "blue",
        "red",
        "number",
    ]
)
_NOT_COUNT_AFTER = frozenset(
    [
        "of",
        "more",
        "another",
        "that",
        "thing",
        "and",
        "or",
        "to",
        "is",
        "was",
        "in",
        "on",
        "with",
        "for",
        "day",
        "who",
        "from",
        "by",
        "at",
        "can",
        "you",
        "i",
        "please",
    ]
)


_MONTH_BEFORE = re.compile(
    r"(?:in|of|by|since|until|till|from|to|this|next|last|early|late|mid|and|or|every|for|before|after|during|end)[\s-]$",
    re.IGNORECASE,
)
_ZH_ORDINAL = re.compile(r"第\s?(\d{1,4})")


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number in base units: ``value`` of ``dimension`` ("time", "mass", "eur", "percent", "ordinal", "" for a count);
    ``noun`` is what is counted, where the next word says so; ``role`` is what the words around it make of it
    ("minimum", "maximum", "from", "to", "about", "rate", …). The role is no part of equality: "up to 5 kg" and
    "5 kg" hold the same amount."""

    value: float
    dimension: str
    noun: str = ""
    written: float = 0.0  # the number as it stands, before conversion to the base unit
    role: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.value:g} {self.dimension or self.noun}".strip()


def _ordinal(position: float) -> Quantity:
    return Quantity(position, "ordinal", "", position)


def times_of(text: str, words: Lexicon) -> tuple[tuple[str, ...], str]:
    """Dates and times of ``text`` as ``kind:value`` ("day:02-09", "year:2024", "weekday:1", "clock:19:30",
    "part:evening", "relative:+1d") and the text with the numeric ones blanked, same length."""
    found: list[str] = []

    def blank(match: re.Match[str]) -> str:
        return " " * len(match.group())

    def iso(match: re.Match[str]) -> str:
        found.extend((f"year:{match.group(1)}", f"day:{int(match.group(2)):02d}-{int(match.group(3)):02d}"))
        return blank(match)

    def dmy(match: re.Match[str]) -> str:
        year = match.group(3) if len(match.group(3)) == 4 else f"20{match.group(3)}"
        found.extend((f"year:{year}", f"day:{int(match.group(2)):02d}-{int(match.group(1)):02d}"))
        return blank(match)

    def digits(match: re.Match[str]) -> str:
        hour = int(match.group(1))
        if not 1 <= hour <= 12:
            return match.group()
        hour = hour % 12 + (12 if match.group(3).casefold() == "p" else 0)
        found.append(f"clock:{hour:02d}:{match.group(2)}")
        return blank(match)

    def clock(match: re.Match[str]) -> str:
        if match.group(4) is not None:
            found.append(f"clock:{int(match.group(4)):02d}:{match.group(5)}")
            return blank(match)
        hour, suffix = int(match.group(1)), match.group(3).casefold()
        if suffix.startswith("p") and hour < 12:
            hour += 12
        if suffix.startswith("a") and hour == 12:  # 12 am is midnight
            hour = 0
        found.append(f"clock:{hour:02d}:{match.group(2) or '00'}")
        return blank(match)

    rest = text
    any_digit = any(map(str.isdigit, text))
    if any_digit:
        rest = _ISO.sub(iso, rest)
        rest = _DMY.sub(dmy, rest)
        rest = _CLOCK.sub(clock, _CLOCK_DIGITS.sub(digits, rest))
        if words.language == "zh":
            rest = _chinese_dates(rest, found)
    if words.months:
        rest = _month_names(rest, words, found)

    def year(match: re.Match[str]) -> str:
        found.append(f"year:{match.group(1)}")
        return blank(match)

    if any_digit:
        rest = _YEAR.sub(year, rest)

    def named(match: re.Match[str]) -> str:
        word = match.group().casefold()
        if word in words.relative:
            found.append(f"relative:{words.relative[word]}")
        elif word in words.weekdays:
            found.append(f"weekday:{words.weekdays[word]}")
        elif word in words.parts:
            found.append(f"part:{words.parts[word]}")
        else:
            found.append(f"season:{words.seasons[word]}")
        return blank(match)

    rest = words.times.sub(lambda match: named(match), rest.casefold() if len(rest.casefold()) == len(rest) else rest)
    return tuple(dict.fromkeys(found))[:60], rest


def _chinese_dates(text: str, found: list[str]) -> str:
    def month_day(match: re.Match[str]) -> str:
        month = int(match.group(1))
        if not 1 <= month <= 12:
            return match.group()
        found.append(f"day:{month:02d}-{int(match.group(2)):02d}" if match.group(2) else f"month:{month}")
        return " " * len(match.group())

    def day(match: re.Match[str]) -> str:
        found.append(f"monthday:{int(match.group(1))}")
        return " " * len(match.group())

    def clock(match: re.Match[str]) -> str:
        if int(match.group(1)) > 24:
            return match.group()
        minutes = "30" if match.group().endswith("半") else match.group(2) or "00"
        found.append(f"clock:{int(match.group(1)):02d}:{int(minutes):02d}")
        return " " * len(match.group())

    return _ZH_CLOCK.sub(clock, _ZH_DAY.sub(day, _ZH_MONTH_DAY.sub(month_day, text)))


def _month_names(text: str, words: Lexicon, found: list[str]) -> str:
    blanks: list[tuple[int, int]] = []
    for match in _WORD.finditer(text):
        low = match.group().casefold()
        month = words.months.get(low)
        if month is None or (
            low in {"may", "march", "mar", "sep", "dec", "jan", "jun", "apr"}
            and not match.group()[0].isupper()
            and not _beside_digit(text, match)
        ):
            continue
        if (
            low in {"may", "march"}
            and not _beside_digit(text, match)
            and not _MONTH_BEFORE.search(text[max(0, match.start() - 12) : match.start()])
        ):
            continue  # "May I …", "March on …"
        after = re.match(r"\.?\s{0,2}(\d{1,2})(?:st|nd|rd|th)?(?![\d:.%])", text[match.end() : match.end() + 8])
        before = re.search(
            r"(?<!\d)(\d{1,2})(?:st|nd|rd|th)?\.?\s(?:of\s)?$", text[max(0, match.start() - 9) : match.start()]
        )
        start, end = match.start(), match.end()
        if before is not None and 1 <= int(before.group(1)) <= 31:
            found.append(f"day:{month:02d}-{int(before.group(1)):02d}")
            start -= len(before.group())
        elif after is not None and 1 <= int(after.group(1)) <= 31:
            found.append(f"day:{month:02d}-{int(after.group(1)):02d}")
            end += len(after.group())
        else:
            found.append(f"month:{month}")
        blanks.append((start, end))
    for start, end in blanks:
        text = text[:start] + " " * (end - start) + text[end:]
    return text


def _beside_digit(text: str, match: re.Match[str]) -> bool:
    around = text[max(0, match.start() - 7) : match.start()] + text[match.end() : match.end() + 4]
    return any(character.isdigit() for character in around)


def numbers_of(text: str, words: Lexicon) -> tuple[Quantity, ...]:
    """The quantities of ``text``, where dates and literals have been blanked."""
    found: list[Quantity] = []
    digits = any(map(str.isdigit, text))
    if words.language == "zh":
        found.extend(_ordinal(float(match.group(1))) for match in _ZH_ORDINAL.finditer(text))
        text = _ZH_ORDINAL.sub(lambda match: " " * len(match.group()), text)
    if digits:
        found.extend(_ordinal(float(match.group(1))) for match in _DIGIT_ORDINAL.finditer(text))
        text = _DIGIT_ORDINAL.sub(lambda match: " " * len(match.group()), text)
    text = _fold_words(text, words, found)
    for match in _NUMBER.finditer(text) if digits or any(map(str.isdigit, text)) else ():
        value = float(re.sub(r"[, '’]", "", match.group(3)))
        if match.group(2) in {"-", "−"}:
            value = -value
        dimension, noun, written = "", "", value
        unit = (match.group(4) or "").casefold().replace(" ", "")
        if match.group(1):
            unit, after = match.group(1), unit
            value *= {"k": 1e3, "m": 1e6, "bn": 1e9}.get(after, 1.0)
        elif unit == "k":
            unit, value = "", value * 1000
        known = words.units.get(unit) or (words.units.get(unit + "/h") if unit else None)
        if known is None and words.language == "zh":
            known = _chinese_unit(text[match.end(3) : match.end(3) + 4], words)
        if known is not None and not (
            unit in {"a", "s", "d", "m", "v", "t", "l"}
            and text[match.end(3) : match.end(3) + 1] == " "
            and unit in {"a", "s"}
        ):
            dimension, factor = known
            value *= factor
        else:
            following = _NEXT_WORD.match(text, match.end(3))
            noun = following.group(1).casefold() if following else ""
            if words.language == "zh":
                noun = noun[:1]
            elif noun in words.stop:
                noun = ""
            if noun in words.units:
                dimension, factor = words.units[noun]
                value, noun = value * factor, ""
        role = words.role(text[max(0, match.start() - 28) : match.start(3)], text[match.end(3) : match.end(3) + 28])
        found.append(Quantity(round(value, 6), dimension, noun, written, role))
        if len(found) >= 120:
            break
    return tuple(dict.fromkeys(found))


def _chinese_unit(after: str, words: Lexicon) -> tuple[str, float] | None:
    after = after.lstrip()
    for length in (3, 2, 1):
        known = words.units.get(after[:length])
        if known is not None:
            return known
    return None


def _fold_words(text: str, words: Lexicon, found: list[Quantity]) -> str:
    """Number words as digits in place ("six hundred and twenty" -> "620"); ordinals go to ``found``."""
    if words.language == "zh":
        return text
    pieces = list(_WORD.finditer(text))
    low_pieces = [piece.group().casefold() for piece in pieces]
    if words.ordinals.keys().isdisjoint(low_pieces) and words.number_words.keys().isdisjoint(low_pieces):
        return text
    out: list[str] = []
    position = 0
    at = 0
    while at < len(pieces):
        low = pieces[at].group().casefold()
        if (low in words.ordinals and low not in {"second"}) or (
            low == "second" and at and pieces[at - 1].group().casefold() in {"the", "a", "my", "every"}
        ):
            if low not in {"last", "first"} or (at and pieces[at - 1].group().casefold() == "the"):
                found.append(_ordinal(float(words.ordinals[low])))
            at += 1
            continue
        if low not in words.number_words:
            at += 1
            continue
        if low == "one" and not _one_counts(pieces, at, words):
            at += 1
            continue
        total, current, end = 0.0, words.number_words[low], at + 1
        while end < len(pieces) and len(text[pieces[end - 1].end() : pieces[end].start()].strip(" -")) == 0:
            word = pieces[end].group().casefold()
            if (
                word in words.number_words
                and word != "one"
                and (current % 100 == 0 or (current % 10 == 0 and current >= 20 and words.number_words[word] < 10))
            ):
                current += words.number_words[word]
            elif word in words.scales:
                current *= words.scales[word]
                if words.scales[word] >= 1000:
                    total, current = total + current, 0.0
            elif (
                word == "and"
                and current % 100 == 0
                and current
                and end + 1 < len(pieces)
                and pieces[end + 1].group().casefold() in words.number_words
                and pieces[end - 1].group().casefold() in words.scales
            ):
                pass
            else:
                break
            end += 1
        out.append(text[position : pieces[at].start()])
        out.append(f"{total + current:g}")
        position = pieces[end - 1].end()
        at = end
    out.append(text[position:])
    return "".join(out)


def _one_counts(pieces: list[re.Match[str]], at: int, words: Lexicon) -> bool:
    before = pieces[at - 1].group().casefold() if at else ""
    after = pieces[at + 1].group().casefold() if at + 1 < len(pieces) else ""
    if after in words.scales:
        return True
    return before not in _NOT_COUNT_BEFORE and bool(after) and after not in _NOT_COUNT_AFTER and after not in words.stop


_ZH_TENTH = re.compile(
    r"([零一二两三四五六七八九十百\d]{1,6})(米|块|元)([一二三四五六七八九\d])"
    r"(?![\d零一二三四五六七八九十百千万个条张件次人位名台点半元块米毛角分层楼号]|厘米|公分)"
)


def _tenths(text: str, words: Lexicon) -> str:
    """2米7 and 三块五 as 2.7米 and 3.5块."""

    def fold(match: re.Match[str]) -> str:
        whole, unit, tenth = match.groups()
        if not whole.isdigit():
            if any(character.isdigit() for character in whole):
                return match.group()
            whole = f"{_chinese_value(whole, words):.0f}"
        return (
            f"{whole}.{words.number_words.get(tenth, tenth):.0f}{unit}"
            if not tenth.isdigit()
            else f"{whole}.{tenth}{unit}"
        )

    return _ZH_TENTH.sub(fold, text)


def fold_numerals(text: str, words: Lexicon) -> str:
    """Chinese numerals as digits in place; words such as 一下 count nothing."""

    def fold(match: re.Match[str]) -> str:
        numeral = match.group()
        if text[match.start() - 1 : match.start()] in {"周", "期", "拜"}:
            return numeral
        around = text[max(0, match.start() - 2) : match.end() + 2]
        if len(numeral) <= 2 and any(idiom in around and numeral[0] in idiom for idiom in words.number_idioms):
            return numeral
        follows, before = text[match.end() : match.end() + 1], text[match.start() - 1 : match.start()]
        if (
            len(numeral) == 1
            and numeral not in words.scales
            and follows not in words.measures
            and before != "第"
            and not before.isdigit()
        ):
            return numeral  # part of a name (三体), not a count
        if all(character in words.scales for character in numeral) and numeral not in {"十", "拾"}:
            before = text[match.start() - 1 : match.start()]
            return (
                {"万": "0000", "千": "000", "百": "00", "亿": "00000000"}.get(numeral, numeral)
                if before.isdigit()
                else numeral
            )
        value = _chinese_value(numeral, words)
        return f"{value:.0f}"

    return _ZH_NUMERAL.sub(fold, _tenths(text, words))


def _chinese_value(numeral: str, words: Lexicon) -> float:
    if not any(character in words.scales for character in numeral):
        return float("".join(f"{words.number_words[character]:.0f}" for character in numeral))
    total, section, digit = 0.0, 0.0, 0.0
    for character in numeral:
        if character in words.number_words:
            digit = words.number_words[character]
            continue
        scale = words.scales[character]
        if scale >= 10000:
            total, section, digit = (total + section + digit) * scale, 0.0, 0.0
        else:
            section, digit = section + (digit or 1.0) * scale, 0.0
    if digit and len(numeral) >= 2 and numeral[-2] in words.scales and words.scales[numeral[-2]] >= 100:
        digit *= words.scales[numeral[-2]] / 10  # 三万五 is 35,000
    return total + section + digit
