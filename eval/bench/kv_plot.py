"""The plot of ``eval.bench.kv``: ``python -m eval.bench.kv_plot docs/results/kv.json OUT.png``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

__all__ = ["draw"]

_NAMES: Final = {"direct": "SGLang alone", "answers": "answers cached,\nhistory as it came", "antiphon": "Antiphon"}
_COLOURS: Final = {"direct": "#8a8f98", "answers": "#d08a2e", "antiphon": "#2f6db3"}


def draw(results: dict[str, Any], out: Path) -> None:
    """Draw the four figures side by side, one bar a chain, each with its value."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    chains = results["chains"]
    panels: Sequence[tuple[str, str, Any]] = (
        ("Prompt tokens prefilled\non the turns after a hit", "{:,.0f}", lambda c: c["prefilled_tokens_after_a_hit"]),
        ("KV tokens resident\nat the end", "{:,.0f}", lambda c: c["kv_tokens_resident"]),
        ("Time to the first token,\nall turns, median", "{:,.0f} ms", lambda c: c["ttft_ms"]["p50"]),
        (
            "Time to the first token,\nforwarded turns, median",
            "{:,.0f} ms",
            lambda c: c["ttft_of_forwarded_turns_ms"]["p50"],
        ),
    )
    figure, axes = plt.subplots(1, len(panels), figsize=(12, 3.6), constrained_layout=True)
    for axis, (title, form, value) in zip(axes, panels, strict=True):
        heights = [value(chains[name]) for name in _NAMES]
        bars = axis.bar(range(len(_NAMES)), heights, color=[_COLOURS[name] for name in _NAMES], width=0.7)
        axis.bar_label(bars, labels=[form.format(height) for height in heights], padding=2, fontsize=9)
        axis.set_title(title, fontsize=10)
        axis.set_xticks(range(len(_NAMES)), list(_NAMES.values()), fontsize=8)
        axis.set_yticks([])
        axis.set_ylim(0, max(heights) * 1.15 or 1)
        axis.spines[["top", "right", "left"]].set_visible(False)
    work, ratios = results["workload"], results["ratios"]
    figure.suptitle(
        f"{work['conversations']} conversations, {work['turns']} turns, "
        f"{ratios['share_of_all_turns_served']:.0%} of them served from the cache",
        fontsize=11,
    )
    figure.savefig(out, dpi=130)
    plt.close(figure)


def main(arguments: Sequence[str]) -> int:
    """Draw the figures of a file."""
    draw(json.loads(Path(arguments[0]).read_text("utf-8")), Path(arguments[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
