"""What a message quotes character for character: code, URLs, paths, ids, versions, quotations, given text, emoji.

Every pattern is linear: no nested repetition, every repetition bounded or over a class that cannot match what
follows it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fingerprint.facts.tables import Lexicon

__all__ = ["Literals", "literals_of", "plain"]

_FENCE = re.compile(r"```[^\n`]{0,40}\n?(.{0,8000}?)```", re.DOTALL)
_INLINE = re.compile(r"`([^`\n]{1,400})`")
_URL = re.compile(
    r"(?:https?|ftp|wss?|file|s3)://[^\s<>\"'，。、）)]{1,1000}|(?<![\w@.])www\.[^\s<>\"'，。、）)]{1,300}",
    re.IGNORECASE,
)
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,32}){1,4}")
_DOMAIN = re.compile(
    r"(?<![\w@.-])[a-z0-9-]{1,40}(?:\.[a-z0-9-]{1,40}){0,3}\.(?:com|org|net|io|dev|de|cn|uk|eu|edu|gov|local|internal)(?![\w-])",
    re.IGNORECASE,
)
_PATH = re.compile(
    r"(?<![\w/.])(?:~|\.{1,2})?/(?:[\w.@+-]{1,80}/){0,12}[\w.@+*-]{1,80}/?|(?<!\w)[A-Za-z]:\\[^\s\"'<>|]{1,200}"
)
_FILE = re.compile(
    r"(?<![\w./@-])[\w-]{1,60}\.(?:py|js|ts|tsx|jsx|json|ya?ml|toml|csv|txt|md|html?|css|xml|sh|sql|java|kt|go|rs|cpp|cc|hpp|rb|php|ini|cfg|conf|log|pdf|docx?|xlsx?|pptx?|png|jpe?g|gif|svg|mp[34]|zip|gz|tar|exe|dll|so|lock|env)(?![\w])",
    re.IGNORECASE,
)
_FLAG = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]{0,40}(?![\w-])")
_CALL = re.compile(r"(?<!\w)=?[A-Za-z_][\w.]{0,60}\([^()\n]{0,120}\)")
_IDENTIFIER = re.compile(
    r"(?<![\w.])(?:[A-Za-z]{1,40}_\w{1,60}|_{1,2}[A-Za-z]\w{0,40}|[a-z]{2,20}(?:[A-Z][a-z0-9]{1,20}){1,5}|[A-Za-z_]{2,30}\.[a-z_]{2,30}\.?[a-z_]{0,30}(?=\())(?!\w)"
)
_OPERATOR = re.compile(
    r"(?<![=!<>+\-*/&|:])(?:===|!==|==|!=|<=|>=|=>|->|&&|\|\||::|:=|\+=|-=|\*\*|<<|>>|\+\+|--(?=\s|$)|//)(?![=!<>&|:])|(?<=\s)[<>](?=\s)"
)
# Names that end in a symbol: C++, C#, F#, .NET; and the one-letter languages they are mixed up with.
_SYMBOL_NAME = re.compile(
    r"(?<![\w+#])(?:[A-Za-z]{1,2}(?:\+\+|#)|\.NET)(?![\w+#])|(?<![\w'’.+#/-])[CRD](?=\s(?:language|code|program|compiler|语言|compile|function|string|array|header))"
)
_UUID = re.compile(r"(?<![\w-])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![\w-])", re.IGNORECASE | re.ASCII)
_ID = re.compile(
    r"(?<![\w.])#\s?[A-Za-z]{0,8}-?\d[\w-]{0,30}"  # #ORD-789, #42
    r"|(?<![\w.-])[A-Za-z]{1,8}(?:-[A-Za-z]{1,6})?-\d[\w-]{0,30}"  # SUP-4471
    r"|(?<![\w.-])0x[0-9a-fA-F]{2,16}(?!\w)"
    r"|(?<![\w.-])(?=[A-Za-z0-9]{2,40}(?![\w]))(?:[A-Za-z]{1,20}\d[A-Za-z0-9]{0,38}"
    r"|\d{1,20}[A-Za-z]{1,3}\d[A-Za-z0-9]{0,20})"  # E18, KL4T9, 4G5
    r"|(?<![\w.,-])\d{7,24}(?![\w.,])",  # a long run of digits is a name, not a quantity
    re.ASCII,  # Chinese writes no space before or after one
)
_VERSION = re.compile(
    r"(?<![\w.])v\.?\s?(\d{1,4}(?:\.\d{1,4}){0,3})(?![\w.]*\w)"
    r"|(?<![\w.])(?:version|release|版本|版)\s?(\d{1,4}(?:\.\d{1,4}){0,3})(?!\d)"
    r"|(?<![\w.])(\d{1,4}(?:\.\d{1,4}){2,3})(?![\w.]*\w)",
    re.IGNORECASE,
)
# "Python 3.8", "Postgres 16": a name directly before a small number.
_NAMED_VERSION = re.compile(
    r"(?<![\w.])([A-Z][A-Za-z]{1,20}(?:\+\+|#|\.js)?|iOS|macOS|iPhone)\s(\d{1,4}(?:\.\d{1,3}){0,2})(?![\w.%°€$£:/-]|,\d|\s?(?:[ap]\.?m\b|%|€|\$|£|years?\b|days?\b|hours?\b|minutes?\b|mins?\b|euros?\b|kg\b|km\b|cm\b|mm\b|gb\b|mb\b|pounds?\b|dollars?\b))"
)
_QUOTES = re.compile(
    r"\"([^\"\n]{1,400})\"|“([^”\n]{1,400})”|„([^“”\n]{1,400})[“”]|«([^»\n]{1,400})»|「([^」\n]{1,400})」|『([^』\n]{1,400})』|《([^》\n]{1,200})》"
    r"|(?<!\w)'([^'\n]{2,200})'(?!\w)|(?<!\w)‘([^’\n]{2,200})’(?!\w)"
)
_EMOJI = re.compile(
    r"[\U0001F1E6-\U0001F1FF]{2}|[\U0001F300-\U0001F64F\U0001F680-\U0001F6FF\U0001F900-\U0001FAFF\u2600-\u27BF]"
)
_QUOTE_SIGNS = frozenset("\"'‘“„«「『《")
_SYMBOL_LETTERS = frozenset("+#.CRD")
_OPERATOR_SIGNS = frozenset("=!<>-&|:+*/")
_MONTH_LIKE = frozenset(
    [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
        "jan",
        "feb",
        "mar",
        "apr",
        "jun",
        "jul",
        "aug",
        "sep",
        "sept",
        "oct",
        "nov",
        "dec",
    ]
)
_NEXT = re.compile(r"\s?([A-Za-z]{1,20})")
_PLAIN = re.compile(r"[^\w+#%°€$£¥\U0001F1E6-\U0001FAFF]+")
# Signs that only show a mood; a flag or a thing asked about is none of them.
_MOODS = frozenset("🙂😀😃😄😁😅😂🤣😊😉😍🙏👍👎😢😭😡😕😟😞🤔❤✨🎉👋😎🥲😬😩😤🙃☺☹✌💪🤷🙄😱😳🔥💯")


@dataclass(frozen=True, slots=True)
class Literals:
    """What was found; each value in the form in which two messages are compared."""

    code: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    quoted: tuple[str, ...] = ()
    given: str = ""
    emoji: tuple[str, ...] = ()


def plain(text: str) -> str:
    """``text`` folded to what is compared of a quotation: lower case, punctuation as single spaces."""
    return _PLAIN.sub(" ", text.casefold()).strip()


def literals_of(text: str, words: Lexicon) -> tuple[Literals, str]:
    """The literals of ``text`` (NFKC, capped) and the text with all of them but quotations blanked, same length."""
    code: list[str] = []
    urls: list[str] = []
    ids: list[str] = []
    versions: list[str] = []
    quoted: list[str] = []
    rest = text

    def take(pattern: re.Pattern[str], into: list[str], fold: bool = False) -> None:
        nonlocal rest

        def found(match: re.Match[str]) -> str:
            value = next((g for g in match.groups() if g), match.group())
            into.append(" ".join(value.split()).casefold() if fold else " ".join(value.split()))
            return " " * len(match.group())

        rest = pattern.sub(found, rest)

    # Most patterns need a character that most messages lack.
    digits = any(map(str.isdigit, text))
    given, rest = _given(rest, words)
    if "`" in rest:
        take(_FENCE, code)
        take(_INLINE, code)
    for match in () if _QUOTE_SIGNS.isdisjoint(rest) else _QUOTES.finditer(rest):
        value = plain(next(filter(None, match.groups()), ""))
        if value:
            quoted.append(value)
    if "/" in rest or "." in rest or "\\" in rest or "@" in rest:
        take(_URL, urls)
        if "@" in rest:
            take(_EMAIL, urls, fold=True)
        take(_DOMAIN, urls, fold=True)
        take(_FILE, code)
        take(_PATH, code)
    urls[:] = [
        url.rstrip(".,;:!?/").removeprefix("https://").removeprefix("http://").removeprefix("www.") for url in urls
    ]
    if "(" in rest:
        take(_CALL, code)
    if not _SYMBOL_LETTERS.isdisjoint(rest):
        take(_SYMBOL_NAME, code, fold=True)
    if "-" in rest:
        take(_UUID, ids, fold=True)

    def named(match: re.Match[str]) -> str:
        name = match.group(1).casefold()
        if name in _MONTH_LIKE or name in words.stop or name in words.weekdays or name in words.seasons:
            return match.group()
        if len(match.group(2)) == 4 and match.group(2)[:2] in {"19", "20"}:
            return match.group()
        following = _NEXT.match(rest, match.end())
        if following is not None and (
            following.group(1).casefold() in words.units or following.group(1).casefold() in _MONTH_LIKE
        ):
            return match.group()
        versions.append(match.group(2))
        return match.group(1) + " " * (len(match.group()) - len(match.group(1)))

    if digits:
        rest = _NAMED_VERSION.sub(named, rest)
        take(_VERSION, versions)

    def an_id(match: re.Match[str]) -> str:
        value = match.group()
        if _counts(value, words):
            return value
        ids.append(value.casefold().replace("-", "").replace("#", "").replace(" ", ""))
        return " " * len(value)

    if digits:
        rest = _ID.sub(an_id, rest)
    if "-" in rest:
        take(_FLAG, code)
    take(_IDENTIFIER, code)
    if not _OPERATOR_SIGNS.isdisjoint(rest):
        take(_OPERATOR, code)
    pictures = () if rest.isascii() else _EMOJI.finditer(rest)
    emoji = [match.group() for match in pictures if match.group() not in _MOODS]
    return (
        Literals(
            code=_unique(code),
            urls=_unique(urls),
            ids=_unique(ids),
            versions=_unique(versions),
            quoted=_unique(quoted),
            given=given,
            emoji=_unique(emoji),
        ),
        rest,
    )


def _unique(values: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))[:200]


def _counts(value: str, words: Lexicon) -> bool:
    """Whether a letter–digit token is a quantity with its unit glued on ("80cm", "2nd", "7pm", "4x")."""
    match = re.fullmatch(r"\d{1,9}([A-Za-z]{1,12})", value)
    if match is None:
        return False
    suffix = match.group(1).casefold()
    return suffix in words.units or suffix in {"st", "nd", "rd", "th", "pm", "am", "x", "k"}


def _given(text: str, words: Lexicon) -> tuple[str, str]:
    """The text a request hands over ("Summarise: …"), folded, and the message without it."""
    for pattern in (words.given, words.given_intro):
        match = pattern.search(text)
        if match is None:
            continue
        handed = text[match.end() :]
        value = plain(handed)
        if len(value.split()) >= 3 or (len(value) >= 6 and not value.isascii()):
            return value, text[: match.end()] + " " * len(handed)
    return "", text
