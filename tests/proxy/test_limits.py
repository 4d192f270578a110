"""Limits: what is too much is answered in words; what is only too much for the cache is forwarded."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from tests.proxy.support import CHAT, Plain, Proxy, Request, completion, reply, running_proxy, until


def answers(connection: socket.socket, request: Request) -> None:
    connection.sendall(reply(completion(), "Content-Type: application/json"))


@pytest.fixture
def backend() -> Iterator[Plain]:
    backend = Plain(answers)
    yield backend
    backend.close()


def served(backend: Plain, **limits: Any) -> AbstractContextManager[Proxy]:
    return running_proxy(backend.url, limits=limits)


def raw(port: int, data: bytes, *, rest: bytes = b"") -> bytes:
    """Send bytes, return all that comes until the other side closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(data)
        got = b""
        try:
            if rest:
                client.sendall(rest)
            while piece := client.recv(65536):
                got += piece
        except ConnectionError:
            pass
        return got


def error_of(got: bytes) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(got.partition(b"\r\n\r\n")[2])["error"]
    return error


# ------------------------------------------------------------------------------------------------------- the head


def test_a_head_without_end_is_refused_before_it_fills_the_memory(backend: Plain) -> None:
    with served(backend, max_head_kib=16) as proxy:
        for junk in (b"X: " + b"a" * 400_000, b"".join(b"X-%d: a\r\n" % n for n in range(40_000))):
            got = raw(proxy.port, b"GET /v1/models HTTP/1.1\r\nHost: x\r\n" + junk)
            assert got.startswith(b"HTTP/1.1 431 ")
            assert error_of(got)["code"] == "head_too_large"
        assert proxy.send("GET", "/v1/models", headers={"X-Long": "a" * 15_000}).status == 200


def test_too_many_headers_are_refused_and_as_many_as_allowed_are_not(backend: Plain) -> None:
    with served(backend, max_headers=20) as proxy:
        lines = b"".join(b"X-%d: a\r\n" % n for n in range(20))
        got = raw(proxy.port, b"GET /v1/models HTTP/1.1\r\nHost: x\r\n" + lines + b"\r\n")
        assert got.startswith(b"HTTP/1.1 431 ")
        assert error_of(got)["code"] == "too_many_headers"
        fewer = b"".join(b"X-%d: a\r\n" % n for n in range(18))
        request = b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + fewer + b"\r\n"
        assert raw(proxy.port, request).startswith(b"HTTP/1.1 200 ")
    assert len(backend.requests) == 1


def test_a_head_that_does_not_come_to_its_end_is_given_up(backend: Plain) -> None:
    with served(backend, head_timeout_s=0.3) as proxy:
        began = time.monotonic()
        got = raw(proxy.port, b"POST /v1/chat/completions HTTP/1.1\r\nHost:")
        assert got.startswith(b"HTTP/1.1 408 ")
        assert error_of(got)["code"] == "head_too_slow"
        assert raw(proxy.port, b"") == b""  # connected and silent: closed without a word
        assert time.monotonic() - began < 15
        # A second request on a kept connection is measured from its own first byte, and a slow reply is not meant.
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=20) as client:
            for _ in range(2):
                client.sendall(b"GET /antiphon/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                got = b""
                while not got.endswith(b"}"):  # head and body may come apart
                    piece = client.recv(4096)
                    assert piece
                    got += piece
                assert got.startswith(b"HTTP/1.1 200 ")
                time.sleep(0.5)
            client.sendall(b"GET /antiphon/health HTTP/1.1\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.1 408 ")


def test_a_body_may_take_longer_than_a_head(backend: Plain) -> None:
    body = b'{"messages": [{"role": "user", "content": "slowly"}]}'
    head = b"POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (
        CHAT.encode(),
        len(body),
    )
    with (
        served(backend, head_timeout_s=0.2) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), timeout=20) as client,
    ):
        client.sendall(head + body[:10])
        time.sleep(0.5)
        client.sendall(body[10:])
        assert client.recv(4096).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(64)),
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nBad Header: 1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_not_http_or_could_be_read_in_two_ways_is_refused_in_json(backend: Plain, data: bytes) -> None:
    with served(backend) as proxy:
        got = raw(proxy.port, data)
    assert got.startswith(b"HTTP/1.1 400 ")
    assert error_of(got)["code"] == "invalid_http"
    assert got.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("at_once", [True, False])
def test_an_offer_to_speak_another_protocol_is_ignored_and_the_body_read(backend: Plain, at_once: bool) -> None:
    """Java's HTTP client offers h2c with every request."""
    body = b'{"messages": [{"role": "user", "content": "\r\nUpgrade: h2c\r\n"}]}'
    lines = b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"
    head = b"POST /v1/files HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n" % (lines, len(body))
    with (
        served(backend) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), timeout=20) as client,
    ):
        for _ in range(2):
            for piece in [head + body] if at_once else [head, body]:
                client.sendall(piece)
                time.sleep(0.02)
            assert client.recv(4096).startswith(b"HTTP/1.1 200 ")
    assert [request.body for request in backend.requests] == [body, body]


