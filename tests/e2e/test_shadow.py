"""Shadow mode in front of the real SGLang: users get the model, and the estimate is what serving then does."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.conftest import proxy_process
from tests.e2e.conftest import Chat, Reply
from tests.processes import Running

pytestmark = pytest.mark.backend

STREAM = (
    ("What is the capital of France?", "And how many people live there?"),
    ("Can you tell me the capital of France?", "Thanks! And how many people live there?"),
    ("What is the capital of Italy?", "And how many people live there?"),
    ("What is the capital of France?", "And how many people live there?"),
    ("Which animals can fly?",),
    ("Which animals can not fly?",),
)

# A loaded machine must not make a miss of what would be a hit.
PATIENT = tuple(word for name in ("lookup", "embed", "decide") for word in ("--set", f"store.{name}_deadline_ms=30000"))


async def play(url: str) -> list[Reply]:
    replies = []
    for questions in STREAM:
        chat = Chat(url)
        for number, question in enumerate(questions):
            replies.append(await chat.ask(question, "stream" if number else "sync"))
            await asyncio.sleep(2.0)  # vectors and observations are made in the background
    return replies


async def test_the_model_answers_everybody_and_the_estimate_is_the_live_rate(backend: Running, tmp_path: Path) -> None:
    file = tmp_path / "shadow.jsonl"
    (tmp_path / "shadow").mkdir()
    (tmp_path / "live").mkdir()
    flags = ("--set", "rollout.mode=shadow", "--set", f"rollout.observations={file}")
    with proxy_process(tmp_path / "shadow", backend.url, *flags, *PATIENT) as proxy:
        watched = await play(proxy.url)
    with proxy_process(tmp_path / "live", backend.url, *PATIENT) as proxy:
        served = await play(proxy.url)
    assert {reply.reuse for reply in watched} == {"miss"}
    assert {reply.reason for reply in watched} == {"shadow"}
    seen = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(seen) == len(watched) == len(served)
    would_be, real = ([x == "answer" for x in xs] for xs in ([o["level"] for o in seen], [r.reuse for r in served]))
    assert would_be == real
    assert sum(real) >= 3
    # Repeats in the same words at temperature 0: the model says the same, and so it is found.
    exact = [o for o in seen if o.get("exact")]
    assert exact and all(o["verdict"] == "agree" for o in exact)
    assert all(o["answer"] for o in seen)
