"""Keys tell apart everything that could change an answer, and nothing else."""

from __future__ import annotations

import copy
import math
import re
import unicodedata
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fingerprint.chat import turn_from_messages
from fingerprint.conversation import Message, Turn
from fingerprint.errors import NotUnderstood
from fingerprint.keys import (
    DENY,
    IdentityParts,
    Scope,
    canonical,
    exact_key,
    identity_key,
    identity_parts,
    partition_key,
    place_key,
)

P, I = b"p" * 32, b"i" * 32  # noqa: E741

any_text = st.text(st.characters(), max_size=12)  # lone surrogates included
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=1 << 62, max_value=1 << 70),
    st.floats(allow_nan=True),
    any_text,
)
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4), max_leaves=12
)


def model_of(value: Any) -> Any:
    """A slow, obviously injective picture of a JSON value up to NFC, to compare `canonical` with."""
    if isinstance(value, bool) or value is None:
        return ("constant", repr(value))
    if isinstance(value, int):
        return ("int", str(value))
    if isinstance(value, float):
        return ("float", "nan" if math.isnan(value) else value.hex())
    if isinstance(value, str):
        return ("str", unicodedata.normalize("NFC", value))
    if isinstance(value, list):
        return ("list", tuple(model_of(item) for item in value))
    return ("dict", tuple(sorted(((model_of(k), model_of(v)) for k, v in value.items()), key=repr)))


@given(json_values, json_values)
def test_two_values_are_encoded_alike_exactly_if_they_are_the_same_json(a: Any, b: Any) -> None:
    assert (canonical(a) == canonical(b)) == (model_of(a) == model_of(b))


@given(json_values)
def test_the_order_of_members_and_the_normalisation_form_do_not_count(value: Any) -> None:
    def turned(item: Any) -> Any:
        if isinstance(item, dict):
            return {unicodedata.normalize("NFD", k): turned(v) for k, v in reversed(item.items())}
        if isinstance(item, list):
            return [turned(part) for part in item]
        return unicodedata.normalize("NFD", item) if isinstance(item, str) else item

    other = turned(value)
    assume(model_of(other) == model_of(value))  # two member names may become one in NFD
    assert canonical(other) == canonical(value)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, 1.0), (1, True), (0, False), (0, None), (0.0, -0.0), ("1", 1), ("", None), ([], {}), ([], None),
        (1 << 64, str(1 << 64)), (1 << 64, (1 << 64) + 1), (-(1 << 70), 1 << 70), (math.nan, None), ([[]], []),
        (math.inf, -math.inf),
        ("\ud800", "\udc00"), ("\ud800", "�"), ({"a": None}, {}), ({"a": "b"}, ["a", "b"]), (["ab", "c"], ["a", "bc"]),
        ("us", "US"), ("Ａ", "A"), ("a", "a "), ("x²", "x2"), (b"a", "a"),
    ],
)  # fmt: skip
def test_values_that_look_alike_are_told_apart(a: Any, b: Any) -> None:
    assert canonical(a) != canonical(b)


def test_what_json_does_not_have_is_refused() -> None:
    with pytest.raises(TypeError):
        canonical({1: "a"})
    with pytest.raises(TypeError):
        canonical({"a": object()})
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(NotUnderstood):
        canonical(deep)


def keys_of(body: dict[str, Any], patterns: tuple[re.Pattern[str], ...] = ()) -> bytes:
    turn = turn_from_messages(body["messages"])
    identity = identity_key(identity_parts("chat.completions", body, turn, volatile_patterns=patterns))
    return exact_key(partition_key(Scope("key")), identity, turn)


roles = st.sampled_from(["system", "developer", "user", "assistant", "tool", "function"])
messages = st.lists(st.fixed_dictionaries({"role": roles, "content": any_text}), min_size=1, max_size=5)
field_names = st.sampled_from(["temperature", "top_p", "n", "seed", "model", "lora_path", "tools", "x-unknown", "stop"])
bodies = st.builds(
    lambda fields, talk: {**fields, "messages": talk}, st.dictionaries(field_names, json_values, max_size=4), messages
)


@given(bodies, field_names | any_text, json_values)
def test_changing_any_one_field_of_the_body_changes_the_key(body: dict[str, Any], name: str, value: Any) -> None:
    assume(name not in DENY and name != "messages")
    other = {**body, name: value}
    assume(model_of(other) != model_of(body))
    assert keys_of(other) != keys_of(body)


@given(bodies, st.sampled_from(sorted(DENY)), json_values)
def test_fields_that_do_not_change_an_answer_do_not_change_the_key(body: dict[str, Any], name: str, value: Any) -> None:
    assert keys_of({**body, name: value}) == keys_of(body)


@given(bodies, st.data())
def test_changing_any_character_of_any_message_changes_the_key(body: dict[str, Any], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(body["messages"]) - 1))
    text = body["messages"][index]["content"]
    at = data.draw(st.integers(0, len(text)))
    removed = data.draw(st.integers(0, 2))
    changed = text[:at] + data.draw(any_text) + text[at + removed :]
    other = copy.deepcopy(body)
    other["messages"][index]["content"] = changed
    same = unicodedata.normalize("NFC", changed) == unicodedata.normalize("NFC", text)
    assert (keys_of(other) == keys_of(body)) == same


