"""Values with their units, written for people. "share" is 0 … 1 and shown in per cent."""

from __future__ import annotations

import math
from typing import Final, Literal, TypeAlias

__all__ = ["Unit", "Value", "interval_text", "written"]

Value: TypeAlias = float | int | str | bool | None
Unit: TypeAlias = Literal["", "share", "count", "seconds", "ms", "tokens", "score", "bytes"]

_TIMES: Final = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))
_BIG: Final = ((1e9, "G"), (1e6, "M"))
_BYTES: Final = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"))


def written(value: Value, unit: Unit = "") -> str:
    """Write a value with its unit; "–" where there is none (None, NaN)."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if unit == "share":
        return f"{_percent(value)} %"
    if unit == "seconds":
        return _duration(value)
    if unit == "ms":
        return f"{value:,.1f} ms" if value < 100 else f"{value:,.0f} ms"
    if unit == "score":
        return f"{value:.3f}"
    if unit == "bytes":
        return next((f"{value / size:,.1f} {name}" for size, name in _BYTES if value >= size), f"{value:,.0f} B")
    if unit == "tokens":
        return next((f"{value / size:,.2f} {name}" for size, name in _BIG if value >= size), f"{value:,.0f}")
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.3g}"


def interval_text(interval: tuple[float, float] | None, unit: Unit = "") -> str:
    """Write a 95 % interval, "" where there is none."""
    if interval is None:
        return ""
    low, high = interval
    if unit == "share":
        return f"{_percent(low)} to {_percent(high)} %"
    return f"{written(low, unit)} to {written(high, unit)}"


def _percent(share: float) -> str:
    percent = 100 * share
    # Close to the ends one decimal would round a difference away that matters (99.96 % is not 100 %).
    if 0 < percent < 0.1 or 99.9 < percent < 100:
        return f"{percent:.2f}"
    return f"{percent:.1f}"


def _duration(seconds: float) -> str:
    if seconds < 0.1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 10:
        return f"{seconds:.2g} s" if seconds < 1 else f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    for size, name in _TIMES:
        if seconds >= size:
            return f"{seconds / size:,.1f} {name}"
    return f"{seconds:.0f} s"
