"""Broken requests by the thousand: ``python -m eval.fuzz [--n 100000] [--seed 1] [--json OUT]``.

Each request is a valid one that was damaged: bytes flipped, cut, doubled, spliced from others; nodes of its JSON
replaced; headers, path and query made odd; bodies for the admin surface. They go over HTTP to a real proxy before a
backend that answers with the digest of the body it got. Whatever comes: the proxy answers each, never with a 500 of its
own, keeps running, and what it says it did not understand has reached the backend byte for byte.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import hashlib
import json
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from eval.chaos.stand import Process, Stand, free_port

__all__ = ["Findings", "Request", "damaged", "fuzz"]

_CHAT: Final[list[dict[str, Any]]] = [
    {"role": "system", "content": "You answer briefly."},
    {"role": "user", "content": "How many legs has a spider? 蜘蛛有几条腿?"},
]
_TOOL: Final = {
    "type": "function",
    "function": {"name": "look_up", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}},
}
VALID: Final[list[tuple[str, dict[str, Any]]]] = [
    ("/v1/chat/completions", {"model": "m", "temperature": 0, "messages": _CHAT}),
    (
        "/v1/chat/completions",
        {"model": "m", "stream": True, "stream_options": {"include_usage": True}, "messages": _CHAT},
    ),
    (
        "/v1/chat/completions",
        {
            "model": "m", "n": 2, "logprobs": True, "user": "u", "tools": [_TOOL], "tool_choice": "auto",
            "messages": [
                *_CHAT,
                {"role": "assistant", "content": None, "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"q": "legs"}'}}]},
                {"role": "tool", "tool_call_id": "c1", "content": "8"},
                {"role": "user", "content": [{"type": "text", "text": "And an ant?"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]},
            ],
        },
    ),
    ("/v1/completions", {"model": "m", "prompt": "Once upon a time", "max_tokens": 5}),
    ("/v1/responses", {"model": "m", "input": "Say hello", "store": False}),
    (
        "/v1/messages",
        {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello"}], "system": "s"},
    ),
    ("/antiphon/explain", {"model": "m", "messages": _CHAT}),
    ("/antiphon/purge", {"where": {"model": "nothing"}, "dry_run": True}),
    ("/antiphon/feedback", {"entry": "0" * 32, "rating": "up"}),
]  # fmt: skip
_ODD: Final[list[Any]] = [
    None, True, False, 0, -1, 1e308, 10**400, -0.0, 2**53 + 1, "", " ", "\x00", "\ud800", "\U0001f600" * 50, "a" * 5000,
    "‮‏", "\r\nX: y", [], {}, [[]], {"": ""}, [None] * 300, "stream", {"role": "user"}, ["user", 3], "2026-01-01",
    "١٢٣", "½",
]  # fmt: skip
_TOKENS: Final = [b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"\\u0000", b"\\ud83d", b"null", b"1e999", b"NaN",
                  b"-",
                  b"\x00", b"\xff", b"\xef\xbb\xbf", b"\r\n", b'"stream":true,', b'"messages":[', b"/*",
    b"0" * 400]  # fmt: skip
_NAMES: Final = [
    "Cache-Control", "Pragma", "X-Antiphon-Session", "X-Antiphon-Tenant", "X-Antiphon-Knowledge-Version",
    "X-Antiphon-TTL",
    "X-Antiphon-Entry", "X-Antiphon-Canonical-History", "Authorization", "Accept-Encoding", "Content-Type",
    "Content-Encoding",
    "Traceparent", "Cookie", "Connection", "TE", "Expect-CT", "Anthropic-Version", "X-Forwarded-For", "Via",
    "If-None-Match",
    "Range",
]  # fmt: skip
_VALUES: Final = [
    "", "no-cache", "no-store", "only-if-cached", "max-age=0", "max-age=-1", "max-age=99999999999999999999999",
    'max-age="5"',
    'private="a, no-store', ",,,=", "no-cache" * 300, "Bearer ", "Bearer x y", "\xe9\xff", "gzip;q=2", "00-0-0-0",
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "\t", "1e9", "-5", "NaN", "off", "close", "identity",
    "*", '"',
]  # fmt: skip
_DEEP: Final = "@deep@"  # stands for JSON nested thousands deep until it is bytes
_PATHS: Final = [
    "%2e%2e",
    "%00",
    "//",
    "%ff",
    ";a=b",
    "/../",
    "%",
    "?",
    "a" * 3000,
    "é",
    "%E2%80%AE",
    "/antiphon",
    "#x",
]
_METHODS: Final = ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"]


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it goes over the wire; ``kind`` says what was done to it."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes
    kind: str

    def wire(self) -> bytes:
        """Its bytes."""
        lines = [f"{self.method} {self.target} HTTP/1.1", "Host: localhost", f"Content-Length: {len(self.body)}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + self.body


def _nodes(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all nodes of a JSON value."""
    found = [at]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += _nodes(item, (*at, key))
    return found


