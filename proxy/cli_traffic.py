"""The commands on logged traffic: ``antiphon audit`` and ``antiphon label``.

Part of the command line, so it may import every room, and does so lazily: `register` hangs them into the app.
"""

from __future__ import annotations

import os
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proxy.cli_options import ConfigOption, SetOption, load_with
from proxy.cli_output import UNUSABLE, CommandError, can_be_written, say

if TYPE_CHECKING:
    from eval.admission import Rules
    from proxy.settings import Settings
    from store.types import Policy, ReuseConfidence

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    app.command()(audit)
    app.command()(label)


def audit(
    logs: Annotated[
        list[str], typer.Argument(metavar="LOG…", help="Logs of what users asked; - for standard input (JSON Lines).")
    ],
    kind: Annotated[
        str,
        typer.Option(
            "--format",
            "--from",
            metavar="NAME",
            help="antiphon, openai, litellm, langfuse, sharegpt, sglang or csv; default: told from the first rows.",
        ),
    ] = "auto",
    report: Annotated[
        Path | None, typer.Option("--html", "--report", metavar="OUT", help="Write a page with plots.")
    ] = None,
    json_out: Annotated[Path | None, typer.Option("--json", metavar="OUT", help="Write the same figures.")] = None,
    sheet: Annotated[
        Path | None, typer.Option("--sheet", metavar="OUT.csv", help="Write pairs to label, for `antiphon label`.")
    ] = None,
    sample: Annotated[int, typer.Option("--sample", min=0, max=100_000, help="Pairs drawn for the sheet.")] = 200,
    seed: Annotated[int, typer.Option("--seed", help="For what is drawn at random.")] = 0,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at the first row that cannot be used, instead of skipping it.")
    ] = False,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Turns taken, at most.")] = None,
    replies: Annotated[
        bool,
        typer.Option("--replies", help="Embed replies too, as the proxy does; many times slower, seldom different."),
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            min=1,
            max=64,
            help="Threads that embed, and processes that judge; default: one a core, 4 at most.",
        ),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep", metavar="FILE", help="Where embeddings are kept between runs; default: in the data folder."
        ),
    ] = None,
    config: ConfigOption = None,
    sets: SetOption = None,
) -> None:
    """Say whether a cache is worth it: how much of your traffic it would have answered, before a user is served."""
    loaded = load_with(config, sets)
    from rich.console import Console

    from eval.audit.errors import AuditError
    from eval.audit.run import Options
    from eval.audit.run import audit as run
    from eval.audit.sheet import write_sheet
    from eval.report.errors import PlotsMissing
    from eval.traffic.errors import TrafficError
    from eval.traffic.readers import kind_of
    from store.confidence.thresholds_file import confidence_with
    from store.errors import StoreError

    settings = loaded.settings
    can_be_written(report, json_out, sheet, inputs=[*logs, *([] if keep is None else [keep])])
    if sheet is not None and _labelled(sheet):
        raise CommandError(f"{sheet} holds labels, which would be lost: name another file", UNUSABLE)
    if report is not None:
        _plots_or_complain()
    try:  # before the models are loaded
        for log in logs:
            kind_of(log, kind)
    except TrafficError as error:
        raise CommandError(str(error), UNUSABLE) from None
    progress = Console(stderr=True)
    options = Options(
        kind=kind,
        strict=strict,
        limit=limit,
        sample=sample,
        seed=seed,
        threads=threads or min(4, os.cpu_count() or 1),
        replies=replies,
        rules=_rules(settings),
        store=settings.store,
    )
    try:
        from fingerprint.embedding.base import EmbedderError
        from fingerprint.embedding.router import load_router

        try:
            embedder = load_router()
        except EmbedderError as error:
            raise CommandError(str(error)) from None
        confidence, policy = _decision(settings)
        found = run(
            logs,
            options,
            embedder=embedder,
            confidence=confidence,
            policy=policy,
            keep=keep or loaded.home / "embeddings.sqlite3",
            command=shlex.join(["antiphon", *sys.argv[1:]]) if sys.argv[1:2] == ["audit"] else "antiphon audit",
            console=progress if progress.is_terminal else None,
            make=partial(confidence_with, settings.decision.thresholds_file),
        )
    except (TrafficError, AuditError, StoreError) as error:
        raise CommandError(str(error), UNUSABLE) from None
    found.report.show(Console())
    try:
        found.report.write(html=report, json=json_out)
        if sheet is not None:
            write_sheet(found.rows, sheet)
    except PlotsMissing as error:
        raise CommandError(str(error), UNUSABLE) from None
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from None
    for out, what in ((report, "the report"), (json_out, "the figures"), (sheet, "pairs to label")):
        if out is not None:
            say(f"{out}: {what}")


