"""Makes torchvision's PyPI wheel importable beside a CPU build of PyTorch.

That wheel's compiled operators need CUDA's libraries. Where they are absent torchvision carries on without them, until
``torchvision._meta_registrations`` registers shapes for operators that nobody declared: ``operator torchvision::nms
does not exist``. This declares the two just before that module is imported, and does nothing where they exist.

Imported by a ``.pth`` file at the start of every process of the environment, so it imports nothing heavy itself.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["DeclareOperators"]

OPERATORS = ("nms", "qnms")
SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


class DeclareOperators(MetaPathFinder):
    """Finds no module; declares the missing operators when the module that needs them is looked for."""

    def __init__(self) -> None:
        self.library: Any = None  # an operator lives as long as its library object

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Always None, so that the next finder looks for the module itself."""
        if fullname == "torchvision._meta_registrations" and self.library is None:
            self._declare()
        return None

    def _declare(self) -> None:
        import torch

        missing = [name for name in OPERATORS if not hasattr(torch.ops.torchvision, name)]
        if missing:
            self.library = torch.library.Library("torchvision", "FRAGMENT")
            for name in missing:
                self.library.define(name + SCHEMA)


sys.meta_path.insert(0, DeclareOperators())
