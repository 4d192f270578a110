"""OpenTelemetry traces, where ``tracing.endpoint`` is set: a span for each request and, below it, each stage.

Stages are told by `store.stages`; a span is made when its stage has ended, so that nothing of this runs inside a stage.
The trace of the caller (W3C ``traceparent``) goes on through here to the backend. Texts of a conversation are put on
spans only with ``tracing.content``. Spans leave in a thread of the SDK's, in batches; what the
collector does not take in time is dropped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextvars import Token
from typing import TYPE_CHECKING, Any, Final

from proxy.headers import RawHeaders
from proxy.settings import TracingSettings
from store import stages
from store.stages import Observer, Value
from store.types import Decision, Hit

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

    from proxy.plans import Plan
    from proxy.upstream import Scope, Send

__all__ = ["NotInstalled", "Trace", "Tracing", "current", "of_search"]

log = logging.getLogger(__name__)

_CARRIED: Final = ("traceparent", "tracestate")
_CARRIED_RAW: Final = frozenset(name.encode() for name in _CARRIED)
_OWN: Final = {
    b"x-antiphon-reuse": "antiphon.reuse",
    b"x-antiphon-reason": "antiphon.reason",
    b"x-antiphon-entry": "antiphon.entry",
    b"x-antiphon-confidence": "antiphon.confidence",
}
_MOST_CONTENT: Final = 4096  # characters of a text


class NotInstalled(RuntimeError):  # noqa: N818 - reads as what it says
    """Tracing is asked for, and the packages for it are missing."""


class Tracing:
    """Makes the traces of one proxy."""

    def __init__(self, settings: TracingSettings, *, exporter: SpanExporter | None = None) -> None:
        """Raises `NotInstalled`. ``exporter`` replaces the one that sends to ``settings.endpoint``."""
        try:
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

            if exporter is None:
                from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

                exporter = OTLPSpanExporter(endpoint=settings.endpoint)
        except ImportError as error:
            raise NotInstalled(
                f"tracing.endpoint is set, but a package is missing ({error.name}): pip install 'antiphon[otlp]'"
            ) from None
        self._content = settings.content
        self._propagator = TraceContextTextMapPropagator()
        self._provider: TracerProvider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(settings.sample_ratio)),
            resource=Resource.create({"service.name": settings.service_name}),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("antiphon")

    def begin(self, scope: Scope) -> Trace | None:
        """Open the span of a request; ``None`` where it is not sampled."""
        from opentelemetry.trace import SpanKind

        carrier = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"] if name in _CARRIED_RAW
        }
        span = self._tracer.start_span(
            f"{scope['method']} {scope['path']}" if scope["path"].startswith("/v1/") else scope["method"],
            context=self._propagator.extract(carrier),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": scope["method"], "url.path": scope["path"]},
        )
        return Trace(self, span, content=self._content) if span.is_recording() else None

    def close(self) -> None:
        """Send what has not been sent, and stop. Takes seconds where the collector is away."""
        self._provider.force_flush(timeout_millis=3000)
        self._provider.shutdown()

    def _child(self, parent: Span, name: str, began_ns: int, *, client: bool = False) -> Span:
        from opentelemetry.trace import SpanKind, set_span_in_context

        kind = SpanKind.CLIENT if client else SpanKind.INTERNAL
        return self._tracer.start_span(name, context=set_span_in_context(parent), kind=kind, start_time=began_ns)

    def _inject(self, span: Span) -> dict[str, str]:
        from opentelemetry.trace import set_span_in_context

        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, context=set_span_in_context(span))
        return carrier


class Trace:
    """The trace of one request: an `Observer` of its stages."""

    __slots__ = ("_content", "_late", "_span", "_token", "_tracing", "trace_id")

    def __init__(self, tracing: Tracing, span: Span, *, content: bool) -> None:
        self._tracing = tracing
        self._span = span
        self._content = content
        self._late = ""
        self._token: Token[Observer | None] = stages.observing(self)
        self.trace_id = f"{span.get_span_context().trace_id:032x}"

    def stage(self, name: str, began_ns: int, ended_ns: int, attributes: Mapping[str, Value], failed: str) -> None:
        """Make the span of a stage that has ended."""
        span = self._tracing._child(self._span, name, began_ns)
        span.set_attributes({f"antiphon.{key}": value for key, value in attributes.items()})
        if self._late:
            span.set_attribute("antiphon.answer", self._late)
            self._late = ""
        if failed:
            _fail(span, failed)
        span.end(ended_ns)

    def planned(self, began_ns: int, plan: Plan) -> None:
        """The request has been read and keyed."""
        self.stage("plan", began_ns, time.time_ns(), {"understood": plan.understood, "bypass": plan.bypass or ""}, "")
        model = plan.body.get("model")
        self._span.set_attributes({"gen_ai.operation.name": plan.endpoint.name, "antiphon.stream": plan.stream})
        if isinstance(model, str):
            self._span.set_attribute("gen_ai.request.model", model[:200])
        if self._content and plan.turn is not None:
            self._span.set_attribute("antiphon.question", plan.turn.message.text[:_MOST_CONTENT])

    def answer(self, text: str) -> None:
        """Note what was answered, where the operator wants that: on the request, or on the stage that outlives it."""
        if self._content and self._span.is_recording():
            self._span.set_attribute("antiphon.answer", text[:_MOST_CONTENT])
        elif self._content:
            self._late = text[:_MOST_CONTENT]

    def sending(self, send: Send) -> Send:
        """The same ``send``, with status and reuse noted as they go by."""

        async def noting(message: Any) -> None:
            if message["type"] == "http.response.start":
                self._span.set_attribute("http.response.status_code", message["status"])
                for name, value in message["headers"]:
                    if name in _OWN:
                        self._span.set_attribute(_OWN[name], value.decode("latin-1"))
                if message["status"] >= 500:
                    _fail(self._span, str(message["status"]))
            await send(message)

        return noting

    def call(self, headers: RawHeaders) -> tuple[RawHeaders, Call]:
        """Open the span of a call to the backend; returns the headers that carry it there."""
        span = self._tracing._child(self._span, "backend", time.time_ns(), client=True)
        kept = [pair for pair in headers if pair[0] not in _CARRIED_RAW]
        kept += [(name.encode(), value.encode()) for name, value in self._tracing._inject(span).items()]
        return kept, Call(span)

    def end(self, failed: str = "") -> None:
        """Close the request's span. Stages that end later (a call that others listen to) still belong to it."""
        if failed:
            _fail(self._span, failed)
        self._span.end()
        stages.forget(self._token)


