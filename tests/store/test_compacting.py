"""Vectors with fewer dimensions: what is near stays near, or nothing is changed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from sqlalchemy import select, text

from fingerprint.embedding.base import Embedding
from store.cache import Cache
from store.compacting import CompactFailed, compact
from store.database import Database
from store.models import Vector
from store.projection import ProjectedEmbedder, Projection, fit, loss_of
from store.settings import StoreSettings
from tests.store.support import Open, WordEmbedder, ask, on_both_engines, say


def low_rank(count: int, rank: int, dimensions: int = 48, noise: float = 0.0, seed: int = 1) -> NDArray[np.float32]:
    chance = np.random.default_rng(seed)
    directions = np.linalg.qr(np.random.default_rng(0).standard_normal((dimensions, rank)))[0]
    vectors = chance.standard_normal((count, rank)) @ directions.T + noise * chance.standard_normal((count, dimensions))
    unit: NDArray[np.float32] = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return unit


def test_what_lies_in_few_directions_loses_nothing() -> None:
    projection = fit("space", low_rank(600, rank=10), 12)
    loss = loss_of(projection, low_rank(300, rank=10, seed=2))
    assert loss.cosine_p99 < 1e-3
    assert loss.recall > 0.99
    assert loss.kept == pytest.approx(1.0, abs=1e-5)


def test_what_lies_in_all_directions_loses_and_is_measured() -> None:
    projection = fit("space", low_rank(600, rank=48), 8)
    loss = loss_of(projection, low_rank(300, rank=48, seed=2))
    assert loss.cosine_p99 > 0.1
    assert loss.kept < 0.5


def test_projected_vectors_have_length_one_and_a_space_of_their_own() -> None:
    vectors = low_rank(600, rank=48)
    projection = fit("space", vectors, 16)
    after = projection.apply(vectors)
    assert after.shape == (600, 16)
    assert np.linalg.norm(after, axis=1) == pytest.approx(1.0, abs=1e-5)
    assert projection.target.startswith("space/pca16-")
    assert projection.target != fit("space", low_rank(600, rank=48, seed=3), 16).target

    class One:
        name = "one"

        def encode(self, texts: Sequence[str]) -> list[Embedding | None]:
            return [Embedding(vectors[0], "space"), Embedding(vectors[0], "other"), None]

    first, second, third = ProjectedEmbedder(One(), {"space": projection}).encode(["a", "b", "c"])
    assert first is not None
    assert second is not None
    assert first.space == projection.target
    assert np.allclose(first.vector, after[0], atol=1e-6)
    assert (second.space, len(second.vector), third) == ("other", 48, None)


class FewDirections(WordEmbedder):
    """Texts of 64 dimensions that differ in twelve only."""

    name = "few"

    def _encode(self, text: str) -> Embedding | None:
        one = super()._encode(text)
        assert one is not None
        basis = np.linalg.qr(np.random.default_rng(0).standard_normal((64, 12)))[0].astype(np.float32)
        vector = basis @ (basis.T @ one.vector)
        return Embedding((vector / np.linalg.norm(vector)).astype(np.float32), "few", one.partial)


async def fill(cache: Cache, count: int = 300) -> None:
    for number in range(count):
        cache.record(ask(f"what is thing {number} of shelf {number % 7}"), say(f"answer {number}"))
        cache.record(ask(f"hello {number}", "hi", f"tell me of box {number}"), say(f"box {number}"))
        if number % 50 == 49:
            assert await cache.flush()
    assert await cache.flush()


async def found(cache: Cache) -> list[str | None]:
    """What some reworded turns are answered with."""
    answers: list[str | None] = []
    for number in range(0, 300, 20):
        for query in (
            ask(f"what is thing {number} of shelf {number % 7} please"),
            ask(f"hello {number}", "hi", f"tell me of box {number} please"),
        ):
            _, hit = await cache.search(query)
            answers.append(None if hit is None else hit.answer.text)
    return answers


@pytest.mark.slow
@on_both_engines
async def test_a_compacted_store_finds_what_it_found_before(open_cache: Open, store_url: str) -> None:
    cache = await open_cache(embedder=FewDirections())
    await fill(cache)
    before = await found(cache)
    assert None not in before
    await cache.close()
    database = Database.open(StoreSettings(url=store_url), alone=True)
    measured = compact(database, dimensions=16, most_loss=0.02, dry_run=True)
    assert (measured[0].before, measured[0].after, measured[0].vectors, measured[0].done) == (64, 16, 600, 0)
    told: list[tuple[str, int, int]] = []
    (done,) = compact(database, dimensions=16, most_loss=0.02, progress=lambda *args: told.append(args))
    assert done.done == 600
    assert told[-1] == ("few", 600, 600)
    assert done.loss is not None
    assert done.loss.cosine_p99 < 0.01
    with database.upkeep.connect() as connection:
        lengths = {len(query or b"") for query in connection.execute(select(Vector.query)).scalars()}
        assert lengths == {32}  # bytes
    assert compact(database, dimensions=16, most_loss=0.02) == []  # nothing is larger any more
    database.close()

    cache = await open_cache(embedder=FewDirections())
    assert await found(cache) == before
    new = cache.record(ask("something else altogether"), say("new"))  # into the smaller space, too
    assert await cache.flush()
    _, hit = await cache.search(ask("something else altogether please"))
    assert hit is not None
    assert hit.entry_id == new


@pytest.mark.slow
async def test_too_much_loss_or_too_few_vectors_change_nothing(open_cache: Open, store_url: str) -> None:
    cache = await open_cache()
    await fill(cache, 250)
    await cache.close()
    database = Database.open(StoreSettings(url=store_url), alone=True)
    with database.upkeep.connect() as connection:
        before = connection.execute(text("SELECT space, query FROM vectors ORDER BY number")).all()
    with pytest.raises(CompactFailed, match=r"more than 0\.001"):
        compact(database, dimensions=16, most_loss=0.001)
    with pytest.raises(CompactFailed, match="needs 600"):
        compact(database, dimensions=48, most_loss=1.0)
    with database.upkeep.connect() as connection:
        assert connection.execute(text("SELECT space, query FROM vectors ORDER BY number")).all() == before
    database.close()


@pytest.mark.slow
async def test_an_interrupted_compaction_is_finished_with_the_same_projection(
    open_cache: Open, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = await open_cache(embedder=FewDirections())
    await fill(cache)
    await cache.close()
    monkeypatch.setattr("store.compacting._SLICE", 100)
    monkeypatch.setattr("store.compacting._ROWS", __import__("store.compacting").compacting._ROWS.limit(100))
    database = Database.open(StoreSettings(url=store_url), alone=True)

    def stop(space: str, done: int, size: int) -> None:
        if done == 200:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compact(database, dimensions=16, most_loss=0.02, progress=stop)
    (rest,) = compact(database, dimensions=16, most_loss=0.02)
    assert (rest.done, rest.loss) == (400, None)
    with database.upkeep.connect() as connection:
        assert connection.execute(select(Vector.space).distinct()).scalars().all() == [rest.target]
    database.close()


def test_a_projection_of_another_length_leaves_a_vector_alone() -> None:
    projection = Projection("words", np.eye(8, 4, dtype=np.float32))
    (one,) = ProjectedEmbedder(WordEmbedder(), {"words": projection}).encode(["hello"])
    assert one is not None
    assert (one.space, len(one.vector)) == ("words", 64)
