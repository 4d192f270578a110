"""No sequence of record, hit, correct, expire, purge, new epoch, check and restart serves what must not be served."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from tests.store.life import Life

_HEALTH = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)


class ShortLife(Life):
    """For every run of the fast tests."""


TestShortLife = ShortLife.TestCase
TestShortLife.settings = settings(max_examples=4, stateful_step_count=20, deadline=None, suppress_health_check=_HEALTH)


class LongLife(Life):
    """For the slow ones."""


TestLongLife = pytest.mark.slow(LongLife.TestCase)
TestLongLife.settings = settings(max_examples=60, stateful_step_count=60, deadline=None, suppress_health_check=_HEALTH)
