"""Real processes for the tests: a port nobody uses, and a program that runs until it is stopped."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

__all__ = ["GRACE_S", "Running", "a_free_port", "running", "status_of"]

GRACE_S = 20


@dataclass(frozen=True, slots=True)
class Running:
    """A program that answers at ``url``; its output goes to ``log``."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def output(self) -> str:
        """Everything it wrote so far."""
        return self.log.read_text("utf-8", "replace")

    def kill(self) -> None:
        """End it as a power cut would: SIGKILL to its whole group."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """SIGTERM, then SIGKILL for whatever is left of its group."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE_S)
        self.kill()


def a_free_port() -> int:
    """A port of the loopback address that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def status_of(url: str, path: str) -> int:
    """Status of a GET, 0 where nothing answers."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


@contextmanager
def running(
    command: Sequence[str], *, port: int, ready: str, log: Path, env: Mapping[str, str], patience_s: float = 300
) -> Iterator[Running]:
    """Start a program in a group of its own, wait until ``ready`` answers 200, stop it at the end.

    Raises:
        AssertionError: it ended, or did not become ready; the text holds the end of its output.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | dict(env),
            start_new_session=True,
        )
    program = Running(f"http://127.0.0.1:{port}", process, log)
    try:
        deadline = time.monotonic() + patience_s
        while status_of(program.url, ready) != 200:
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"{command[0]} did not become ready:\n{program.output()[-4000:]}")
            time.sleep(0.1)
        yield program
    finally:
        program.stop()
