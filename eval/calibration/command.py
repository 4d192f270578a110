"""``antiphon calibrate``: thresholds for somebody's own traffic, with what they rest on."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from eval.calibration.choose import Choice, Goal, choose, point_at
from eval.calibration.figures import describe, groups
from eval.calibration.refit import Method, Refit, refit
from eval.calibration.samples import Sample, of_outcomes
from eval.data import Pair, read_pairs
from eval.pairs import Outcome, figures, measure
from fingerprint.embedding.base import TextEmbedder
from store.confidence.thresholds_file import ThresholdsFile
from store.types import Policy, ReuseConfidence

__all__ = ["Calibration", "Options", "calibrate", "calibrate_pairs", "run", "say", "thresholds_of", "write_json"]

BATCH = 100
SWEEP = 200
"""Pairs with a history that the sweep of window lengths asks, at most: every length asks them anew."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asks for."""

    goal: Goal = field(default_factory=Goal)
    windows: tuple[int, ...] = (3, 5, 10)
    method: Method | None = None
    limit: int | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Calibration:
    """The outcome: thresholds (or why there are none), the curve where one was asked for, all figures."""

    choice: Choice
    refit: Refit | None
    figures: dict[str, Any]
    samples: tuple[Sample, ...]


def calibrate(
    samples: Sequence[Sample], options: Options, *, model: str, sources: Sequence[str], shipped: Policy
) -> Calibration:
    """Choose on samples, wherever they come from. ``model`` is the version of the confidence that scored them."""
    goal = options.goal
    choice = choose(samples, goal)
    raised = ""
    # Where nothing can be promised the groups show what the shipped threshold does.
    shown = shipped.answer if choice.answer is None else choice.answer
    languages = groups(samples, lambda s: s.lang, shown, goal)
    if choice.answer is not None:
        # One number serves every language: the strictest that has the data to say so decides.
        own = {name: g["own"] for name, g in languages.items() if g["own"] is not None}
        name = max(own, key=lambda n: own[n], default=None)
        missing = [n for n, g in languages.items() if g["misses_goal"]]
        if missing and name is not None and own[name] > choice.answer:
            answer = shown = own[name]
            raised = f"raised from {choice.answer:.4f} to {answer:.4f} for {name}: the goal is missed there otherwise"
            choice = replace(choice, answer=answer, at=point_at(samples, answer), bound=None)
            languages = groups(samples, lambda s: s.lang, answer, goal)
    fitted = None if options.method is None else refit(samples, options.method)
    document: dict[str, Any] = {
        "model": model,
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "sources": list(sources),
        **describe(samples, choice),
        "shipped": {"verify": shipped.verify, **point_at(samples, shipped.answer).as_json()},
        "raised": raised,
        "missed": [n for n, g in languages.items() if g["misses_goal"]],
        "languages": languages,
        "intents": groups(samples, lambda s: s.intent, shown, goal),
        "categories": groups(samples, lambda s: s.category, shown, goal),
        "refit": None if fitted is None else fitted.as_json(),
    }
    return Calibration(choice, fitted, document, tuple(samples))


def thresholds_of(result: Calibration) -> ThresholdsFile | None:
    """The file for the proxy; None where the samples do not support the goal."""
    choice = result.choice
    if choice.answer is None:
        return None
    correction = result.refit.correction if result.refit is not None else None
    answer, verify = choice.answer, choice.verify
    if correction is not None:
        answer, verify = correction(answer), correction(verify)
    known = ("goal", "made_at", "sources", "n", "bound", "at", "raised", "refit")
    return ThresholdsFile(
        model=result.figures["model"],
        answer=answer,
        verify=min(verify, answer),
        correction=correction,
        evidence={name: result.figures[name] for name in known},
    )


def calibrate_pairs(
    files: Sequence[Path],
    options: Options,
    *,
    embedder: TextEmbedder,
    confidence: ReuseConfidence,
    policy: Policy,
    console: Console,
) -> tuple[Calibration, list[Outcome]]:
    """Ask every pair of the files, then choose. Raises what ``eval.data.read_pairs`` does."""
    pairs = [pair for file in files for pair in read_pairs(file)]
    if options.limit is not None and options.limit < len(pairs):
        pairs = random.Random(options.seed).sample(pairs, options.limit)

    async def ask(asked: Sequence[Pair], rounds: int | None, shared: bool) -> list[Outcome]:
        return await measure(
            asked, embedder=embedder, confidence=confidence, policy=policy, shared=shared, window_rounds=rounds
        )

    outcomes: list[Outcome] = []
    windows: dict[str, Any] = {}
    chats = [p for p in pairs if p.a.history or p.b.history]
    chats = random.Random(options.seed).sample(chats, min(len(chats), SWEEP))
    sweep = options.windows if chats else ()
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("asking", total=len(pairs) + len(sweep) * len(chats))
        for start in range(0, len(pairs), BATCH):
            batch = pairs[start : start + BATCH]
            outcomes += asyncio.run(ask(batch, None, False))
            progress.advance(task, len(batch))
        for rounds in sweep:
            found = figures(asyncio.run(ask(chats, rounds, True)), categories=False)
            names = (
                "n_equivalent",
                "n_different",
                "right",
                "wrong",
                "right_rate",
                "wrong_rate",
                "right_ci",
                "wrong_ci",
            )
            windows[str(rounds)] = {name: found[name] for name in (*names, "auc")}
            progress.advance(task, len(chats))
    result = calibrate(
        of_outcomes(outcomes), options, model=confidence.version, sources=[str(file) for file in files], shipped=policy
    )
    result.figures["windows"] = windows
    return result, outcomes


