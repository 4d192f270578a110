"""What breaks prefixes is named, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerprint.hygiene import ADVICE, Finding, Prefixes, estimated_tokens, prompt_of, volatile_parts

RULES = " You answer the guests of a hotel briefly and politely, and never talk about other hotels." * 8
TOOL = {"type": "function", "function": {"name": "book", "parameters": {"type": "object", "properties": {}}}}
OTHER = {"type": "function", "function": {"name": "cancel", "parameters": {"type": "object", "properties": {}}}}


def body(*texts: str, system: str = "You help." + RULES, **fields: Any) -> dict[str, Any]:
    turns = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
    return {"model": "m", "messages": [{"role": "system", "content": system}, *turns], **fields}


def seen(*bodies: dict[str, Any], **options: Any) -> list[Finding]:
    """What is found in the last of several requests."""
    prefixes = Prefixes()
    found: list[Finding] = []
    for one in bodies:
        found = prefixes.see(prompt_of(one), **options)
    return found


ONE = ("Is there a pool?", "Yes, on the roof.", "When is it open?")
TWO = (*ONE, "From six to ten.", "And the gym?")


def test_a_conversation_that_only_grows_breaks_nothing() -> None:
    assert seen(body(*ONE[:1]), body(*ONE), body(*TWO), body(*TWO, "Always.", "Thanks a lot.")) == []


def test_unrelated_conversations_under_one_system_prompt_break_nothing() -> None:
    assert (
        seen(body("Is there a pool?"), body("Do you have bikes?"), body("When is breakfast?", "At 7.", "Late?")) == []
    )


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        ("2026-11-29 19:20:01", "2026-11-29 19:25:44", "timestamp"),
        ("2026-11-29T19:20:01Z", "2026-11-30T08:00:00Z", "timestamp"),
        ("Sunday, 29 November 2026", "Monday, 30 November 2026", "date"),
        ("November 29, 2026", "December 1, 2026", "date"),
        ("2026年11月29日", "2026年11月30日", "date"),
        ("1795980001", "1795980044", "timestamp"),
        ("9:05 pm", "10:15 am", "time"),
        ("6f9619ff-8b86-d011-b42d-00c04fc964ff", "16fd2706-8baf-433b-82eb-8c7fada847da", "uuid"),
        ("req_8f3k29dk1", "req_00d1k2b77", "id"),
        ("9f86d081884c7d65", "60303ae22b998861", "id"),
    ],
)
def test_what_changes_near_the_top_of_the_system_prompt_costs_all_behind_it(one: str, other: str, kind: str) -> None:
    first = body("Is there a pool?", system=f"Now: {one}." + RULES)
    later = body("Do you have bikes?", system=f"Now: {other}." + RULES)
    [found] = seen(first, later)
    assert found.cause == "volatile-system"
    assert found.where == f"{kind} at character 5 of the system prompt"
    assert found.example == other
    assert 0.9 * estimated_tokens(RULES) <= found.tokens <= 1.1 * estimated_tokens(RULES)
    assert found.pattern is not None


def test_within_a_conversation_it_costs_the_history_too() -> None:
    prefixes = Prefixes()
    prefixes.see(prompt_of(body(*ONE, system="At 19:20:01." + RULES)))
    [found] = prefixes.see(prompt_of(body(*TWO, system="At 19:21:07." + RULES)))
    assert found.tokens > estimated_tokens(RULES) + sum(map(estimated_tokens, ONE))


def test_at_the_end_of_the_system_prompt_it_costs_next_to_nothing_for_a_new_conversation() -> None:
    first, later = (body(text, system=RULES + f" Now: 2026-11-29 19:2{n}:00") for n, text in enumerate("ab"))
    assert sum(found.tokens for found in seen(first, later)) < 10


def test_a_date_that_never_changes_is_no_finding() -> None:
    dated = "Your knowledge ends on 2024-06-01." + RULES
    assert seen(body("a", system=dated), body("b", system=dated)) == []
    assert [part.kind for part in volatile_parts(dated)] == ["date"]


def test_another_system_prompt_is_another_app_unless_it_changes_within_a_conversation() -> None:
    assert seen(body("Is there a pool?"), body("Is there a pool?", system="You write code.")) == []
    [found] = seen(body(*ONE), body(*TWO, system="You help now with documents: A, B." + RULES))
    assert found.cause == "changed-system"


def test_tools_with_their_keys_in_another_order() -> None:
    turned = {"function": {"parameters": {"properties": {}, "type": "object"}, "name": "book"}, "type": "function"}
    [found] = seen(body(*ONE, tools=[TOOL]), body(*TWO, tools=[turned]))
    assert found.cause == "reordered-keys"


def test_tools_in_another_order_and_other_tools() -> None:
    [found] = seen(body(*ONE, tools=[TOOL, OTHER]), body(*TWO, tools=[OTHER, TOOL]))
    assert found.cause == "reordered-tools"
    [found] = seen(body(*ONE, tools=[TOOL, OTHER]), body(*TWO, tools=[TOOL]))
    assert found.cause == "changed-tools"


def test_a_trimmed_history_costs_what_was_kept() -> None:
    longer = (*TWO, "Always. You only need your key.", "Thanks. And the sauna, when may I use that?")
    kept = longer[2:]
    [found] = seen(body(*TWO), body(*longer), body(*kept, "In the evening.", "Good. What about towels?"))
    assert found.cause == "trimmed-history"
    assert found.where == "the oldest messages"
    assert found.tokens >= sum(map(estimated_tokens, kept))


def test_a_history_trimmed_behind_its_first_messages() -> None:
    longer = (*TWO, "Always.", "And the sauna?")
    [found] = seen(body(*longer), body(*longer[:2], *longer[4:], "In the evening.", "And towels?"))
    assert (found.cause, found.where) == ("trimmed-history", "messages after the first 2")


def test_an_answer_sent_back_changed() -> None:
    [found] = seen(body(*TWO), body(TWO[0], "Yes, on the roof. ", *TWO[2:], "Always.", "Good."))
    assert found.cause == "edited-history"
    assert found.where == "a message of the assistant"


def test_a_user_who_asks_the_last_question_otherwise_breaks_nothing() -> None:
    assert seen(body(*ONE), body(*ONE[:2], "Is it heated?")) == []


def test_the_measured_number_of_tokens_scales_the_estimate() -> None:
    first, later = (body("a", system=f"At 19:2{n}:01." + RULES) for n in (0, 1))
    [plain] = seen(first, later)
    prompt = prompt_of(later)
    assert prompt is not None
    [doubled] = seen(first, later, prompt_tokens=2 * prompt.tokens)
    assert doubled.tokens == 2 * plain.tokens


def test_those_who_share_no_cache_are_not_compared() -> None:
    prefixes = Prefixes()
    prefixes.see(prompt_of(body("a", system="At 19:20:01." + RULES)), scope="one")
    assert prefixes.see(prompt_of(body("b", system="At 19:21:01." + RULES)), scope="two") == []


def test_the_report_sums_up_and_has_advice() -> None:
    prefixes = Prefixes()
    for n in range(5):
        prefixes.see(prompt_of(body(str(n), system=f"At 19:2{n}:01." + RULES)))
    [summary] = prefixes.report()
    assert (summary.cause, summary.requests, prefixes.requests) == ("volatile-system", 4, 5)
    assert summary.tokens >= 4 * 0.9 * estimated_tokens(RULES)
    assert summary.advice == ADVICE["volatile-system"]
    assert summary.patterns


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_whatever_is_sent_is_read_or_refused(value: Any) -> None:
    prefixes = Prefixes()
    for sent in ({"messages": value}, {"messages": [{"role": "user", "content": value}], "tools": value}):
        prefixes.see(prompt_of(sent))
        prefixes.see(prompt_of(sent))


@given(st.text())
def test_tokens_are_never_negative_and_grow_with_the_text(text: str) -> None:
    assert 0 <= estimated_tokens(text) <= estimated_tokens(text + "a" * 8)
