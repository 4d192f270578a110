"""How one field of two turns compares: the value that explanations are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Relation", "RelationKind"]

RelationKind = Literal["equal", "compatible", "conflict"]


@dataclass(frozen=True, slots=True)
class Relation:
    """How one field of two turns compares; ``sentence`` is what ``explain`` prints.

    ``equal``: both say the same; ``compatible``: at least one is silent, or the difference lies in what the turns do
    not rely on; ``conflict``: both cannot deserve one answer.
    """

    name: str  # "numbers", "entities", "polarity", "direction", "context", …
    kind: RelationKind
    sentence: str
