"""What the proxy costs: ``python -m eval.bench.proxy [--json OUT]``.

Backend, bare route and proxy run in processes of their own; the client is a plain socket. Every figure is a ratio or a
difference against something measured in the same run, in alternating rounds, so that a busy machine weighs on both.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import psutil

from eval.bench.servers import STREAM_PAUSE_S
from eval.provenance import commit

__all__ = ["main"]

_PATH: Final = "/v1/chat/completions"
_THINGS: Final = (
    "a hammock", "a bicycle tyre", "a bread oven", "a garden fence", "a rain barrel", "a kitchen tap", "a wool jumper",
    "a leather belt", "a stone wall", "a wooden floor", "a window frame", "a door hinge", "a bookshelf", "a fish tank",
    "a compost heap", "a tent pole", "a sewing machine", "a coffee grinder", "a lawn mower", "a chimney", "a roof tile",
    "a boat engine", "a piano string", "a guitar neck", "a camera lens", "a telescope mount", "a bird house",
    "a beehive", "a greenhouse", "a water pump",
)  # fmt: skip
# Ways of asking the same thing: the first is stored, the second asked.
_WORDINGS: Final = (
    ("How do I repair {}?", "How can I repair {}?"),
    ("What is the best way to clean {}?", "What's the best way to clean {}?"),
    ("How much does it cost to replace {}?", "How much does replacing {} cost?"),
    ("Which tools do I need to build {}?", "What tools do I need to build {}?"),
)


class Connection:
    """A keep-alive connection that sends prepared requests and reads whole replies."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.first_byte_at = 0.0

    def ask(self, request: bytes) -> bytes:
        """Send a request, return the reply with its head; notes when the first byte of the body came."""
        self.socket.sendall(request)
        data = b""
        self.first_byte_at = 0.0
        while True:
            piece = self.socket.recv(65536)
            if not piece:
                raise ConnectionError("the server closed the connection")
            data += piece
            end = data.find(b"\r\n\r\n")
            if end < 0:
                continue
            if not self.first_byte_at and len(data) > end + 4:
                self.first_byte_at = time.perf_counter()
            if complete(data, end):
                return data


def complete(data: bytes, end: int) -> bool:
    """Whether a reply whose head ends at ``end`` is complete."""
    head = data[:end].lower()
    at = head.find(b"content-length:")
    if at >= 0:
        return len(data) >= end + 4 + int(head[at + 15 :].split(b"\r\n", 1)[0])
    return data.endswith(b"0\r\n\r\n")


def request_for(content: str, *, stream: bool = False, headers: str = "", **fields: object) -> bytes:
    """Return the bytes of one chat request; ``fields`` are added to its body."""
    body = json.dumps(
        {
            "model": "bench",
            "temperature": 0,
            "messages": [
                {"role": "system", "content": "You are a helpful assistant that answers briefly."},
                {"role": "user", "content": content},
            ],
            **({"stream": True} if stream else {}),
            **fields,
        }
    ).encode()
    head = (
        f"POST {_PATH} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer bench\r\naccept: application/json\r\n"
        f"user-agent: bench\r\n{headers}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def timed(connection: Connection, request: bytes) -> float:
    """Return the milliseconds of one exchange."""
    began = time.perf_counter()
    connection.ask(request)
    return (time.perf_counter() - began) * 1000


def first_byte(connection: Connection, request: bytes) -> float:
    """Return the milliseconds from the backend's writing the first event of a stream to its arrival here."""
    reply = connection.ask(request)
    at = reply.index(b'"id"')
    written = int(reply[at + 4 : at + 60].split(b'"')[1])
    return connection.first_byte_at * 1000 - written / 1e6


def throughput(port: int, request: bytes, *, connections: int, seconds: float) -> float:
    """Return requests per second over several connections, each with one request under way."""
    selector = selectors.DefaultSelector()
    for _ in range(connections):
        connection = Connection(port)
        connection.ask(request)
        connection.socket.sendall(request)
        selector.register(connection.socket, selectors.EVENT_READ, bytearray())
    done = 0
    began = time.perf_counter()
    while (now := time.perf_counter()) - began < seconds:
        for key, _ in selector.select(1.0):
            assert isinstance(key.fileobj, socket.socket)
            buffer: bytearray = key.data
            buffer += key.fileobj.recv(65536)
            end = buffer.find(b"\r\n\r\n")
            if end >= 0 and complete(bytes(buffer), end):
                buffer.clear()
                done += 1
                key.fileobj.sendall(request)
    for key in list(selector.get_map().values()):
        assert isinstance(key.fileobj, socket.socket)
        key.fileobj.close()
    return done / (now - began)


def spread(values: list[float]) -> dict[str, float]:
    """Return median, 95th percentile and number of measurements."""
    ordered = sorted(values)
    return {
        "p50": round(statistics.median(ordered), 3),
        "p95": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))], 3),
        "n": len(ordered),
    }


