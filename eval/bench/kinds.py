"""The six kinds of evaluation row, before suspects are served and after, on domains the decision was not trained on.

usage: python -m eval.bench.kinds --trees DIR [--limit N] [--json OUT]

Rewording, anaphora and background should be hits; an entity swap, an intent flip and a related question should not
(each kind has pairs of both labels where the data has them). Every pair is asked once, with verification running:
what is served without being suspect is *before*, everything served is *after*. ``--trees`` as in
``eval.bench.held_out``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from eval.bench.held_out import HELD_OUT, spread
from eval.data import load_families, load_pairs
from eval.pairs import Outcome, measure
from eval.provenance import commit
from eval.statistics import wilson
from fingerprint.embedding.router import load_router
from store.confidence import load, thresholds
from store.settings import CheckSettings

KINDS = {
    "rewording": "paraphrase",
    "anaphora": "anaphora",
    "background": "background",
    "entity swap": "entity_swap",
    "intent flip": "negation",
    "related": "related",
}
"""The kinds of issue and design, by the categories of the pair format."""


def counts(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Right and wrong hits of one kind, before and after, with 95 % intervals of their shares."""
    equivalent = sum(o.pair.equivalent for o in outcomes)
    out: dict[str, Any] = {"n_equivalent": equivalent, "n_different": len(outcomes) - equivalent}
    for when in ("before", "after"):
        served = [o for o in outcomes if o.served and (when == "after" or not o.decision.suspect)]
        right = sum(o.right for o in served if o.pair.equivalent)
        wrong = sum(not o.right for o in served if not o.pair.equivalent)
        out[when] = {
            "right": right,
            "wrong": wrong,
            "right_ci": list(wilson(right, equivalent)),
            "wrong_ci": list(wilson(wrong, len(outcomes) - equivalent)),
        }
    return out


def table(results: dict[str, Any]) -> Table:
    """One line a group and kind."""
    grid = Table(title="the six kinds of row", title_justify="left")
    for name in ("group", "kind", "same", "different", "right before", "right after", "wrong before", "wrong after"):
        grid.add_column(name, justify="left" if name in ("group", "kind") else "right")
    for group, kinds in results.items():
        for kind, one in kinds.items():
            same, different = one["n_equivalent"], one["n_different"]
            grid.add_row(
                group, kind, str(same), str(different),
                *(f"{one[when]['right']} ({100 * one[when]['right'] / same:.1f} %)" if same else "–"
                  for when in ("before", "after")),
                *(f"{one[when]['wrong']} ({100 * one[when]['wrong'] / different:.1f} %)" if different else "–"
                  for when in ("before", "after")),
            )  # fmt: skip
    return grid


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=700, help="pairs of each group, at most")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    families = [p for p in load_families() if p.fold == HELD_OUT]
    groups = {
        "families, en": [p for p in families if p.lang == "en"],
        "families, zh": [p for p in families if p.lang == "zh"],
        "trec_cast": load_pairs(["trec_cast"]),
        "cmath_distractor": load_pairs(["cmath_distractor"]),
    }
    embedder, confidence, policy = load_router(), load(given.trees), thresholds()
    console = Console(width=150)
    results: dict[str, Any] = {}
    for name, pairs in groups.items():
        wanted = [p for p in pairs if p.category in KINDS.values()]
        outcomes = asyncio.run(
            measure(
                spread(wanted, given.limit),
                embedder=embedder,
                confidence=confidence,
                policy=policy,
                labels=pairs,
                checks=CheckSettings(enabled=True),
            )
        )
        results[name] = {
            kind: counts(of_kind)
            for kind, category in KINDS.items()
            if (of_kind := [o for o in outcomes if o.pair.category == category])
        }
        console.print(f"[dim]{name} is done[/dim]")
    console.print(table(results))
    if given.json:
        document = {
            "commit": commit(),
            "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}",
            "thresholds": {"answer": policy.answer, "verify": policy.verify, "model": confidence.version},
            "groups": results,
        }
        given.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
