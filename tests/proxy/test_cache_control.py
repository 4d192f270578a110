"""What a caller may ask of the cache: stricter, never looser; nonsense counts for nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.cache_control import NOTHING_ASKED, Directives, parse, ttl_seconds


@pytest.mark.parametrize(
    ("value", "asked"),
    [
        ("no-cache", Directives(no_cache=True)),
        ("No-Cache , NO-STORE", Directives(no_cache=True, no_store=True)),
        ("only-if-cached,max-age=60", Directives(only_if_cached=True, max_age_s=60)),
        ('max-age="60"', Directives(max_age_s=60)),
        ("max-age=60, max-age=5", Directives(max_age_s=5)),
        ("max-age=0", Directives(max_age_s=0)),
        ("max-age=-1", NOTHING_ASKED),
        ("max-age=soon, no-store", Directives(no_store=True)),
        ("max-age", NOTHING_ASKED),
        ("max-age=1.5", NOTHING_ASKED),
        ("max-age=99999999999999999999", Directives(max_age_s=1 << 31)),
        ("max-stale=600, no-transform, foo=bar", NOTHING_ASKED),
        ('x="a, no-store", y', NOTHING_ASKED),
        ("@@@, no-store", Directives(no_store=True)),
        ("min-fresh=30", Directives(no_cache=True)),
        (",,  ,no-cache,", Directives(no_cache=True)),
        ("", NOTHING_ASKED),
    ],
)
def test_directives_are_read_as_the_specification_says(value: str, asked: Directives) -> None:
    assert parse([value]) == asked


def test_several_lines_are_one_list_and_pragma_counts_only_alone() -> None:
    assert parse(["max-age=9", "no-store"]) == Directives(no_store=True, max_age_s=9)
    assert parse([], pragma="no-cache") == Directives(no_cache=True)
    assert parse(["max-age=9"], pragma="no-cache") == Directives(max_age_s=9)


@given(st.text(max_size=60))
def test_no_value_whatever_raises(value: str) -> None:
    parse([value])
    ttl_seconds(value)


@pytest.mark.parametrize(
    ("value", "seconds"), [("5", 5.0), ("0", 0.0), ("1.5", 1.5), ("-1", None), ("x", None), ("1e9", None), ("٣", None)]
)
def test_a_lifetime_is_a_plain_number_of_seconds(value: str, seconds: float | None) -> None:
    assert ttl_seconds(value) == seconds