def _node_replaced(chance: random.Random, body: Any) -> Any:
    body = copy.deepcopy(body)
    at = chance.choice(_nodes(body)[1:])
    place = body
    for key in at[:-1]:
        place = place[key]
    what = chance.random()
    if what < 0.55:
        place[at[-1]] = copy.deepcopy(chance.choice(_ODD))
    elif what < 0.7:
        del place[at[-1]]
    elif what < 0.8 and isinstance(place, dict):
        place[str(chance.choice(_ODD))] = place.pop(at[-1])
    elif what < 0.9:
        place[at[-1]] = [place[at[-1]]] * chance.choice([1, 2, 200])
    else:
        place[at[-1]] = _DEEP
    return body


def _bytes_damaged(chance: random.Random, data: bytes) -> bytes:
    at, end = sorted((chance.randrange(len(data) + 1), chance.randrange(len(data) + 1)))
    what = chance.randrange(6)
    if what == 0:
        return data[:at]
    if what == 1:
        return data[:at] + data[end:]
    if what == 2:
        return data[:end] + data[at:]
    if what == 3:
        return data[:at] + chance.choice(_TOKENS) + data[at:]
    if what == 4:
        other = json.dumps(chance.choice(VALID)[1]).encode()
        return data[:at] + other[chance.randrange(len(other)) :]
    flipped = bytearray(data)
    for _ in range(chance.choice([1, 1, 3, 30])):
        flipped[chance.randrange(len(flipped))] ^= 1 << chance.randrange(8)
    return bytes(flipped)


