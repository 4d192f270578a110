"""The report on what was observed: what there is to gain, how often it would have been wrong, and where."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eval.observed.misjudged import Cluster, clusters
from eval.report import Bars, Column, Histogram, Mark, Report, Section
from eval.statistics import wilson
from store.shadow import Observation, Outcome, outcome_of
from store.types import Policy

__all__ = ["figures", "misjudged_section", "report_on"]

LEAST_GROUP = 20
MOST_CLUSTERS = 8
_OUTCOMES: tuple[Outcome, ...] = ("right", "wrong", "doubtful", "unknown")


def figures(seen: Sequence[Observation]) -> dict[str, Any]:
    """Counts and shares, 0 … 1; tokens and seconds that the hits would have spared."""
    hits = [o for o in seen if o.hit]
    looked_up = sum(o.level != "bypass" for o in seen)
    kinds: dict[str, dict[str, Any]] = {}
    for name, of in (
        ("same words", [o for o in hits if o.exact]),
        ("reworded, same place", [o for o in hits if not o.exact and o.same_place]),
        ("reworded, elsewhere", [o for o in hits if not o.exact and not o.same_place]),
        ("reworded", [o for o in hits if not o.exact]),
    ):
        kinds[name] = _outcomes(of)
    return {
        "turns": len(seen),
        "looked_up": looked_up,
        "levels": dict(Counter(o.level for o in seen).most_common()),
        "hits": len(hits),
        "hit_rate": len(hits) / len(seen) if seen else None,
        "hit_ci": list(wilson(len(hits), len(seen))),
        "wrong_rate": kinds["reworded"]["wrong_rate"],
        "wrong_ci": kinds["reworded"]["wrong_ci"],
        "kinds": kinds,
        "tokens": {
            "prompt": sum(o.prompt_tokens for o in hits),
            "completion": sum(o.completion_tokens for o in hits),
        },
        "seconds": sum(o.seconds for o in hits),
        "told": {"tokens": any(o.prompt_tokens for o in seen), "seconds": any(o.seconds for o in seen)},
        "decide_ms": {
            name: 1000 * float(np.percentile([o.decide_seconds for o in seen if o.level != "bypass"], at))
            for name, at in (("p50", 50), ("p95", 95))
        }
        if looked_up
        else {"p50": None, "p95": None},
    }


def _outcomes(of: Sequence[Observation]) -> dict[str, Any]:
    counts = Counter(outcome_of(o) for o in of)
    judged = counts["right"] + counts["wrong"]
    return {
        "n": len(of),
        **{name: counts[name] for name in _OUTCOMES},
        "wrong_rate": counts["wrong"] / judged if judged else None,
        "wrong_ci": list(wilson(counts["wrong"], judged)),
        # Were every doubtful one wrong:
        "worst": (counts["wrong"] + counts["doubtful"]) / (judged + counts["doubtful"])
        if judged + counts["doubtful"]
        else None,
    }


def report_on(
    seen: Sequence[Observation],
    *,
    kind: str,
    title: str,
    command: str,
    subtitle: str = "",
    policy: Policy | None = None,
) -> Report:
    """Put the report together; `eval.report` shows and writes it."""
    found = figures(seen)
    groups = clusters(seen)
    report = Report(kind=kind, title=title, command=command, subtitle=subtitle, facts={"figures": found})
    report.facts["misjudged"] = [group.as_json() for group in groups]
    _gain(report, found)
    _right_and_wrong(report, seen, found, policy)
    _not_served(report, seen)
    _groups(report, seen)
    misjudged_section(report, groups)
    return report


def _gain(report: Report, found: dict[str, Any]) -> None:
    part = report.section("What would have been reused", "Every turn as the cache would have treated it.")
    n = found["turns"]
    if not n:
        part.words("Nothing has been observed.", headline="No turns", tone="doubtful")
        return
    part.figure("hit_rate", "Turns answered from the cache", found["hit_rate"], unit="share",
                interval=(found["hit_ci"][0], found["hit_ci"][1]), n=n)  # fmt: skip
    told = found["told"]
    for key, name, value, known in (
        ("prompt_tokens", "Prompt tokens spared", found["tokens"]["prompt"], told["tokens"]),
        ("completion_tokens", "Completion tokens spared", found["tokens"]["completion"], told["tokens"]),
    ):
        part.figure(key, name, value if known else None, unit="tokens", note="" if known else "no counts are recorded")
    part.figure("seconds", "Backend time spared", found["seconds"] if told["seconds"] else None, unit="seconds",
                note="" if told["seconds"] else "no times are recorded")  # fmt: skip
    took = found["decide_ms"]
    slow = f"95th percentile {took['p95']:.1f} ms" if took["p95"] is not None else ""
    part.figure("decide", "Deciding took, median", took["p50"], unit="ms", note=slow)
    levels = [(level, count) for level, count in found["levels"].items()]
    ends = [wilson(count, n) for _, count in levels]
    part.plot(
        Bars("levels", "What would have become of a turn", [level for level, _ in levels], [c / n for _, c in levels],
             "share of turns, %", [e[0] for e in ends], [e[1] for e in ends], [c for _, c in levels],
             note="bypass: admission keeps the turn from the cache")
    )  # fmt: skip


def _right_and_wrong(report: Report, seen: Sequence[Observation], found: dict[str, Any], policy: Policy | None) -> None:
    part = report.section(
        "How often it would have been wrong",
        "The stored answer against the real one: facts first, then similarity. Where it cannot be told the hit is "
        "doubtful: neither right nor wrong. A repeat in the same words gets an answer to the very same request, so "
        "what differs there is how much the model varies.",
    )
    reworded = found["kinds"]["reworded"]
    judged = reworded["right"] + reworded["wrong"]
    ends = reworded["wrong_ci"]
    part.figure("wrong_rate", "Reworded hits that are wrong", reworded["wrong_rate"], unit="share",
                interval=(ends[0], ends[1]) if judged else None, n=judged)  # fmt: skip
    part.figure(
        "worst", "… were every doubtful one wrong", reworded["worst"], unit="share", n=judged + reworded["doubtful"]
    )
    varies = found["kinds"]["same words"]
    part.figure("varies", "Repeats in the same words that differ", varies["wrong_rate"], unit="share",
                n=varies["right"] + varies["wrong"])  # fmt: skip
    part.table(
        "kinds",
        "Hits by kind",
        (Column("kind", text=True), Column("hits"), Column("right"), Column("wrong"), Column("doubtful"),
         Column("nothing to compare"), Column("wrong share", "share"), Column("from", "share"), Column("to", "share")),
        [
            (name, k["n"], k["right"], k["wrong"], k["doubtful"], k["unknown"], k["wrong_rate"],
             *(k["wrong_ci"] if k["right"] + k["wrong"] else (None, None)))
            for name, k in found["kinds"].items()
        ],
    )  # fmt: skip
    series: dict[str, list[float]] = defaultdict(list)
    for one in seen:
        outcome = outcome_of(one)
        if not one.exact and one.entry and not one.objections and outcome != "unknown":
            series[f"answers {one.verdict}"].append(one.confidence)
    if series:
        marks = [] if policy is None else [Mark(policy.answer, "answer"), Mark(policy.verify, "verify")]
        part.plot(
            Histogram("confidence", "Confidence in the best candidate", series, "confidence", limits=(0.0, 1.0),
                      marks=marks, note="reworded turns with a candidate no guard objected to")
        )  # fmt: skip


def _not_served(report: Report, seen: Sequence[Observation]) -> None:
    """What stood between a turn and its best candidate, and whether that was right."""
    rows: dict[str, Counter[Outcome]] = defaultdict(Counter)
    for one in seen:
        if one.hit or one.level == "bypass":
            continue
        if one.objections:
            for name in one.objections:
                rows[f"guard: {name}"][outcome_of(one)] += 1
        else:
            rows[one.reason or one.level][outcome_of(one)] += 1
    bypasses = Counter(o.reason for o in seen if o.level == "bypass")
    if not rows and not bypasses:
        return
    part = report.section("What was not reused, and why")
    if rows:
        ranked = sorted(rows.items(), key=lambda item: -item[1].total())
        part.table(
            "refused",
            "Turns whose best candidate was not served",
            (Column("why", text=True), Column("turns"), Column("would have been right"), Column("wrong"),
             Column("doubtful"), Column("nothing to compare")),
            [(why, c.total(), c["right"], c["wrong"], c["doubtful"], c["unknown"]) for why, c in ranked],
            note="A guard that stops more right answers than wrong ones is too strict for this traffic.",
        )  # fmt: skip
    if bypasses:
        part.table(
            "bypassed",
            "Turns that admission keeps from the cache",
            (Column("reason", text=True), Column("turns"), Column("share", "share")),
            [(why or "not said", count, count / len(seen)) for why, count in bypasses.most_common()],
        )


def _groups(report: Report, seen: Sequence[Observation]) -> None:
    by: tuple[tuple[str, str, Callable[[Observation], str]], ...] = (
        ("language", "By language", lambda o: o.lang),
        ("intent", "By intent", lambda o: o.intent),
        ("depth", "By place in the conversation", lambda o: "first turn" if o.turn == 0 else "later turn"),
        ("model", "By model", lambda o: o.model),
    )
    part: Section | None = None
    for key, title, name_of in by:
        rows = []
        found: dict[str, list[Observation]] = defaultdict(list)
        for one in seen:
            if one.level != "bypass":
                found[name_of(one) or "unknown"].append(one)
        for name, of in sorted(found.items(), key=lambda item: -len(item[1])):
            if len(of) < LEAST_GROUP:
                continue
            hits = [o for o in of if o.hit]
            k = _outcomes([o for o in hits if not o.exact])
            ends = wilson(len(hits), len(of))
            rows.append((name, len(of), len(hits) / len(of), ends[0], ends[1], k["right"], k["wrong"], k["doubtful"]))
        if len(rows) < (2 if key == "model" else 1):
            continue
        part = part or report.section("Where")
        part.table(
            key,
            title,
            (Column(key, text=True), Column("looked up"), Column("hits", "share"), Column("from", "share"),
             Column("to", "share"), Column("reworded right"), Column("wrong"), Column("doubtful")),
            rows,
        )  # fmt: skip


def misjudged_section(report: Report, groups: Sequence[Cluster]) -> None:
    """The wrong and doubtful hits in groups, with examples and what would have stopped them."""
    if not groups:
        return
    part = report.section(
        "What went wrong",
        "Wrong and doubtful reworded hits, grouped by what the two turns differ in and by the words that only one of "
        "them holds; for each group what would have stopped it, and what that would have cost in right hits.",
        key="misjudged",
    )
    part.table(
        "clusters",
        "Groups",
        (Column("what conflicts", text=True), Column("hits"), Column("wrong"), Column("doubtful"),
         Column("best remedy", text=True)),
        [
            (g.name, len(g.cases), g.wrong, len(g.cases) - g.wrong, str(g.stops[0]) if g.stops else "")
            for g in groups
        ],
    )  # fmt: skip
    for group in groups[:MOST_CLUSTERS]:
        for case in group.examples:
            sides = [
                ("asked", _with_before(case.before, case.question)),
                ("stored for", _with_before(case.stored_before, case.stored_question)),
                ("real answer", case.answer),
                ("stored answer", case.stored_answer),
            ]
            part.example(
                f"{group.name} (confidence {case.confidence:.3f})",
                [(name, text) for name, text in sides if text],
                facts=[case.why, *map(str, group.stops)],
                tone="bad" if outcome_of(case) == "wrong" else "doubtful",
            )


def _with_before(before: str, text: str) -> str:
    return f"… {before[-160:]} → {text}" if before else text
