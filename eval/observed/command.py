"""``antiphon shadow report``: what shadow mode has seen so far."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from eval.observed.read import read_observations
from eval.observed.report import report_on
from eval.traffic import Problems
from store.shadow import Observation
from store.types import Policy

__all__ = ["WIDTH", "complain", "run", "take"]

WIDTH = 120
"""Columns a report has at least: a narrow table cannot be read."""


def take(files: Sequence[Path], problems: Problems, since: float | None = None) -> list[Observation]:
    """Read observations, those after ``since`` (seconds since the epoch). Raises `eval.traffic.TrafficError`."""
    return [one for one in read_observations(files, problems) if since is None or one.time >= since]


def complain(problems: Problems, console: Console) -> None:
    """Say which rows were skipped."""
    for problem in problems.first[:5]:
        console.print(Text(str(problem), style="yellow"))
    if problems.skipped:
        console.print(Text(f"{problems.skipped} of {problems.rows} rows could not be read", style="yellow"))


def run(
    files: Sequence[Path],
    *,
    since: float | None = None,
    strict: bool = False,
    html: Path | None = None,
    json_out: Path | None = None,
    policy: Policy | None = None,
    command: str = "antiphon shadow report",
) -> None:
    """The command. Raises `eval.traffic.TrafficError`, ``OSError``, `eval.report.errors.PlotsMissing`."""
    console = Console(highlight=False)
    console.width = max(console.width, WIDTH)
    problems = Problems(strict=strict)
    seen = take(files, problems, since)
    complain(problems, console)
    report = report_on(
        seen,
        kind="shadow",
        title="What the cache would have done",
        command=command,
        policy=policy,
    )
    report.facts["rows"] = problems.summary()
    report.show(console)
    report.write(html=html, json=json_out)
