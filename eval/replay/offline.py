"""A log through the decision code, with the recorded answers for the truth: shadow mode after the fact."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import msgspec

from eval.admission import Rules, admit
from eval.traffic import LoggedTurn
from fingerprint.embedding.base import TextEmbedder
from store.cache import Cache
from store.settings import StoreSettings
from store.shadow import Observation, bypassed, follow, observe
from store.types import Answer, Policy, ReuseConfidence

__all__ = ["replay"]

_STEP_S = 1.0  # between turns of a log without times
_BODY = b'{"object":"chat.completion"}'


async def replay(
    turns: Sequence[LoggedTurn],
    *,
    url: str,
    embedder: TextEmbedder,
    confidence: ReuseConfidence,
    policy: Policy,
    settings: StoreSettings | None = None,
    rules: Rules | None = None,
    begin: int = 0,
) -> AsyncIterator[Observation]:
    """Yield an observation for each turn from number ``begin`` on, one after another, each committed before.

    ``url`` is the store's, as the turns before ``begin`` have left it. Raises the errors of `store.errors`.
    """
    rules = rules or Rules()
    now = 0.0

    def clock() -> float:
        return now

    patient = (settings or StoreSettings.model_validate({})).model_copy(
        update={
            "url": url,
            "lookup_deadline_ms": 60_000.0,
            "embed_deadline_ms": 60_000.0,
            "decide_deadline_ms": 60_000.0,
            "write_queue_size": 1_000_000,
            "max_entries": max(10_000, 2 * len(turns)),
        }
    )
    times: list[float] = []
    for turn in turns:
        now = max(now, turn.time) if turn.time is not None else now + _STEP_S
        times.append(now)
    now = times[begin] if begin < len(times) else now
    cache = await Cache.open(patient, embedder=embedder, confidence=confidence, policy=policy, clock=clock)
    try:
        for number in range(begin, len(turns)):
            now = times[number]
            yield await _one(cache, turns[number], number, now, rules, embedder.name)
    finally:
        await cache.close()


async def _one(cache: Cache, logged: LoggedTurn, number: int, now: float, rules: Rules, embedder: str) -> Observation:
    record = logged.record
    admitted = admit(logged, rules, embedder=embedder, decision=cache.confidence.version)
    query = admitted.query
    name = f"{number}"
    if admitted.correction:
        await cache.correct(query)
    if admitted.bypass is not None:
        seen = bypassed(admitted.bypass, now=now, session=logged.conversation, model=record.model or "")
        return msgspec.structs.replace(seen, id=name)
    answer: Answer | None = None
    if logged.complete and logged.answer is not None:
        answer = Answer(
            body=_BODY,
            text=logged.answer,
            prompt_tokens=record.prompt_tokens or 0,
            completion_tokens=record.completion_tokens or 0,
            seconds=record.seconds or 0.0,
        )
    if cache.served_before(query):  # the same session asks for another answer
        seen = Observation(time=now, level="miss", reason="regenerate", model=record.model or "")
        hit = None
    else:
        seen, hit = await observe(cache, query, answer, now=now, name=name)
    if hit is not None:
        follow(cache, query, hit, answer)
    elif answer is not None:
        cache.record(query, answer)
    await cache.flush()  # so that what comes next finds it, whatever the machine is busy with
    return msgspec.structs.replace(seen, session=logged.conversation, id=name)
