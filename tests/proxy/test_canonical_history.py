"""What the backend gets in place of a history that was served from the cache, over HTTP, with the real store."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

import pytest

from tests.proxy.support import Got, Plain, Proxy, Request, completion, reply, running_proxy, until

Backend = Any  # the scripted backend of the shared cases

Q1, R1 = "how high is the tallest mountain in africa", "how high is the tallest mountain in africa please"
Q2, R2 = "which countries border on that mountain", "which countries border on that mountain please"
NEW = "And when was it climbed for the first time?"
SYSTEM = {"role": "system", "content": "Answer briefly."}


@pytest.fixture(scope="module")
def backend(scripted_upstream_module: ModuleType) -> Iterator[Backend]:
    upstream = scripted_upstream_module.ScriptedUpstream()
    yield upstream
    upstream.close()


@pytest.fixture(scope="module")
def proxy(backend: Backend) -> Iterator[Proxy]:
    with patient_proxy(backend.url, upstream={"version_interval_s": 60}) as running:
        yield running


@pytest.fixture(autouse=True)
def _apart(backend: Backend, proxy: Proxy, request: pytest.FixtureRequest) -> None:
    backend.play({})
    backend.calls.clear()
    proxy.model = request.node.name


def patient_proxy(backend: str, **sections: Any) -> AbstractContextManager[Proxy]:
    """A proxy whose deadlines a loaded machine does not miss."""
    sections["store"] = {"lookup_deadline_ms": 9e3, **sections.get("store", {})}
    return running_proxy(backend, **sections)


class Chat:
    """One user's conversation."""

    def __init__(self, proxy: Proxy, **fields: Any) -> None:
        self.proxy = proxy
        self.fields = fields
        self.messages: list[dict[str, Any]] = [SYSTEM]

    def say(self, text: str, headers: dict[str, str] | None = None, **fields: Any) -> Got:
        self.messages.append({"role": "user", "content": text})
        body = {"model": self.proxy.model, "messages": self.messages, **self.fields, **fields}
        got = self.proxy.send(body=json.dumps(body).encode(), headers=headers)
        self.proxy.settle()
        if got.status == 200:
            self.messages.append({"role": "assistant", "content": got.text})
        return got


def forwarded(backend: Backend) -> dict[str, Any]:
    """The last body the backend got."""
    body: dict[str, Any] = json.loads([call for call in backend.calls if call.method == "POST"][-1].raw)
    return body


def served_twice(proxy: Proxy, **fields: Any) -> tuple[list[dict[str, Any]], Chat]:
    """A first user asks the model; a second one asks the same in other words. Returns the first's words, the second."""
    first, second = Chat(proxy, **fields), Chat(proxy, **fields)
    for text in (Q1, Q2):
        assert first.say(text).reuse == "miss"
    time.sleep(0.3)  # vectors are made in the background
    for text in (R1, R2):
        got = second.say(text)
        assert got.reuse == "answer", got.headers
    return first.messages, second


def test_turns_served_from_the_cache_are_forwarded_in_the_words_the_backend_knows(
    proxy: Proxy, backend: Backend
) -> None:
    words, user = served_twice(proxy)
    got = user.say(NEW)
    assert got.reuse == "kv"
    assert got.headers["x-antiphon-turns-replaced"] == "2"
    assert forwarded(backend)["messages"] == [*words, {"role": "user", "content": NEW}]


def test_the_words_stay_the_same_from_turn_to_turn(proxy: Proxy, backend: Backend) -> None:
    words, user = served_twice(proxy)
    answer = user.say(NEW).text
    got = user.say("Was it a man or a woman?", stream=True)
    assert (got.reuse, got.headers["x-antiphon-turns-replaced"]) == ("kv", "2")
    assert forwarded(backend)["messages"] == [
        *words,
        {"role": "user", "content": NEW},
        {"role": "assistant", "content": answer},
        {"role": "user", "content": "Was it a man or a woman?"},
    ]


def test_the_answer_is_stored_under_what_the_user_wrote(proxy: Proxy, backend: Backend) -> None:
    _, user = served_twice(proxy)
    got = user.say(NEW)
    user.messages.pop(), user.messages.pop()
    again = user.say(NEW)
    assert (again.reuse, again.text) == ("answer", got.text)
    assert again.headers["x-antiphon-entry"] == got.headers["x-antiphon-entry"]


