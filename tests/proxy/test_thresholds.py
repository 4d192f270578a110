"""The thresholds file under a running proxy: taken at once, never loosened by a broken one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.proxy.support import Proxy, running_proxy, until

# The backend's version is asked for at the start, and a busy machine makes no miss of a hit.
SURE: dict[str, Any] = {
    "upstream": {"version_interval_s": 60},
    "store": dict.fromkeys(("lookup_deadline_ms", "embed_deadline_ms", "decide_deadline_ms"), 20_000),
}
NEAR = ("where is the museum shop", "where is the museum shop inside")  # similarity about 0.9


@pytest.fixture(scope="module")
def backend(scripted_upstream_module: ModuleType) -> Iterator[Any]:
    upstream = scripted_upstream_module.ScriptedUpstream()
    yield upstream
    upstream.close()


def write(file: Path, **changed: Any) -> None:
    row = {"format": "antiphon-thresholds-1", "model": "near-enough", "answer": 0.7, "verify": 0.5}
    new = file.with_suffix(".new")
    new.write_text(json.dumps(row | changed))
    new.replace(file)


def answer(proxy: Proxy) -> float:
    return float(proxy.app.state.cache.policy.answer)


def store(proxy: Proxy, question: str) -> None:
    """Ask, and wait until the answer can be found by meaning."""
    before = len(proxy.app.state.cache._index)
    proxy.ask(question)
    until(lambda: len(proxy.app.state.cache._index) > before)


def settings(file: Path) -> dict[str, Any]:
    return {"thresholds_file": file, "thresholds_interval_s": 0.05}


def test_a_changed_file_counts_from_the_next_turn_and_a_broken_one_changes_nothing(
    backend: Any, tmp_path: Path
) -> None:
    file = tmp_path / "mine.json"
    write(file, answer=0.999)
    with running_proxy(backend.url, **SURE, decision=settings(file)) as proxy:
        assert answer(proxy) == 0.999
        store(proxy, NEAR[0])
        assert proxy.ask(NEAR[1]).reuse != "answer"
        write(file, answer=0.6)
        until(lambda: answer(proxy) == 0.6)
        store(proxy, "where is the town hall")
        assert proxy.ask("where is the town hall inside").reuse == "answer"

        file.write_text("{")
        until(lambda: proxy.app.state.readiness.state == "degraded")
        assert str(file) in proxy.app.state.readiness.why
        assert answer(proxy) == 0.6
        assert b'antiphon_thresholds_file_reads_total{outcome="refused"} 1.0' in proxy.app.metrics.text()

        file.unlink()  # gone: still the old one
        until(lambda: "cannot be read" in proxy.app.state.readiness.why)
        assert answer(proxy) == 0.6

        write(file, answer=0.8)
        until(lambda: proxy.app.state.readiness.state == "ready")
        assert answer(proxy) == 0.8


def test_with_a_broken_file_at_the_start_only_exact_repeats_are_served(backend: Any, tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    write(file, model="another-model")
    with running_proxy(backend.url, **SURE, decision=settings(file)) as proxy:
        assert "only exact repeats" in proxy.app.state.readiness.why
        store(proxy, NEAR[0])
        assert proxy.ask(NEAR[0]).reuse == "answer"
        assert proxy.ask(NEAR[1]).reuse != "answer"
        write(file)
        until(lambda: proxy.app.state.readiness.state == "ready")
        assert proxy.ask("where is the museum shop really").reuse == "answer"


def test_a_curve_in_the_file_corrects_the_confidence(backend: Any, tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    write(file, correction={"scores": [0, 1], "probabilities": [0, 0.4]})
    with running_proxy(backend.url, **SURE, decision=settings(file)) as proxy:
        store(proxy, NEAR[0])
        got = proxy.ask(NEAR[1])
        assert got.reuse != "answer" and 0 < float(got.headers["x-antiphon-confidence"]) <= 0.4


def test_thresholds_that_are_set_go_before_the_file(backend: Any, tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    write(file, answer=0.6)
    with running_proxy(backend.url, **SURE, decision=settings(file) | {"answer": 0.95}) as proxy:
        assert answer(proxy) == 0.95
