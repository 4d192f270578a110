"""The bad-row policy: every row that cannot be used is reported with its line and skipped; ``strict`` stops instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from eval.traffic.errors import BadRow, TrafficError

__all__ = ["Problems"]

_KEPT: Final = 100  # rows remembered one by one; all are counted


class Problems:
    """Rows that were skipped. One object for all files of a run."""

    def __init__(self, *, strict: bool = False, on_problem: Callable[[BadRow], None] | None = None) -> None:
        """``strict``: `add` raises the `BadRow` instead. ``on_problem`` hears of each row, at once."""
        self.strict = strict
        self.rows = 0  # rows read, good ones and bad ones
        self.skipped = 0
        self.ignored: Counter[str] = Counter()  # rows that are fine and no chat turns, by what they are
        self.first: list[BadRow] = []
        self._on_problem = on_problem

    def add(self, problem: BadRow) -> None:
        """Count a bad row. Raises it where ``strict``."""
        if self.strict:
            raise problem
        self.skipped += 1
        if len(self.first) < _KEPT:
            self.first.append(problem)
        if self._on_problem is not None:
            self._on_problem(problem)

    def none_read(self) -> None:
        """Raise `TrafficError` where there are rows and all are bad: then it is the file that is wrong."""
        if self.skipped and self.skipped == self.rows:
            raise TrafficError(f"none of {self.rows} rows can be used; the first: {self.first[0]}")

    def ignore(self, what: str) -> None:
        """Count a row that belongs into such a log and holds no chat turn (an embedding request, a span)."""
        self.ignored[what] += 1

    def summary(self) -> dict[str, Any]:
        """Return the counts, and the first bad rows as ``{"file", "line", "why"}``."""
        return {
            "rows": self.rows,
            "skipped": self.skipped,
            "ignored": dict(self.ignored),
            "first": [{"file": p.file, "line": p.line, "why": p.why} for p in self.first],
        }