def test_a_turn_that_is_never_looked_up_has_its_history_replaced_too(proxy: Proxy, backend: Backend) -> None:
    words, user = served_twice(proxy)
    got = user.say("Write me a poem about it.")
    assert (got.reuse, got.headers["x-antiphon-reason"].split(":")[0]) == ("kv", "creative")
    assert forwarded(backend)["messages"][: len(words)] == words


@pytest.mark.parametrize("value", ["off", "OFF", " false", "no", "0"])
def test_a_request_can_switch_it_off(proxy: Proxy, backend: Backend, value: str) -> None:
    _, user = served_twice(proxy)
    got = user.say(NEW, {"X-Antiphon-Canonical-History": value})
    assert (got.reuse, got.headers.get("x-antiphon-turns-replaced")) == ("miss", None)
    assert forwarded(backend)["messages"] == user.messages[:-1]


def test_no_store_keeps_the_cache_out_altogether(proxy: Proxy, backend: Backend) -> None:
    _, user = served_twice(proxy)
    assert user.say(NEW, {"Cache-Control": "no-store"}).reuse == "bypass"
    assert forwarded(backend)["messages"] == user.messages[:-1]


def test_a_request_cannot_switch_it_on(backend: Backend) -> None:
    with patient_proxy(backend.url, kv={"canonical_history": False}) as plain:
        _, user = served_twice(plain)
        assert user.say(NEW, {"X-Antiphon-Canonical-History": "on"}).reuse == "miss"
        assert forwarded(backend)["messages"] == user.messages[:-1]


def test_what_the_client_wrote_otherwise_stays_as_it_is(proxy: Proxy, backend: Backend) -> None:
    words, user = served_twice(proxy)
    user.messages[1]["content"] = [{"type": "text", "text": R1}]
    body = {"messages": [*user.messages, {"role": "user", "content": NEW}], "model": proxy.model}
    raw = json.dumps(body).replace('"model"', ' "user" : "u",\n"model"').encode()
    got = proxy.send(body=raw)
    assert got.headers["x-antiphon-turns-replaced"] == "2"
    sent = forwarded(backend)
    assert sent["messages"][1] == {"role": "user", "content": [{"type": "text", "text": Q1}]}
    assert sent["user"] == "u"
    assert [m["content"] for m in sent["messages"][2:-1]] == [m["content"] for m in words[2:]]


def test_a_trimmed_history_is_forwarded_as_it_is(proxy: Proxy, backend: Backend) -> None:
    _, user = served_twice(proxy)
    del user.messages[1:3]
    assert user.say(NEW).headers.get("x-antiphon-turns-replaced") is None
    assert forwarded(backend)["messages"] == user.messages[:-1]


def test_an_answer_taken_back_is_not_built_upon(proxy: Proxy, backend: Backend) -> None:
    words, user = served_twice(proxy)
    rating = {"entry": _entry_of(proxy, Q2), "rating": "down"}
    assert proxy.send(path="/antiphon/feedback", body=json.dumps(rating).encode()).status == 200
    got = user.say(NEW)
    assert got.headers["x-antiphon-turns-replaced"] == "1"
    assert forwarded(backend)["messages"][:3] == words[:3]
    assert forwarded(backend)["messages"][3:] == user.messages[3:-1]


def _entry_of(proxy: Proxy, question: str) -> str:
    rows = proxy.send("GET", f"/antiphon/entries?model={proxy.model.replace('[', '%5B').replace(']', '%5D')}").json[
        "entries"
    ]
    return next(str(row["id"]) for row in rows if row["question"] == question)


def test_the_corrected_turn_is_forwarded_in_the_users_own_words(proxy: Proxy, backend: Backend) -> None:
    words, user = served_twice(proxy)
    got = user.say("No, I meant the second tallest.")
    assert got.headers["x-antiphon-reason"].startswith("correction")
    assert forwarded(backend)["messages"][:3] == words[:3]
    assert forwarded(backend)["messages"][3:] == user.messages[3:-1]


