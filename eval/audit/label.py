"""``antiphon label``: a person says of each pair whether one answer would do for both. Saved after every word."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from rich.columns import Columns
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from eval.audit.sheet import Row, read_sheet, text_of, write_sheet
from eval.private import write_private
from eval.statistics import wilson
from fingerprint.conversation import Turn

__all__ = ["label", "pairs_of", "summary", "write_pairs"]

_HELP: Final = "y same answer · n not · s skip · b back · q stop (all is saved)"


def label(path: Path, ask: Callable[[str], str], console: Console) -> list[Row]:
    """Go through the rows without a label. ``ask`` shows a prompt and returns a key or a word.

    Stops at "q", and at the end of input. Returns all rows, as they are in the file. Raises
    `eval.traffic.errors.TrafficError`.
    """
    rows = read_sheet(path)
    open_rows = [number for number, row in enumerate(rows) if row.equivalent is None]
    console.print(Text(_HELP, style="dim"))
    at = 0
    while at < len(open_rows):
        row = rows[open_rows[at]]
        _show(row, at + 1, len(open_rows), console)
        word = ask("Would the stored answer do?").strip().lower()[:1]
        if word == "q":
            break
        if word == "b":
            at = max(0, at - 1)
            continue
        if word in ("y", "n"):
            row.equivalent = word == "y"
            write_sheet(rows, path)
        elif word != "s":
            console.print(Text(_HELP, style="yellow"))
            continue
        at += 1
    return rows


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """What the labels say so far, stratum by stratum: ``{stratum: {"labelled", "of", "right", "share", "ci"}}``."""
    out = {}
    for stratum in dict.fromkeys(row.stratum for row in rows):
        inside = [row for row in rows if row.stratum == stratum]
        told = [row for row in inside if row.equivalent is not None]
        right = sum(bool(row.equivalent) for row in told)
        out[stratum] = {
            "labelled": len(told),
            "of": len(inside),
            "right": right,
            "share": right / len(told) if told else None,
            "ci": list(wilson(right, len(told))),
        }
    return out


def pairs_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The labelled rows in the pair format (DESIGN §10)."""
    return [
        {
            "id": row.id,
            "lang": row.language or "en",
            "category": row.stratum,
            "a": {"messages": _messages(row.stored)},
            "b": {"messages": _messages(row.asked)},
            "equivalent": row.equivalent,
            "source": "audit",
            "label_origin": "operator",
        }
        for row in rows
        if row.equivalent is not None
    ]


def write_pairs(rows: Sequence[Row], path: Path) -> int:
    """Write the labelled rows as JSON Lines; returns how many."""
    pairs = pairs_of(rows)
    text = "".join(json.dumps(pair, ensure_ascii=False) + "\n" for pair in pairs)
    write_private(path, text)
    return len(pairs)


def _messages(turn: Turn) -> list[dict[str, str]]:
    return [{"role": m.role, "content": m.text} for m in turn.messages]


def _show(row: Row, number: int, of: int, console: Console) -> None:
    console.rule(Text(f"{number} of {of}"))
    panels = [
        Panel(Text(text_of(turn)), title=name, title_align="left", width=max(30, console.width // 2 - 1))
        for name, turn in (("stored", row.stored), ("asked", row.asked))
    ]
    console.print(Columns(panels) if console.width >= 80 else panels[0])
    if console.width < 80:
        console.print(panels[1])
