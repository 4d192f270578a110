"""``antiphon calibrate``: thresholds for somebody's own traffic, with what they rest on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import Progress

from eval.calibration.choose import Choice, Goal, choose, point_at
from eval.calibration.figures import describe, groups
from eval.calibration.refit import Method, Refit, refit
from eval.calibration.report import report_on
from eval.calibration.samples import Sample, observed, of_outcomes
from eval.data import Pair, pair_of, read_pairs
from eval.observed.command import WIDTH, complain
from eval.observed.misjudged import Cluster, clusters
from eval.observed.read import read_observations, samples_of
from eval.pairs import Outcome, figures, measure
from eval.traffic import Problems, TrafficError
from eval.traffic.source import lines, opened
from fingerprint.embedding.base import TextEmbedder
from store.confidence.thresholds_file import ThresholdsFile
from store.shadow import Observation
from store.types import Level, Policy, ReuseConfidence

__all__ = [
    "Calibration",
    "Options",
    "calibrate",
    "calibrate_observed",
    "calibrate_pairs",
    "holds_pairs",
    "labelled",
    "run",
    "thresholds_of",
]

BATCH = 100
MOST_FIRST = 64 << 20
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
    misjudged: tuple[Cluster, ...] = ()


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
    """Ask every pair of the files, then choose. Raises what `labelled` does."""
    pairs = [pair for file in files for pair in labelled(file)]
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
    return _looked_at(result, observed(outcomes, 0.0), options), outcomes


def run(
    files: Sequence[Path],
    options: Options,
    *,
    from_shadow: bool = False,
    out: Path | None = None,
    html: Path | None = None,
    json_out: Path | None = None,
    command: str = "antiphon calibrate",
) -> bool:
    """The command; returns whether the data support the goal.

    Files are labelled pairs, else logs (replayed, with the recorded answers as the truth), else, with ``from_shadow``,
    observations. Raises ``KeyError`` and ``ValueError`` for files that are none of these, `eval.data.DataMissing`,
    `eval.traffic.TrafficError`, ``OSError``, and ``KeyboardInterrupt`` where a log was not read to its end.
    """
    from store.confidence import load, thresholds

    console = Console(highlight=False)
    console.width = max(console.width, WIDTH)
    shipped = thresholds()
    if from_shadow:
        problems = Problems()
        seen = list(read_observations(files, problems))
        complain(problems, console)
        result = calibrate_observed(seen, files, options, model=load().version, policy=shipped)
    elif files and not any(map(holds_pairs, files)):
        from eval.replay.command import Options as ReplayOptions
        from eval.replay.command import observations

        _, seen, _, _, whole = observations(files, ReplayOptions(seed=options.seed, limit=options.limit), console)
        if not whole:  # a threshold chosen on the beginning of a log would look like one chosen on all of it
            console.print("stopped before the log was through: nothing is calibrated", style="red")
            raise KeyboardInterrupt
        result = calibrate_observed(seen, files, options, model=load().version, policy=shipped)
    else:
        from fingerprint.embedding.router import load_router

        result, _ = calibrate_pairs(
            files, options, embedder=load_router(), confidence=load(), policy=shipped, console=console
        )
    report = report_on(result.figures, result.samples, result.misjudged, command=command)
    report.show(console)
    report.write(html=html, json=json_out)
    made = thresholds_of(result)
    if out is not None and made is not None:
        made.write(out)
        console.print(f"\nwritten: {out}; the proxy loads it with decision.thresholds_file")
    elif out is not None:
        console.print(f"\n{out} is not written: there is nothing to promise", style="red")
    return made is not None


def calibrate_observed(
    seen: Sequence[Observation], files: Sequence[Path], options: Options, *, model: str, policy: Policy
) -> Calibration:
    """Choose on what shadow mode or a replay observed."""
    samples, unclear = samples_of(seen)
    if options.limit is not None and options.limit < len(samples):
        samples = random.Random(options.seed).sample(samples, options.limit)
    result = calibrate(samples, options, model=model, sources=[str(file) for file in files], shipped=policy)
    result.figures["unclear"] = unclear
    return _looked_at(result, seen, options)


def _looked_at(result: Calibration, seen: Sequence[Observation], options: Options) -> Calibration:
    """Add what the mistakes at the threshold in question have in common."""
    answer = result.choice.answer if result.choice.answer is not None else result.figures["shipped"]["threshold"]
    levels: dict[bool, Level] = {True: "answer", False: "miss"}
    at = [
        msgspec.structs.replace(o, level=levels[o.confidence >= answer and o.confidence > 0 and not o.objections])
        for o in seen
        if o.level != "bypass"
    ]
    groups = tuple(clusters(at, seed=options.seed))
    result.figures["misjudged"] = [group.as_json() for group in groups]
    return replace(result, misjudged=groups)


def labelled(file: Path) -> list[Pair]:
    """The pairs of a file. A row that cannot be used stops: a label that was misread would move a threshold.

    Raises `eval.traffic.TrafficError` with its line, `eval.data.DataMissing`.
    """
    if file.suffix.lower() in (".csv", ".tsv"):
        return read_pairs(file)
    found = []
    for number, line in lines(file, Problems(strict=True)):
        try:
            row = msgspec.json.decode(line)
            source = str(row.get("source", ""))
            found.append(pair_of(row, domain=source.removeprefix("families/") or file.stem))
        except KeyError as error:
            raise TrafficError(f"{file.name}:{number}: not a labelled pair: there is no {error}") from None
        except (msgspec.MsgspecError, UnicodeDecodeError, AttributeError, TypeError, IndexError) as error:
            raise TrafficError(f"{file.name}:{number}: not a labelled pair: {error}") from None
    return found


def holds_pairs(file: Path) -> bool:
    """Whether a file looks like labelled pairs (or a CSV sheet of them) and not like a log. Raises `TrafficError`."""
    if file.suffix.lower() in (".csv", ".tsv"):
        return True
    try:
        with opened(file) as raw:
            first = next((line for line in raw if line.strip()), b"{}")
        row = msgspec.json.decode(first[:MOST_FIRST])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return True  # whoever reads it then says what is wrong
    return isinstance(row, dict) and {"a", "b"} <= row.keys()
