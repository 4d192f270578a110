"""Identical turns that arrive together cost one call; whoever leaves or fails takes nobody down."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

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
    until,
)


class Stage:
    """A backend that answers when it is told to."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.failing = 0  # how many calls from now on fail
        self.backend = Plain(self.behave)
        self.proxy: Proxy
        self.pool = ThreadPoolExecutor(32)

    def behave(self, connection: socket.socket, request: Request) -> None:
        if request.line.startswith("GET"):
            connection.sendall(reply(b"{}", status="404 Not Found"))
            return
        body = json.loads(request.body)
        number = len(self.calls)
        if body.get("stream"):
            connection.sendall(STREAM_HEAD + chunked(event(role="assistant", content=""), event(f"Call {number}: ")))
            assert self.go_on.wait(10)
            if self.fails():
                connection.shutdown(socket.SHUT_RDWR)
                return
            connection.sendall(chunked(event("done."), event(finish="stop"), DONE) + b"0\r\n\r\n")
        else:
            assert self.go_on.wait(10)
            if self.fails():
                connection.sendall(reply(b'{"error": {"message": "busy"}}', status="503 Service Unavailable"))
            else:
                connection.sendall(reply(completion(f"Call {number}: done."), "Content-Type: application/json"))

    def fails(self) -> bool:
        self.failing -= 1
        return self.failing >= 0

    @property
    def calls(self) -> list[Request]:
        return [request for request in self.backend.requests if request.line.startswith("POST")]

    def ask(self, *, stream: bool = False, headers: dict[str, str] | None = None, **fields: Any) -> Future[Got]:
        body = {
            "model": self.proxy.model,
            "stream": stream,
            "messages": [{"role": "user", "content": "What is a sluice?"}],
            **fields,
        }
        return self.pool.submit(self.proxy.send, "POST", CHAT, json.dumps(body).encode(), headers)

    def until_flying(self, listeners: int = 1) -> None:
        flights = self.proxy.app.turns._flights._by_key
        until(lambda: [len(flight.listeners) for flight in flights.values()] == [listeners] and bool(self.calls))

    def until_idle(self) -> None:
        self.proxy.settle()


@pytest.fixture(scope="module")
def running() -> Iterator[Stage]:
    stage = Stage()
    with running_proxy(stage.backend.url) as proxy:
        stage.proxy = proxy
        yield stage
    stage.backend.close()


@pytest.fixture
def stage(running: Stage, request: pytest.FixtureRequest) -> Iterator[Stage]:
    running.go_on.clear()
    running.failing = 0
    running.backend.requests.clear()
    running.backend.closed.clear()
    running.proxy.model = request.node.name
    yield running
    running.go_on.set()
    running.until_idle()


@pytest.mark.parametrize("stream", [False, True])
def test_many_at_once_are_one_call(stage: Stage, stream: bool) -> None:
    asked = [stage.ask(stream=stream) for _ in range(20)]
    stage.until_flying(20)
    stage.go_on.set()
    replies = [one.result() for one in asked]
    assert len(stage.calls) == 1
    assert {got.text for got in replies} == {"Call 1: done."}
    assert sum("collapsed" in got.headers["cache-status"] for got in replies) == 19
    assert {got.status for got in replies} == {200}


def test_followers_get_the_stream_as_it_comes(stage: Stage) -> None:
    first = stage.ask(stream=True)
    stage.until_flying()
    with socket.create_connection(("127.0.0.1", stage.proxy.port)) as late:
        body = json.dumps(
            {"model": stage.proxy.model, "stream": True, "messages": [{"role": "user", "content": "What is a sluice?"}]}
        )
        late.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        got = b""
        while b"Call 1" not in got:  # before the backend has finished
            got += late.recv(4096)
        stage.go_on.set()
        while b"[DONE]" not in got:
            got += late.recv(4096)
    assert first.result().text == "Call 1: done."
    assert len(stage.calls) == 1


