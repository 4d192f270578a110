"""Options that many commands have, and the settings they lead to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proxy.cli_output import UNUSABLE, CommandError

if TYPE_CHECKING:
    from proxy.settings import Loaded

__all__ = ["ConfigOption", "JsonOption", "SetOption", "load_with"]

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="TOML file (else $ANTIPHON_CONFIG, else antiphon.toml in the data folder)."
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Any setting, over file and environment; may be repeated."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def load_with(config: Path | None, sets: list[str] | None, flags: dict[str, tuple[str, Any]] | None = None) -> Loaded:
    """Return the settings under these flags: dotted name → (what the user typed, value or ``None``)."""
    from proxy.settings import every_setting, list_from_text, load, nearest

    known = {setting.name: setting for setting in every_setting()}
    values: dict[str, Any] = {}
    names: dict[str, str] = {}
    for item in sets or []:
        name, equals, value = item.partition("=")
        name = name.strip()
        if not equals:
            raise CommandError(f"--set {item}: write SECTION.KEY=VALUE", UNUSABLE)
        if name not in known:
            guess = nearest(name, known)
            raise CommandError(
                f"--set: unknown setting {name}" + (f"; did you mean {guess}?" if guess else ""), UNUSABLE
            )
        values[name] = list_from_text(value, f"--set {name}") if known[name].takes_list else value
        names[name] = f"--set {name}"
    for name, (flag, value) in (flags or {}).items():
        if value is not None:
            values[name] = value
            names[name] = flag
    return load(config, values, flag_names=names)