def say(result: Calibration, console: Console) -> None:
    """Print the outcome for people."""
    f, choice = result.figures, result.choice
    n = f["n"]
    console.print(
        f"[bold]{n['samples']} samples[/bold], {n['right']} where the stored answer is right, {n['wrong']} not"
    )
    forbidden = n["forbidden"]
    console.print(
        f"admission or a guard forbids {forbidden['right']} of the right ones and {forbidden['wrong']} others"
    )
    console.print(f"goal: {f['goal']['in_words']}")
    if choice.answer is None:
        console.print(f"[bold red]not supported[/bold red]: {choice.why_not}", highlight=False)
        at = f["shipped"]
        console.print(
            f"the shipped threshold ({at['threshold']:.4f}): {at['hits']} hits, {at['wrong']} of them wrong, "
            f"{_share(at['right_rate'], at['right_ci'])} % of the right answers are reused",
            highlight=False,
        )
    else:
        at = f["at"]
        console.print(
            f"[bold green]answer = {choice.answer:.4f}, verify = {choice.verify:.4f}[/bold green]"
            f"  (shipped: {f['shipped']['threshold']:.4f}, {f['shipped']['verify']:.4f})",
            highlight=False,
        )
        kept = (
            f"{at['hits']} hits, {at['wrong']} of them wrong: precision {_share(at['precision'], at['precision_ci'])} %"
        )
        console.print(f"{kept}; {_share(at['right_rate'], at['right_ci'])} % of the right answers are reused")
        if choice.bound is not None:
            name = "at least" if choice.goal.kind == "precision" else "at most"
            console.print(
                f"supported: {name} {100 * choice.bound:.2f} % (at least {choice.needed} needed for the goal)"
            )
    if f["raised"]:
        console.print(f["raised"], style="yellow")
    for name in f["missed"]:
        console.print(f"beyond doubt the goal is missed for {name}: calibrate it apart, or add samples", style="red")
    for title, part in (("language", "languages"), ("intent", "intents"), ("category", "categories")):
        if len(f[part]) > 1:
            console.print(_group_table(title, f[part]))
    if f.get("windows"):
        grid = Table(title="window length (rounds), all questions in one cache", title_justify="left")
        for name in ("rounds", "right %", "wrong %", "AUC"):
            grid.add_column(name, justify="right")
        for rounds, w in f["windows"].items():
            wrong = _share(w["wrong_rate"], w["wrong_ci"])
            grid.add_row(rounds, _share(w["right_rate"], w["right_ci"]), wrong, _number(w["auc"]))
        console.print(grid)
    if f["refit"] is not None:
        r = f["refit"]
        if r["used"]:
            console.print(
                f"{r['method']} curve: calibration error {r['calibration_error']['before']:.3f} → "
                f"{r['calibration_error']['after']:.3f}, Brier {r['brier']['before']:.4f} → {r['brier']['after']:.4f}"
            )
        else:
            console.print(f"the shipped curve stays: {r['why_not']}", style="yellow")


def _group_table(title: str, found: dict[str, Any]) -> Table:
    grid = Table(title=f"by {title}", title_justify="left")
    for name in (title, "n", "hits", "precision %", "reused %", "AUC", "own threshold"):
        grid.add_column(name, justify="left" if name == title else "right")
    for name, g in found.items():
        at = g["at"]
        row = [name, str(g["n"])]
        row += (
            ["–", "–", "–"]
            if at is None
            else [
                str(at["hits"]),
                _share(at["precision"], at["precision_ci"]),
                _share(at["right_rate"], at["right_ci"]),
            ]
        )
        row += [_number(g["auc"]), "too few" if g["own"] is None else f"{g['own']:.4f}"]
        grid.add_row(*row, style="red" if g["misses_goal"] else None)
    return grid


def _share(value: float | None, ends: Sequence[float]) -> str:
    return "–" if value is None else f"{100 * value:.1f} ({100 * ends[0]:.1f}–{100 * ends[1]:.1f})"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def write_json(result: Calibration, path: Path) -> None:
    """Write all figures. Raises ``OSError``."""
    path.write_text(json.dumps(result.figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def run(files: Sequence[Path], options: Options, *, out: Path | None, json_out: Path | None) -> bool:
    """The command on labelled pairs; returns whether the data support the goal.

    Raises ``KeyError`` and ``ValueError`` for files that are not in the pair format.
    """
    from fingerprint.embedding.router import load_router
    from store.confidence import load, thresholds

    console = Console()
    console.width = max(console.width, 110)
    shipped = thresholds()
    result, _ = calibrate_pairs(
        files, options, embedder=load_router(), confidence=load(), policy=shipped, console=console
    )
    say(result, console)
    if json_out is not None:
        write_json(result, json_out)
    made = thresholds_of(result)
    if out is not None and made is not None:
        made.write(out)
        console.print(f"written: {out}; the proxy loads it with decision.thresholds_file", highlight=False)
    elif out is not None:
        console.print(f"{out} is not written: there is nothing to promise", style="red", highlight=False)
    return made is not None