@pytest.mark.parametrize("leader_streams", [False, True])
def test_callers_who_want_another_form_share_the_call_too(stage: Stage, leader_streams: bool) -> None:
    leader = stage.ask(stream=leader_streams)
    stage.until_flying()
    follower = stage.ask(stream=not leader_streams)
    stage.until_flying(2)
    stage.go_on.set()
    if leader_streams:  # this backend never tells usage in a stream: JSON without it would be made up
        assert leader.result().text == "Call 1: done."
        assert follower.result().text == "Call 2: done."
        return
    assert leader.result().text == follower.result().text == "Call 1: done."
    assert follower.result().events[-1] == "[DONE]"
    assert len(stage.calls) == 1


def test_followers_do_not_get_what_was_meant_for_the_first_caller(stage: Stage) -> None:
    stage.go_on.clear()
    first = stage.ask(stream=True)
    stage.until_flying()
    second = stage.ask(stream=True)
    stage.until_flying(2)
    stage.go_on.set()
    assert first.result().headers["set-cookie"] == "who=first"
    assert "set-cookie" not in second.result().headers


def leave_after_joining(stage: Stage, *, stream: bool) -> None:
    body = json.dumps(
        {"model": stage.proxy.model, "stream": stream, "messages": [{"role": "user", "content": "What is a sluice?"}]}
    )
    with socket.create_connection(("127.0.0.1", stage.proxy.port)) as leader:
        leader.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        stage.until_flying()
        yield_to = stage.ask(stream=stream)
        stage.until_flying(2)
    stage.until_flying(1)
    stage.go_on.set()
    assert yield_to.result().text == "Call 1: done."


@pytest.mark.parametrize("stream", [False, True])
def test_a_leader_that_leaves_takes_nobody_down(stage: Stage, stream: bool) -> None:
    leave_after_joining(stage, stream=stream)
    assert len(stage.calls) == 1
    stage.until_idle()
    assert stage.ask(stream=True).result().reuse == "answer"  # and the answer was kept


def test_when_everybody_has_left_the_call_is_cancelled_and_nothing_kept(stage: Stage) -> None:
    body = json.dumps(
        {"model": stage.proxy.model, "stream": True, "messages": [{"role": "user", "content": "What is a sluice?"}]}
    )
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    with (
        socket.create_connection(("127.0.0.1", stage.proxy.port)) as one,
        socket.create_connection(("127.0.0.1", stage.proxy.port)) as two,
    ):
        one.sendall(head)
        stage.until_flying()
        two.sendall(head)
        stage.until_flying(2)
    stage.until_idle()
    stage.go_on.set()
    assert stage.ask().result().text == "Call 2: done."


def leave_at_the_end_event(proxy: Proxy) -> bytes:
    """Ask for a stream and hang up as soon as its end event has come; returns the body that was sent."""
    body = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "What is a sluice?"}]})
    with socket.create_connection(("127.0.0.1", proxy.port)) as client:
        client.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        got = b""
        while DONE not in got:
            got += client.recv(4096)
    return body.encode()


def test_an_answer_whose_client_leaves_at_its_end_event_is_kept() -> None:
    """As the public clients do: what is left is the end of the body, which the backend may send a moment later."""
    gone = threading.Event()

    def behave(connection: socket.socket, request: Request) -> None:
        if request.line.startswith("GET"):
            connection.sendall(reply(b"{}", status="404 Not Found"))
            return
        connection.sendall(STREAM_HEAD + chunked(event("A gate."), event(finish="stop"), DONE))
        if gone.wait(10):
            connection.sendall(b"0\r\n\r\n")

    backend = Plain(behave)
    with running_proxy(backend.url) as proxy:
        body = leave_at_the_end_event(proxy)
        flights = proxy.app.turns._flights
        until(lambda: all(not f.listeners for group in flights._by_turn.values() for f in group))
        gone.set()
        proxy.settle()
        again = proxy.send(body=body)
    backend.close()
    assert (again.reuse, again.text) == ("answer", "A gate.")
    assert len([r for r in backend.requests if r.line.startswith("POST")]) == 1


