"""Intervals, areas and rates, against known values and by their properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.statistics import area_under_curve, rate_at, wilson

scores = st.lists(st.floats(0, 1), min_size=1, max_size=40)


def test_wilson_agrees_with_the_textbook() -> None:
    low, high = wilson(81, 263)
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)
    assert wilson(0, 0) == (0.0, 1.0)


@given(st.integers(0, 500), st.integers(1, 500))
def test_an_interval_holds_its_share(hits: int, trials: int) -> None:
    hits = min(hits, trials)
    low, high = wilson(hits, trials)
    assert 0 <= low <= hits / trials + 1e-12 and hits / trials - 1e-12 <= high <= 1


def test_area_counts_ties_half() -> None:
    assert area_under_curve([1.0, 0.5], [0.5, 0.0]) == pytest.approx(0.875)
    assert area_under_curve([], [1.0]) is None


def test_rate_at_stays_within_the_share_of_wrong() -> None:
    assert rate_at([0.9, 0.8, 0.2], [0.85, 0.1], 0.0) == pytest.approx(1 / 3)
    assert rate_at([0.9, 0.8, 0.2], [0.85, 0.1], 0.5) == pytest.approx(1.0)
    assert rate_at([0.9, 0.0], [], 0.01) == 0.5
    assert rate_at([], [0.1], 0.01) is None


@given(scores, scores, st.floats(0, 0.99))
def test_more_wrong_allowed_never_serves_less(good: list[float], bad: list[float], wrong: float) -> None:
    strict, loose = rate_at(good, bad, wrong / 2), rate_at(good, bad, wrong)
    assert strict is not None and loose is not None and strict <= loose
