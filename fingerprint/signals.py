"""What the words of a turn say about reusing its answer: correction, time, invention, the asker's own data, small talk.

Pure and quick (well under a millisecond), without a parser. The rules are tables, one file a language
(``signals_LANGUAGE.toml``); a further language is a further file. A table is asked when its language occurs in the
message (`fingerprint.language`). Where there is no table, a word of the first person makes a turn personal.

How a table is read. Quoted text, code and URLs are cut out first: what is merely mentioned says nothing about the turn.
Each rule has a ``where``:

- ``opening``: at the beginning, after courtesies ("oh", "sorry", 不好意思). A correction of what was answered stands
  there; "two, no wait, three suitcases" repairs only itself.
- ``asking``: in the clauses that ask ("I bought it yesterday, can I return it?" does not ask about yesterday); where
  none does, in those that state nothing, since keywords ask too.
- ``anywhere``; ``whole``: the message consists of such phrases and nothing else.

``ignore`` cuts out expressions that only look alike, ``unless`` silences the rule for that clause or message, and
``unless_asked`` silences it where the assistant has just asked something.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from typing import Any, Final, Literal, TypeAlias

from fingerprint.conversation import Turn
from fingerprint.language import Language, first_person, language_of, languages_in

__all__ = ["Signals", "signals_of"]

Kind: TypeAlias = Literal["correction", "time_sensitive", "personal", "creative", "smalltalk", "about_asker"]
Where: TypeAlias = Literal["opening", "asking", "anywhere", "whole"]

_BARRING: Final[tuple[Kind, ...]] = ("correction", "time_sensitive", "personal", "creative", "smalltalk")
_KINDS: Final[tuple[Kind, ...]] = (*_BARRING, "about_asker")
_READ: Final = 1500  # characters; of a longer message the beginning and the end, half each, where requests stand
_EARLIER: Final = 8  # messages looked back through for a language
_WHOLE: Final = 120  # characters a "whole" message has at most
_MENTIONED: Final = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]+`|https?://\S+|\"[^\"\n]{1,300}\"|“[^”]{1,300}”|「[^」]{1,300}」|『[^』]{1,300}』"
    r"|《[^》]{1,80}》|«[^»]{1,300}»|(?<!\w)'[^'\n]{2,300}'(?!\w)|^>.*$",
    re.DOTALL | re.MULTILINE,
)
_SENTENCE: Final = re.compile(r"[^.!?;。\n]+(?:\.(?=\S)[^.!?;。\n]*)*[.!?;。\n]*")
_CLAUSE: Final = re.compile(r"[,()、—]|:(?=\s|$)")
_APOSTROPHES: Final = str.maketrans("’‘ʼ＇", "''''")
_CUT: Final = " § "  # stands where something was cut out; no rule mentions it
_EDGE: Final = " \t\r\n,.!?;:~…-–—()*_、。·§\ufe0f\u200d"


@dataclass(frozen=True, slots=True)
class Signals:
    """What speaks against reusing or storing the answer of a turn; ``reasons`` are "signal: why" in fixed order."""

    correction: bool = (
        False  # denies, repairs, withdraws or changes what was said before; only with an answer before it
    )
    time_sensitive: bool = False  # the answer is true only now
    creative: bool = False  # asks for invention: every answer should be a new one
    personal: bool = False  # the answer depends on who asks
    smalltalk: bool = False  # a greeting, thanks or farewell and nothing else
    reasons: tuple[str, ...] = ()
    about_asker: bool = False  # the answer may depend on who asks; shared within a user or session where one is told
    language_known: bool = True  # False: of this language the guards know neither negation nor number words


@dataclass(frozen=True, slots=True)
class _Rule:
    kind: Kind
    reason: str
    where: Where
    patterns: re.Pattern[str]
    ignore: re.Pattern[str] | None
    unless: re.Pattern[str] | None
    unless_asked: bool
    plain: bool  # the patterns look neither ahead nor behind: where they do not fit, cutting something out helps none


@dataclass(frozen=True, slots=True)
class _Table:
    language: Language
    guarded: bool  # the facts and the comparisons know this language too
    spaced: bool
    courtesy: re.Pattern[str]
    asking: re.Pattern[str]
    statement: re.Pattern[str]
    elliptical: re.Pattern[str]
    elliptical_words: int  # a message of at most so many words (letters, in a script without spaces) hangs on the last
    rules: tuple[_Rule, ...]


@dataclass(slots=True)
class _View:
    """One message as one table's rules see it."""

    table: _Table
    text: str
    _opening: str | None = field(default=None)
    _asking: tuple[str, ...] | None = field(default=None)

    @property
    def opening(self) -> str:
        if self._opening is None:
            self._opening = self.table.courtesy.sub("", self.text.lstrip("¿¡ "), count=1)
        return self._opening

    @property
    def asking(self) -> tuple[str, ...]:
        if self._asking is None:
            self._asking = tuple(_asking_clauses(self.text, self.table))
        return self._asking

    def fires(self, rule: _Rule) -> bool:
        if rule.where == "whole":
            return len(self.text) <= _WHOLE and rule.patterns.fullmatch(self.text.strip(_EDGE)) is not None
        scopes: Sequence[str]
        scopes = self.asking if rule.where == "asking" else (self.opening if rule.where == "opening" else self.text,)
        find = rule.patterns.match if rule.where == "opening" else rule.patterns.search
        for scope in scopes:
            if rule.plain and find(scope) is None:  # most of the time
                continue
            text = rule.ignore.sub(_CUT, scope) if rule.ignore else scope
            found = find(text)
            if found and not (rule.unless and rule.unless.search(text)):
                return True
        return False

    @property
    def hangs_on_the_last(self) -> bool:
        table = self.table
        words = self.text.split()
        length = len(words) if table.spaced else len(self.text.strip(_EDGE))
        return length <= table.elliptical_words or table.elliptical.search(self.text) is not None


