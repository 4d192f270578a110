"""The commands that measure: ``antiphon calibrate``, ``antiphon shadow``, ``antiphon replay``.

Part of the command line, so it may import every room, and does so lazily: `register` hangs them into the app.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from proxy.cli_options import ConfigOption, SetOption, load_with
from proxy.cli_output import FAILED, UNUSABLE, CommandError, can_be_written, must_be_files

if TYPE_CHECKING:
    from eval.calibration.refit import Method

__all__ = ["register"]

_MOST_ROUNDS: Final = 100


shadow = typer.Typer(help="What the cache would have done in shadow mode.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    app.command()(calibrate)
    app.add_typer(shadow, name="shadow")
    app.command()(replay)


def _typed() -> str:
    """What was typed, for the report, without a key."""
    words = ["antiphon", *sys.argv[1:]]
    for place, word in enumerate(words):
        if word == "--api-key" and place + 1 < len(words):
            words[place + 1] = "…"
        elif word.startswith("--api-key="):
            words[place] = "--api-key=…"
    return shlex.join(words)


@contextmanager
def _needing_extra() -> Iterator[None]:
    """Say which extra is missing where an import fails."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise CommandError(f"{error.name} is missing: pip install 'antiphon[eval]'", UNUSABLE) from None


def calibrate(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE…", help="Labelled pairs (JSON Lines, or a sheet as CSV), or logs.")
    ],
    precision: Annotated[
        float | None, typer.Option("--precision", metavar="P", help="Share of the hits that must be right; 0.99.")
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget",
            metavar="B",
            help="Instead: share of the turns without a right stored answer that may be served one.",
        ),
    ] = None,
    certainty: Annotated[float, typer.Option("--certainty", metavar="C", help="How sure the promise must be.")] = 0.95,
    equal_share: Annotated[
        float | None,
        typer.Option(
            "--equal-share",
            metavar="S",
            help="Share of look-ups in your traffic whose best stored answer is right, where the file differs.",
        ),
    ] = None,
    refit: Annotated[
        str | None, typer.Option("--refit", metavar="METHOD", help="Correct the confidence, too: isotonic or platt.")
    ] = None,
    windows: Annotated[
        str, typer.Option("--windows", metavar="N,N…", help="Window lengths, in rounds, to compare; empty: none.")
    ] = "3,5,10",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the thresholds file (decision.thresholds_file).")
    ] = None,
    from_shadow: Annotated[
        bool, typer.Option("--from-shadow", help="FILE holds what shadow mode or a replay observed, not pairs.")
    ] = False,
    html: Annotated[Path | None, typer.Option("--html", metavar="OUT", help="Write the report as one page.")] = None,
    json_out: Annotated[Path | None, typer.Option("--json", metavar="OUT", help="Write all figures here.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Samples taken, at most.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="For what is drawn at random.")] = 0,
) -> None:
    """Find the thresholds that keep a promise on your own data; exit code 1 where the data do not support it."""
    must_be_files(files, "observations" if from_shadow else "labelled pairs (JSON Lines, or a sheet as CSV), or logs")
    can_be_written(out, html, json_out, inputs=files)
    if budget is not None and precision is not None:
        raise CommandError("--precision and --budget are two goals: name one", UNUSABLE)
    lengths = _lengths(windows)
    with _needing_extra():
        from eval.calibration.choose import Goal
        from eval.calibration.command import Options, run
        from eval.report.errors import PlotsMissing
        from eval.traffic import TrafficError
    method: Method | None = None
    if refit is not None:
        if refit not in ("isotonic", "platt"):
            raise CommandError(f"--refit {refit}: write isotonic or platt", UNUSABLE)
        method = cast("Method", refit)
    try:
        goal = Goal("precision", 0.99 if precision is None else precision, certainty, equal_share)
        if budget is not None:
            goal = Goal("budget", budget, certainty)
    except ValueError as error:
        raise CommandError(str(error), UNUSABLE) from None
    options = Options(goal, lengths, method, limit, seed)
    try:
        supported = run(
            files, options, from_shadow=from_shadow, out=out, html=html, json_out=json_out, command=_typed()
        )
    except (TrafficError, PlotsMissing) as error:
        raise CommandError(str(error), UNUSABLE) from None
    except (KeyError, ValueError) as error:
        raise CommandError(f"{', '.join(f.name for f in files)}: not in the pair format ({error})", UNUSABLE) from error
    if not supported:
        raise typer.Exit(FAILED)


def _lengths(windows: str) -> tuple[int, ...]:
    words = [word.strip() for word in windows.split(",") if word.strip()]
    if not all(word.isascii() and word.isdigit() and 0 < int(word) <= _MOST_ROUNDS for word in words):
        raise CommandError(f"--windows {windows}: numbers of rounds from 1 to {_MOST_ROUNDS}, as in 3,5,10", UNUSABLE)
    return tuple(map(int, words))


@shadow.command("report")
def shadow_report(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]…", help="Observations; default: those of rollout.observations."),
    ] = None,
    since_hours: Annotated[
        float | None,
        typer.Option("--since-hours", min=0, metavar="H", help="Only what was observed in the last H hours."),
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="OUT", help="Write the report as one page.")] = None,
    json_out: Annotated[Path | None, typer.Option("--json", metavar="OUT", help="Write the figures here.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first row that cannot be read.")] = False,
    config: ConfigOption = None,
    sets: SetOption = None,
) -> None:
    """Say what shadow mode has seen: hits, how many would have been wrong, and what they have in common."""
    can_be_written(html, json_out, inputs=files or ())
    if not files:
        newest = Path(load_with(config, sets).settings.rollout.observations)
        files = [file for file in (newest.with_name(newest.name + ".1"), newest) if file.is_file()]
        if not files:
            raise CommandError(f"there are no observations at {newest}: run the proxy with rollout.mode = shadow")
    with _needing_extra():
        from eval.observed.command import run
        from eval.report.errors import PlotsMissing
        from eval.traffic import TrafficError
    try:
        since = None if since_hours is None else time.time() - 3600 * since_hours
        run(files, since=since, strict=strict, html=html, json_out=json_out, command=_typed())
    except (TrafficError, PlotsMissing) as error:
        raise CommandError(str(error), UNUSABLE) from None


