"""Watches live traffic for what breaks prefixes (`fingerprint.hygiene`), and counts it."""

from __future__ import annotations

from typing import Final

import msgspec

from fingerprint.hygiene import Prefixes, prompt_of
from proxy.forwarding import Forwarded
from proxy.metrics import Metrics
from proxy.plans import Plan

__all__ = ["Hygiene"]

_MOST: Final = 64 * 1024  # bytes of a request that is looked at: reading it costs the event loop


class Hygiene:
    """Compares what is forwarded with what was forwarded before; keeps system prompts and tools in memory for that."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._prefixes = Prefixes(conversations=1024)

    def see(self, plan: Plan, sent: Forwarded, prompt_tokens: int | None) -> None:
        """Take one forwarded request; ``prompt_tokens`` as the backend counted them."""
        if not plan.endpoint.rewordable or len(sent.body) > _MOST:
            return
        # As the client sent the conversation: turns served from the cache in between were never forwarded, and what
        # was put into other words is no fault of the client's.
        found = self._prefixes.see(
            prompt_of(msgspec.json.decode(sent.plain)), scope=plan.base, prompt_tokens=prompt_tokens
        )
        for one in found:
            self._metrics.broke(one.cause, one.tokens)
