"""What the proxy must not take away: the real SGLang's own endpoints, its counts, and the news that a client left."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import httpx
import pytest
from openai import OpenAI

from tests.conftest import MODEL_NAME
from tests.e2e.conftest import Chat
from tests.processes import Running

pytestmark = pytest.mark.backend

PATIENCE_S = 30.0  # far less than the model would need for what it is asked to write below


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/models", None),
        ("POST", "/tokenize", {"prompt": "antiphon"}),
        ("POST", "/v1/chat/completions", {"model": MODEL_NAME, "messages": "not a list"}),
    ],
)
def test_other_paths_and_errors_come_through_as_they_are(
    proxy: Running, backend: Running, method: str, path: str, body: dict[str, object] | None
) -> None:
    direct = httpx.request(method, backend.url + path, json=body)
    through = httpx.request(method, proxy.url + path, json=body)
    assert through.status_code == direct.status_code
    assert without_times(through.json()) == without_times(direct.json())


def without_times(value: object) -> object:
    """JSON without the moments that differ between two calls."""
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key != "created"}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def test_model_info_tells_the_weights_version(proxy: Running) -> None:
    info = httpx.get(proxy.url + "/model_info").json()
    assert info["weight_version"] == "w1"
    assert info["served_model_name"] == MODEL_NAME


def test_a_forwarded_answer_tells_how_much_of_its_prompt_the_backend_had_cached(proxy: Running) -> None:
    rules = "You help the guests of a hotel. " + " ".join(f"Room {n} is on floor {n // 100}." for n in range(101, 131))
    cached = []
    with OpenAI(base_url=f"{proxy.url}/v1", api_key="hotel") as client:
        for question in ("Where is room 105?", "Is there a gym in the house?"):
            reply = client.chat.completions.create(
                model=MODEL_NAME,
                temperature=0,
                max_tokens=8,
                messages=[{"role": "system", "content": rules}, {"role": "user", "content": question}],
            )
            assert reply.usage and reply.usage.prompt_tokens_details
            cached.append((reply.usage.prompt_tokens_details.cached_tokens or 0) / reply.usage.prompt_tokens)
    assert cached[1] > 0.9


async def test_a_client_that_leaves_frees_the_backend(proxy: Running, backend: Running) -> None:
    body = {
        "model": MODEL_NAME,
        "messages": [{"role": "user", "content": "Write a very long story about the sea."}],
        "stream": True,
        "ignore_eos": True,
        "max_tokens": 4000,
    }
    async with httpx.AsyncClient(timeout=60) as client:
        async with client.stream("POST", proxy.url + "/v1/chat/completions", json=body) as reply:
            lines = reply.aiter_lines()
            for _ in range(8):
                await anext(lines)
            await until(client, backend, lambda running: running == 1)
        await until(client, backend, lambda running: running == 0)


async def until(client: httpx.AsyncClient, backend: Running, good: Callable[[int], bool]) -> None:
    """Wait until the backend runs as many requests as it should."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        loads = (await client.get(backend.url + "/v1/loads")).json()
        running = loads["loads"][0]["num_running_reqs"]
        if good(running):
            return
        assert time.monotonic() < deadline, f"the backend still runs {running} requests"
        await asyncio.sleep(0.2)


async def test_new_weights_make_old_answers_unreachable(backend: Running, chat: Callable[[], Chat]) -> None:
    question = "What is the capital of Spain?"
    await chat().ask(question)
    assert (await chat().ask(question)).reuse == "answer"
    await set_weights_version(backend, "w2")
    try:
        await chat().ask("What is the capital of Portugal?")  # its reply names the new version
        deadline = time.monotonic() + PATIENCE_S
        while (await chat().ask(question, "stream")).reuse == "answer":
            assert time.monotonic() < deadline, "the old weights' answer is still served"
            await asyncio.sleep(0.2)
    finally:
        await set_weights_version(backend, "w1")


async def set_weights_version(backend: Running, version: str) -> None:
    """Have the backend say that it serves other weights."""
    async with httpx.AsyncClient() as client:
        answer = await client.post(backend.url + "/update_weight_version", json={"new_version": version})
        answer.raise_for_status()
