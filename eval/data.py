"""The labelled pairs to train and measure on: conversation families and public pair files.

Nothing is bundled. The data lie in ``../shared/data`` beside the repository (or wherever ``ANTIPHON_DATA`` points);
its README says what each file is, its licence and its known label noise.

Folds are made of whole *domains*: a family belongs to the domain it was written for, a public file is a domain of its
own. Pairs of one domain never stand on both sides of a split, so a figure taken on a fold says something about domains
the model has not seen.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from fingerprint.conversation import Message, Turn

__all__ = [
    "FOLDS",
    "DataMissing",
    "Pair",
    "data_root",
    "expand_families",
    "families",
    "fold_of",
    "load_all",
    "load_families",
    "load_pairs",
    "pair_of",
    "public_pairs",
    "read_pairs",
    "turn_of",
]

FOLDS = 5


class DataMissing(FileNotFoundError):  # noqa: N818 - reads as the sentence it is
    """The data folder, or a file of it, is not on this machine."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two conversations and whether one answer could serve both.

    ``domain`` is what a split must not cut: a family's domain, or the stem of a public file. ``family`` is the id of
    the
    family, or of the pair itself for public data. ``label_origin`` is ``dataset``, ``resolved``, ``answers`` or
    ``derived`` (a pairing rule, noisier).
    """

    id: str
    lang: str
    category: str
    subtype: str
    a: Turn
    b: Turn
    equivalent: bool
    source: str
    domain: str
    family: str
    label_origin: str = "dataset"

    @property
    def fold(self) -> int:
        """The fold of the domain, 0 … ``FOLDS`` - 1."""
        return fold_of(self.domain)

    @property
    def is_family(self) -> bool:
        """Whether the pair was made from a conversation family."""
        return self.source.startswith("families/")


def data_root() -> Path:
    """The data folder. Raises ``DataMissing`` where there is none."""
    named = os.environ.get("ANTIPHON_DATA")
    root = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    if not root.is_dir():
        raise DataMissing(f"no data folder at {root}; set ANTIPHON_DATA")
    return root


def fold_of(domain: str) -> int:
    """Fold of a domain or source, 0 … ``FOLDS`` - 1: a hash, so it never changes when domains are added."""
    return int.from_bytes(hashlib.blake2b(domain.encode(), digest_size=8).digest(), "big") % FOLDS


def turn_of(messages: Sequence[dict[str, Any]]) -> Turn:
    """A ``Turn`` from the plain messages of the pair format (roles and string contents only)."""
    parts = [Message(role=m["role"], text=m["content"]) for m in messages]
    lead = 0
    while lead < len(parts) - 1 and parts[lead].role in ("system", "developer"):
        lead += 1
    return Turn(system=tuple(parts[:lead]), history=tuple(parts[lead:-1]), message=parts[-1])


def _messages(row: dict[str, Any], side: str) -> Sequence[dict[str, Any]]:
    if not isinstance(row[side], dict):
        raise ValueError(f'{side} must be {{"messages": [...]}}')
    messages: Sequence[dict[str, Any]] = row[side]["messages"]
    return messages


def pair_of(row: dict[str, Any], *, domain: str, family: str | None = None) -> Pair:
    """One row of the pair format (DESIGN §10). Raises ``KeyError`` where a required field is missing, ``ValueError``
    where a conversation is none."""
    return Pair(
        id=row["id"],
        lang=row["lang"],
        category=row["category"],
        subtype=row.get("subtype", row["category"]),
        a=turn_of(_messages(row, "a")),
        b=turn_of(_messages(row, "b")),
        equivalent=bool(row["equivalent"]),
        source=row.get("source", domain),
        domain=domain,
        family=family or row["id"],
        label_origin=row.get("label_origin", "dataset"),
    )


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        raise DataMissing(f"no such file: {path}")
    from eval.traffic.source import opened

    with opened(path) as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def read_pairs(path: Path) -> list[Pair]:
    """All pairs of a file in the pair format, or of a CSV file (`eval.traffic.pairs`).

    Rows made from families keep their families' domains.
    """
    if path.suffix.lower() in (".csv", ".tsv"):
        from eval.traffic.pairs import csv_pairs

        return csv_pairs(path)
    out = []
    for row in _rows(path):
        source = str(row.get("source", ""))
        domain = source.removeprefix("families/") if source.startswith("families/") else path.stem
        out.append(pair_of(row, domain=domain))
    return out


@functools.cache
def _expander() -> ModuleType:
    """``expand.py`` of the data folder: the one definition of how families become pairs."""
    path = data_root() / "expand.py"
    spec = importlib.util.spec_from_file_location("antiphon_expand", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise DataMissing(f"no expander at {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def families(stems: Iterable[str] | None = None) -> list[dict[str, Any]]:
    """The conversation families as they are written, every file or those named (without ``.jsonl``)."""
    folder = data_root() / "families"
    paths = sorted(folder.glob("*.jsonl")) if stems is None else [folder / f"{s}.jsonl" for s in stems]
    return [row for path in paths for row in _rows(path)]


def expand_families(rows: Iterable[dict[str, Any]], *, cross: int = 2) -> list[Pair]:
    """Labelled pairs of families, by the rules of ``expand.py``; ``cross`` is its ``--cross``."""
    return [
        pair_of(pair, domain=row["domain"], family=row["id"]) for row in rows for pair in _expander().pairs(row, cross)
    ]


def load_families(stems: Iterable[str] | None = None, *, cross: int = 2) -> list[Pair]:
    """All pairs made from the families (31,248 with ``cross=2``)."""
    return expand_families(families(stems), cross=cross)


def public_pairs() -> list[str]:
    """Stems of the public pair files."""
    return sorted(path.stem for path in (data_root() / "pairs").glob("*.jsonl"))


def load_pairs(stems: Iterable[str] | None = None) -> list[Pair]:
    """Pairs of the public files, every one or those named (without ``.jsonl``)."""
    folder = data_root() / "pairs"
    return [
        pair for stem in (public_pairs() if stems is None else stems) for pair in read_pairs(folder / f"{stem}.jsonl")
    ]


def load_all(*, cross: int = 2) -> list[Pair]:
    """Families first, then the public files; the order of ids never changes."""
    return load_families(cross=cross) + load_pairs()
