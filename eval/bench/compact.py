"""What ``antiphon db compact`` costs on real questions: ``python -m eval.bench.compact [--texts N] [--json OUT]``.

Distinct last messages of the public pairs are embedded as the cache would; the projection is fitted on four fifths of
them and measured on the rest, for each number of dimensions.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from eval.data import load_pairs
from eval.provenance import commit
from fingerprint.embedding.router import load_router
from store.projection import fit, loss_of

__all__ = ["main"]

DIMENSIONS = (320, 256, 192, 128)


def measure(texts: Sequence[str]) -> dict[str, Any]:
    """Embed the texts and measure each projection, space by space."""
    router = load_router()
    spaces: dict[str, list[np.ndarray[Any, np.dtype[np.float32]]]] = {}
    for text in texts:
        (one,) = router.encode([text])
        if one is not None and not one.partial:
            spaces.setdefault(one.space, []).append(one.vector)
    found: dict[str, Any] = {}
    for space, rows in sorted(spaces.items()):
        vectors = np.array(rows, dtype=np.float32)
        held_out = np.arange(len(vectors)) % 5 == 0
        if len(vectors) < 12.5 * min(DIMENSIONS):
            continue
        found[space] = {"vectors": len(vectors), "before": vectors.shape[1]}
        for dimensions in DIMENSIONS:
            loss = loss_of(fit(space, vectors[~held_out], dimensions), vectors[held_out])
            found[space][str(dimensions)] = {name: round(value, 4) for name, value in asdict(loss).items()}
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it and print it; ``--json OUT`` also writes it to a file."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--texts", type=int, default=10_000)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    texts = sorted({turn.message.text for pair in load_pairs() for turn in (pair.a, pair.b)})
    random.Random(1).shuffle(texts)
    results: dict[str, Any] = {
        "commit": commit(),
        "load_at_start": round(os.getloadavg()[0], 1),
        "texts": min(chosen.texts, len(texts)),
        "spaces": measure(texts[: chosen.texts]),
    }
    print(json.dumps(results, indent=2))
    if chosen.json:
        chosen.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