class Call:
    """The span of one call to the backend."""

    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        self._span = span

    def head(self, status: int) -> None:
        """The first byte of the reply has come."""
        self._span.set_attribute("http.response.status_code", status)
        self._span.add_event("first byte")

    def end(self, failed: str = "") -> None:
        """The reply has come to its end, or there is none."""
        if failed:
            _fail(self._span, failed)
        self._span.end()


def current() -> Trace | None:
    """The trace of the request at hand."""
    watcher = stages.observer()
    return watcher if isinstance(watcher, Trace) else None


def of_search(found: tuple[Decision, Hit | None] | None) -> dict[str, Value]:
    """What a span tells of a look-up by meaning."""
    return {} if found is None else of_decision(found[0])


def of_decision(decision: Decision) -> dict[str, Value]:
    """What a span tells of a decision: numbers and names, no text of a conversation."""
    told: dict[str, Value] = {
        "level": decision.level,
        "reason": decision.reason,
        "confidence": round(decision.confidence, 4),
        "candidates": len(decision.judgements),
    }
    objections = sorted({objection for one in decision.judgements for objection in one.objections})
    if objections:
        told["objections"] = ", ".join(objections)[:500]
    return told


def _fail(span: Span, why: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("error.type", why)
    span.set_status(Status(StatusCode.ERROR))
