"""Files that hold what users said: a new one can be read by its owner only."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["write_private"]


def write_private(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8 (lone surrogates as "?"); a file that exists keeps its mode. Raises ``OSError``."""
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(number, "w", encoding="utf-8", errors="replace", newline="") as file:  # noqa: PTH123
        file.write(text)
