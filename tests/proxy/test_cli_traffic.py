"""``antiphon audit`` and ``antiphon label`` as commands: what goes wrong is one line, before any work is done."""

from __future__ import annotations

import csv
import io
import json
import sys
import time
from pathlib import Path

import pytest

from eval.audit.sheet import COLUMNS, Row, write_sheet
from eval.data import turn_of
from proxy.cli import main


def said(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str = ""
) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.argv", ["antiphon", *arguments])
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


@pytest.mark.parametrize(
    ("text", "more", "why"),
    [
        (None, [], "there is no file"),
        ("", ["--format", "wat"], "no format is called wat; there are sglang, litellm"),
        ('{"level": "info"}\n', [], "none of its first rows looks like a log"),
        ("", ["--html", "/nowhere/at/all.html"], "there is no folder /nowhere/at"),
        ("", ["--set", "decision.answr=1"], "did you mean decision.answer?"),
    ],
)
def test_what_goes_wrong_is_one_line_before_any_work(
    text: str | None,
    more: list[str],
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = tmp_path / "log.jsonl"
    if text is not None:
        log.write_text(text, "utf-8")
    began = time.process_time()
    code, _, err = said(["audit", str(log), *more], monkeypatch, capsys)
    assert code == 2
    assert why in err
    assert err.count("\n") == 1
    assert "onnxruntime" not in sys.modules or time.process_time() - began < 5


def a_sheet(path: Path) -> None:
    def turn(text: str) -> dict[str, str]:
        return {"role": "user", "content": text}

    rows = [
        Row(f"{n}", stratum, turn_of([turn("How?")]), turn_of([turn(f"In what way {n}?")]), 0.9, 0.95, "served", 2.0)
        for n, stratum in enumerate(("served", "served", "near"))
    ]
    write_sheet(rows, path)


def test_labels_are_typed_counted_and_written_as_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sheet, pairs = tmp_path / "sheet.csv", tmp_path / "pairs.jsonl"
    a_sheet(sheet)
    code, out, _ = said(["label", str(sheet)], monkeypatch, capsys, typed="y\nn\n")
    assert code == 0
    assert "2 of 2" in out
    code, out, _ = said(["label", str(sheet), "--count", "--pairs", str(pairs)], monkeypatch, capsys)
    assert code == 0
    assert f"{pairs}: 2 pairs" in out
    assert [json.loads(line)["equivalent"] for line in pairs.read_text("utf-8").splitlines()] == [True, False]
    with sheet.open(encoding="utf-8-sig", newline="") as file:
        head, *rows = csv.reader(file)
    assert tuple(head) == COLUMNS
    assert [row[1] for row in rows] == ["1", "0", ""]


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n"])
def test_what_is_no_sheet_is_said_to_be_none(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sheet = tmp_path / "sheet.csv"
    if text:
        sheet.write_text(text, "utf-8")
    code, _, err = said(["label", str(sheet)], monkeypatch, capsys)
    assert code == 2
    assert "no sheet" in err or "there is no file" in err
