"""``antiphon eval pairs``: labelled pairs through the code that serves.

Each pair's ``a`` is put into an empty cache, then ``b`` is asked. "Empty" is a partition of its own in one temporary
store, so the look-up, the vectors, the guards, the confidence and the thresholds are those of the proxy, and so is
admission: a correction is never looked up, a time-sensitive turn never stored. Both turns come from one session, so
personal turns may meet. With ``--shared`` all ``a``s stand in one partition and distract each other.

What a hit is called: right where the entry answers a turn that the file calls equivalent to ``b`` (directly or through
others), else wrong. With ``--shared``, pairs whose ``b`` is itself an ``a`` are left out: it would be an exact repeat.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from eval.data import Pair, read_pairs
from eval.statistics import area_under_curve, rate_at, wilson
from fingerprint.conversation import Turn
from fingerprint.embedding.base import TextEmbedder
from fingerprint.keys import Scope, exact_key, identity_key, identity_parts, partition_key, place_key
from fingerprint.signals import signals_of
from store.cache import Cache
from store.confidence import load, thresholds
from store.settings import CheckSettings, StoreSettings
from store.types import Answer, Decision, Policy, Query, ReuseConfidence

__all__ = ["Outcome", "figures", "measure", "run", "table"]

BATCH = 200
WRONG_SHARES = (0.01, 0.03, 0.05)
SHOWN = 8
ANSWER = Answer(body=b'{"object":"chat.completion"}', text="Noted.", prompt_tokens=1, completion_tokens=1, seconds=1.0)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one pair. ``score`` is the confidence in the best candidate, 0 where a guard or admission forbade
    it; ``right`` whether that candidate's answer would have been right; ``seconds`` the look-up of ``b`` took."""

    pair: Pair
    served: bool
    right: bool
    score: float
    seconds: float
    decision: Decision


def _why_not(turn: Turn) -> str | None:
    """What admission would say (the proxy's defaults)."""
    signals = signals_of(turn)
    for name in ("correction", "time_sensitive", "creative", "smalltalk"):
        if getattr(signals, name):
            return name
    return None


def _query(turn: Turn, scope: str, embedder: str) -> Query:
    partition = partition_key(Scope(credential="eval", session=scope))
    parts = identity_parts("chat.completions", {"model": "any"}, turn, embedder=embedder)
    identity = identity_key(parts)
    place = place_key(partition, identity, turn.history) if turn.history else None
    return Query(turn, partition, identity, parts, exact_key(partition, identity, turn), place)


def _literal(turn: Turn) -> tuple[tuple[str, str], ...]:
    return tuple((m.role, m.text) for m in turn.messages)


class _Classes:
    """Which turns the labels call equivalent, directly or through others (union-find over literal turns)."""

    def __init__(self, pairs: Iterable[Pair]) -> None:
        self._parent: dict[Any, Any] = {}
        for pair in pairs:
            if pair.equivalent:
                self._parent[self._root(_literal(pair.a))] = self._root(_literal(pair.b))

    def _root(self, key: Any) -> Any:
        seen = []
        while (up := self._parent.get(key, key)) != key:
            seen.append(key)
            key = up
        for one in seen:
            self._parent[one] = key
        return key

    def equivalent(self, one: Turn, other: Turn) -> bool:
        return bool(self._root(_literal(one)) == self._root(_literal(other)))


async def _ask(cache: Cache, pair: Pair, query: Query, stored: dict[str, Turn], classes: _Classes) -> Outcome:
    why = _why_not(pair.b)
    started = time.perf_counter()
    if why is not None:
        decision = Decision("bypass", why)
    else:
        exact = await cache.exact(query)
        if exact is not None:
            decision = Decision("answer", "exact", exact.entry_id, 1.0)
        else:
            decision, _hit = await cache.search(query)
    seconds = time.perf_counter() - started
    best = decision.judgements[0] if decision.judgements else None
    entry = decision.entry_id or (best.entry_id if best is not None else None)
    score = decision.confidence if decision.level != "bypass" else 0.0
    right = entry is not None and entry in stored and classes.equivalent(stored[entry], pair.b)
    return Outcome(pair, decision.level == "answer", right, score, seconds, decision)


