"""Chat messages are read completely or refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerprint.chat import message_from_dict, turn_from_messages
from fingerprint.conversation import Message
from fingerprint.errors import NotUnderstood


def user(content: Any, **rest: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **rest}


def part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def test_a_conversation_falls_into_system_history_and_message() -> None:
    turn = turn_from_messages(
        [
            {"role": "system", "content": "s"},
            {"role": "developer", "content": "d"},
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"role": "system", "content": "later"},
            {"role": "user", "content": "c"},
        ]
    )
    assert [m.text for m in turn.system] == ["s", "d"]
    assert [m.text for m in turn.history] == ["a", "b", "later"]
    assert turn.message == Message("user", "c")


def test_one_text_part_is_the_same_message_as_the_plain_string() -> None:
    assert message_from_dict(user([part("hi")])) == message_from_dict(user("hi")) == Message("user", "hi")


def test_several_text_parts_read_as_lines_but_are_not_the_one_text_with_line_breaks() -> None:
    several = message_from_dict(user([part("a"), part("b")]))
    assert several.text == "a\nb"
    assert several != message_from_dict(user("a\nb"))
    assert several != message_from_dict(user([part("a\nb"), part("")]))


def test_pictures_and_sound_are_kept_whole() -> None:
    def picture(url: str) -> Message:
        return message_from_dict(user([part("what is it?"), {"type": "image_url", "image_url": {"url": url}}]))

    assert picture("a").text == "what is it?"
    assert picture("a") != picture("b")
    assert picture("a").opaque != b""


def test_tool_calls_and_results_are_kept_whole() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "f"}}]}
    assert message_from_dict(call).text == ""
    assert message_from_dict(call) != message_from_dict({"role": "assistant", "content": None})
    assert message_from_dict({"role": "assistant", "content": None}) != message_from_dict(
        {"role": "assistant", "content": ""}
    )
    result = {"role": "tool", "tool_call_id": "1", "content": "42"}
    assert message_from_dict(result) != message_from_dict({**result, "tool_call_id": "2"})


def test_the_empty_fields_an_sdk_sends_back_with_an_answer_do_not_count() -> None:
    sent_back = {"role": "assistant", "content": "yes", "refusal": None, "tool_calls": None, "audio": None}
    assert message_from_dict(sent_back) == Message("assistant", "yes")


def test_a_name_or_an_unknown_field_counts() -> None:
    plain = message_from_dict(user("hi"))
    assert len({plain, message_from_dict(user("hi", name="a")), message_from_dict(user("hi", x={"y": 1}))}) == 3


def test_texts_are_brought_into_nfc_and_otherwise_left_alone() -> None:
    assert message_from_dict(user("e\u0301 Ａ  \ud83d")).text == "é Ａ  \ud83d"


@pytest.mark.parametrize(
    "messages",
    [
        None, {}, "hi", [], ["hi"], [{}], [{"content": "x"}], [{"role": "robot", "content": "x"}],
        [{"role": ["user"], "content": "x"}], [user(1)], [user({"text": "x"})], [user(["x"])], [user([{"text": "x"}])],
        [user([{"type": "text"}])], [user([{"type": "text", "text": 1}])], [user([{"type": 3}])], (user("x"),),
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_a_reason(messages: object) -> None:
    with pytest.raises(NotUnderstood) as refusal:
        turn_from_messages(messages)
    assert refusal.value.reason


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "type", "text", "name"]), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(json_like | st.lists(st.fixed_dictionaries({"role": st.just("user"), "content": json_like}), max_size=3))
def test_no_input_raises_anything_but_not_understood(messages: Any) -> None:
    try:
        turn = turn_from_messages(messages)
    except NotUnderstood:
        return
    assert len(turn.messages) == len(messages)