@lru_cache(maxsize=64)  # admission and the fingerprint ask
def signals_of(turn: Turn) -> Signals:
    """Read the signals of a turn from its last message and, for what it corrects or continues, the ones before."""
    text = _prepared(turn.message.text)
    if not text:
        return Signals()
    answered = any(message.role == "assistant" for message in turn.history)
    asked = False
    if answered:
        last = next(message for message in reversed(turn.history) if message.role == "assistant")
        asked = last.text.rstrip(' \n*_)）」”"').endswith(("?", "？")) or _asks_late(last.text)
    found: dict[Kind, list[str]] = {}
    language = language_of(text) or _earlier_language(turn)
    views = [_View(table, text) for table in _tables_for(text, language)]
    for view in views:
        for rule in view.table.rules:
            if (rule.kind == "correction" and not answered) or (asked and rule.unless_asked):
                continue
            if rule.kind in found and rule.reason in found[rule.kind]:
                continue
            if view.fires(rule):
                found.setdefault(rule.kind, []).append(rule.reason)
    known = language is None or (language in _TABLES and _TABLES[language].guarded)
    if "personal" not in found and language is not None and language not in _TABLES and first_person(text, language):
        found["personal"] = ["in the first person, in a language without a table"]
    if "time_sensitive" not in found and answered and any(view.hangs_on_the_last for view in views):
        before = next((message for message in reversed(turn.history) if message.role == "user"), None)
        if before is not None and _time_sensitive(_prepared(before.text)):
            found["time_sensitive"] = ["continues a question about now"]
    return Signals(
        correction="correction" in found,
        time_sensitive="time_sensitive" in found,
        creative="creative" in found,
        personal="personal" in found,
        smalltalk="smalltalk" in found,
        reasons=tuple(f"{kind}: {reason}" for kind in _BARRING for reason in found.get(kind, ())),
        about_asker="personal" in found or "about_asker" in found,
        language_known=known,
    )


def _earlier_language(turn: Turn) -> Language | None:
    """Return the language a message that shows none ("42", "weather", "non") continues."""
    for message in reversed(turn.history[-_EARLIER:]):
        if message.role in ("user", "assistant") and (language := language_of(_prepared(message.text))) is not None:
            return language
    return None


