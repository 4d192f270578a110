"""What cannot be opened costs what depends on it, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from fingerprint.embedding.base import NotPreparedError
from proxy.app import open_cache
from proxy.settings import Settings
from store.errors import StoreError


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
