"""Labelled pairs out of CSV: the sheets that ``antiphon audit`` hands out, and lists of question pairs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from eval.data import DataMissing, Pair, pair_of
from eval.traffic.errors import TrafficError
from eval.traffic.problems import Problems
from eval.traffic.readers import question_columns
from eval.traffic.source import csv_rows
from fingerprint.language import language_of

__all__ = ["LABELS", "csv_pairs", "label_of"]

LABELS: Final = {
    **dict.fromkeys(("1", "1.0", "y", "yes", "true", "same", "equivalent", "duplicate", "是"), True),
    **dict.fromkeys(("0", "0.0", "n", "no", "false", "different", "not", "否"), False),
}
"""How a label may be written, in lower case."""

_COLUMNS: Final = ("equivalent", "is_duplicate", "label", "duplicate", "same", "score")


def label_of(text: str) -> bool | None:
    """Read a label; None where there is none yet. Raises `TrafficError` for what cannot be read as one."""
    low = text.strip().lower()
    if not low or low in ("?", "skip"):
        return None
    if low not in LABELS:
        raise TrafficError(f"{text[:30]!r} is no label; write 1 or 0")
    return LABELS[low]


def csv_pairs(path: Path) -> list[Pair]:
    """Return the labelled pairs of a file; rows without a label are left out.

    Raises `eval.data.DataMissing` where there is no such file, and `TrafficError` with its line for a row that cannot
    be used: a label that was misread would move a threshold.
    """
    if not path.is_file():
        raise DataMissing(f"no such file: {path}")
    problems = Problems(strict=True)
    found = []
    for line, row in csv_rows(path, problems):
        low = {name.lower(): value for name, value in row.items()}
        told = next((low[name] for name in _COLUMNS if name in low), None)
        if told is None:
            raise TrafficError(f"{path.name}: no column is called {' or '.join(_COLUMNS)}")
        try:
            equivalent = label_of(told)
            if equivalent is None:
                continue
            found.append(pair_of(_row(low, equivalent, f"{path.stem}-{line}"), domain=path.stem))
        except (TrafficError, KeyError, TypeError, ValueError) as error:
            raise TrafficError(f"{path.name}:{line}: {error}") from None
    return found


def _row(low: dict[str, str], equivalent: bool, name: str) -> dict[str, Any]:
    if low.get("a", "").startswith("[") and low.get("b", "").startswith("["):  # a sheet: whole conversations
        sides = [json.loads(low["a"]), json.loads(low["b"])]
    else:
        columns = question_columns(low)
        if columns is None:
            raise TrafficError("no two columns of questions (question1 and question2, a and b, …)")
        sides = [[{"role": "user", "content": low[column]}] for column in columns]
    asked = sides[1][-1]["content"]
    return {
        "id": low.get("id") or name,
        "lang": low.get("language") or low.get("lang") or language_of(asked) or "en",
        "category": low.get("stratum") or low.get("category") or "paraphrase",
        "a": {"messages": sides[0]},
        "b": {"messages": sides[1]},
        "equivalent": equivalent,
        "source": low.get("source") or name.rpartition("-")[0],
        "label_origin": "operator" if low.get("stratum") else "dataset",
    }
