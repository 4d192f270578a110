"""Generated training pairs: hard negatives and hard positives out of labelled conversations, English and Chinese.

A *same* edit leaves what is asked as it was (a courtesy, a typo, another round before, "Porto, sorry, I mean Lima"
where Lima was meant); a *different* edit changes one thing the answer rests on (a number, a name, a polarity, a
direction, the offer a short reply accepts …). A generated pair is

* equivalent: an equivalent pair, or a conversation and itself, after *same* edits of either side;
* different: the same, after one *different* edit of one side; or a labelled different pair after *same* edits.

So the edit, never the wording around it, decides the label. Everything is drawn from one seeded generator; the tables
are ``augment_en.toml`` and ``augment_zh.toml``. Edits are heuristics and some labels are wrong (about one in twenty, by
reading samples): for training only, never for measuring.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eval.data import Pair
from fingerprint.conversation import Message, Turn

__all__ = ["Augmenter"]

_NUMBER = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)?(?![\w])|(?<=[\u4e00-\u9fff])\d+(?:\.\d+)?")
_NAME = re.compile(r"(?<=[a-z,;:] )[A-Z][\w-]*[a-z0-9][\w-]*(?: [A-Z][\w-]+)*|\b[A-Z]{1,4}-?\d{2,}\b")
_HAN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]+")
_NEIGHBOURS = dict(zip("abcdefghijklmnopqrstuvwxyz", "svxsrdhjoklknmpoatdyibecux", strict=True))
"""For each letter one beside it on the keyboard."""


@dataclass(frozen=True, slots=True)
class _Tables:
    """One language's tables."""

    rows: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        return self.rows[name]


def _tables(lang: str) -> _Tables:
    with (Path(__file__).parent / f"augment_{lang}.toml").open("rb") as file:
        return _Tables(tomllib.load(file))


Edit = Callable[[Turn], Turn | None]


def _last(turn: Turn, text: str) -> Turn | None:
    if not text.strip() or text == turn.message.text:
        return None
    return replace(turn, message=replace(turn.message, text=text))


