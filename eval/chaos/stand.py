"""The processes of one scenario, and a client that notes what became of every request."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

__all__ = ["CHAT", "Got", "Load", "Stand", "free_port", "standing"]

CHAT: Final = "/v1/chat/completions"
_READY_S: Final = 180.0


def free_port() -> int:
    """Return a port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True, slots=True)
class Got:
    """What became of one request; ``status`` 0: no complete reply (``why`` says how it ended)."""

    question: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    at_s: float  # when it was sent, on the clock of `time.monotonic`
    seconds: float
    why: str = ""

    @property
    def reuse(self) -> str:
        """What the proxy says it did."""
        return self.headers.get("x-antiphon-reuse", "")

    @property
    def right(self) -> bool:
        """Whether it is a complete answer to this very question."""
        return self.status == 200 and f"[{self.question}]" in self.text

    @property
    def text(self) -> str:
        """The answer, streamed or not; empty where it cannot be read."""
        try:
            if "event-stream" in self.headers.get("content-type", ""):
                lines = [line[6:] for line in self.body.decode().split("\n") if line.startswith("data: ")]
                if not lines or lines[-1] != "[DONE]":
                    return ""
                chunks = [json.loads(line) for line in lines[:-1]]
                return "".join(c["delta"].get("content") or "" for chunk in chunks for c in chunk["choices"])
            return str(json.loads(self.body)["choices"][0]["message"]["content"])
        except (ValueError, KeyError, IndexError, TypeError):
            return ""


async def ask(
    port: int,
    question: str = "",
    *,
    method: str = "POST",
    path: str = CHAT,
    body: bytes | None = None,
    stream: bool = False,
    patience_s: float = 30.0,
    headers: str = "",
) -> Got:
    """Send one request over a connection of its own. Never raises."""
    began = time.monotonic()
    if body is None:
        asked = {"model": "chaos", "messages": [{"role": "user", "content": question}], "stream": stream}
        body = b"" if method == "GET" else json.dumps(asked).encode()
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}"
    head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    status, names, data, why = 0, {}, b"", ""
    out: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(patience_s):
            reader, out = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
            out.write(head.encode() + body)
            lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            pairs = (line.split(":", 1) for line in lines[1:] if ":" in line)
            names = {name.lower(): value.strip() for name, value in pairs}
            if names.get("transfer-encoding") == "chunked":
                while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
                    data += await reader.readexactly(size)
                    await reader.readexactly(2)
            else:
                data = await reader.readexactly(int(names.get("content-length", 0)))
            status = int(lines[0].split(" ")[1])
    except TimeoutError:
        why = "no reply in time"
    except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        why = type(error).__name__
    finally:
        if out is not None:
            out.transport.abort()
    return Got(question, status, names, data, began, time.monotonic() - began, why)


@dataclass
class Load:
    """Clients that ask one thing after another until they are stopped: half of it new, half of it asked before."""

    ports: list[int]
    clients: int = 8
    pause_s: float = 0.0
    results: list[Got] = field(default_factory=list)
    headers: str = ""  # of the questions that are new
    retries: int = 0  # asks the next port where one gives no answer at all, as a load balancer does
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _stop: bool = False

    async def __aenter__(self) -> Load:
        self._tasks = [asyncio.create_task(self._client(number)) for number in range(self.clients)]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._stop = True
        await asyncio.gather(*self._tasks)

    async def _client(self, number: int) -> None:
        count = 0
        while not self._stop:
            count += 1
            fresh = count % 2 == 1
            question = f"client {number} asks for {'item' if fresh else 'shelf'} {count if fresh else count % 20}"
            for attempt in range(1 + self.retries):
                port = self.ports[(number + attempt) % len(self.ports)]
                got = await ask(port, question, stream=count % 3 == 0, headers=self.headers if fresh else "")
                if got.status:
                    break
            self.results.append(got)
            await asyncio.sleep(self.pause_s or (0.02 if got.status else 0.1))

    def between(self, since: float, until: float) -> list[Got]:
        """Requests sent within a span of the monotonic clock."""
        return [got for got in self.results if since <= got.at_s < until]


class Process:
    """A program in a group of its own, with a port."""

    def __init__(self, command: list[str], port: int, environment: Mapping[str, str], log: Path, cwd: Path) -> None:
        self.command, self.port, self.environment, self.log, self.cwd = command, port, environment, log, cwd
        self.process: subprocess.Popen[bytes] | None = None
        self.limits: Callable[[], None] | None = None  # run in the child before the program

    def start(self) -> None:
        """Start it; `Stand.ready` waits until it serves."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.cwd, start_new_session=True,
                env=os.environ | dict(self.environment), preexec_fn=self.limits,
            )  # fmt: skip

    def kill(self) -> None:
        """``kill -9``."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def stop(self) -> int:
        """SIGTERM; returns the exit status."""
        assert self.process is not None
        self.process.terminate()
        try:
            return self.process.wait(40)
        finally:
            self.kill()

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.process is not None and self.process.poll() is None

    @property
    def memory_mib(self) -> float:
        """Its resident memory."""
        assert self.process is not None
        return float(psutil.Process(self.process.pid).memory_info().rss) / 2**20


