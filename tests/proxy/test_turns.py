"""The life of a turn, over HTTP, with the real store behind it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from tests.proxy.support import CHAT, Proxy, running_proxy

Backend = Any  # the scripted backend of the shared cases


@pytest.fixture(scope="module")
def backend(scripted_upstream_module: ModuleType) -> Iterator[Backend]:
    upstream = scripted_upstream_module.ScriptedUpstream()
    yield upstream
    upstream.close()


@pytest.fixture(scope="module")
def proxy(backend: Backend) -> Iterator[Proxy]:
    with running_proxy(backend.url, upstream={"version_interval_s": 60}) as running:
        yield running


@pytest.fixture(autouse=True)
def _apart(backend: Backend, proxy: Proxy, request: pytest.FixtureRequest) -> None:
    backend.play({})
    backend.calls.clear()
    proxy.model = request.node.name


def calls(backend: Backend) -> list[Any]:
    return [call for call in backend.calls if call.method == "POST"]


def test_a_repeat_is_answered_without_the_model(proxy: Proxy, backend: Backend) -> None:
    first, second = proxy.ask("How tall is a giraffe?"), proxy.ask("How tall is a giraffe?")
    assert len(calls(backend)) == 1
    assert second.text == first.text
    assert (first.reuse, second.reuse) == ("miss", "answer")
    assert first.headers["cache-status"] == "antiphon; fwd=miss; stored"
    assert second.headers["cache-status"] == "antiphon; hit"
    assert second.headers["x-antiphon-entry"] == first.headers["x-antiphon-entry"]
    assert second.headers["x-antiphon-reason"] == "exact"
    assert second.headers["age"].isdigit()
    assert second.json["id"] != first.json["id"]
    ignore = ("id", "created")
    assert {k: v for k, v in second.json.items() if k not in ignore} == {
        k: v for k, v in first.json.items() if k not in ignore
    }


def test_a_reworded_turn_is_answered_without_the_model(proxy: Proxy, backend: Backend) -> None:
    first = proxy.ask("how heavy is a grown african elephant bull")
    time.sleep(0.3)  # its vector is made in the background
    second = proxy.ask("how heavy is a grown african elephant bull please")
    assert second.text == first.text
    assert second.headers["cache-status"] == "antiphon; hit; detail=reworded"
    assert 0.7 <= float(second.headers["x-antiphon-confidence"]) <= 1


@pytest.mark.parametrize("stored_as_stream", [False, True])
def test_one_entry_serves_both_forms(proxy: Proxy, backend: Backend, stored_as_stream: bool) -> None:
    question = f"Which form is stored, {stored_as_stream}?"
    first = proxy.ask(question, stream=stored_as_stream)
    streamed = proxy.ask(question, stream=True)
    plain = proxy.ask(question)
    with_usage = proxy.ask(question, stream=True, stream_options={"include_usage": True})
    assert len(calls(backend)) == 1
    assert first.text == streamed.text == plain.text == with_usage.text
    assert plain.json["object"] == "chat.completion"
    assert plain.json["usage"]["total_tokens"] > 0
    assert not any(chunk.get("usage") for chunk in first.chunks + streamed.chunks) if stored_as_stream else True
    assert with_usage.chunks[-1]["usage"] == plain.json["usage"]
    assert streamed.chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert streamed.events[-1] == "[DONE]"
    assert streamed.headers["content-type"].startswith("text/event-stream")


def test_a_stream_reaches_the_client_as_the_backend_sent_it(proxy: Proxy, backend: Backend) -> None:
    got = proxy.ask("Stream this.", stream=True, stream_options={"include_usage": True})
    assert got.body == calls(backend)[-1].reply_body


def test_the_usage_event_asked_for_by_the_proxy_is_all_that_is_held_back(proxy: Proxy, backend: Backend) -> None:
    got = proxy.ask("Stream that.", stream=True)
    sent = calls(backend)[-1]
    assert sent.body["stream_options"] == {"include_usage": True}
    events = sent.reply_body.split(b"\n\n")
    assert got.body == b"\n\n".join(e for e in events if b'"choices": []' not in e)


@pytest.mark.parametrize("content", ["Only the salt is added to: ä, 1e3 and 1.0?", "empty options?"])
def test_the_body_is_forwarded_unchanged_but_for_the_salt(proxy: Proxy, backend: Backend, content: str) -> None:
    text = '{ "messages" : [ {"role":"user" , "content":"CONTENT"}],\n "x": [1.0, 1e3, null], "model":"m"}'
    raw = text.replace("CONTENT", content).encode()
    proxy.send(body=raw)
    forwarded = calls(backend)[-1].raw
    salt = json.loads(forwarded)["cache_salt"]
    assert forwarded == raw.replace(b'{ "messages"', b'{ "cache_salt":"%s","messages"' % salt.encode(), 1)


def test_a_salt_or_key_of_the_clients_own_is_left_alone(proxy: Proxy, backend: Backend) -> None:
    proxy.ask("whose salt?", cache_salt="mine")
    assert calls(backend)[-1].body["cache_salt"] == "mine"
    proxy.ask("whose key?", extra_key="mine")
    assert "cache_salt" not in calls(backend)[-1].body


def test_salts_differ_between_credentials_and_stay_within_one(proxy: Proxy, backend: Backend) -> None:
    for token, question in (("a", "one?"), ("a", "two?"), ("b", "one?"), ("a", "write a poem about salt")):
        proxy.ask(question, {"Authorization": f"Bearer {token}"})
    salts = [call.body["cache_salt"] for call in calls(backend)]
    assert salts[0] == salts[1] == salts[3] != salts[2]


@pytest.mark.parametrize(
    "name", ["Authorization", "x-api-key", "api-key", "Cookie", "OpenAI-Organization", "X-Antiphon-Knowledge-Version"]
)
def test_whoever_asks_with_something_else_gets_an_answer_of_their_own(
    proxy: Proxy, backend: Backend, name: str
) -> None:
    question = f"Who shares by {name}?"
    answers = [proxy.ask(question, headers).text for headers in ({name: "a"}, {name: "b"}, {}, {name: "a"})]
    assert answers[3] == answers[0]
    assert len(set(answers)) == 3


def test_a_tenant_named_by_just_anybody_is_not_believed(proxy: Proxy, backend: Backend) -> None:
    first = proxy.ask("Is this ours?", {"Authorization": "Bearer x", "X-Antiphon-Tenant": "t1"})
    again = proxy.ask("Is this ours?", {"Authorization": "Bearer x"})
    other = proxy.ask("Is this ours?", {"Authorization": "Bearer y", "X-Antiphon-Tenant": "t1"})
    assert again.text == first.text != other.text


def test_no_header_of_the_proxys_reaches_the_backend(proxy: Proxy, backend: Backend) -> None:
    proxy.ask("headers?", {"X-Antiphon-Session": "s", "X-Antiphon-Admin-Token": "t", "X-Mine": "1"})
    headers = calls(backend)[-1].headers
    assert not [name for name in headers if name.startswith("x-antiphon")]
    assert headers["x-mine"] == "1"


def test_no_cache_is_fresh_and_replaces(proxy: Proxy, backend: Backend) -> None:
    first = proxy.ask("What replaces what?")
    fresh = proxy.ask("What replaces what?", {"Cache-Control": "no-cache"})
    last = proxy.ask("What replaces what?")
    assert first.text != fresh.text == last.text
    assert fresh.headers["cache-status"] == "antiphon; fwd=request; stored"


def test_no_store_is_neither_looked_up_nor_stored(proxy: Proxy, backend: Backend) -> None:
    question = "Who keeps this?"
    kept = proxy.ask(question)
    secret = proxy.ask(question, {"Cache-Control": "no-store"})
    assert secret.text != kept.text
    assert "x-antiphon-entry" not in secret.headers
    assert proxy.ask(question).text == kept.text


def test_only_if_cached_never_calls_the_backend(proxy: Proxy, backend: Backend) -> None:
    for body in (b'{"messages":[{"role":"user","content":"Nobody asked this."}]}', b"not json"):
        got = proxy.send(body=body, headers={"Cache-Control": "only-if-cached"})
        assert got.status == 504
        assert got.json["error"]["message"]
    assert calls(backend) == []


def test_a_lifetime_of_nothing_stores_nothing(proxy: Proxy, backend: Backend) -> None:
    first = proxy.ask("How long does this live?", {"X-Antiphon-TTL": "0"})
    assert proxy.ask("How long does this live?").text != first.text


def test_a_session_that_asks_again_gets_a_new_answer_which_replaces(proxy: Proxy, backend: Backend) -> None:
    session = {"X-Antiphon-Session": "regenerate"}
    first = proxy.ask("Suggest a book on bees, any.", session)
    second = proxy.ask("Suggest a book on bees, any.", session)
    other = proxy.ask("Suggest a book on bees, any.", {"X-Antiphon-Session": "somebody else"})
    assert first.text != second.text == other.text
    assert second.headers["x-antiphon-reason"] == "regenerate"


@pytest.mark.parametrize(
    ("question", "word"),
    [
        ("What's the weather like in Bergen today?", "time-sensitive"),
        ("Write a short poem about a lighthouse.", "creative"),
        ("Hello!", "smalltalk"),
        ("What's my current account balance?", "personal"),
    ],
)
def test_some_turns_are_never_reused(proxy: Proxy, backend: Backend, question: str, word: str) -> None:
    first, second = proxy.ask(question), proxy.ask(question)
    assert first.text != second.text
    assert second.reuse == "bypass"
    assert second.headers["x-antiphon-reason"].startswith(word)


def test_a_personal_turn_is_shared_only_within_its_user_or_session(proxy: Proxy, backend: Backend) -> None:
    question = "What's my order status?"
    one, two, again = (proxy.ask(question, user=user).text for user in ("u1", "u2", "u1"))
    assert one == again != two
    sessions = [proxy.ask(question, {"X-Antiphon-Session": name}).text for name in ("s1", "s2")]
    assert len({one, two, *sessions}) == 4


def test_a_correction_goes_to_the_model_each_time(proxy: Proxy, backend: Backend) -> None:
    def turn(*contents: str) -> Any:
        roles = ("user", "assistant")
        messages = [{"role": roles[i % 2], "content": content} for i, content in enumerate(contents)]
        got = proxy.send(body=json.dumps({"model": "m", "messages": messages}).encode())
        proxy.settle()
        return got

    first = turn("How many legs does a lobster have?")
    fixes = [turn("How many legs does a lobster have?", first.text, "No, that's wrong, count again.") for _ in range(2)]
    assert fixes[0].text != fixes[1].text
    assert fixes[0].headers["x-antiphon-reason"].startswith("correction")


TOOLS = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]
CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"a": 1}'}}


@pytest.mark.parametrize("stored_as_stream", [False, True])
def test_tool_calls_come_back_whole_in_both_forms(proxy: Proxy, backend: Backend, stored_as_stream: bool) -> None:
    question = f"Find it, {stored_as_stream}"
    backend.play({"tool_calls": [CALL]})
    proxy.ask(question, tools=TOOLS, stream=stored_as_stream)
    plain, streamed = proxy.ask(question, tools=TOOLS), proxy.ask(question, tools=TOOLS, stream=True)
    assert len(calls(backend)) == 1
    assert plain.json["choices"][0]["message"]["tool_calls"] == [CALL]
    assert plain.json["choices"][0]["finish_reason"] == "tool_calls"
    deltas = [c["delta"] for chunk in streamed.chunks for c in chunk["choices"]]
    assert [call for delta in deltas for call in delta.get("tool_calls", [])] == [{**CALL, "index": 0}]


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": TOOLS},
        {"logprobs": True},
        {"n": 2},
        {"response_format": {"type": "json_object"}},
        {"regex": "[a-z]+"},
    ],
)
def test_a_formed_reply_is_reused_for_the_very_same_request_only(
    proxy: Proxy, backend: Backend, fields: dict[str, Any]
) -> None:
    question = f"list the kinds of formed replies there are {sorted(fields)}"
    first = proxy.ask(question, **fields)
    time.sleep(0.2)
    assert proxy.ask(question, **fields).reuse == "answer"
    assert proxy.ask(question + " please", **fields).reuse == "miss"
    assert proxy.ask(question).text != first.text


@pytest.mark.parametrize(
    "fields",
    [
        {"session_params": {"id": "s"}},
        {"previous_response_id": "r"},
        {"input_ids": [1]},
        {"n": 0},
        {"background": True},
    ],
)
def test_what_depends_on_state_at_the_backend_is_bypassed(
    proxy: Proxy, backend: Backend, fields: dict[str, Any]
) -> None:
    assert [proxy.ask("stateful?", **fields).reuse for _ in range(2)] == ["bypass", "bypass"]


@pytest.mark.parametrize(
    "script",
    [
        {"finish_reason": "length"},
        {"finish_reason": "content_filter"},
        {"content": ""},
        {"content": [None]},
        {"status": 500},
        {"status": 429, "headers": {"Retry-After": "7"}},
        {"status": 200, "body": "{broken"},
        {"status": 200, "body": {"error": {"message": "x"}}},
        {"status": 201, "body": []},
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_only_complete_answers_are_kept(proxy: Proxy, backend: Backend, script: dict[str, Any], stream: bool) -> None:
    question = f"Is {sorted(script.items())!r} kept, {stream}?"
    backend.play(script)
    first = proxy.ask(question, stream=stream)
    if "status" in script:
        assert (first.status, first.body) == (calls(backend)[-1].reply_status, calls(backend)[-1].reply_body)
    if not stream:
        assert "x-antiphon-entry" not in first.headers
    backend.play({})
    assert proxy.ask(question).reuse == "miss"


@pytest.mark.parametrize("script", [{"abort_after": 2}, {"end_after": 2}, {"error_after": 2}])
def test_a_broken_stream_is_passed_on_and_not_kept(proxy: Proxy, backend: Backend, script: dict[str, Any]) -> None:
    question = f"Does {script} break?"
    backend.play({**script, "content": "one two three four"})
    first = proxy.ask(question, stream=True)
    assert first.body == calls(backend)[-1].reply_body
    assert first.cut == ("abort_after" in script)
    backend.play({})
    assert proxy.ask(question).reuse == "miss"


def test_reasoning_and_logprobs_survive_a_stream(proxy: Proxy, backend: Backend) -> None:
    backend.play({"reasoning_content": "first this, then that", "content": "So."})
    proxy.ask("reason!", stream=True)
    again = proxy.ask("reason!")
    assert again.json["choices"][0]["message"]["reasoning_content"] == "first this, then that"


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/messages", "/v1/responses"])
def test_the_other_endpoints_reuse_the_very_same_request(proxy: Proxy, backend: Backend, path: str) -> None:
    bodies: dict[str, dict[str, Any]] = {
        "/v1/completions": {"prompt": "The opposite of hot is"},
        "/v1/messages": {"max_tokens": 9, "messages": [{"role": "user", "content": "The opposite of hot is"}]},
        "/v1/responses": {"input": "The opposite of hot is", "store": False},
    }

    def send(**more: Any) -> Any:
        got = proxy.send(path=path, body=json.dumps({"model": "m", **bodies[path], **more}).encode())
        proxy.settle()
        return got

    first, second, other = send(), send(), send(temperature=1)
    assert (first.reuse, second.reuse, other.reuse) == ("miss", "answer", "miss")
    assert len(calls(backend)) == 2
    assert second.json["id"] != first.json["id"]
    ignore = ("id", "created", "created_at")
    one, two = ({k: v for k, v in got.json.items() if k not in ignore} for got in (first, second))
    assert one == two
    assert proxy.ask("The opposite of hot is").reuse == "miss"


def test_completions_stream_from_what_was_stored_plain_and_back(proxy: Proxy, backend: Backend) -> None:
    def send(prompt: str, stream: bool) -> Any:
        body = json.dumps({"model": "m", "prompt": prompt, "stream": stream}).encode()
        got = proxy.send(path="/v1/completions", body=body)
        proxy.settle()
        return got

    plain = send("A stitch in time", False)
    streamed = send("A stitch in time", True)
    assert "".join(c["text"] for chunk in streamed.chunks for c in chunk["choices"]) == plain.json["choices"][0]["text"]
    first = send("saves nine", True)
    again = send("saves nine", False)
    assert "".join(c["text"] for chunk in first.chunks for c in chunk["choices"]) == again.json["choices"][0]["text"]
    assert again.json["usage"]["total_tokens"] > 0


@pytest.mark.parametrize(
    "body", [{"input": "x"}, {"input": "x", "store": True}, {"input": "x", "store": False, "stream": True}]
)
def test_responses_the_backend_keeps_are_bypassed(proxy: Proxy, backend: Backend, body: dict[str, Any]) -> None:
    got = [proxy.send(path="/v1/responses", body=json.dumps(body).encode()).reuse for _ in range(2)]
    assert got == ["bypass", "bypass"]


def test_a_cache_that_fails_costs_no_request(backend: Backend) -> None:
    """Every door of the cache raises; every turn is a miss, and counted."""

    class Broken:
        embedder = "x"

        def __getattr__(self, name: str) -> Any:
            def fail(*args: Any, **kwargs: Any) -> Any:
                raise RuntimeError(name)

            return fail

        async def close(self) -> None:
            pass

    async def open_broken(settings: Any) -> Any:
        from proxy.app import Opened

        return Opened(Broken(), "x")  # type: ignore[arg-type]

    with running_proxy(backend.url, open_with=open_broken) as proxy:
        for stream in (False, True):
            for headers in ({}, {"X-Antiphon-Session": "s"}, {"Cache-Control": "no-cache"}):
                got = proxy.ask("Does it break?", headers, stream=stream)
                assert (got.status, got.reuse) == (200, "miss")
        assert proxy.ask("Does it break?", {"Cache-Control": "only-if-cached"}).status == 504
        assert b'antiphon_cache_errors_total{kind="lookup"}' in proxy.app.metrics.text()


def test_a_store_that_cannot_be_opened_leaves_a_proxy_that_forwards(backend: Backend) -> None:
    async def open_nothing(settings: Any) -> Any:
        raise OSError("no disk")

    with running_proxy(backend.url, open_with=open_nothing) as proxy:
        assert [proxy.ask("Still there?").status for _ in range(2)] == [200, 200]
        assert proxy.send("GET", "/antiphon/ready").status == 200


def test_what_was_recorded_survives_a_graceful_stop(backend: Backend, tmp_path: Any) -> None:
    from tests.proxy.support import by_words

    url = f"sqlite:///{tmp_path}/a.db"
    with running_proxy(backend.url, open_with=by_words(url), upstream={"version_interval_s": 60}) as proxy:
        first = proxy.ask("What survives?")
    with running_proxy(backend.url, open_with=by_words(url), upstream={"version_interval_s": 60}) as proxy:
        assert proxy.ask("What survives?").text == first.text
    assert len(calls(backend)) == 1


def test_a_large_turn_is_answered_like_any_other(proxy: Proxy, backend: Backend) -> None:
    question = "fox " * 100_000 + "How often?"
    first, second = proxy.ask(question), proxy.ask(question)
    other = proxy.ask(question + "?")
    assert first.text == second.text != other.text


def test_a_body_nested_too_deeply_to_key_is_passed_through(proxy: Proxy, backend: Backend) -> None:
    nested: Any = 1
    for _ in range(400):
        nested = [nested]
    assert proxy.ask("nested", custom=nested).status == 200


def test_an_unusual_stream_option_is_not_understood(proxy: Proxy, backend: Backend) -> None:
    got = proxy.ask("usage all along", stream=True, stream_options={"continuous_usage_stats": True})
    assert got.reuse == "bypass"
    got = proxy.ask("no usage, thanks", stream=True, stream_options={"include_usage": False})
    assert got.reuse == "miss"
    assert calls(backend)[-1].body["stream_options"] == {"include_usage": True}
    assert proxy.ask("no usage, thanks").json["usage"]["total_tokens"] > 0


def test_a_client_may_send_its_body_in_chunks(proxy: Proxy, backend: Backend) -> None:
    import http.client

    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "chunked?"}]}).encode()
    for _ in range(2):
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port)
        connection.request(
            "POST", CHAT, iter([body[:10], body[10:]]), encode_chunked=True, headers={"Transfer-Encoding": "chunked"}
        )
        assert connection.getresponse().status == 200
        connection.close()
        proxy.settle()
    assert len(calls(backend)) == 1


def test_a_reply_that_the_backend_forbids_to_store_is_not_stored(proxy: Proxy, backend: Backend) -> None:
    backend.play({"headers": {"Cache-Control": "private, No-Store"}})
    assert [proxy.ask("May this be kept?").reuse for _ in range(2)] == ["miss", "miss"]


@pytest.mark.slow
def test_a_stop_lets_streams_finish_and_keeps_what_they_brought(serve: Any, backend: Backend, tmp_path: Any) -> None:
    import http.client
    import signal

    script = {"content": "one two three four five six seven eight", "chunk_delay_ms": 60}
    backend.play(script)
    body = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "Count to eight."}]})
    patient = {"ANTIPHON_STORE__LOOKUP_DEADLINE_MS": "20000"}
    running = serve(backend.url, env=patient)
    connection = http.client.HTTPConnection(running.url.removeprefix("http://"), timeout=30)
    connection.request("POST", CHAT, body)
    response = connection.getresponse()
    begun = response.read(20)
    running.process.send_signal(signal.SIGTERM)
    whole = begun + response.read()
    assert whole.endswith(b"data: [DONE]\n\n")
    assert running.process.wait(30) == 0
    again = serve(backend.url, env=patient)
    connection = http.client.HTTPConnection(again.url.removeprefix("http://"), timeout=30)
    connection.request("POST", CHAT, body)
    assert connection.getresponse().headers["X-Antiphon-Reuse"] == "answer"
