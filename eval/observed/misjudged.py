"""Wrong and doubtful hits, put together by what conflicts, with what would have stopped each group.

A group is named by the fields in which the fingerprints of the two turns differ (the relations of the guards, where one
found a conflict, come first) and by the words that only one of them holds.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from sklearn.cluster import AgglomerativeClustering
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, TfidfVectorizer

from eval.statistics import wilson
from fingerprint.conversation import Message, Turn
from fingerprint.facts import fingerprint_of, relations
from store.shadow import Observation, outcome_of

__all__ = ["KINDS", "Cluster", "Stop", "clusters", "differences"]

KINDS: Final = (
    "number",
    "entity",
    "polarity",
    "direction",
    "scope",
    "context",
    "given text",
    "related only",
    "answer only",
)
"""What a group can be about, the more telling first. ``answer only``: nothing in the two turns differs."""

MOST: Final = 2_000
"""Cases that are put into groups, and right hits that remedies are weighed against; of more a sample is drawn."""

_APART: Final = 0.55  # cosine distance at which two groups stay apart
_KIND_WEIGHT: Final = 1.6  # of what conflicts, against the words
_EXAMPLES: Final = 3
_EMPTY: Final = ENGLISH_STOP_WORDS - {
    "not",
    "no",
    "nor",
    "never",
    "without",
    "cannot",
    "cant",
    "from",
    "to",
    "my",
    "your",
}
_WORDS: Final = re.compile(r"[^\W_]+|[\u4e00-\u9fff]")

_OF_RELATION: Final = {
    "numbers": "number", "units": "number", "dates": "number", "versions": "number", "ids": "number",
    "options": "context", "entities": "entity", "urls": "entity", "code": "entity", "quotes": "entity",
    "polarity": "polarity", "direction": "direction", "order": "direction", "scope": "scope", "context": "context",
    "given_text": "given text", "format": "given text", "modality": "related only", "question": "related only",
    "action": "related only",
}  # fmt: skip
_OF_FIELD: Final = {
    "numbers": "number", "times": "number", "periods": "number", "versions": "number", "ids": "number",
    "entities": "entity", "quoted": "entity", "negated": "polarity", "negations": "polarity",
    "reply": "polarity", "direction": "direction", "ordered": "direction", "comparatives": "direction",
    "quantifiers": "scope", "persons": "scope", "given": "given text", "symbols": "given text",
    "formats": "given text", "answers": "context", "actions": "related only", "objects": "related only",
    "question": "related only", "intent": "related only", "modality": "related only",
}  # fmt: skip

_BOTH: Final = frozenset({"reply", "direction"})
"""Fields in which two turns differ only where both say something."""


@dataclass(frozen=True, slots=True)
class Stop:
    """What would have stopped a group: how many of it, and how many right hits it would have cost."""

    what: str
    stopped: int
    of: int
    right_lost: int
    of_right: int

    def __str__(self) -> str:
        cost = f"at the cost of {self.right_lost} of {self.of_right} right ones"
        return f"{self.what}: stops {self.stopped} of {self.of}, {cost}"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Mistakes of one kind."""

    kind: str
    words: tuple[str, ...]
    cases: tuple[Observation, ...]
    stops: tuple[Stop, ...]

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.kind}: {', '.join(self.words)}" if self.words else self.kind

    @property
    def wrong(self) -> int:
        """How many are wrong; the rest is doubtful."""
        return sum(outcome_of(c) == "wrong" for c in self.cases)

    @property
    def examples(self) -> tuple[Observation, ...]:
        """The surest mistakes, each with another question."""
        found: dict[str, Observation] = {}
        for case in sorted(self.cases, key=lambda c: (outcome_of(c) != "wrong", -c.confidence)):
            found.setdefault(case.question, case)
        return tuple(found.values())[:_EXAMPLES]

    def as_json(self) -> dict[str, Any]:
        """The figures and examples."""
        return {
            "name": self.name,
            "kind": self.kind,
            "n": len(self.cases),
            "wrong": self.wrong,
            "doubtful": len(self.cases) - self.wrong,
            "stops": [str(stop) for stop in self.stops],
            "examples": [
                {
                    "question": c.question,
                    "stored_question": c.stored_question,
                    "answer": c.answer,
                    "stored_answer": c.stored_answer,
                    "confidence": c.confidence,
                    "why": c.why,
                }
                for c in self.examples
            ],
        }


def differences(seen: Observation) -> tuple[str, ...]:
    """In what the two turns differ, as kinds, the more telling first; empty where the texts were not kept."""
    kinds = {_OF_RELATION.get(conflict.name, "related only") for conflict in seen.conflicts}
    if seen.question and seen.stored_question:
        asked, stored = _turn(seen.before, seen.question), _turn(seen.stored_before, seen.stored_question)
        found_here = relations(asked, stored, same_place=seen.same_place)
        kinds |= {_OF_RELATION.get(r.name, "related only") for r in found_here if r.kind == "conflict"}
        mine, theirs = fingerprint_of(asked), fingerprint_of(stored)
        for field, kind in _OF_FIELD.items():
            one, other = getattr(mine, field), getattr(theirs, field)
            if isinstance(one, tuple) and field not in ("direction", "ordered"):
                one, other = frozenset(map(str, one)), frozenset(map(str, other))
            if one != other and (field not in _BOTH or (one and other)):
                kinds.add(kind)
        if seen.before != seen.stored_before and not seen.same_place:
            kinds.add("context")
        if not kinds:
            kinds.add("answer only")
    found = [kind for kind in KINDS if kind in kinds]
    if "related only" in found and len(found) > 1:  # it is not "only" then
        found.remove("related only")
    return tuple(found)