def damaged(chance: random.Random, number: int) -> Request:
    """Make one broken request."""
    path, body = chance.choice(VALID)
    body = copy.deepcopy(body)
    kinds = []
    if chance.random() < 0.8:  # so that few are answered from the cache
        body["seed" if path.startswith("/v1") else "model"] = f"n{number}"
    for _ in range(chance.choice([0, 1, 1, 2])):
        if isinstance(body, dict) and body:
            body = _node_replaced(chance, body)
            kinds.append("json")
    data = json.dumps(body, ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass")
    if _DEEP.encode() in data:
        depth = chance.choice([5, 100, 1000, 20_000])
        opening, closing = chance.choice([(b"[", b"]"), (b'{"a":', b"}")])
        data = data.replace(f'"{_DEEP}"'.encode(), opening * depth + b"1" + closing * depth)
    if chance.random() < 0.4 and data:
        data = _bytes_damaged(chance, data)
        kinds.append("bytes")
    headers = [("Content-Type", "application/json")]
    for _ in range(chance.choice([0, 0, 1, 3])):
        headers.append((chance.choice(_NAMES), chance.choice(_VALUES)))
        kinds.append("headers")
    method, target = "POST", path
    if chance.random() < 0.1:
        target = path + chance.choice(_PATHS)
        kinds.append("path")
    if chance.random() < 0.1:
        target += "?" + "".join(chance.choice('ab=&%+;#é\\"<>0') for _ in range(chance.randrange(20)))
        kinds.append("query")
    if chance.random() < 0.05:
        method = chance.choice(_METHODS)
        kinds.append("method")
    return Request(method, target.replace(" ", "+"), headers, data, "+".join(sorted(set(kinds))) or "valid")


@dataclass
class Findings:
    """What came of it. ``faults`` are the requests after which something was not as it must be."""

    requests: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    reuse: Counter[str] = field(default_factory=Counter)
    not_understood: int = 0
    faults: list[str] = field(default_factory=list)


async def _exchange(
    reader: asyncio.StreamReader, out: asyncio.StreamWriter, request: Request
) -> tuple[int, dict[str, str], bytes]:
    out.write(request.wire())
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    status = int(head.split(" ", 2)[1])
    pairs = (line.split(":", 1) for line in head.split("\r\n")[1:] if ":" in line)
    names = {name.lower(): value.strip() for name, value in pairs}
    body = b""
    if request.method == "HEAD" or status in (204, 304):
        pass
    elif names.get("transfer-encoding") == "chunked":
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            body += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readexactly(2)
    else:
        body = await reader.readexactly(int(names.get("content-length", 0)))
    return status, names, body


def _judge(request: Request, status: int, names: dict[str, str], body: bytes) -> str:
    """What is wrong with a reply; empty where nothing is."""
    ours = "x-body-sha256" not in names
    if status >= 500 and ours and not (status == 504 and b"only_if_cached" in body) and status != 501:
        return f"a {status} of the proxy's own"
    reason = names.get("x-antiphon-reason", "")
    if reason == "internal":
        return "the proxy tripped"
    if reason.startswith("not-understood:") and names.get("x-body-sha256") != hashlib.sha256(request.body).hexdigest():
        return "what was not understood did not arrive as it was"
    return ""


async def fuzz(port: int, number: int, *, seed: int, clients: int = 16, told: Callable[[int], object] = id) -> Findings:
    """Send ``number`` broken requests to a proxy."""
    findings = Findings()
    chance = random.Random(seed)
    left = iter(range(number))

    async def client() -> None:
        out: asyncio.StreamWriter | None = None
        for at in left:
            request = damaged(chance, at)
            try:
                async with asyncio.timeout(60):
                    if out is None:
                        reader, out = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
                    status, names, body = await _exchange(reader, out, request)
            except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError) as error:
                findings.faults.append(f"{type(error).__name__} after {request.wire()[:1500]!r}")
                if out is not None:
                    out.transport.abort()
                out = None
                continue
            if names.get("connection") == "close":
                out.transport.abort()
                out = None
            findings.requests += 1
            findings.statuses[status] += 1
            findings.kinds[request.kind] += 1
            findings.reuse[names.get("x-antiphon-reuse", "none")] += 1
            findings.not_understood += names.get("x-antiphon-reason", "").startswith("not-understood")
            if wrong := _judge(request, status, names, body):
                findings.faults.append(f"{wrong}: {body[:200]!r} after {request.wire()[:1500]!r}")
            if findings.requests % 5000 == 0:
                told(findings.requests)
        if out is not None:
            out.transport.abort()

    await asyncio.gather(*(client() for _ in range(clients)))
    return findings


# ---------------------------------------------------------------------------------------------------------- the backend


