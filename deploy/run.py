"""Starts SGLang and Antiphon in front of it, waits until both answer, and stops both together: `make run`.

    .venv/bin/python deploy/run.py [--port 8080] [--backend-port 30000] [--upstream http://host:30000]

Whatever goes wrong is said in one line on standard error, and the exit status is then 1; Ctrl-C and SIGTERM end with 0
once everything that was started has ended. Both processes lead a group of their own, so that nothing stays behind.
Standard library only.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import http.client
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / ".cache" / "run"
HOME = ROOT / ".cache" / "home"  # what a trial run remembers, unless ANTIPHON_HOME says otherwise

# Run from ROOT; what stands in braces is filled in.
BACKEND_COMMAND = "deploy/sglang/launch.sh --port {port}"
PROXY_COMMAND = ".venv/bin/antiphon serve --upstream {upstream} --host {host} --port {port}"

# A hang is not expected (an early end is noticed at once); a loaded machine may take minutes.
PATIENCE_S = {"SGLang": 900.0, "Antiphon": 300.0}
PROBE_S = 5.0  # one look at a process that is starting
GRACE_S = 15.0  # from SIGTERM to SIGKILL
PR_SET_PDEATHSIG = 1  # linux/prctl.h


class RunError(Exception):
    """Something a person can mend; the text is one line."""


class StopRequest(BaseException):
    """Ctrl-C or SIGTERM."""


# ----------------------------------------------------------------------------------------------------- processes


@dataclass
class Child:
    """A process that was started here, with its log."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def last_words(self) -> str:
        """The last line of its log that is not empty, shortened."""
        lines = self.log.read_text("utf-8", "replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return last if len(last) <= 160 else last[:160] + "…"

    def check(self) -> None:
        """Raise ``RunError`` if it has ended."""
        status = self.process.poll()
        if status is None:
            return
        how = f"ended with exit status {status}"
        if status < 0:
            how = f"was killed by {signal.Signals(-status).name}"
            if -status == signal.SIGKILL:
                how += " (out of memory?)"
        words = f": {self.last_words()}" if status > 0 and self.last_words() else ""
        raise RunError(f"{self.name} {how}{words}; its log is {self.log}")

    def signal(self, number: signal.Signals) -> None:
        """Signal its whole group: what it started itself must not stay behind."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def group_is_gone(self) -> bool:
        """Whether no process of the group is left (zombies of other parents apart)."""
        self.process.poll()
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return True
        return False


def start(name: str, command: Sequence[str], logs: Path) -> Child:
    """Start a process in a group of its own, output into a fresh log.

    Raises:
        RunError: the program is not there.
    """
    logs.mkdir(parents=True, exist_ok=True)
    path = logs / f"{name.lower()}.log"
    log: IO[bytes]
    with path.open("wb") as log:
        try:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={"ANTIPHON_HOME": str(HOME)} | os.environ,
                start_new_session=True,
                preexec_fn=_end_with_parent(os.getpid()),
            )
        except OSError as error:
            raise RunError(f"{name} cannot be started: {error.strerror}: {command[0]}") from None
    return Child(name, process, path)


def _end_with_parent(parent: int) -> Callable[[], None] | None:
    """On Linux, has the kernel send SIGTERM when this supervisor dies, even by SIGKILL."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl

    def before_exec() -> None:
        prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))
        if os.getppid() != parent:  # it died in between
            os._exit(1)

    return before_exec


def stop(children: Sequence[Child]) -> None:
    """End every child, the last one started first: SIGTERM, and SIGKILL for what is left after a while."""
    for child in reversed(children):
        child.signal(signal.SIGTERM)
        deadline = time.monotonic() + GRACE_S
        while not child.group_is_gone() and time.monotonic() < deadline:
            time.sleep(0.05)
        child.signal(signal.SIGKILL)
        child.process.wait()


# --------------------------------------------------------------------------------------------------------- checks


def check_port(host: str, port: int, variable: str) -> None:
    """Raise ``RunError`` unless the port can be listened on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise RunError(f"port {port} is in use; choose another with {variable}=…") from None
            raise RunError(f"cannot listen on {host}:{port}: {error.strerror} ({variable})") from None


def get(url: str, path: str) -> tuple[int, Any]:
    """Status and JSON body (None where it is not JSON) of a GET; status 0 where nothing answers."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=PROBE_S)
    try:
        connection.request("GET", parts.path.rstrip("/") + path)
        response = connection.getresponse()
        raw = response.read()
    except (OSError, http.client.HTTPException):
        return 0, None
    finally:
        connection.close()
    with suppress(ValueError):
        return response.status, json.loads(raw)
    return response.status, None


def model_of(upstream: str) -> str:
    """The first model that the backend lists; a placeholder where it lists none."""
    status, body = get(upstream, "/v1/models")
    with suppress(LookupError, TypeError):
        if status == 200:
            return str(body["data"][0]["id"])
    return "MODEL"