def free_port() -> int:
    """Return a port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def process(
    command: list[str],
    port: int,
    ready: Callable[[int], bool],
    *,
    environment: Mapping[str, str] = MappingProxyType({}),
    patience_s: float = 120,
) -> Iterator[psutil.Process]:
    """Run a server until the block ends; give up where it is not ready after ``patience_s`` seconds."""
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(
            command, stdout=log, stderr=log, env={**os.environ, **environment}, start_new_session=True
        )
        try:
            end = time.monotonic() + patience_s
            while not ready(port):
                if child.poll() is not None or time.monotonic() > end:
                    log.seek(0)
                    raise SystemExit(f"{command} did not start:\n{log.read()[-3000:].decode(errors='replace')}")
                time.sleep(0.1)
            yield psutil.Process(child.pid)
        finally:
            child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(60)
            with contextlib.suppress(ProcessLookupError):  # what it started itself, where it did not end that
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def listens(port: int) -> bool:
    """Whether somebody accepts connections."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def is_ready(port: int) -> bool:
    """Whether the proxy says it is ready."""
    with contextlib.suppress(OSError, ConnectionError):
        return b" 200 " in Connection(port).ask(b"GET /antiphon/ready HTTP/1.1\r\nhost: bench\r\n\r\n")[:20]
    return False


def measure(proxy: int, backend: int, bare: int, *, scale: float, cpu_seconds: Callable[[], float]) -> dict[str, Any]:
    """Run all measurements; ``scale`` multiplies the rounds, ``cpu_seconds`` reads what the proxy has used."""
    rounds = max(2, int(10 * scale))
    through, direct, plain = Connection(proxy), Connection(backend), Connection(bare)
    results: dict[str, Any] = {}

    asked = request_for("What is a mutex?")
    through.ask(asked)
    time.sleep(0.5)
    if b"antiphon; hit" not in through.ask(asked):
        raise SystemExit(f"an exact repeat was no hit: {through.ask(asked)!r}")
    hits: list[float] = []
    bares: list[float] = []
    for _ in range(rounds):
        hits += [timed(through, asked) for _ in range(200)]
        bares += [timed(plain, asked) for _ in range(200)]
    rates = [
        (throughput(proxy, asked, connections=8, seconds=1.0), throughput(bare, asked, connections=8, seconds=1.0))
        for _ in range(max(2, rounds // 2))
    ]
    hit_rate, bare_rate = (statistics.median(side) for side in zip(*rates, strict=True))
    results["exact_hit"] = {
        "ms": spread(hits),
        "bare_route_ms": spread(bares),
        "requests_per_s": round(hit_rate),
        "bare_route_requests_per_s": round(bare_rate),
        "throughput_ratio": round(statistics.median(a / b for a, b in rates), 3),
    }

    def compare(name: str, one: Callable[[Connection, bytes], float], make: Callable[[str], bytes]) -> None:
        ours: list[float] = []
        theirs: list[float] = []
        before = cpu_seconds()
        for number in range(rounds * 20):
            asked = make(f"{name}: what belongs on shelf {number} of rack {time.time_ns()}?")
            theirs.append(one(direct, asked))
            ours.append(one(through, asked))
        cpu = (cpu_seconds() - before) * 1000 / len(ours)
        added = statistics.median(ours) - statistics.median(theirs)
        results[name] = {
            "ms": spread(ours),
            "direct_ms": spread(theirs),
            "added_p50_ms": round(added, 3),
            "proxy_cpu_ms": round(cpu, 3),
        }

    compare("bypass", timed, lambda text: request_for(text, headers="cache-control: no-store\r\n"))
    # A turn with a grammar is stored and found again as it is, but never looked up by meaning.
    compare("miss", timed, lambda text: request_for(text, regex="[a-z]+"))
    compare("stream_first_byte", first_byte, lambda text: request_for(text, stream=True, regex="[a-z]+"))
    # Looked up by meaning among a few hundred that are much like it: embedding and decision included.
    compare("miss_looked_up_by_meaning", timed, request_for)

    pairs = [(a.format(thing), b.format(thing)) for a, b in _WORDINGS for thing in _THINGS]
    pairs = pairs[: max(20, int(len(pairs) * min(1.0, scale)))]
    for stored, _ in pairs:
        through.ask(request_for(stored))
    time.sleep(2.0 + 0.05 * len(pairs))  # replies and turns are embedded in the background
    reworded: list[float] = []
    for _, again in pairs:
        began = time.perf_counter()
        answer = through.ask(request_for(again))
        took = (time.perf_counter() - began) * 1000
        if b"antiphon; hit" in answer:
            reworded.append(took)
    results["reworded_hit"] = {
        "asked": len(pairs),
        "hits": len(reworded),
        "ms": spread(reworded) if reworded else None,
    }
    return results


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description="What the proxy costs.")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the figures here too")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the number of rounds (default 1)")
    options = parser.parse_args()
    here = [sys.executable, "-m", "eval.bench.servers"]
    ports = [free_port() for _ in range(3)]
    with contextlib.ExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(process([*here, "backend", "--port", str(ports[0])], ports[0], listens))
        stack.enter_context(process([*here, "bare", "--port", str(ports[1])], ports[1], listens))
        command = [str(Path(sys.executable).with_name("antiphon")), "serve", "--port", str(ports[2])]
        command += ["--upstream", f"http://127.0.0.1:{ports[0]}"]
        environment = {"ANTIPHON_HOME": home, "OMP_NUM_THREADS": "1", "ANTIPHON_LOGGING__LEVEL": "warning"}
        proxy = stack.enter_context(process(command, ports[2], is_ready, environment=environment))
        load = os.getloadavg()[0]

        def cpu_seconds() -> float:
            used = proxy.cpu_times()
            return float(used.user + used.system)

        results = measure(ports[2], ports[0], ports[1], scale=options.scale, cpu_seconds=cpu_seconds)
    results["taken"] = {
        "commit": commit(short=True),
        "date": time.strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "load_before": round(load, 2),
        "stream_pause_ms": STREAM_PAUSE_S * 1000,
    }
    print(json.dumps(results, indent=1))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
