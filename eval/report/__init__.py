"""Reports for people: one self-contained HTML file, the same figures as JSON, and a summary in the terminal.

A `Report` is a tree of plain values: sections of figures, tables, plots, examples and words. Nothing in it knows how it
is shown, so the page, the JSON file and the terminal cannot disagree.

    report = Report(kind="audit", title="Is it worth it?", command="antiphon audit log.jsonl")
    part = report.section("Repeats", "How many turns had been answered before.")
    part.figure("repeats", "Turns with an earlier equivalent", 0.31, unit="share", interval=(0.28, 0.34), n=2191)
    part.plot(Bars("By intent", labels, values, low=low, high=high, n=n, xlabel="share of turns, %"))
    report.write(html=Path("audit.html"), json=Path("audit.json"))
    report.show(Console())
"""

from eval.report.document import Column, Example, Figure, Report, Section, Table, Words
from eval.report.plots import Bars, Curve, Histogram, Lines, Mark, Plot

__all__ = [
    "Bars",
    "Column",
    "Curve",
    "Example",
    "Figure",
    "Histogram",
    "Lines",
    "Mark",
    "Plot",
    "Report",
    "Section",
    "Table",
    "Words",
]
