"""Plots as plain values, and how they are drawn: SVG whose colours are the page's, so that it reads in light and dark.

matplotlib draws with colours that stand for the page's variables (`_PAINTS`) and are replaced in its output. Text stays
text: it can be selected, found and read aloud.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from eval.report.errors import PlotsMissing

__all__ = ["Bars", "Curve", "Histogram", "Lines", "Mark", "Plot", "svg"]

_WIDTH: Final = 7.0  # inches of 100 units
_SERIES: Final = 6
# What matplotlib paints with → the page's variable. Odd values, so that none is met by chance.
_PAINTS: Final = {
    "ink": "#0a0b0c",
    "muted": "#5a5b5c",
    "line": "#c1c2c3",
    "paper": "#fafbfc",
    **{f"s{n}": f"#1{n}2{n}3{n}" for n in range(1, _SERIES + 1)},
}
_BEHIND: Final = {"facecolor": _PAINTS["paper"], "edgecolor": "none", "alpha": 0.75, "pad": 1.0}
_DASHES: Final = ("solid", (0, (5, 2)), (0, (2, 1.5)), (0, (6, 2, 1, 2)), (0, (1, 1)), (0, (8, 3)))


@dataclass(frozen=True, slots=True)
class Bars:
    """Horizontal bars, one a label, the first on top. ``low`` and ``high`` are 95 % intervals, ``n`` cases a bar.

    With ``percent`` the values are shares, 0 … 1, and the axis is in per cent.
    """

    key: str
    title: str
    labels: Sequence[str]
    values: Sequence[float]
    xlabel: str
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    n: Sequence[int] | None = None
    percent: bool = True
    note: str = ""

    def data(self) -> dict[str, Any]:
        """Return the figures for JSON."""
        return {"title": self.title, "x": self.xlabel, "rows": self.rows()[1]}

    def rows(self) -> tuple[list[str], list[list[Any]]]:
        """Return (column names, rows): the plot as a table."""
        head, columns = ["", self.xlabel], [list(self.labels), list(self.values)]
        for name, values in (("from", self.low), ("to", self.high), ("n", self.n)):
            if values is not None:
                head.append(name)
                columns.append(list(values))
        return head, [list(row) for row in zip(*columns, strict=True)]


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line (``y`` None) or a point, with its name."""

    x: float
    text: str
    y: float | None = None


