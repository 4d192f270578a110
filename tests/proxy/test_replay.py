"""A stored answer comes back as the same answer, as JSON and as a stream."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.endpoints import ENDPOINTS
from proxy.endpoints.choices import ChoicesAssembler
from proxy.endpoints.pieces import natural_pieces
from proxy.endpoints.sse import EventReader

CHAT = ENDPOINTS["/v1/chat/completions"]
COMPLETIONS = ENDPOINTS["/v1/completions"]

TEXT = st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=80)
JSON_OBJECT = st.dictionaries(st.sampled_from(["a", "b"]), st.one_of(st.integers(), TEXT), max_size=2)
CALL = st.builds(
    lambda name, arguments, number: {
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    },
    TEXT, JSON_OBJECT, st.integers(0, 9),
)  # fmt: skip


@st.composite
def replies(draw: st.DrawFn) -> dict[str, Any]:
    choices = []
    for index in range(draw(st.integers(1, 3))):
        calls = draw(st.lists(CALL, max_size=2))
        message: dict[str, Any] = {"role": "assistant", "content": None if calls else draw(TEXT)}
        if draw(st.booleans()):
            message["reasoning_content"] = draw(TEXT)
        if calls:
            message["tool_calls"] = calls
        token = {"token": draw(TEXT), "logprob": -0.5, "bytes": None, "top_logprobs": []}
        logprobs = {"content": [token]} if draw(st.booleans()) and not calls else None
        choices.append(
            {
                "index": index,
                "message": message,
                "logprobs": logprobs,
                "finish_reason": "tool_calls" if calls else "stop",
                "matched_stop": draw(st.sampled_from([2, "END"])),
            }
        )
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 5,
        "model": draw(TEXT),
        "choices": choices,
        "usage": {"prompt_tokens": 3, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 1}},
        "metadata": {"weight_version": "v1"},
    }


def reassembled(stream: bytes, *, chat: bool = True) -> dict[str, Any]:
    reader, assembler = EventReader(), ChoicesAssembler(chat=chat)
    for event in reader.feed(stream):
        assert event.data is not None
        assembler.add(event.data)
    assert reader.rest == b""
    whole = assembler.finish()
    assert whole.why_not is None
    assert whole.reply is not None
    return whole.reply


def without_identity(reply: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in reply.items() if key not in ("id", "created", "object")}


@given(replies())
def test_a_replayed_stream_reassembles_to_the_stored_answer(reply: dict[str, Any]) -> None:
    stream = CHAT.as_stream(reply, include_usage=True).fill(7)
    again = reassembled(stream)
    assert without_identity(again) == without_identity(reply)
    assert again["created"] == 7


@given(replies())
def test_a_replayed_json_is_the_stored_answer_with_a_fresh_id(reply: dict[str, Any]) -> None:
    template = CHAT.as_json(reply)
    first, second = json.loads(template.fill(7)), json.loads(template.fill(8))
    assert without_identity(first) == without_identity(reply)
    assert first["created"] == 7
    assert len({first["id"], second["id"], reply["id"]}) == 3


@given(replies())
def test_a_stream_has_one_id_begins_with_the_role_and_ends_with_done(reply: dict[str, Any]) -> None:
    events = [e.data for e in EventReader().feed(CHAT.as_stream(reply, include_usage=False).fill(7))]
    assert events[-1] == b"[DONE]"
    chunks = [msgspec.json.decode(e) for e in events[:-1] if e is not None]
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert not any(chunk.get("usage") for chunk in chunks)
    assert all(chunk["object"] == "chat.completion.chunk" for chunk in chunks)


@given(TEXT)
def test_a_text_completion_survives_too(text: str) -> None:
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": "stop"}
    reply = {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 5,
        "model": "m",
        "choices": [choice],
        "usage": None,
    }
    again = reassembled(COMPLETIONS.as_stream(reply, include_usage=False).fill(7), chat=False)
    assert without_identity(again) == without_identity(reply)


@given(st.text(max_size=400))
def test_pieces_join_to_the_text_and_none_is_empty(text: str) -> None:
    pieces = natural_pieces(text)
    assert "".join(pieces) == text
    assert all(pieces)


def test_a_long_text_comes_in_many_pieces_but_not_in_thousands() -> None:
    assert 100 < len(natural_pieces("word " * 5000)) <= 512
    assert natural_pieces("one two\n\nthree") == ["one ", "two\n\n", "three"]
    assert len(natural_pieces("这是一个没有空格的很长的句子它应该被切成若干个片段而不是一次全部发送出去")) > 5


@pytest.mark.parametrize("cluster", ["👩‍🚀" * 9, "e\u0301" * 30, "🇳🇱🇳🇴" * 8, "か\u3099" * 20])
def test_no_character_the_reader_sees_is_taken_apart(cluster: str) -> None:
    assert natural_pieces(cluster) == [cluster]


def chunk(**part: Any) -> bytes:
    return msgspec.json.encode({"id": "x", "model": "m", "choices": [{"index": 0, **part}]})


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([chunk(delta={"content": "a"}, finish_reason="stop")], "no-done"),
        ([chunk(delta={"content": "a"}), b'{"error":{"message":"x"}}', b"[DONE]"], "error-event"),
        ([b"{broken", b"[DONE]"], "not-json"),
        ([b'{"choices":5}', b"[DONE]"], "no-choices"),
        ([chunk(delta={"audio": {"data": "x"}}), b"[DONE]"], "unknown-delta"),
        ([chunk(delta={"content": 5}), b"[DONE]"], "not-text"),
        ([b"[DONE]", chunk(delta={"content": "a"})], "after-done"),
        ([chunk(delta={}, token_ids=[1]), chunk(delta={}, token_ids=[2]), b"[DONE]"], "changing-field"),
    ],
)
def test_a_stream_that_is_not_understood_is_not_put_together(events: list[bytes], why: str) -> None:
    assembler = ChoicesAssembler(chat=True)
    for event in events:
        assembler.add(event)
    assert assembler.finish().why_not == why


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        ({"finish_reason": "length"}, "length"),
        ({"finish_reason": "content_filter"}, "content_filter"),
        ({"finish_reason": "abort"}, "abort"),
        ({"finish_reason": None}, "unfinished"),
        ({"message": {"role": "assistant", "content": ""}}, "empty"),
        ({"message": {"role": "assistant", "content": " \n"}}, "empty"),
        ({"message": {"role": "assistant", "content": None}}, "empty"),
        ({"message": {"role": "assistant", "content": "x", "refusal": "no"}}, "unusual"),
        ({"message": "x"}, "not-a-choice"),
        ({"index": 3}, "not-a-choice"),
        ({}, None),
    ],
)
def test_only_a_complete_and_successful_answer_may_be_stored(choice: dict[str, Any], why: str | None) -> None:
    whole = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop", **choice}
    assert CHAT.judge({"choices": [whole]}, {}).why_not == why


def test_a_missing_choice_or_an_error_is_no_answer() -> None:
    whole = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
    assert CHAT.judge({"choices": [whole]}, {"n": 2}).why_not == "choice-missing"
    assert CHAT.judge({"choices": [whole], "error": {"message": "x"}}, {}).why_not == "error"
    assert CHAT.judge({"object": "error", "message": "x"}, {}).why_not == "error"
    assert CHAT.judge([], {}).why_not == "not-an-object"


def test_usage_that_is_not_known_is_not_made_up() -> None:
    from proxy.turns import _prepare

    choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
    reply = {"id": "x", "created": 1, "choices": [choice], "usage": None}
    assert _prepare(CHAT, reply, "j") is None
    assert _prepare(CHAT, reply, "u") is None
    assert _prepare(CHAT, reply, "s") is not None
