"""``antiphon replay --cached URL --plain URL``: two live chains, and the report on them."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from rich.console import Console
from rich.text import Text

from eval.observed.command import WIDTH, complain
from eval.replay.client import Chain, Reply
from eval.replay.command import SAVE_EVERY_S, Options, Stop, bar, digest_of
from eval.replay.errors import ReplayError
from eval.replay.live import Seen, conversations, walk
from eval.replay.log import REACTIONS, in_order, reactions
from eval.replay.work import Work
from eval.report import Bars, Column, Curve, Lines, Report
from eval.report.values import Value
from eval.statistics import wilson
from eval.traffic import LoggedTurn, Problems
from store.agreement import Agreement

__all__ = ["Live", "report_on", "run"]

_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.Decoder(Seen).decode
_EXAMPLES = 6


@dataclass(frozen=True, slots=True)
class Live:
    """How the chains are asked."""

    cached: str
    plain: str
    speed: float | None = None
    at_once: int = 8
    model: str | None = None
    key: str | None = None
    timeout_s: float = 600.0


def run(
    files: Sequence[Path],
    options: Options,
    live: Live,
    *,
    html: Path | None = None,
    json_out: Path | None = None,
    command: str = "antiphon replay",
) -> bool:
    """Replay a log through both chains and report; returns whether it came to its end.

    Raises `eval.traffic.TrafficError`, `ReplayError`, ``OSError``, `eval.report.errors.PlotsMissing`.
    """
    console = Console(highlight=False)
    console.width = max(console.width, WIDTH)
    problems = Problems(strict=options.strict)
    with console.status("reading the log"):
        turns = in_order(
            files, problems=problems, kind=options.kind, share=options.share, seed=options.seed, limit=options.limit
        )
    complain(problems, console)
    config = {
        "log": [digest_of(file) for file in files],
        "chains": [live.cached, live.plain],
        "model": live.model,
        "share": options.share,
        "seed": options.seed,
        "limit": options.limit,
    }
    with tempfile.TemporaryDirectory(prefix="antiphon-replay-") as scratch:
        work = Work(options.work or Path(scratch), config)
        try:
            seen, whole = asyncio.run(_live(turns, work, options, live, console))
        finally:
            work.close()
    report = report_on(seen, command=command, names=[file.name for file in files])
    report.facts["rows"] = problems.summary()
    report.facts["complete"] = whole
    report.show(console)
    report.write(html=html, json=json_out)
    if not whole:
        again = "the same command goes on from here" if options.work else "with --work DIR it could be gone on with"
        console.print(Text(f"\nstopped after {len(seen):,} turns; {again}", style="yellow"))
    return whole


async def _live(
    turns: Sequence[LoggedTurn], work: Work, options: Options, live: Live, console: Console
) -> tuple[list[Seen], bool]:
    from fingerprint.embedding.router import load_router
    from store.agreement import Limits
    from store.comparing import Comparer
    from store.counters import Failures

    stop = Stop()
    stop.listen()
    work.begin(fresh=options.fresh)
    seen = [_DECODE(line) for line in work.lines()]
    done = {(one.conversation, one.turn): one for one in seen}
    chats = conversations(turns, reactions(turns))
    total = sum(len(chat.turns) for chat in chats)
    cached = Chain("cached", live.cached, key=live.key, timeout_s=live.timeout_s)
    plain = Chain("plain", live.plain, key=live.key, timeout_s=live.timeout_s)
    embedder = await asyncio.to_thread(load_router)
    comparer = Comparer(embedder.encode, Failures())
    saved = time.monotonic()

    def compare(one: str, other: str) -> Agreement:
        return comparer.compare(one, other, Limits()).agreement

    try:
        for chain in (cached, plain):
            if why := await chain.reachable():
                raise ReplayError(why)
        with bar(console) as progress:
            task = progress.add_task("replaying", total=total, completed=len(seen))

            def on_seen(one: Seen) -> None:
                nonlocal saved
                seen.append(one)
                work.add(_ENCODE(one) + b"\n")
                progress.advance(task)
                if time.monotonic() - saved >= SAVE_EVERY_S:
                    work.save(len(seen))
                    saved = time.monotonic()

            await walk(
                chats, cached, plain, compare, seed=options.seed, speed=live.speed, at_once=live.at_once,
                model=live.model, done=done, on_seen=on_seen, stopped=lambda: stop.asked,
            )  # fmt: skip
    finally:
        work.save(len(seen))
        await cached.close()
        await plain.close()
    return seen, len(seen) >= total


def report_on(seen: Sequence[Seen], *, command: str, names: Sequence[str]) -> Report:
    """Both chains against each other."""
    report = Report(
        kind="replay-live",
        title="With and without the cache",
        subtitle=f"{len(seen):,} turns of {', '.join(names)}, each through both chains",
        command=command,
    )
    if not seen:
        report.section("Nothing was asked").words("The log has no turns.", headline="No turns", tone="doubtful")
        return report
    _answers(report, seen)
    _latency(report, seen)
    _tokens(report, seen)
    _next(report, seen)
    _differences(report, seen)
    return report


def _answers(report: Report, seen: Sequence[Seen]) -> None:
    part = report.section(
        "Answers",
        "The answer of the chain with the cache against that of the chain without, by what was reused. On misses both "
        "are the model's own: what differs there is how much it varies.",
    )
    hits = sum(one.cached.reuse == "answer" for one in seen)
    part.figure("hit_rate", "Turns answered from the cache", hits / len(seen), unit="share",
                interval=wilson(hits, len(seen)), n=len(seen))  # fmt: skip
    for name, of in (("cached", [s.cached for s in seen]), ("plain", [s.plain for s in seen])):
        failed = sum(not reply.ok for reply in of)
        part.figure(f"failed_{name}", f"Turns that failed, chain {'with' if name == 'cached' else 'without'} the cache",
                    failed, unit="count", n=len(seen))  # fmt: skip
    by: dict[str, Counter[str]] = defaultdict(Counter)
    for one in seen:
        kind = one.cached.reuse or "no header"
        if kind == "answer":
            kind += ", same words" if one.cached.reason == "exact" else ", reworded"
        by[kind][one.verdict or "none"] += 1
    rows: list[tuple[Value, ...]] = []
    for kind, counts in sorted(by.items()):
        judged = counts["agree"] + counts["differ"]
        ends: tuple[float | None, float | None] = wilson(counts["differ"], judged) if judged else (None, None)
        rows.append(
            (kind, counts.total(), counts["agree"], counts["differ"], counts["unclear"], counts["none"],
             counts["differ"] / judged if judged else None, *ends)
        )  # fmt: skip
    part.table(
        "agreement",
        "Agreement by what was reused",
        (Column("reused", text=True), Column("turns"), Column("agree"), Column("differ"), Column("cannot be told"),
         Column("failed"), Column("differ, of those told", "share"), Column("from", "share"), Column("to", "share")),
        rows,
    )  # fmt: skip


def _latency(report: Report, seen: Sequence[Seen]) -> None:
    part = report.section("Latency", "Seconds from sending the request, both chains asked the same turns.")
    both = [one for one in seen if one.cached.ok and one.plain.ok]
    rows: list[tuple[Value, ...]] = []
    groups = (
        ("all turns", both),
        ("hits", [s for s in both if s.cached.reuse == "answer"]),
        ("the rest", [s for s in both if s.cached.reuse != "answer"]),
    )
    for name, of in groups:
        for chain, replies in (("with", [s.cached for s in of]), ("without", [s.plain for s in of])):
            first = [r.first for r in replies if r.first is not None]
            last = [r.last for r in replies if r.last is not None]
            if first and last:
                rows.append(
                    (f"{name}, {chain} the cache", len(last), *(float(np.percentile(first, q)) for q in (50, 95)),
                     *(float(np.percentile(last, q)) for q in (50, 95)))
                )  # fmt: skip
    part.table(
        "latency",
        "Seconds a turn",
        (Column("", text=True), Column("turns"), Column("first piece, median", "seconds"),
         Column("95th percentile", "seconds"), Column("last piece, median", "seconds"),
         Column("95th percentile ", "seconds")),
        rows,
    )  # fmt: skip
    if both:
        part.plot(
            Lines("whole", "Time to the last piece", [_spread("with the cache", [s.cached for s in both]),
                  _spread("without", [s.plain for s in both])], "seconds", "turns answered by then, share",
                  ylim=(0, 1), log_x=True)
        )  # fmt: skip


def _spread(name: str, replies: Sequence[Reply]) -> Curve:
    values = sorted(r.last for r in replies if r.last is not None)
    return Curve(name, values, [(n + 1) / len(values) for n in range(len(values))], n=len(values), steps=True)


def _tokens(report: Report, seen: Sequence[Seen]) -> None:
    part = report.section("Tokens", "As the backend counts them; a turn answered from the cache costs it none.")
    rows: list[tuple[str, int, int, int, int]] = []
    for name, replies, free in (
        ("with the cache", [s.cached for s in seen], True),
        ("without", [s.plain for s in seen], False),
    ):
        paid = [r for r in replies if not (free and r.reuse == "answer")]
        prompt, cached = sum(r.prompt_tokens for r in paid), sum(r.cached_tokens for r in paid)
        rows.append((name, prompt, cached, prompt - cached, sum(r.completion_tokens for r in paid)))
    part.table(
        "tokens",
        "Tokens of all turns",
        (Column("", text=True), Column("prompt", "tokens"), Column("of them in the KV cache", "tokens"),
         Column("prefilled", "tokens"), Column("generated", "tokens")),
        rows,
    )  # fmt: skip
    most = max(1, *(row[3] + row[4] for row in rows))
    part.plot(
        Bars("work", "Tokens the backend worked on (prefilled and generated), against the larger",
             [str(row[0]) for row in rows], [(row[3] + row[4]) / most for row in rows], "share of the larger, %")
    )  # fmt: skip


def _next(report: Report, seen: Sequence[Seen]) -> None:
    by: dict[str, Counter[str]] = defaultdict(Counter)
    for one in seen:
        by[f"{one.cached.reuse or 'no header'}, {one.verdict or 'failed'}"][one.reaction] += 1
    report.section(
        "What users did next", "After the recorded answers: in the log, these users had seen neither chain."
    ).table(
        "next",
        "Next action by what became of the turn",
        (Column("turn", text=True), Column("turns"), *(Column(name, "share") for name in REACTIONS)),
        [(name, c.total(), *(c[r] / c.total() for r in REACTIONS)) for name, c in sorted(by.items())],
    )


def _differences(report: Report, seen: Sequence[Seen]) -> None:
    differ = [s for s in seen if s.verdict == "differ" and s.cached.reuse == "answer"]
    if not differ:
        return
    part = report.section("Hits that differ")
    for one in sorted(differ, key=lambda s: -s.cached.confidence)[:_EXAMPLES]:
        part.example(
            f"confidence {one.cached.confidence:.3f}, {one.cached.reason}",
            [("asked", one.question), ("from the cache", one.cached.text), ("from the model", one.plain.text)],
            facts=[one.why],
            tone="bad",
        )