def label(
    sheet: Annotated[Path, typer.Argument(metavar="SHEET.csv", help="What `antiphon audit --sheet` wrote.")],
    pairs: Annotated[
        Path | None, typer.Option("--pairs", metavar="OUT.jsonl", help="Write the labelled pairs in the pair format.")
    ] = None,
    count: Annotated[bool, typer.Option("--count", help="Ask nothing; say what the labels say so far.")] = False,
) -> None:
    """Label pairs by hand: would the stored answer do? `antiphon calibrate SHEET.csv` learns from it."""
    from rich.console import Console
    from rich.table import Table

    from eval.audit.label import label as go_through
    from eval.audit.label import summary, write_pairs
    from eval.audit.sheet import read_sheet
    from eval.report.values import interval_text, written
    from eval.traffic.errors import TrafficError

    can_be_written(pairs, inputs=[sheet])
    console = Console()
    try:
        rows = read_sheet(sheet) if count else go_through(sheet, _answer, console)
    except TrafficError as error:
        raise CommandError(str(error), UNUSABLE) from None
    except OSError as error:
        raise CommandError(f"{sheet}: {error.strerror}") from None
    table = Table(title="Stored answers that would do", title_justify="left")
    for name in ("stratum", "labelled", "right", "share", "95 %"):
        table.add_column(name, justify="left" if name == "stratum" else "right")
    for stratum, told in summary(rows).items():
        interval = interval_text((told["ci"][0], told["ci"][1]), "share") if told["labelled"] else ""
        table.add_row(
            stratum,
            f"{told['labelled']} of {told['of']}",
            str(told["right"]),
            written(told["share"], "share"),
            interval,
        )
    console.print(table)
    if pairs is not None:
        say(f"{pairs}: {write_pairs(rows, pairs)} pairs")


def _labelled(sheet: Path) -> bool:
    """Whether somebody has labelled pairs of a sheet that is there."""
    from eval.audit.sheet import read_sheet
    from eval.traffic.errors import TrafficError

    try:
        return sheet.is_file() and any(row.equivalent is not None for row in read_sheet(sheet))
    except (TrafficError, OSError):
        return False


def _answer(question: str) -> str:
    """One word from whoever sits there; "q" at the end of input."""
    if sys.stdin.isatty():
        import click

        typer.echo(f"{question} [y/n/s/b/q] ", nl=False)
        key = click.getchar()
        typer.echo(key)
        return key
    line = sys.stdin.readline()
    return line or "q"


def _plots_or_complain() -> None:
    from importlib.util import find_spec

    from eval.report.errors import PlotsMissing

    if find_spec("matplotlib") is None:  # better before an hour's work than after it
        raise CommandError(str(PlotsMissing()), UNUSABLE)


def _rules(settings: Settings) -> Rules:
    from eval.admission import Rules

    return Rules(
        share=settings.sharing.share,
        volatile=settings.sharing.volatile_system_parts,
        time_sensitive=settings.admission.time_sensitive,
        time_sensitive_ttl_s=settings.admission.time_sensitive_ttl_s,
        creative=settings.admission.creative,
        smalltalk=settings.admission.smalltalk,
        tools=settings.admission.tools,
        semantic=settings.decision.enabled,
    )


def _decision(settings: Settings) -> tuple[ReuseConfidence, Policy]:
    """What would decide in the proxy: the shipped confidence and thresholds, or those of the thresholds file."""
    from proxy.settings import policy_of
    from store.confidence import load, thresholds
    from store.confidence.thresholds_file import ThresholdsError, confidence_of, read_thresholds

    confidence = load(warm=False)  # processes judge, as a rule, and have their own
    file = settings.decision.thresholds_file
    if file is None:
        return confidence, policy_of(settings.decision, thresholds())
    try:
        found = read_thresholds(file, confidence.version)
    except ThresholdsError as error:
        raise CommandError(str(error), UNUSABLE) from None
    return confidence_of(found, confidence), policy_of(settings.decision, found.policy)
