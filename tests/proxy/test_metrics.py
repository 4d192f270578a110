"""What is counted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fingerprint.embedding import Embedding
from proxy.metrics import Metrics, metric_names
from store.rows import StoreStats


def values(metrics: Metrics) -> dict[tuple[str, tuple[str, ...]], float]:
    families = text_string_to_metric_families(metrics.text().decode())
    return {
        (sample.name, tuple(sorted(sample.labels.values()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_a_request_is_counted_by_reuse_endpoint_and_reason() -> None:
    metrics = Metrics()
    metrics.request("answer", "messages", "exact")
    metrics.request("answer", "messages", "exact")
    found = values(metrics)
    assert found["antiphon_requests_total", ("answer", "messages")] == 2
    assert found["antiphon_reasons_total", ("answer", "exact")] == 2


def test_savings_and_prefill_never_go_down() -> None:
    metrics = Metrics()
    metrics.saved(10, 5, 0.5)
    metrics.saved(-3, -1, -1.0)
    metrics.prefilled(100, 80)
    metrics.prefilled(10, 90)
    metrics.prefilled(-1, -1)
    found = values(metrics)
    assert found["antiphon_tokens_saved_total", ("prompt",)] == 10
    assert found["antiphon_tokens_saved_total", ("completion",)] == 5
    assert found["antiphon_backend_seconds_saved_total", ()] == 0.5
    assert found["antiphon_prompt_tokens_total", ("cached",)] == 90
    assert found["antiphon_prompt_tokens_total", ("prefilled",)] == 20


def test_two_apps_in_one_process_count_apart() -> None:
    one, other = Metrics(), Metrics()
    one.recorded.inc()
    assert values(one)["antiphon_answers_stored_total", ()] == 1
    assert values(other)["antiphon_answers_stored_total", ()] == 0


def test_the_stores_numbers_appear_once_it_has_told_them() -> None:
    metrics = Metrics()
    assert ("antiphon_write_queue_depth", ()) not in values(metrics)
    stats = StoreStats(
        entries=3, by_state={"active": 2, "retracted": 1}, expired=0, wordings=0, places=0, hits=0, tokens_saved=0,
        seconds_saved=0.0, indexed=2, buckets=1, in_memory=2, memory_bytes=10, database_bytes=4096, queued_writes=7,
        failures={"read.locked": 4}, breakers={"read": "open", "embed": "closed"}, breaker_trips={"read": 2},
        index_rebuilds=1, epoch=3,
    )  # fmt: skip
    metrics.see_breakers({"read": ("open", 2), "embed": ("closed", 0)})
    assert values(metrics)["antiphon_breaker_open", ("read",)] == 1  # whether or not the store can tell the rest
    metrics.see_store(stats)
    found = values(metrics)
    assert found["antiphon_entries", ("active",)] == 2
    assert found["antiphon_write_queue_depth", ()] == 7
    assert found["antiphon_store_failures_total", ("read.locked",)] == 4
    assert found["antiphon_breaker_open", ("read",)] == 1
    assert found["antiphon_breaker_open", ("embed",)] == 0
    assert found["antiphon_breaker_trips_total", ("read",)] == 2
    assert found["antiphon_index_rebuilds_total", ()] == 1
    assert found["antiphon_epoch", ()] == 3


def test_an_embedder_is_timed_and_otherwise_the_same() -> None:
    class Embedder:
        name = "space"

        def encode(self, texts: Sequence[str]) -> list[Embedding | None]:
            if not texts:
                raise ValueError("nothing")
            return [Embedding(np.ones(1, np.float32), "space") for _ in texts]

    metrics = Metrics()
    timed = metrics.timed(Embedder())
    assert timed.name == "space"
    assert len(timed.encode(["a", "b"])) == 2
    with pytest.raises(ValueError, match="nothing"):
        timed.encode([])
    assert values(metrics)["antiphon_embed_seconds_count", ()] == 2


@pytest.mark.parametrize(("name", "text"), sorted(metric_names().items()))
def test_every_metric_has_a_help_text_and_a_conventional_name(name: str, text: str) -> None:
    assert name.startswith(("antiphon_", "process_"))
    assert text.endswith(".")