def clusters(seen: Sequence[Observation], *, seed: int = 0) -> list[Cluster]:
    """Group the wrong and doubtful reworded hits, largest groups first. Deterministic for a seed."""
    hits = [o for o in seen if o.hit and not o.exact]
    bad = [o for o in hits if outcome_of(o) in ("wrong", "doubtful")]
    right = [o for o in hits if outcome_of(o) == "right"]
    if len(bad) > MOST:
        bad = random.Random(seed).sample(bad, MOST)
    if len(right) > MOST:  # each is parsed; the price of a remedy is then a share of these
        right = random.Random(seed).sample(right, MOST)
    if not bad:
        return []
    kinds = [differences(o) for o in bad]
    own = [_own_words(o) for o in bad]
    labels = _labels(kinds, own)
    right_kinds = [differences(o) for o in right]
    groups: dict[int, list[int]] = {}
    for index, label in enumerate(labels):
        groups.setdefault(int(label), []).append(index)
    found = []
    for members in groups.values():
        leading = Counter(k[0] if k else "unknown" for k in (kinds[m] for m in members)).most_common(1)[0][0]
        words = Counter(word for m in members for word in set(own[m]))
        least = 1 if len(members) == 1 else 2
        cases = tuple(bad[m] for m in members)
        found.append(
            Cluster(
                leading,
                tuple(word for word, count in words.most_common(4) if count >= least),
                cases,
                _stops(cases, [kinds[m] for m in members], right, right_kinds),
            )
        )
    return sorted(found, key=lambda c: (-len(c.cases), c.name))


def _labels(kinds: Sequence[tuple[str, ...]], own: Sequence[list[str]]) -> list[int]:
    if len(kinds) == 1:
        return [0]
    # The first kind counts most: it names the group.
    table = np.zeros((len(kinds), len(KINDS) + 1))
    for row, names in enumerate(kinds):
        for place, name in enumerate(names):
            table[row, KINDS.index(name)] = _KIND_WEIGHT / (1 + 2 * place)
        if not names:
            table[row, -1] = _KIND_WEIGHT
    if any(own):
        words = TfidfVectorizer(analyzer=lambda text: text, min_df=1).fit_transform(own).toarray()
        table = np.hstack([table, words])
    grouping = AgglomerativeClustering(n_clusters=None, distance_threshold=_APART, metric="cosine", linkage="average")
    return [int(label) for label in grouping.fit_predict(table)]


def _own_words(seen: Observation) -> list[str]:
    """Words that only one of the two questions holds."""
    mine, theirs = (set(_WORDS.findall(t.casefold())) for t in (seen.question, seen.stored_question))
    return sorted((mine ^ theirs) - _EMPTY)


def _stops(
    cases: Sequence[Observation],
    kinds: Sequence[tuple[str, ...]],
    right: Sequence[Observation],
    right_kinds: Sequence[tuple[str, ...]],
) -> tuple[Stop, ...]:
    """The threshold above the group, and the guard on what it has in common, each with its price."""
    n, of_right = len(cases), len(right)
    top = max(c.confidence for c in cases)
    limit = float(np.nextafter(top, 2.0))
    what = f"answer above {top:.4f}" if limit <= 1 else "no threshold (some are as sure as can be)"
    stopped = n if limit <= 1 else sum(c.confidence < top for c in cases)
    stops = [Stop(what, stopped, n, sum(r.confidence < limit for r in right) if limit <= 1 else of_right, of_right)]
    for kind, count in Counter(k for names in kinds for k in names).most_common(2):
        if kind == "answer only":
            continue
        lost = sum(kind in names for names in right_kinds)
        stops.append(Stop(f"a guard on every difference in {kind}", count, n, lost, of_right))
    by_place = [c for c in cases if not c.same_place]
    if by_place:
        lost = sum(not r.same_place for r in right)
        stops.append(Stop("answers only within the same conversation path", len(by_place), n, lost, of_right))
    return tuple(sorted(stops, key=lambda s: (-(s.stopped / s.of - s.right_lost / max(1, s.of_right)), s.what)))


def share_misjudged(seen: Sequence[Observation]) -> tuple[int, int, tuple[float, float]]:
    """Wrong reworded hits, reworded hits that could be judged, and the 95 % interval of their share."""
    hits = [outcome_of(o) for o in seen if o.hit and not o.exact]
    wrong, judged = hits.count("wrong"), hits.count("wrong") + hits.count("right")
    return wrong, judged, wilson(wrong, judged)


def _turn(before: str, question: str) -> Turn:
    return Turn((), (Message("assistant", before),) if before else (), Message("user", question))
