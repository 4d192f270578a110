"""Threats of docs/threats.md that no other test shows: each is tried, over HTTP, as an attacker would."""

from __future__ import annotations

import ast
import gzip
import json
import re
import socket
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from proxy.codings import decoded
from tests.conftest import Serve
from tests.processes import a_free_port
from tests.proxy.support import CHAT, Plain, Proxy, Request, completion, reply, running_proxy

ROOT = Path(__file__).resolve().parents[2]

Behave = Callable[[socket.socket, Request], None]


@pytest.fixture
def backend() -> Iterator[Plain]:
    """Gives every call an answer of its own."""
    number = iter(range(10**6))

    def behave(connection: socket.socket, request: Request) -> None:
        connection.sendall(reply(completion(f"Answer {next(number)}."), "Content-Type: application/json"))

    plain = Plain(behave)
    yield plain
    plain.close()


# ----------------------------------------------------------------------------------------------- what callers can learn


def test_only_if_cached_tells_another_caller_nothing(backend: Plain) -> None:
    """Who may not have an answer cannot tell a question that others have asked from one that nobody has."""
    with running_proxy(backend.url) as proxy:
        proxy.ask("What does the merger cost?", {"Authorization": "Bearer one"})
        probe = {"Authorization": "Bearer two", "Cache-Control": "only-if-cached"}
        asked = proxy.ask("What does the merger cost?", probe)
        never = proxy.ask("What does the takeover cost?", probe)
        assert (asked.status, asked.body) == (never.status, never.body) == (504, never.body)
        varying = {"date"}
        assert {k: v for k, v in asked.headers.items() if k not in varying} == {
            k: v for k, v in never.headers.items() if k not in varying
        }
        assert len(backend.requests) == 1


def test_another_callers_question_reaches_the_backend_with_a_salt_of_its_own(backend: Plain) -> None:
    """Neither a stored answer nor a prefix in the backend's KV cache is there to be timed."""
    with running_proxy(backend.url) as proxy:
        for who in ("one", "two", "one"):
            proxy.ask("Is the plant in Lingen closing?", {"Authorization": f"Bearer {who}"})
    salts = [json.loads(request.body)["cache_salt"] for request in backend.requests]
    assert len(salts) == len(set(salts)) == 2
    assert not any(secret in "".join(salts) for secret in ("one", "two"))


# -------------------------------------------------------------------------------------------------------- where it goes


ELSEWHERE: list[dict[str, str]] = [
    {"Host": "169.254.169.254"},
    {"X-Forwarded-Host": "169.254.169.254"},
    {"X-Forwarded-Proto": "https", "X-Forwarded-Port": "1"},
    {"Forwarded": "host=169.254.169.254;proto=https"},
    {"X-Original-URL": "http://169.254.169.254/latest", "X-Rewrite-URL": "/antiphon/entries"},
    {"X-Antiphon-Upstream": "http://169.254.169.254"},
    {"Destination": "http://169.254.169.254/", "Proxy": "http://169.254.169.254"},
    {"Upgrade": "h2c", "Connection": "Upgrade, HTTP2-Settings", "HTTP2-Settings": "AAMAAABkAARAAAAAAAIAAAAA"},
]


