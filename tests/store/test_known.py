"""The keys the database may hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store import known
from store.known import KnownKeys

Keys = st.lists(st.binary(min_size=32, max_size=32), max_size=50)


@given(Keys)
def test_a_key_that_was_added_is_never_called_absent(keys: list[bytes]) -> None:
    kept = KnownKeys()
    for key in keys:
        assert kept.absent(key) or key[:8] in {k[:8] for k in keys}
        kept.add(key)
    assert not any(map(kept.absent, keys))


def test_where_there_are_too_many_keys_any_may_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "_MOST", 3)
    kept = KnownKeys()
    for n in range(3):
        kept.add(bytes([n]) * 32)
    assert kept.absent(b"x" * 32)
    kept.add(b"y" * 32)
    assert not kept.absent(b"x" * 32)
