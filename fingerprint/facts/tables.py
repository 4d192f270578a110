"""The word tables, read once: one TOML file a language beside this module.

A third language is a new file with the same sections and one more name in ``LANGUAGES``.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

__all__ = ["LANGUAGES", "Lexicon", "lexicon"]

LANGUAGES = ("en", "zh")
_NOTHING = re.compile(r"(?!)")
# From the request to the text it hands over: the rest of the line, then a colon that is no clock, or a line break.
_COLON = r"[^:：\n]{0,80}(?::(?=[^\S\d]|[^\W\d])|：|\n)\s*"


@dataclass(frozen=True, slots=True)
class Lexicon:
    """One language's tables, compiled. Words are folded to lower case."""

    language: str
    stop: frozenset[str]
    before_noun: frozenset[str]  # words after which a thing is named
    before_verb: frozenset[str]  # words after which something is done
    after_to: frozenset[str]  # words before which a chatty 2 or 4 is "to" or "for"
    courtesy: re.Pattern[str]
    negations: re.Pattern[str]
    inert: frozenset[str]  # words that hold a sign of negation and negate nothing
    prefixes: tuple[str, ...]
    antonyms: re.Pattern[str]
    antonym_sides: dict[str, tuple[tuple[int, int], ...]]  # form -> (pair, side), side 0 or 1
    classes: dict[str, str]  # word or phrase -> name of its synonym class
    contrasts: dict[str, frozenset[int]]  # word -> the sets of alternatives it belongs to
    phrases: re.Pattern[str]  # the phrases (two words and more) among the classes
    units: dict[str, tuple[str, float]]  # alias -> (dimension, factor to the base unit)
    number_words: dict[str, float]
    scales: dict[str, float]
    ordinals: dict[str, int]
    number_idioms: frozenset[str]
    measures: frozenset[str]  # first characters of what a numeral counts
    months: dict[str, int]
    weekdays: dict[str, int]
    seasons: dict[str, str]
    parts: dict[str, str]
    relative: dict[str, str]
    times: re.Pattern[str]  # every word of weekdays, seasons, parts and relative
    questions: tuple[tuple[str, re.Pattern[str]], ...]
    exclusive: frozenset[frozenset[str]]
    intents: tuple[tuple[str, re.Pattern[str]], ...]
    modality: dict[str, str]
    modal_words: re.Pattern[str]
    persons: dict[str, str]
    person_words: re.Pattern[str]
    quantifiers: dict[str, str]
    quantifier_words: re.Pattern[str]
    direction_from: tuple[str, ...]
    direction_to: tuple[str, ...]
    symmetric: frozenset[str]
    ordered: frozenset[str]
    anaphora: re.Pattern[str]
    opener: re.Pattern[str]
    affirm: re.Pattern[str]
    decline: re.Pattern[str]
    reply: re.Pattern[str]
    correction: re.Pattern[str]
    given: re.Pattern[str]
    given_intro: re.Pattern[str]
    formats: dict[str, str]
    format_words: re.Pattern[str]
    verbs: frozenset[str]
    status: re.Pattern[str]
    objects: frozenset[str]
    particles: dict[str, frozenset[str]]  # verb -> the particles with which it means something else
    commands: re.Pattern[str]  # how a request begins that is no question
    roles: tuple[tuple[str, re.Pattern[str], re.Pattern[str]], ...]  # name, what stands before, what stands after
    periods: tuple[tuple[str, re.Pattern[str]], ...]
    comparatives: re.Pattern[str]
    titles: frozenset[str]  # words before the name of a person
    before_place: frozenset[str]  # words before the name of a place

    def role(self, before: str, after: str) -> str:
        """What the words around a number make of it; "" where they say nothing. Linear in a few dozen characters."""
        before, after = before.casefold(), after.casefold()
        return next((n for n, left, right in self.roles if left.search(before) or right.match(after)), "")


