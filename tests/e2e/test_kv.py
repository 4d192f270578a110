"""The backend's KV cache behind the proxy: the real SGLang tells what it had cached, request by request.

The model is the shaped one, whose answers are noise: what counts are tokens. No two answers are alike
(temperature 1).
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import BACKEND_ENV, ROOT, proxy_process
from tests.processes import Running, a_free_port, running

pytestmark = pytest.mark.backend

PATIENCE_S = 120.0
# A loaded machine must not turn a hit into a miss.
PATIENT = ("--set", "store.lookup_deadline_ms=20000", "--set", "store.embed_deadline_ms=20000",
           "--set", "store.decide_deadline_ms=20000")  # fmt: skip
SYSTEM = "You are the assistant of a hotel. " + " ".join(f"Room {n} is on floor {n // 100}." for n in range(101, 131))
FIRST = ("What time is breakfast served at the weekend?", "Is there a swimming pool on the roof?")
AGAIN = ("Hi! What time is breakfast served at the weekend?", "Is there a swimming pool on the roof? Thanks!")
NEW = "How do I get from the airport to your house by train?"


def shaped_model(folder: Path) -> Path:
    """Make the shaped model."""
    if not (BACKEND_ENV / "bin" / "python").exists():
        pytest.skip("the backend's environment is not there; run `make backend`")
    build = ROOT / "deploy" / "sglang" / "build_shaped.py"
    subprocess.run([BACKEND_ENV / "bin" / "python", build, folder / "shaped"], check=True, capture_output=True)
    return folder / "shaped"


def shaped_server(model: Path, log: Path) -> AbstractContextManager[Running]:
    """SGLang with that model."""
    port = a_free_port()
    command = [str(ROOT / "deploy" / "sglang" / "launch.sh"), "--port", str(port)]
    env = {"MODEL_PATH": str(model), "MODEL_NAME": "shaped"}
    return running(command, port=port, ready="/health", log=log, env=env, patience_s=900)


@pytest.fixture(scope="module")
def shaped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("shaped")
    with shaped_server(shaped_model(folder), folder / "sglang.log") as program:
        yield program


@pytest.fixture
def proxy(shaped: Running, tmp_path: Path) -> Iterator[Running]:
    with proxy_process(tmp_path, shaped.url, *PATIENT) as program:
        yield program


@dataclass
class Got:
    """A reply: its headers and what it cost."""

    headers: httpx.Headers
    text: str
    prompt: int
    cached: int

    @property
    def prefilled(self) -> int:
        return self.prompt - self.cached

    @property
    def reuse(self) -> str:
        return str(self.headers.get("x-antiphon-reuse", ""))


@dataclass
class User:
    """One user's conversation."""

    url: str
    key: str = "the-app"
    system: str = SYSTEM
    messages: list[dict[str, Any]] = field(default_factory=list)

    def say(self, text: str, headers: dict[str, str] | None = None) -> Got:
        self.messages.append({"role": "user", "content": text})
        got = self.send([{"role": "system", "content": self.system}, *self.messages], headers)
        self.messages.append({"role": "assistant", "content": got.text})
        return got

    def send(self, messages: list[dict[str, Any]], headers: dict[str, str] | None = None) -> Got:
        body = {"model": "shaped", "messages": messages, "temperature": 1, "min_tokens": 12, "max_tokens": 400}
        return self.post(body, headers)

    def post(self, body: dict[str, Any], headers: dict[str, str] | None = None) -> Got:
        reply = httpx.post(
            f"{self.url}/v1/chat/completions",
            content=json.dumps(body),
            headers={"Authorization": f"Bearer {self.key}", "Content-Type": "application/json", **(headers or {})},
            timeout=PATIENCE_S,
        )
        assert reply.status_code == 200, reply.text
        usage = reply.json()["usage"]
        cached = (usage["prompt_tokens_details"] or {}).get("cached_tokens") or 0
        return Got(reply.headers, reply.json()["choices"][0]["message"]["content"], usage["prompt_tokens"], cached)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.2)


