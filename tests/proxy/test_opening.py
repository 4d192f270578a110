"""What cannot be opened costs what depends on it, and nothing else."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fingerprint.embedding.base import NotPreparedError
from proxy.app import Opened, create_app, open_cache
from proxy.errors import UpstreamError
from proxy.settings import Settings
from proxy.upstream import Upstream
from store.cache import Cache
from store.confidence import load, thresholds
from store.errors import StoreError
from tests.processes import a_free_port


def settings(folder: Path) -> Settings:
    return at(f"sqlite:///{folder}/a.db")


def at(url: str) -> Settings:
    return Settings.model_validate({"store": {"url": url}})


async def test_without_an_embedder_exact_repeats_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise NotPreparedError("no weights")

    monkeypatch.setattr("fingerprint.embedding.router.load_router", fail)
    opened = await open_cache(settings(tmp_path))
    assert "exact repeats" in opened.why
    await opened.cache.close()


async def test_without_a_reuse_confidence_exact_repeats_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ValueError("made for another release")

    monkeypatch.setattr("store.confidence.load", fail)
    opened = await open_cache(settings(tmp_path))
    assert "exact repeats" in opened.why
    assert opened.embedder != "none"  # what is stored now is found again when the confidence is back
    await opened.cache.close()


async def test_a_store_that_cannot_be_opened_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        await open_cache(at(f"sqlite:///{tmp_path}"))  # a folder


async def plainly(chosen: Settings) -> Opened:
    cache = await Cache.open(chosen.store, embedder=None, confidence=load(), policy=thresholds())
    return Opened(cache, "none")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_a_store_that_another_proxy_gives_free_is_opened_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("proxy.app._FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr("proxy.app._LONGEST_PAUSE_S", 0.02)
    caplog.set_level(logging.INFO, "proxy.app")
    tries = 0

    async def counting(chosen: Settings) -> Opened:
        nonlocal tries
        tries += 1
        return await plainly(chosen)

    other = await plainly(settings(tmp_path))
    app = create_app(settings(tmp_path), open_with=counting)
    async with app.router.lifespan_context(app):
        assert await app.state.readiness.wait() == "degraded"
        assert "another proxy" in app.state.readiness.why
        await until(lambda: tries >= 4)
        await other.cache.close()
        await until(lambda: app.state.readiness.state == "ready")
        assert app.state.cache is not None
        assert app.turns.cache is app.state.cache
    said = [record.getMessage() for record in caplog.records if record.name == "proxy.app"]
    assert len(said) == 2  # one for each change, however many tries
    assert "another proxy" in said[0]
    assert "open now" in said[1]


async def test_a_proxy_that_waits_for_its_store_can_be_stopped(tmp_path: Path) -> None:
    other = await plainly(settings(tmp_path))
    app = create_app(settings(tmp_path), open_with=plainly)
    async with app.router.lifespan_context(app):
        await app.state.readiness.wait()
    assert app.state.cache is None
    await other.cache.close()


@pytest.mark.parametrize("url", ["mysql://h/d", "no url"])
async def test_a_store_that_can_never_be_opened_is_not_tried_again(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries = 0

    async def counting(chosen: Settings) -> Opened:
        nonlocal tries
        tries += 1
        return await plainly(chosen)

    monkeypatch.setattr("proxy.app._FIRST_PAUSE_S", 0.0)
    app = create_app(at(url), open_with=counting)
    async with app.router.lifespan_context(app):
        assert await app.state.readiness.wait() == "degraded"
        await asyncio.sleep(0.02)
    assert tries == 1


async def test_a_full_disk_is_one_line_with_its_reason(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    async def full(chosen: Settings) -> Opened:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/antiphon.db")

    app = create_app(settings(tmp_path), open_with=full)
    async with app.router.lifespan_context(app):
        await app.state.readiness.wait()
    said = [record for record in caplog.records if record.name == "proxy.app"]
    assert len(said) == 1
    assert "No space left" in said[0].getMessage()
    assert said[0].exc_info is None


async def test_a_backend_that_comes_and_goes_is_one_line_each_time(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "proxy.upstream")
    port = a_free_port()
    upstream = Upstream(Settings.model_validate({"upstream": {"url": f"http://127.0.0.1:{port}"}}).upstream)
    assert upstream.reachable is None
    for _ in range(3):
        with pytest.raises(UpstreamError) as caught:
            await upstream.open("GET", b"/", [])
        upstream.note(caught.value)
    assert upstream.reachable is False
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", port)
    async with server:
        await upstream.probe()
        await upstream.probe()
    assert upstream.reachable is True
    await upstream.aclose()
    said = [record.getMessage() for record in caplog.records]
    assert [line.split(":")[0] for line in said] == [
        "the backend http",
        "a request got no reply from the backend (status 502)",
        "the backend answers again",
    ]
    assert "requests get 502 until it does" in said[0]