def _any_of(words: list[str] | frozenset[str] | dict[str, Any], *, bounded: bool) -> re.Pattern[str]:
    """One pattern for many words, the longest first; ``bounded`` for scripts that write spaces."""
    rests: dict[str, list[str]] = {}  # by first letter: of hundreds of words, those are tried that can match
    for word in sorted(words, key=len, reverse=True):
        if word:
            rests.setdefault(word[0], []).append(re.escape(word[1:]))
    if not rests:
        return re.compile(r"(?!)")
    alternatives = "|".join(f"{re.escape(first)}(?:{'|'.join(ends)})" for first, ends in rests.items())
    return re.compile(rf"(?<![^\W_])(?:{alternatives})(?![^\W_])" if bounded else f"(?:{alternatives})")


def _labelled(table: str) -> dict[str, str]:
    """``word|word : label`` a line -> {word: label}."""
    found: dict[str, str] = {}
    for line in filter(None, map(str.strip, table.splitlines())):
        words, _, label = line.rpartition(" : ")
        found.update((word.strip(), label.strip()) for word in words.split("|"))
    return found


def _pairs(table: str) -> dict[str, str]:
    words = table.split()
    return dict(zip(words[::2], words[1::2], strict=True))


def _antonyms(table: str, negations: frozenset[str]) -> dict[str, tuple[tuple[int, int], ...]]:
    sides: dict[str, list[tuple[int, int]]] = {}
    for pair, line in enumerate(filter(None, map(str.strip, table.splitlines()))):
        for side, forms in enumerate(line.split(" : ")):
            for form in map(str.strip, forms.split("|")):
                # A form that negates (不准) is found as a negation; as an opposite too it would cancel itself out.
                if form not in negations and not (form[0] in "不没未" and len(form) <= 3):
                    sides.setdefault(form, []).append((pair, side))
    return {form: tuple(found) for form, found in sides.items()}


def _contrasts(table: str) -> dict[str, frozenset[int]]:
    found: dict[str, frozenset[int]] = {}
    for number, line in enumerate(filter(None, map(str.strip, table.splitlines()))):
        for word in line.split():
            found[word] = found.get(word, frozenset()) | {number}
    return found


def _units(table: str) -> dict[str, tuple[str, float]]:
    units: dict[str, tuple[str, float]] = {}
    for line in filter(None, map(str.strip, table.splitlines())):
        dimension, factor, *aliases = line.split()
        units.update((alias.replace("_", " "), (dimension, float(factor))) for alias in aliases)
    return units


