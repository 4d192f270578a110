"""What goes to the backend in place of a request: equal prefixes for what means the same (DESIGN §5).

Whatever goes wrong here, the request is forwarded as it came.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from proxy.metrics import Metrics
from proxy.plans import Plan
from proxy.rewrite import StableForms, rewritten
from proxy.settings import KvSettings
from store.canonical import Canonical, Reference, Replaced
from store.types import Decision, Query

if TYPE_CHECKING:
    from store.cache import Cache

__all__ = ["Forwarded", "Forwarder", "prompts"]

log = logging.getLogger(__name__)

_DECODE: Final = msgspec.json.Decoder().decode
# Members whose text stands in the prompt. Not `response_format`: it stands in none, and the order of its properties is
# the order in which they are generated.
_STABLE: Final = ("tools", "functions")
_AT_ONCE: Final = 128 * 1024  # bytes that are rewritten on the event loop
_QUIET_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Forwarded:
    """A body for the backend, and what was done to it."""

    body: bytes
    plain: bytes  # the same without anything done to its conversation
    replaced: tuple[Replaced, ...] = ()
    reference: str | None = None  # the entry whose question and answer stand before the new message
    ended: str = ""  # why not all of the history was looked at

    @property
    def changed(self) -> bool:
        """Whether the model sees another conversation than the client sent."""
        return bool(self.replaced) or self.reference is not None

    def untouched(self) -> Forwarded:
        """The request with the conversation as the client sent it."""
        return Forwarded(self.plain, self.plain, ended="refused by the backend")


class Forwarder:
    """Makes the bodies that go to the backend."""

    def __init__(self, settings: KvSettings, metrics: Metrics, *, fence_s: float) -> None:
        self._settings = settings
        self._metrics = metrics
        self._fence_s = fence_s
        self._forms = StableForms()
        self._logged = -_QUIET_S

    async def make(
        self,
        plan: Plan,
        raw: bytes,
        query: Query | None,
        cache: Cache | None,
        decision: Decision | None,
        *,
        salted: bool,
        with_usage: bool,
    ) -> Forwarded:
        """Return what to send for a request that was understood. Never raises for anything but cancellation."""
        members: dict[str, bytes] = {}
        plain = raw
        try:
            members = self._forms.members(plan.base, plan.body, raw, _STABLE) if self._settings.stable_bytes else {}
            if members:
                plain = rewritten(raw, texts={}, members=members)
        except Exception:
            self._failed()
        finished = plan.forward_body(plain, salted=salted, with_usage=with_usage)
        forwarded = Forwarded(finished, finished)
        if cache is None or query is None:
            return forwarded
        try:
            async with asyncio.timeout(self._fence_s):
                found, shown = await self._look(plan, query, cache, decision)
                if not found.replaced and shown is None:
                    return dataclasses.replace(forwarded, ended=found.ended)
                body = await self._write(plan, plain, found, shown)
            body = plan.forward_body(body, salted=salted, with_usage=with_usage)
            entry = decision.entry_id if shown is not None and decision is not None else None
            return Forwarded(body, finished, found.replaced, entry, found.ended)
        except Exception:
            self._failed()
            return forwarded

    async def _look(
        self, plan: Plan, query: Query, cache: Cache, decision: Decision | None
    ) -> tuple[Canonical, Reference | None]:
        found, shown = Canonical(), None
        history = query.turn.history
        if plan.canonical and history:
            began = time.perf_counter()
            # What a correction speaks against must not be put into other words.
            rounds = len(history) // 2 - 1 if plan.correction else None
            found = await cache.canonical(query, rounds=rounds)
            if not found.replaced and query.partition != plan.base:  # a personal turn after turns that are not
                found = await cache.canonical(dataclasses.replace(query, partition=plan.base), rounds=rounds)
            self._metrics.canonical_seconds.observe(time.perf_counter() - began)
        if self._settings.reference_turn and plan.canonical and _in_between(decision):
            assert decision is not None and decision.entry_id is not None
            shown = await cache.reference(query, decision.entry_id)
        return found, shown

    async def _write(self, plan: Plan, plain: bytes, found: Canonical, shown: Reference | None) -> bytes:
        leading = len(plan.turn.system) if plan.turn is not None else 0
        texts = {leading + one.index: one.text for one in found.replaced}
        before: tuple[dict[str, str], ...] = ()
        if shown is not None:
            before = ({"role": "user", "content": shown.question}, {"role": "assistant", "content": shown.answer})
        if len(plain) <= _AT_ONCE:
            return rewritten(plain, texts=texts, before_last=before)
        return await asyncio.to_thread(rewritten, plain, texts=texts, before_last=before)

    def _failed(self) -> None:
        self._metrics.cache_error("canonical")
        now = time.monotonic()
        if now - self._logged >= _QUIET_S:
            self._logged = now
            log.exception("a request is forwarded as it came: its history could not be put into the node's words")


def prompts(received: bytes, forwarded: Forwarded) -> dict[str, Any]:
    """Both prompts of a request, as ``explain`` shows them."""
    return {
        "received": _conversation(received),
        "forwarded": _conversation(forwarded.body),
        "turns_replaced": len(forwarded.replaced),
        "entries": [one.entry_id for one in forwarded.replaced],
        "reference": forwarded.reference,
        "ended": forwarded.ended,
    }


def _conversation(body: bytes) -> dict[str, Any]:
    value = _DECODE(body)
    return {name: value[name] for name in ("messages", "tools", "functions") if name in value}


def _in_between(decision: Decision | None) -> bool:
    """Whether the decision found something that is not sure enough, asked at this very place."""
    if decision is None or decision.level != "kv" or decision.entry_id is None:
        return False
    return any(one.entry_id == decision.entry_id and one.same_place for one in decision.judgements)
