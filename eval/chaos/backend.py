"""A backend that fails on command, in a process of its own: ``python -m eval.chaos.backend --port N``.

``POST /chaos {"mode": …}`` says how it behaves from then on; every answer holds the question and a number that no other
answer has, so that a reply given to the wrong question, or a stale one, can be told.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import itertools
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

import uvloop

__all__ = ["MODES"]

_numbers: Final = itertools.count(1)
_INFO: Final = {"model_path": "chaos", "tokenizer_path": "chaos", "weight_version": "w1", "is_generation": True}
_HEAD: Final = "HTTP/1.1 200 OK\r\ncontent-type: {}\r\n"

Writer = asyncio.StreamWriter


class Closed(Exception):  # noqa: N818 - reads as what it says
    """The connection is not to be used any more."""


def answer(question: str) -> dict[str, Any]:
    """A chat completion that says what it answers."""
    number = next(_numbers)
    message = {"role": "assistant", "content": f"[{question}] is answered by number {number}."}
    return {
        "id": f"{number:032x}", "object": "chat.completion", "created": 1, "model": "chaos",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18},
        "metadata": {"weight_version": "w1"},
    }  # fmt: skip


def whole(body: bytes, *more: str) -> bytes:
    """A reply of known length."""
    extra = "".join(f"{line}\r\n" for line in more)
    return f"{_HEAD.format('application/json')}{extra}content-length: {len(body)}\r\n\r\n".encode() + body


def events(question: str) -> list[bytes]:
    """The same answer as a stream."""
    text = answer(question)["choices"][0]["message"]["content"]
    pieces = [text[: len(text) // 2], text[len(text) // 2 :]]
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": pieces[0]}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {"content": pieces[1]}, "finish_reason": "stop"}]},
    ]
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "chaos"}
    return [b"data: " + json.dumps(head | chunk).encode() + b"\n\n" for chunk in chunks] + [b"data: [DONE]\n\n"]


def framed(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


async def ok(out: Writer, question: str, stream: bool) -> None:
    """Answer as a backend should."""
    if not stream:
        out.write(whole(json.dumps(answer(question)).encode()))
        return
    out.write(_HEAD.format("text/event-stream").encode() + b"transfer-encoding: chunked\r\n\r\n")
    for event in events(question):
        out.write(framed(event))
        await asyncio.sleep(0.001)
    out.write(b"0\r\n\r\n")


async def slow(out: Writer, question: str, stream: bool) -> None:
    """Answer after half a second."""
    await asyncio.sleep(0.5)
    await ok(out, question, stream)


async def hang(out: Writer, question: str, stream: bool) -> None:
    """Take the request and never say anything."""
    await asyncio.sleep(3600)


async def hang_midway(out: Writer, question: str, stream: bool) -> None:
    """Begin a reply and never go on."""
    out.write(whole(b"x" * 100)[:-50])
    await asyncio.sleep(3600)


async def half(out: Writer, question: str, stream: bool) -> None:
    """Close in the middle of a reply."""
    if stream:
        out.write(_HEAD.format("text/event-stream").encode() + b"transfer-encoding: chunked\r\n\r\n")
        out.write(framed(events(question)[0]))
    else:
        data = whole(json.dumps(answer(question)).encode())
        out.write(data[: len(data) * 2 // 3])
    raise Closed


async def reset(out: Writer, question: str, stream: bool) -> None:
    """Reset the connection in the middle of a reply."""
    out.write(whole(b"x" * 1000)[:400])
    await out.drain()
    out.transport.abort()
    raise Closed


async def closing(out: Writer, question: str, stream: bool) -> None:
    """Answer, and close at once a connection that was promised to stay open."""
    await ok(out, question, stream)
    raise Closed


def says(data: bytes) -> Callable[[Writer, str, bool], Awaitable[None]]:
    """Say these bytes whatever was asked, then close."""

    async def behave(out: Writer, question: str, stream: bool) -> None:
        out.write(data)
        raise Closed

    return behave


_BOMB: Final = gzip.compress(b'{"choices": [' + b" " * (64 << 20) + b"]}")  # 64 MiB in 64 KiB

MODES: Final[dict[str, Callable[[Writer, str, bool], Awaitable[None]]]] = {
    "ok": ok,
    "slow": slow,
    "hang": hang,
    "hang_midway": hang_midway,
    "half": half,
    "reset": reset,
    "closing": closing,
    "no_http": says(b"SMTP ready\r\n\r\n"),
    "nothing": says(b""),
    "no_json": says(whole(b"<html>Bad gateway</html>")),
    "other_json": says(whole(b'{"choices": [{"message": {"content": 5}}, null], "usage": []}')),
    "binary": says(whole(bytes(range(256)) * 64)),
    "deep": says(whole(b"[" * 200_000)),
    "bad_chunk": says(
        _HEAD.format("text/event-stream").encode() + b"transfer-encoding: chunked\r\n\r\nzz\r\nhello\r\n"
    ),
    "bad_length": says(_HEAD.format("application/json").encode() + b"content-length: 12abc\r\n\r\n{}"),
    "long_header": says(_HEAD.format("application/json").encode() + b"x-long: " + b"a" * 300_000 + b"\r\n\r\n"),
    "split_header": says(
        _HEAD.format("application/json").encode() + b"x-a: b\rx-antiphon-entry: forged\r\ncontent-length: 2\r\n\r\n{}"
    ),
    "bad_events": says(
        _HEAD.format("text/event-stream").encode()
        + b"transfer-encoding: chunked\r\n\r\n"
        + framed(b"data: {]\n\ndata: \xff\xfe\n\n: \n\nid\n\ndata: [DONE]\n\n")
        + b"0\r\n\r\n"
    ),
    "bomb": says(whole(_BOMB, "content-encoding: gzip")),
    "no_gzip": says(whole(b"not gzip at all", "content-encoding: gzip")),
    "error_500": says(b"HTTP/1.1 500 Oops\r\ncontent-length: 2\r\ncontent-type: application/json\r\n\r\n{}"),
}


class _Backend:
    def __init__(self) -> None:
        self.mode = "ok"
        self.seen = 0

    async def serve(self, reader: asyncio.StreamReader, out: Writer) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = 0
                if (at := head.find(b"content-length:")) >= 0:
                    length = int(head[at + 15 :].split(b"\r\n", 1)[0])
                body = await reader.readexactly(length)
                if head.startswith(b"post /chaos"):
                    self.mode = json.loads(body)["mode"]
                    out.write(whole(json.dumps({"seen": self.seen}).encode()))
                elif head.startswith(b"get "):
                    out.write(whole(json.dumps(_INFO).encode()))
                else:
                    self.seen += 1
                    asked = json.loads(body)
                    stream = asked.get("stream", False)
                    await MODES[self.mode](out, asked["messages"][-1]["content"], stream)
                await out.drain()
        except (OSError, Closed, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            out.close()


async def _run(port: int) -> None:
    backend = _Backend()
    server = await asyncio.start_server(backend.serve, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    uvloop.run(_run(parser.parse_args().port))


if __name__ == "__main__":
    main()
