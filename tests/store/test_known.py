"""The keys the database may hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store import cache as store_cache
from store import known
from store.known import KnownKeys
from tests.store.support import Open, ask, say

Keys = st.lists(st.binary(min_size=32, max_size=32), max_size=50)


@given(Keys)
def test_a_key_that_was_added_is_never_called_absent(keys: list[bytes]) -> None:
    kept = KnownKeys()
    for key in keys:
        assert kept.absent(key) or key[:8] in {k[:8] for k in keys}
        kept.add(key)
    assert not any(map(kept.absent, keys))


def test_where_there_are_too_many_keys_any_may_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "MOST_KEYS", 3)
    kept = KnownKeys()
    for n in range(3):
        kept.add(bytes([n]) * 32)
    assert kept.absent(b"x" * 32)
    kept.add(b"y" * 32)
    assert not kept.absent(b"x" * 32)


@pytest.mark.parametrize("most", [1, 2, 100])
async def test_after_a_restart_every_answer_is_found_however_many_keys_are_kept(
    open_cache: Open, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    for place in (known, store_cache):
        monkeypatch.setattr(place, "MOST_KEYS", most)
    cache = await open_cache()
    for answer in ("one", "two", "three"):  # versions of one answer have one key
        cache.record(ask("how many"), say(answer))
    for question in ("who", "where"):
        cache.record(ask(question), say(question))
    await cache.close()
    cache = await open_cache()
    hits = [await cache.exact(ask(question)) for question in ("how many", "who", "where", "when")]
    assert [hit and hit.answer.text for hit in hits] == ["three", "who", "where", None]