def served_twice(url: str) -> User:
    """A first user asks the model; a second one asks the same in other words and is served from the cache."""
    first = User(url)
    for text in FIRST:
        assert first.say(text).reuse == "miss"
    indexed = lambda: httpx.get(f"{url}/antiphon/stats").json()["indexed"] >= len(FIRST)  # noqa: E731
    until(indexed)
    second = User(url)
    for text in AGAIN:
        got = second.say(text)
        assert got.reuse == "answer", got.headers
    return second


def test_after_turns_served_in_other_words_only_the_new_message_is_prefilled(proxy: Running) -> None:
    user = served_twice(proxy.url)
    history = list(user.messages)
    got = user.say(NEW)
    assert (got.reuse, got.headers["x-antiphon-turns-replaced"]) == ("kv", "2")
    new_message = (
        User(proxy.url, system="").send([{"role": "user", "content": NEW}], {"Cache-Control": "no-store"}).prompt
    )
    # The end of the last answer and the frame of the new message are new to the backend too.
    assert got.prefilled <= new_message + 8
    plain = User(proxy.url, messages=history).say(
        "Is there a lift in the building?", {"X-Antiphon-Canonical-History": "off"}
    )
    assert plain.reuse != "answer" and "x-antiphon-turns-replaced" not in plain.headers
    assert plain.prefilled > 2 * got.prefilled
    assert plain.prefilled > 60


def test_the_prefix_holds_from_turn_to_turn(proxy: Running) -> None:
    user = served_twice(proxy.url)
    user.say(NEW)
    for text in ("Write me a poem about the sea.", "Which museums are nearby, and what do they cost?"):
        got = user.say(text)
        assert got.headers["x-antiphon-turns-replaced"] == "2"
        assert got.prefilled < 60, "the answer before it and the message are new, nothing else"


TOOL = {
    "type": "function",
    "function": {
        "name": "book_table",
        "description": "Book a table in the hotel's restaurant for a number of guests at a time of the evening.",
        "parameters": {
            "type": "object",
            "properties": {
                "guests": {"type": "integer", "description": "How many guests will come."},
                "hour": {"type": "integer", "description": "The hour at which they come, from 18 to 22."},
                "terrace": {"type": "boolean", "description": "Whether they would like to sit outside."},
            },
            "required": ["guests", "hour"],
        },
    },
}


def turned(value: Any) -> Any:
    """The same JSON with the keys of every object the other way round."""
    if isinstance(value, dict):
        return {key: turned(item) for key, item in reversed(list(value.items()))}
    return [turned(item) for item in value] if isinstance(value, list) else value


def test_the_order_of_json_keys_does_not_break_the_prefix(proxy: Running, shaped: Running) -> None:
    """Messages and tools, each turn written in another order; directly at the backend that costs the whole prompt."""

    def cached(url: str, number: int, *, reverse: bool) -> float:
        messages = [
            {"role": "system", "content": f"Assistant number {number}. {SYSTEM}"},
            {"role": "user", "content": NEW},
        ]
        body = {"model": "shaped", "temperature": 1, "max_tokens": 16, "messages": messages, "tools": [TOOL]}
        if reverse:
            body = turned(body)
        # Made anew each time: noise that happens to end before it is cut off would be stored, and served here.
        got = User(url).post(body, {"Cache-Control": "no-cache"})
        return got.cached / got.prompt

    cached(shaped.url, 1, reverse=False)
    assert cached(shaped.url, 1, reverse=True) < 0.5, "else this test would show nothing"
    cached(proxy.url, 2, reverse=False)
    assert cached(proxy.url, 2, reverse=True) > 0.95
    assert cached(proxy.url, 2, reverse=False) > 0.95


@contextmanager
def another(shaped: Running, folder: Path, *settings: str) -> Iterator[Running]:
    folder.mkdir()
    with proxy_process(folder, shaped.url, *PATIENT, *(word for one in settings for word in ("--set", one))) as program:
        yield program


