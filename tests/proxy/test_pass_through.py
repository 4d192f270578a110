"""What is not understood reaches the backend and comes back byte for byte, whatever the backend does."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.processes import a_free_port
from tests.proxy.support import CHAT, Plain, Proxy, Request, chunked, read_request, reply, running_proxy, until

Behave = Callable[[socket.socket, Request], None]


class Stand:
    """A proxy in front of a backend whose behaviour each test sets."""

    def __init__(self) -> None:
        self.behave: Behave = lambda connection, request: connection.sendall(reply(b"ok"))
        self.backend = Plain(lambda connection, request: self.behave(connection, request))
        self.proxy: Proxy

    @property
    def seen(self) -> Request:
        return self.backend.requests[-1]


@pytest.fixture(scope="module")
def running() -> Iterator[Stand]:
    stand = Stand()
    with running_proxy(
        stand.backend.url, upstream={"read_timeout_s": 1.0, "connect_timeout_s": 1.0}, server={"max_body_mib": 0.5}
    ) as proxy:
        stand.proxy = proxy
        yield stand
    stand.backend.close()


@pytest.fixture
def stand(running: Stand) -> Stand:
    running.backend.requests.clear()
    running.backend.closed.clear()
    running.behave = lambda connection, request: connection.sendall(reply(b"ok"))
    return running


def test_method_target_headers_and_body_arrive_unchanged(stand: Stand) -> None:
    target = "/v1/files/a%2Fb/../c%20d;x=1?q=%C3%A9&empty=&plus=a+b"
    body = bytes(range(256))
    stand.proxy.send(
        "PUT", target, body, {"X-Trace": "t-1", "Content-Type": "application/x-odd", "Accept": "*/*;q=0.1"}
    )
    assert stand.seen.line == f"PUT {target} HTTP/1.1"
    assert stand.seen.body == body
    assert stand.seen.header("x-trace") == ["t-1"]
    assert stand.seen.header("content-type") == ["application/x-odd"]
    assert stand.seen.header("host") == [stand.backend.url.removeprefix("http://")]
    assert stand.seen.header("user-agent") == []


def test_status_headers_and_body_come_back_unchanged(stand: Stand) -> None:
    body = b'{"error" :  {"message":"slow down"}}\n'
    answer = reply(
        body, "Retry-After: 7", "Set-Cookie: a=1", "Set-Cookie: b=2", "X-Odd: \xe9", "Connection: X-Private",
        "X-Private: 1", "X-Antiphon-Entry: forged", status="429 Slow Down",
    )  # fmt: skip
    stand.behave = lambda connection, request: connection.sendall(answer)
    connection = http.client.HTTPConnection("127.0.0.1", stand.proxy.port)
    connection.request("GET", "/v1/models")
    response = connection.getresponse()
    assert (response.status, response.read()) == (429, body)
    assert response.headers["Retry-After"] == "7"
    assert response.headers.get_all("Set-Cookie") == ["a=1", "b=2"]
    assert "X-Private" not in response.headers
    assert "X-Antiphon-Entry" not in response.headers
    assert "Server" not in response.headers


@pytest.mark.parametrize("path", [CHAT, "/v1/rerank"])
def test_an_encoded_reply_stays_encoded(stand: Stand, path: str) -> None:
    packed = gzip.compress(b'{"choices": []}')
    answer = reply(packed, "Content-Encoding: gzip", "Content-Type: application/json")
    stand.behave = lambda connection, request: connection.sendall(answer)
    got = stand.proxy.send(path=path, body=b'{"model":"m","messages":[{"role":"user","content":"zip"}]}')
    assert got.body == packed
    assert got.headers["content-encoding"] == "gzip"


def test_the_client_decides_about_encodings_of_what_is_passed_through(stand: Stand) -> None:
    stand.proxy.send("GET", "/v1/models", headers={"Accept-Encoding": "br;q=0.5, gzip"})
    assert stand.seen.header("accept-encoding") == ["br;q=0.5, gzip"]


@pytest.mark.parametrize("path", [CHAT, "/v1/models"])
def test_white_space_around_the_value_of_a_header_costs_no_request(stand: Stand, path: str) -> None:
    body = b'{"messages": "not understood"}'
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \r\nX-Odd:\t a b \t\r\nConnection: close\r\n"
    with socket.create_connection(("127.0.0.1", stand.proxy.port)) as client:
        client.sendall(head.encode() + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        assert client.recv(4096).startswith(b"HTTP/1.1 200")
    assert stand.seen.header("authorization") == ["Bearer"]
    assert stand.seen.header("x-odd") == ["a b"]


def test_head_has_the_length_and_no_body(stand: Stand) -> None:
    stand.behave = lambda connection, request: connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n")
    got = stand.proxy.send("HEAD", "/v1/models")
    assert (got.status, got.headers["content-length"], got.body) == (200, "99", b"")


def test_no_content_and_not_modified_have_no_body(stand: Stand) -> None:
    stand.behave = lambda connection, request: connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
    assert stand.proxy.send("DELETE", "/v1/files/f").status == 204


def test_other_methods_on_an_understood_path_are_passed_through(stand: Stand) -> None:
    for method in ("GET", "OPTIONS", "DELETE"):
        assert stand.proxy.send(method, CHAT).body == b"ok"
        assert stand.seen.line == f"{method} {CHAT} HTTP/1.1"


@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "m", "messages": [',
        b'{"messages": "hello"}',
        b'{"messages": []}',
        b'{"messages": [7, null]}',
        b'{"messages": [{"role": "user", "content": 5}]}',
        b'{"messages": [{"role": "wizard", "content": "x"}]}',
        b'{"messages": [{"role": "user", "content": "caf\xe9"}]}',
        b'{"messages": [{"role": "user", "content": "x"}], "stream": "yes"}',
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
        b"[" * 100_000,
        b"",
        b"null",
    ],
)
def test_a_body_that_is_not_understood_is_forwarded_byte_for_byte(stand: Stand, body: bytes) -> None:
    got = stand.proxy.send(body=body)
    assert got.body == b"ok"
    assert stand.seen.body == body
    assert got.reuse == "bypass"
    assert got.headers["x-antiphon-reason"].startswith("not-understood")


def test_a_body_too_large_to_read_is_streamed_through(stand: Stand) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "x" * 3_000_000}]}).encode()
    got = stand.proxy.send(body=body)
    assert got.headers["x-antiphon-reason"] == "too-large"
    assert stand.seen.body == body


def test_an_upload_is_streamed_and_not_gathered(stand: Stand) -> None:
    arrived = threading.Event()

    def behave(connection: socket.socket, request: Request) -> None:
        connection.sendall(reply(b"ok"))

    stand.behave = behave
    with socket.create_connection(("127.0.0.1", stand.proxy.port)) as client:
        head = "POST /v1/files HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        client.sendall(head.encode() + chunked(b"first"))
        time.sleep(0.05)
        assert not arrived.is_set()
        client.sendall(chunked(b"second") + b"0\r\n\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 200")
    assert stand.seen.header("transfer-encoding") == ["chunked"]
    assert b"first" in stand.seen.body
    assert b"second" in stand.seen.body


def test_a_reply_is_streamed_and_not_gathered(stand: Stand) -> None:
    go_on = threading.Event()

    def behave(connection: socket.socket, request: Request) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(b"early"))
        assert go_on.wait(5)
        connection.sendall(chunked(b"late") + b"0\r\n\r\n")

    stand.behave = behave
    connection = http.client.HTTPConnection("127.0.0.1", stand.proxy.port, timeout=5)
    connection.request("GET", "/generate")
    response = connection.getresponse()
    assert response.read(5) == b"early"
    go_on.set()
    assert response.read() == b"late"


@pytest.mark.parametrize("path", ["/generate", CHAT])
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_hangs_up_ends_the_backends_work_at_once(stand: Stand, path: str, stream: bool) -> None:
    started = threading.Event()

    def behave(connection: socket.socket, request: Request) -> None:
        if stream:
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
                + chunked(b"data: {}\n\n")
            )
        started.set()
        stand.backend.wait_for_hang_up(connection)

    stand.behave = behave
    content = f"hang up {path} {stream}"
    body = json.dumps({"stream": stream, "messages": [{"role": "user", "content": content}]})
    with socket.create_connection(("127.0.0.1", stand.proxy.port)) as client:
        client.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        assert started.wait(5)
        if stream:
            assert client.recv(4096)
    assert stand.backend.closed.wait(0.9), "the backend was left working (its own timeout is 1 s)"


def test_a_backend_that_cannot_be_reached_is_a_502(stand: Stand) -> None:
    with running_proxy(f"http://127.0.0.1:{a_free_port()}") as proxy:
        for path, body in ((CHAT, b'{"messages":[{"role":"user","content":"x"}]}'), ("/v1/models", None), (CHAT, b"{")):
            got = proxy.send(path=path, body=body)
            assert got.status == 502
            assert got.json["error"]["code"] == "upstream_unreachable"
            assert got.json["error"]["message"]
        got = proxy.send(path="/v1/messages", body=b"{}")
        assert got.json["type"] == "error"
        assert proxy.send("GET", "/antiphon/ready").status == 200


@pytest.mark.parametrize("path", [CHAT, "/v1/models"])
def test_a_backend_that_hangs_is_a_504(stand: Stand, path: str) -> None:
    stand.behave = lambda connection, request: stand.backend.wait_for_hang_up(connection)
    got = stand.proxy.send(path=path, body=b'{"messages":[{"role":"user","content":"hang"}]}')
    assert got.status == 504
    assert got.json["error"]["code"] == "upstream_timeout"


@pytest.mark.parametrize("path", [CHAT, "/v1/models"])
def test_a_backend_that_talks_nonsense_is_a_502(stand: Stand, path: str) -> None:
    stand.behave = lambda connection, request: connection.sendall(b"SMTP ready\r\n\r\n")
    got = stand.proxy.send(path=path, body=b'{"messages":[{"role":"user","content":"nonsense"}]}')
    assert got.status == 502
    assert got.json["error"]["code"] == "upstream_broken"


def test_a_reply_cut_short_by_the_backend_is_cut_short_for_the_client(stand: Stand) -> None:
    def behave(connection: socket.socket, request: Request) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        connection.shutdown(socket.SHUT_RDWR)

    stand.behave = behave
    got = stand.proxy.send("GET", "/v1/models")
    assert (got.status, got.body, got.cut) == (200, b"half", True)


def test_a_kept_connection_that_the_backend_closes_costs_no_request(stand: Stand) -> None:
    """The backend drops idle connections in the very moment the next request is sent on them."""

    def behave(connection: socket.socket, request: Request) -> None:
        connection.sendall(reply(b"ok"))
        read_request(connection)  # the next request on this connection is read and never answered
        connection.shutdown(socket.SHUT_RDWR)

    stand.behave = behave
    body = b'{"messages":"not understood"}'
    assert [stand.proxy.send(body=body).status for _ in range(6)] == [200] * 6


def test_a_websocket_is_refused_in_words(stand: Stand) -> None:
    got = stand.proxy.send("GET", "/v1/realtime", headers={"Upgrade": "websocket", "Connection": "Upgrade"})
    assert got.status == 501
    assert "websocket" in got.json["error"]["message"]
    assert stand.backend.requests == []


def test_an_absolute_target_goes_nowhere_but_to_the_backend(stand: Stand) -> None:
    with socket.create_connection(("127.0.0.1", stand.proxy.port)) as client:
        client.sendall(b"GET http://169.254.169.254/latest?a=b HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 200")
    assert stand.seen.line == "GET /latest?a=b HTTP/1.1"
    assert stand.seen.header("host") == [stand.backend.url.removeprefix("http://")]


def test_a_path_cannot_leave_the_prefix_of_the_backend() -> None:
    backend = Plain(lambda connection, request: connection.sendall(reply(b"ok")))
    with running_proxy(f"{backend.url}/tenant-a") as proxy:
        for path in ("/../secret", "/v1/%2e%2e/%2E%2e/secret", "/a/..%5c..%5csecret"):
            assert proxy.send("GET", path).status == 400
        assert backend.requests == []
        assert proxy.send("GET", "/v1/models?x=..").status == 200
        assert backend.requests[-1].line == "GET /tenant-a/v1/models?x=.. HTTP/1.1"
    backend.close()


def test_the_metrics_know_what_went_wrong(stand: Stand) -> None:
    until(
        lambda: b'antiphon_upstream_errors_total{kind="timeout"}' in stand.proxy.send("GET", "/antiphon/metrics").body
    )
