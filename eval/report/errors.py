"""What can keep a report from being written."""

from __future__ import annotations

__all__ = ["PlotsMissing"]


class PlotsMissing(RuntimeError):  # noqa: N818 - reads as what it says
    """The plotting library is not installed."""

    def __init__(self) -> None:
        super().__init__("plots need matplotlib: pip install 'antiphon[eval]'; --json writes the figures without it")
