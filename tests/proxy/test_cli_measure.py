"""``antiphon calibrate``, ``shadow report`` and ``replay``: what makes no sense is refused before any work is done."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from eval.audit.sheet import Row, write_sheet
from eval.data import turn_of
from eval.private import write_private
from tests.proxy.test_cli import antiphon, one_line

FILE = '{"messages": [{"role": "user", "content": "hello"}], "answer": "hi"}\n'


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (
            ["calibrate", "FOLDER"],
            "/folder is a folder; name files of labelled pairs (JSON Lines, or a sheet as CSV), or lo",
        ),
        (["calibrate", "FOLDER", "--from-shadow"], "/folder is a folder; name files of observations"),
        (["calibrate", "/dev/null"], "/dev/null is no regular file"),
        (["calibrate", "FILE", "a" * 300], "a cannot be read: File name too long"),
        (["calibrate", "/nowhere"], "there is no file /nowhere"),
        *(
            ([*command.split(), "/proc/self/mem"], "/proc/self/mem cannot be read: Input/output error")
            for command in (
                "audit",
                "replay",
                "label",
                "shadow report",
                "calibrate",
                "calibrate --from-shadow",
                "eval pairs",
                "explain",
            )
        ),
        (["eval", "pairs", "FOLDER"], "/folder is a folder; name files of pairs (JSON Lines)"),
        (["eval", "pairs", "FILE", "--json", "FILE"], "would be overwritten: it is read"),
        (["label", "FOLDER"], "/folder is a folder; name the files in it"),
        (["shadow", "report", "FOLDER"], "/folder is a folder; name the files in it"),
        (["replay", "FOLDER"], "/folder is a folder; name the files in it"),
        (["audit", "FOLDER"], "/folder is a folder; name the files in it"),
        (["audit", "a" * 300], "a cannot be read: File name too long"),
        (["audit", "FILE", "--html", "FOLDER"], "/folder is a folder; name a file to write"),
        (["calibrate", "FILE", "--out", "FOLDER"], "/folder is a folder; name a file to write"),
        (["config", "--config", "FOLDER"], "/folder is a folder; name a configuration file"),
        (["calibrate", "FILE", "--out", "/nowhere/at/all.toml"], "there is no folder /nowhere/at"),
        (["calibrate", "FILE", "--html", "/nowhere/all.html"], "there is no folder /nowhere"),
        (["calibrate", "FILE", "--precision", "0.98", "--budget", "0.01"], "name one"),
        (["calibrate", "FILE", "--windows", "a"], "--windows a: numbers of rounds from 1"),
        (["calibrate", "FILE", "--windows", "0,3"], "--windows 0,3: numbers of rounds from 1"),
        (["calibrate", "FILE", "--windows", "3,-5"], "numbers of rounds from 1"),
        (["calibrate", "FILE", "--from-shadow"], "none of 1 rows can be used; the first: log.jsonl:1"),
        (["shadow", "report", "FILE"], "none of 1 rows can be used; the first: log.jsonl:1"),
        (["shadow", "report", "FILE", "--json", "/nowhere/all.json"], "there is no folder /nowhere"),
        (["replay", "FILE", "--speed", "2"], "--cached URL and --plain URL"),
        (["replay", "FILE", "--model", "m"], "--cached URL and --plain URL"),
        (["replay", "FILE", "--fresh"], "name it with --work"),
        (["replay", "FILE", "--work", "FILE"], "/log.jsonl is no folder; name one with --work"),
        (["replay", "FILE", "--fresh", "--work", "ITS FOLDER"], " holds files of something else: it is left alone"),
        (["replay", "FILE", "--html", "/nowhere/all.html"], "there is no folder /nowhere"),
        (["label", "FILE", "--count"], "this is no sheet of an audit"),
        (["label", "FILE", "--pairs", "FILE"], "would be overwritten: it is read"),
        (["audit", "FILE", "--html", "FILE"], "would be overwritten: it is read"),
        (["audit", "FILE", "--sheet", "FILE"], "would be overwritten: it is read"),
        (["audit", "FILE", "--json", "/tmp/kept", "--keep", "/tmp/kept"], "would be overwritten: it is read"),
        (["audit", "FILE", "--html", "/tmp/one.html", "--json", "/tmp/one.html"], "is named twice"),
        (["calibrate", "FILE", "--json", "FILE"], "would be overwritten: it is read"),
        (["replay", "FILE", "--json", "FILE"], "would be overwritten: it is read"),
        (["shadow", "report", "FILE", "--json", "FILE"], "would be overwritten: it is read"),
    ],
)
def test_what_cannot_work_is_one_line(arguments: list[str], why: str, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(FILE)
    (tmp_path / "folder").mkdir()
    places = {"FILE": str(log), "FOLDER": str(tmp_path / "folder"), "ITS FOLDER": str(tmp_path)}
    done = antiphon(tmp_path / "home", *(places.get(word, word) for word in arguments))
    assert why in one_line(done, 2)


def test_an_audit_does_not_overwrite_labels(tmp_path: Path) -> None:
    log, sheet = tmp_path / "log.jsonl", tmp_path / "pairs.csv"
    log.write_text(FILE)
    turn = turn_of([{"role": "user", "content": "hello"}])
    row = Row(id="1-0", stratum="near", stored=turn, asked=turn, similarity=0.9, confidence=0.5, reason="", weight=1.0)
    row.equivalent = True
    write_sheet([row], sheet)
    before = sheet.read_bytes()
    done = antiphon(tmp_path / "home", "audit", str(log), "--sheet", str(sheet))
    assert "holds labels, which would be lost" in one_line(done, 2)
    assert sheet.read_bytes() == before


def test_hours_of_the_future_are_refused(tmp_path: Path) -> None:
    done = antiphon(tmp_path / "home", "shadow", "report", "--since-hours", "-1")
    assert done.returncode == 2
    assert "--since-hours" in done.stderr


def test_a_new_file_with_users_words_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        new, shared = tmp_path / "new.html", tmp_path / "shared.html"
        shared.touch(mode=0o644)
        for path in (new, shared):
            write_private(path, "said \ud800")
    finally:
        os.umask(before)
    assert stat.S_IMODE(new.stat().st_mode) == 0o600
    assert stat.S_IMODE(shared.stat().st_mode) == 0o644  # somebody has decided otherwise
    assert new.read_bytes() == b"said ?"