async def measure(
    pairs: Sequence[Pair],
    *,
    embedder: TextEmbedder,
    confidence: ReuseConfidence,
    policy: Policy,
    shared: bool = False,
    labels: Sequence[Pair] | None = None,
    console: Console | None = None,
    window_rounds: int | None = None,
    checks: CheckSettings | None = None,
) -> list[Outcome]:
    """Ask every pair; outcomes in the order of ``pairs`` (with ``shared``, without those left out).

    ``labels`` are the pairs that say which turns are equivalent, where ``pairs`` is only a part of them;
    ``window_rounds`` replaces the store's own setting; ``checks`` says whether suspects are served (by default not).
    """
    settings = StoreSettings(
        url="sqlite://",
        lookup_deadline_ms=60_000,
        embed_deadline_ms=60_000,
        decide_deadline_ms=60_000,
        write_queue_size=1_000_000,
        max_entries=10_000_000,
    )
    if window_rounds is not None:
        settings = settings.model_copy(update={"window_rounds": window_rounds})
    classes = _Classes(pairs if labels is None else labels)
    cache = await Cache.open(
        settings, embedder=embedder, confidence=confidence, policy=policy, checks=checks or CheckSettings()
    )
    stored: dict[str, Turn] = {}
    outcomes: list[Outcome] = []

    async def put(pair: Pair, scope: str) -> None:
        if _why_not(pair.a) is None:
            stored[cache.record(_query(pair.a, scope, embedder.name), ANSWER)] = pair.a

    try:
        if shared:
            asked = {_literal(p.b) for p in pairs}
            pairs = [p for p in pairs if _literal(p.a) not in asked]
        for start in range(0, len(pairs), BATCH):
            batch = pairs[start : start + BATCH]
            known: set[Any] = set()
            for pair in batch:
                if not shared or _literal(pair.a) not in known:
                    await put(pair, "shared" if shared else pair.id)
                    known.add(_literal(pair.a))
            await cache.flush()
            if shared:
                continue
            outcomes += [
                await _ask(cache, pair, _query(pair.b, pair.id, embedder.name), stored, classes) for pair in batch
            ]
            if console is not None:
                console.print(f"  {start + len(batch)} of {len(pairs)}", style="dim", end="\r")
        if shared:
            outcomes += [
                await _ask(cache, pair, _query(pair.b, "shared", embedder.name), stored, classes) for pair in pairs
            ]
    finally:
        await cache.close()
    return outcomes


def figures(outcomes: Sequence[Outcome], *, categories: bool = True) -> dict[str, Any]:
    """The figures of DESIGN §10 over some outcomes; shares 0 … 1, times in milliseconds.

    ``wrong`` counts hits on answers that are not right, also those an equivalent pair got from somebody else's entry
    (possible with ``--shared`` only); their rate is taken over everything that could go wrong in this way.
    """
    equivalent = [o for o in outcomes if o.pair.equivalent]
    different = [o for o in outcomes if not o.pair.equivalent]
    right = sum(o.served and o.right for o in equivalent)
    elsewhere = sum(o.served and not o.right for o in equivalent)
    wrong = sum(o.served and not o.right for o in different) + elsewhere
    could_be_wrong = len(different) + elsewhere
    good = [o.score if o.right else 0.0 for o in equivalent]
    bad = [o.score if not o.right else 0.0 for o in different]
    bad += [o.score for o in equivalent if not o.right and o.score > 0 and o.decision.judgements]
    times = sorted(1000 * o.seconds for o in outcomes)
    out: dict[str, Any] = {
        "n_equivalent": len(equivalent),
        "n_different": len(different),
        "right": right,
        "wrong": wrong,
        "right_rate": right / len(equivalent) if equivalent else None,
        "wrong_rate": wrong / could_be_wrong if could_be_wrong else None,
        "right_ci": list(wilson(right, len(equivalent))),
        "wrong_ci": list(wilson(wrong, could_be_wrong)),
        "right_at": {f"{share:g}": rate_at(good, bad, share) for share in WRONG_SHARES},
        "auc": area_under_curve(good, bad),
        "ms": {
            "p50": float(np.percentile(times, 50)) if times else None,
            "p95": float(np.percentile(times, 95)) if times else None,
        },
    }
    if categories:
        groups: dict[str, list[Outcome]] = defaultdict(list)
        for outcome in outcomes:
            groups[outcome.pair.category].append(outcome)
        out["categories"] = {name: figures(group, categories=False) for name, group in sorted(groups.items())}
    return out


