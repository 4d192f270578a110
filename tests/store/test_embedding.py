"""The embedding service: once per text, turns first, and never longer than the deadline."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from fingerprint.embedding.base import Embedding
from store.embedding import (
    EmbedderBusy,
    EmbedderDown,
    EmbedderFailed,
    EmbedderSlow,
    EmbeddingService,
    EmbeddingUnavailable,
)

LONG = 30.0  # seconds; never reached where all is well


class Gate:
    """An embedder that notes what it is asked, may be held up, and may break."""

    name = "gate"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.open = threading.Event()
        self.open.set()
        self.begun = threading.Event()
        self.broken = False

    def encode(self, texts: Sequence[str]) -> list[Embedding | None]:
        self.asked.extend(texts)
        self.begun.set()
        self.open.wait()
        if self.broken:
            raise OSError("no such model")
        return [
            None if text == "unreadable" else Embedding(np.full(2, len(text), np.float32), self.name) for text in texts
        ]


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open.set()


@pytest.fixture
def serve(gate: Gate) -> Iterator[Callable[..., EmbeddingService]]:
    services: list[EmbeddingService] = []

    def make(**options: int | Callable[[], float]) -> EmbeddingService:
        services.append(EmbeddingService(gate, **options))  # type: ignore[arg-type]
        return services[-1]

    yield make
    gate.open.set()
    for service in services:
        service.close()


Serve = Callable[..., EmbeddingService]


async def hold(service: EmbeddingService, gate: Gate) -> None:
    """Keep the worker busy with a text of its own."""
    gate.open.clear()
    gate.begun.clear()
    service.prefetch(["held"])
    await asyncio.to_thread(gate.begun.wait)


async def test_each_text_is_embedded_once_in_its_life(serve: Serve, gate: Gate) -> None:
    service = serve()
    first = await service.embed(["a", "bb", "a"], LONG)
    again = await service.embed(["bb"], LONG)
    assert sorted(gate.asked) == ["a", "bb"]
    assert first[0] is first[2] and again[0] is first[1]
    assert service.remembered("a") == (True, first[0])
    assert service.stats().from_memory == 1 and service.stats().embedded == 2


async def test_a_text_no_embedder_can_read_is_none_and_is_not_tried_again(serve: Serve, gate: Gate) -> None:
    service = serve()
    assert await service.embed(["unreadable", "ok"], LONG) != [None, None]
    assert await service.embed(["unreadable"], LONG) == [None]
    assert gate.asked.count("unreadable") == 1
    assert service.stats().refused == 1


async def test_the_oldest_texts_are_forgotten(serve: Serve, gate: Gate) -> None:
    service = serve(remembered=2)
    for text in ("a", "b", "a", "c"):  # "a" is used again, so "b" goes
        await service.embed([text], LONG)
    assert service.remembered("a")[0] and not service.remembered("b")[0]


async def test_concurrent_requests_for_a_text_share_one_embedding(serve: Serve, gate: Gate) -> None:
    service = serve()
    await hold(service, gate)
    asked = [asyncio.create_task(service.embed(["same"], LONG)) for _ in range(5)]
    await asyncio.sleep(0)
    gate.open.set()
    results = await asyncio.gather(*asked)
    assert gate.asked.count("same") == 1
    assert len({id(result[0]) for result in results}) == 1


async def test_a_turn_overtakes_background_work_even_for_a_text_already_queued_there(serve: Serve, gate: Gate) -> None:
    service = serve()
    await hold(service, gate)
    assert service.prefetch(["b1", "b2", "b3"]) == 3
    asked = asyncio.create_task(service.embed(["turn", "b3"], LONG))
    await asyncio.sleep(0)
    gate.open.set()
    await asked
    await asyncio.to_thread(service.embed_background, ["b1", "b2"], LONG)
    assert gate.asked == ["held", "turn", "b3", "b1", "b2"]
    assert service.stats().waiting == 0


async def test_a_held_up_embedder_costs_a_turn_its_deadline_and_no_more(serve: Serve, gate: Gate) -> None:
    service = serve()
    await hold(service, gate)
    with pytest.raises(EmbedderSlow):
        await service.embed(["x"], 0.01)
    gate.open.set()
    assert await service.embed(["y"], LONG)
    assert "x" not in gate.asked  # nobody waited for it any more
    assert service.stats().slow == 1


async def test_a_cancelled_turn_takes_its_work_with_it_but_not_what_others_wait_for(serve: Serve, gate: Gate) -> None:
    service = serve()
    await hold(service, gate)
    leaving = asyncio.create_task(service.embed(["mine", "ours"], LONG))
    staying = asyncio.create_task(service.embed(["ours"], LONG))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    gate.open.set()
    assert (await staying)[0] is not None
    assert "mine" not in gate.asked


async def test_a_full_queue_says_so_at_once(serve: Serve, gate: Gate) -> None:
    service = serve(queue=2, background_queue=1)
    await hold(service, gate)
    waiting = asyncio.create_task(service.embed(["a", "b"], LONG))
    await asyncio.sleep(0)
    with pytest.raises(EmbedderBusy):
        await service.embed(["c"], LONG)
    assert service.prefetch(["d", "e"]) == 1
    gate.open.set()
    assert len(await waiting) == 2


async def test_a_failing_embedder_is_reported_and_then_left_alone_for_a_while(serve: Serve, gate: Gate) -> None:
    now = [0.0]
    service = serve(failures=3, clock=lambda: now[0])
    await service.embed(["known"], LONG)
    gate.broken = True
    for text in "abc":
        with pytest.raises(EmbedderFailed) as failure:
            await service.embed([text], LONG)
        assert isinstance(failure.value.__cause__, OSError)
    with pytest.raises(EmbedderDown):
        await service.embed(["d"], LONG)
    assert "d" not in gate.asked
    assert (await service.embed(["known"], LONG))[0] is not None  # memory still serves
    now[0] += 1.5
    with pytest.raises(EmbedderFailed):  # one try after the pause, then a longer one
        await service.embed(["e"], LONG)
    now[0] += 1.5
    with pytest.raises(EmbedderDown):
        await service.embed(["f"], LONG)
    gate.broken = False
    now[0] += 1.0
    assert (await service.embed(["f"], LONG))[0] is not None
    gate.broken = True
    with pytest.raises(EmbedderFailed):
        await service.embed(["g"], LONG)
    with pytest.raises(EmbedderFailed):  # the count began anew
        await service.embed(["h"], LONG)


async def test_turns_stop_waiting_for_an_embedder_that_hangs(serve: Serve, gate: Gate) -> None:
    service = serve(failures=2)
    await hold(service, gate)
    for text in "ab":
        with pytest.raises(EmbedderSlow):
            await service.embed([text], 0.001)
    with pytest.raises(EmbedderDown):
        await service.embed(["c"], LONG)


async def test_background_work_waits_its_deadline_without_harming_turns(serve: Serve, gate: Gate) -> None:
    service = serve(failures=1)
    await hold(service, gate)
    with pytest.raises(EmbedderSlow):
        await asyncio.to_thread(service.embed_background, ["x"], 0.001)
    gate.open.set()
    assert (await service.embed(["y"], LONG))[0] is not None


async def test_closing_lets_nobody_wait_for_ever(serve: Serve, gate: Gate) -> None:
    service = serve()
    await hold(service, gate)
    waiting = asyncio.create_task(service.embed(["x"], LONG))
    await asyncio.sleep(0)
    service.close(timeout_s=0)
    with pytest.raises(EmbeddingUnavailable):
        await waiting
    with pytest.raises(EmbedderDown):
        await service.embed(["y"], LONG)
    assert service.prefetch(["z"]) == 0
    service.close(timeout_s=0)


async def test_many_turns_at_once_each_get_their_own_vectors(serve: Serve) -> None:
    service = serve(queue=10_000)

    async def ask(n: int) -> None:
        texts = ["x" * (n + k) for k in range(1, 6)]
        vectors = await service.embed(texts, LONG)
        assert [v.vector[0] for v in vectors if v is not None] == [len(text) for text in texts]

    await asyncio.gather(*(ask(n) for n in range(200)))
    assert service.stats().embedded == 204


async def test_lone_surrogates_break_nothing(serve: Serve) -> None:
    assert len(await serve().embed(["\ud800", "\udc00"], LONG)) == 2
