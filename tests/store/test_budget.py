"""The error budget and its bounds."""

from __future__ import annotations

import random
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.bounds import clopper_pearson_upper, is_below, needed_without_error, sequence_upper
from store.budget import CLOSED, Budget, Observation
from store.types import KINDS, Policy

BASE = Policy(answer=0.94, verify=0.7)


def right(kind: str = "same_place", confidence: float = 0.995, times: int = 1) -> list[Observation]:
    return [Observation(kind, confidence, False)] * times  # type: ignore[arg-type]


def wrong(kind: str = "same_place", confidence: float = 0.995) -> list[Observation]:
    return [Observation(kind, confidence, True)]  # type: ignore[arg-type]


@pytest.mark.parametrize(("wrong", "trials", "upper"), [(0, 299, 0.009969), (1, 100, 0.046559), (5, 50, 0.198833)])
def test_the_interval_of_clopper_and_pearson_is_that_of_the_textbook(wrong: int, trials: int, upper: float) -> None:
    # scipy.stats.beta.ppf(0.95, wrong + 1, trials - wrong)
    assert clopper_pearson_upper(wrong, trials) == pytest.approx(upper, abs=2e-5)


@given(st.integers(1, 2_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_a_bound_for_every_look_is_wider_than_one_for_a_single_look_and_never_below_the_rate(
    seen: tuple[int, int],
) -> None:
    bad, trials = seen
    upper = sequence_upper(bad, trials)
    assert bad / trials <= upper <= 1
    assert upper >= clopper_pearson_upper(bad, trials) - 1e-9
    assert upper >= sequence_upper(bad, trials + 1) or bad == trials
    assert is_below(0.02, bad, trials) == (sequence_upper(bad, trials, 0.05, 0.02) <= 0.02)


def test_looking_after_every_observation_breaks_the_bound_as_rarely_as_promised() -> None:
    rate, runs, broken, broken_naive = 0.05, 200, 0, 0
    naive_upper = cache(clopper_pearson_upper)
    for seed in range(runs):
        chance, bad, once, naive = random.Random(seed), 0, False, False
        for trials in range(1, 301):
            bad += chance.random() < rate
            once = once or sequence_upper(bad, trials, 0.05, rate) < rate
            naive = naive or (bad < 12 and naive_upper(bad, trials) < rate)
        broken += once
        broken_naive += naive
    assert broken / runs <= 0.05
    assert broken_naive / runs > 0.08  # what the wider bound is for


def test_without_a_limit_the_thresholds_are_the_calibrated_ones_whatever_is_observed() -> None:
    budget = Budget(None, BASE)
    budget.observe(wrong() * 50)
    assert budget.policy(band=True).least(same_place=True) == BASE.answer
    assert budget.policy(band=True).band == BASE.verify
    assert budget.policy(band=False).band is None


def test_before_evidence_the_calibrated_prior_decides_with_twice_the_errors_it_promises() -> None:
    policy = Budget(0.02, BASE).policy(band=True)
    assert policy.least(same_place=True) == policy.least(same_place=False) == 0.99
    assert policy.band == 0.99  # no candidate of the band is that sure
    assert Budget(0.2, BASE).policy(band=True).least(same_place=True) == BASE.answer


def test_one_wrong_hit_closes_its_confidence_and_right_ones_open_it_again() -> None:
    budget = Budget(0.02, BASE)
    budget.observe(wrong(confidence=0.992))
    assert budget.threshold("same_place") > 0.992
    assert budget.threshold("other_context") == 0.99
    budget.observe(right(confidence=0.995, times=400))
    assert budget.threshold("same_place") <= 0.99


def test_wrong_hits_of_the_surest_kind_close_it() -> None:
    budget = Budget(0.02, BASE)
    budget.observe(wrong(confidence=0.9999) * 3)
    assert budget.threshold("same_place") == CLOSED
    report = next(r for r in budget.report() if r.kind == "same_place")
    assert (report.decided_by, report.threshold, report.wrong) == ("closed", None, 3)


def test_evidence_opens_what_the_prior_keeps_closed_and_nothing_opens_below_the_calibrated_thresholds() -> None:
    budget = Budget(0.01, BASE)
    assert budget.threshold("same_place") == 0.995
    budget.observe(right(confidence=0.95, times=needed_without_error(0.01)))
    assert BASE.answer <= budget.threshold("same_place") <= 0.95
    budget.observe(right(confidence=0.1, times=5_000))
    assert budget.policy(band=True).least(same_place=True) >= BASE.answer


def test_exact_repeats_are_watched_and_never_closed() -> None:
    budget = Budget(0.01, BASE)
    budget.observe(wrong("exact", 1.0) * 20)
    report = budget.report()[0]
    assert (report.kind, report.wrong, report.decided_by, report.threshold) == ("exact", 20, "none", None)


def test_what_is_long_ago_is_forgotten() -> None:
    budget = Budget(0.02, BASE, window=100)
    budget.observe(wrong(confidence=0.9999) * 3)
    budget.observe(right(confidence=0.999, times=100))
    assert budget.threshold("same_place") <= 0.99
    assert budget.report()[1].observations == 100


def test_everything_reworded_is_checked_until_there_is_as_much_evidence_as_the_prior_pretends() -> None:
    budget = Budget(0.05, BASE)
    assert budget.wanted("other_context", 0.02) == 1.0
    assert budget.wanted("exact", 0.02) == 0.02
    budget.observe(right("other_context", times=needed_without_error(0.05)))
    assert budget.wanted("other_context", 0.02) == 0.02
    budget.observe(wrong("other_context"))
    assert budget.wanted("other_context", 0.02) == 1.0
    assert Budget(None, BASE).wanted("other_context", 0.02) == 0.02


def test_a_prior_that_the_evidence_refutes_counts_no_longer() -> None:
    believed, refuted = Budget(0.02, BASE), Budget(0.02, BASE)
    believed.observe(right(confidence=0.995, times=60))
    believed.observe(wrong(confidence=0.992))
    refuted.observe(wrong(confidence=0.992))
    assert believed.threshold("same_place") < CLOSED
    assert refuted.threshold("same_place") == CLOSED
    refuted.observe(right(confidence=0.995, times=needed_without_error(0.02)))
    assert refuted.threshold("same_place") < CLOSED


@given(
    st.floats(0.005, 0.2),
    st.lists(st.tuples(st.sampled_from(KINDS), st.floats(0, 1), st.booleans()), max_size=60),
)
def test_no_evidence_makes_matching_looser_than_the_policy(limit: float, seen: list[tuple[str, float, bool]]) -> None:
    budget = Budget(limit, BASE)
    budget.observe(Observation(kind, confidence, bad) for kind, confidence, bad in seen)  # type: ignore[arg-type]
    policy = budget.policy(band=True)
    assert policy.least(same_place=True) >= BASE.answer
    assert policy.least(same_place=False) >= BASE.answer
    assert policy.band is None or policy.band >= BASE.verify
