"""What is read off a request: who shares, what is asked, what is forwarded."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerprint.errors import NotUnderstood
from proxy.endpoints import ENDPOINTS
from proxy.headers import RawHeaders
from proxy.plans import Plan, Planner, _json_object
from proxy.settings import Settings
from proxy.versions import Version

CHAT = ENDPOINTS["/v1/chat/completions"]
V1 = Version("v1", "t")


def plan(
    body: Any = None,
    headers: RawHeaders | None = None,
    *,
    peer: str | None = "10.0.0.9",
    query: bytes = b"",
    **sections: Any,
) -> Plan:
    planner = Planner(Settings(**sections))
    body = body or {"model": "m", "messages": [{"role": "user", "content": "What is a fjord?"}]}
    return planner.plan(CHAT, headers or [], query, json.dumps(body).encode(), peer)


def key(made: Plan) -> bytes:
    return made.query(V1, "e").exact_key


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(
    JSON | st.fixed_dictionaries({"messages": JSON, "model": JSON, "stream": JSON, "n": JSON, "stream_options": JSON})
)
def test_no_json_whatever_makes_a_plan_fail(body: Any) -> None:
    made = Planner(Settings()).plan(CHAT, [], b"", json.dumps(body).encode(), None)
    assert made.understood or made.bypass


@given(st.dictionaries(st.text(max_size=6), JSON, max_size=4), st.booleans(), st.sampled_from(["", " ", "\n\t"]))
def test_what_is_added_to_the_body_leaves_every_other_byte(more: dict[str, Any], usage: bool, space: str) -> None:
    body = {"messages": [{"role": "user", "content": "x"}]} | more
    raw = f"{space}{{{space}{json.dumps(body)[1:]}".encode()
    made = Planner(Settings()).plan(CHAT, [], b"", raw, None)
    forwarded = made.forward_body(raw, salted=True, with_usage=usage)
    assert forwarded.endswith(raw.strip()[1:].strip()) or "stream_options" in more
    read = json.loads(forwarded)
    if made.understood:
        assert {k: v for k, v in read.items() if k not in ("cache_salt", "stream_options")} == {
            k: v for k, v in json.loads(raw).items() if k not in ("cache_salt", "stream_options")
        }


def test_an_empty_object_stays_json() -> None:
    made = plan()
    assert json.loads(made.forward_body(b" { } ", salted=True, with_usage=True)).keys() == {
        "cache_salt",
        "stream_options",
    }


@pytest.mark.parametrize("options", ['{"include_usage":false}', "{}", "null", '{ "include_usage" : true }'])
def test_usage_is_asked_for_in_place(options: str) -> None:
    raw = '{"stream_options": OPTIONS, "messages":[{"role":"user","content":"\\"stream_options\\": {}"}]}'
    raw = raw.replace("OPTIONS", options)
    made = Planner(Settings()).plan(CHAT, [], b"", raw.encode(), None)
    forwarded = made.forward_body(raw.encode(), salted=False, with_usage=True)
    assert json.loads(forwarded)["stream_options"] == {"include_usage": True}
    assert json.loads(forwarded)["messages"] == json.loads(raw)["messages"]


def test_a_repeated_request_is_planned_once() -> None:
    planner = Planner(Settings())
    body = b'{"messages":[{"role":"user","content":"x"}]}'
    first = planner.plan(CHAT, [(b"authorization", b"a"), (b"date", b"1")], b"", body, None)
    assert planner.plan(CHAT, [(b"date", b"2"), (b"authorization", b"a")], b"", body, None) is first
    assert planner.plan(CHAT, [(b"authorization", b"b")], b"", body, None) is not first
    assert planner.plan(CHAT, [(b"authorization", b"a"), (b"cache-control", b"no-store")], b"", body, None) is not first
    assert planner.plan(CHAT, [(b"authorization", b"a")], b"api-version=2", body, None) is not first


def test_plans_kept_do_not_grow_without_bound() -> None:
    planner = Planner(Settings())
    for number in range(5000):
        planner.plan(CHAT, [], b"", b'{"messages":[{"role":"user","content":"%d"}]}' % number, None)
    assert len(planner._kept) == 4096
    assert planner._bytes == sum(size for _, size in planner._kept.values())


def test_the_version_of_the_backend_is_part_of_the_key() -> None:
    made = plan()
    first = made.query(V1, "e")
    assert made.query(V1, "e") is first
    assert made.query(Version("v2", "t"), "e").exact_key != first.exact_key
    assert made.query(V1, "another embedder").exact_key != first.exact_key


def test_query_string_and_beta_headers_part_the_cache() -> None:
    keys = [
        key(plan()), key(plan(query=b"beta=true")), key(plan(headers=[(b"anthropic-beta", b"x")])),
        key(plan(headers=[(b"anthropic-beta", b"x"), (b"anthropic-beta", b"y")])),
    ]  # fmt: skip
    assert len(set(keys)) == len(keys)


TRUSTED = {"trusted_tenant_callers": ["10.0.0.0/8"]}


def test_a_tenant_is_believed_from_trusted_callers_only() -> None:
    def partition(tenant: str, token: str, peer: str, **sharing: Any) -> bytes:
        headers = [(b"x-antiphon-tenant", tenant.encode()), (b"authorization", f"Bearer {token}".encode())]
        return plan(headers=headers, peer=peer, sharing={**TRUSTED, **sharing}).partition

    inside, outside = "10.1.2.3", "192.0.2.1"
    assert partition("a", "x", inside) != partition("b", "x", inside)
    assert partition("a", "x", outside) == partition("b", "x", outside)
    assert partition("a", "x", inside) != partition("a", "y", inside)
    assert partition("a", "x", inside, share="tenant") == partition("a", "y", inside, share="tenant")
    assert partition("a", "x", outside, share="tenant") != partition("a", "y", outside, share="tenant")


@pytest.mark.parametrize("share", ["session", "user"])
def test_sharing_can_be_narrowed_to_sessions_or_users(share: str) -> None:
    def made(user: str | None, session: str | None) -> Plan:
        body = {"messages": [{"role": "user", "content": "What is a fjord?"}]} | ({"user": user} if user else {})
        headers = [(b"x-antiphon-session", session.encode())] if session else []
        return plan(body, headers, sharing={"share": share})

    one, other = (made("u", "s"), made("v", "s")) if share == "user" else (made("u", "s"), made("u", "t"))
    assert one.bypass is None
    assert one.partition != other.partition
    assert made(None, None).bypass == f"no-{share}"


def test_every_partition_an_answer_may_be_in_is_named() -> None:
    planner = Planner(Settings())
    headers = [(b"authorization", b"Bearer a"), (b"x-antiphon-session", b"s")]
    named = planner.partitions(headers, None, "u")

    def stored(content: str, **more: Any) -> bytes:
        body = {"messages": [{"role": "user", "content": content}], **more}
        return planner.plan(CHAT, headers, b"", json.dumps(body).encode(), None).partition

    used = {stored("What is a fjord?"), stored("What's my balance?"), stored("What's my balance?", user="u")}
    assert len(used) == 3
    assert used == set(named)


def test_volatile_parts_of_a_system_prompt_do_not_part_the_cache() -> None:
    def made(date: str, question: str = "What is a fjord?") -> bytes:
        messages = [{"role": "system", "content": f"Today is {date}."}, {"role": "user", "content": question}]
        made = plan({"messages": messages}, sharing={"volatile_system_parts": [r"\d{4}-\d\d-\d\d"]})
        return made.query(V1, "e", (re.compile(r"\d{4}-\d\d-\d\d"),)).exact_key

    assert made("2026-11-29") == made("2026-11-30")
    assert made("2026-11-29") != made("tomorrow")


def test_an_agents_later_rounds_are_about_what_was_asked() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": {}}]}
    result = {"role": "tool", "tool_call_id": "c", "content": "rain"}
    asked = {"role": "user", "content": "What's the weather like in Bergen today?"}
    assert (plan({"messages": [asked, call, result]}).bypass or "").startswith("time-sensitive")
    neutral = {"role": "user", "content": "How full is tank 3?"}
    made = plan({"messages": [neutral, call, result]})
    assert made.bypass is None
    assert not made.semantic


@pytest.mark.parametrize(
    ("admission", "bypassed"), [({}, True), ({"time_sensitive": "exact", "time_sensitive_ttl_s": 5}, False)]
)
def test_time_sensitive_turns_are_admitted_for_a_short_time_where_allowed(
    admission: dict[str, Any], bypassed: bool
) -> None:
    body = {"messages": [{"role": "user", "content": "What's the weather like in Bergen today?"}]}
    made = plan(body, admission=admission)
    assert bool(made.bypass) == bypassed
    if not bypassed:
        assert made.ttl_s == 5
        assert not made.semantic


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b'{"model": "m", "temperature": NaN}', "a number that JSON does not have"),
        (b'{"model": "m", "temperature": -Infinity}', "a number that JSON does not have"),
        (b'{"model": "m", "temperature": 1e999}', "out of range"),
        (b'{"model": "m", "user": "\\ud800"}', "out of range"),
        (b'\xef\xbb\xbf{"model": "m"}', "byte order mark"),
        (b'{"model": "\xff"}', "not UTF-8"),
        (b'{"model": "m"', "not JSON"),
        (b"[]", "not an object"),
        (b'{"model": "m", "model": "n"}', "a key stands twice"),
    ],
)
def test_the_reason_says_what_is_wrong_with_a_body(raw: bytes, why: str) -> None:
    made = Planner(Settings()).plan(ENDPOINTS["/v1/chat/completions"], [], b"", raw, None)
    assert made.bypass is not None
    assert why in made.bypass
    assert not made.understood


KEYS = st.sampled_from(["a", 'q"', "b\\", ":", '\\":', "ü", ""])
TREES = st.recursive(
    st.none() | st.integers() | st.text(alphabet='a":\\ ,{}\n', max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(tree=st.dictionaries(KEYS, TREES, max_size=4), indent=st.sampled_from([None, 1]), space=st.text(" \t\r\n"))
def test_whatever_the_texts_hold_a_body_with_single_keys_is_read(
    tree: dict[str, Any], indent: int | None, space: str
) -> None:
    raw = json.dumps(tree, indent=indent, separators=(",", f"{space}:{space}")).encode()
    assert _json_object(raw) == tree


@given(tree=st.dictionaries(KEYS, TREES, max_size=4), key=KEYS, first=TREES, second=TREES, data=st.data())
def test_a_key_that_stands_twice_is_always_seen(
    tree: dict[str, Any], key: str, first: Any, second: Any, data: st.DataObject
) -> None:
    name = json.dumps(key)
    space = data.draw(st.text(" \t\r\n", max_size=2))
    escaped = '"' + "".join(f"\\u{ord(c):04x}" for c in key) + '"'
    inner = f"{{{name}{space}:{json.dumps(first)},{data.draw(st.sampled_from([name, escaped]))}:{json.dumps(second)}}}"
    raw = json.dumps({**tree, "x": ["HERE"]}).replace('"HERE"', inner).encode()
    with pytest.raises(NotUnderstood, match="twice"):
        _json_object(raw)
