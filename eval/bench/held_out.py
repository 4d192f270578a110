"""The whole decision on domains no part of it was trained on, through the store that serves.

usage: python -m eval.bench.held_out --trees DIR [--limit N] [--system] [--json OUT]

The cross-encoder that ships never saw fold 0 (``eval.data.fold_of``); ``--trees`` holds first stages that did not:
``python -m eval.train.trees fit --without 0 --out DIR/trees_LANG.npz``. The curves and thresholds are the shipped ones;
they were read off fold 0, so the figures at the shipped threshold lean on it by the few numbers of a curve.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from eval.data import Pair, load_families, load_pairs
from eval.pairs import figures, measure, table
from eval.provenance import commit
from fingerprint.conversation import Message
from fingerprint.embedding.router import load_router
from store.confidence import load, thresholds

HELD_OUT = 0
SYSTEM = {
    "en": "You are the assistant of a help desk. Answer in plain words and stay with the question. Give steps in the "
    "order in which they are done, one sentence a step. Say what you are not sure of. Never ask for passwords, "
    "card numbers or other secrets, and tell people not to send them. Units are metric unless others are asked "
    "for. Keep to the language of the question.",
    "zh": "你是客服助手。请用简单的话回答，不要离题。需要步骤时按先后顺序写，每步一句。没有把握的地方要说明。"
    "不要索要密码、银行卡号等信息，并提醒用户不要发送。没有特别要求时使用公制单位。用提问的语言回答。",
}
"""System prompts like an app's; the proxy compares only turns that have the same."""


def spread(pairs: Sequence[Pair], limit: int | None) -> list[Pair]:
    """At most ``limit`` pairs, evenly taken."""
    if limit is None or limit >= len(pairs):
        return list(pairs)
    return [pairs[i * len(pairs) // limit] for i in range(limit)]


def under(pair: Pair) -> Pair:
    """The pair under a system prompt, where it has none."""
    if pair.a.system or pair.b.system:
        return pair
    system = (Message("system", SYSTEM["zh" if pair.lang == "zh" else "en"]),)
    return replace(pair, a=replace(pair.a, system=system), b=replace(pair.b, system=system))


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", type=Path, required=True)
    parser.add_argument("--limit", type=int, help="pairs of each group, at most")
    parser.add_argument("--system", action="store_true", help="give every pair a system prompt, as apps do")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    families = [p for p in load_families() if p.fold == HELD_OUT]
    groups = {
        "families_en": [p for p in families if p.lang == "en"],
        "families_zh": [p for p in families if p.lang == "zh"],
        "trec_cast": load_pairs(["trec_cast"]),
        "cmath_distractor": load_pairs(["cmath_distractor"]),
    }
    if given.system:
        groups = {name: list(map(under, pairs)) for name, pairs in groups.items()}
    console = Console(width=150)
    embedder, confidence, policy = load_router(), load(given.trees), thresholds()
    results: dict[str, Any] = {}
    for name, pairs in groups.items():
        for shared in (False, True):
            outcomes = asyncio.run(
                measure(
                    spread(pairs, given.limit),
                    embedder=embedder,
                    confidence=confidence,
                    policy=policy,
                    shared=shared,
                    labels=pairs,
                )
            )
            title = f"{name}_shared" if shared else name
            found = figures(outcomes)
            found["subtypes"] = {
                how: figures([o for o in outcomes if o.pair.subtype == how], categories=False)
                for how in sorted({o.pair.subtype for o in outcomes})
            }
            results[title] = found
            console.print(table(title, outcomes, found))
    if given.json:
        document = {
            "commit": commit(),
            "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}",
            "system prompt": given.system,
            "thresholds": {"answer": policy.answer, "verify": policy.verify, "model": confidence.version},
            "files": results,
        }
        given.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