def test_explain_shows_both_prompts(proxy: Proxy, backend: Backend) -> None:
    words, user = served_twice(proxy)
    body = {"model": proxy.model, "messages": [*user.messages, {"role": "user", "content": NEW}]}
    shown = proxy.send(path="/antiphon/explain", body=json.dumps(body).encode()).json["prompts"]
    assert shown["turns_replaced"] == 2
    assert shown["received"]["messages"] == body["messages"]
    assert shown["forwarded"]["messages"] == [*words, {"role": "user", "content": NEW}]
    assert len(shown["entries"]) == 2
    plain = {"model": proxy.model, "messages": [{"role": "user", "content": "write a poem about tea"}]}
    shown = proxy.send(path="/antiphon/explain", body=json.dumps(plain).encode()).json["prompts"]
    assert shown["received"] == shown["forwarded"]


def test_a_store_that_fails_leaves_the_request_as_it_came(backend: Backend) -> None:
    with patient_proxy(backend.url) as broken:
        _, user = served_twice(broken)

        async def fails(*args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("on purpose")

        cache = broken.app.turns.cache
        assert cache is not None
        cache.canonical = fails  # type: ignore[method-assign]
        got = user.say(NEW)
        assert (got.status, got.reuse) == (200, "miss")
        assert forwarded(backend)["messages"] == user.messages[:-1]
        assert (
            'antiphon_cache_errors_total{kind="canonical"} 1.0' in broken.send("GET", "/antiphon/metrics").body.decode()
        )


def test_a_store_that_hangs_delays_the_request_by_its_deadline_at_most(backend: Backend) -> None:
    store = {"lookup_deadline_ms": 50}
    with patient_proxy(backend.url, store=store) as slow:
        _, user = served_twice(slow)

        async def hangs(*args: Any, **kwargs: Any) -> Any:
            import asyncio

            await asyncio.sleep(3600)

        cache = slow.app.turns.cache
        assert cache is not None
        cache.canonical = hangs  # type: ignore[method-assign]
        assert user.say(NEW).status == 200
        assert forwarded(backend)["messages"] == user.messages[:-1]


def refusing(status: str) -> Callable[[Any, Request], None]:
    """Answers, but refuses any conversation that holds the first user's words in a long history."""

    def behave(connection: Any, request: Request) -> None:
        messages = json.loads(request.body)["messages"]
        if len(messages) > 5 and messages[1]["content"] == Q1:
            connection.sendall(reply(b'{"object":"error"}', status=status))
        else:
            connection.sendall(reply(completion(f"Answer {len(messages)}."), "Content-Type: application/json"))

    return behave


def test_a_backend_that_refuses_the_other_words_gets_the_users_own() -> None:
    strict = Plain(refusing("400 Bad Request"))
    with patient_proxy(strict.url) as proxy:
        for text in (NEW, "Write a poem about it."):
            _, user = served_twice(proxy, model=text)
            got = user.say(text)
            assert (got.status, got.headers.get("x-antiphon-turns-replaced")) == (200, None)
            assert got.reuse != "kv"
            assert json.loads(strict.requests[-1].body)["messages"][1]["content"] == R1
            assert json.loads(strict.requests[-2].body)["messages"][1]["content"] == Q1
    strict.close()


def test_a_backend_that_is_busy_is_not_asked_twice() -> None:
    busy = Plain(refusing("429 Too Many Requests"))
    with patient_proxy(busy.url) as proxy:
        _, user = served_twice(proxy)
        before = len(busy.requests)
        assert user.say(NEW).status == 429
        assert len(busy.requests) == before + 1
    busy.close()


def test_tools_reach_the_backend_in_one_writing_whatever_order_their_keys_have(proxy: Proxy, backend: Backend) -> None:
    parameters = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "number"}}, "required": ["b"]}
    tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": parameters}}
    turned = {
        "function": {"parameters": dict(reversed(parameters.items())), "description": "d", "name": "f"},
        "type": "function",
    }
    sent = []
    for number, form in enumerate((tool, turned, tool)):
        proxy.ask(f"Use it, {number}.", tools=[form])
        raw = backend.calls[-1].raw
        sent.append(raw[raw.index(b"[{", raw.index(b'"tools"')) : raw.rindex(b"}]") + 2])
    assert sent[0] == sent[1] == sent[2]


