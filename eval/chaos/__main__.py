"""``python -m eval.chaos [NAME …] [--scale 1] [--json OUT]``: run the faults, print what held and what it cost."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

from eval.chaos.scenarios import SCENARIOS, Outcome
from eval.provenance import commit


def shown(name: str, outcome: Outcome, seconds: float) -> str:
    """One scenario for a person to read."""
    lines = [f"{name} ({seconds:.0f} s)"]
    lines += [f"  {'holds ' if holds else 'BROKEN'} {claim}" for claim, holds in outcome.claims.items()]
    lines += [f"         {what}: {value}" for what, value in outcome.figures.items()]
    return "\n".join(lines)


def main() -> int:
    """Run, print, write; 1 where something does not hold."""
    parser = argparse.ArgumentParser(description="Faults under load, with real processes.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones: {', '.join(SCENARIOS)}; default: all")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies rounds, clients and seconds (default 1)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the report here too")
    options = parser.parse_args()
    unknown = set(options.names) - set(SCENARIOS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(SCENARIOS)}")
    report: dict[str, Any] = {}
    if options.names and options.json and options.json.exists():  # the others stay as they were
        report = json.loads(options.json.read_text("utf-8"))
    load_before = os.getloadavg()[0]
    for name in options.names or SCENARIOS:
        began = time.monotonic()
        outcome = asyncio.run(SCENARIOS[name](options.scale))
        report[name] = {"holds": outcome.holds, "claims": outcome.claims, "figures": outcome.figures}
        sys.stdout.write(shown(name, outcome, time.monotonic() - began) + "\n")
        sys.stdout.flush()
    report["taken"] = {
        "commit": commit(short=True),
        "date": time.strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "scale": options.scale,
        "load_before": round(load_before, 2),
    }
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0 if all(report[name]["holds"] for name in options.names or SCENARIOS) else 1


if __name__ == "__main__":
    raise SystemExit(main())
