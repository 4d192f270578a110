"""The shipped reuse confidence and the thresholds that belong to it."""

from __future__ import annotations

import json
import math
import re
from importlib import resources

from fingerprint.conversation import Turn
from store.types import Candidate, Policy

__all__ = ["LearnedConfidence", "load", "thresholds"]

_WORD = re.compile(r"\w+")


class LearnedConfidence:
    """Conservative first version: only what is nearly the same text is trusted."""

    @property
    def version(self) -> str:
        """Name of the artefact."""
        return "conservative-0"

    def first(self, query: Turn, candidate: Candidate) -> float:
        """Cheap estimate over comparisons, 0 … 1."""
        same_context = candidate.same_place or query.history == candidate.turn.history
        a, b = (set(_WORD.findall(t.message.text.casefold())) for t in (query, candidate.turn))
        overlap = len(a & b) / max(1, len(a | b))
        score = 14.0 * (candidate.similarity - 0.86) + 4.0 * (overlap - 0.6) + (0.0 if same_context else -4.0)
        return 1.0 / (1.0 + math.exp(-score))

    def second(self, query: Turn, candidate: Candidate, first: float) -> float:
        """Best estimate, 0 … 1."""
        return first


def load() -> LearnedConfidence:
    """The shipped model."""
    return LearnedConfidence()


def thresholds() -> Policy:
    """``answer`` and ``verify`` of the shipped ``thresholds.json``."""
    numbers = json.loads(resources.files("store.confidence").joinpath("thresholds.json").read_text(encoding="utf-8"))
    return Policy(answer=float(numbers["answer"]), verify=float(numbers["verify"]))
