"""The command: what it prints, how it fails, and a whole proxy as a process of its own."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest

from proxy.cli import main
from proxy.cli_output import CommandError
from proxy.cli_serve import bind, is_loopback, url_of
from store.database import Database
from store.settings import StoreSettings

QUESTION = {"model": "m", "temperature": 0, "messages": [{"role": "user", "content": "What is a lighthouse for?"}]}


class Backend(BaseHTTPRequestHandler):
    """A backend as small as can be: one answer, and what SGLang tells of itself."""

    protocol_version = "HTTP/1.1"
    replies: ClassVar[dict[str, Any]] = {
        "/v1/models": {"object": "list", "data": [{"id": "m", "object": "model"}]},
        "/model_info": {"model_path": "org/m", "tokenizer_path": "org/m", "weight_version": "w1"},
        "/server_info": {"enable_cache_report": True, "disable_radix_cache": False},
    }

    def do_GET(self) -> None:
        self.reply(self.replies.get(self.path, {"status": "ok"}))

    def do_POST(self) -> None:
        if json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0)))).get("stream"):
            self.stream()
            return
        message = {"role": "assistant", "content": "It shows ships the way."}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 9, "completion_tokens": 6, "total_tokens": 15}
        self.reply(
            {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
        )

    def stream(self) -> None:
        """Half a second of events."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for number in range(6):
            delta = {"role": "assistant", "content": ""} if number == 0 else {"content": f"piece {number} "}
            choice = {"index": 0, "delta": delta, "finish_reason": "stop" if number == 5 else None}
            chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
            self.wfile.flush()
            time.sleep(0.1)
        self.wfile.write(b"data: [DONE]\n\n")

    def reply(self, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture(scope="module")
def backend() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Backend)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def environment(home: Path, **more: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ANTIPHON")}
    return {**clean, "ANTIPHON_HOME": str(home), "OMP_NUM_THREADS": "1", **more}


@dataclass(frozen=True)
class Done:
    """How the command ended and what it printed."""

    returncode: int
    stdout: str
    stderr: str


def antiphon(home: Path, *arguments: str, given: str = "", **more: str) -> Done:
    """Run the command in this process: the same code as the script, without starting an interpreter each time."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    printed, complained = io.StringIO(), io.StringIO()
    code: Any = 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed), redirect_stderr(complained):
        wanted = environment(home, **more)
        for name in os.environ.keys() - wanted.keys():
            patch.delenv(name)
        for name, value in wanted.items():
            patch.setenv(name, value)
        patch.setattr(sys, "argv", ["antiphon", *arguments])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
    return Done(int(code), printed.getvalue(), complained.getvalue())


def one_line(done: Done, code: int) -> str:
    assert done.returncode == code, (done.stdout, done.stderr)
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("antiphon: ")
    return lines[0].removeprefix("antiphon: ")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# --------------------------------------------------------------------------------------------------- saying no


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["srve"], "No such command 'srve'. Did you mean 'serve'?"),
        (["serve", "--prot", "1"], "No such option: --prot"),
        (["serve", "--port", "many"], "Invalid value for '--port'"),
        (["serve", "--port", "70000"], "server.port (flag --port): input should be less than or equal to 65535"),
        (["serve", "--upstream", "localhost"], "upstream.url (flag --upstream): must be a URL such as"),
        (["serve", "--config", "/no/such.toml"], "there is no configuration file /no/such.toml"),
        (["config", "--set", "server.prot=1"], "--set: unknown setting server.prot; did you mean server.port?"),
        (["config", "--set", "server.port"], "write SECTION.KEY=VALUE"),
        (["purge"], "give either --entry ID, or at least one --where DIMENSION=VALUE, or --all"),
        (["purge", "--all", "--where", "model=m"], "give either --entry ID"),
        (["purge", "--where", "model=m", "--reason", "why"], "--reason goes with --all only"),
        (["purge", "--where", "model"], "write DIMENSION=VALUE"),
        (["explain", "/no/such.json"], "/no/such.json cannot be read"),
        (["eval", "pairs", "/no/such.jsonl"], "there is no file /no/such.jsonl"),
        (["models", "prepare", "minilm"], "no model is called minilm; did you mean minilm-l6-v2?"),
    ],
)
def test_a_wrong_command_line_is_one_clear_line(home: Path, arguments: list[str], said: str) -> None:
    assert said in one_line(antiphon(home, *arguments), 2)


def test_a_body_that_is_no_json_is_said_to_be_none(home: Path) -> None:
    assert "is not JSON" in one_line(antiphon(home, "explain", "-", given="{"), 2)
    assert "must hold a JSON object" in one_line(antiphon(home, "explain", "-", given="[]"), 2)


def test_a_traceback_is_shown_only_on_demand(home: Path) -> None:
    assert "Traceback" not in antiphon(home, "config", "--set", "server.prot=1").stderr
    with pytest.raises(CommandError):
        antiphon(home, "config", "--set", "server.prot=1", "--debug")


def test_a_port_in_use_is_said_before_anything_is_loaded(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = one_line(antiphon(home, "serve", "--port", str(port)), 2)
    assert message.startswith(f"port {port} on 127.0.0.1 is already in use")


@pytest.mark.parametrize(
    ("host", "said"), [("203.0.113.1", "is not an address of this machine"), ("no.invalid", "is not known")]
)
def test_an_address_that_is_not_ours_is_refused(host: str, said: str) -> None:
    with pytest.raises(CommandError, match=said):
        bind(host, 0)


@pytest.mark.parametrize(
    ("host", "local", "url"),
    [
        ("127.0.0.1", True, "http://127.0.0.1:8"),
        ("localhost", True, "http://localhost:8"),
        ("::1", True, "http://[::1]:8"),
        ("0.0.0.0", False, "http://127.0.0.1:8"),
        ("::", False, "http://[::1]:8"),
        ("192.0.2.1", False, "http://192.0.2.1:8"),
        ("cache.example", False, "http://cache.example:8"),
    ],
)
def test_loopback_addresses_are_told_from_others(host: str, local: bool, url: str) -> None:
    assert is_loopback(host) is local
    assert url_of(host, 8) == url


# ------------------------------------------------------------------------------------------------------ settings


def test_help_names_every_command(home: Path) -> None:
    done = antiphon(home, "--help")
    assert antiphon(home).stdout == done.stdout
    assert done.returncode == 0
    for command in ("serve", "config", "doctor", "explain", "entries", "stats", "purge", "models", "eval"):
        assert f"\n  {command} " in done.stdout


def test_config_prints_every_setting_with_its_source_and_no_secret(home: Path) -> None:
    home.mkdir()
    (home / "antiphon.toml").write_text("[server]\nport = 5\n")
    done = antiphon(home, "config", "--json", "--set", "server.backlog=6", ANTIPHON_ADMIN__TOKEN="hidden-token")
    shown = json.loads(done.stdout)
    assert shown["server.port"] == {"value": 5, "source": "file", "from": f"{home}/antiphon.toml"}
    assert shown["server.backlog"]["source"] == "flag"
    assert shown["admin.token"] == {"value": "********", "source": "environment", "from": "ANTIPHON_ADMIN__TOKEN"}
    assert shown["server.host"]["source"] == "default"
    assert "hidden-token" not in done.stdout


def test_config_prints_plain_lines_into_a_pipe(home: Path) -> None:
    lines = antiphon(home, "config").stdout.splitlines()
    assert lines[0] == "setting\tvalue\tsource"
    assert "server.port\t8080\tdefault" in lines
    assert "\x1b" not in "".join(lines)


def test_the_example_configuration_is_toml(home: Path) -> None:
    done = antiphon(home, "config", "--example")
    assert "server" in tomllib.loads(done.stdout)


def test_a_list_on_the_command_line_may_be_json(home: Path) -> None:
    done = antiphon(home, "config", "--json", "--set", 'sharing.volatile_system_parts=["a,b"]')
    assert json.loads(done.stdout)["sharing.volatile_system_parts"]["value"] == ["a,b"]


# ---------------------------------------------------------------------------------------------------------- eval


def test_pairs_are_measured_and_a_file_of_another_kind_is_refused(home: Path, tmp_path: Path) -> None:
    def said(text: str) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": text}]}

    pair = {
        "id": "1", "lang": "en", "category": "paraphrase", "equivalent": True, "source": "test",
        "a": said("What is a lighthouse for?"), "b": said("What is a lighthouse for?"),
    }  # fmt: skip
    file, out = tmp_path / "pairs.jsonl", tmp_path / "out.json"
    file.write_text(json.dumps(pair) + "\n")
    assert antiphon(home, "eval", "pairs", str(file), "--json", str(out)).returncode == 0
    assert json.loads(out.read_text())["files"]["pairs"]["n_equivalent"] == 1
    file.write_text("{}\n")
    assert "not in the pair format" in one_line(antiphon(home, "eval", "pairs", str(file)), 2)
    file.write_text(json.dumps(pair | {"a": said("Why?")["messages"]}) + "\n")
    assert 'a must be {"messages": [...]}' in one_line(antiphon(home, "eval", "pairs", str(file)), 2)


# -------------------------------------------------------------------------------------------------------- doctor


def findings(done: Done) -> dict[str, dict[str, str]]:
    return {finding["check"]: finding for finding in json.loads(done.stdout)}


def test_the_doctor_finds_nothing_wrong_where_nothing_is(home: Path, backend: str) -> None:
    done = antiphon(home, "doctor", "--json", "--upstream", backend, "--port", str(free_port()))
    found = findings(done)
    assert {f"{name}: {f['seen']}" for name, f in found.items() if f["status"] == "problem"} == set()
    assert done.returncode == 0
    assert found["model"]["seen"].startswith("org/m, weights version 'w1'")
    assert found["cache report"]["status"] == "ok"


def test_the_doctor_says_what_to_do_about_each_problem(home: Path) -> None:
    home.mkdir()
    (home / "antiphon.db").write_bytes(b"this is no database" * 100)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = antiphon(home, "doctor", "--json", "--upstream", f"http://127.0.0.1:{free_port()}", "--port", port)
    found = findings(done)
    assert done.returncode == 1
    for check in ("backend", "store"):
        assert found[check]["status"] == "problem"
        assert found[check]["advice"]
    assert "already in use" in found["port"]["seen"]


def test_the_doctor_warns_of_a_closed_admin_surface(home: Path, backend: str) -> None:
    done = antiphon(home, "doctor", "--host", "0.0.0.0", "--upstream", backend, "--port", str(free_port()))
    line = next(line for line in done.stdout.splitlines() if "\tadmin\t" in line)
    assert line.startswith("warning\t")
    assert "ANTIPHON_ADMIN__TOKEN" in line


# --------------------------------------------------------------------------------------------------- a whole proxy


@contextmanager
def serving(home: Path, *arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A proxy in a process of its own, ready."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "proxy.cli", "serve", "--port", str(port), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(home),
    )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                if httpx.get(f"{url}/antiphon/ready", timeout=5).status_code == 200:
                    break
            except httpx.TransportError:
                assert process.poll() is None, process.stdout and process.stdout.read()
            time.sleep(0.1)
        yield url, process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(20)


def ask(url: str) -> httpx.Response:
    return httpx.post(f"{url}/v1/chat/completions", json=QUESTION, headers={"Authorization": "Bearer k"}, timeout=20)


def entries_of(home: Path, *arguments: str) -> list[dict[str, Any]]:
    done = antiphon(home, "entries", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout)["entries"])


def test_the_commands_work_on_a_running_proxy_and_on_its_store_alike(home: Path, backend: str, tmp_path: Path) -> None:
    file = tmp_path / "body.json"
    file.write_text(json.dumps(QUESTION))
    with serving(home, "--upstream", f"{backend}/v1") as (url, process):
        first, second = ask(url), ask(url)
        assert first.json()["choices"] == second.json()["choices"]
        assert second.headers["x-antiphon-reuse"] == "answer"
        entry = second.headers["x-antiphon-entry"]

        assert [row["id"] for row in entries_of(home, "--url", url)] == [entry]
        explained = antiphon(home, "explain", str(file), "--url", url, "--api-key", "k")
        assert explained.stdout.startswith(f"answer: exact (confidence 1.000, entry {entry})")
        stranger = antiphon(home, "explain", str(file), "--url", url, "--api-key", "another")
        assert stranger.stdout.startswith("miss: ")
        assert "--api-key" not in stranger.stdout
        nobody = antiphon(home, "explain", str(file), "--url", url)
        assert nobody.stdout.startswith("miss: ")
        assert "a caller without a credential" in nobody.stdout
        in_use = one_line(antiphon(home, "entries", "--store", str(home / "antiphon.db")), 1)
        assert "\n" not in in_use

        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        output = process.stdout.read() if process.stdout else ""
        assert f"listening on {url}" in output
        assert f"ready: {url}/v1" in output
        assert "Traceback" not in output

    assert oct((home).stat().st_mode)[-3:] == "700"
    store = str(home / "antiphon.db")
    assert [row["id"] for row in entries_of(home, "--store", store)] == [entry]
    stats = antiphon(home, "stats", "--store", store)
    assert stats.returncode == 0, stats.stderr
    assert "exact repeat" in stats.stdout
    assert json.loads(antiphon(home, "stats", "--store", store, "--json").stdout)["entries"] == 1
    offline = antiphon(
        home, "explain", str(file), "--store", store, "--api-key", "k", "--set", f"upstream.url={backend}"
    )
    assert offline.stdout.startswith("answer: exact"), (offline.stdout, offline.stderr)
    dry = antiphon(home, "purge", "--where", "model=m", "--dry-run", "--store", store)
    assert dry.stdout == "1 entry would be purged\n"
    wrong = one_line(antiphon(home, "purge", "--where", "modle=m", "--store", store), 1)
    assert "model" in wrong
    assert antiphon(home, "purge", "--entry", entry, "--store", store).stdout == "1 entry purged\n"
    assert antiphon(home, "purge", "--all", "--dry-run", "--store", store).stdout == "1 entry would be purged\n"
    assert antiphon(home, "purge", "--all", "--reason", "new prices", "--store", store).stdout == "1 entry purged\n"
    log = json.loads(antiphon(home, "audit-log", "--json", "--store", store).stdout)["audit"]
    assert [(line["action"], line["entries"]) for line in log] == [("epoch", 1), ("retract", 1)]
    assert all(line["actor"].startswith("command line") for line in log)
    assert log[0]["target"]["reason"] == "new prices"
    shown = antiphon(home, "audit-log", "--action", "retract", "--store", store).stdout
    assert entry in shown and "epoch" not in shown
    assert "known are purge" in one_line(antiphon(home, "audit-log", "--action", "retrat", "--store", store), 1)
    assert all(row["state"] != "active" for row in entries_of(home, "--store", store))


@pytest.mark.slow
def test_an_interrupt_lets_a_stream_end_and_stores_its_answer(home: Path, backend: str) -> None:
    with serving(home, "--upstream", backend) as (url, process):
        body = {**QUESTION, "stream": True}
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=20) as reply:
            lines = reply.iter_lines()
            first = next(lines)
            process.send_signal(signal.SIGINT)
            events = [first, *lines]
        assert process.wait(30) == 0
    assert [line for line in events if line][-1] == "data: [DONE]"
    assert sum("piece" in line for line in events) == 5
    (entry,) = entries_of(home, "--store", str(home / "antiphon.db"))
    assert entry["answer"] == "piece 1 piece 2 piece 3 piece 4 piece 5 "


def test_a_url_without_a_proxy_is_said_to_have_none(home: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert one_line(antiphon(home, "entries", "--url", url), 1) == f"no Antiphon answers at {url}"


def test_a_store_that_a_proxy_elsewhere_uses_is_asked_for_by_its_url(home: Path, tmp_path: Path) -> None:
    database = Database.open(StoreSettings(url=f"sqlite:///{tmp_path}/used.db"))
    try:
        said = one_line(antiphon(home, "entries", "--store", str(tmp_path / "used.db")), 1)
    finally:
        database.close()
    assert "used by another proxy" in said
    assert "--url" in said
    assert (tmp_path / "used.db.lock").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("arguments", [("entries", "--after", "zzz"), ("purge", "--where", "state=bogus", "--dry-run")])
def test_what_no_entry_can_be_is_refused_by_the_store_itself_too(home: Path, arguments: tuple[str, ...]) -> None:
    assert antiphon(home, "db", "upgrade", "--store", str(home / "new.db")).returncode == 0
    assert one_line(antiphon(home, *arguments, "--store", str(home / "new.db")), 1)


LOOKING = (
    ("stats",), ("entries",), ("entries", "e1"), ("audit-log",), ("explain", "-"), ("purge", "--all", "--dry-run"),
    ("purge", "--all"), ("db", "check"), ("db", "compact"), ("db", "copy", "copy.db"),
)  # fmt: skip


@pytest.mark.parametrize("arguments", LOOKING, ids=" ".join)
def test_a_command_that_makes_no_answers_makes_no_store_either(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    mistyped = tmp_path / "new" / "antiphno.db"
    asked = antiphon(home, *arguments, "--store", str(mistyped), given=json.dumps(QUESTION))
    assert one_line(asked, 2) == f"there is no store at {mistyped}"
    # The same where the settings name it, or nobody does.
    if arguments[0] != "db":
        port = f"server.port={free_port()}"
        asked = antiphon(home, *arguments, "--set", port, given=json.dumps(QUESTION))
        assert one_line(asked, 2) == f"there is no store at {home / 'antiphon.db'}"
    assert list(tmp_path.iterdir()) == []


def test_what_is_at_the_stores_path_and_is_no_store_is_told_and_left_alone(home: Path, tmp_path: Path) -> None:
    folder, empty, others = tmp_path / "folder", tmp_path / "empty.db", tmp_path / "others.db"
    folder.mkdir()
    empty.touch()
    with closing(sqlite3.connect(others)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE notes (text)")
    before = {file: file.read_bytes() for file in (empty, others)}
    for store, why in (
        (folder, "there is no store at {}: that is a folder"),
        (empty, "there is no store at {}: the database holds none of its tables"),
        (others, "store.url names {}, which is another program's database"),
    ):
        assert one_line(antiphon(home, "stats", "--store", str(store)), 2).startswith(why.format(store))
    assert "names no file" in one_line(antiphon(home, "stats", "--store", "sqlite://"), 2)
    assert before == {file: file.read_bytes() for file in (empty, others)}
    assert sorted(tmp_path.iterdir()) == [empty, folder, others]


def test_no_two_commands_have_one_name() -> None:
    from proxy.cli import app

    names = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]
    assert sorted(names) == sorted(set(names))