@cache
def lexicon(language: str) -> Lexicon:
    """The tables of ``language`` (one of ``LANGUAGES``); others get the English ones, whose words they lack."""
    name = language if language in LANGUAGES else "en"
    raw = tomllib.loads(resources.files(__package__).joinpath(f"{name}.toml").read_text(encoding="utf-8"))
    spaced = name != "zh"
    fold = re.IGNORECASE
    words, dates, numbers, context = raw["words"], raw["dates"], raw["numbers"], raw["context"]
    classes = {
        form.strip(): line.split("|")[0].strip()
        for line in filter(None, map(str.strip, raw["synonyms"]["classes"].splitlines()))
        for form in line.split("|")
    }
    relative = {
        entry.rpartition(" ")[0].strip(): entry.rpartition(" ")[2]
        for line in dates["relative"].splitlines()
        for entry in map(str.strip, line.split(" : "))
        if entry
    }
    weekdays = {word: int(day) for word, day in _pairs(dates["weekdays"]).items()}
    seasons, parts = _pairs(dates["seasons"]), _pairs(dates["parts"])
    number_words = {w: float(v) for w, v in _pairs(numbers.get("words", "") or numbers.get("digits", "")).items()}
    modality, persons = _labelled(raw["modality"]["table"]), _labelled(raw["persons"]["table"])
    quantifiers, formats = _labelled(raw["quantifiers"]["table"]), _labelled(raw["formats"]["table"])
    negations = frozenset(raw["polarity"]["negations"].split())
    antonyms = _antonyms(raw["polarity"]["antonyms"], negations)
    courtesy = "|".join(words["courtesy"])
    units = _units(raw["units"]["table"])
    if name != "en":  # international signs are written in every language
        units = lexicon("en").units | units
    return Lexicon(
        language=name,
        stop=frozenset(words["stop"].split()),
        before_noun=frozenset(words.get("before_noun", "").split()),
        after_to=frozenset(words.get("after_to", "").split()),
        before_verb=frozenset(words.get("before_verb", "").split()),
        courtesy=re.compile(rf"(?<![^\W_])(?:{courtesy})(?![^\W_])" if spaced else f"(?:{courtesy})", fold),
        negations=_any_of(negations - {"n't"}, bounded=spaced),
        inert=frozenset(raw["polarity"].get("inert", "").split()),
        prefixes=tuple(raw["polarity"]["prefixes"]),
        antonyms=_any_of(antonyms, bounded=spaced),
        antonym_sides=antonyms,
        classes=classes,
        contrasts=_contrasts(raw["contrasts"]["sets"]),
        phrases=_any_of([form for form in classes if " " in form], bounded=spaced),
        units=units,
        number_words=number_words,
        scales={w: float(v) for w, v in _pairs(numbers["scales"]).items()},
        ordinals={w: int(v) for w, v in _pairs(numbers.get("ordinals", "")).items()},
        measures=frozenset(numbers.get("measures", "").split()) | {alias[0] for alias in units if not alias.isascii()},
        number_idioms=frozenset(numbers.get("idioms", "").split()),
        months={w: int(v) for w, v in _pairs(dates.get("months", "")).items()},
        weekdays=weekdays,
        seasons=seasons,
        parts=parts,
        relative=relative,
        times=_any_of([*weekdays, *seasons, *parts, *relative], bounded=spaced),
        questions=tuple((kind, re.compile(pattern)) for kind, pattern in raw["questions"]["patterns"]),
        exclusive=frozenset(frozenset(pair) for pair in raw["questions"]["exclusive"]),
        intents=tuple((kind, re.compile(pattern)) for kind, pattern in raw["questions"]["intents"]),
        modality=modality,
        modal_words=_any_of(modality, bounded=spaced),
        persons=persons,
        person_words=_any_of(persons, bounded=spaced),
        quantifiers=quantifiers,
        quantifier_words=_any_of(quantifiers, bounded=spaced),
        direction_from=tuple(raw["direction"]["from"]),
        direction_to=tuple(raw["direction"]["to"]),
        symmetric=frozenset(raw["direction"]["symmetric"]),
        ordered=frozenset(raw["direction"]["ordered"]),
        anaphora=re.compile(context["anaphora"]),
        opener=re.compile(context["opener"]),
        affirm=re.compile(context["affirm"]),
        decline=re.compile(context["decline"]),
        reply=re.compile(context["reply"]),
        correction=re.compile(context["correction"], fold),
        given=re.compile(
            rf"(?:^|[.!?。！？\n,，]\s?|\b(?:please|you|to|me|kindly)\s|请|帮我|把|将)(?:{raw['given']['verbs']}){_COLON}",
            fold,
        ),
        given_intro=re.compile(rf"(?:{raw['given']['intro']}){_COLON}", fold),
        formats=formats,
        format_words=_any_of(formats, bounded=spaced),
        verbs=frozenset(raw["actions"]["verbs"].split()),
        status=re.compile(raw["actions"]["status"], fold),
        objects=frozenset(raw["actions"]["objects"].split()),
        particles={
            verb: frozenset(particles.split())
            for verb, _, particles in (
                line.partition(" : ") for line in raw["actions"]["particles"].splitlines() if line.strip()
            )
        },
        commands=re.compile(raw["actions"]["commands"]),
        roles=tuple(
            (name, re.compile(f"(?:{before})$") if before else _NOTHING, re.compile(after) if after else _NOTHING)
            for name, before, after in raw["numbers"]["roles"]
        ),
        periods=tuple((name, re.compile(pattern)) for name, pattern in raw["dates"]["periods"]),
        comparatives=re.compile(raw["quantifiers"]["comparatives"]),
        titles=frozenset(raw["entities"]["titles"].split()),
        before_place=frozenset(raw["entities"]["before_place"].split()),
    )