def run(files: Sequence[Path], *, shared: bool = False, json_out: Path | None = None, limit: int | None = None) -> None:
    """The command: measure each file, print, write ``json_out``. Raises ``FileNotFoundError``, ``KeyError`` and
    ``ValueError`` for files that are not there or not in the pair format."""
    from fingerprint.embedding.router import load_router

    console = Console()
    console.width = max(console.width, 130)  # a narrow table cannot be read
    embedder, confidence, policy = load_router(), load(), thresholds()
    results: dict[str, Any] = {}
    everything: list[Outcome] = []
    for file in files:
        pairs = labels = read_pairs(file)
        if limit is not None and limit < len(pairs):
            pairs = [pairs[round(i * len(pairs) / limit)] for i in range(limit)]
        outcomes = asyncio.run(
            measure(
                pairs,
                embedder=embedder,
                confidence=confidence,
                policy=policy,
                shared=shared,
                labels=labels,
                console=console,
            )
        )
        results[file.stem] = figures(outcomes)
        everything += outcomes
        console.print(table(file.stem, outcomes, results[file.stem]))
    if len({o.pair.lang for o in everything}) > 1 or len(files) > 1:
        for lang in sorted({o.pair.lang for o in everything}):
            group = [o for o in everything if o.pair.lang == lang]
            console.print(table(f"all, {lang}", group, figures(group)))
    _explain(console, everything)
    if json_out is not None:
        document = {
            "thresholds": {"answer": policy.answer, "verify": policy.verify, "model": confidence.version},
            "shared": shared,
            "files": results,
        }
        json_out.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def _interval(ends: Sequence[float]) -> str:
    return f"{100 * ends[0]:.1f}–{100 * ends[1]:.1f}"


def table(title: str, outcomes: Sequence[Outcome], result: dict[str, Any]) -> Table:
    """The figures of some outcomes as a table for people: a line a category, a line a language."""
    grid = Table(title=title, title_justify="left")
    for name in (
        "category",
        "same",
        "diff",
        "right %",
        "95 %",
        "wrong %",
        "95 % ",
        "at 1 %",
        "at 3 %",
        "at 5 %",
        "AUC",
        "ms",
    ):
        grid.add_column(name, justify="left" if name == "category" else "right")

    def add(name: str, f: dict[str, Any]) -> None:
        grid.add_row(
            name,
            str(f["n_equivalent"]),
            str(f["n_different"]),
            _percent(f["right_rate"]),
            _interval(f["right_ci"]) if f["n_equivalent"] else "",
            _percent(f["wrong_rate"]),
            _interval(f["wrong_ci"]) if f["n_different"] else "",
            *(_percent(f["right_at"][f"{share:g}"]) for share in WRONG_SHARES),
            "–" if f["auc"] is None else f"{f['auc']:.3f}",
            "–" if f["ms"]["p50"] is None else f"{f['ms']['p50']:.1f} / {f['ms']['p95']:.1f}",
        )

    for name, part in result["categories"].items():
        add(name, part)
    langs = sorted({o.pair.lang for o in outcomes})
    if len(langs) > 1:
        grid.add_section()
        for lang in langs:
            add(lang, figures([o for o in outcomes if o.pair.lang == lang], categories=False))
    grid.add_section()
    add("all", result)
    return grid


def _explain(console: Console, outcomes: Sequence[Outcome]) -> None:
    """The wrong hits the cache was surest of."""
    worst = sorted((o for o in outcomes if o.served and not o.right), key=lambda o: -o.score)[:SHOWN]
    if not worst:
        return
    console.print(f"[bold]The {len(worst)} worst wrong hits[/bold]")
    for outcome in worst:
        pair = outcome.pair
        console.print(f"{pair.id} ({pair.subtype}), confidence {outcome.score:.3f}", markup=False)
        for name, turn in (("stored", pair.a), ("asked ", pair.b)):
            before = f"… {turn.history[-1].text[-100:]!r} → " if turn.history else ""
            console.print(f"   {name}: {before}{turn.message.text[:200]!r}", markup=False)
        best = outcome.decision.judgements[0] if outcome.decision.judgements else None
        if best is not None:
            console.print(f"   similarity {best.similarity:.3f}, same place {best.same_place}", markup=False)
            for relation in best.relations:
                console.print(f"   {relation.name}: {relation.kind}, {relation.sentence}", markup=False)
