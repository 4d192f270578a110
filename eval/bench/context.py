"""Which context finds the right stored turn: ``python -m eval.bench.context [--families N] [--json OUT]``.

The strategies of ``store.context_strategy`` on conversations of ``../shared/data``: every first conversation of a pair
is stored (all of a language in one cache, so that each is a distractor for the others), every second one asks.
Candidates are put in order by the code that serves (`store.retrieval.candidates`), with vectors of the embedders that
ship.

- ``first``, ``among_8``: share of equivalent pairs with a history whose stored turn (or one the labels call equivalent)
  comes first, or is among the eight that are judged; ``mrr`` the mean of 1 / its place (0 beyond 32).
- ``apart``: AUC with which the likeness of contexts alone tells equivalent from different pairs whose last messages are
  literally the same. 0.5: it knows nothing of contexts.
- ``texts``: texts a turn needs beside its message, and how many of them were not embedded before for another turn.

The choice of a strategy changes the order of candidates only: what is served is decided by guards and confidence, which
read the conversations themselves.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from eval.data import Pair, expand_families, families, load_pairs
from eval.provenance import commit
from eval.statistics import wilson
from fingerprint.conversation import Turn
from fingerprint.embedding.base import TextEmbedder
from fingerprint.embedding.router import load_router
from fingerprint.keys import Scope, exact_key, identity_key, identity_parts, partition_key
from store.codec import pack_question, pack_vector
from store.reads import Near
from store.retrieval import Found, candidates
from store.settings import ContextStrategy
from store.types import Query
from store.window import ContextVectors, context_name, context_of, window_vector

__all__ = ["main"]

DEPTH: Final = 32  # as store.retrieval_depth
JUDGED: Final = 8  # as decision.max_candidates
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Variant:
    """A strategy with what it was set to."""

    strategy: ContextStrategy
    rounds: int
    cut: bool = True

    @property
    def title(self) -> str:
        """How it is called in the table."""
        rounds = "" if self.strategy == "current" else f", {self.rounds} rounds"
        return f"{self.strategy}{rounds}{'' if self.cut else ', not cut'}"


VARIANTS: Final = (
    Variant("current", 5),
    Variant("window", 1),
    Variant("window", 3),
    Variant("window", 5),
    Variant("window", 5, cut=False),
    Variant("window+topic", 5),
    Variant("summary", 5),
)


class Library:
    """Every text is embedded once."""

    def __init__(self, embedder: TextEmbedder) -> None:
        self._embedder = embedder
        self._known: dict[str, tuple[Floats, str] | None] = {}
        self.seconds = 0.0

    def __contains__(self, text: str) -> bool:
        return text in self._known

    def __len__(self) -> int:
        return len(self._known)

    def get(self, text: str) -> tuple[Floats, str] | None:
        """Vector and space; None where no embedder reads it."""
        if text not in self._known:
            started = time.process_time()
            (found,) = self._embedder.encode([text])
            self.seconds += time.process_time() - started
            self._known[text] = None if found is None or found.partial else (found.vector, found.space)
        return self._known[text]


@dataclass(slots=True)
class Texts:
    """How many texts contexts needed."""

    turns: int = 0
    needed: int = 0
    new: int = 0
    seen: set[str] = field(default_factory=set)

    def count(self, turn: Turn, texts: Sequence[str]) -> None:
        """Note one turn: its messages and its answers are embedded anyway, the context's other texts are not."""
        said = {m.text for m in turn.messages}
        self.turns += 1
        self.needed += len(texts)
        self.new += sum(text not in said and text not in self.seen for text in texts)
        self.seen.update(texts)


def context_vectors(turn: Turn, variant: Variant, library: Library, space: str, texts: Texts) -> ContextVectors:
    """What `store.vectors` makes of a turn's context."""
    context = context_of(turn, variant.strategy, variant.rounds, cut=variant.cut)
    texts.count(turn, context.texts)
    known = [library.get(text) for text in context.texts]
    vectors = [None if one is None or one[1] != space else one[0] for one in known]
    parts = [(v, w) for v, (_, w) in zip(vectors, context.window, strict=False) if v is not None]
    return ContextVectors(window_vector(parts), vectors[-1] if context.topic else None, context.fresh)


def query_of(turn: Turn) -> Query:
    """A turn of the evaluator's one user."""
    parts = identity_parts("chat.completions", {"model": "any"}, turn)
    partition, identity = partition_key(Scope(credential="eval")), identity_key(parts)
    return Query(turn, partition, identity, parts, exact_key(partition, identity, turn), None)


def near_of(number: int, turn: Turn, around: ContextVectors, name: str) -> Near:
    """A stored turn as the database gives it back."""
    return Near(
        number=number,
        id=str(number),
        exact_key=b"",
        parent=None,
        depth=len(turn.history),
        created_at=0.0,
        question=pack_question(turn),
        dates="",
        fingerprint=None,
        window=None if around.window is None else pack_vector(around.window),
        topic=None if around.topic is None else pack_vector(around.topic),
        context=name,
        fresh=around.fresh,
    )


def literal(turn: Turn) -> tuple[tuple[str, str], ...]:
    """A turn as a key."""
    return tuple((m.role, m.text) for m in turn.messages)


