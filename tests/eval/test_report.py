"""Reports: one page that needs nothing else, a JSON file that says the same, and a summary in the terminal."""

from __future__ import annotations

import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from eval.report import Bars, Column, Curve, Histogram, Lines, Mark, Report
from eval.report.plots import svg
from eval.report.values import interval_text, written

NASTY = '<script>alert(1)</script> & "quotes" $title $$ [bold]x[/bold] 对比'

BARS = Bars("b", NASTY, ["a", NASTY], [0.5, 0.1], "share of turns, %", [0.4, 0.0], [0.6, 0.3], [100, 4])
HISTOGRAM = Histogram(
    "h", "Confidence", {"equivalent": [0.9, 0.95, float("nan")], "different": [0.1]}, "confidence", limits=(0, 1),
    marks=[Mark(0.94, "answer 0.94")],
)  # fmt: skip
LINES = Lines("l", "ROC", [Curve("en", [0, 0.5, 1], [0, 0.8, 1], [0, 0.7, 1], [0, 0.9, 1], n=50)], "wrong", "right")


def full() -> Report:
    report = Report(
        "demo", f"Title {NASTY}", command="antiphon audit log.jsonl", facts={"thresholds": {"answer": 0.94}}
    )
    part = report.section("Repeats", NASTY)
    part.words(NASTY, headline="Worth it", tone="good")
    part.figure("repeats", "Turns that repeat", 0.312, unit="share", interval=(0.28, 0.34), n=2191)
    part.figure("none", "Not known", None)
    part.table("ages", "Ages", [Column("age", text=True), Column("turns", "count")], [[NASTY, 12345], ["week", 3]])
    for plot in (BARS, HISTOGRAM, LINES):
        part.plot(plot)
    part.example("pair 1", [("stored", NASTY), ("asked", "Rome?")], facts=[NASTY], tone="bad")
    return report


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_the_page_asks_nobody_for_anything_and_runs_nothing(tmp_path: Path) -> None:
    full().write(html=tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text("utf-8")
    page = Page(text)
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "link", "img", "iframe", "object", "image", "foreignobject"}
    for tag, attributes in page.tags:
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in ("href", "src", "xlink:href", "action"):
                assert value is not None
                assert value.startswith("#"), (tag, value)
    outside = re.findall(r"(?:https?:)?//[\w.]+", text)
    assert {url for url in outside if "w3.org" not in url} == set()
    assert "url(http" not in text
    assert "@import" not in text


def test_what_is_shown_is_never_markup(tmp_path: Path) -> None:
    full().write(html=tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text("utf-8")
    assert "<script>" not in text
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 8
    out = io.StringIO()
    full().show(Console(file=out, width=300))
    assert NASTY in out.getvalue()


def test_json_and_page_say_the_same(tmp_path: Path) -> None:
    report = full()
    report.write(html=tmp_path / "r.html", json=tmp_path / "r.json")
    told = json.loads((tmp_path / "r.json").read_text("utf-8"))
    assert (told["kind"], told["version"], told["thresholds"]) == ("demo", 1, {"answer": 0.94})
    part = told["sections"]["repeats"]
    assert part["figures"]["repeats"] == {
        "name": "Turns that repeat", "value": 0.312, "unit": "share", "ci": [0.28, 0.34], "n": 2191
    }  # fmt: skip
    assert part["tables"]["ages"]["rows"][1] == {"age": "week", "turns": 3}
    assert part["plots"]["b"]["rows"][0] == ["a", 0.5, 0.4, 0.6, 100]
    assert part["plots"]["h"]["n"] == {"equivalent": 2, "different": 1}
    assert sum(part["plots"]["h"]["shares"]["equivalent"]) == pytest.approx(1)
    text = (tmp_path / "r.html").read_text("utf-8")
    for shown in ("31.2 %", "28.0 to 34.0 %", "2,191", "12,345"):
        assert shown in text


@pytest.mark.parametrize("plot", [BARS, HISTOGRAM, LINES], ids=["bars", "histogram", "lines"])
def test_a_plot_is_drawn_in_the_pages_colours_with_its_axes_named(plot: Bars | Histogram | Lines) -> None:
    drawn = svg(plot)
    assert re.findall(r"(?<!&)#[0-9a-fA-F]{6}\b", drawn) == [], "a colour of its own would not read on a dark page"
    assert "var(--s1)" in drawn
    assert "DejaVu" not in drawn
    words = " ".join(re.findall(r"<text[^>]*>([^<]*)", drawn))
    assert plot.xlabel in words
    if not isinstance(plot, Bars):
        assert plot.ylabel in words
    assert "n = " in words
    assert "aria-label" in drawn


def test_the_same_report_is_drawn_alike_twice() -> None:
    assert svg(LINES, 3) == svg(LINES, 3)


def test_the_page_has_every_colour_in_light_and_dark(tmp_path: Path) -> None:
    full().write(html=tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text("utf-8")
    light, dark = text.split("prefers-color-scheme: dark", 1)
    for name in set(re.findall(r"var\(--([\w]+)\)", text)) - {"font"}:
        assert f"--{name}:" in light
        assert f"--{name}:" in dark.split("</style>")[0]


@pytest.mark.parametrize(
    "plot",
    [
        Bars("b", "none", [], [], "x"),
        Bars("b", "one", ["a"], [0.0], "x"),
        Histogram("h", "none", {}, "x"),
        Histogram("h", "same", {"a": [0.5, 0.5], "b": []}, "x"),
        Lines("l", "none", [], "x", "y"),
        Lines("l", "one", [Curve("a", [1], [1])], "x", "y", log_x=True),
    ],
    ids=lambda plot: f"{plot.key} {plot.title}",
)
def test_a_plot_of_little_or_nothing_is_drawn_too(plot: Bars | Histogram | Lines) -> None:
    assert svg(plot).startswith("<svg")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.3123, "share", "31.2 %"),
        (0.9996, "share", "99.96 %"),
        (1.0, "share", "100.0 %"),
        (12345, "count", "12,345"),
        (1_234_567, "tokens", "1.23 M"),
        (0.002, "seconds", "2 ms"),
        (12_000.0, "seconds", "3.3 h"),
        (float("nan"), "share", "–"),
        (None, "", "–"),
    ],
)
def test_values_are_written_for_people(value: float | None, unit: str, text: str) -> None:
    assert written(value, unit) == text  # type: ignore[arg-type]


@given(st.one_of(st.none(), st.booleans(), st.text(), st.integers(), st.floats()), st.sampled_from(
    ["", "share", "count", "seconds", "ms", "tokens", "score", "bytes"]))  # fmt: skip
def test_any_value_can_be_written(value: float | str | None, unit: str) -> None:
    assert isinstance(written(value, unit), str)  # type: ignore[arg-type]


def test_intervals_name_their_unit_once() -> None:
    assert interval_text((0.1, 0.25), "share") == "10.0 to 25.0 %"
    assert interval_text(None) == ""


def test_a_row_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="1 cells"):
        Report("x", "x").section("s").table("t", "t", [Column("a")], [[1, 2]])
