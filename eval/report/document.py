"""A report as plain values: sections of figures, tables, plots, examples and words."""

from __future__ import annotations

import json as json_module
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from eval.private import write_private
from eval.report.plots import Plot
from eval.report.values import Unit, Value

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Block", "Column", "Example", "Figure", "Report", "Section", "Table", "Tone", "Words"]

Tone: TypeAlias = Literal["plain", "good", "doubtful", "bad"]

DOCUMENT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Figure:
    """One number. ``interval`` is its 95 % interval, ``n`` how many cases it was taken from."""

    key: str
    name: str
    value: Value
    unit: Unit = ""
    interval: tuple[float, float] | None = None
    n: int | None = None
    note: str = ""

    def data(self) -> dict[str, Any]:
        """Return the figure for JSON: shares 0 … 1, times in seconds (or ms where the unit says so)."""
        out: dict[str, Any] = {"name": self.name, "value": self.value, "unit": self.unit}
        if self.interval is not None:
            out["ci"] = list(self.interval)
        if self.n is not None:
            out["n"] = self.n
        if self.note:
            out["note"] = self.note
        return out


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table; text on the left, numbers on the right."""

    name: str
    unit: Unit = ""
    text: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of values under columns; every row as long as ``columns``."""

    key: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError(f"a row of the table {self.key!r} does not have {len(self.columns)} cells")

    def data(self) -> dict[str, Any]:
        """Return the table for JSON, a row an object."""
        names = [column.name for column in self.columns]
        return {
            "title": self.title,
            "units": {column.name: column.unit for column in self.columns if column.unit},
            "rows": [dict(zip(names, row, strict=True)) for row in self.rows],
        }


@dataclass(frozen=True, slots=True)
class Words:
    """A paragraph; with a ``headline`` and a ``tone`` it is a verdict."""

    text: str
    headline: str = ""
    tone: Tone = "plain"

    def data(self) -> dict[str, Any]:
        """Return the words for JSON."""
        return {"headline": self.headline, "text": self.text, "tone": self.tone}


@dataclass(frozen=True, slots=True)
class Example:
    """A case to look at: sides of a conversation, each a label with its text, and what is to be said about it."""

    title: str
    sides: tuple[tuple[str, str], ...]
    facts: tuple[str, ...] = ()
    tone: Tone = "plain"

    def data(self) -> dict[str, Any]:
        """Return the example for JSON."""
        return {"title": self.title, "sides": dict(self.sides), "facts": list(self.facts), "tone": self.tone}


Block: TypeAlias = Figure | Table | Words | Example | Plot


@dataclass(slots=True)
class Section:
    """A part of a report under a heading. Blocks are shown in the order they were added, figures side by side."""

    title: str
    intro: str = ""
    key: str = ""
    blocks: list[Block] = field(default_factory=list)

    def figure(
        self,
        key: str,
        name: str,
        value: Value,
        *,
        unit: Unit = "",
        interval: tuple[float, float] | None = None,
        n: int | None = None,
        note: str = "",
    ) -> None:
        """Add one number (see `Figure`)."""
        self.blocks.append(Figure(key, name, value, unit, interval, n, note))

    def table(
        self, key: str, title: str, columns: Sequence[Column], rows: Iterable[Sequence[Value]], *, note: str = ""
    ) -> None:
        """Add a table. Raises `ValueError` for a row of another length than ``columns``."""
        self.blocks.append(Table(key, title, tuple(columns), tuple(tuple(row) for row in rows), note))

    def words(self, text: str, *, headline: str = "", tone: Tone = "plain") -> None:
        """Add a paragraph, or a verdict."""
        self.blocks.append(Words(text, headline, tone))

    def example(
        self, title: str, sides: Sequence[tuple[str, str]], *, facts: Sequence[str] = (), tone: Tone = "plain"
    ) -> None:
        """Add a case to look at."""
        self.blocks.append(Example(title, tuple(sides), tuple(facts), tone))

    def plot(self, plot: Plot) -> None:
        """Add a plot."""
        self.blocks.append(plot)

    def data(self) -> dict[str, Any]:
        """Return the section for JSON: figures, tables and plots by their keys."""
        out: dict[str, Any] = {"title": self.title}
        for block in self.blocks:
            if isinstance(block, Figure):
                out.setdefault("figures", {})[block.key] = block.data()
            elif isinstance(block, Table):
                out.setdefault("tables", {})[block.key] = block.data()
            elif isinstance(block, Words):
                if block.headline:
                    out.setdefault("verdicts", []).append(block.data())
            elif isinstance(block, Example):
                out.setdefault("examples", []).append(block.data())
            else:
                out.setdefault("plots", {})[block.key] = block.data()
        return out


@dataclass(slots=True)
class Report:
    """What a tool found. ``kind`` names the tool; ``facts`` are further values for the JSON file."""

    kind: str
    title: str
    command: str = ""
    subtitle: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    sections: list[Section] = field(default_factory=list)
    made: datetime = field(default_factory=lambda: datetime.now(UTC))

    def section(self, title: str, intro: str = "", *, key: str = "") -> Section:
        """Add a section and return it; its key in the JSON file is made from the title where none is given."""
        made = key or "_".join("".join(c if c.isalnum() else " " for c in title.lower()).split())
        part = Section(title, intro, made)
        self.sections.append(part)
        return part

    def document(self) -> dict[str, Any]:
        """Return everything for JSON: ``{"kind", "version", "made", "command", "antiphon", "machine", **facts,
        "sections": {key: …}}``."""
        try:
            release = version("antiphon")
        except PackageNotFoundError:
            release = "unknown"
        return {
            "kind": self.kind,
            "version": DOCUMENT_VERSION,
            "made": self.made.isoformat(timespec="seconds"),
            "command": self.command,
            "antiphon": release,
            "machine": {
                "system": platform.system(),
                "processor": platform.machine(),
                "python": platform.python_version(),
            },
            **self.facts,
            "sections": {part.key: part.data() for part in self.sections},
        }

    def write(self, *, html: Path | None = None, json: Path | None = None) -> None:
        """Write the page and the JSON file, which quote users.

        Raises `OSError`, and `eval.report.errors.PlotsMissing` where the plotting library is not installed.
        """
        if json is not None:
            text = json_module.dumps(self.document(), indent=1, ensure_ascii=False, allow_nan=False)
            write_private(json, text + "\n")
        if html is not None:
            from eval.report.page import page

            write_private(html, page(self))

    def show(self, console: Console) -> None:
        """Print the summary: everything but plots and examples."""
        from eval.report.terminal import show

        show(self, console)
