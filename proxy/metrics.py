"""What is counted, in the Prometheus text format.

One :class:`Metrics` per app, in a registry of its own, so that two apps in one process (tests) do not meet. Label
children used on every request are bound once: counting costs a dictionary look-up and an addition.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from store.types import Level

if TYPE_CHECKING:
    from fingerprint.embedding import Embedding, TextEmbedder
    from store.counters import BreakerState
    from store.rows import StoreStats

__all__ = ["CONTENT_TYPE", "CheckOutcome", "ErrorKind", "Metrics", "Tally", "metric_names"]

CONTENT_TYPE = CONTENT_TYPE_LATEST

CheckOutcome = Literal["agree", "differ", "unclear", "failed", "dropped", "stale"]
"""Of a check: what came of it, or why nothing did ("stale": the backend's version changed meanwhile)."""

ErrorKind = Literal[
    "lookup",  # exact look-up failed or ran past its deadline
    "search",  # embedding, retrieval or decision failed or ran past its deadline
    "record",  # an answer could not be stored, or the write queue was full
    "decide",  # the reuse decision raised
    "coding",  # the backend's answer was compressed in a way that cannot be read
    "serve",  # a stored answer could not be turned into a reply
    "invalidate",  # a correction could not be carried out
    "verify",  # a hit or miss could not be handed to verification
    "version",  # the backend's version could not be read
    "canonical",  # a history could not be put into the node's words
]

# Seconds. From a hit in memory (under a millisecond) to a long generation.
_FAST = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_SLOW = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


class Metrics:
    """The counters of one proxy.

    Methods are cheap and never raise; they may be called from any thread.
    """

    def __init__(self) -> None:
        registry = CollectorRegistry(auto_describe=True)
        self.registry = registry
        self.requests = Counter(
            "antiphon_requests_total",
            "Requests by what was reused and endpoint.",
            ["reuse", "endpoint"],
            registry=registry,
        )
        self.reasons = Counter(
            "antiphon_reasons_total",
            "Requests by reuse level and reason, as in X-Antiphon-Reason.",
            ["reuse", "reason"],
            registry=registry,
        )
        self.opinions = Counter(
            "antiphon_verifier_total",
            "Stored answers the backend was asked about (decision.verifier), by what it said.",
            ["said"],
            registry=registry,
        )
        self.cache_errors = Counter(
            "antiphon_cache_errors_total",
            "Failures inside the cache, each of which became a miss, by kind.",
            ["kind"],
            registry=registry,
        )
        self.upstream_errors = Counter(
            "antiphon_upstream_errors_total",
            "Requests the backend did not answer, by kind (connect, timeout, protocol).",
            ["kind"],
            registry=registry,
        )
        self.upstream_seconds = Histogram(
            "antiphon_upstream_seconds",
            "Seconds from sending a request to the backend to its last byte.",
            buckets=_SLOW,
            registry=registry,
        )
        self.upstream_first_byte_seconds = Histogram(
            "antiphon_upstream_first_byte_seconds",
            "Seconds from sending a request to the backend to the first byte of its reply.",
            buckets=_SLOW,
            registry=registry,
        )
        self.lookup_seconds = Histogram(
            "antiphon_lookup_seconds",
            "Seconds a look-up took, by kind (exact, search, canonical).",
            ["kind"],
            buckets=_FAST,
            registry=registry,
        )
        self.embed_seconds = Histogram(
            "antiphon_embed_seconds", "Seconds an embedding took.", buckets=_FAST, registry=registry
        )
        self.tokens_saved = Counter(
            "antiphon_tokens_saved_total",
            "Tokens of answers served from the cache, by kind (prompt, completion), as the backend had counted them "
            "when it generated those answers.",
            ["kind"],
            registry=registry,
        )
        self.seconds_saved = Counter(
            "antiphon_backend_seconds_saved_total",
            "Seconds the backend had taken for the answers that were served from the cache.",
            registry=registry,
        )
        self.prompt_tokens = Counter(
            "antiphon_prompt_tokens_total",
            "Prompt tokens of forwarded requests as the backend counted them, by whether it had them in its KV cache "
            "(cached, prefilled; unknown where it does not tell).",
            ["kv"],
            registry=registry,
        )
        self.canonical_tokens = Counter(
            "antiphon_canonical_prompt_tokens_total",
            "The part of antiphon_prompt_tokens_total that belongs to requests with earlier turns in their node's "
            "words.",
            ["kv"],
            registry=registry,
        )
        self.turns_replaced = Counter(
            "antiphon_turns_replaced_total",
            "Earlier user messages that were forwarded in the words of their node.",
            registry=registry,
        )
        self.reference_turns = Counter(
            "antiphon_reference_turns_total",
            "Requests forwarded with a stored question and its answer before the new message.",
            registry=registry,
        )
        self.canonical_refused = Counter(
            "antiphon_canonical_refused_total",
            "Requests with a changed history that the backend refused; each was sent again as it came.",
            registry=registry,
        )
        self.canonical_ended = Counter(
            "antiphon_canonical_ended_total",
            "Forwarded requests whose history was put into the node's words up to a turn in doubt only, by reason.",
            ["reason"],
            registry=registry,
        )
        self.prefix_breaks = Counter(
            "antiphon_prefix_breaks_total",
            "Forwarded requests whose prompt broke off from the one before it, by cause.",
            ["cause"],
            registry=registry,
        )
        self.prefix_break_tokens = Counter(
            "antiphon_prefix_break_tokens_estimated_total",
            "Tokens behind such a break which the backend had just computed, by cause. An estimate.",
            ["cause"],
            registry=registry,
        )
        self.captured = Counter("antiphon_captured_total", "Requests written to the traffic log.", registry=registry)
        self.capture_dropped = Counter(
            "antiphon_capture_dropped_total",
            "Requests that should have been written to the traffic log and were not, by why (busy, too-large, disk, "
            "failed).",
            ["why"],
            registry=registry,
        )
        self.recorded = Counter("antiphon_answers_stored_total", "Answers handed to the store.", registry=registry)
        self.followers = Counter(
            "antiphon_single_flight_followers_total",
            "Requests that shared a call to the backend which another had made.",
            registry=registry,
        )
        self.thresholds = Gauge(
            "antiphon_threshold",
            "Thresholds of the reuse decision that are in force, by name (answer, verify).",
            ["name"],
            registry=registry,
        )
        self.threshold_loads = Counter(
            "antiphon_thresholds_file_reads_total",
            "Reads of the operator's thresholds file after a change, by outcome (loaded, refused).",
            ["outcome"],
            registry=registry,
        )
        self.shadow_turns = Counter(
            "antiphon_shadow_turns_total",
            "Turns observed in shadow mode, by what would have been reused and how the stored answer compares with the "
            "real one (agree, differ, unclear, none).",
            ["reuse", "verdict"],
            registry=registry,
        )
        self.shadow_dropped = Counter(
            "antiphon_shadow_dropped_total",
            "Turns that shadow mode could not observe or write down, by why (queue, file, error).",
            ["why"],
            registry=registry,
        )
        self.refused = Counter(
            "antiphon_requests_refused_total",
            "Requests that were over a limit of the settings, by status of the reply.",
            ["status"],
            registry=registry,
        )
        self.checks = Counter(
            "antiphon_checks_total",
            "Answers compared with fresh ones, by what was checked (hit, suspect, miss: a candidate not served) and "
            "outcome.",
            ["source", "outcome"],
            registry=registry,
        )
        self.in_flight = Gauge("antiphon_requests_in_flight", "Requests being served.", registry=registry)
        self.ready = Gauge("antiphon_ready", "1 when ready, 0 when not.", registry=registry)
        self.degraded = Gauge("antiphon_degraded", "1 while requests are only passed through.", registry=registry)

        self.backend_reachable = Gauge(
            "antiphon_backend_reachable",
            "1 while the backend takes connections, 0 while not, NaN before the first try.",
            registry=registry,
        )
        self.see_backend(None)

        self._store = _StoreCollector()
        registry.register(self._store)
        ProcessCollector(registry=registry)  # memory, CPU, open files of this process, under their usual names

        self._request = functools.lru_cache(maxsize=512)(lambda reuse, endpoint: self.requests.labels(reuse, endpoint))
        self._reason = functools.lru_cache(maxsize=512)(lambda reuse, reason: self.reasons.labels(reuse, reason))
        self.exact_seconds = self.lookup_seconds.labels("exact")
        self.search_seconds = self.lookup_seconds.labels("search")
        self.canonical_seconds = self.lookup_seconds.labels("canonical")
        self._saved_prompt = self.tokens_saved.labels("prompt")
        self._saved_completion = self.tokens_saved.labels("completion")
        self._cached = self.prompt_tokens.labels("cached")
        self._prefilled = self.prompt_tokens.labels("prefilled")
        self._unknown = self.prompt_tokens.labels("unknown")
        self.tally = Tally()
        self.counted = 0
        """Requests since the start, of all kinds."""

    def request(self, reuse: Level, endpoint: str, reason: str) -> None:
        """Count one request. ``endpoint`` and ``reason`` must come from a small fixed set, never from a client."""
        self.counted += 1
        self._request(reuse, endpoint).inc()
        self._reason(reuse, reason).inc()

    def saved(self, prompt_tokens: int, completion_tokens: int, seconds: float) -> None:
        """Count what a served answer spared the backend: tokens, and the seconds it had once taken."""
        self.tally.answers += 1
        self.tally.answer_prompt_tokens += max(0, prompt_tokens)
        self.tally.answer_completion_tokens += max(0, completion_tokens)
        self._saved_prompt.inc(max(0, prompt_tokens))
        self._saved_completion.inc(max(0, completion_tokens))
        self.seconds_saved.inc(max(0.0, seconds))

    def prefilled(self, prompt_tokens: int, cached_tokens: int | None, *, turns_replaced: int = 0) -> None:
        """Count the prompt tokens of a forwarded request; ``cached_tokens`` of them were in the backend's KV cache.

        ``None``: the backend does not tell.
        """
        prompt = max(0, prompt_tokens)
        self.tally.forwarded += 1
        if turns_replaced:
            self.turns_replaced.inc(turns_replaced)
            self.tally.canonical += 1
            self.tally.turns_replaced += turns_replaced
        if cached_tokens is None:
            self._unknown.inc(prompt)
            self.tally.unknown += 1
            self.tally.unknown_tokens += prompt
            return
        cached = min(max(0, cached_tokens), prompt)
        self._cached.inc(cached)
        self._prefilled.inc(prompt - cached)
        self.tally.cached_tokens += cached
        self.tally.prefilled_tokens += prompt - cached
        if turns_replaced:
            self.canonical_tokens.labels("cached").inc(cached)
            self.canonical_tokens.labels("prefilled").inc(prompt - cached)
            self.tally.canonical_cached_tokens += cached
            self.tally.canonical_prefilled_tokens += prompt - cached

    def broke(self, cause: str, tokens: int) -> None:
        """Count a request whose prefix broke off, and the (estimated) tokens behind the break."""
        self.prefix_breaks.labels(cause).inc()
        self.prefix_break_tokens.labels(cause).inc(max(0, tokens))
        requests, lost = self.tally.breaks.get(cause, (0, 0))
        self.tally.breaks[cause] = (requests + 1, lost + max(0, tokens))

    def cache_error(self, kind: ErrorKind) -> None:
        """Count a failure inside the cache."""
        self.cache_errors.labels(kind).inc()

    def timed(self, embedder: TextEmbedder) -> TextEmbedder:
        """The same embedder, with its time counted."""
        return _Timed(embedder, self.embed_seconds)

    def see_backend(self, reachable: bool | None) -> None:
        """Take over whether the backend took the last connection; ``None``: not tried yet."""
        self.backend_reachable.set(math.nan if reachable is None else reachable)

    def see_breakers(self, breakers: Mapping[str, tuple[BreakerState, int]]) -> None:
        """Take over which parts of the look-up are pausing, and how often they were."""
        self._store.breakers = breakers

    def see_store(self, stats: StoreStats) -> None:
        """Take over the store's own numbers; they are reported until the next call."""
        self._store.stats = stats

    def text(self) -> bytes:
        """Everything in the Prometheus text format."""
        return generate_latest(self.registry)


@dataclass(slots=True)
class Tally:
    """What this process has counted, for ``/antiphon/stats``. Measured, all but ``breaks``."""

    answers: int = 0
    answer_prompt_tokens: int = 0
    answer_completion_tokens: int = 0
    forwarded: int = 0
    cached_tokens: int = 0
    prefilled_tokens: int = 0
    unknown: int = 0  # requests whose backend does not tell what it had cached
    unknown_tokens: int = 0
    canonical: int = 0
    turns_replaced: int = 0
    canonical_cached_tokens: int = 0
    canonical_prefilled_tokens: int = 0
    breaks: dict[str, tuple[int, int]] = field(default_factory=dict)  # cause → requests, estimated tokens

    def as_json(self) -> dict[str, Any]:
        """Savings in two kinds that are never added up, and what is only estimated apart from both."""
        return {
            "answers_not_generated": {
                "answers": self.answers,
                "prompt_tokens": self.answer_prompt_tokens,
                "completion_tokens": self.answer_completion_tokens,
                "basis": "what the backend counted when it generated these answers",
            },
            "tokens_not_prefilled": {
                "requests": self.forwarded,
                "prompt_tokens": self.cached_tokens + self.prefilled_tokens,
                "cached_tokens": self.cached_tokens,
                "prefilled_tokens": self.prefilled_tokens,
                "requests_not_reported": self.unknown,
                "prompt_tokens_not_reported": self.unknown_tokens,
                "with_canonical_history": {
                    "requests": self.canonical,
                    "turns_replaced": self.turns_replaced,
                    "cached_tokens": self.canonical_cached_tokens,
                    "prefilled_tokens": self.canonical_prefilled_tokens,
                },
                "basis": "what the backend reported for each forwarded request",
            },
            "prefix_breaks": {
                "causes": {
                    cause: {"requests": requests, "tokens": tokens}
                    for cause, (requests, tokens) in sorted(self.breaks.items())
                },
                "basis": "estimated from the length of texts",
            },
        }


class _Timed:
    """A `TextEmbedder` that counts its seconds."""

    def __init__(self, embedder: TextEmbedder, seconds: Histogram) -> None:
        self._embedder = embedder
        self._seconds = seconds

    @property
    def name(self) -> str:
        return self._embedder.name

    def encode(self, texts: Sequence[str]) -> list[Embedding | None]:
        with self._seconds.time():
            return self._embedder.encode(texts)


class _StoreCollector(Collector):
    """The store's numbers as it last told them."""

    def __init__(self) -> None:
        self.stats: StoreStats | None = None
        self.breakers: Mapping[str, tuple[BreakerState, int]] = {}

    def describe(self) -> Iterable[Metric]:
        return self._families(None)

    def collect(self) -> Iterable[Metric]:
        return self._families(self.stats) if self.stats is not None else self._parts()

    def _families(self, stats: StoreStats | None) -> Iterable[Metric]:
        entries = GaugeMetricFamily("antiphon_entries", "Stored answers by state.", labels=["state"])
        failures = CounterMetricFamily(
            "antiphon_store_failures", "Failures inside the store, by part and kind.", labels=["kind"]
        )
        for state, number in (stats.by_state if stats else {}).items():
            entries.add_metric([state], number)
        for kind, number in (stats.failures if stats else {}).items():
            failures.add_metric([kind], number)
        unserved = GaugeMetricFamily(
            "antiphon_unserved_entries",
            "Stored answers that are not served for a time, by why (barred: checks failed; unsettled: answers change).",
            labels=["why"],
        )
        if stats is not None:
            unserved.add_metric(["barred"], stats.barred)
            unserved.add_metric(["unsettled"], stats.unsettled)
        yield unserved
        yield from _budget(stats)
        gauges = (
            ("antiphon_suspect_wordings", "Reworded turns that are not verified yet.", "suspects"),
            ("antiphon_write_queue_depth", "Writes waiting for the store's writer.", "queued_writes"),
            ("antiphon_indexed_vectors", "Vectors in the index.", "indexed"),
            ("antiphon_store_bytes", "Bytes of the database on disk.", "database_bytes"),
            ("antiphon_epoch", "The store's epoch: how often everything was made unreachable at once.", "epoch"),
            ("antiphon_store_memory_bytes", "Bytes of answers kept in memory.", "memory_bytes"),
        )
        yield entries
        yield failures
        yield from self._parts()
        yield CounterMetricFamily(
            "antiphon_index_rebuilds",
            "How often the vector index was made anew in the background.",
            value=stats.index_rebuilds if stats else None,
        )
        for name, text, attribute in gauges:
            yield GaugeMetricFamily(name, text, value=getattr(stats, attribute) if stats else None)

    def _parts(self) -> Iterable[Metric]:
        """What is known without the database."""
        breakers = GaugeMetricFamily(
            "antiphon_breaker_open",
            "1 while a part of the look-up is not tried after failures, by part (read, embed, decide).",
            labels=["part"],
        )
        trips = CounterMetricFamily(
            "antiphon_breaker_trips", "How often a part of the look-up was given a pause, by part.", labels=["part"]
        )
        for part, (now, number) in self.breakers.items():
            breakers.add_metric([part], now != "closed")
            trips.add_metric([part], number)
        yield breakers
        yield trips


def _budget(stats: StoreStats | None) -> Iterable[Metric]:
    """What is known of each kind of hit; a rate nobody observed, and a threshold nobody reaches, are left out."""
    families = {
        "rate": GaugeMetricFamily(
            "antiphon_wrong_hit_rate",
            "Observed share of wrong hits at the threshold in force, by kind.",
            labels=["kind"],
        ),
        "bound": GaugeMetricFamily(
            "antiphon_wrong_hit_bound", "Upper bound of that share, by kind of hit.", labels=["kind"]
        ),
        "threshold": GaugeMetricFamily(
            "antiphon_hit_threshold", "Least reuse confidence that is served now, by kind of hit.", labels=["kind"]
        ),
        "observations": GaugeMetricFamily(
            "antiphon_checked_decisions", "Checked decisions that count as evidence, by kind of hit.", labels=["kind"]
        ),
    }
    limit = GaugeMetricFamily("antiphon_wrong_hit_limit", "The operator's error budget, where one is set (0 to 1).")
    if stats is not None and stats.wrong_hits_limit is not None:
        limit.add_metric([], stats.wrong_hits_limit)
    for report in stats.budget if stats is not None else ():
        for name, family in families.items():
            value = getattr(report, name)
            if value is not None:
                family.add_metric([report.kind], value)
    return [*families.values(), limit]


def metric_names() -> dict[str, str]:
    """Every metric with its help text, for the documentation."""
    return {
        (family.name + "_total" if family.type == "counter" else family.name): family.documentation
        for family in _described()
    }


def _described() -> Iterable[Metric]:
    yield from Metrics().registry.collect()
    yield from _StoreCollector().describe()
