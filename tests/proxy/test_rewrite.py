"""A changed body is the client's but for what was to be changed."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.rewrite import Altered, StableForms, rewritten

RAW = (
    b'{ "model":"m", "x": [1.0, 1e3, 123456789012345678901234567890], "messages": [ '
    b'{"role":"system","content":"Be \\u00e4"},'
    b'{"content":"Hi","role":"user", "name": "n"}, {"role":"assistant","content":"Yes."} ,'
    b'{"role":"user","content":[{"type":"text","text":"And?"}]}, {"role":"user","content":"So?"}],"n":1}'
)


def test_only_the_texts_named_are_exchanged_and_every_other_byte_stays() -> None:
    written = rewritten(RAW, texts={1: 'He said "hallo"', 3: "Und?"})
    body = json.loads(written)
    assert body["messages"][1] == {"content": 'He said "hallo"', "role": "user", "name": "n"}
    assert body["messages"][3] == {"role": "user", "content": [{"type": "text", "text": "Und?"}]}
    for untouched in (
        b"[1.0, 1e3, 123456789012345678901234567890]",
        b'"Be \\u00e4"',
        b'{"role":"user","content":"So?"}',
    ):
        assert untouched in written


def test_messages_can_be_put_before_the_last_one() -> None:
    added = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]
    body = json.loads(rewritten(RAW, texts={}, before_last=added))
    assert body["messages"][-3:] == [*added, {"role": "user", "content": "So?"}]


@pytest.mark.parametrize(
    "content", [None, 7, [], [{"type": "image_url", "image_url": {}}], [{"type": "text", "text": "a"}] * 2]
)
def test_what_is_not_plain_text_is_not_exchanged(content: Any) -> None:
    raw = json.dumps({"messages": [{"role": "user", "content": content}, {"role": "user", "content": "x"}]}).encode()
    with pytest.raises(Altered):
        rewritten(raw, texts={0: "other"})


def test_a_member_with_another_value_is_refused() -> None:
    with pytest.raises(Altered):
        rewritten(RAW, texts={}, members={"n": b"2"})


def tool(order: list[str]) -> dict[str, Any]:
    properties = {name: {"type": "string"} for name in order}
    return {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": properties}}}


def with_tools(*tools: Any, reverse: bool = False) -> tuple[dict[str, Any], bytes]:
    def turned(value: Any) -> Any:
        if isinstance(value, dict):
            items = list(value.items())
            return {key: turned(item) for key, item in (reversed(items) if reverse else items)}
        return [turned(item) for item in value] if isinstance(value, list) else value

    body = {"messages": [{"role": "user", "content": "x"}], "tools": turned(list(tools))}
    return body, json.dumps(body).encode()


def test_tools_are_written_as_they_were_first_seen() -> None:
    forms = StableForms()
    body, raw = with_tools(tool(["b", "a"]))
    assert forms.members(b"p", body, raw, ("tools", "functions")) == {}
    turned, other = with_tools(tool(["b", "a"]), reverse=True)
    assert raw != other
    changed = forms.members(b"p", turned, other, ("tools", "functions"))
    written = rewritten(other, texts={}, members=changed)
    assert bytes(msgspec.json.decode(written, type=dict[str, msgspec.Raw])["tools"]) == bytes(
        msgspec.json.decode(raw, type=dict[str, msgspec.Raw])["tools"]
    )
    assert json.loads(written) == turned


@pytest.mark.parametrize(
    "other", [[tool(["a", "b", "c"])], [tool(["a", "b"])] * 2, [{**tool(["a", "b"]), "strict": 1}]]
)
def test_other_tools_are_other_tools(other: list[Any]) -> None:
    forms = StableForms()
    forms.members(b"p", *with_tools(tool(["a", "b"])), ("tools",))
    assert forms.members(b"p", *with_tools(*other), ("tools",)) == {}


def test_one_caller_does_not_set_the_form_for_another() -> None:
    forms = StableForms()
    forms.members(b"p", *with_tools(tool(["b", "a"])), ("tools",))
    assert forms.members(b"q", *with_tools(tool(["b", "a"]), reverse=True), ("tools",)) == {}


def test_the_number_one_and_true_are_not_the_same_tool() -> None:
    forms = StableForms()
    for value in (1, True, 1.0):
        body, raw = with_tools({"strict": value})
        assert forms.members(b"p", body, raw, ("tools",)) == {}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.lists(st.dictionaries(st.text(), json_values, max_size=3), max_size=4),
    st.dictionaries(st.text(), json_values, max_size=3),
    st.text(),
)
def test_whatever_else_a_request_holds_comes_through(
    others: list[dict[str, Any]], more: dict[str, Any], new: str
) -> None:
    messages = [{"role": "user", "content": "old"}, *others, {"role": "user", "content": "last"}]
    raw = json.dumps({**more, "messages": messages}).encode()
    try:
        msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return  # such a body is forwarded untouched
    try:
        body = msgspec.json.decode(rewritten(raw, texts={0: new}))
    except UnicodeEncodeError:
        return
    before = msgspec.json.decode(raw)
    assert body["messages"][0] == {"role": "user", "content": new}
    assert body["messages"][1:] == before["messages"][1:]
    assert {key: body[key] for key in more if key != "messages"} == {k: before[k] for k in more if k != "messages"}
