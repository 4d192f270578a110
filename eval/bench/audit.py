"""How fast an audit is, what it needs, and whether what it finds is true: ``python -m eval.bench.audit [--json OUT]``.

A log with known truth (`eval.bench.audit_log`) is audited as ``antiphon audit`` does, with nothing on disk from earlier
runs. Told are seconds by the clock and of processor time (which other work on the machine disturbs less), the peak of
memory, and the load of the machine. With ``--minutes`` the judging stops when the time is up, and the figures are those
of the turns judged by then; nothing is extrapolated.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import psutil

from eval.audit.run import Options, audit
from eval.audit.walk import KINDS, Outcome
from eval.provenance import commit
from eval.statistics import wilson
from fingerprint.embedding.router import load_router
from store.confidence import load, thresholds

__all__ = ["main", "measure"]

_LOOK_S: Final = 2.0


class _Enough(Exception):  # noqa: N818
    """The time is up."""


class _Memory(threading.Thread):
    """Looks every other second how much memory this process and those it started hold."""

    def __init__(self) -> None:
        super().__init__(name="antiphon-bench-memory", daemon=True)
        self.peak_mib = 0
        self._done = threading.Event()
        self.start()

    def run(self) -> None:
        this = psutil.Process()
        while not self._done.wait(_LOOK_S):
            held = 0
            for process in (this, *this.children(recursive=True)):
                with contextlib.suppress(psutil.Error):  # it has just ended
                    held += process.memory_full_info().pss
            self.peak_mib = max(self.peak_mib, held >> 20)

    def stop(self) -> int:
        """Stop looking; returns the peak in MiB."""
        self._done.set()
        self.join()
        return self.peak_mib


def _cpu_s() -> float:
    """Seconds of processor time of this process and of those it started that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def measure(turns: int, *, threads: int, minutes: float | None, seed: int, keep: Path | None) -> dict[str, Any]:
    """Audit a log of ``turns`` requests; returns the figures. Raises `eval.data.DataMissing`."""
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as name:
        folder = Path(name)
        log = folder / "log.jsonl"
        # In a process of its own: the data it is made from must not count as memory of the audit.
        subprocess.run([sys.executable, "-m", "eval.bench.audit_log", str(log), str(turns), str(seed)], check=True)
        truth: list[int | None] = json.loads(log.with_suffix(".truth.json").read_text("utf-8"))
        kinds: Counter[str] = Counter()
        asked: set[int] = set()
        counts: Counter[str] = Counter()
        load_before = os.getloadavg()[0]
        memory = _Memory()
        ended_before = os.times()
        started, cpu = time.perf_counter(), _cpu_s()
        marks: dict[str, float] = {}

        def each(outcome: Outcome) -> None:
            if not marks:
                marks["judging"], marks["judging_cpu"] = time.perf_counter(), _cpu_s()
            kinds[outcome.kind] += 1
            question = truth[outcome.number]
            if question is not None:
                counts["known"] += 1
                counts["repeats"] += question in asked
                asked.add(question)
            if outcome.kind in ("reworded", "in context") and outcome.earlier is not None:
                other = truth[outcome.earlier]
                if question is not None and other is not None:
                    counts["judged_reworded"] += 1
                    counts["right_reworded"] += other == question
            counts["turns"] += 1
            if minutes is not None and time.perf_counter() - started > 60 * minutes:
                raise _Enough

        router, confidence, policy = load_router(), load(warm=False), thresholds()
        timings: dict[str, Any] = {}
        try:
            found = audit(
                [log],
                Options(threads=threads),
                embedder=router,
                confidence=confidence,
                policy=policy,
                keep=keep or folder / "kept.sqlite3",
                each=each,
                make=load,
            )
            timings = found.report.facts["timings"]
        except _Enough:
            pass
        ended, cpu_ended, times = time.perf_counter(), _cpu_s(), os.times()
    judged = counts["turns"]
    wall, used = ended - started, cpu_ended - cpu
    return {
        "turns_in_log": turns,
        "turns_judged": judged,
        "complete": judged == turns,
        "threads": threads,
        "wall_s": round(wall, 1),
        "cpu_s": round(used, 1),
        "cpu_of_judges_s": round(
            times.children_user + times.children_system - ended_before.children_user - ended_before.children_system, 1
        ),
        "reading_and_embedding_s": round(marks.get("judging", ended) - started, 1),
        "reading_and_embedding_cpu_s": round(marks.get("judging_cpu", cpu_ended) - cpu, 1),
        "judging_cpu_ms_a_turn": round(1000 * (cpu_ended - marks["judging_cpu"]) / judged, 2) if marks else None,
        "embedded": timings.get("embedded"),
        "looked_up_again": timings.get("asked_again"),
        "peak_memory_mib": memory.stop(),
        "load_average": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        "kinds": {kind: kinds[kind] for kind in KINDS},
        "turns_with_known_question": counts["known"],
        "of_these_asked_before": counts["repeats"],
        "reworded_with_known_truth": counts["judged_reworded"],
        "of_these_right": counts["right_reworded"],
        "of_these_right_ci": list(wilson(counts["right_reworded"], counts["judged_reworded"])),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="eval.bench.audit", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--minutes", type=float, help="stop judging after so many minutes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="file of embeddings; default: none from earlier runs")
    parser.add_argument("--json", type=Path, metavar="OUT")
    given = parser.parse_args(arguments)
    figures = measure(given.turns, threads=given.threads, minutes=given.minutes, seed=given.seed, keep=given.keep)
    document = {
        "bench": "audit",
        "commit": commit(short=True),
        "machine": f"{os.cpu_count()} x {platform.machine()}, Python {platform.python_version()}",
        **figures,
    }
    text = json.dumps(document, indent=1)
    print(text)
    if given.json is not None:
        given.json.write_text(text + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
