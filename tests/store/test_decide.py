"""The reuse decision is a pure function; these are its sentences."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerprint.conversation import Message, Turn
from fingerprint.facts import Fingerprint, fingerprint_of
from store.decide import CLOSE_LOOKS, decide
from store.types import Candidate, EntryState, Policy, Relation

POLICY = Policy(answer=0.9, verify=0.6)


def turn(text: str) -> Turn:
    return Turn(system=(), history=(), message=Message("user", text))


def candidate(
    name: str, similarity: float = 0.9, *, state: EntryState = "active", same_place: bool = False
) -> Candidate:
    return Candidate(name, turn(name), similarity, 1.0, same_place, state=state)


class Estimates:
    """A confidence whose two stages are given by name; remembers what it was asked."""

    version = "test"

    def __init__(self, first: dict[str, float], second: dict[str, float] | None = None) -> None:
        self._first, self._second = first, second or {}
        self.asked_first: list[str] = []
        self.asked_second: list[str] = []

    def first(self, query: Turn, candidate: Candidate) -> float:
        self.asked_first.append(candidate.entry_id)
        return self._first[candidate.entry_id]

    def second(self, query: Turn, candidate: Candidate, first: float) -> float:
        self.asked_second.append(candidate.entry_id)
        return self._second.get(candidate.entry_id, first)


def no_objection(query: Turn, other: Turn, same_place: bool) -> tuple[tuple[Relation, ...], tuple[str, ...]]:
    return (), ()


def objects_to(*names: str):  # type: ignore[no-untyped-def]
    def objections(query: Turn, other: Turn, same_place: bool) -> tuple[tuple[Relation, ...], tuple[str, ...]]:
        if other.message.text in names:
            return (Relation("numbers", "conflict", "5 on one side, 6 on the other"),), ("numbers",)
        return (Relation("numbers", "equal", "both say 5"),), ()

    return objections


def test_no_candidate_is_a_miss() -> None:
    assert decide(turn("q"), [], POLICY, Estimates({}), no_objection).level == "miss"


def test_the_nearest_candidate_that_is_sure_enough_is_answered_and_none_behind_it_judged() -> None:
    estimates = Estimates({"a": 0.91, "b": 0.95, "c": 0.2})
    near = [candidate("c", 0.99), candidate("a", 0.9), candidate("b", 0.8)]
    decision = decide(turn("q"), near, POLICY, estimates, no_objection)
    assert (decision.level, decision.entry_id) == ("answer", "a")
    assert {judgement.entry_id for judgement in decision.judgements} == {"a", "c"}


def test_the_most_confident_candidate_is_answered_where_all_are_judged() -> None:
    decision = decide(
        turn("q"),
        [candidate("a"), candidate("b")],
        POLICY,
        Estimates({"a": 0.91, "b": 0.95}),
        no_objection,
        thorough=True,
    )
    assert (decision.level, decision.entry_id, decision.confidence) == ("answer", "b", 0.95)


def test_an_objection_is_never_outvoted() -> None:
    estimates = Estimates({"a": 1.0})
    decision = decide(turn("q"), [candidate("a", 1.0)], POLICY, estimates, objects_to("a"))
    assert decision.level == "miss" and decision.entry_id is None
    assert decision.reason == "guard: numbers"
    assert decision.judgements[0].confidence == 0.0
    assert estimates.asked_second == []


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.booleans()), min_size=1, max_size=12))
def test_guards_are_asked_of_few_candidates_and_the_decision_is_as_if_of_all(
    rows: list[tuple[float, float, bool]],
) -> None:
    names = [f"c{i}" for i in range(len(rows))]
    vetoed = {n for n, r in zip(names, rows, strict=True) if r[2]}
    asked: list[str] = []

    def objections(query: Turn, other: Turn, same_place: bool) -> tuple[tuple[Relation, ...], tuple[str, ...]]:
        asked.append(other.message.text)
        return (), ("numbers",) if other.message.text in vetoed else ()

    def estimates(keep: Callable[[str], bool]) -> Estimates:
        found = [(n, r) for n, r in zip(names, rows, strict=True) if keep(n)]
        return Estimates({n: r[0] for n, r in found}, {n: r[1] for n, r in found})

    near = [candidate(n, 0.9 - i / 100) for i, n in enumerate(names)]
    policy = replace(POLICY, max_candidates=len(near))
    found = decide(turn("q"), near, policy, estimates(lambda n: True), objections)
    assert len(asked) == len(set(asked)) <= len(vetoed) + CLOSE_LOOKS
    unopposed = [c for c in near if c.entry_id not in vetoed]
    alone = decide(turn("q"), unopposed, policy, estimates(lambda n: n not in vetoed), no_objection)
    if unopposed:
        assert (found.level, found.entry_id, found.confidence) == (alone.level, alone.entry_id, alone.confidence)
    else:
        assert found.reason == "guard: numbers"


def test_where_all_are_judged_a_candidate_that_a_guard_objects_to_is_not_asked_for_its_confidence() -> None:
    estimates = Estimates({"a": 1.0, "b": 0.2})
    near = [candidate("a", 1.0), candidate("b", 0.9)]
    decision = decide(turn("q"), near, POLICY, estimates, objects_to("a", "b"), thorough=True)
    assert estimates.asked_first == [] and estimates.asked_second == []
    assert all(j.objections == ("numbers",) for j in decision.judgements)


def test_an_objection_to_the_best_leaves_the_next_best_to_be_answered() -> None:
    estimates = Estimates({"a": 1.0, "b": 0.93})
    decision = decide(turn("q"), [candidate("a", 0.99), candidate("b", 0.9)], POLICY, estimates, objects_to("a"))
    assert (decision.level, decision.entry_id) == ("answer", "b")
    assert {j.entry_id for j in decision.judgements} == {"a", "b"}


def test_between_the_thresholds_nothing_is_served() -> None:
    decision = decide(turn("q"), [candidate("a")], POLICY, Estimates({"a": 0.7}), no_objection)
    assert decision.level == "kv"


def test_below_both_thresholds_is_a_miss_without_an_entry() -> None:
    decision = decide(turn("q"), [candidate("a")], POLICY, Estimates({"a": 0.59}), no_objection)
    assert decision.level == "miss" and decision.entry_id is None


def test_the_second_stage_has_the_last_word_in_both_directions() -> None:
    lowered = decide(turn("q"), [candidate("a")], POLICY, Estimates({"a": 0.95}, {"a": 0.2}), no_objection)
    raised = decide(turn("q"), [candidate("a")], POLICY, Estimates({"a": 0.5}, {"a": 0.97}), no_objection)
    assert lowered.level == "miss" and raised.level == "answer"


def test_the_second_stage_looks_at_two_at_most_and_only_they_can_be_served() -> None:
    names = [f"c{i}" for i in range(6)]
    estimates = Estimates({n: 0.95 - i / 100 for i, n in enumerate(names)}, {"c0": 0.1, "c1": 0.2})
    decision = decide(turn("q"), [candidate(n) for n in names], POLICY, estimates, no_objection)
    assert estimates.asked_second == ["c0", "c1"]
    assert decision.level == "miss"


@pytest.mark.parametrize(("first", "asked"), [(0.5, ["a", "b"]), (0.1, ["a"])])
def test_a_second_close_look_is_taken_only_where_it_has_a_chance(first: float, asked: list[str]) -> None:
    estimates = Estimates({"a": 0.6, "b": first}, {"a": 0.1, "b": 0.97})
    decision = decide(turn("q"), [candidate("a"), candidate("b", 0.8)], POLICY, estimates, no_objection)
    assert estimates.asked_second == asked
    assert decision.level == ("answer" if "b" in asked else "miss")


def test_the_best_candidate_is_looked_at_however_little_the_cheap_estimate_thinks_of_it() -> None:
    decision = decide(turn("q"), [candidate("a")], POLICY, Estimates({"a": 0.01}, {"a": 0.97}), no_objection)
    assert decision.level == "answer"


@pytest.mark.parametrize("state", ["suspect", "retracted"])
def test_a_suspect_or_retracted_entry_is_never_served(state: EntryState) -> None:
    decision = decide(turn("q"), [candidate("a", 1.0, state=state)], POLICY, Estimates({"a": 1.0}), no_objection)
    assert decision.level == "miss"


def test_a_frozen_entry_may_be_served() -> None:
    decision = decide(turn("q"), [candidate("a", state="frozen")], POLICY, Estimates({"a": 0.99}), no_objection)
    assert decision.level == "answer"


def test_no_more_candidates_are_judged_than_the_policy_allows_and_those_of_the_place_come_first() -> None:
    estimates = Estimates({f"c{i}": 0.1 for i in range(9)} | {"here": 0.99})
    far = [candidate(f"c{i}", 0.9) for i in range(9)]
    policy = Policy(answer=0.9, verify=0.6, max_candidates=3)
    decision = decide(
        turn("q"), [*far, candidate("here", 0.2, same_place=True)], policy, estimates, no_objection, thorough=True
    )
    assert len(decision.judgements) == 3 and decision.entry_id == "here"


@pytest.mark.parametrize("broken", [math.nan, math.inf, 1.5, -0.1])
def test_a_broken_estimate_never_serves(broken: float) -> None:
    decision = decide(turn("q"), [candidate("a")], POLICY, Estimates({"a": broken}), no_objection)
    assert decision.level == "miss"


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.booleans()), max_size=12))
def test_whatever_is_answered_was_unobjected_and_confident_enough(rows: list[tuple[float, float, bool]]) -> None:
    names = [f"c{i}" for i in range(len(rows))]
    estimates = Estimates(
        {n: r[0] for n, r in zip(names, rows, strict=True)}, {n: r[1] for n, r in zip(names, rows, strict=True)}
    )
    vetoed = [n for n, r in zip(names, rows, strict=True) if r[2]]
    decision = decide(turn("q"), [candidate(n) for n in names], POLICY, estimates, objects_to(*vetoed))
    if decision.level == "answer":
        assert decision.entry_id not in vetoed and decision.confidence >= POLICY.answer
        assert decision.entry_id in estimates.asked_second
    else:
        assert decision.level in ("kv", "miss")


def equal(one: Turn, other: Turn | Fingerprint) -> bool:
    assert isinstance(other, Turn)
    return other.message.text.startswith("=")


BAND = replace(POLICY, band=0.6)


def test_between_the_thresholds_only_an_equal_fingerprint_is_served_and_then_as_suspect() -> None:
    near = [candidate("=a")]
    decision = decide(turn("q"), near, BAND, Estimates({"=a": 0.8}), no_objection, equal=equal)
    assert (decision.level, decision.reason, decision.suspect, decision.kind) == ("answer", "suspect", True, "band")
    decision = decide(turn("q"), [candidate("a")], BAND, Estimates({"a": 0.8}), no_objection, equal=equal)
    assert (decision.level, decision.suspect, decision.kind) == ("kv", False, None)


def test_while_nothing_verifies_nothing_is_served_as_suspect() -> None:
    decision = decide(turn("q"), [candidate("=a")], POLICY, Estimates({"=a": 0.8}), no_objection, equal=equal)
    assert (decision.level, decision.reason, decision.kind) == ("kv", "not verified yet", "band")


def test_no_equal_fingerprint_outvotes_a_guard_or_too_little_confidence() -> None:
    near = [candidate("=a")]
    assert decide(turn("q"), near, BAND, Estimates({"=a": 0.8}), objects_to("=a"), equal=equal).level == "miss"
    assert decide(turn("q"), near, BAND, Estimates({"=a": 0.59}), no_objection, equal=equal).level == "miss"


def test_what_the_error_budget_asks_for_holds_for_its_kind_of_hit() -> None:
    policy = replace(POLICY, other_context=0.97)
    elsewhere, here = candidate("a"), candidate("b", 0.5, same_place=True)
    decision = decide(turn("q"), [elsewhere], policy, Estimates({"a": 0.95}), no_objection, equal=equal)
    assert (decision.level, decision.reason, decision.kind) == ("kv", "held back by the error budget", "other_context")
    estimates = Estimates({"a": 0.95, "b": 0.92})
    decision = decide(turn("q"), [elsewhere, here], policy, estimates, no_objection, equal=equal, thorough=True)
    assert (decision.level, decision.entry_id, decision.kind) == ("answer", "b", "same_place")


def test_a_kind_that_is_closed_serves_nothing_however_sure() -> None:
    policy = replace(POLICY, same_place=2.0, other_context=2.0, band=2.0)
    for near in ([candidate("=a")], [candidate("=a", same_place=True)]):
        assert decide(turn("q"), near, policy, Estimates({"=a": 1.0}), no_objection, equal=equal).level == "kv"


def test_the_stored_fingerprint_is_compared_where_there_is_one() -> None:
    def only_stored(one: Turn, other: Turn | Fingerprint) -> bool:
        return other == fingerprint_of(turn("a"))

    stored = replace(candidate("a"), fingerprint=fingerprint_of(turn("a")))
    for near, level in ((stored, "answer"), (candidate("a"), "kv")):
        decision = decide(turn("q"), [near], BAND, Estimates({"a": 0.8}), no_objection, equal=only_stored)
        assert decision.level == level