def shared_tokens(url: str, system: str, **who: dict[str, str]) -> list[int]:
    """What two callers who send the same long prompt have of each other, in cached tokens."""
    prompt = [{"role": "system", "content": system}, {"role": "user", "content": NEW}]
    told = []
    for key, headers in (("one", who.get("one")), ("two", who.get("two"))):
        told.append(User(url, key=key).send(prompt, {"Cache-Control": "no-cache", **(headers or {})}).cached)
    told.append(User(url, key="one").send(prompt, {"Cache-Control": "no-cache", **(who.get("one") or {})}).cached)
    return told


def test_one_tenant_learns_nothing_of_another_ones_prefixes(proxy: Running) -> None:
    first, second, again = shared_tokens(proxy.url, "Rules of the house, isolated. " + SYSTEM)
    assert (first, second) == (0, 0)
    assert again > 200


def test_tenants_who_share_on_purpose_share_prefixes(shaped: Running, tmp_path: Path) -> None:
    with another(shaped, tmp_path / "unsalted", "kv.cache_salt=false") as open_to_all:
        _, second, _ = shared_tokens(open_to_all.url, "Rules of the house, without a salt. " + SYSTEM)
        assert second > 200
    trusted = ("sharing.share=tenant", "sharing.trusted_tenant_callers=127.0.0.1")
    with another(shaped, tmp_path / "tenant", *trusted) as by_tenant:
        one = {"X-Antiphon-Tenant": "acme"}
        system = "Rules of the house, by tenant. " + SYSTEM
        first, second, _ = shared_tokens(by_tenant.url, system, one=one, two=one)
        assert first == 0 and second > 200
        _, other, _ = shared_tokens(by_tenant.url, system, one=one, two={"X-Antiphon-Tenant": "umbrella"})
        assert other == 0


def test_the_proxy_counts_what_the_backend_says(proxy: Running) -> None:
    user = served_twice(proxy.url)
    got = user.say(NEW)
    savings = httpx.get(f"{proxy.url}/antiphon/stats").json()["savings"]
    canonical = savings["tokens_not_prefilled"]["with_canonical_history"]
    assert (canonical["cached_tokens"], canonical["prefilled_tokens"]) == (got.cached, got.prefilled)
    assert savings["answers_not_generated"]["answers"] == 2


def test_new_weights_hide_old_answers_within_an_interval_without_any_request(shaped: Running, tmp_path: Path) -> None:
    with another(shaped, tmp_path / "quick", "upstream.version_interval_s=0.5") as proxy:
        question = "Where is the key of the sauna kept?"
        User(proxy.url).say(question)
        assert User(proxy.url).say(question).reuse == "answer"
        try:
            set_version(shaped, "other")
            time.sleep(2.0)  # one interval, and what a loaded machine needs for asking
            assert User(proxy.url).say(question).reuse == "miss"
        finally:
            set_version(shaped, "w1")


def test_new_weights_hide_old_answers_as_soon_as_a_reply_names_them(shaped: Running, tmp_path: Path) -> None:
    with another(shaped, tmp_path / "slow", "upstream.version_interval_s=86400") as proxy:
        question = "Who keeps the key of the sauna?"
        User(proxy.url).say(question)
        assert User(proxy.url).say(question).reuse == "answer"
        try:
            set_version(shaped, "another")
            User(proxy.url).say("Is there a lift?")  # its reply has metadata.weight_version
            until(lambda: User(proxy.url).say(question, {"Cache-Control": "only-if-cached"}).reuse == "miss")
        except AssertionError as error:  # 504: nothing stored, which is what is waited for
            assert "only_if_cached" in str(error)
        finally:
            set_version(shaped, "w1")


def set_version(shaped: Running, version: str) -> None:
    reply = httpx.post(f"{shaped.url}/update_weight_version", json={"new_version": version}, timeout=PATIENCE_S)
    reply.raise_for_status()
