"""New weights under load: from the moment the proxy knows, nobody gets an answer of the old ones."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import httpx
import pytest

from tests.conftest import MODEL_NAME
from tests.e2e.conftest import SYSTEM
from tests.e2e.test_backend import set_weights_version
from tests.processes import Running

pytestmark = [pytest.mark.backend, pytest.mark.slow]

WORKERS = 6
QUESTIONS = [
    "What is the capital of Norway?",
    "What colour is the sky on a clear day?",
    "Which animal says meow?",
    "What do bees make?",
    "Name the planet we live on.",
]
LEARNS_WITHIN_S = 30.0  # far more than the interval between two looks, on a machine that has other work


@dataclass(frozen=True)
class Seen:
    """One answer."""

    asked_at: float
    reuse: str
    entry: str | None


async def ask(client: httpx.AsyncClient, question: str, *, stream: bool) -> Seen:
    asked_at = time.monotonic()
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    body = {"model": MODEL_NAME, "messages": messages, "temperature": 0, "max_tokens": 60, "stream": stream}
    reply = await client.post("/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    return Seen(asked_at, reply.headers["x-antiphon-reuse"], reply.headers.get("x-antiphon-entry"))


async def version_lines(client: httpx.AsyncClient) -> list[dict[str, object]]:
    found = await client.get("/antiphon/audit-log", params={"action": "version"})
    return list(found.json()["audit"])


async def test_no_old_answer_after_the_switch_under_load(proxy: Running, backend: Running) -> None:
    seen: list[Seen] = []
    stop = asyncio.Event()
    limits = httpx.Limits(max_connections=2 * WORKERS)
    async with httpx.AsyncClient(base_url=proxy.url, timeout=180, limits=limits) as client:

        async def work(number: int) -> None:
            turn = number
            while not stop.is_set():
                seen.append(await ask(client, QUESTIONS[turn % len(QUESTIONS)], stream=bool(turn % 2)))
                turn += 1
                await asyncio.sleep(0.02)

        for question in QUESTIONS:
            await ask(client, question, stream=False)
        known = len(await version_lines(client))
        workers = [asyncio.create_task(work(number)) for number in range(WORKERS)]
        try:
            warm = time.monotonic()
            while sum(one.reuse == "answer" for one in seen) < 50:
                assert time.monotonic() - warm < 170, "nothing is served"
                await asyncio.sleep(0.05)
            switched = time.monotonic()
            await set_weights_version(backend, "under-load-2")
            while len(await version_lines(client)) == known:
                assert time.monotonic() - switched < LEARNS_WITHIN_S, "the proxy has not heard of the switch"
                await asyncio.sleep(0.02)
            learned = time.monotonic()
            while sum(one.reuse == "answer" and one.asked_at > learned for one in seen) < 50:
                assert time.monotonic() - learned < 170, "nothing is served of the new weights"
                await asyncio.sleep(0.05)
        finally:
            stop.set()
            done = await asyncio.gather(*workers, return_exceptions=True)
            await set_weights_version(backend, "w1")
        assert not [one for one in done if isinstance(one, BaseException)]

        versions: dict[str, str] = {}
        for entry in {one.entry for one in seen if one.reuse == "answer" and one.entry is not None}:
            row = (await client.get(f"/antiphon/entries/{entry}")).json()
            versions[entry] = row["parts"]["weights_version"]
    old = [one for one in seen if one.reuse == "answer" and one.asked_at < switched]
    new = [one for one in seen if one.reuse == "answer" and one.asked_at > learned]
    assert all(versions[str(one.entry)].startswith("w1@") for one in old)
    assert len(new) >= 50
    assert {versions[str(one.entry)].partition("@")[0] for one in new} == {"under-load-2"}
    print(f"\nlearned after {learned - switched:.2f} s; {len(old)} hits before, {len(new)} after, {len(seen)} in all")
