"""Observations out of the files that shadow mode and replay write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from eval.calibration.samples import Sample
from eval.traffic import BadRow, Problems
from eval.traffic.source import lines, name_of
from store.shadow import Observation, outcome_of

__all__ = ["read_observations", "samples_of"]

_DECODER = msgspec.json.Decoder(Observation)


def read_observations(paths: Sequence[Path | str], problems: Problems) -> Iterator[Observation]:
    """Yield what the files hold, one at a time; bad rows go to ``problems``.

    Raises `eval.traffic.TrafficError` where a file cannot be read or has only bad rows, or (``strict``) for the first
    bad row.
    """
    for path in paths:
        for number, line in lines(path, problems):
            problems.rows += 1
            try:
                yield _DECODER.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                problems.add(BadRow(f"not an observation: {error}", name_of(path), number))
    problems.none_read()


def samples_of(seen: Sequence[Observation]) -> tuple[list[Sample], int]:
    """Samples for the choice of thresholds, and how many were left out because nobody can tell.

    A sample is a reworded look-up with a candidate whose answer could be compared. Exact repeats pass no threshold, and
    what is unclear is neither right nor wrong.
    """
    samples: list[Sample] = []
    unclear = 0
    for number, one in enumerate(seen):
        if one.exact or one.level == "bypass" or not one.entry:
            continue
        outcome = outcome_of(one)
        if outcome not in ("right", "wrong"):
            unclear += 1
            continue
        name = one.id or f"{number}"
        score = 0.0 if one.objections else one.confidence
        samples.append(Sample(name, score, outcome == "right", one.lang, one.intent, "same place" * one.same_place))
    return samples, unclear
