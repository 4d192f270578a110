"""How the command talks: tables and colours on a terminal, plain text elsewhere, JSON where asked."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from store.errors import StoreError

__all__ = [
    "CommandError",
    "can_be_written",
    "complain",
    "must_be_files",
    "say",
    "say_finding",
    "say_json",
    "say_table",
    "store_error",
]

# Exit codes: 0 fine, 1 the answer is "no" or something failed, 2 the command or its settings cannot be used.
FAILED = 1
UNUSABLE = 2


class CommandError(Exception):
    """Ends the command with one line on standard error and ``exit_code``."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def store_error(error: StoreError, more: str = "") -> CommandError:
    """What the store says, as the end of the command: 2 where it is not the one that was meant, else 1."""
    from store.errors import StoreMissing, UnsupportedStore

    return CommandError(f"{error}{more}", UNUSABLE if isinstance(error, StoreMissing | UnsupportedStore) else FAILED)


def must_be_files(files: Iterable[Path], what: str) -> None:
    """Raise `CommandError` for the first of ``files`` that is none; ``what`` they hold tells which are wanted."""
    for file in files:
        try:
            if file.is_file():
                continue
            why = f"there is no file {file}" if not file.exists() else f"{file} is no regular file"
            if file.is_dir():
                why = f"{file} is a folder; name files of {what}"
        except OSError as error:  # a name too long, a folder that may not be entered
            why = f"{file} cannot be read: {error.strerror}"
        raise CommandError(why, UNUSABLE)


def can_be_written(*files: Path | None, inputs: Sequence[Path | str] = ()) -> None:
    """Raise `CommandError` where an output has no folder, is one, or would overwrite an input or another output.

    Better before the work than after it.
    """
    taken = {Path(file).resolve(): f"{file} would be overwritten: it is read" for file in inputs if str(file) != "-"}
    for file in files:
        if file is None:
            continue
        if not file.absolute().parent.is_dir():
            raise CommandError(f"there is no folder {file.absolute().parent}", UNUSABLE)
        if file.is_dir():
            raise CommandError(f"{file} is a folder; name a file to write", UNUSABLE)
        place = file.resolve()
        if place in taken:
            raise CommandError(f"{taken[place]}; name another file", UNUSABLE)
        if not file.is_char_device() and not file.is_fifo():  # several may go to /dev/stdout
            taken[place] = f"{file} is named twice"


def say(line: str = "") -> None:
    """Print one line, at once (a supervisor reads it through a pipe)."""
    print(line, flush=True)


def complain(message: str) -> None:
    """Print an error, prefixed with the program's name, on standard error."""
    for line in message.splitlines() or [""]:
        print(f"antiphon: {line}", file=sys.stderr, flush=True)


def say_json(value: Any) -> None:
    """Print a value as JSON."""
    print(json.dumps(value, ensure_ascii=False, indent=2, default=str), flush=True)


def say_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "") -> None:
    """Print rows: a table on a terminal, tab-separated lines under a heading line elsewhere."""
    cells = [["" if value is None else str(value) for value in row] for row in rows]
    if not sys.stdout.isatty():
        for row in [list(columns), *cells]:
            say("\t".join(cell.replace("\t", " ").replace("\n", " ") for cell in row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, title=title or None, title_justify="left", header_style="bold")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def say_finding(name: str, status: str, seen: str, advice: str) -> None:
    """Print one finding of the doctor: a mark, what was seen, and below it what to do."""
    if not sys.stdout.isatty():
        say(f"{status}\t{name}\t{seen}" + (f"\t{advice}" if advice else ""))
        return
    from rich.console import Console
    from rich.text import Text

    mark, style = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "problem": ("✗", "bold red")}[status]
    line = Text.assemble((f"{mark} {name}: ", style), seen)
    if advice:
        line.append(f"\n    → {advice}", style="cyan")
    Console().print(line)
