"""Asks the backend whether a stored answer serves a turn (`store.opinion`). Off unless `decision.verifier` says so."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import httpx

from fingerprint.conversation import Turn
from proxy.metrics import Metrics
from proxy.settings import DecisionSettings, UpstreamSettings
from store.opinion import NoOpinion, Scale, messages_of, yes_share
from store.types import Query

__all__ = ["BackendOpinion"]

_TOP: Final = 20  # likeliest words that are read; OpenAI's limit
_AT_ONCE: Final = 4


class BackendOpinion:
    """One token from the backend, with its log-probabilities. A `store.opinion.Opinion`."""

    def __init__(self, decision: DecisionSettings, upstream: UpstreamSettings, metrics: Metrics) -> None:
        self.least = decision.verifier_least
        self._model = decision.verifier_model
        self._scale = Scale(decision.verifier_slope, decision.verifier_intercept)
        self._deadline_s = decision.verifier_deadline_ms / 1000
        self._metrics = metrics
        self._places = asyncio.Semaphore(_AT_ONCE)
        key = decision.verifier_api_key
        self._client = httpx.AsyncClient(
            base_url=upstream.url,
            headers={} if key is None else {"authorization": f"Bearer {key.get_secret_value()}"},
            timeout=self._deadline_s,
            verify=upstream.verify_tls,
            trust_env=False,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def serves(self, query: Query, stored: Turn, answer: str) -> float:
        """Return the calibrated probability that ``answer`` serves. Raises `NoOpinion`, for whatever reason."""
        try:
            share = yes_share(await self._ask(query, stored, answer))
        except NoOpinion:
            self._metrics.opinions.labels("none").inc()
            raise
        except (httpx.HTTPError, TimeoutError, ValueError) as error:
            self._metrics.opinions.labels("failed").inc()
            raise NoOpinion(type(error).__name__) from None
        probability = self._scale(share)
        self._metrics.opinions.labels("yes" if probability >= self.least else "no").inc()
        return probability

    async def _ask(self, query: Query, stored: Turn, answer: str) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model or query.parts.model,
            "messages": messages_of(query.turn, stored, answer),
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": True,
            "top_logprobs": _TOP,
        }
        async with asyncio.timeout(self._deadline_s), self._places:
            reply = await self._client.post("/v1/chat/completions", json=body)
            reply.raise_for_status()
            found: Any = reply.json()
        if not isinstance(found, dict):
            raise NoOpinion("the reply is no object")
        return found
