"""The report of a run as a table: ``python -m eval.chaos.report docs/results/chaos.json docs/faults.md``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

__all__ = ["filled", "table"]

BEGIN: Final = "<!-- chaos:begin -->"
END: Final = "<!-- chaos:end -->"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        n = value.get("n", 0)
        return f"p50 {value['p50']}, p95 {value['p95']} (n {n})" if "p50" in value else f"n {n}"
    return str(value)


def table(report: dict[str, Any]) -> str:
    """Markdown: a row for each scenario, with what held and the figures."""
    lines = ["| scenario | held | figures |", "|---|---|---|"]
    for name, outcome in report.items():
        if name == "taken":
            continue
        claims = outcome["claims"]
        held = f"{sum(claims.values())} of {len(claims)}"
        broken = [claim for claim, holds in claims.items() if not holds]
        if broken:
            held += "; not: " + ", ".join(broken)
        figures = "; ".join(f"{what} {_shown(value)}" for what, value in outcome["figures"].items())
        lines.append(f"| `{name}` | {held} | {figures} |")
    taken = report["taken"]
    lines += [
        "",
        f"Taken at commit {taken['commit']} on {taken['date']}: {taken['cores']} cores of {taken['machine']}, "
        f"Python {taken['python']}, shared with other work: load {taken['load_before']} before it began.",
    ]
    return "\n".join(lines)


def filled(page: str, report: dict[str, Any]) -> str:
    """The page with the table between its markers."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table(report)}\n\n{END}{after}"


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:3])
    target.write_text(filled(target.read_text("utf-8"), json.loads(source.read_text("utf-8"))), encoding="utf-8")
