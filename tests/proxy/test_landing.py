"""A call that has brought its answer is over for whoever comes later: they ask the store, which has it."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.codings import decoded
from tests.proxy.support import (
    CHAT,
    DONE,
    STREAM_HEAD,
    Got,
    Plain,
    Proxy,
    Request,
    chunked,
    completion,
    event,
    reply,
    running_proxy,
)  # fmt: skip

PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses")


class Sglang:
    """A backend that numbers its answers, names its weights on request, and never in a reply."""

    def __init__(self) -> None:
        self.calls = 0
        self.slow_s = 0.1  # for the question which weights it serves
        self.coding = ""
        self.pack: Callable[[bytes], bytes] = bytes
        self.backend = Plain(self.behave)
        self.proxy: Proxy

    def behave(self, connection: socket.socket, request: Request) -> None:
        if request.line.startswith("GET"):
            time.sleep(self.slow_s)
            info = {"model_path": "m", "weight_version": "1"}
            connection.sendall(reply(json.dumps(info).encode(), "Content-Type: application/json"))
            return
        self.calls += 1
        path = request.line.split()[1]
        headers = ["Content-Type: application/json", *([f"Content-Encoding: {self.coding}"] if self.coding else [])]
        connection.sendall(reply(self.pack(answer(path, f"Answer {self.calls}.")), *headers))

    def ask(self, path: str, question: str, **headers: str) -> Got:
        body: dict[str, Any] = {"model": self.proxy.model}
        if path == "/v1/responses":
            body |= {"input": question, "store": False}
        elif path == "/v1/completions":
            body |= {"prompt": question}
        else:
            body |= {"messages": [{"role": "user", "content": question}], "max_tokens": 50}
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.proxy.send("POST", path, json.dumps(body).encode(), sent)


def answer(path: str, text: str) -> bytes:
    if path == "/v1/chat/completions":
        return completion(text)
    if path == "/v1/completions":
        choice = {"index": 0, "text": text, "finish_reason": "stop", "logprobs": None}
        usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
        return json.dumps(
            {"id": "c", "object": "text_completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
        ).encode()
    if path == "/v1/messages":
        return json.dumps(
            {
                "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
                "content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "stop_sequence": None,
                "usage": {"input_tokens": 3, "output_tokens": 2},
            }
        ).encode()  # fmt: skip
    said = {"type": "output_text", "text": text, "annotations": []}
    message = {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [said]}
    return json.dumps(
        {
            "id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "m",
            "output": [message], "error": None, "incomplete_details": None, "store": False,
            "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
        }
    ).encode()  # fmt: skip


@pytest.fixture(scope="module")
def running() -> Iterator[Sglang]:
    stage = Sglang()
    with running_proxy(stage.backend.url, upstream={"version_interval_s": 600}) as proxy:
        stage.proxy = proxy
        yield stage
    stage.backend.close()


@pytest.fixture
def stage(running: Sglang, request: pytest.FixtureRequest) -> Sglang:
    running.proxy.model = request.node.name
    return running


def stored(got: Got) -> bool:
    return "stored" in got.headers["cache-status"]


@pytest.mark.parametrize("path", PATHS)
def test_what_is_announced_as_stored_is_found_by_the_next_request(stage: Sglang, path: str) -> None:
    first = stage.ask(path, "What is a sluice for?")
    second = stage.ask(path, "What is a sluice for?")
    assert stored(first)
    assert (second.reuse, second.headers["x-antiphon-reason"]) == ("answer", "exact")
    assert second.headers["x-antiphon-entry"] == first.headers["x-antiphon-entry"]


@pytest.mark.parametrize("path", PATHS)
def test_only_if_cached_finds_what_was_just_stored(stage: Sglang, path: str) -> None:
    assert stored(stage.ask(path, "What is a weir for?"))
    assert stage.ask(path, "What is a weir for?", Cache_Control="only-if-cached").status == 200


@pytest.mark.parametrize("path", PATHS)
def test_regenerating_at_once_gets_a_new_answer(stage: Sglang, path: str) -> None:
    before = stage.calls
    bodies = [stage.ask(path, "What is a lock for?", X_Antiphon_Session="s") for _ in range(3)]
    assert [got.reuse for got in bodies] == ["miss"] * 3
    assert [got.headers["x-antiphon-reason"] for got in bodies[1:]] == ["regenerate"] * 2
    assert stage.calls - before == 3


@pytest.mark.parametrize("path", PATHS)
def test_an_answer_that_was_there_before_is_older_than_zero_seconds(stage: Sglang, path: str) -> None:
    before = stage.calls
    for _ in range(2):
        assert stage.ask(path, "What is a dike for?", Cache_Control="max-age=0").reuse == "miss"
    assert stage.calls - before == 2


@pytest.mark.parametrize("path", PATHS)
def test_a_fresh_answer_replaces_the_old_one_before_anybody_asks_again(stage: Sglang, path: str) -> None:
    stage.ask(path, "What is a pump for?")
    fresh = stage.ask(path, "What is a pump for?", Cache_Control="no-cache")
    after = stage.ask(path, "What is a pump for?")
    assert after.headers["x-antiphon-entry"] == fresh.headers["x-antiphon-entry"]


def test_an_answer_that_cannot_be_recorded_in_time_holds_nobody_up(stage: Sglang) -> None:
    stage.ask("/v1/messages", "What is a pier for?")
    stage.slow_s = 1.3
    try:
        stage.ask("/v1/messages", "What is a jetty for?")
        assert stage.ask("/v1/messages", "What is a jetty for?").status == 200
    finally:
        stage.slow_s = 0.1
        stage.proxy.settle()


CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
}


@pytest.mark.parametrize("coding", CODINGS)
def test_an_answer_that_is_compressed_unasked_is_handed_on_as_it_is_and_stored_plain(
    stage: Sglang, coding: str
) -> None:
    path, question = "/v1/chat/completions", f"What is a {coding} wrench for?"
    stage.pack, stage.coding = CODINGS[coding], coding
    try:
        first = stage.ask(path, question)
    finally:
        stage.pack, stage.coding = bytes, ""
    assert first.headers["content-encoding"] == coding
    again = stage.ask(path, question)
    assert again.reuse == "answer"
    assert "content-encoding" not in again.headers
    assert zlib.decompress(first.body, 47) == completion(again.text)


def test_an_answer_in_a_coding_that_cannot_be_read_is_handed_on_and_not_stored(stage: Sglang) -> None:
    path, question = "/v1/chat/completions", "What is a zstd wrench for?"
    stage.pack, stage.coding = (lambda body: b"\x28\xb5\x2f\xfd" + body), "zstd"
    try:
        first = stage.ask(path, question)
    finally:
        stage.pack, stage.coding = bytes, ""
    assert first.body.startswith(b"\x28\xb5\x2f\xfd")
    assert not stored(first)
    assert stage.ask(path, question).reuse == "miss"


@given(body=st.binary(max_size=300), cut=st.integers(0, 400), most=st.integers(0, 300))
def test_a_body_is_decoded_whole_or_not_at_all(body: bytes, cut: int, most: int) -> None:
    for coding, pack in CODINGS.items():
        packed = pack(body)
        whole = decoded(packed[:cut], coding.encode(), most)
        assert whole in (None, body)
        assert whole is None or len(whole) <= most or not most
        assert decoded(packed, coding.encode(), len(body) + 1) == body
    assert decoded(body, b"identity", 0) == body


@given(st.binary(max_size=100))
def test_what_is_not_compressed_is_not_decoded_wrongly(body: bytes) -> None:
    assert decoded(body, b"gzip", 1000) is None or body[:2] == b"\x1f\x8b"


def test_a_stream_that_has_said_done_cannot_be_joined_though_its_connection_is_still_open() -> None:
    ended = threading.Event()
    calls = 0

    def behave(connection: socket.socket, request: Request) -> None:
        nonlocal calls
        calls += 1
        events = event(role="assistant", content=""), event("One."), event(finish="stop"), DONE
        connection.sendall(STREAM_HEAD + chunked(*events))
        assert ended.wait(10)
        connection.sendall(b"0\r\n\r\n")

    backend = Plain(behave)
    ask = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "What is a quay?"}]})
    with running_proxy(backend.url) as proxy, socket.create_connection(("127.0.0.1", proxy.port)) as first:
        first.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(ask)}\r\n\r\n{ask}".encode())
        got = b""
        while b"[DONE]" not in got:
            got += first.recv(4096)
        flights = proxy.app.turns._flights
        (turn,) = flights._by_turn
        assert flights.find(turn) is None
        threading.Timer(0.05, ended.set).start()
        again = proxy.send("POST", CHAT, ask.encode())
    backend.close()
    assert (again.reuse, again.text, calls) == ("answer", "One.", 1)
