"""Traces: a span for each stage, the caller's trace goes on to the backend, no text unless asked for."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from proxy import tracing
from proxy.logs import _Json
from store import stages
from tests.processes import a_free_port
from tests.proxy.support import (
    DONE,
    STREAM_HEAD,
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

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SECRET = "how tall is the lighthouse of Warnemuende"


class Collector:
    """An OTLP collector over HTTP."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.raw = b""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    raise AssertionError("not asked for")
                outer.raw += data
                for resource in ExportTraceServiceRequest.FromString(data).resource_spans:
                    for scope in resource.scope_spans:
                        outer.spans.extend(scope.spans)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/traces"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> Any:
        (span,) = self.named(name)
        return span


def attributes(span: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in span.attributes}


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.close()


def answers(connection: socket.socket, request: Request) -> None:
    if b'"stream": true' in request.body:
        connection.sendall(STREAM_HEAD + chunked(event("Nine "), event("metres.", finish="stop"), DONE) + b"0\r\n\r\n")
    else:
        connection.sendall(reply(completion("Thirty-seven metres."), "Content-Type: application/json"))


@contextmanager
def traced(
    collector: Collector, behave: Callable[[socket.socket, Request], None] = answers, **settings: Any
) -> Iterator[tuple[Proxy, Plain]]:
    """A proxy whose traces go to the collector; they have arrived when the block is left."""
    backend = Plain(behave)
    with running_proxy(backend.url, tracing={"endpoint": collector.url, **settings}) as proxy:
        yield proxy, backend
    backend.close()


def test_every_stage_of_a_decision_has_a_span_below_that_of_the_request(collector: Collector) -> None:
    with traced(collector) as (proxy, _):
        proxy.ask("What does the ferry to Gedser cost?")
        until(lambda: len(proxy.app.state.cache._index) == 1)
        proxy.ask("What does the ferry to Gedser cost for one?")
    first, second = collector.named("POST /v1/chat/completions")
    assert {span.name for span in collector.spans if span.trace_id == first.trace_id} >= {
        "plan", "exact", "search", "embed", "retrieve", "backend", "record",
    }  # fmt: skip
    assert {span.name for span in collector.spans if span.trace_id == second.trace_id} >= {"search", "decide"}
    for span in collector.spans:
        if span.trace_id == first.trace_id and span is not first:
            assert span.parent_span_id == first.span_id
            assert first.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
    told = attributes(first)
    assert told["antiphon.reuse"] == "miss"
    assert told["http.response.status_code"] == 200
    assert told["gen_ai.request.model"] == "m"
    searched = attributes(next(s for s in collector.named("search") if s.trace_id == second.trace_id))
    assert searched["antiphon.candidates"] == 1
    assert searched["antiphon.reason"]


def test_a_hit_says_so_and_has_no_call_to_the_backend(collector: Collector) -> None:
    with traced(collector) as (proxy, _):
        proxy.ask("Which way?")
        proxy.ask("Which way?")
    second = collector.named("POST /v1/chat/completions")[1]
    told = attributes(second)
    assert (told["antiphon.reuse"], told["antiphon.reason"]) == ("answer", "exact")
    assert len(told["antiphon.entry"]) == 32
    assert not [s for s in collector.named("backend") if s.trace_id == second.trace_id]


@pytest.mark.parametrize("stream", [False, True])
def test_the_callers_trace_goes_on_to_the_backend(collector: Collector, stream: bool) -> None:
    with traced(collector) as (proxy, backend):
        proxy.ask("Where from?", {"traceparent": PARENT, "tracestate": "a=b"}, stream=stream)
    root = collector.one("POST /v1/chat/completions")
    call = collector.one("backend")
    assert root.trace_id.hex() == PARENT[3:35]
    assert root.parent_span_id.hex() == PARENT[36:52]
    assert backend.requests[-1].header("traceparent") == [f"00-{PARENT[3:35]}-{call.span_id.hex()}-01"]
    assert backend.requests[-1].header("tracestate") == ["a=b"]
    assert [event.name for event in call.events] == ["first byte"]


def test_without_tracing_the_callers_trace_passes_by_untouched() -> None:
    backend = Plain(answers)
    with running_proxy(backend.url) as proxy:
        proxy.ask("Untouched?", {"traceparent": PARENT})
        assert backend.requests[-1].header("traceparent") == [PARENT]
        assert proxy.app.tracing is None
    backend.close()


