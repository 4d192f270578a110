"""What a full cache offers beside the right entry, as both stages see it: ``eval.train.calibrate --neighbours``.

usage: python -m eval.train.neighbours --trees DIR --out FILE.npz

The labelled pairs are look-alikes and equivalents. Most of what a look-up meets is neither: the nearest turns of other
families, most of them far away. The few pairs that far apart in the data are equivalents in quite other words, so from
the pairs alone a model learns to trust distance. Here turns of domains that no part of the decision has seen meet the
nearest of other families, and what else was asked in their own conversation, as if it were asked again where they
stand; all of them are different. ``DIR`` holds trees fitted without that fold
(``eval.bench.held_out``).
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from eval.bench.held_out import HELD_OUT
from eval.data import Pair, load_families
from eval.train.calibrate import floors
from fingerprint.conversation import Turn
from fingerprint.embedding.base import TextEmbedder
from fingerprint.embedding.router import load_router
from fingerprint.facts import objections
from store.confidence import load
from store.confidence.model import LearnedConfidence, too_far, where
from store.types import Candidate

RANKS = (0, 1, 3, 7)
"""Which of the nearest are met: those that are judged, not all alike."""
TURNS = 600
"""Turns of each language, and as many of those within a conversation, that meet their neighbours."""
LONGEST = 500  # characters of a message that takes part
SEED = 11


def _turns(pairs: Sequence[Pair], lang: str, *, inside: bool) -> list[tuple[Turn, str]]:
    """Turns of a language with the name of their family, each message once."""
    found: dict[str, tuple[Turn, str]] = {}
    for pair in pairs:
        for turn in (pair.a, pair.b) if pair.lang == lang else ():
            if bool(turn.history) == inside and len(turn.message.text) < LONGEST:
                found.setdefault(turn.message.text, (turn, pair.family))
    return list(found.values())


def candidates(lang: str) -> Iterator[tuple[Turn, Candidate]]:
    """Turns of held-out families with what retrieval would offer them of other families."""
    chance = np.random.default_rng(SEED)
    embedder = load_router()
    pairs = [p for p in load_families() if p.fold == HELD_OUT]
    pools = []
    for inside in (False, True):
        turns = _turns(pairs, lang, inside=inside)
        found = embedder.encode([turn.message.text for turn, _ in turns])
        pools.append((turns, np.stack([np.zeros(384, np.float32) if one is None else one.vector for one in found])))
    for turns, vectors in pools:
        for place in chance.permutation(len(turns))[:TURNS]:
            turn, family = turns[place]
            for others, there in pools:
                similarity = there @ vectors[place]
                near = [int(i) for i in np.argsort(-similarity)[:200] if others[int(i)][1] != family]
                for i in (near[rank] for rank in RANKS if rank < len(near)):
                    other = others[i][0]
                    same = not turn.history and not other.history
                    other = Turn(turn.system, other.history, other.message)  # else they never meet
                    yield turn, Candidate("", other, float(similarity[i]), 1.0, same_place=same)
    yield from _follow_ups(pools[1][0], embedder, chance)


def _follow_ups(
    turns: Sequence[tuple[Turn, str]], embedder: TextEmbedder, chance: np.random.Generator
) -> Iterator[tuple[Turn, Candidate]]:
    """Messages on the way with what the same conversation goes on to ask, as if it had been asked in their place."""
    for number in chance.permutation(len(turns)):
        turn, _ = turns[number]
        said = (*turn.history, turn.message)
        asked = [place for place, m in enumerate(said) if m.role == "user" and len(m.text) < LONGEST]
        found = embedder.encode([said[place].text for place in asked])
        vectors = {place: e.vector for place, e in zip(asked, found, strict=True) if e is not None}
        for here, later in itertools.combinations(vectors, 2):
            if here and said[here].text != said[later].text:  # a first message has no history
                before = Turn(turn.system, said[:here], said[here])
                similarity = float(vectors[here] @ vectors[later])
                yield before, Candidate("", replace(before, message=said[later]), similarity, 1.0, same_place=True)


def rows(confidence: LearnedConfidence, lang: str) -> Iterator[tuple[str, str, float, float, float]]:
    """Language, place, cosine and both stages' logits of those that no guard keeps apart."""
    near = floors(lang)
    for turn, candidate in candidates(lang):
        if too_far(turn, candidate, near):
            continue
        if objections(turn, candidate.turn, same_place=candidate.same_place):
            continue
        first, second = confidence.logits(turn, candidate, lang)
        yield lang, where(turn, candidate), candidate.similarity, first, second


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    confidence = load(given.trees)
    found = [row for lang in ("en", "zh") for row in rows(confidence, lang)]
    lang, place, cosine, first, second = zip(*found, strict=True)
    np.savez(
        given.out,
        lang=np.array(lang),
        where=np.array(place),
        cos=np.array(cosine),
        first=np.array(first),
        second=np.array(second),
    )
    print(f"{len(found)} neighbours")


if __name__ == "__main__":
    main()
