"""What can be wrong with a log."""

from __future__ import annotations

__all__ = ["BadRow", "TrafficError", "UnknownFormat"]


class TrafficError(ValueError):
    """A log cannot be used; the message is one line for people."""


class UnknownFormat(TrafficError):  # noqa: N818 - reads as the sentence it is
    """Nobody knows what kind of log this is."""


class BadRow(TrafficError):  # noqa: N818 - reads as what it says
    """One row of a log cannot be used. ``line`` counts from 1; 0 where the row has no line of its own."""

    def __init__(self, why: str, file: str = "", line: int = 0) -> None:
        super().__init__(f"{file or 'log'}:{line}: {why}" if line else f"{file or 'log'}: {why}")
        self.why = why
        self.file = file
        self.line = line

    def at(self, file: str, line: int) -> BadRow:
        """The same fault with its place."""
        return BadRow(self.why, file, line)
