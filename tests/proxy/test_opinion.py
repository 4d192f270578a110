"""Asking the backend: one token, within a deadline; whatever goes wrong is a no."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from proxy.metrics import Metrics
from proxy.opinion import BackendOpinion
from proxy.settings import DecisionSettings, UpstreamSettings
from store.opinion import NoOpinion
from tests.store.support import ask

Handler = Callable[[dict[str, Any], Request], Awaitable[Response]]


@asynccontextmanager
async def backend(handle: Handler) -> AsyncIterator[str]:
    """A real HTTP server that answers chat completions by ``handle``."""

    async def chat(request: Request) -> Response:
        return await handle(json.loads(await request.body()), request)

    app = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off"))
    running = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn tells in no other way
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await running


def says(*words: tuple[str, float]) -> JSONResponse:
    top = [{"token": token, "logprob": logprob} for token, logprob in words]
    return JSONResponse({"choices": [{"logprobs": {"content": [{"top_logprobs": top}]}}]})


async def opinion_of(url: str, metrics: Metrics, **changed: Any) -> float:
    settings = DecisionSettings(verifier="backend", **{"verifier_deadline_ms": 20_000.0, **changed})
    opinion = BackendOpinion(settings, UpstreamSettings(url=url), metrics)
    try:
        return await opinion.serves(ask("what now?"), ask("what next?").turn, "this")
    finally:
        await opinion.close()


def counted(metrics: Metrics, said: str) -> float:
    return metrics.registry.get_sample_value("antiphon_verifier_total", {"said": said}) or 0.0


async def test_one_token_with_its_probabilities_is_asked_for() -> None:
    seen: list[tuple[dict[str, Any], str | None]] = []

    async def handle(body: dict[str, Any], request: Request) -> Response:
        seen.append((body, request.headers.get("authorization")))
        return says(("yes", -0.01), ("no", -5.0))

    metrics = Metrics()
    async with backend(handle) as url:
        probability = await opinion_of(url, metrics, verifier_least=0.9, verifier_api_key=SecretStr("k"))
    assert probability > 0.99
    ((body, key),) = seen
    assert (body["max_tokens"], body["logprobs"], body["temperature"], body["model"]) == (1, True, 0, "small")
    assert key == "Bearer k"
    assert counted(metrics, "yes") == 1


async def test_the_calibration_is_applied_and_a_low_probability_is_counted_as_no() -> None:
    async def handle(body: dict[str, Any], request: Request) -> Response:
        return says(("yes", -0.01), ("no", -5.0))

    metrics = Metrics()
    async with backend(handle) as url:
        assert await opinion_of(url, metrics, verifier_slope=0.0, verifier_intercept=-2.0) == pytest.approx(
            0.1192, abs=1e-3
        )
    assert counted(metrics, "no") == 1


@pytest.mark.parametrize("kind", ["500", "not json", "a list", "no words", "slow", "gone"])
async def test_whatever_goes_wrong_is_no_opinion(kind: str) -> None:
    async def handle(body: dict[str, Any], request: Request) -> Response:
        if kind == "slow":
            await asyncio.sleep(5)
        replies: dict[str, Response] = {
            "500": Response(status_code=500),
            "not json": Response("<html>"),
            "a list": JSONResponse([]),
            "no words": says(("The", -0.1)),
        }
        return replies.get(kind, says(("yes", -0.1)))

    metrics = Metrics()
    async with backend(handle) as url:
        where = "http://127.0.0.1:9" if kind == "gone" else url
        deadline_ms = 100.0 if kind == "slow" else 20_000.0
        with pytest.raises(NoOpinion):
            await opinion_of(where, metrics, verifier_deadline_ms=deadline_ms)
    assert counted(metrics, "none") + counted(metrics, "failed") == 1