def test_an_answer_that_never_ends_after_its_end_event_does_not_hold_the_backend(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proxy.flight._LAST_BYTE_S", 0.2)

    def behave(connection: socket.socket, request: Request) -> None:
        connection.sendall(STREAM_HEAD + chunked(event("A gate."), event(finish="stop"), DONE))
        backend.wait_for_hang_up(connection)

    backend = Plain(behave)
    with running_proxy(backend.url) as proxy:
        leave_at_the_end_event(proxy)
        assert backend.closed.wait(5), "the call went on for nobody"
        proxy.settle()
    backend.close()


def test_followers_of_a_failed_call_make_their_own(stage: Stage) -> None:
    asked = [stage.ask() for _ in range(4)]
    stage.until_flying(4)
    stage.failing = 1
    stage.go_on.set()
    replies = [one.result() for one in asked]
    assert sorted(got.status for got in replies) == [200, 200, 200, 503]
    assert len(stage.calls) == 4
    assert stage.ask().result().reuse == "miss"  # what was fetched in distress is not kept


def test_a_stream_that_breaks_is_cut_for_those_who_had_some_and_asked_again_for_the_rest(stage: Stage) -> None:
    leader = stage.ask(stream=True)
    stage.until_flying()
    follower = stage.ask(stream=False)
    stage.until_flying(2)
    stage.failing = 1
    stage.go_on.set()
    assert leader.result().cut
    assert follower.result().status == 200
    assert follower.result().text == "Call 2: done."


@pytest.mark.parametrize("value", ["no-cache", "no-store"])
def test_who_asks_for_a_fresh_answer_does_not_join(stage: Stage, value: str) -> None:
    first = stage.ask()
    stage.until_flying()
    second = stage.ask(headers={"Cache-Control": value})
    until(lambda: len(stage.calls) == 2)
    stage.go_on.set()
    assert first.result().text != second.result().text


def test_callers_with_other_credentials_do_not_join(stage: Stage) -> None:
    asked = [stage.ask(headers={"Authorization": f"Bearer {name}"}) for name in "ab"]
    until(lambda: len(stage.calls) == 2)
    stage.go_on.set()
    assert len({one.result().text for one in asked}) == 2


def test_one_caller_who_allows_a_short_life_shortens_it_for_all(stage: Stage) -> None:
    first = stage.ask()
    stage.until_flying()
    second = stage.ask(headers={"X-Antiphon-TTL": "0"})
    stage.until_flying(2)
    stage.go_on.set()
    assert first.result().text == second.result().text
    assert stage.ask().result().reuse == "miss"


def test_a_slow_reader_holds_up_nobody_else(stage: Stage) -> None:
    stage.go_on.set()
    body = json.dumps(
        {"model": stage.proxy.model, "stream": True, "messages": [{"role": "user", "content": "What is a sluice?"}]}
    )
    with socket.create_connection(("127.0.0.1", stage.proxy.port)) as slow:
        slow.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        time.sleep(0.05)
        assert stage.ask(stream=True).result().text == "Call 1: done."


def test_single_flight_can_be_switched_off() -> None:
    stage = Stage()
    with running_proxy(stage.backend.url, flight={"enabled": False}) as proxy:
        stage.proxy = proxy
        asked = [stage.ask() for _ in range(3)]
        until(lambda: len(stage.calls) == 3)
        stage.go_on.set()
        assert {one.result().status for one in asked} == {200}
    stage.backend.close()


@pytest.mark.parametrize("streamed", [False, True])
def test_a_reply_too_large_to_keep_is_handed_on_whole(streamed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.turns._MOST_BODY", 100_000)
    big = "x" * 1000
    events = b"".join(event(big) for _ in range(3_000))

    def behave(connection: socket.socket, request: Request) -> None:
        if streamed:
            connection.sendall(STREAM_HEAD)
            for start in range(0, len(events), 50_000):
                connection.sendall(chunked(events[start : start + 50_000]))
            connection.sendall(chunked(DONE) + b"0\r\n\r\n")
        else:
            connection.sendall(reply(completion(big * 3_000), "Content-Type: application/json"))

    backend = Plain(behave)
    with running_proxy(backend.url) as proxy:
        first, second = (proxy.ask("big?", stream=streamed) for _ in range(2))
        assert len(first.text) == len(second.text) == 3_000_000
        assert second.reuse == "miss"
    backend.close()
