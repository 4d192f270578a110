"""The error budget on streams whose truth is known: is the limit held, and what does it cost in hits?

usage: python -m eval.bench.budget --trees DIR [--limit N] [--turns N] [--runs N] [--scores FILE] [--json OUT]

First the pairs of domains that no part of the decision was trained on (``eval.bench.held_out``; ``--trees`` is the
same) go through the store, the guards and the confidence, once. Then streams of turns are drawn from their outcomes
and run against ``store.budget.Budget``, the code that serves: each turn has a best candidate, a confidence and a
truth; it is a hit where the confidence reaches the threshold in force, and is checked with the probability the budget
asks for, whether it was served or not (a miss is checked for nothing). ``--scores`` keeps the outcomes between runs.

A run *holds* the limit where its share of wrong hits is at most the limit. One wrong hit is more than 1 % of any run
with fewer than 100 hits, so it is also said whether the excess is more than chance: an exact binomial test at 5 %.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from scipy.stats import binom

from eval.bench.held_out import HELD_OUT, spread
from eval.data import load_families, load_pairs
from eval.pairs import measure
from eval.provenance import commit
from eval.statistics import wilson
from fingerprint.embedding.router import load_router
from store.budget import Budget, Observation
from store.confidence import load, thresholds
from store.types import Kind, Policy

LIMITS = (0.01, 0.03, 0.05)
SAMPLE_RATE = 0.02  # the default of ``verification.sample_rate``
SEED = 20261129


@dataclass(frozen=True, slots=True)
class Row:
    """What the decision thought of one turn's best candidate, and whether its answer would have been right."""

    confidence: float  # 0 where nothing may be served
    same_place: bool
    right: bool

    @property
    def kind(self) -> Kind:
        """The kind of hit that it would be."""
        return "same_place" if self.same_place else "other_context"


@dataclass(frozen=True, slots=True)
class Run:
    """One stream."""

    hits: int
    wrong: int
    right_possible: int  # right hits of the fixed thresholds
    checks: int  # requests that checking hits cost
    closed: bool  # a kind was closed at the end


def outcomes(trees: Path, limit: int | None) -> dict[str, list[Row]]:
    """Ask every pair once, alone and with all others of its group as distractors."""
    families = [p for p in load_families() if p.fold == HELD_OUT]
    groups = {
        "families_en": [p for p in families if p.lang == "en"],
        "families_zh": [p for p in families if p.lang == "zh"],
        "trec_cast": load_pairs(["trec_cast"]),
    }
    embedder, confidence, policy = load_router(), load(trees), thresholds()
    found: dict[str, list[Row]] = {}
    for name, pairs in groups.items():
        for shared in (False, True):
            measured = asyncio.run(
                measure(
                    spread(pairs, limit),
                    embedder=embedder,
                    confidence=confidence,
                    policy=policy,
                    shared=shared,
                    labels=pairs,
                )
            )
            rows = []
            for outcome in measured:
                best = outcome.decision.judgements[0] if outcome.decision.judgements else None
                sure = 0.0 if best is None or best.objections or outcome.decision.level == "bypass" else best.confidence
                rows.append(Row(sure, best is not None and best.same_place, outcome.right))
            found[f"{name}_shared" if shared else name] = rows
    return found


def overconfident(row: Row) -> Row:
    """The same turn seen by a calibration that promises five times fewer errors."""
    return Row(1 - (1 - row.confidence) / 5 if row.confidence else 0.0, row.same_place, row.right)


Source = Callable[[random.Random, float], Row]  # chance, progress 0 … 1 -> the next turn


def streams(found: dict[str, list[Row]]) -> dict[str, Source]:
    """Every kind of stream: each group by itself, traffic that turns hard half-way, a calibration far too sure."""

    def drawn(rows: Sequence[Row]) -> Source:
        return lambda chance, progress: chance.choice(rows)

    made = {name: drawn(rows) for name, rows in found.items()}
    easy, hard = found["trec_cast"], found["families_en_shared"]
    made["turning hard"] = lambda chance, progress: chance.choice(easy if progress < 0.5 else hard)
    made["far too sure"] = drawn([overconfident(row) for row in found["families_en_shared"]])
    return made


