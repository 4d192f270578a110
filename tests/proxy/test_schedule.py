"""Thresholds that follow the traffic, where an operator asks for it."""

from __future__ import annotations

from pathlib import Path

from proxy.metrics import Metrics
from proxy.schedule import Schedule
from store.cache import Cache
from store.settings import StoreSettings
from store.types import Policy
from tests.store.support import NearEnough, no_objections


async def test_the_threshold_follows_the_traffic_and_what_the_operator_sets_anew(tmp_path: Path) -> None:
    settings = StoreSettings(url=f"sqlite:///{tmp_path}/antiphon.db")
    cache = await Cache.open(
        settings,
        embedder=None,
        confidence=NearEnough(),
        policy=Policy(answer=0.82, verify=0.5),
        objections=no_objections,
    )
    try:
        metrics, now = Metrics(), 0.0
        schedule = Schedule(cache, metrics, clock=lambda: now)
        schedule.look()
        assert cache.policy.answer == 0.82  # hardly any traffic: the calibrated threshold
        metrics.counted += 50_000
        now = 3_600.0
        schedule.look()
        assert 0.88 < cache.policy.answer < 0.92  # 1.2 million a day
        assert cache.policy.verify == 0.5
        cache.decide_by(Policy(answer=0.95, verify=0.6), cache.confidence)
        schedule.look()
        assert cache.policy == Policy(answer=0.95, verify=0.6)
        cache.decide_by(Policy(answer=0.7, verify=0.6), cache.confidence)
        now = 26 * 3_600.0
        schedule.look()
        assert cache.policy.answer == 0.8  # the least of the schedule
    finally:
        await cache.close()