def test_what_is_passed_through_is_traced_too(collector: Collector) -> None:
    with traced(collector) as (proxy, _):
        proxy.send("GET", "/v1/models?api_key=sk-verysecretkey")
    assert attributes(collector.one("GET /v1/models"))["url.path"] == "/v1/models"
    assert attributes(collector.one("backend"))["http.response.status_code"] == 200
    assert b"verysecretkey" not in collector.raw


def test_no_text_and_no_credential_stands_in_a_trace(collector: Collector) -> None:
    with traced(collector) as (proxy, _):
        for again in ("", " please"):
            proxy.ask(SECRET + again, {"Authorization": "Bearer sk-verysecretkey", "X-Antiphon-Session": "s-private"})
        proxy.send(body=b'{"messages": "' + SECRET.encode() + b'"}')
    assert len(collector.spans) > 10
    for secret in (SECRET, "Thirty-seven", "verysecretkey", "s-private"):
        assert secret.encode() not in collector.raw


def test_the_texts_stand_there_where_the_operator_asks_for_them(collector: Collector) -> None:
    with traced(collector, content=True) as (proxy, _):
        proxy.ask(SECRET)
    told = attributes(collector.one("POST /v1/chat/completions"))
    assert told["antiphon.question"] == SECRET
    assert b"Thirty-seven metres." in collector.raw


def test_a_ratio_of_zero_traces_nothing_but_what_the_caller_already_traces(collector: Collector) -> None:
    with traced(collector, sample_ratio=0.0) as (proxy, backend):
        proxy.ask("Not me")
        assert backend.requests[-1].header("traceparent") == []
        proxy.ask("But me", {"traceparent": PARENT})
    assert {span.trace_id.hex() for span in collector.spans} == {PARENT[3:35]}


def test_a_backend_that_fails_is_an_error_in_the_trace(collector: Collector) -> None:
    def nonsense(connection: socket.socket, request: Request) -> None:
        connection.sendall(b"SMTP ready\r\n\r\n")

    with traced(collector, nonsense) as (proxy, _):
        assert proxy.ask("Hello?").status == 502
    assert attributes(collector.one("backend"))["error.type"] == "protocol"
    assert collector.one("POST /v1/chat/completions").status.code == 2


def test_a_collector_that_is_away_costs_no_request() -> None:
    backend = Plain(answers)
    with running_proxy(backend.url, tracing={"endpoint": f"http://127.0.0.1:{a_free_port()}/v1/traces"}) as proxy:
        assert [proxy.ask(f"Number {n}?").status for n in range(5)] == [200] * 5
    backend.close()


def test_without_the_packages_requests_are_answered_and_the_log_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.sdk.trace", None)
    backend = Plain(answers)
    with running_proxy(backend.url, tracing={"endpoint": "http://127.0.0.1:9/v1/traces"}) as proxy:
        assert proxy.ask("Without?").status == 200
    backend.close()
    assert "antiphon[otlp]" in caplog.text


async def test_a_stage_that_nobody_watches_is_the_bare_call() -> None:
    async def work() -> int:
        return 3

    told: list[str] = []

    class Watcher:
        def stage(self, name: str, began_ns: int, ended_ns: int, attributes: object, failed: str) -> None:
            told.append(f"{name} {attributes} {failed}")

    decorated = stages.staged("three", lambda n: {"n": n})(work)
    assert await decorated() == 3
    assert told == []
    token = stages.observing(Watcher())
    assert await decorated() == 3
    stages.forget(token)
    assert told == ["three {'n': 3} "]
    assert tracing.current() is None


def test_a_log_line_within_a_trace_names_it(collector: Collector) -> None:
    import logging

    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(_Json().format(record))  # type: ignore[method-assign]
    logger = logging.getLogger("proxy.upstream")
    logger.addHandler(handler)
    try:
        with traced(collector, lambda connection, request: connection.sendall(b"nonsense\r\n\r\n")) as (proxy, _):
            proxy.send("GET", "/v1/models", headers={"traceparent": PARENT})
    finally:
        logger.removeHandler(handler)
    assert PARENT[3:35] in {json.loads(line).get("trace_id") for line in lines}
