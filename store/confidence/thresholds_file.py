"""The operator's own thresholds: a JSON file that ``antiphon calibrate`` writes and the proxy loads.

It names the confidence model it was made for, the two thresholds, and optionally a curve that corrects the model's
confidence on the operator's traffic. ``evidence`` says what the numbers rest on; nothing reads it but people.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fingerprint.conversation import Turn
from store.types import Candidate, Policy, ReuseConfidence

__all__ = [
    "Correction",
    "NoConfidence",
    "Refitted",
    "ThresholdsError",
    "ThresholdsFile",
    "confidence_of",
    "read_thresholds",
]

_MOST_BYTES: Final = 1 << 20
_Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class ThresholdsError(ValueError):
    """A thresholds file cannot be used; the message is one line that says why."""


class Correction(BaseModel):
    """A curve from the model's confidence to the probability on the operator's traffic, straight between its points."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    scores: tuple[_Share, ...] = Field(min_length=2, max_length=10_000)
    probabilities: tuple[_Share, ...] = Field(min_length=2, max_length=10_000)

    @model_validator(mode="after")
    def _rising(self) -> Correction:
        if len(self.scores) != len(self.probabilities):
            raise ValueError("has as many scores as probabilities")
        if any(b <= a for a, b in pairwise(self.scores)):
            raise ValueError("scores must rise")
        if any(b < a for a, b in pairwise(self.probabilities)):
            raise ValueError("probabilities must not fall")
        return self

    def __call__(self, confidence: float) -> float:
        """Return the corrected confidence, 0 … 1; 0 stays 0, for a guard's no is not a matter of degree."""
        return float(np.interp(confidence, self.scores, self.probabilities)) if confidence > 0 else 0.0


class ThresholdsFile(BaseModel):
    """What the file holds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal["antiphon-thresholds-1"] = "antiphon-thresholds-1"
    model: str = Field(min_length=1, description="Version of the confidence model the numbers are for.")
    answer: _Share
    verify: _Share
    correction: Correction | None = None
    evidence: Mapping[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _ordered(self) -> ThresholdsFile:
        if self.verify > self.answer:
            raise ValueError("verify must not be greater than answer")
        if self.answer == 0:
            raise ValueError("answer must be greater than 0: it would serve anything")
        return self

    @property
    def policy(self) -> Policy:
        """The two thresholds."""
        return Policy(answer=self.answer, verify=self.verify)

    def write(self, path: Path) -> None:
        """Write the file in one step, so that nobody reads half of it. Raises ``OSError``."""
        text = json.dumps(self.model_dump(mode="json"), indent=1, ensure_ascii=False) + "\n"
        beside = path.with_name(path.name + ".new")
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)


def read_thresholds(path: Path, model: str) -> ThresholdsFile:
    """Read and check a thresholds file for the confidence model ``model``. Raises `ThresholdsError`."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ThresholdsError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(data) > _MOST_BYTES:
        raise ThresholdsError(f"{path} is larger than 1 MiB: not a thresholds file")
    try:
        found = ThresholdsFile.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        what = first["msg"].removeprefix("Value error, ")
        raise ThresholdsError(f"{path}: {where + ': ' if where else ''}{what}") from None
    if found.model != model:
        raise ThresholdsError(
            f"{path} was made for the confidence model {found.model}, this is {model}: calibrate again"
        )
    return found


class NoConfidence:
    """Trusts nothing. A ``store.types.ReuseConfidence``."""

    version = "none"

    def first(self, query: Turn, candidate: Candidate) -> float:
        """0."""
        return 0.0

    def second(self, query: Turn, candidate: Candidate, first: float) -> float:
        """0."""
        return 0.0


class Refitted:
    """A reuse confidence read off the operator's own curve. A ``store.types.ReuseConfidence``."""

    def __init__(self, inner: ReuseConfidence, correction: Correction) -> None:
        self._inner = inner
        self._correction = correction
        numbers = json.dumps(correction.model_dump(mode="json"), sort_keys=True).encode()
        self._version = f"{inner.version}+{blake2b(numbers, digest_size=4).hexdigest()}"

    @property
    def version(self) -> str:
        """The inner model's, and a digest of the curve."""
        return self._version

    def first(self, query: Turn, candidate: Candidate) -> float:
        """Corrected cheap estimate."""
        return self._correction(self._inner.first(query, candidate))

    def second(self, query: Turn, candidate: Candidate, first: float) -> float:
        """Corrected best estimate; ``first`` is corrected already, so the inner model is asked for its own anew."""
        return self._correction(self._inner.second(query, candidate, self._inner.first(query, candidate)))


def confidence_of(file: ThresholdsFile, shipped: ReuseConfidence) -> ReuseConfidence:
    """Return the confidence that belongs to the file's thresholds."""
    return shipped if file.correction is None else Refitted(shipped, file.correction)


def confidence_with(file: Path | None) -> ReuseConfidence:
    """Load the shipped confidence, as a thresholds file corrects it. Raises what `store.confidence.load` and
    `read_thresholds` raise."""
    from store.confidence.model import load

    shipped = load()
    return shipped if file is None else confidence_of(read_thresholds(file, shipped.version), shipped)