class Waiting:
    """Says what is being waited for: one line rewritten on a terminal, one line every ten seconds elsewhere."""

    def __init__(self, name: str) -> None:
        self.name, self.start, self.said = name, time.monotonic(), 0.0
        self.terminal = sys.stderr.isatty()

    def tick(self) -> None:
        """To be called often."""
        waited = time.monotonic() - self.start
        if waited - self.said >= (0.5 if self.terminal else 10):
            self.said = waited
            say(f"{self.name} is starting … {waited:.0f} s", end="" if self.terminal else "\n")

    def done(self) -> None:
        """It answers."""
        say(f"{self.name} is ready ({time.monotonic() - self.start:.0f} s)")


def say(text: str, end: str = "\n") -> None:
    """A line about progress, on standard error."""
    sys.stderr.write(("\r\x1b[K" if sys.stderr.isatty() else "") + text + end)
    sys.stderr.flush()


def wait_until_ready(child: Child, children: Sequence[Child], url: str, path: str) -> None:
    """Wait until ``path`` answers 200.

    Raises:
        RunError: a child ended, or it takes longer than it ever should.
    """
    waiting = Waiting(child.name)
    while get(url, path)[0] != 200:
        for one in children:
            one.check()
        if time.monotonic() - waiting.start > PATIENCE_S[child.name]:
            raise RunError(f"{child.name} did not answer within {PATIENCE_S[child.name]:.0f} s; its log is {child.log}")
        waiting.tick()
        time.sleep(0.2)
    waiting.done()


# ------------------------------------------------------------------------------------------------------ the whole


def greeting(base: str, model: str, logs: Path) -> str:
    """What to do now that both answer: a line for the shell and a few for Python, ready to be pasted."""
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    body = json.dumps({"model": model, "temperature": 0, "messages": messages})
    return f"""
Antiphon is ready: {base}   (Ctrl-C stops it; logs are in {logs})

curl -i {base}/chat/completions -H 'Content-Type: application/json' \\
  -d {shlex.quote(body)}

from openai import OpenAI

client = OpenAI(base_url={base!r}, api_key="any")
messages = {messages!r}
reply = client.chat.completions.create(model={model!r}, temperature=0, messages=messages)
print(reply.choices[0].message.content)

Ask twice, or in other words: the second answer comes from the cache (see the response header X-Antiphon-Reuse).
"""


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Run SGLang and Antiphon in front of it.")
    parser.add_argument("--host", default="127.0.0.1", help="address Antiphon listens on")
    parser.add_argument("--port", type=int, default=8080, help="port Antiphon listens on")
    parser.add_argument("--backend-port", type=int, default=30000, help="port SGLang listens on")
    parser.add_argument("--upstream", default="", help="use the backend at this URL instead of starting SGLang")
    parser.add_argument("--logs", type=Path, default=LOGS, help="folder for the output of both")
    parser.add_argument("--backend-command", default=BACKEND_COMMAND, help="how SGLang is started")
    parser.add_argument("--proxy-command", default=PROXY_COMMAND, help="how Antiphon is started")
    return parser.parse_args(argv)


def filled(command: str, **values: str) -> list[str]:
    """A command line split into words, its placeholders replaced."""
    words = shlex.split(command)
    for name, value in values.items():
        words = [word.replace("{" + name + "}", value) for word in words]
    return words


def run(options: argparse.Namespace, children: list[Child]) -> None:
    """Start everything and watch it; returns never.

    Raises:
        RunError: something cannot be started, or ended by itself.
    """
    upstream: str = options.upstream.rstrip("/")
    check_port(options.host, options.port, "PORT")
    if not upstream:
        if options.backend_port == options.port:
            raise RunError(f"PORT and BACKEND_PORT are both {options.port}; choose two")
        check_port("127.0.0.1", options.backend_port, "BACKEND_PORT")
        upstream = f"http://127.0.0.1:{options.backend_port}"
        command = filled(options.backend_command, port=str(options.backend_port))
        backend = start("SGLang", command, options.logs)
        children.append(backend)
        wait_until_ready(backend, children, upstream, "/health")
    elif urlsplit(upstream).scheme not in ("http", "https") or not urlsplit(upstream).hostname:
        raise RunError(f"UPSTREAM={upstream} is no URL; write http://host:30000")
    elif get(upstream, "/v1/models")[0] == 0:
        raise RunError(f"nothing answers at UPSTREAM={upstream}; is the backend running?")

    words = filled(options.proxy_command, upstream=upstream, host=options.host, port=str(options.port))
    proxy = start("Antiphon", words, options.logs)
    children.append(proxy)
    near = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(options.host, options.host)  # noqa: S104 - not bound here
    url = f"http://[{near}]:{options.port}" if ":" in near else f"http://{near}:{options.port}"
    wait_until_ready(proxy, children, url, "/antiphon/ready")
    sys.stdout.write(greeting(f"{url}/v1", model_of(upstream), options.logs))
    sys.stdout.flush()
    while True:
        for child in children:
            child.check()
        time.sleep(0.2)


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; the exit status."""
    options = arguments(argv)
    stopping = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if not stopping.is_set():  # a second Ctrl-C must not interrupt the stopping
            stopping.set()
            raise StopRequest

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_signal)

    children: list[Child] = []
    status = 0
    try:
        run(options, children)
    except StopRequest:
        say("stopping …")
    except RunError as error:
        stopping.set()
        status = 1
        say(f"antiphon: {error}")
    finally:
        stopping.set()
        stop(children)
    return status


if __name__ == "__main__":
    sys.exit(main())