@dataclass
class Stand:
    """A backend, one or more proxies before it, and a folder."""

    folder: Path
    backend: Process
    proxies: list[Process]

    @property
    def proxy(self) -> Process:
        """The first proxy."""
        return self.proxies[0]

    async def mode(self, mode: str) -> None:
        """Tell the backend how to behave."""
        got = await ask(self.backend.port, path="/chaos", body=json.dumps({"mode": mode}).encode())
        if got.status != 200:
            raise SystemExit(f"the backend does not listen: {got.why}")

    async def ready(self, proxy: Process | None = None) -> float:
        """Wait until a proxy serves from its cache; returns the seconds it took."""
        proxy = proxy or self.proxy
        began = time.monotonic()
        while True:
            got = await ask(proxy.port, method="GET", path="/antiphon/ready", patience_s=5)
            if got.status == 200 and json.loads(got.body)["status"] == "ready":
                return time.monotonic() - began
            if not proxy.alive or time.monotonic() - began > _READY_S:
                raise SystemExit(f"the proxy did not become ready:\n{proxy.log.read_text('utf-8', 'replace')[-3000:]}")
            await asyncio.sleep(0.05)

    async def admin(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, at: int = 0
    ) -> tuple[int, Any]:
        """Ask the admin surface of a proxy; returns status and JSON."""
        data = b"" if body is None else json.dumps(body).encode()
        got = await ask(self.proxies[at].port, method=method, path=f"/antiphon{path}", body=data)
        try:
            return got.status, json.loads(got.body)
        except ValueError:
            return got.status, None

    async def committed(self, *, active: bool = True) -> set[str]:
        """Ids of the entries that the database shows, all or the active ones."""
        found: set[str] = set()
        after = "&state=active" if active else ""
        while True:
            status, page = await self.admin("GET", f"/entries?limit=500{after}")
            if status != 200:
                raise SystemExit(f"the entries cannot be listed: {status} {page}")
            found |= {row["id"] for row in page["entries"]}
            if page["next"] is None:
                return found
            after = f"{'&state=active' if active else ''}&after={page['next']}"

    async def written(self) -> None:
        """Wait until no proxy has a write under way."""
        for at in range(len(self.proxies)):
            for _ in range(600):
                status, stats = await self.admin("GET", "/stats", at=at)
                if status == 200 and stats["queued_writes"] == 0:
                    break
                await asyncio.sleep(0.05)
            else:
                raise SystemExit("writes do not come to an end")


@contextlib.asynccontextmanager
async def standing(
    *, proxies: int = 1, store: str = "", environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> AsyncIterator[Stand]:
    """Start a backend and proxies, each ready; everything is killed at the end."""
    root = Path(__file__).resolve().parents[2]
    with tempfile.TemporaryDirectory(prefix="antiphon-chaos-") as made:
        home = folder or Path(made)
        settings = {
            "ANTIPHON_HOME": str(home), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root),
            "ANTIPHON_UPSTREAM__READ_TIMEOUT_S": "3", "ANTIPHON_UPSTREAM__CONNECT_TIMEOUT_S": "2",
            "ANTIPHON_UPSTREAM__VERSION_INTERVAL_S": "1", "ANTIPHON_LOGGING__LEVEL": "info",
            **(environment or {}),
        }  # fmt: skip
        port = free_port()
        backend = Process(
            [sys.executable, "-m", "eval.chaos.backend", "--port", str(port)], port, {"PYTHONPATH": str(root)},
            Path(made) / "backend.log", root,
        )  # fmt: skip
        stand = Stand(home, backend, [])
        backend.start()
        url = store or f"sqlite:///{home / 'antiphon.db'}"
        for number in range(proxies):
            mine = free_port()
            command = [sys.executable, "-m", "proxy.cli", "serve", "--port", str(mine), "--store", url]
            command += ["--upstream", f"http://127.0.0.1:{port}"]
            stand.proxies.append(Process(command, mine, settings, Path(made) / f"proxy-{number}.log", root))
        try:
            while (await ask(port, method="GET", path="/health")).status != 200:
                await asyncio.sleep(0.05)
            for proxy in stand.proxies:
                proxy.start()
            for proxy in stand.proxies:
                await stand.ready(proxy)
            yield stand
        finally:
            for process in (*stand.proxies, backend):
                process.kill()
