"""`make run`: what a person sees when it works, when something is wrong, and when it is told to stop."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
STAND_IN = shlex.join([sys.executable, str(Path(__file__).with_name("stand_in.py"))]) + " {port}"
DIES_AT_ONCE = shlex.join([sys.executable, "-c", "raise SystemExit('no model here')"])
PATIENCE_S = 30

Starter = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def ports(free_port: Callable[[], int]) -> tuple[int, int]:
    return free_port(), free_port()


@pytest.fixture
def run(ports: tuple[int, int], tmp_path: Path) -> Iterator[Starter]:
    """Starts deploy/run.py with stand-ins; whatever is left of it is ended afterwards."""
    started: list[subprocess.Popen[str]] = []

    def start(*more: str, backend: str = STAND_IN, proxy: str = STAND_IN) -> subprocess.Popen[str]:
        command = [sys.executable, "deploy/run.py", "--port", str(ports[0]), "--backend-port", str(ports[1])]
        command += ["--logs", str(tmp_path), "--backend-command", backend, "--proxy-command", proxy, *more]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
            process.wait(PATIENCE_S)
        for stream in (process.stdout, process.stderr):
            if stream:
                stream.close()


def children_when_ready(process: subprocess.Popen[str]) -> tuple[str, list[psutil.Process]]:
    """What was printed up to the last line of the greeting, and the two processes in the order they were started."""
    assert process.stdout is not None
    printed = ""
    while "Ask twice" not in printed:
        line = process.stdout.readline()
        assert line, f"it ended before it was ready: {process.communicate(timeout=PATIENCE_S)}"
        printed += line
    children = psutil.Process(process.pid).children()
    return printed, sorted(children, key=lambda child: child.create_time())


def complaint(process: subprocess.Popen[str]) -> str:
    """The one line it said about what is wrong."""
    _, errors = process.communicate(timeout=PATIENCE_S)
    lines = [line for line in errors.splitlines() if line.startswith("antiphon: ")]
    assert len(lines) == 1, errors
    assert "Traceback" not in errors
    return lines[0]


def test_prints_the_base_url_a_curl_line_and_an_sdk_snippet_that_name_the_backends_model(
    run: Starter, ports: tuple[int, int]
) -> None:
    printed, _ = children_when_ready(run())
    base = f"http://127.0.0.1:{ports[0]}/v1"
    assert f"Antiphon is ready: {base}" in printed
    assert f"curl -i {base}/chat/completions" in printed
    assert '"model": "stand-in"' in printed
    snippet = printed[printed.index("from openai") : printed.index("Ask twice")]
    compile(snippet, "snippet", "exec")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_both_with_everything_they_started(
    run: Starter, ports: tuple[int, int], tmp_path: Path, number: signal.Signals
) -> None:
    process = run(
        backend=f"{STAND_IN} --helper {tmp_path / 'backend'}",
        proxy=f"{STAND_IN} --helper {tmp_path / 'proxy'}",
    )
    _, children = children_when_ready(process)
    helpers = [psutil.Process(int((tmp_path / name).read_text())) for name in ("backend", "proxy")]
    process.send_signal(number)
    assert process.wait(PATIENCE_S) == 0
    assert psutil.wait_procs([*children, *helpers], PATIENCE_S)[1] == []
    for port in ports:
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's parent-death signal is Linux's own")
def test_even_a_killed_supervisor_leaves_nothing_behind(run: Starter) -> None:
    process = run()
    _, children = children_when_ready(process)
    process.kill()
    assert psutil.wait_procs(children, PATIENCE_S)[1] == []


@pytest.mark.parametrize(("which", "variable"), [(0, "PORT"), (1, "BACKEND_PORT")])
def test_a_port_in_use_is_named_with_the_variable_that_changes_it(
    run: Starter, ports: tuple[int, int], which: int, variable: str
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", ports[which]))
        other.listen()
        process = run()
        assert complaint(process) == f"antiphon: port {ports[which]} is in use; choose another with {variable}=…"
        assert process.returncode == 1


@pytest.mark.parametrize(("which", "name"), [(0, "SGLang"), (1, "Antiphon")])
def test_a_killed_process_is_named_and_the_other_one_stopped(run: Starter, which: int, name: str) -> None:
    process = run()
    _, children = children_when_ready(process)
    children[which].kill()
    assert complaint(process).startswith(f"antiphon: {name} was killed by SIGKILL (out of memory?); its log is ")
    assert process.returncode == 1
    assert psutil.wait_procs(children, PATIENCE_S)[1] == []


@pytest.mark.parametrize(("role", "name"), [("backend", "SGLang"), ("proxy", "Antiphon")])
def test_a_process_that_ends_while_starting_is_quoted(run: Starter, role: str, name: str) -> None:
    process = run(**{role: DIES_AT_ONCE})
    assert complaint(process).startswith(f"antiphon: {name} ended with exit status 1: no model here; its log is ")
    assert process.returncode == 1


def test_a_missing_environment_is_said_in_one_line(run: Starter) -> None:
    process = run(backend=".no-such-environment/bin/python")
    expected = "antiphon: SGLang cannot be started: No such file or directory: .no-such-environment/bin/python"
    assert complaint(process) == expected


def test_an_upstream_that_does_not_answer_is_named(run: Starter, ports: tuple[int, int]) -> None:
    url = f"http://127.0.0.1:{ports[1]}"
    assert complaint(run("--upstream", url)) == f"antiphon: nothing answers at UPSTREAM={url}; is the backend running?"
    assert complaint(run("--upstream", "localhost:30000")).endswith("is no URL; write http://host:30000")


def test_an_existing_upstream_is_used_and_left_running(run: Starter, ports: tuple[int, int]) -> None:
    with subprocess.Popen(shlex.split(STAND_IN.replace("{port}", str(ports[1])))) as upstream:
        try:
            url = f"http://127.0.0.1:{ports[1]}"
            while True:
                with suppress(OSError), urllib.request.urlopen(url) as answer:
                    answer.read()
                    break
            process = run("--upstream", url, backend="must-not-be-started")
            _, children = children_when_ready(process)
            assert len(children) == 1
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 0
            assert upstream.poll() is None
        finally:
            os.kill(upstream.pid, signal.SIGKILL)
