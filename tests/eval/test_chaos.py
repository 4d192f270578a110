"""Whatever fails, nothing acknowledged is lost and no request fails that the backend would have answered."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from eval.chaos.report import filled, table
from eval.chaos.scenarios import SCENARIOS
from eval.chaos.stand import Got

# Enough for each fault to happen; `python -m eval.chaos` takes its time.
SCALE = {"soak": 0.1, "slow_clients": 0.05}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_what_the_scenario_claims_holds(name: str) -> None:
    outcome = asyncio.run(SCENARIOS[name](SCALE.get(name, 0.2)))
    if "left out" in outcome.figures:
        pytest.skip(str(outcome.figures["left out"]))
    assert outcome.claims
    assert [claim for claim, holds in outcome.claims.items() if not holds] == [], outcome.figures


def test_an_answer_to_another_question_or_half_of_one_is_not_right() -> None:
    def got(question: str, body: bytes, kind: str = "application/json", status: int = 200) -> Got:
        return Got(question, status, {"content-type": kind}, body, 0.0, 0.0)

    whole = b'{"choices": [{"message": {"content": "[a 1] is answered by number 7."}}]}'
    events = b'data: {"choices": [{"delta": {"content": "[a 1] is answered"}}]}\n\n'
    assert got("a 1", whole).right
    assert got("a 1", events + b"data: [DONE]\n\n", "text/event-stream").right
    assert not got("a 2", whole).right
    assert not got("a 1", whole[:-4]).right
    assert not got("a 1", events, "text/event-stream").right
    assert not got("a 1", whole, status=502).right


def test_the_documentation_shows_the_committed_report() -> None:
    root = Path(__file__).resolve().parents[2]
    page = (root / "docs" / "faults.md").read_text()
    report = json.loads((root / "docs" / "results" / "chaos.json").read_text())
    assert filled(page, report) == page
    assert set(report) == {*SCENARIOS, "taken"}
    for name in SCENARIOS:
        assert f"| `{name}` | " in page


def test_a_claim_that_does_not_hold_is_named_in_the_report() -> None:
    outcome = {"holds": False, "claims": {"a": True, "b": False}, "figures": {"ms": {"n": 2, "p50": 1.0, "p95": 2.0}}}
    taken = {"commit": "c", "date": "d", "cores": 2, "machine": "m", "python": "p", "load_before": 1}
    shown = table({"x": outcome, "taken": taken})
    assert "| `x` | 1 of 2; not: b | ms p50 1.0, p95 2.0 (n 2) |" in shown
