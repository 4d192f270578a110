"""The tables in the documentation, made from the code: ``python -m proxy.reference docs`` renews them.

A table stands between ``<!-- NAME:begin -->`` and ``<!-- NAME:end -->``; a test compares it with what is made here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import typer

from proxy.cli import app
from proxy.metrics import metric_names
from proxy.settings import every_setting, shown

__all__ = ["TABLES", "commands", "metrics", "renewed", "settings"]


def _cell(text: object) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield "|" + "---|" * len(columns)
    for row in rows:
        yield f"| {' | '.join(map(_cell, row))} |"


def settings() -> str:
    """Every setting, section by section: name, type, default, description."""
    lines: list[str] = []
    section = ""
    for setting in every_setting():
        if setting.section != section:
            section = setting.section
            rows = [
                (f"`{s.key}`", s.kind, _default(s.name, shown(s, s.default)), s.description)
                for s in every_setting()
                if s.section == section
            ]
            lines += ["", f"### [{section}]", "", *_table(("setting", "type", "default", "meaning"), rows)]
    return "\n".join(lines).strip()


def _default(name: str, value: Any) -> str:
    if value is None or value == "":
        return "(a file in the data folder)" if name == "store.url" else "(unset)"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, float) and value.is_integer():
        return f"`{value:.0f}`"
    return f"`{value}`"


def metrics() -> str:
    """Every metric with its help text."""
    return "\n".join(_table(("metric", "meaning"), [(f"`{name}`", text) for name, text in metric_names().items()]))


def commands() -> str:
    """Every command with its arguments and options."""
    return "\n".join(_command_lines(typer.main.get_command(app), "antiphon")).strip()


def _command_lines(command: Any, name: str) -> Iterator[str]:
    for inner in getattr(command, "commands", {}).values():
        yield from _command_lines(inner, f"{name} {inner.name}")
    if getattr(command, "commands", None):
        return
    yield from ("", f"### {name}", "", _cell(command.help or ""), "")
    rows = []
    for parameter in command.params:
        metavar = parameter.metavar or ""
        if parameter.param_type_name == "argument":
            rows.append((f"`{metavar or parameter.name}`", parameter.help or ""))
        elif parameter.name != "help":
            rows.append((f"`{' '.join([parameter.opts[0], metavar]).strip()}`", parameter.help or ""))
    if rows:
        yield from _table(("argument", "meaning"), rows)


TABLES: Final = {"settings": settings, "metrics": metrics, "commands": commands}


def renewed(text: str) -> str:
    """The text with every table in it made anew."""
    for name, make in TABLES.items():
        pattern = re.compile(rf"(<!-- {name}:begin -->\n).*?(<!-- {name}:end -->)", re.DOTALL)
        text = pattern.sub(lambda found, make=make: f"{found[1]}\n{make()}\n\n{found[2]}", text)  # type: ignore[misc]
    return text


def main(arguments: Sequence[str]) -> int:
    """Renew the tables in every Markdown file of a folder."""
    for file in sorted(Path(arguments[0] if arguments else "docs").glob("*.md")):
        text = file.read_text(encoding="utf-8")
        if (new := renewed(text)) != text:
            file.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