def test_no_header_decides_where_a_request_goes(backend: Plain, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{a_free_port()}")
    with running_proxy(backend.url) as proxy:
        for headers in ELSEWHERE:
            for path in (CHAT, "/v1/models"):
                body = json.dumps({"messages": [{"role": "user", "content": str(headers)}]}).encode()
                assert proxy.send("POST", path, body, headers).status == 200
                assert backend.requests[-1].line == f"POST {path} HTTP/1.1"
                assert backend.requests[-1].header("host") == [backend.url.removeprefix("http://")]
    assert len(backend.requests) == 2 * len(ELSEWHERE)


def test_a_redirect_of_the_backend_is_handed_on_and_not_followed() -> None:
    def behave(connection: socket.socket, request: Request) -> None:
        connection.sendall(reply(b"", "Location: http://169.254.169.254/", status="307 Temporary Redirect"))

    backend = Plain(behave)
    with running_proxy(backend.url) as proxy:
        got = proxy.send(body=b'{"messages": [{"role": "user", "content": "x"}]}')
    backend.close()
    assert (got.status, got.headers["location"]) == (307, "http://169.254.169.254/")
    assert len(backend.requests) == 1


# ------------------------------------------------------------------------------------------------------ what goes back


@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/v1/completions", "/v1/responses"])
def test_nothing_in_a_body_can_add_a_header_to_the_reply(backend: Plain, path: str) -> None:
    evil = 'x\r\nSet-Cookie: a=1\r\n\r\n<script>"'
    bodies = [
        {"messages": [{"role": evil, "content": "x"}], "prompt": "x", "input": "x"},
        {evil: 1, "messages": [{"role": "user", "content": "x"}], "prompt": "x", "input": "x"},
        {"model": evil, "messages": [{"role": "user", "content": evil}], "prompt": evil, "input": evil},
        {"stream": evil, "messages": evil, "user": evil},
    ]
    with running_proxy(backend.url) as proxy:
        for body in bodies:
            got = proxy.send(path=path, body=json.dumps(body).encode(), headers={"Cache-Control": 'max-age=\t;\\"'})
            assert "set-cookie" not in got.headers
            assert "<script>" not in "".join(got.headers.values()).replace(got.headers.get("x-antiphon-reason", ""), "")
            assert not re.search(r"[\r\n]", "".join(got.headers.values()))


def test_a_few_bytes_that_unpack_to_very_many_are_not_unpacked() -> None:
    bomb = gzip.compress(b" " * (64 << 20), compresslevel=1)
    twice = gzip.compress(bomb)
    tracemalloc.start()
    try:
        for data, coding in (
            (bomb, b"gzip"),
            (twice, b"gzip"),
            (zlib.compress(b" " * (64 << 20), level=1), b"deflate"),
        ):
            tracemalloc.reset_peak()
            unpacked = decoded(data, coding, 8 << 20)
            assert unpacked is None or len(unpacked) <= 8 << 20
            assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()


# ------------------------------------------------------------------------------------------------------- what is logged


@pytest.mark.slow
def test_no_text_and_no_secret_reaches_the_log_at_any_level(serve: Serve, tmp_path: Path) -> None:
    """Hits, misses, errors and faults of every kind, at the level that says most: canaries in all that is private."""
    canaries = ("zanzibar-question", "zanzibar-answer", "sk-zanzibarkey12345", "zanzibar-session", "zanzibar-user",
                "zanzibar-cookie", "zanzibar-query", "zanzibar-admin-token")  # fmt: skip
    question, answer, key, session, user, cookie, query, token = canaries
    broken = iter([b"SMTP\r\n\r\n", reply(b"{" + answer.encode()), b""])

    def behave(connection: socket.socket, request: Request) -> None:
        if b"break" in request.body:
            connection.sendall(next(broken, b""))
            connection.shutdown(socket.SHUT_RDWR)
        else:
            connection.sendall(reply(completion(answer), "Content-Type: application/json"))

    backend = Plain(behave)
    running = serve(
        backend.url, "--set", "logging.level=debug", "--set", "logging.access=true", "--set", "logging.format=json",
        "--set", "limits.max_messages=3", env={"ANTIPHON_ADMIN__TOKEN": token},
    )  # fmt: skip
    proxy = Proxy(int(running.url.rpartition(":")[2]), None)  # type: ignore[arg-type]
    headers = {"Authorization": f"Bearer {key}", "X-Antiphon-Session": session, "Cookie": f"c={cookie}"}
    bodies: list[object] = [
        {"messages": [{"role": "user", "content": question}], "user": user},
        {"messages": [{"role": "user", "content": question}], "user": user},
        {"messages": [{"role": "user", "content": question + " please"}], "user": user},
        {"messages": [{"role": "user", "content": "No, I meant " + question}], "user": user},
        {"messages": [{"role": question, "content": question}], "user": user},
        {"messages": question},
        {"messages": [{"role": "user", "content": question}] * 9},
        *({"messages": [{"role": "user", "content": f"break {question} {n}"}]} for n in range(4)),
    ]
    try:
        for body in bodies:
            proxy.send(path=f"{CHAT}?q={query}", body=json.dumps(body).encode(), headers=headers)
        proxy.send(path=CHAT, body=b'{"messages": "' + question.encode(), headers=headers)
        for path in ("/antiphon/explain", "/antiphon/purge", "/antiphon/feedback"):
            for sent in ({"X-Antiphon-Admin-Token": token}, {"X-Antiphon-Admin-Token": token + "x"}, headers):
                proxy.send(path=path, body=json.dumps({"where": {question: answer}}).encode(), headers=sent)
        time.sleep(0.5)
    finally:
        running.stop()
        backend.close()
    log = running.output()
    assert '"event": "request"' in log
    assert "a request got no reply from the backend" in log
    assert [canary for canary in canaries if canary in log] == []


# ------------------------------------------------------------------------------------------------------------- the page


def test_every_threat_names_tests_that_exist() -> None:
    page = (ROOT / "docs" / "threats.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| **")]
    known = {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert len(rows) >= 15
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row)
        assert named, row[:80]
        assert [name for name in named if name not in known] == []
