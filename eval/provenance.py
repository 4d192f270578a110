"""Where a figure was taken."""

from __future__ import annotations

import subprocess

__all__ = ["commit"]


def commit(*, short: bool = False) -> str:
    """Return the hash of the commit that is checked out, whole or abbreviated; empty outside of a repository."""
    command = ["git", "rev-parse", *(["--short"] if short else []), "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
