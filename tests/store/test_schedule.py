"""More traffic, stricter matching; never looser."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.schedule import LEAST, MOST, Traffic, answer_for, stricter
from store.types import Policy


@pytest.mark.parametrize(
    ("daily", "answer"), [(10_000, 0.80), (100_000, 0.85), (1_000_000, 0.90), (10, 0.80), (0, 0.80), (1e12, 0.99)]
)
def test_ten_times_the_traffic_asks_for_five_hundredths_more(daily: float, answer: float) -> None:
    assert answer_for(daily) == pytest.approx(answer)


@given(st.floats(allow_nan=True), st.floats(0, 1), st.floats(0, 1))
def test_it_stays_within_its_limits_and_never_loosens(daily: float, answer: float, verify: float) -> None:
    assert LEAST <= answer_for(daily) <= MOST
    policy = Policy(answer=answer, verify=min(answer, verify))
    assert stricter(policy, daily).answer >= policy.answer
    assert stricter(policy, daily).verify == policy.verify


def test_a_day_is_the_last_24_hours() -> None:
    traffic = Traffic(0.0)
    for hour in range(48):
        traffic.add(hour * 3600.0 + 1, 100 if hour < 24 else 10)
    assert traffic.daily(48 * 3600.0) == pytest.approx(240, rel=0.1)


def test_a_burst_at_the_start_is_not_a_day_of_it() -> None:
    traffic = Traffic(0.0)
    traffic.add(1.0, 1_000)
    assert traffic.daily(2.0) == pytest.approx(24_000)
    assert traffic.daily(23 * 3600.0) == pytest.approx(1_000 * 24 / 23)
    assert traffic.daily(25 * 3600.0) == 0
    assert math.isfinite(Traffic(0.0).daily(0.0))
