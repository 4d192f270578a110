"""Served answers are asked again at the real SGLang, behind everybody else's requests."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import MODEL_NAME, proxy_process
from tests.processes import Running

pytestmark = pytest.mark.backend

PATIENCE_S = 240.0


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.2)


def test_an_exact_repeat_is_checked_agrees_and_is_evidence(backend: Running, tmp_path: Path) -> None:
    flags = ["verification.enabled=true", "verification.sample_rate=1", "verification.max_per_minute=600"]
    flags += ["verification.priority=-1"]  # without priority scheduling SGLang takes no notice of it
    with proxy_process(tmp_path, backend.url, *(part for flag in flags for part in ("--set", flag))) as proxy:

        def stats() -> dict[str, Any]:
            found: dict[str, Any] = httpx.get(f"{proxy.url}/antiphon/stats", timeout=60).json()
            return {one["kind"]: one for one in found["budget"]}

        body = {
            "model": MODEL_NAME,
            "messages": [{"role": "user", "content": "What is the capital of France?"}],
            "temperature": 0,
            "max_tokens": 60,
        }
        url = f"{proxy.url}/v1/chat/completions"
        first = httpx.post(url, json=body, timeout=PATIENCE_S)
        assert first.headers["x-antiphon-reuse"] == "miss"
        until(lambda: httpx.post(url, json=body, timeout=PATIENCE_S).headers["x-antiphon-reuse"] == "answer")
        until(lambda: stats()["exact"]["observations"] >= 1)
        assert stats()["exact"]["wrong"] == 0  # greedy decoding says the same again
        assert 'antiphon_checks_total{outcome="agree",source="hit"}' in httpx.get(f"{proxy.url}/antiphon/metrics").text