@given(bodies, bodies)
def test_different_conversations_have_different_keys(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert (keys_of(a) == keys_of(b)) == (model_of(a) == model_of(b))


@given(bodies)
def test_the_order_of_the_body_does_not_count(body: dict[str, Any]) -> None:
    assert keys_of(dict(reversed(body.items()))) == keys_of(body)


@pytest.mark.parametrize("text", ['x"},{"role":"assistant","content":"y', "x\x00assistant\x00y", "x\nassistant: y"])
def test_message_borders_cannot_be_imitated_inside_a_text(text: str) -> None:
    one = [{"role": "user", "content": text}]
    for split in ([("user", "x"), ("assistant", "y")], [("user", "x"), ("assistant", "y"), ("user", "")]):
        several = [{"role": role, "content": content} for role, content in split]
        assert keys_of({"messages": one}) != keys_of({"messages": several})


def test_moving_a_border_between_system_and_conversation_changes_the_key() -> None:
    a = [{"role": "system", "content": "a"}, {"role": "system", "content": "b"}, {"role": "user", "content": "c"}]
    b = [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}, {"role": "user", "content": "c"}]
    c = [{"role": "system", "content": "ab"}, {"role": "user", "content": "c"}]
    assert len({keys_of({"messages": talk}) for talk in (a, b, c)}) == 3


@given(
    st.builds(Scope, *[st.none() | any_text] * 5),
    st.builds(Scope, *[st.none() | any_text] * 5),
)
def test_scopes_share_only_if_they_are_equal(a: Scope, b: Scope) -> None:
    def shape(s: Scope) -> Any:
        return [
            None if v is None else unicodedata.normalize("NFC", v)
            for v in (s.credential, s.tenant, s.knowledge_version, s.session, s.user)
        ]

    assert (partition_key(a) == partition_key(b)) == (shape(a) == shape(b))


def test_a_credential_cannot_pose_as_a_tenant() -> None:
    assert partition_key(Scope(credential="a")) != partition_key(Scope(tenant="a"))
    assert partition_key(Scope(credential="")) != partition_key(Scope())


def test_every_part_of_the_identity_counts_and_every_body_field_lands_in_its_dimension() -> None:
    turn = turn_from_messages([{"role": "user", "content": "hi"}])
    base = IdentityParts(*[""] * len(IdentityParts.__dataclass_fields__))
    for field in IdentityParts.__slots__:
        values = {name: "x" if name == field else "" for name in IdentityParts.__slots__}
        assert identity_key(IdentityParts(**values)) != identity_key(base)

    def parts(**fields: Any) -> IdentityParts:
        return identity_parts("chat.completions", {"messages": [], **fields}, turn)

    plain = parts()
    assert parts(model="m").model == "m"
    assert parts(lora_path="l").lora == "l"
    assert parts(tools=[]).tools != plain.tools == ""
    assert parts(tools=[]).fields == plain.fields
    assert parts(temperature=0).fields != parts(temperature=0.0).fields != plain.fields
    assert identity_key(parts(model="")) != identity_key(plain)
    assert identity_key(parts(model=["m"])) != identity_key(parts(model="m"))


def test_a_field_of_one_endpoint_is_not_taken_for_the_conversation_at_another() -> None:
    turn = turn_from_messages([{"role": "user", "content": "hi"}])

    def fields(endpoint: str, **body: Any) -> str:
        return identity_parts(endpoint, body, turn).fields

    assert fields("completions", prompt="a") == fields("completions", prompt="b")
    assert fields("chat.completions", prompt="a") != fields("chat.completions", prompt="b")


def test_keys_of_different_kinds_never_meet() -> None:
    message = Message("assistant", "x")
    turn = Turn((), (), message)
    assert exact_key(P, I, turn) != place_key(P, I, [message])
    assert exact_key(P, I, turn) != exact_key(I, P, turn)
    with pytest.raises(ValueError, match="32 bytes"):
        exact_key(P[:-1], I + b"p", turn)


def test_the_place_after_an_answer_is_the_place_the_next_turn_stands_on() -> None:
    first = turn_from_messages([{"role": "system", "content": "s"}, {"role": "user", "content": "a"}])
    follow = turn_from_messages(
        [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"role": "user", "content": "c"},
        ]
    )
    after = place_key(P, I, (*first.history, first.message, Message("assistant", "b")))
    assert after == place_key(P, I, follow.history)


DATE = re.compile(r"Today is \d{4}-\d{2}-\d{2}")


def with_system(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "system", "content": text}, {"role": "user", "content": "hi"}]}


def test_a_volatile_part_of_the_system_prompt_does_not_count_and_the_rest_does() -> None:
    monday, tuesday = with_system("Today is 2026-01-05. Be brief."), with_system("Today is 2026-01-06. Be brief.")
    assert keys_of(monday) != keys_of(tuesday)
    assert keys_of(monday, (DATE,)) == keys_of(tuesday, (DATE,))
    assert keys_of(monday, (DATE,)) != keys_of(with_system("Today is 2026-01-05. Be long."), (DATE,))
    assert keys_of(monday, (DATE,)) != keys_of(with_system(". Be brief."), (DATE,))
    overlapping = (DATE, re.compile(r"is \d{4}"), re.compile("x*"))
    assert keys_of(monday, overlapping) == keys_of(tuesday, overlapping)


def test_a_volatile_pattern_leaves_the_conversation_alone() -> None:
    a, b = ({"messages": [{"role": "user", "content": f"Today is 2026-01-0{day}, right?"}]} for day in (5, 6))
    assert keys_of(a, (DATE,)) != keys_of(b, (DATE,))


@settings(max_examples=30)
@given(st.text(), st.text())
def test_masking_keeps_different_texts_apart(a: str, b: str) -> None:
    pattern = (re.compile(r"\d+"),)
    same = unicodedata.normalize("NFC", a) == unicodedata.normalize("NFC", b)
    digits_differ = re.sub(r"\d+", "", a) != re.sub(r"\d+", "", b)
    if same:
        assert keys_of(with_system(a), pattern) == keys_of(with_system(b), pattern)
    elif digits_differ and unicodedata.normalize("NFC", a + b).isascii():
        assert keys_of(with_system(a), pattern) != keys_of(with_system(b), pattern)
