"""Servers that benchmarks measure against, each in a process of its own: a fast scripted backend, and a bare route.

The backend speaks just enough HTTP/1.1 for a well-behaved client and costs a few tens of microseconds a request, so
that what is measured is the proxy. Run as ``python -m eval.bench.servers backend|bare --port N``.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import time
from typing import Any, Final, cast

import uvloop

__all__ = ["STREAM_PAUSE_S", "reply"]

STREAM_PAUSE_S: Final = 0.02  # between the first piece of a stream and the rest

_TEXT: Final = (
    "A mutex is a lock that only one thread can hold at a time. A thread that wants the lock while another holds it "
    "waits until it is released; what the lock guards is therefore never touched by two threads at once. "
) * 2
_numbers: Final = itertools.count(1)


def reply(model: str, number: int = 0) -> dict[str, Any]:
    """Return a chat completion of about a kilobyte, as SGLang shapes it."""
    message = {"role": "assistant", "content": f"{_TEXT}({number})", "reasoning_content": None, "tool_calls": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop", "matched_stop": 2}
    usage = {"prompt_tokens": 30, "total_tokens": 130, "completion_tokens": 100, "prompt_tokens_details": None}
    return {
        "id": f"{number:032x}", "object": "chat.completion", "created": 1_764_500_000, "model": model,
        "choices": [choice], "usage": usage, "metadata": {"weight_version": "bench"},
    }  # fmt: skip


class _Backend(asyncio.Protocol):
    def __init__(self) -> None:
        self._data = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._data += data
        while True:
            end = self._data.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self._data[:end].lower()
            length = 0
            at = head.find(b"content-length:")
            if at >= 0:
                length = int(head[at + 15 :].split(b"\r\n", 1)[0])
            if len(self._data) < end + 4 + length:
                return
            body = self._data[end + 4 : end + 4 + length]
            self._data = self._data[end + 4 + length :]
            self._answer(head, body)

    def _answer(self, head: bytes, body: bytes) -> None:
        if head.startswith(b"get"):
            info = {"model_path": "bench", "tokenizer_path": "bench", "weight_version": "bench"}
            self._send(json.dumps(info).encode())
        elif b'"stream":true' in body or b'"stream": true' in body:
            asyncio.get_running_loop().create_task(self._stream())
        else:
            self._send(json.dumps(reply("bench", next(_numbers))).encode())

    def _send(self, body: bytes) -> None:
        assert self._transport is not None
        self._transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
        )

    async def _stream(self) -> None:
        transport = self._transport
        assert transport is not None
        number = next(_numbers)

        def event(delta: dict[str, Any], finish: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            # The time of writing, for a client on this machine to read (CLOCK_MONOTONIC is the same in all processes).
            chunk = {
                "id": f"{time.perf_counter_ns()}",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": "bench",
            }
            return b"data: " + json.dumps(chunk | {"choices": [choice], "usage": None}).encode() + b"\n\n"

        def write(data: bytes) -> None:
            transport.write(b"%x\r\n%s\r\n" % (len(data), data))

        transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        write(event({"role": "assistant", "content": ""}))
        await asyncio.sleep(STREAM_PAUSE_S)
        write(event({"content": f"Piece one of {number}, "}))
        write(event({"content": "piece two."}))
        write(event({}, "stop"))
        transport.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


async def _serve_backend(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Backend, "127.0.0.1", port)
    await server.serve_forever()


def _serve_bare(port: int) -> None:
    """A Starlette route on uvicorn that returns the same JSON: what a Python app costs that does nothing at all."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    answer = reply("bench")

    async def chat(request: Request) -> JSONResponse:
        await request.body()
        return JSONResponse(answer)

    app = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])
    uvicorn.run(app, host="127.0.0.1", port=port, loop="uvloop", http="httptools", access_log=False, log_level="error")


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["backend", "bare"])
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    if options.kind == "backend":
        uvloop.run(_serve_backend(options.port))
    else:
        _serve_bare(options.port)


if __name__ == "__main__":
    main()
