"""``antiphon replay``: what the cache would have done to a log, or does to it through two live chains."""

from __future__ import annotations

import asyncio
import hashlib
import signal
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from eval.admission import Rules
from eval.observed.command import WIDTH, complain
from eval.observed.report import report_on
from eval.replay import offline
from eval.replay.errors import ReplayError
from eval.replay.log import REACTIONS, in_order, reactions
from eval.replay.work import Work
from eval.report import Column, Report
from eval.traffic import LoggedTurn, Problems
from store.confidence.thresholds_file import ThresholdsFile, confidence_of
from store.shadow import Observation, outcome_of
from store.types import Policy, ReuseConfidence

__all__ = ["Options", "Stop", "bar", "next_section", "run"]

SAVE_EVERY_S = 30.0
_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.Decoder(Observation).decode


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asks for."""

    kind: str = "auto"
    work: Path | None = None
    fresh: bool = False
    share: float = 1.0
    seed: int = 0
    limit: int | None = None
    strict: bool = False
    rules: Rules = field(default_factory=Rules)
    thresholds: ThresholdsFile | None = None  # of the operator; None: the shipped ones
    answer: float | None = None  # go before both
    verify: float | None = None


class Stop:
    """Set by the first Ctrl-C (the turn in hand is finished and saved); the second ends at once."""

    def __init__(self) -> None:
        self.asked = False

    def listen(self) -> None:
        """Take SIGINT and SIGTERM of the running loop; call in its thread."""
        loop = asyncio.get_running_loop()

        def stop(number: signal.Signals) -> None:
            self.asked = True
            loop.remove_signal_handler(number)

        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, stop, number)


def bar(console: Console) -> Progress:
    """A progress bar over turns."""
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"),
        TimeRemainingColumn(), console=console, transient=True,
    )  # fmt: skip


def run(
    files: Sequence[Path],
    options: Options,
    *,
    html: Path | None = None,
    json_out: Path | None = None,
    command: str = "antiphon replay",
    console: Console | None = None,
) -> bool:
    """Replay a log offline and report; returns whether it came to its end.

    Raises `eval.traffic.TrafficError`, `ReplayError`, the errors of `store.errors`, ``OSError``,
    `eval.report.errors.PlotsMissing`.
    """
    console = console or Console(highlight=False)
    console.width = max(console.width, WIDTH)
    turns, seen, problems, policy, whole = observations(files, options, console)
    subtitle = f"{len(seen):,} of {len(turns):,} turns of {', '.join(file.name for file in files)}"
    report = report_on(
        seen, kind="replay", title="What the cache would have done to this log", command=command, subtitle=subtitle,
        policy=policy,
    )  # fmt: skip
    report.facts["rows"] = problems.summary()
    report.facts["complete"] = whole
    latency_section(report, seen)
    next_section(report, turns, seen)
    report.show(console)
    report.write(html=html, json=json_out)
    if not whole:
        again = "the same command goes on from here" if options.work else "with --work DIR it could be gone on with"
        console.print(Text(f"\nstopped after {len(seen):,} turns; {again}", style="yellow"))
    return whole


def observations(
    files: Sequence[Path], options: Options, console: Console
) -> tuple[list[LoggedTurn], list[Observation], Problems, Policy, bool]:
    """Replay a log offline: its turns, what was observed, bad rows, thresholds, whether it came to its end.

    Raises `eval.traffic.TrafficError`, `ReplayError`, the errors of `store.errors`, ``OSError``.
    """
    from store.confidence import load, thresholds

    problems = Problems(strict=options.strict)
    with console.status("reading the log"):
        turns = in_order(
            files, problems=problems, kind=options.kind, share=options.share, seed=options.seed, limit=options.limit
        )
    complain(problems, console)
    confidence: ReuseConfidence = load()
    policy = thresholds()
    if options.thresholds is not None:
        policy, confidence = options.thresholds.policy, confidence_of(options.thresholds, confidence)
    answer = policy.answer if options.answer is None else options.answer
    policy = replace(
        policy, answer=answer, verify=min(answer, policy.verify if options.verify is None else options.verify)
    )
    config = {
        "log": [digest_of(file) for file in files],
        "model": confidence.version,
        "thresholds": [policy.answer, policy.verify],
        "share": options.share,
        "seed": options.seed,
        "limit": options.limit,
        "rules": repr(options.rules),
    }
    with tempfile.TemporaryDirectory(prefix="antiphon-replay-") as scratch:
        work = Work(options.work or Path(scratch), config)
        try:
            seen, whole = asyncio.run(_offline(turns, work, options, policy, confidence, console))
        finally:
            work.close()
    for number, what in enumerate(reactions(turns)[: len(seen)]):
        seen[number] = msgspec.structs.replace(seen[number], reaction=what)
    return turns, seen, problems, policy, whole


async def _offline(
    turns: Sequence[LoggedTurn],
    work: Work,
    options: Options,
    policy: Policy,
    confidence: ReuseConfidence,
    console: Console,
) -> tuple[list[Observation], bool]:
    from fingerprint.embedding.router import load_router

    stop = Stop()
    stop.listen()
    begin = work.begin(fresh=options.fresh)
    seen = [_DECODE(line) for line in work.lines()]
    if begin:
        console.print(Text(f"going on after {begin:,} turns", style="dim"))
    if begin >= len(turns):
        return seen, True
    saved = time.monotonic()
    embedder = await asyncio.to_thread(load_router)
    walk = offline.replay(
        turns,
        url=f"sqlite:///{work.store}",
        embedder=embedder,
        confidence=confidence,
        policy=policy,
        rules=options.rules,
        begin=begin,
    )
    with bar(console) as progress:
        task = progress.add_task("replaying", total=len(turns), completed=begin)
        try:
            async for one in walk:
                seen.append(one)
                work.add(_ENCODE(one) + b"\n")
                progress.advance(task)
                if stop.asked:
                    break
                if time.monotonic() - saved >= SAVE_EVERY_S:
                    await asyncio.to_thread(work.save, len(seen))
                    saved = time.monotonic()
            await asyncio.to_thread(work.save, len(seen))
        finally:
            await walk.aclose()  # type: ignore[attr-defined]
    return seen, len(seen) >= len(turns)


def digest_of(file: Path) -> str:
    """What tells a log from another: a digest of its contents. Raises `ReplayError`."""
    try:
        with file.open("rb") as data:
            return hashlib.file_digest(data, hashlib.blake2b).hexdigest()[:32]
    except OSError as error:
        raise ReplayError(f"{file} cannot be read: {error.strerror or error}") from None


def latency_section(report: Report, seen: Sequence[Observation]) -> None:
    """How long users waited, and would have waited, where the log has times."""
    told = [o for o in seen if o.seconds > 0 and o.level != "bypass"]
    if not told:
        return
    part = report.section(
        "How long users would have waited",
        "Recorded seconds of an answer, against deciding alone (hits) or deciding and the recorded seconds (the rest).",
    )
    real = [o.seconds for o in told]
    cached = [o.decide_seconds if o.hit else o.decide_seconds + o.seconds for o in told]
    part.table(
        "latency",
        "Seconds a turn",
        (Column("", text=True), Column("median", "seconds"), Column("95th percentile", "seconds"), Column("turns")),
        [
            (name, float(np.percentile(values, 50)), float(np.percentile(values, 95)), len(values))
            for name, values in (("as recorded", real), ("with the cache", cached))
        ],
    )


def next_section(report: Report, turns: Sequence[LoggedTurn], seen: Sequence[Observation]) -> None:
    """What users did next, by what became of the turn: in the log, and in the replay."""
    if not seen:
        return
    by: dict[str, Counter[str]] = defaultdict(Counter)
    for turn, one in zip(turns, seen, strict=False):
        if turn.record.reuse is not None:
            by[f"log: {turn.record.reuse}"][one.reaction] += 1
        name = f"would-be {one.level}"
        if one.hit:
            name += {"right": ", agrees", "wrong": ", differs"}.get(outcome_of(one), ", cannot be told")
        by[name][one.reaction] += 1
    part = report.section(
        "What users did next",
        "After the recorded answers. Users who correct or ask again where the stored answer differs hint at it being "
        "right; where the log tells what was served from a cache, the first rows show how that was received.",
    )
    part.table(
        "next",
        "Next action by what became of the turn",
        (Column("turn", text=True), Column("turns"), *(Column(name, "share") for name in REACTIONS)),
        [
            (name, counts.total(), *(counts[r] / counts.total() for r in REACTIONS))
            for name, counts in sorted(by.items())
        ],
    )
