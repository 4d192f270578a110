"""Where a figure was taken."""

from __future__ import annotations

import subprocess

__all__ = ["commit"]


def commit() -> str:
    """Return the full hash of the commit that is checked out; empty outside of a repository."""
    asked = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return asked.stdout.strip()