def replay(
    files: Annotated[list[Path], typer.Argument(metavar="LOG…", help="Logs in any form that docs/traffic.md names.")],
    kind: Annotated[
        str, typer.Option("--format", metavar="NAME", help="Form of the logs; auto recognises it.")
    ] = "auto",
    work: Annotated[
        Path | None, typer.Option("--work", metavar="DIR", help="Folder to go on from after an interruption.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start anew, whatever replay the folder holds.")] = False,
    sample: Annotated[float, typer.Option("--sample", metavar="SHARE", help="Share of conversations taken.")] = 1.0,
    seed: Annotated[int, typer.Option("--seed", help="For what is drawn at random.")] = 0,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Turns taken, at most.")] = None,
    cached: Annotated[
        str | None, typer.Option("--cached", metavar="URL", help="Live: a running proxy; needs --plain.")
    ] = None,
    plain: Annotated[
        str | None, typer.Option("--plain", metavar="URL", help="Live: the backend without the cache.")
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option("--speed", metavar="X", help="Live: 1 keeps recorded times, 10 is faster; default: no waiting."),
    ] = None,
    at_once: Annotated[int, typer.Option("--at-once", min=1, help="Live: conversations under way at a time.")] = 8,
    model: Annotated[str | None, typer.Option("--model", help="Live: ask this model, not the recorded one.")] = None,
    api_key: Annotated[
        str | None, typer.Option("--api-key", envvar="OPENAI_API_KEY", help="Live: bearer token for both chains.")
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="OUT", help="Write the report as one page.")] = None,
    json_out: Annotated[Path | None, typer.Option("--json", metavar="OUT", help="Write the figures here.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first row that cannot be read.")] = False,
    config: ConfigOption = None,
    sets: SetOption = None,
) -> None:
    """Replay a log through the decision code, or through two live chains, and compare answers, time and tokens."""
    settings = load_with(config, sets).settings
    with _needing_extra():
        from eval.admission import Rules
        from eval.replay.command import Options, run
        from eval.replay.errors import ReplayError
        from eval.replay.live_command import Live
        from eval.replay.live_command import run as run_live
        from eval.report.errors import PlotsMissing
        from eval.traffic import TrafficError
    from store.confidence import load
    from store.confidence.thresholds_file import ThresholdsError, read_thresholds

    if not 0 < sample <= 1:
        raise CommandError("--sample: a share from 0 to 1", UNUSABLE)
    if (cached is None) != (plain is None):
        raise CommandError("a live replay needs both --cached URL and --plain URL", UNUSABLE)
    if speed is not None and not speed > 0:
        raise CommandError("--speed: a number above 0", UNUSABLE)
    if cached is None and (speed is not None or model is not None):
        raise CommandError("--speed and --model are for a live replay: name --cached URL and --plain URL", UNUSABLE)
    if fresh and work is None:
        raise CommandError("--fresh empties a folder: name it with --work", UNUSABLE)
    can_be_written(html, json_out, inputs=files)
    admission, decision = settings.admission, settings.decision
    rules = Rules(
        share=settings.sharing.share,
        volatile=settings.sharing.volatile_system_parts,
        time_sensitive=admission.time_sensitive,
        time_sensitive_ttl_s=admission.time_sensitive_ttl_s,
        creative=admission.creative,
        smalltalk=admission.smalltalk,
        tools=admission.tools,
        semantic=decision.enabled,
    )
    try:
        thresholds = (
            None if decision.thresholds_file is None else read_thresholds(decision.thresholds_file, load().version)
        )
        options = Options(
            kind, work, fresh, sample, seed, limit, strict, rules, thresholds, decision.answer, decision.verify
        )
        if cached is not None and plain is not None:
            live = Live(cached, plain, speed, at_once, model, api_key)
            whole = run_live(files, options, live, html=html, json_out=json_out, command=_typed())
        else:
            whole = run(files, options, html=html, json_out=json_out, command=_typed())
    except (TrafficError, PlotsMissing, ThresholdsError, ReplayError) as error:
        raise CommandError(str(error), UNUSABLE) from None
    if not whole:
        raise typer.Exit(130)
