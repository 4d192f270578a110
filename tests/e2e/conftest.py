"""The proxy as a real process in front of the real SGLang, and a chat client that shows where an answer came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam

from tests.conftest import MODEL_NAME, proxy_process
from tests.processes import Running

# The app asks for short answers and leaves the model room to end them: what is cut off by length is not stored.
SYSTEM = "Answer in one short sentence."
MAX_TOKENS = 200


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer and what the proxy said about it."""

    text: str
    reuse: str  # X-Antiphon-Reuse
    entry: str | None  # X-Antiphon-Entry
    reason: str


@dataclass
class Chat:
    """One user's conversation, kept by the client as every chat app does, over the transport named at each turn."""

    base_url: str
    messages: list[ChatCompletionMessageParam] = field(default_factory=list)

    async def ask(self, text: str, how: str = "sync") -> Reply:
        """Say something, put the answer into the history, return it. ``how``: sync | async | stream | async stream."""
        asked: list[ChatCompletionMessageParam] = [*self.messages, {"role": "user", "content": text}]
        messages: list[ChatCompletionMessageParam] = [{"role": "system", "content": SYSTEM}, *asked]
        client = {"base_url": f"{self.base_url}/v1", "api_key": "the-team's-key", "timeout": 120.0, "max_retries": 0}
        options = {"model": MODEL_NAME, "messages": messages, "temperature": 0, "max_tokens": MAX_TOKENS}
        if how.startswith("async"):
            async with AsyncOpenAI(**client) as remote:  # type: ignore[arg-type]
                if how == "async":
                    raw = await remote.chat.completions.with_raw_response.create(**options)  # type: ignore[call-overload]
                    headers, answer = raw.headers, text_of(raw.parse())
                else:
                    raw = await remote.chat.completions.with_raw_response.create(**options, stream=True)  # type: ignore[call-overload]
                    headers = raw.headers
                    answer = "".join([piece_of(chunk) async for chunk in raw.parse()])
        else:
            with OpenAI(**client) as local:  # type: ignore[arg-type]
                if how == "sync":
                    raw = local.chat.completions.with_raw_response.create(**options)  # type: ignore[call-overload]
                    headers, answer = raw.headers, text_of(raw.parse())
                else:
                    raw = local.chat.completions.with_raw_response.create(**options, stream=True)  # type: ignore[call-overload]
                    headers = raw.headers
                    answer = "".join(piece_of(chunk) for chunk in raw.parse())
        self.messages = [*asked, {"role": "assistant", "content": answer}]
        print(f"\n{how:>12}  {text}\n{headers['x-antiphon-reuse']:>12}  {answer}")  # `pytest -s` shows the conversation
        return Reply(
            answer,
            headers["x-antiphon-reuse"],
            headers.get("x-antiphon-entry"),
            headers.get("x-antiphon-reason", ""),
        )


def text_of(completion: ChatCompletion) -> str:
    """The text of a whole answer."""
    return completion.choices[0].message.content or ""


def piece_of(chunk: object) -> str:
    """The text of one streamed chunk."""
    choices = getattr(chunk, "choices", [])
    return (choices[0].delta.content or "") if choices else ""


@pytest.fixture(scope="module")
def proxy(backend: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The proxy with its defaults and an empty store, in front of the real backend."""
    folder: Path = tmp_path_factory.mktemp("proxy")
    with proxy_process(folder, backend.url) as program:
        yield program


@pytest.fixture
def chat(proxy: Running) -> Callable[[], Chat]:
    """Call it for the conversation of a new user; all users come through the same app and its key."""
    return lambda: Chat(proxy.url)