async def _serve_digests(port: int) -> None:
    """A backend that answers each request with a completion, and in a header with the digest of the body it got."""
    completion = {
        "id": "x", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Eight."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
    }  # fmt: skip
    answer = json.dumps(completion).encode()

    async def serve(reader: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lower = head.lower()
                at = lower.find(b"\r\ncontent-length:")
                body = b""
                if at >= 0:
                    body = await reader.readexactly(int(lower[at + 17 :].split(b"\r\n", 1)[0]))
                elif b"transfer-encoding:" in lower:
                    while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
                        body += await reader.readexactly(size)
                        await reader.readexactly(2)
                    await reader.readexactly(2)
                known = not lower.startswith((b"get /model_info", b"get /get_model_info"))  # it is no SGLang
                sent = b"" if head.startswith(b"HEAD ") else answer
                out.write(
                    b"HTTP/1.1 %s\r\ncontent-type: application/json\r\nx-body-sha256: %s\r\n"
                    b"content-length: %d\r\n\r\n%s"
                    % (
                        b"200 OK" if known else b"404 Not Found",
                        hashlib.sha256(body).hexdigest().encode(),
                        len(answer),
                        sent,
                    )
                )
                await out.drain()
        except (OSError, ValueError, asyncio.IncompleteReadError):
            pass
        finally:
            out.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port, limit=1 << 20)
    await server.serve_forever()


def backend_process(port: int, folder: Path) -> Process:
    """That backend in a process of its own."""
    root = Path(__file__).resolve().parents[1]
    command = [sys.executable, "-m", "eval.fuzz", "--backend", str(port)]
    return Process(command, port, {"PYTHONPATH": str(root)}, folder / "backend.log", root)


async def run(number: int, seed: int) -> Findings:
    """Start backend and proxy, fuzz, stop them."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="antiphon-fuzz-") as made:
        folder, root = Path(made), Path(__file__).parents[1]
        backend, port = backend_process(free_port(), folder), free_port()
        command = [sys.executable, "-m", "proxy.cli", "serve", "--port", str(port)]
        command += ["--upstream", f"http://127.0.0.1:{backend.port}", "--set", "logging.level=warning"]
        environment = {"ANTIPHON_HOME": made, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
        proxy = Process(command, port, environment, folder / "proxy.log", root)
        stand = Stand(folder, backend, [proxy])
        backend.start()
        proxy.start()
        try:
            await stand.ready()

            def told(done: int) -> None:
                sys.stderr.write(f"\r{done} requests, {proxy.memory_mib:.0f} MiB")

            findings = await fuzz(port, number, seed=seed, told=told)
            sys.stderr.write("\n")
            log = proxy.log.read_text("utf-8", "replace")
            if not proxy.alive:
                findings.faults.append(f"the proxy ended:\n{log[-3000:]}")
            # A look-up past its deadline is a miss, and no news on a machine that is busy.
            for trace in re.findall(r"^(?:Traceback .*\n(?: .*\n|\n|The above .*\n)*)+(?:.*\n)", log, re.MULTILINE):
                if not trace.rstrip().endswith(("TimeoutError", "CancelledError")):
                    findings.faults.append(f"a traceback in the log:\n{trace[:4000]}")
        finally:
            proxy.kill()
            backend.kill()
    return findings


def main() -> int:
    """Fuzz, print, write; 1 where something was found."""
    parser = argparse.ArgumentParser(description="Broken requests by the thousand.")
    parser.add_argument("--n", type=int, default=100_000, help="requests (default 100000)")
    parser.add_argument("--seed", type=int, default=1, help="other seeds break other things (default 1)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the findings here too")
    parser.add_argument("--backend", type=int, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.backend:
        asyncio.run(_serve_digests(options.backend))
        return 0
    began, load = time.monotonic(), os.getloadavg()[0]
    findings = asyncio.run(run(options.n, options.seed))
    report = {
        "requests": findings.requests,
        "seed": options.seed,
        "faults": len(findings.faults),
        "not_understood": findings.not_understood,
        "statuses": {str(status): count for status, count in sorted(findings.statuses.items())},
        "reuse": dict(sorted(findings.reuse.items())),
        "kinds": dict(findings.kinds.most_common()),
        "seconds": round(time.monotonic() - began),
        "taken": {"date": time.strftime("%Y-%m-%d"), "cores": os.cpu_count(), "load_before": round(load, 2)},
    }
    sys.stdout.write(json.dumps(report, indent=1) + "\n")
    for fault in findings.faults[:20]:
        sys.stdout.write(f"{fault}\n\n")
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 1 if findings.faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