class Augmenter:
    """Makes pairs out of pairs. Deterministic for one seed and one order of calls."""

    def __init__(self, pairs: Sequence[Pair], seed: int = 0) -> None:
        """``pairs`` are also the pool that names, offers and irrelevant rounds are taken from."""
        self._rng = random.Random(seed)
        self._tables = {lang: _tables(lang) for lang in ("en", "zh")}
        self._pool = {lang: [p for p in pairs if p.lang == lang] for lang in ("en", "zh")}
        self._by_domain: dict[tuple[str, str], list[Pair]] = defaultdict(list)
        self._names: dict[tuple[str, str], list[str]] = defaultdict(list)
        self._multi = {lang: [p for p in rows if len(p.a.history) >= 2] for lang, rows in self._pool.items()}
        for pair in pairs:
            self._by_domain[pair.lang, pair.domain].append(pair)
        for pair in pairs[::7]:
            found = (_NAME if pair.lang == "en" else _HAN_NAME).findall(pair.a.message.text)
            self._names[pair.lang, pair.domain] += found

    # -- pairs ---------------------------------------------------------------------------------------------------

    def positive(self, pair: Pair) -> Pair | None:
        """An equivalent pair made from an equivalent one (or from its first conversation and itself)."""
        a, b = (pair.a, pair.b) if pair.equivalent and self._rng.random() < 0.6 else (pair.a, pair.a)
        b = self._same(b, pair, times=self._rng.choice((1, 1, 2)))
        if self._rng.random() < 0.35:
            a = self._same(a, pair, times=1)
        if a == b:
            return None
        return self._made(pair, a, b, equivalent=True, how="generated_same")

    def negative(self, pair: Pair) -> Pair | None:
        """A different pair: one *different* edit on top of an equivalent pair, or a different one disguised."""
        roll = self._rng.random()
        if not pair.equivalent and roll < 0.5:
            a = self._same(pair.a, pair, times=self._rng.choice((0, 1)))
            b = self._same(pair.b, pair, times=1)
            return self._made(pair, a, b, equivalent=False, how="generated_disguised")
        a, b = (pair.a, pair.b) if pair.equivalent and self._rng.random() < 0.5 else (pair.a, pair.a)
        made = self._different(b, pair)
        if made is None:
            return None
        b, how = made
        if self._rng.random() < 0.4:
            b = self._same(b, pair, times=1)
        if self._rng.random() < 0.25:
            a = self._same(a, pair, times=1)
        return self._made(pair, a, b, equivalent=False, how=f"generated_{how}")

    def framed(self, pair: Pair) -> Pair | None:
        """A pair whose last question is put in another sentence: equivalent as it is, different after a *different*
        edit, so that the sentence says nothing about the label."""
        a = pair.a if self._rng.random() < 0.5 else pair.b
        if self._rng.random() < 0.6:
            b = self._frame(a, pair.lang)
            return None if b is None else self._made(pair, a, b, equivalent=True, how="generated_framed")
        changed = self._different(a, pair)
        b = None if changed is None else self._frame(changed[0], pair.lang)
        if b is None or changed is None:
            return None
        return self._made(pair, a, b, equivalent=False, how=f"generated_framed_{changed[1]}")

    def _made(self, pair: Pair, a: Turn, b: Turn, *, equivalent: bool, how: str) -> Pair:
        if self._rng.random() < 0.5:
            a, b = b, a
        return replace(
            pair, id=f"{pair.id}~{self._rng.getrandbits(32):08x}", a=a, b=b, equivalent=equivalent, subtype=how,
            category="paraphrase" if equivalent else "entity_swap", label_origin="generated",
        )  # fmt: skip

    # -- edits that leave the meaning ----------------------------------------------------------------------------

    def _same(self, turn: Turn, pair: Pair, *, times: int) -> Turn:
        edits: list[tuple[float, Edit]] = [
            (1.0, lambda t: self._wrap(t, pair.lang)), (1.2, lambda t: self._typos(t, pair.lang)),
            (2.2, lambda t: self._reworded(t, pair.lang)), (1.0, lambda t: self._background(t, pair.lang)),
            (1.2, lambda t: self._round_before(t, pair)), (0.8, self._case),
            (0.8, lambda t: self._clauses(t, pair.lang)),
            (0.9, lambda t: self._corrected(t, pair, right=True)), (0.5, lambda t: self._acknowledge(t, pair.lang)),
        ]  # fmt: skip
        for _ in range(times):
            for _attempt in range(3):
                edit = self._rng.choices([e for _, e in edits], [w for w, _ in edits])[0]
                edited = edit(turn)
                if edited is not None:
                    turn = edited
                    break
        return turn

    def _wrap(self, turn: Turn, lang: str) -> Turn | None:
        tables, text = self._tables[lang], turn.message.text
        if self._rng.random() < 0.6:
            head = self._rng.choice(tables.prefixes)
            lower = lang == "en" and head[-2] not in ".!" and text[:2] != "I " and not text[1:2].isupper()
            text = head + (text[:1].lower() + text[1:] if lower else text)
        if self._rng.random() < 0.6:
            text = text + self._rng.choice(tables.suffixes)
        return _last(turn, text)

    def _typos(self, turn: Turn, lang: str) -> Turn | None:
        if lang != "en":
            return _last(turn, turn.message.text.rstrip("？。?！") + self._rng.choice(("", "??", " ", "…", "？")))
        words = turn.message.text.split(" ")
        for _ in range(self._rng.choice((1, 1, 2))):
            places = [i for i, w in enumerate(words) if len(w) > 3 and w.isalpha() and w.islower()]
            if not places:
                return None
            i = self._rng.choice(places)
            word, j = words[i], self._rng.randrange(1, len(words[i]) - 1)
            kind = self._rng.random()
            if kind < 0.4:
                words[i] = word[:j] + word[j + 1 :]
            elif kind < 0.7:
                words[i] = word[:j] + word[j + 1] + word[j] + word[j + 2 :]
            else:
                words[i] = word[:j] + _NEIGHBOURS.get(word[j], "e") + word[j + 1 :]
        return _last(turn, " ".join(words))

    def _reworded(self, turn: Turn, lang: str) -> Turn | None:
        text = turn.message.text
        groups = list(self._tables[lang].same)
        self._rng.shuffle(groups)
        changed = 0
        for group in groups:
            for phrase in group:
                at = _find(text, phrase, lang)
                if at >= 0:
                    other = self._rng.choice([p for p in group if p != phrase])
                    text = _put(text, at, phrase, other)
                    changed += 1
                    break
            if changed >= 2:
                break
        return _last(turn, text) if changed else None

    def _frame(self, turn: Turn, lang: str) -> Turn | None:
        """The last sentence in another form; None where none fits."""
        text = turn.message.text.strip()
        found = re.search(r"[^.!?\n。！？]+[?？]?$", text)
        if found is None or len(found.group()) > 160:
            return None
        before, asked = text[: found.start()], found.group().strip().rstrip("?？")
        hits = [
            (m, to) for pattern, to in self._tables[lang].frames if (m := re.fullmatch(pattern, asked, re.IGNORECASE))
        ]
        if not hits:
            return None
        match, templates = self._rng.choice(hits)
        said = self._rng.choice(templates).format(*(group or "" for group in match.groups()))
        if asked[:1].isupper() and self._rng.random() < 0.8:
            said = said[:1].upper() + said[1:]
        if said.rstrip("?？.") == asked:
            return None
        return _last(turn, f"{before}{' ' if before and lang == 'en' and not before.endswith(' ') else ''}{said}")

    def _background(self, turn: Turn, lang: str) -> Turn | None:
        tables = self._tables[lang]
        line = self._rng.choice(tables.background)
        text = turn.message.text
        parts = (line, text) if self._rng.random() < 0.7 else (text, line)
        return _last(turn, tables.joiner.join(parts))

    def _round_before(self, turn: Turn, pair: Pair) -> Turn | None:
        """Unrelated talk at the very beginning."""
        user, assistant = self._rng.choice(self._tables[pair.lang].small_talk)
        if self._multi[pair.lang] and self._rng.random() < 0.6:
            other = self._rng.choice(self._multi[pair.lang])
            if other.domain == pair.domain:
                return None
            first, second = other.a.history[:2]
            if first.role != "user" or second.role != "assistant" or len(first.text) + len(second.text) > 500:
                return None
            user, assistant = first.text, second.text
        return replace(turn, history=(Message("user", user), Message("assistant", assistant), *turn.history))

    def _case(self, turn: Turn) -> Turn | None:
        text = turn.message.text
        kind = self._rng.random()
        if kind < 0.4:
            return _last(turn, text.rstrip("?.!？。！"))
        if kind < 0.8:
            return _last(turn, text.lower().replace(",", ""))
        return _last(turn, text + self._rng.choice(("?", "??", "!", " ...")))

    def _clauses(self, turn: Turn, lang: str) -> Turn | None:
        """ "If X, Y?" and "Y if X?" ask the same."""
        text = turn.message.text
        if lang != "en":
            return None
        found = re.fullmatch(r"(If|When|After|Before|Once) ([^,.?]+), ([^,.]+)\?", text)
        if found:
            word, first, second = found.groups()
            return _last(turn, f"{second[:1].upper()}{second[1:]} {word.lower()} {first}?")
        found = re.fullmatch(r"([A-Z][^,.]+?) (if|when|after|before|once) ([^,.?]+)\?", text)
        if found:
            first, word, second = found.groups()
            return _last(turn, f"{word.capitalize()} {second}, {first[:1].lower()}{first[1:]}?")
        return None

    def _acknowledge(self, turn: Turn, lang: str) -> Turn | None:
        if not turn.history or _is_reply(turn.message.text, self._tables[lang]):
            return None
        return _last(turn, self._rng.choice(self._tables[lang].acknowledgements) + turn.message.text)

    # -- edits that change it --------------------------------------------------------------------------------------

    def _different(self, turn: Turn, pair: Pair) -> tuple[Turn, str] | None:
        edits: list[tuple[float, str, Edit]] = [
            (1.6, "number", lambda t: self._number(t, pair.lang)), (1.6, "entity", lambda t: self._entity(t, pair)),
            (3.2, "antonym", lambda t: self._swapped(t, pair.lang)),
            (1.4, "polarity", lambda t: self._negated(t, pair.lang)),
            (2.5, "direction", lambda t: self._turned(t, pair.lang)),
            (0.7, "constraint", lambda t: self._constrained(t, pair.lang)),
            (1.0, "person", lambda t: self._owner(t, pair.lang)), (1.5, "offer", lambda t: self._offer(t, pair)),
            (1.0, "options", lambda t: self._options(t, pair.lang)), (1.0, "related", lambda t: self._related(t, pair)),
            (0.9, "self_corrected", lambda t: self._corrected(t, pair, right=False)),
            (1.0, "history", lambda t: self._history(t, pair)),
        ]  # fmt: skip
        for _attempt in range(8):
            _weight, name, edit = self._rng.choices(edits, [e[0] for e in edits])[0]
            edited = edit(turn)
            if edited is not None and edited != turn:
                return edited, name
        return None

    def _other_number(self, number: str) -> str:
        plain = number.replace(",", "")
        if "." in plain:
            return f"{float(plain) * self._rng.choice((0.5, 2, 1.5, 3)) + 0.1:.{len(plain.split('.')[1])}f}"
        value = int(plain[:9])
        if 1900 <= value <= 2100:
            return str(value + self._rng.choice((-7, -3, -1, 1, 2, 5)))
        return str(max(1, value + self._rng.choice((-1, 1, 2, 5, 10, value, 3 * value)))) if value else "1"

    def _number(self, turn: Turn, lang: str) -> Turn | None:
        found = list(_NUMBER.finditer(turn.message.text))
        if not found:
            return None
        m = self._rng.choice(found)
        other = self._other_number(m.group())
        text = turn.message.text
        return _last(turn, text[: m.start()] + other + text[m.end() :]) if other != m.group() else None

    def _entity(self, turn: Turn, pair: Pair) -> Turn | None:
        """Another name in the last message, everywhere it is written in this conversation."""
        found = (_NAME if pair.lang == "en" else _HAN_NAME).findall(turn.message.text)
        if not found:
            return None
        name = self._rng.choice(found)
        pool = self._names[pair.lang, pair.domain]
        other = self._rng.choice(pool) if len(pool) > 3 and self._rng.random() < 0.7 else ""
        other = other or self._rng.choice(self._tables[pair.lang].other_names)
        if other.lower() == name.lower() or other in turn.message.text:
            return None
        history = tuple(replace(m, text=m.text.replace(name, other)) for m in turn.history)
        changed = _last(turn, turn.message.text.replace(name, other))
        return replace(changed, history=history) if changed and self._rng.random() < 0.5 else changed

    def _swapped(self, turn: Turn, lang: str) -> Turn | None:
        text = turn.message.text
        hits = [(g, w, at) for g in self._tables[lang].different for w in g if (at := _find(text, w, lang)) >= 0]
        if not hits:
            return None
        group, word, at = self._rng.choice(hits)
        return _last(turn, _put(text, at, word, self._rng.choice([w for w in group if w != word])))

    def _negated(self, turn: Turn, lang: str) -> Turn | None:
        text = turn.message.text
        hits = []
        for plain, negated in self._tables[lang].negations:
            for word, other in ((plain, negated), (negated, plain)):
                at = text.lower().find(word) if word else -1
                if at >= 0:
                    hits.append((at, word, other))
        if not hits:
            return None
        at, word, other = self._rng.choice(hits)
        return _last(turn, _put(text, at, word, other))

    def _turned(self, turn: Turn, lang: str) -> Turn | None:
        """What stands on the two sides of a directed word changes places: "from X to Y", "X before Y", 把X换成Y."""
        text = turn.message.text
        found = [m for pattern in self._tables[lang].directed for m in re.finditer(pattern, text)]
        if not found:
            return None
        m = self._rng.choice(found)
        one, two = m.group(1), m.group(2)
        if one.lower() == two.lower():
            return None
        return _last(turn, text[: m.start(1)] + two + text[m.end(1) : m.start(2)] + one + text[m.end(2) :])

    def _constrained(self, turn: Turn, lang: str) -> Turn | None:
        text, constraint = turn.message.text, self._rng.choice(self._tables[lang].constraints)
        if constraint.strip().lower() in text.lower() or _is_reply(text, self._tables[lang]) or len(text) > 200:
            return None
        if lang == "zh":
            return _last(turn, f"{constraint}{'，' if self._rng.random() < 0.4 else ''}{text}")
        ending = text[-1] if text[-1] in "?.!" else ""
        return _last(turn, text[: len(text) - len(ending)] + constraint + ending)

    def _owner(self, turn: Turn, lang: str) -> Turn | None:
        owners, text = self._tables[lang].owners, turn.message.text
        at = _find(text, owners[0], lang)
        return _last(turn, _put(text, at, owners[0], self._rng.choice(owners[1:]))) if at >= 0 else None

    def _offer(self, turn: Turn, pair: Pair) -> Turn | None:
        """The same short reply to another assistant message."""
        if not turn.history or turn.history[-1].role != "assistant":
            return None
        if not _is_reply(turn.message.text, self._tables[pair.lang]) and len(turn.message.text) > 25:
            return None
        other = self._rng.choice(self._by_domain[pair.lang, pair.domain])
        if other.family == pair.family or not other.a.history or other.a.history[-1].role != "assistant":
            return None
        offered = other.a.history[-1]
        if offered.text == turn.history[-1].text:
            return None
        if self._rng.random() < 0.5 and len(other.a.history) >= 2:
            return replace(turn, history=(*turn.history[:-2], *other.a.history[-2:]))
        return replace(turn, history=(*turn.history[:-1], offered))

    def _options(self, turn: Turn, lang: str) -> Turn | None:
        """Two options change places under "the second one"."""
        pointing = r"\b(first|second|former|latter|last)\b" if lang == "en" else r"第[一二三]|前[者面]|后[者面]"
        if not turn.history or not re.search(pointing, turn.message.text.lower()):
            return None
        offered = turn.history[-1]
        joined = re.escape(self._tables[lang].or_word)
        found = re.search(rf"([^,.:;，。：；?？]{{3,60}}){joined}([^,.:;，。：；?？]{{3,60}})", offered.text)
        if not found:
            return None
        one, two = found.group(1), found.group(2)
        text = offered.text.replace(found.group(), f"{two}{self._tables[lang].or_word}{one}")
        return replace(turn, history=(*turn.history[:-1], replace(offered, text=text)))

    def _related(self, turn: Turn, pair: Pair) -> Turn | None:
        """Another question of the same domain, in this conversation or in its own."""
        other = self._rng.choice(self._by_domain[pair.lang, pair.domain])
        if other.family == pair.family or other.a.message.text == turn.message.text:
            return None
        if self._rng.random() < 0.5 or not other.is_family:
            return (
                None
                if _is_reply(other.a.message.text, self._tables[pair.lang])
                else replace(turn, message=other.a.message)
            )
        return other.a

    def _history(self, turn: Turn, pair: Pair) -> Turn | None:
        """A fact of a short history changes: what the last message builds on."""
        if not 1 <= len(turn.history) <= 4 or len(turn.message.text) > 60:
            return None
        index = self._rng.randrange(len(turn.history))
        inner = Turn((), (), turn.history[index])
        for edit in self._rng.sample((self._number, self._swapped), 2):
            edited = edit(inner, pair.lang)
            if edited is not None:
                history = (*turn.history[:index], edited.message, *turn.history[index + 1 :])
                return replace(turn, history=history)
        return None

    def _corrected(self, turn: Turn, pair: Pair, *, right: bool) -> Turn | None:
        """ "Y, no wait, X" says X (``right``: X was said before); "X, no wait, Y" says Y."""
        text = turn.message.text
        tables = self._tables[pair.lang]
        pattern = _NAME if pair.lang == "en" else _HAN_NAME
        found = [*pattern.finditer(text), *_NUMBER.finditer(text)]
        if not found:
            return None
        m = self._rng.choice(found)
        if m.group()[0].isdigit():
            other = self._other_number(m.group())
        else:
            pool = self._names[pair.lang, pair.domain] or tables.other_names
            other = self._rng.choice(pool)
        if other.lower() == m.group().lower():
            return None
        shape = self._rng.choice(tables.corrections)
        said = shape.format(other=other, right=m.group()) if right else shape.format(other=m.group(), right=other)
        return _last(turn, text[: m.start()] + said + text[m.end() :])


def _is_reply(text: str, tables: _Tables) -> bool:
    return len(text) <= 40 and re.match(tables.reply, text.strip().lower()) is not None


def _find(text: str, phrase: str, lang: str) -> int:
    """Where a phrase stands in a text (whole words in English), or −1."""
    lowered = text.lower()
    if len(lowered) != len(text):
        return -1
    if lang == "zh":
        return lowered.find(phrase)
    found = re.search(rf"(?<![\w'-]){re.escape(phrase)}" + ("" if phrase.endswith(" ") else r"(?![\w'-])"), lowered)
    return found.start() if found else -1


def _put(text: str, at: int, old: str, new: str) -> str:
    """``new`` for ``old`` at a place, keeping a capital first letter."""
    if text[at : at + 1].isupper() and new:
        new = new[:1].upper() + new[1:]
    return text[:at] + new + text[at + len(old) :]
