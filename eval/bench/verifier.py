"""How well a backend judges whether a stored answer serves: ``python -m eval.bench.verifier --url URL [--json OUT]``.

The third stage (`store.opinion`, ``decision.verifier = "backend"``) asks a model for one token. Here it is asked about
labelled pairs of ``../shared/data``: half equivalent, half different. The stored answer is one the model itself gives
to the first conversation, as in a cache. Printed: the AUC of its share of yes, Platt's calibration (slope, intercept,
fitted on one half of the domains) with its error on the other half, what it would serve at the threshold that keeps
wrong answers under 1 % and 3 % on the first half, and what a question costs.

Numbers for your own model: run it against your backend and put ``slope``, ``intercept`` and ``least`` into
``decision.verifier_slope``, ``verifier_intercept`` and ``verifier_least``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from eval.data import Pair, load_families
from eval.guards import half_of
from eval.provenance import commit
from eval.statistics import wilson
from fingerprint.conversation import Turn
from fingerprint.facts import objections
from store.opinion import NoOpinion, Scale, messages_of, yes_share

__all__ = ["main"]

_TOP: Final = 20
_TIMEOUT_S: Final = 600.0
_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class Asked:
    """One pair and what the model said."""

    pair: Pair
    share: float | None  # of yes; None: it did not say
    seconds: float
    prompt_tokens: int
    cached_tokens: int | None


def chosen(count: int) -> list[Pair]:
    """``count`` pairs no guard objects to, as many equivalent as different, spread over families."""
    pairs = load_families()
    random.Random(5).shuffle(pairs)
    wanted = {True: count // 2, False: count - count // 2}
    seen: set[tuple[str, bool]] = set()
    found: list[Pair] = []
    for pair in pairs:
        key = (pair.family, pair.equivalent)
        if not wanted[pair.equivalent] or key in seen or objections(pair.a, pair.b, same_place=False):
            continue
        seen.add(key)
        wanted[pair.equivalent] -= 1
        found.append(pair)
        if not any(wanted.values()):
            break
    return found


def answer_to(client: httpx.Client, model: str, turn: Turn, tokens: int) -> str:
    """What the model itself says to a conversation."""
    messages = [{"role": m.role, "content": m.text} for m in turn.messages]
    body = {"model": model, "messages": messages, "max_tokens": tokens, "temperature": 0}
    reply = client.post("/v1/chat/completions", json=body)
    reply.raise_for_status()
    return str(reply.json()["choices"][0]["message"]["content"])


def ask(client: httpx.Client, model: str, pair: Pair, answer: str) -> Asked:
    """Ask about one pair, as `proxy.opinion` does."""
    try:
        messages = messages_of(pair.b, pair.a, answer)
    except NoOpinion:
        return Asked(pair, None, 0.0, 0, None)
    body = {
        "model": model,
        "messages": messages,
        "max_tokens": 1,
        "temperature": 0,
        "logprobs": True,
        "top_logprobs": _TOP,
    }
    began = time.perf_counter()
    reply = client.post("/v1/chat/completions", json=body)
    seconds = time.perf_counter() - began
    reply.raise_for_status()
    found = reply.json()
    try:
        share: float | None = yes_share(found)
    except NoOpinion:
        share = None
    usage = found.get("usage") or {}
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    return Asked(pair, share, seconds, int(usage.get("prompt_tokens") or 0), cached)


def calibrated(asked: Sequence[Asked]) -> Scale:
    """Platt's calibration of the shares of yes."""
    logits = np.array([[math.log(s / (1 - s))] for one in asked if (s := _inside(one.share)) is not None])
    labels = np.array([one.pair.equivalent for one in asked if one.share is not None])
    model = LogisticRegression(C=1e3).fit(logits, labels)
    return Scale(float(max(0.0, model.coef_[0][0])), float(model.intercept_[0]))


def _inside(share: float | None) -> float | None:
    return None if share is None else min(1 - 1e-6, max(1e-6, share))


def least_at(asked: Sequence[Asked], scale: Scale, wrong_share: float) -> float:
    """The smallest probability at which at most ``wrong_share`` of the different pairs are served; over 1: none."""
    different = [scale(one.share) for one in asked if one.share is not None and not one.pair.equivalent]
    for least in sorted({scale(one.share) for one in asked if one.share is not None}):
        if sum(p >= least for p in different) <= wrong_share * len(different):
            return least
    return 2.0