@dataclass(frozen=True, slots=True)
class Histogram:
    """Distributions over the same bins: the share of each series that lies in a bin, NaN and infinities left out."""

    key: str
    title: str
    series: Mapping[str, Sequence[float]]
    xlabel: str
    bins: int = 30
    limits: tuple[float, float] | None = None
    marks: Sequence[Mark] = ()
    ylabel: str = "share of the series, %"
    note: str = ""

    def edges(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return the edges of the bins, shape (bins + 1,)."""
        values = np.concatenate([_finite(v) for v in self.series.values()] or [np.empty(0)])
        low, high = self.limits or ((float(values.min()), float(values.max())) if len(values) else (0.0, 1.0))
        return np.linspace(low, high if high > low else low + 1, self.bins + 1)

    def shares(self) -> dict[str, list[float]]:
        """Return the share of each series in each bin, 0 … 1; what lies beyond the ends counts into them."""
        edges = self.edges()
        out = {}
        for name, values in self.series.items():
            finite = np.clip(_finite(values), edges[0], edges[-1])
            counts, _ = np.histogram(finite, edges)
            out[name] = (counts / max(1, len(finite))).tolist()
        return out

    def data(self) -> dict[str, Any]:
        """Return the figures for JSON."""
        return {
            "title": self.title,
            "x": self.xlabel,
            "edges": self.edges().tolist(),
            "shares": self.shares(),
            "n": {name: len(_finite(values)) for name, values in self.series.items()},
            "marks": [{"x": m.x, "text": m.text} for m in self.marks],
        }

    def rows(self) -> tuple[list[str], list[list[Any]]]:
        """Return (column names, rows): the plot as a table."""
        edges, shares = self.edges(), self.shares()
        return ["from", "to", *shares], [
            [float(edges[i]), float(edges[i + 1]), *(values[i] for values in shares.values())] for i in range(self.bins)
        ]


@dataclass(frozen=True, slots=True)
class Curve:
    """One line; with ``low`` and ``high`` a band around it. ``n`` says from how many cases."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    n: int | None = None
    points: bool = False
    steps: bool = False


@dataclass(frozen=True, slots=True)
class Lines:
    """Curves over one pair of axes. ``diagonal`` draws what perfect (or blind) would be."""

    key: str
    title: str
    curves: Sequence[Curve]
    xlabel: str
    ylabel: str
    xlim: tuple[float, float] | None = None
    ylim: tuple[float, float] | None = None
    diagonal: str = ""
    marks: Sequence[Mark] = ()
    log_x: bool = False
    square: bool = False
    note: str = ""

    def data(self) -> dict[str, Any]:
        """Return the figures for JSON."""
        curves = {}
        for curve in self.curves:
            one: dict[str, Any] = {"x": list(map(float, curve.x)), "y": list(map(float, curve.y))}
            for name in ("low", "high"):
                if getattr(curve, name) is not None:
                    one[name] = list(map(float, getattr(curve, name)))
            if curve.n is not None:
                one["n"] = curve.n
            curves[curve.name] = one
        marks = [{"x": m.x, "y": m.y, "text": m.text} for m in self.marks]
        return {"title": self.title, "x": self.xlabel, "y": self.ylabel, "curves": curves, "marks": marks}

    def rows(self) -> tuple[list[str], list[list[Any]]]:
        """Return (column names, rows): the plot as a table."""
        return ["curve", self.xlabel, self.ylabel], [
            [curve.name, float(x), float(y)] for curve in self.curves for x, y in zip(curve.x, curve.y, strict=True)
        ]


Plot: TypeAlias = Bars | Histogram | Lines


def svg(plot: Plot, number: int = 0) -> str:
    """Draw a plot as an ``<svg>`` element. ``number`` keeps the ids of several on one page apart.

    Raises `PlotsMissing`.
    """
    try:
        import matplotlib
    except ImportError:
        raise PlotsMissing from None
    from cycler import cycler
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    style: Any = {
        "text.parse_math": False,
        "axes.prop_cycle": cycler(color=[_paint(n) for n in range(_SERIES)]),
        "lines.color": _PAINTS["ink"],
        "patch.facecolor": _PAINTS["s1"],
        "svg.fonttype": "none",
        "svg.hashsalt": f"antiphon-{number}",
        "font.size": 10,
        "axes.edgecolor": _PAINTS["line"],
        "axes.labelcolor": _PAINTS["ink"],
        "axes.linewidth": 0.8,
        "xtick.color": _PAINTS["muted"],
        "ytick.color": _PAINTS["muted"],
        "text.color": _PAINTS["ink"],
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "grid.color": _PAINTS["line"],
        "grid.linewidth": 0.5,
        "legend.frameon": False,
        "figure.facecolor": "none",
        "axes.facecolor": "none",
    }
    with matplotlib.rc_context(style):
        height = 1.1 + 0.34 * len(plot.labels) if isinstance(plot, Bars) else 3.6
        width = _WIDTH
        if isinstance(plot, Lines) and plot.square:
            width, height = 5.2, 4.6
        figure = Figure(figsize=(width, height), dpi=72, layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        if isinstance(plot, Bars):
            _bars(plot, axes)
        elif isinstance(plot, Histogram):
            _histogram(plot, axes)
        else:
            _lines(plot, axes)
        out = io.StringIO()
        with warnings.catch_warnings():
            # Widths are measured in a font without CJK; the reader's browser has its own fonts.
            warnings.filterwarnings("ignore", message=r"Glyph \d+ .*missing from font")
            figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    return _ours(out.getvalue(), plot.title)


def _ours(text: str, title: str) -> str:
    """Make matplotlib's document an element of our page: the page's colours and font, scaled to the page's width."""
    from html import escape

    start = text.index("<svg")
    body = text[start:]
    opening, rest = body[: body.index(">") + 1], body[body.index(">") + 1 :]
    box = re.search(r'viewBox="([^"]+)"', opening)
    view = box[1] if box else "0 0 504 260"
    width = float(view.split()[2])
    rest = re.sub(r"<metadata>.*?</metadata>", "", rest, count=1, flags=re.DOTALL)
    for name, paint in _PAINTS.items():
        rest = rest.replace(paint, f"var(--{name})")
    rest = re.sub(r"font-family: [^;\"]*", "font-family: var(--font)", rest)
    rest = re.sub(r"font: ([\d. a-z]*?)\s*'[^;\"]*", r"font: \1 var(--font)", rest)
    label = escape(title, quote=True)
    return (
        f'<svg viewBox="{view}" style="max-width:{width * 1.35:.0f}px" role="img" aria-label="{label}"'
        ' xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'
        f"{rest.strip()}"
    )


def _paint(number: int) -> str:
    return _PAINTS[f"s{number % _SERIES + 1}"]


def _finite(values: Sequence[float]) -> np.ndarray[Any, np.dtype[np.float64]]:
    array = np.asarray(list(values), np.float64)
    return array[np.isfinite(array)]


def _bars(plot: Bars, axes: Any) -> None:
    places = np.arange(len(plot.labels))[::-1]
    scale = 100.0 if plot.percent else 1.0
    values = scale * np.asarray(plot.values, np.float64)
    axes.barh(places, values, height=0.62, color=_paint(0))
    ends = values
    if plot.low is not None and plot.high is not None:
        low, high = scale * np.asarray(plot.low, np.float64), scale * np.asarray(plot.high, np.float64)
        spread = np.vstack([np.maximum(0, values - low), np.maximum(0, high - values)])
        axes.errorbar(values, places, xerr=spread, fmt="none", ecolor=_PAINTS["ink"], elinewidth=1.1, capsize=3)
        ends = np.maximum(values, high)
    furthest = float(np.nanmax(ends)) if len(ends) else 1.0
    for place, value, end, number in zip(
        places, values, ends, list(plot.n) if plot.n is not None else [None] * len(values), strict=True
    ):
        said = f"{value:.1f} %" if plot.percent else f"{value:,.4g}"
        if number is not None:
            said += f"  (n = {number:,})"
        axes.text(end + 0.012 * (furthest or 1), place, said, va="center", ha="left", color=_PAINTS["ink"], fontsize=9)
    axes.set_yticks(places, [_short(label) for label in plot.labels])
    axes.tick_params(axis="y", length=0, labelcolor=_PAINTS["ink"])
    axes.set_xlim(0, (furthest or 1) * 1.3)
    axes.set_ylim(-0.6, max(len(plot.labels) - 0.4, 0.6))
    axes.set_xlabel(plot.xlabel)
    axes.grid(axis="x")
    axes.spines["left"].set_visible(False)


def _histogram(plot: Histogram, axes: Any) -> None:
    edges = plot.edges()
    for number, (name, shares) in enumerate(plot.shares().items()):
        label = f"{name} (n = {len(_finite(plot.series[name])):,})"
        heights = 100 * np.asarray(shares)
        axes.stairs(heights, edges, fill=True, color=_paint(number), alpha=0.22)
        axes.stairs(
            heights, edges, color=_paint(number), linewidth=1.6, linestyle=_DASHES[number % _SERIES], label=label
        )
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(0, max(axes.get_ylim()[1], 1e-9) * (1.0 + 0.09 * len(plot.marks)))  # room for the marks' names
    axes.set_xlabel(plot.xlabel)
    axes.set_ylabel(plot.ylabel)
    axes.grid(axis="y")
    _vertical(plot.marks, axes)
    _legend(axes)


def _lines(plot: Lines, axes: Any) -> None:
    if plot.diagonal:
        low = max((plot.xlim or (0, 1))[0], (plot.ylim or (0, 1))[0])
        high = min((plot.xlim or (0, 1))[1], (plot.ylim or (0, 1))[1])
        axes.plot(
            [low, high], [low, high], color=_PAINTS["muted"], linewidth=1, linestyle=(0, (2, 2)), label=plot.diagonal
        )
    for number, curve in enumerate(plot.curves):
        label = curve.name if curve.n is None else f"{curve.name} (n = {curve.n:,})"
        steps = {"drawstyle": "steps-post"} if curve.steps else {}
        if curve.low is not None and curve.high is not None:
            step = "post" if curve.steps else None
            axes.fill_between(curve.x, curve.low, curve.high, color=_paint(number), alpha=0.18, linewidth=0, step=step)
        axes.plot(
            curve.x,
            curve.y,
            color=_paint(number),
            linewidth=1.8,
            linestyle=_DASHES[number % _SERIES],
            marker="o" if curve.points else None,
            markersize=4,
            label=label,
            **steps,
        )
    if plot.log_x:
        from matplotlib.ticker import NullFormatter

        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
    if plot.xlim is not None:
        axes.set_xlim(*plot.xlim)
    if plot.ylim is not None:
        axes.set_ylim(*plot.ylim)
    axes.set_xlabel(plot.xlabel)
    axes.set_ylabel(plot.ylabel)
    axes.grid()
    _vertical([mark for mark in plot.marks if mark.y is None], axes)
    for mark in plot.marks:
        if mark.y is not None:
            axes.plot([mark.x], [mark.y], marker="o", markersize=7, color=_PAINTS["ink"], markerfacecolor="none")
            axes.annotate(
                mark.text, (mark.x, mark.y), xytext=(8, -12), textcoords="offset points", fontsize=9, bbox=_BEHIND
            )
    _legend(axes)


def _vertical(marks: Sequence[Mark], axes: Any) -> None:
    for number, mark in enumerate(marks):
        if not math.isfinite(mark.x):
            continue
        axes.axvline(mark.x, color=_PAINTS["ink"], linewidth=1, linestyle=(0, (4, 2)))
        left = mark.x > sum(axes.get_xlim()) / 2
        axes.annotate(
            mark.text,
            (mark.x, 1),
            xycoords=("data", "axes fraction"),
            xytext=(-4 if left else 4, -4 - 13 * number),
            textcoords="offset points",
            ha="right" if left else "left",
            va="top",
            fontsize=9,
            bbox=_BEHIND,
        )


def _legend(axes: Any) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) > 1 or any("n =" in label for label in labels):
        axes.legend(
            handles,
            labels,
            fontsize=9,
            loc="lower left",
            bbox_to_anchor=(0, 1.0),
            ncols=min(3, len(labels)),
            borderaxespad=0.2,
        )


def _short(label: str) -> str:
    return label if len(label) <= 32 else label[:31] + "…"