def measure(pairs: Sequence[Pair], variant: Variant, library: Library) -> dict[str, Any]:
    """One strategy on the pairs of one language."""
    stored = list({literal(p.a): p.a for p in pairs}.values())
    numbers = {literal(turn): number for number, turn in enumerate(stored)}
    right: dict[tuple[tuple[str, str], ...], set[int]] = {}
    for pair in pairs:
        if pair.equivalent:
            right.setdefault(literal(pair.b), set()).add(numbers[literal(pair.a)])
    messages = [library.get(turn.message.text) for turn in stored]
    name = context_name(variant.strategy, variant.rounds)
    texts = Texts()
    nears: list[Near | None] = []
    for number, (turn, known) in enumerate(zip(stored, messages, strict=True)):
        around = None if known is None else context_vectors(turn, variant, library, known[1], texts)
        nears.append(None if around is None else near_of(number, turn, around, name))
    by_space: dict[str, tuple[list[int], Floats]] = {}
    for space in {known[1] for known in messages if known is not None}:
        members = [n for n, known in enumerate(messages) if known is not None and known[1] == space]
        by_space[space] = (members, np.stack([known[0] for n in members if (known := messages[n]) is not None]))

    first = among = asked = 0
    places: list[float] = []
    labels: list[bool] = []
    alike: list[float] = []
    for pair in pairs:
        known = library.get(pair.b.message.text)
        if known is None or not (pair.a.history or pair.b.history):
            continue
        vector, space = known
        context = context_vectors(pair.b, variant, library, space, texts)
        same_words = pair.a.message.text == pair.b.message.text
        wanted = right.get(literal(pair.b), set())
        members, matrix = by_space[space]
        cosines = matrix @ vector
        best = np.argsort(-cosines)[:DEPTH]
        found = [(near, float(cosines[at])) for at in best if (near := nears[members[at]]) is not None]
        partner = nears[numbers[literal(pair.a)]]
        if same_words and partner is not None:
            (judged,) = _in_order(pair.b, [(partner, 1.0)], context, name, 1)
            labels.append(pair.equivalent)
            alike.append(judged[1])
        if pair.equivalent and wanted:
            asked += 1
            order = [number for number, _ in _in_order(pair.b, found, context, name, DEPTH)]
            at = next((n for n, number in enumerate(order) if number in wanted), None)
            first += at == 0
            among += at is not None and at < JUDGED
            places.append(0.0 if at is None else 1 / (at + 1))
    return {
        "stored": len(stored),
        "asked": asked,
        "first": round(first / asked, 4),
        "first_ci": [round(x, 4) for x in wilson(first, asked)],
        "among_8": round(among / asked, 4),
        "mrr": round(float(np.mean(places)), 4),
        "apart": round(float(roc_auc_score(labels, alike)), 4) if len(set(labels)) == 2 else None,
        "apart_pairs": len(labels),
        "texts": {"needed": round(texts.needed / texts.turns, 2), "new": round(texts.new / texts.turns, 2)},
    }


def _in_order(
    turn: Turn, found: Sequence[tuple[Near, float]], context: ContextVectors, name: str, count: int
) -> list[tuple[int, float]]:
    """Numbers of the stored turns in the order they are judged in, each with the likeness of the contexts."""
    chosen = candidates(
        query_of(turn),
        Found(list(found), None),
        context=context,
        context_name=name,
        count=count,
        now=0.0,
        servable=lambda near: True,
    )
    return [(int(one.entry_id), one.window_similarity) for one in chosen]


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", type=int, default=60, help="conversation families of each language (default: 60)")
    parser.add_argument("--public", type=int, default=2_000, help="pairs of each public file, at most (default: 2000)")
    parser.add_argument("--json", type=Path, metavar="OUT")
    given = parser.parse_args(arguments)
    groups: dict[str, list[Pair]] = {}
    everything = [row for row in families() if len(row["base"]["messages"]) > 1]
    for lang in ("en", "zh"):
        rows = [row for row in everything if row["lang"] == lang]
        step = max(1, len(rows) // given.families)
        groups[f"families_{lang}"] = expand_families(rows[::step][: given.families])
    for stem in ("trec_cast", "meancache_contextual"):
        pairs = load_pairs([stem])
        groups[stem] = pairs[:: max(1, len(pairs) // given.public)][: given.public]
    library = Library(load_router())
    results: dict[str, Any] = {}
    for group, pairs in groups.items():
        results[group] = {}
        print(f"{group}: {len(pairs)} pairs")
        print(f"  {'context':32} {'first':>7} {'among 8':>8} {'mrr':>6} {'apart':>6} {'texts':>6} {'new':>5}")
        for variant in VARIANTS:
            found = results[group][variant.title] = measure(pairs, variant, library)
            apart = "–" if found["apart"] is None else f"{found['apart']:.3f}"
            print(
                f"  {variant.title:32} {found['first']:7.1%} {found['among_8']:8.1%} {found['mrr']:6.3f} {apart:>6} "
                f"{found['texts']['needed']:6.2f} {found['texts']['new']:5.2f}",
                flush=True,
            )
    if given.json:
        document = {
            "command": f"python -m eval.bench.context --families {given.families} --public {given.public}",
            "commit": commit(),
            "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}",
            "load": [round(x, 1) for x in os.getloadavg()],
            "embedding_ms_per_text": round(1000 * library.seconds / max(1, len(library)), 2),
            "groups": results,
        }
        given.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
