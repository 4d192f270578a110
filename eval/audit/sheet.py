"""The sheet: pairs drawn from the log, for a person to label; what ``antiphon calibrate`` then learns from.

Drawn by stratum, each at random without replacement, with the seed told: what would be served, what the decision is not
sure of, what a guard vetoed, and what is merely near. The weight of a row says how many turns of the log it stands for.
"""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from eval.audit.spool import Spool
from eval.audit.walk import Outcome
from eval.private import write_private
from eval.traffic.errors import TrafficError
from eval.traffic.pairs import label_of
from eval.traffic.problems import Problems
from eval.traffic.source import csv_rows, opened
from fingerprint.conversation import Message, Turn
from fingerprint.language import language_of

__all__ = ["COLUMNS", "STRATA", "Row", "Sampler", "read_sheet", "text_of", "write_sheet"]

STRATA: Final[Mapping[str, float]] = {"served": 0.4, "not sure": 0.3, "vetoed": 0.15, "near": 0.15}
"""Share of the sheet that each stratum gets."""

COLUMNS: Final = (
    "id", "equivalent", "stratum", "stored", "asked", "similarity", "confidence", "reason", "language", "weight",
    "note", "a", "b",
)  # fmt: skip

_NEAR: Final = 0.6  # cosine of the messages from which a refused candidate is worth a look
_LONGEST_HEADER: Final = 4096  # bytes
_SHOWN: Final = 4  # messages of a history shown in the readable columns


@dataclass(slots=True)
class Row:
    """One pair. ``stored`` was asked first; ``equivalent`` is None until somebody has said."""

    id: str
    stratum: str
    stored: Turn
    asked: Turn
    similarity: float
    confidence: float
    reason: str
    weight: float
    equivalent: bool | None = None
    note: str = ""

    @property
    def language(self) -> str:
        """Language of the asked message, "" where unknown."""
        return language_of(self.asked.message.text) or ""


class Sampler:
    """Draws outcomes, a reservoir a stratum (Vitter 1985, algorithm R); linear, and the log is seen once."""

    def __init__(self, rows: int, seed: int = 0) -> None:
        """``rows`` in all, at most."""
        self._room = {name: int(rows * share) for name, share in STRATA.items()}
        self._room["served"] += rows - sum(self._room.values())
        self._drawn: dict[str, list[Outcome]] = {name: [] for name in STRATA}
        self.seen = dict.fromkeys(STRATA, 0)
        self._random = random.Random(seed)

    def add(self, outcome: Outcome) -> None:
        """Take one outcome into account."""
        stratum = _stratum(outcome)
        if stratum is None or outcome.earlier is None:
            return
        self.seen[stratum] += 1
        drawn, room = self._drawn[stratum], self._room[stratum]
        if len(drawn) < room:
            drawn.append(outcome)
        elif room and (place := self._random.randrange(self.seen[stratum])) < room:
            drawn[place] = outcome

    def rows(self, spool: Spool) -> list[Row]:
        """Return the pairs drawn, in an order that does not show what was decided."""
        rows = []
        for stratum, drawn in self._drawn.items():
            for one in drawn:
                assert one.earlier is not None
                rows.append(
                    Row(
                        id=f"{one.number}-{one.earlier}",
                        stratum=stratum,
                        stored=spool.turn(one.earlier).turn,
                        asked=one.logged.turn,
                        similarity=one.similarity or 0.0,
                        confidence=one.confidence,
                        reason=one.reason,
                        weight=self.seen[stratum] / len(drawn),
                    )
                )
        rows.sort(key=lambda row: row.id)
        self._random.shuffle(rows)
        return rows


def _stratum(outcome: Outcome) -> str | None:
    if outcome.kind in ("reworded", "in context"):
        return "served"
    if outcome.kind == "not sure":
        return "not sure"
    if outcome.kind != "new" or outcome.similarity is None or outcome.similarity < _NEAR:
        return None
    return "vetoed" if outcome.vetoes else "near"


def text_of(turn: Turn) -> str:
    """A turn for people: the last messages, who said what."""
    history = turn.history[-_SHOWN:]
    lines = ["…"] if len(turn.history) > len(history) else []
    return "\n".join([*lines, *(f"{m.role}: {m.text}" for m in (*history, turn.message))])


def write_sheet(rows: Iterable[Row], path: Path) -> None:
    """Write a sheet as CSV, UTF-8 with a byte order mark for spreadsheets; the file is replaced at once."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow(
            [
                row.id,
                "" if row.equivalent is None else int(row.equivalent),
                row.stratum,
                _harmless(text_of(row.stored)),
                _harmless(text_of(row.asked)),
                f"{row.similarity:.4f}",
                f"{row.confidence:.4f}",
                row.reason,
                row.language,
                f"{row.weight:.4f}",
                _harmless(row.note),
                _messages(row.stored),
                _messages(row.asked),
            ]
        )
    aside = path.with_name(f".{path.name}.new")
    write_private(aside, "\ufeff" + out.getvalue())
    aside.replace(path)


def read_sheet(path: Path) -> list[Row]:
    """Read a sheet, labelled or not. Raises `TrafficError` with the line where it cannot be read."""
    with opened(path) as file:
        header = file.readline(_LONGEST_HEADER).decode("utf-8", "replace")
    if header.strip() and "equivalent" not in header:
        raise TrafficError(f"{path.name}: this is no sheet of an audit: there is no column 'equivalent'")
    rows = []
    for line, row in csv_rows(path, Problems(strict=True)):
        try:
            rows.append(
                Row(
                    id=row["id"],
                    stratum=row["stratum"],
                    stored=_turn(row["a"]),
                    asked=_turn(row["b"]),
                    similarity=float(row["similarity"]),
                    confidence=float(row["confidence"]),
                    reason=row["reason"],
                    weight=float(row["weight"]),
                    equivalent=label_of(row["equivalent"]),
                    note=row["note"].lstrip("'"),
                )
            )
        except KeyError as error:
            raise TrafficError(f"{path.name}: this is no sheet of an audit: there is no column {error}") from None
        except (TrafficError, ValueError, TypeError) as error:
            raise TrafficError(f"{path.name}:{line}: {error}") from None
    return rows


def _harmless(text: str) -> str:
    """A cell that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _messages(turn: Turn) -> str:
    return json.dumps([{"role": m.role, "content": m.text} for m in turn.messages], ensure_ascii=False)


def _turn(text: str) -> Turn:
    told: Sequence[Mapping[str, Any]] = json.loads(text)
    messages = [Message(str(m["role"]), str(m["content"])) for m in told]
    lead = 0
    while lead < len(messages) - 1 and messages[lead].role in ("system", "developer"):
        lead += 1
    return Turn(tuple(messages[:lead]), tuple(messages[lead:-1]), messages[-1])