def test_a_refusal_waits_for_the_replies_to_earlier_requests(backend: Plain) -> None:
    """The client sends on without waiting: first it gets what it asked for, then the word on what is wrong."""
    go_on = threading.Event()

    def waits(connection: socket.socket, request: Request) -> None:
        assert go_on.wait(20)
        answers(connection, request)

    backend.behave = waits
    with served(backend) as proxy, socket.create_connection(("127.0.0.1", proxy.port), timeout=20) as client:
        client.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
        until(lambda: len(backend.requests) == 1)
        client.sendall(b"NOT HTTP\r\n\r\n" + b"x" * 100_000)
        time.sleep(0.1)
        go_on.set()
        got = b""
        while piece := client.recv(65536):
            got += piece
    assert got.startswith(b"HTTP/1.1 200 ")
    assert completion() in got
    assert got.index(b"HTTP/1.1 400 ") > got.index(completion())


# ------------------------------------------------------------------------------------------------------ size of turns


def chat(messages: int) -> bytes:
    turns = [{"role": "user" if n % 2 == 0 else "assistant", "content": f"m {n}"} for n in range(messages)]
    return json.dumps({"model": "m", "messages": turns}).encode()


@pytest.mark.parametrize("path", [CHAT, "/v1/messages"])
def test_a_turn_with_very_many_messages_is_forwarded_uncached(backend: Plain, path: str) -> None:
    with running_proxy(backend.url, limits={"max_messages": 11}) as proxy:
        for _ in range(2):
            got = proxy.send(path=path, body=chat(13))
            assert (got.status, got.reuse) == (200, "bypass")
            assert got.headers["x-antiphon-reason"] == "too-many-messages"
        assert proxy.send(path=CHAT, body=chat(11)).reuse == "miss"
        told = proxy.send("GET", "/antiphon/metrics").body.decode()
        errors = [line for line in told.splitlines() if line.startswith("antiphon_cache_errors_total{")]
        assert all(line.endswith(" 0.0") for line in errors), errors
    assert backend.requests[0].body.endswith(chat(13)[1:])


def test_where_the_operator_wants_it_what_is_too_large_is_refused(backend: Plain) -> None:
    with running_proxy(
        backend.url, limits={"max_messages": 11, "over": "refuse"}, server={"max_body_mib": 0.01}
    ) as proxy:
        assert proxy.send(body=chat(13)).json["error"]["code"] == "request_too_large"
        large = b'{"messages": "' + b"x" * 20_000 + b'"}'
        for path in (CHAT, "/v1/files"):
            got = proxy.send(path=path, body=large)
            assert (got.status, got.json["error"]["code"]) == (413, "request_too_large")
        assert proxy.send(path="/v1/messages", body=large).json["type"] == "error"
        for unknown in (b"/v1/chat/completions", b"/v1/files"):  # its length is not known beforehand
            piece = b"1000\r\n" + b"x" * 4096 + b"\r\n"
            head = b"POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" % unknown
            assert raw(proxy.port, head + piece * 4 + b"0\r\n\r\n").startswith(b"HTTP/1.1 413 ")
        assert proxy.ask("Small?").status == 200
        assert b'antiphon_requests_refused_total{status="413"} 6.0' in proxy.send("GET", "/antiphon/metrics").body


# -------------------------------------------------------------------------------------------------- how much at a time


def test_more_requests_than_allowed_at_a_time_get_503_and_places_are_given_back(backend: Plain) -> None:
    go_on = threading.Event()

    def waits(connection: socket.socket, request: Request) -> None:
        assert go_on.wait(20)
        answers(connection, request)

    backend.behave = waits
    with running_proxy(backend.url, limits={"max_concurrent_requests": 2}) as proxy:
        got: list[int] = []
        threads = [
            threading.Thread(target=lambda n=n: got.append(proxy.send(body=chat(2 * n + 1)).status)) for n in (1, 2)
        ]
        for thread in threads:
            thread.start()
        until(lambda: len(backend.requests) == 2)
        refused = proxy.send(body=chat(7))
        assert (refused.status, refused.json["error"]["code"]) == (503, "too_many_requests")
        assert refused.headers["retry-after"] == "1"
        assert proxy.send("GET", "/antiphon/ready").status == 200
        go_on.set()
        for thread in threads:
            thread.join()
        assert got == [200, 200]
        assert proxy.send(body=chat(7)).status == 200


def test_one_caller_cannot_take_the_places_of_others(backend: Plain) -> None:
    go_on = threading.Event()

    def waits(connection: socket.socket, request: Request) -> None:
        if b"hold" in request.body:
            assert go_on.wait(20)
        answers(connection, request)

    backend.behave = waits
    with running_proxy(backend.url, limits={"max_concurrent_per_caller": 1}) as proxy:
        body = b'{"messages": [{"role": "user", "content": "hold"}]}'
        busy = {"Authorization": "Bearer busy"}
        thread = threading.Thread(target=lambda: proxy.send(body=body, headers=busy))
        thread.start()
        until(lambda: len(backend.requests) == 1)
        refused = proxy.send(body=chat(1), headers=busy)
        assert (refused.status, refused.json["error"]["type"]) == (429, "rate_limit_error")
        assert proxy.send(body=chat(1), headers={"Authorization": "Bearer other"}).status == 200
        go_on.set()
        thread.join()
        until(lambda: proxy.send(body=chat(1), headers=busy).status == 200)
        assert not proxy.app.limits._by_caller


async def test_without_limits_nothing_is_counted_by_caller(backend: Plain) -> None:
    with running_proxy(backend.url) as proxy:
        got = await asyncio.gather(*(asyncio.to_thread(proxy.send, body=chat(2 * n + 1)) for n in range(30)))
        assert {one.status for one in got} == {200}
        assert not proxy.app.limits._by_caller