def test_a_turn_that_is_nearly_the_same_is_generated_afresh_and_says_so(proxy: Proxy, backend: Backend) -> None:
    first = proxy.ask("one two three four five six seven eight")
    time.sleep(0.3)
    got = proxy.ask("one two three four five nine ten eleven")
    assert (got.reuse, got.headers["x-antiphon-reason"]) == ("kv", "not sure enough to answer")
    assert got.text != first.text
    assert 0.5 <= float(got.headers["x-antiphon-confidence"]) < 0.7
    assert len(forwarded(backend)["messages"]) == 1
    assert "x-antiphon-entry" in got.headers


def test_with_a_reference_turn_the_stored_question_and_answer_stand_before_it_and_nothing_is_stored(
    backend: Backend,
) -> None:
    with patient_proxy(backend.url, kv={"reference_turn": True}) as proxy:
        first = proxy.ask("one two three four five six seven eight")
        time.sleep(0.3)
        got = proxy.ask("one two three four five nine ten eleven")
        assert got.reuse == "kv"
        assert got.headers["x-antiphon-reference"] == first.headers["x-antiphon-entry"]
        assert forwarded(backend)["messages"] == [
            {"role": "user", "content": "one two three four five six seven eight"},
            {"role": "assistant", "content": first.text},
            {"role": "user", "content": "one two three four five nine ten eleven"},
        ]
        assert "x-antiphon-entry" not in got.headers
        again = proxy.ask("one two three four five nine ten eleven")
        assert again.reuse == "kv"


def test_every_forwarded_request_is_counted_in_tokens_as_the_backend_told(backend: Backend) -> None:
    with patient_proxy(backend.url) as proxy:
        backend.play({"cached_tokens": 3})
        _, user = served_twice(proxy)
        before = proxy.send("GET", "/antiphon/stats").json["savings"]
        got = user.say(NEW)
        usage = got.json["usage"]
        after = proxy.send("GET", "/antiphon/stats").json["savings"]
        spent = after["tokens_not_prefilled"]
        assert spent["requests"] - before["tokens_not_prefilled"]["requests"] == 1
        assert spent["prompt_tokens"] == spent["cached_tokens"] + spent["prefilled_tokens"]
        canonical = spent["with_canonical_history"]
        assert canonical["requests"] == 1 and canonical["turns_replaced"] == 2
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        assert canonical["cached_tokens"] == cached
        assert canonical["prefilled_tokens"] == usage["prompt_tokens"] - cached
        assert after["answers_not_generated"]["answers"] == 2
        assert after["answers_not_generated"]["completion_tokens"] > 0
        text = proxy.send("GET", "/antiphon/metrics").body.decode()
        assert "antiphon_turns_replaced_total 2.0" in text
        assert f'antiphon_canonical_prompt_tokens_total{{kv="cached"}} {cached:.1f}' in text
        user.say("Write a poem about it.")  # passed through, and counted all the same
        until(lambda: _requests(proxy) == spent["requests"] + 1)


def _requests(proxy: Proxy) -> int:
    return int(proxy.send("GET", "/antiphon/stats").json["savings"]["tokens_not_prefilled"]["requests"])


def test_a_backend_that_does_not_tell_is_counted_apart() -> None:
    silent = Plain(lambda c, r: c.sendall(reply(completion("Yes."), "Content-Type: application/json")))
    with patient_proxy(silent.url) as proxy:
        proxy.ask("Is it there?")
        spent = proxy.send("GET", "/antiphon/stats").json["savings"]["tokens_not_prefilled"]
        assert (spent["cached_tokens"], spent["prefilled_tokens"]) == (0, 0)
        assert (spent["requests_not_reported"], spent["prompt_tokens_not_reported"]) == (1, 3)
    silent.close()


def test_what_breaks_prefixes_is_counted(proxy: Proxy, backend: Backend) -> None:
    rules = " You answer questions about mountains, briefly." * 20
    for minute in range(3):
        system = {"role": "system", "content": f"It is 2026-11-29 19:2{minute}:00." + rules}
        body = {"model": proxy.model, "messages": [system, {"role": "user", "content": f"Question {minute}?"}]}
        proxy.send(body=json.dumps(body).encode())
        proxy.settle()
    text = proxy.send("GET", "/antiphon/metrics").body.decode()
    assert 'antiphon_prefix_breaks_total{cause="volatile-system"} 2.0' in text
    assert "volatile-system" in proxy.send("GET", "/antiphon/stats").json["savings"]["prefix_breaks"]["causes"]