def _time_sensitive(text: str) -> bool:
    return any(
        view.fires(rule)
        for view in (_View(table, text) for table in _tables_for(text, language_of(text)))
        for rule in view.table.rules
        if rule.kind == "time_sensitive"
    )


def _asks_late(answer: str) -> bool:
    """Say whether one of the last two sentences of an answer is a question ("Shall I? It takes a minute.")."""
    tail = answer.rstrip()[-240:]
    return any("?" in sentence or "？" in sentence for sentence in re.split(r"(?<=[.!?。！？\n])\s*", tail)[-3:])


def _prepared(text: str) -> str:
    """Lower case, NFKC, straight apostrophes; quoted text, code, URLs and the middle of a long text cut out."""
    if len(text) > _READ:
        text = f"{text[: _READ // 2]}\n{text[-_READ // 2 :]}"
    text = text.translate(_APOSTROPHES)
    text = _MENTIONED.sub(_CUT, text)
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return text.lower().strip()


def _asking_clauses(text: str, table: _Table) -> Iterator[str]:
    """Yield the clauses that ask for something; where none does, those that state nothing (keywords)."""
    everything: list[str] = []
    asks = False
    for sentence in _SENTENCE.findall(text):
        clauses = [clause for part in _CLAUSE.split(sentence) if (clause := part.strip())]
        question = "?" in sentence
        for number, clause in enumerate(clauses, 1):
            everything.append(clause)
            if (question and number == len(clauses)) or table.asking.search(clause):
                asks = True
                yield clause
    if not asks:
        yield from (clause for clause in everything if not table.statement.search(clause))


def _load() -> dict[Language, _Table]:
    folder = resources.files("fingerprint")
    names = sorted(entry.name for entry in folder.iterdir() if re.fullmatch(r"signals_\w+\.toml", entry.name))
    tables = (_table(tomllib.loads(folder.joinpath(name).read_text("utf-8"))) for name in names)
    return {table.language: table for table in tables}


def _tables_for(text: str, language: Language | None) -> list[_Table]:
    return [_TABLES[name] for name in sorted(languages_in(text, language)) if name in _TABLES]


def _table(raw: Mapping[str, Any]) -> _Table:
    words = {name: "(?:" + "|".join(alternatives) + ")" for name, alternatives in raw["words"].items()}

    def compiled(patterns: Sequence[str]) -> re.Pattern[str]:
        joined = "|".join(f"(?:{pattern})" for pattern in patterns)
        return re.compile(re.sub(r"<(\w+)>", lambda match: words[match[1]], joined))

    def rule(kind: Kind, entry: Mapping[str, Any]) -> _Rule:
        patterns = entry["patterns"]
        if entry["where"] == "whole":  # several such phrases in a row are still nothing else
            patterns = [f"(?:(?:{'|'.join(patterns)})[{re.escape(_EDGE)}\\W]*)+"]
        made = compiled(patterns)
        return _Rule(
            kind=kind,
            reason=entry["reason"],
            where=entry["where"],
            patterns=made,
            plain=re.search(r"\(\?<?[=!]|\^|\$", made.pattern) is None,
            ignore=compiled(entry["ignore"]) if "ignore" in entry else None,
            unless=compiled(entry["unless"]) if "unless" in entry else None,
            unless_asked=entry.get("unless_asked", False),
        )

    spaced = raw["spaced"]
    end = r"(?![\w'])" if spaced else ""
    return _Table(
        language=raw["language"],
        guarded=raw["guarded"],
        spaced=spaced,
        courtesy=re.compile(rf"^(?:(?:{'|'.join(raw['courtesy'])}){end}[{re.escape(_EDGE)}]*)+(?=\S)"),
        asking=compiled(raw["asking"]),
        statement=compiled(raw["statement"]),
        elliptical=compiled(raw["elliptical"]),
        elliptical_words=raw["elliptical_words"],
        rules=tuple(rule(kind, entry) for kind in _KINDS for entry in raw.get(kind, ())),
    )


_TABLES: Final = _load()  # at import: the first turn should not wait for it