def simulate(source: Source, policy: Policy, limit: float | None, *, turns: int, seed: int) -> Run:
    """Run one stream; ``limit`` None keeps the fixed thresholds."""
    chance, checked = random.Random(seed), random.Random(seed + 1)
    budget = Budget(limit, policy)
    hits = wrong = right = checks = 0
    for number in range(turns):
        row = source(chance, number / turns)
        if row.confidence < policy.answer:
            continue
        right += row.right
        served = row.confidence >= budget.threshold(row.kind)
        hits += served
        wrong += served and not row.right
        if limit is not None and checked.random() < budget.wanted(row.kind, SAMPLE_RATE):
            checks += served
            budget.observe([Observation(row.kind, row.confidence, not row.right)])
    closed = any(report.decided_by == "closed" for report in budget.report())
    return Run(hits, wrong, right, checks, closed)


def summary(runs: Sequence[Run], limit: float | None) -> dict[str, Any]:
    """Means over the runs, and how many held the limit."""
    count = len(runs)
    out: dict[str, Any] = {
        "runs": count,
        "hits": sum(r.hits for r in runs) / count,
        "wrong": sum(r.wrong for r in runs) / count,
        "wrong_share": sum(r.wrong for r in runs) / max(1, sum(r.hits for r in runs)),
        "right_kept": sum(r.hits - r.wrong for r in runs) / max(1, sum(r.right_possible for r in runs)),
        "checks": sum(r.checks for r in runs) / count,
        "closed": sum(r.closed for r in runs) / count,
    }
    if limit is not None:
        held = sum(r.wrong <= limit * r.hits for r in runs)
        chance = sum(r.wrong == 0 or binom.sf(r.wrong - 1, r.hits, limit) >= 0.05 for r in runs)
        out |= {"held": held / count, "held_ci": list(wilson(held, count)), "held_within_chance": chance / count}
    return out


def table(results: dict[str, Any], turns: int) -> Table:
    """One line a stream and limit."""
    grid = Table(title=f"error budget, {turns} turns a stream", title_justify="left")
    for name in ("stream", "limit", "hits", "wrong", "share", "right kept", "held", "within chance", "checks"):
        grid.add_column(name, justify="left" if name == "stream" else "right")
    for name, by_limit in results.items():
        for limit, one in by_limit.items():
            grid.add_row(
                name,
                limit,
                f"{one['hits']:.0f}",
                f"{one['wrong']:.1f}",
                f"{100 * one['wrong_share']:.2f} %",
                f"{100 * one['right_kept']:.0f} %",
                f"{100 * one['held']:.1f} %" if "held" in one else "",
                f"{100 * one['held_within_chance']:.1f} %" if "held" in one else "",
                f"{one['checks']:.0f}",
            )
    return grid


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", type=Path, help="first stages that have not seen the held-out fold")
    parser.add_argument("--limit", type=int, default=1_500, help="pairs of each group, at most")
    parser.add_argument("--turns", type=int, default=10_000, help="turns of each stream")
    parser.add_argument("--runs", type=int, default=200, help="streams of each kind")
    parser.add_argument("--scores", type=Path, help="outcomes of the pairs: read where it exists, else written")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    policy = thresholds()
    if given.scores is not None and given.scores.exists():
        kept = json.loads(given.scores.read_text(encoding="utf-8"))
        found = {name: [Row(**row) for row in rows] for name, rows in kept.items()}
    elif given.trees is None:
        parser.error("give --trees, or --scores of an earlier run")
    else:
        found = outcomes(given.trees, given.limit)
        if given.scores is not None:
            kept = {name: [asdict(row) for row in rows] for name, rows in found.items()}
            given.scores.write_text(json.dumps(kept), encoding="utf-8")
    console = Console(width=150)
    results: dict[str, Any] = {}
    for name, source in streams(found).items():
        results[name] = {}
        for limit in (None, *LIMITS):
            runs = [simulate(source, policy, limit, turns=given.turns, seed=SEED + 2 * i) for i in range(given.runs)]
            results[name]["fixed" if limit is None else f"{limit:g}"] = summary(runs, limit)
        console.print(f"[dim]{name} is done[/dim]")
    console.print(table(results, given.turns))
    if given.json:
        document = {
            "commit": commit(),
            "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}",
            "thresholds": {"answer": policy.answer, "verify": policy.verify},
            "turns": given.turns,
            "sample_rate": SAMPLE_RATE,
            "pairs": {name: len(rows) for name, rows in found.items()},
            "streams": results,
        }
        given.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
