"""Writes the Grafana dashboard: ``python deploy/grafana/dashboard.py`` (a test holds the committed file to it).

A dashboard by hand is two thousand lines in which a metric that was renamed goes unnoticed; here a panel is a line.
Standard library only.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

TARGET: Final = Path(__file__).with_name("dashboards") / "antiphon.json"
SOURCE: Final = {"type": "prometheus", "uid": "${source}"}
RATE: Final = "$__rate_interval"


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: ``queries`` are pairs of a PromQL expression and the legend of its series."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"  # Grafana's name of a unit
    kind: str = "timeseries"
    width: int = 8
    stacked: bool = False
    about: str = ""
    least: float | None = 0
    most: float | None = None


def rate(metric: str, by: str = "", where: str = "") -> str:
    """PromQL: the rate of a counter over the chosen instances."""
    selector = ", ".join(part for part in ('instance=~"$instance"', where) if part)
    return f"sum{f' by ({by})' if by else ''} (rate({metric}{{{selector}}}[{RATE}]))"


def quantile(metric: str, q: float, by: str = "", where: str = "") -> str:
    """PromQL: a quantile of a histogram over the chosen instances."""
    return f"histogram_quantile({q}, {rate(metric + '_bucket', f'le, {by}' if by else 'le', where)})"


def gauge(metric: str, how: str = "sum", by: str = "") -> str:
    """PromQL: a gauge over the chosen instances."""
    return f'{how}{f" by ({by})" if by else ""} ({metric}{{instance=~"$instance"}})'


_ANSWERED = rate("antiphon_requests_total", where='reuse="answer"')
_ALL = rate("antiphon_requests_total")
_LOOKED_UP = rate("antiphon_requests_total", where='reuse!="bypass"')


def quantiles(metric: str, legend: str = "", by: str = "") -> tuple[tuple[str, str], ...]:
    """Queries for the median and the 95th percentile of a histogram."""
    return tuple((quantile(metric, q, by), f"{legend} p{round(q * 100)}".strip()) for q in (0.5, 0.95))


ROWS: Final[tuple[tuple[str, tuple[Panel, ...]], ...]] = (
    (
        "At a glance",
        (
            Panel("Requests", ((_ALL, ""),), "reqps", "stat", 4),
            Panel(
                "From the cache", ((f"{_ANSWERED} / {_LOOKED_UP}", ""),), "percentunit", "stat", 4, most=1,
                about="Of the requests that were looked up.",
            ),
            Panel("Tokens saved", ((rate("antiphon_tokens_saved_total"), ""),), "short", "stat", 4, about="A second."),
            Panel(
                "GPU seconds saved", ((rate("antiphon_backend_seconds_saved_total"), ""),), "s", "stat", 4,
                about="Seconds of the backend's work that hits spared, a second.",
            ),
            Panel("Ready", ((gauge("antiphon_ready"), ""),), "short", "stat", 4, about="Replicas that serve."),
            Panel("Backend", ((gauge("antiphon_backend_reachable", "min"), ""),), "bool_on_off", "stat", 4),
        ),
    ),
    (
        "Reuse",
        (
            Panel("Requests", ((rate("antiphon_requests_total", "reuse"), "{{reuse}}"),), "reqps", stacked=True),
            Panel("Why", ((rate("antiphon_reasons_total", "reuse, reason"), "{{reuse}} {{reason}}"),), "reqps"),
            Panel(
                "Prompt tokens at the backend", ((rate("antiphon_prompt_tokens_total", "kv"), "{{kv}}"),), stacked=True,
                about="Cached: they were in the backend's KV cache.",
            ),
        ),
    ),
    (
        "Quality",
        (
            Panel(
                "Wrong hits, at most",
                (
                    (gauge("antiphon_wrong_hit_bound", "max", "kind"), "{{kind}}"),
                    (gauge("antiphon_wrong_hit_limit", "min"), "budget"),
                ),
                "percentunit",
                about="Upper bound of the share of hits that were wrong, by what checks have found.",
            ),
            Panel("Checks", ((rate("antiphon_checks_total", "source, outcome"), "{{source}} {{outcome}}"),), "reqps"),
            Panel("Threshold", ((gauge("antiphon_hit_threshold", "max", "kind"), "{{kind}}"),)),
            Panel("Not served for a time", ((gauge("antiphon_unserved_entries", "max", "why"), "{{why}}"),)),
            Panel("Suspect wordings", ((gauge("antiphon_suspect_wordings", "max"), "suspect"),)),
            Panel("Observed in shadow", ((rate("antiphon_shadow_turns_total", "reuse"), "{{reuse}}"),), "reqps"),
        ),
    ),
    (
        "KV cache of the backend",
        (
            Panel("Prefixes broken", ((rate("antiphon_prefix_breaks_total", "cause"), "{{cause}}"),), "reqps"),
            Panel("Turns in their node's words", ((rate("antiphon_turns_replaced_total"), "turns"),)),
            Panel(
                "Prompt tokens of such requests", ((rate("antiphon_canonical_prompt_tokens_total", "kv"), "{{kv}}"),),
                stacked=True,
            ),
        ),
    ),
    (
        "Speed",
        (
            Panel("Look-up", quantiles("antiphon_lookup_seconds", "{{kind}}", "kind"), "s"),
            Panel(
                "Backend, first byte and last",
                (
                    *quantiles("antiphon_upstream_first_byte_seconds", "first byte"),
                    *quantiles("antiphon_upstream_seconds", "last byte"),
                ),
                "s",
            ),
            Panel("Embedding", quantiles("antiphon_embed_seconds"), "s"),
            Panel("In flight", ((gauge("antiphon_requests_in_flight", by="instance"), "{{instance}}"),)),
            Panel("Shared calls", ((rate("antiphon_single_flight_followers_total"), "followers"),), "reqps"),
        ),
    ),
    (
        "What goes wrong",
        (
            Panel("Backend errors", ((rate("antiphon_upstream_errors_total", "kind"), "{{kind}}"),), "reqps"),
            Panel(
                "Failures in the cache", ((rate("antiphon_cache_errors_total", "kind"), "{{kind}}"),), "reqps",
                about="Each became a miss.",
            ),
            Panel("Failures in the store", ((rate("antiphon_store_failures_total", "kind"), "{{kind}}"),), "reqps"),
            Panel("Look-ups that pause", ((gauge("antiphon_breaker_open", "max", "part"), "{{part}}"),), "bool"),
            Panel("Refused", ((rate("antiphon_requests_refused_total", "status"), "{{status}}"),), "reqps"),
            Panel("Degraded", ((gauge("antiphon_degraded", "max", "instance"), "{{instance}}"),), "bool"),
        ),
    ),
    (
        "Store",
        (
            Panel("Entries", ((gauge("antiphon_entries", "max", "state"), "{{state}}"),), stacked=True),
            Panel("Writes waiting", ((gauge("antiphon_write_queue_depth", by="instance"), "{{instance}}"),)),
            Panel("Answers stored", ((rate("antiphon_answers_stored_total"), "stored"),), "reqps"),
            Panel("Database", ((gauge("antiphon_store_bytes", "max"), "on disk"),), "bytes"),
            Panel(
                "Memory",
                (
                    (gauge("antiphon_store_memory_bytes", by="instance"), "answers {{instance}}"),
                    (gauge("process_resident_memory_bytes", by="instance"), "process {{instance}}"),
                ),
                "bytes",
            ),
            Panel("Vectors in the index", ((gauge("antiphon_indexed_vectors", by="instance"), "{{instance}}"),)),
        ),
    ),
)  # fmt: skip


def panel_json(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    """One panel as Grafana stores it."""
    height = 4 if panel.kind == "stat" else 8
    defaults: dict[str, Any] = {"unit": panel.unit, "min": panel.least}
    if panel.most is not None:
        defaults["max"] = panel.most
    options: dict[str, Any]
    if panel.kind == "stat":
        options = {"reduceOptions": {"calcs": ["lastNotNull"], "values": False}, "graphMode": "area"}
    else:
        stacking = {"mode": "normal" if panel.stacked else "none", "group": "A"}
        defaults["custom"] = {"stacking": stacking, "fillOpacity": 40 if panel.stacked else 8, "lineWidth": 1}
        options = {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": height},
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": SOURCE, "expr": expr, "legendFormat": legend or "__auto"}
            for at, (expr, legend) in enumerate(panel.queries)
        ],
    }


def dashboard() -> dict[str, Any]:
    """The whole dashboard."""
    panels: list[dict[str, Any]] = []
    y = number = 0
    for title, row in ROWS:
        number += 1
        where = {"x": 0, "y": y, "w": 24, "h": 1}
        panels.append({"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": where, "panels": []})
        y += 1
        x = height = 0
        for panel in row:
            if x + panel.width > 24:
                x, y = 0, y + height
            number += 1
            made = panel_json(panel, number, x, y)
            panels.append(made)
            height = made["gridPos"]["h"]
            x += panel.width
        y += height
    source = {"name": "source", "type": "datasource", "query": "prometheus", "label": "Source", "current": {}}
    instance = {
        "name": "instance", "type": "query", "label": "Replica", "datasource": SOURCE, "multi": True,
        "includeAll": True, "allValue": ".*", "refresh": 2,
        "query": {"query": "label_values(antiphon_ready, instance)", "refId": "instances"},
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]}, "sort": 1,
    }  # fmt: skip
    return {
        "uid": "antiphon",
        "title": "Antiphon",
        "tags": ["antiphon", "llm"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "templating": {"list": [source, instance]},
        "annotations": {"list": []},
        "panels": panels,
    }


def text() -> str:
    """The file's content."""
    return json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
    sys.stdout.write(f"{TARGET}\n")
