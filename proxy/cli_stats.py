"""What ``antiphon stats`` prints."""

from __future__ import annotations

from typing import Any

from proxy.cli_output import say, say_table

__all__ = ["say_stats"]

_KINDS = {
    "exact": "exact repeat",
    "same_place": "reworded, same place",
    "other_context": "reworded, elsewhere",
    "band": "suspect (band)",
}


def say_stats(stats: dict[str, Any]) -> None:
    """Print the store's numbers, then what is known of wrong hits, kind by kind."""
    states = ", ".join(f"{count} {state}" for state, count in sorted(stats["by_state"].items()))
    say(f"entries     {stats['entries']} ({states or 'none'}), {stats['expired']} expired")
    say(f"wordings    {stats['wordings']}, {stats['suspects']} of them not verified yet")
    say(f"not served  {stats['barred']} barred after failed checks, {stats['unsettled']} whose answers keep changing")
    say(f"hits        {stats['hits']}, {stats['tokens_saved']} tokens and {stats['seconds_saved']:.0f} s saved")
    failures = ", ".join(f"{kind} {count}" for kind, count in sorted(stats["failures"].items()))
    say(f"failures    {failures or 'none'}")
    limit = stats["wrong_hits_limit"]
    say(f"wrong hits  {'no error budget' if limit is None else f'at most {limit:.2%} of each kind'}")
    say_table(
        ("kind of hit", "checked", "wrong", "rate", "bound", "served from", "decided by"),
        [
            (
                _KINDS.get(one["kind"], one["kind"]),
                one["observations"],
                one["wrong"],
                _percent(one["rate"]),
                _percent(one["bound"]),
                "–" if one["threshold"] is None else f"{one['threshold']:.4f}",
                "–" if one["decided_by"] == "none" else one["decided_by"],
            )
            for one in stats["budget"]
        ],
    )


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.2f} %"