def served(asked: Sequence[Asked], scale: Scale, least: float) -> dict[str, Any]:
    """Right and wrong answers at a threshold; what the model did not say counts as no."""
    out: dict[str, Any] = {"least": round(least, 4)}
    for name, equivalent in (("right", True), ("wrong", False)):
        group = [one for one in asked if one.pair.equivalent == equivalent]
        hits = sum(one.share is not None and scale(one.share) >= least for one in group)
        out[name] = f"{hits}/{len(group)}"
        out[f"{name}_ci"] = [round(x, 4) for x in wilson(hits, len(group))]
    return out


def figures(asked: Sequence[Asked]) -> dict[str, Any]:
    """Everything that is printed."""
    said = [one for one in asked if one.share is not None]
    shares, labels = [one.share for one in said], [one.pair.equivalent for one in said]
    tune = [one for one in asked if half_of(one.pair.domain) == "tune"]
    held = [one for one in asked if half_of(one.pair.domain) == "held"]
    scale = calibrated(tune)
    errors = [(scale(one.share) - one.pair.equivalent) ** 2 for one in held if one.share is not None]
    costs = [one for one in asked if one.prompt_tokens]
    cached = [one.cached_tokens for one in costs if one.cached_tokens is not None]
    return {
        "pairs": len(asked),
        "said_neither": len(asked) - len(said),
        "auc": round(float(roc_auc_score(labels, shares)), 4),
        "auc_by_language": {
            lang: round(
                float(
                    roc_auc_score(
                        [one.pair.equivalent for one in said if one.pair.lang == lang],
                        [one.share for one in said if one.pair.lang == lang],
                    )
                ),
                4,
            )
            for lang in sorted({one.pair.lang for one in said})
            if len({one.pair.equivalent for one in said if one.pair.lang == lang}) == 2
        },
        "share_of_yes": {
            name: round(statistics.median(one.share for one in said if one.pair.equivalent == kind and one.share), 4)
            for name, kind in (("equivalent", True), ("different", False))
        },
        "slope": round(scale.slope, 4),
        "intercept": round(scale.intercept, 4),
        "brier_held_out": round(statistics.fmean(errors), 4) if errors else None,
        "at_1_percent": served(held, scale, least_at(tune, scale, 0.01)),
        "at_3_percent": served(held, scale, least_at(tune, scale, 0.03)),
        "ms": {
            "p50": round(1000 * statistics.median(one.seconds for one in costs), 1),
            "p95": round(1000 * sorted(one.seconds for one in costs)[int(0.95 * (len(costs) - 1))], 1),
        },
        "prompt_tokens_p50": statistics.median(one.prompt_tokens for one in costs),
        "cached_tokens_p50": statistics.median(cached) if cached else None,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True, help="the backend")
    parser.add_argument("--model", help="default: the first the backend names")
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--answer-tokens", type=int, default=64, help="length of the stored answers (default: 64)")
    parser.add_argument("--json", type=Path, metavar="OUT")
    given = parser.parse_args(arguments)
    with httpx.Client(base_url=given.url, timeout=_TIMEOUT_S, trust_env=False) as client:
        model = given.model or str(client.get("/v1/models").json()["data"][0]["id"])
        pairs = chosen(given.pairs)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            answers = list(pool.map(lambda pair: answer_to(client, model, pair.a, given.answer_tokens), pairs))
        print(f"{len(answers)} answers", flush=True)
        asked = []
        for pair, answer in zip(pairs, answers, strict=True):  # one at a time: what a question costs
            asked.append(ask(client, model, pair, answer))
            if len(asked) % 20 == 0:
                print(f"{len(asked)} asked", flush=True)
    found = figures(asked)
    print(json.dumps(found, indent=1))
    if given.json:
        document = {
            "command": f"python -m eval.bench.verifier --pairs {given.pairs} --answer-tokens {given.answer_tokens}",
            "commit": commit(),
            "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}",
            "load": [round(x, 1) for x in os.getloadavg()],
            "model": model,
            **found,
        }
        given.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
