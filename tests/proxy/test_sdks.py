"""The SDKs that apps use cannot tell the proxy from a backend, hit or miss."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from tests.proxy.support import Proxy, running_proxy

anthropic = pytest.importorskip("anthropic")
openai = pytest.importorskip("openai")


@pytest.fixture(scope="module")
def backend(scripted_upstream_module: ModuleType) -> Iterator[Any]:
    upstream = scripted_upstream_module.ScriptedUpstream()
    yield upstream
    upstream.close()


@pytest.fixture(scope="module")
def proxy(backend: Any) -> Iterator[Proxy]:
    with running_proxy(backend.url, upstream={"version_interval_s": 60}) as running:
        yield running


@pytest.fixture
def client(proxy: Proxy) -> Any:
    return openai.OpenAI(base_url=f"{proxy.url}/v1", api_key="sk-test", max_retries=0)


def test_openai_gets_the_same_answer_plain_and_streamed(client: Any, proxy: Proxy) -> None:
    messages = [{"role": "user", "content": "What does an SDK see?"}]
    first = client.chat.completions.create(model="m", messages=messages)
    proxy.settle()
    second = client.chat.completions.create(model="m", messages=messages)
    assert second.choices[0].message.content == first.choices[0].message.content
    assert second.usage == first.usage
    chunks = list(client.chat.completions.create(model="m", messages=messages, stream=True))
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == first.choices[0].message.content
    assert chunks[-1].choices[0].finish_reason == "stop"
    raw = client.chat.completions.with_raw_response.create(model="m", messages=messages)
    assert raw.headers["x-antiphon-reuse"] == "answer"


async def test_openai_async_streams_with_usage(proxy: Proxy) -> None:
    messages = [{"role": "user", "content": "What does an async SDK see?"}]
    async with openai.AsyncOpenAI(base_url=f"{proxy.url}/v1", api_key="sk-test") as client:
        answers = []
        for _ in range(2):
            text = ""
            usage: Any = None
            stream = await client.chat.completions.create(
                model="m", messages=messages, stream=True, stream_options={"include_usage": True}
            )
            async for chunk in stream:
                usage = chunk.usage or usage
                text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
            answers.append((text, usage.total_tokens))
    assert answers[0] == answers[1]


def test_openai_tools_and_the_conversation_after_them(client: Any, proxy: Proxy, backend: Any) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "level", "arguments": '{"tank":3}'}}
    tools = [{"type": "function", "function": {"name": "level", "parameters": {"type": "object"}}}]
    messages: list[Any] = [{"role": "user", "content": "How full is tank 3?"}]
    backend.play({"tool_calls": [call]})
    for _ in range(2):
        with client.chat.completions.stream(model="m", messages=messages, tools=tools) as stream:
            message = stream.get_final_completion().choices[0].message
        assert message.tool_calls[0].function.arguments == '{"tank":3}'
        proxy.settle()
    backend.play({})
    messages += [message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": "c1", "content": "81"}]
    first = client.chat.completions.create(model="m", messages=messages, tools=tools)
    proxy.settle()
    assert client.chat.completions.create(model="m", messages=messages, tools=tools).choices == first.choices


def test_openai_raises_its_own_errors(client: Any, proxy: Proxy, backend: Any) -> None:
    backend.play({"status": 429, "headers": {"Retry-After": "7"}, "body": {"error": {"message": "slow", "code": "r"}}})
    with pytest.raises(openai.RateLimitError) as caught:
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Too fast?"}])
    assert caught.value.response.headers["retry-after"] == "7"
    backend.play({})
    with running_proxy("http://127.0.0.1:9") as dead:
        client = openai.OpenAI(base_url=f"{dead.url}/v1", api_key="k", max_retries=0)
        with pytest.raises(openai.InternalServerError) as dead_end:
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Dead?"}])
        assert dead_end.value.code == "upstream_unreachable"


def test_openai_completions_responses_and_models(client: Any, proxy: Proxy) -> None:
    first = client.completions.create(model="m", prompt="The opposite of up is")
    proxy.settle()
    assert client.completions.create(model="m", prompt="The opposite of up is").choices == first.choices
    one = client.responses.create(model="m", input="Name a conifer.", store=False)
    proxy.settle()
    two = client.responses.create(model="m", input="Name a conifer.", store=False)
    assert one.output_text == two.output_text
    assert client.models.list().data[0].id == "scripted"


def test_anthropic_gets_the_same_answer_again(proxy: Proxy) -> None:
    client = anthropic.Anthropic(base_url=proxy.url, api_key="k", max_retries=0)
    messages = [{"role": "user", "content": "Name a fern."}]
    first = client.messages.create(model="m", max_tokens=20, system="Be brief.", messages=messages)
    proxy.settle()
    second = client.messages.create(model="m", max_tokens=20, system="Be brief.", messages=messages)
    assert second.content == first.content
    assert second.id != first.id
    other = client.messages.create(model="m", max_tokens=20, system="Be long.", messages=messages)
    assert other.content != first.content


def test_anthropic_raises_its_own_errors() -> None:
    with running_proxy("http://127.0.0.1:9") as dead:
        client = anthropic.Anthropic(base_url=dead.url, api_key="k", max_retries=0)
        with pytest.raises(anthropic.InternalServerError, match="cannot be reached"):
            client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "Dead?"}])
