"""A report in the terminal: figures and tables, no plots."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from eval.report.document import Example, Figure, Report, Section, Table, Words
from eval.report.plots import Bars
from eval.report.values import interval_text, written

__all__ = ["show"]

_TONES: Final = {"plain": "", "good": "green", "doubtful": "yellow", "bad": "red"}
_MOST_ROWS: Final = 12
_EXAMPLES: Final = 3


def show(report: Report, console: Console) -> None:
    """Print a report. Values are never read as markup."""
    console.print(Text(report.title, style="bold"))
    if report.subtitle:
        console.print(Text(report.subtitle, style="dim"))
    for section in report.sections:
        console.print()
        console.print(Text(section.title, style="bold underline"))
        _section(section, console)


def _section(section: Section, console: Console) -> None:
    figures = [block for block in section.blocks if isinstance(block, Figure)]
    shown = False
    examples = 0
    for block in section.blocks:
        if isinstance(block, Figure):
            if not shown:
                console.print(_figures(figures))
                shown = True
        elif isinstance(block, Table):
            console.print(_table(block))
        elif isinstance(block, Words):
            line = Text(block.headline, style=f"bold {_TONES[block.tone]}".strip()) if block.headline else Text()
            if block.text:
                line.append(("\n" if block.headline else "") + block.text, style="not bold default")
            console.print(line)
        elif isinstance(block, Example):
            examples += 1
            if examples <= _EXAMPLES:
                console.print(_example(block))
        elif isinstance(block, Bars):
            console.print(_bars(block))
    if examples > _EXAMPLES:
        console.print(Text(f"… and {examples - _EXAMPLES} more in the report", style="dim"))


def _figures(figures: list[Figure]) -> Grid:
    grid = Grid(box=None, show_header=False, pad_edge=False)
    grid.add_column()
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column()
    for figure in figures:
        told = [interval_text(figure.interval, figure.unit)] if figure.interval else []
        told += [f"n = {figure.n:,}"] if figure.n is not None else []
        told += [figure.note] if figure.note else []
        grid.add_row(
            Text(figure.name),
            Text(written(figure.value, figure.unit), style="bold"),
            Text(" · ".join(told), style="dim"),
        )
    return grid


def _table(table: Table) -> Grid:
    grid = Grid(title=Text(table.title), title_justify="left")
    for column in table.columns:
        grid.add_column(Text(column.name), justify="left" if column.text else "right")
    for row in table.rows[:_MOST_ROWS]:
        grid.add_row(*(Text(written(v, c.unit)) for v, c in zip(row, table.columns, strict=True)))
    if len(table.rows) > _MOST_ROWS:
        grid.caption = f"… and {len(table.rows) - _MOST_ROWS} more rows in the report"
    return grid


def _bars(plot: Bars) -> Grid:
    grid = Grid(title=Text(plot.title), title_justify="left", box=None, show_header=False, pad_edge=False)
    grid.add_column()
    grid.add_column(no_wrap=True)
    grid.add_column(justify="right")
    grid.add_column()
    most = max(plot.values, default=0.0) or 1.0
    for number, (label, value) in enumerate(zip(plot.labels, plot.values, strict=True)):
        told = []
        if plot.low is not None and plot.high is not None:
            told.append(interval_text((plot.low[number], plot.high[number]), "share" if plot.percent else ""))
        if plot.n is not None:
            told.append(f"n = {plot.n[number]:,}")
        bar = "█" * round(24 * value / most)
        grid.add_row(
            Text(label),
            Text(bar, style="blue"),
            Text(written(value, "share" if plot.percent else "")),
            Text(" · ".join(told), style="dim"),
        )
    return grid


def _example(example: Example) -> Text:
    text = Text(f"• {example.title}", style=_TONES[example.tone])
    for name, said in example.sides:
        text.append(f"\n    {name}: ", style="dim")
        words = " ".join(said.split())
        text.append(words if len(words) <= 300 else f"…{words[-300:]}")
    for fact in example.facts:
        text.append(f"\n    {fact}", style="dim")
    return text
