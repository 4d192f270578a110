"""An answer belongs to the weights that gave it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from tests.proxy.support import Plain, completion, reply, running_proxy, until

Backend = Any


@pytest.fixture
def backend(scripted_upstream_module: ModuleType) -> Iterator[Backend]:
    upstream = scripted_upstream_module.ScriptedUpstream()
    yield upstream
    upstream.close()


def test_the_version_is_known_before_the_proxy_is_ready(backend: Backend) -> None:
    with running_proxy(backend.url, upstream={"version_interval_s": 60}) as proxy:
        assert proxy.app.state.versions.current.weights == "default@scripted/model"
        assert proxy.app.state.versions.current.tokenizer == "scripted/model"
        assert proxy.app.state.versions.sglang is True


@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_of_other_weights_is_stored_under_them_and_hides_the_old_answers(
    backend: Backend, stream: bool
) -> None:
    with running_proxy(backend.url, upstream={"version_interval_s": 60}) as proxy:
        old = proxy.ask("Which licence does the logo font have?")
        backend.play({"weight_version": "v2"})
        new = proxy.ask("How heavy is that typeface in print?", stream=stream)
        until(lambda: proxy.app.state.versions.current.reported == "v2")
        assert proxy.ask("Which licence does the logo font have?").text != old.text
        assert proxy.ask("How heavy is that typeface in print?").text == new.text


def test_a_change_is_noticed_without_any_reply(backend: Backend) -> None:
    with running_proxy(backend.url, upstream={"version_interval_s": 0.05}) as proxy:
        old = proxy.ask("Who notices?")
        backend.play({"weight_version": "v3"})
        until(lambda: proxy.app.state.versions.current.reported == "v3")
        assert proxy.ask("Who notices?").text != old.text


def test_a_stream_that_does_not_say_where_it_came_from_is_checked_before_it_is_stored(backend: Backend) -> None:
    """SGLang's stream chunks carry no weight_version: the backend is asked once more when the stream has ended."""
    chunks = [
        'data: {"id":"x","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"Hi."},'
        '"finish_reason":"stop"}]}\n\n',
        'data: {"id":"x","model":"m","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n',
        "data: [DONE]\n\n",
    ]
    script = {"body": "".join(chunks), "headers": {"Content-Type": "text/event-stream"}}
    with running_proxy(backend.url, upstream={"version_interval_s": 60}) as proxy:
        backend.play({**script, "weight_version": "v4"})  # the watcher has not looked since
        proxy.ask("Whose answer is this?", stream=True)
        assert proxy.app.state.versions.current.reported == "v4"
        assert proxy.ask("Whose answer is this?", stream=True).reuse == "miss"
        assert proxy.ask("Whose answer is this?", stream=True).reuse == "answer"


def test_a_backend_without_these_endpoints_works_with_the_operators_version() -> None:
    def behave(connection: Any, request: Any) -> None:
        if request.line.startswith("GET"):
            connection.sendall(reply(b"no", status="404 Not Found"))
        else:
            connection.sendall(reply(completion(str(time.time_ns())), "Content-Type: application/json"))

    backend = Plain(behave)
    with running_proxy(backend.url, upstream={"version_interval_s": 60, "version": "2026-11"}) as proxy:
        assert proxy.app.state.versions.current.weights == "2026-11"
        assert proxy.app.state.versions.sglang is False
        first = proxy.ask("Does it work?")
        assert proxy.ask("Does it work?").text == first.text
        # It is no SGLang: a field it does not know could make it refuse the request.
        assert b"cache_salt" not in backend.requests[-1].body
    backend.close()


def test_a_backend_that_is_down_at_the_start_does_not_hold_the_proxy_up(backend: Backend) -> None:
    url = backend.url
    with running_proxy("http://127.0.0.1:9", upstream={"version_interval_s": 0.1}) as proxy:
        assert proxy.app.state.versions.sglang is None
        assert proxy.ask("Anybody there?").status == 502
    assert url
