"""Capture: what passes is written down, read by the tools, redacted, rotated, and never in anybody's way."""

from __future__ import annotations

import json
import socket
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eval.traffic import LoggedTurn, Problems, read_turns
from proxy.capture import CURRENT, Capture
from proxy.endpoints import ENDPOINTS
from proxy.metrics import Metrics
from proxy.plans import Planner
from proxy.settings import CaptureSettings, Settings
from tests.proxy.support import (
    DONE,
    STREAM_HEAD,
    Plain,
    Request,
    chunked,
    completion,
    event,
    reply,
    running_proxy,
    until,
)


def behave(connection: socket.socket, request: Request) -> None:
    try:
        body = json.loads(request.body)
    except ValueError:
        body = {"model": "broken"}
    if not request.line.startswith("POST"):
        connection.sendall(reply(b"{}", "Content-Type: application/json", status="404 Not Found"))
    elif body.get("model") == "broken":
        connection.sendall(reply(b'{"error": {"message": "no"}}', status="500 Internal Server Error"))
    elif body.get("stream"):
        connection.sendall(
            STREAM_HEAD + chunked(event("In "), event("Italy."), event(finish="stop"), DONE) + b"0\r\n\r\n"
        )
    else:
        connection.sendall(reply(completion("In Italy."), "Content-Type: application/json"))


@pytest.fixture(scope="module")
def backend() -> Iterator[Plain]:
    plain = Plain(behave)
    yield plain
    plain.close()


def logged(folder: Path) -> list[LoggedTurn]:
    files = sorted(folder.glob("*.jsonl"), key=lambda path: (path.name == CURRENT, path.name))
    return list(read_turns(files, problems=Problems(strict=True)))


def capture(folder: Path, **more: Any) -> dict[str, Any]:
    return {"enabled": True, "folder": folder, **more}


def test_what_is_asked_and_answered_is_read_back_by_the_tools(backend: Plain, tmp_path: Path) -> None:
    key = {"Authorization": "Bearer sk-0123456789abcdef01"}
    who = {**key, "X-Antiphon-Session": "session-of-ada"}
    with running_proxy(backend.url, capture=capture(tmp_path / "t")) as proxy:
        before = time.time()
        assert proxy.ask("Where is Rome?", headers=who, stream=True, user="ada", temperature=0.5).reuse == "miss"
        assert proxy.ask("Where is Rome?", headers=who, user="ada", temperature=0.5).reuse == "miss"
        assert proxy.ask("Where is Rome?", headers=key, user="ada", temperature=0.5).reuse == "answer"
        assert proxy.ask("What time is it now?").reuse == "bypass"
        proxy.send(path="/v1/embeddings", body=b"{}")
        until(lambda: proxy.app.metrics.captured._value.get() == 4)
    streamed, first, repeated, bypassed = logged(tmp_path / "t")
    for turn in (first, streamed, repeated):
        assert (turn.turn.message.text, turn.answer, turn.complete) == ("Where is Rome?", "In Italy.", True)
        assert turn.body == {"model": "m", "temperature": 0.5}
        assert turn.time is not None
        assert before - 1 <= turn.time <= time.time()
    assert [t.record.reuse for t in (streamed, first, repeated, bypassed)] == ["miss", "miss", "answer", "bypass"]
    assert repeated.record.entry == first.record.entry
    assert repeated.record.reason == "exact"
    assert (first.record.prompt_tokens, first.record.completion_tokens) == (3, 2)
    assert first.record.seconds is not None
    assert repeated.record.seconds is None, "what a hit took says nothing about the backend"
    assert (bypassed.record.reason or "").startswith("time-sensitive")
    assert bypassed.record.caller != first.record.caller == streamed.record.caller == repeated.record.caller
    assert first.record.session == streamed.record.session is not None
    text = (tmp_path / "t" / CURRENT).read_text("utf-8")
    assert not any(name in text for name in ("sk-0123456789", "session-of-ada", '"ada"'))


def test_an_error_and_a_broken_body_do_not_break_the_log(backend: Plain, tmp_path: Path) -> None:
    with running_proxy(backend.url, capture=capture(tmp_path)) as proxy:
        assert proxy.ask("Where is Rome?", model="broken").status == 500
        proxy.send(body=b"{broken")
        proxy.send(body=b'{"messages": []}')
        until(lambda: proxy.app.metrics.captured._value.get() == 1)
    (turn,) = logged(tmp_path)
    assert (turn.answer, turn.record.failed, turn.storable) == (None, True, False)


def test_personal_data_never_reach_the_disk_unless_wanted(backend: Plain, tmp_path: Path) -> None:
    question = (
        "Send it to ada@example.org, card 4111 1111 1111 1111, or call +49 30 901820. My key is sk-abcdefghijklmnop12"
    )
    for redact in (True, False):
        folder = tmp_path / str(redact)
        with running_proxy(backend.url, capture=capture(folder, redact=redact)) as proxy:
            proxy.ask(question)
            until(lambda: proxy.app.metrics.captured._value.get() == 1)
        text = (folder / CURRENT).read_text("utf-8")
        private = ("ada@example.org", "4111 1111", "901820", "sk-abcdefgh")
        assert any(value in text for value in private) is not redact
        (turn,) = logged(folder)
        assert turn.record.redacted == (("card", "email", "key", "phone") if redact else ())


def test_the_files_belong_to_the_proxys_user_alone(backend: Plain, tmp_path: Path) -> None:
    with running_proxy(backend.url, capture=capture(tmp_path / "new")) as proxy:
        proxy.ask("Where is Rome?")
    folder = tmp_path / "new"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in folder.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_nothing_is_written_unless_wanted(backend: Plain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIPHON_HOME", str(tmp_path / "home"))
    with running_proxy(backend.url) as proxy:
        assert proxy.app.turns.capture is None
        proxy.ask("Where is Rome?")
    assert not (tmp_path / "home" / "traffic").exists()


def test_a_folder_that_cannot_be_written_stops_nobody(backend: Plain, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with running_proxy(backend.url, capture=capture(tmp_path / "file" / "traffic")) as proxy:
        assert proxy.ask("Where is Rome?").text == "In Italy."
        assert proxy.app.metrics.capture_dropped.labels("disk")._value.get() == 1


# ------------------------------------------------------------------------------------- without a server: the writing


def seen_by(capturing: Capture, content: str, answer: bytes, *, session: str = "s") -> None:
    """Let one exchange pass."""
    body = {"model": "m", "messages": [{"role": "user", "content": content}]}
    endpoint = ENDPOINTS["/v1/chat/completions"]
    headers = [(b"x-antiphon-session", session.encode())]
    plan = Planner(Settings()).plan(endpoint, headers, b"", json.dumps(body).encode(), None)
    sent = []

    async def send(message: Any) -> None:
        sent.append(message)

    tapped = capturing.tap(endpoint, {"headers": headers}, plan, send)
    messages = [
        {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]},
        {"type": "http.response.body", "body": answer[:10], "more_body": True},
        {"type": "http.response.body", "body": answer[10:], "more_body": False},
    ]
    for message in messages:
        step = tapped(message)
        with pytest.raises(StopIteration):
            step.send(None)  # type: ignore[attr-defined]
    assert sent == messages, "the client gets what it would have got"


def written_by(capturing: Capture) -> None:
    capturing.close(20)


def test_full_files_are_closed_and_the_oldest_go(tmp_path: Path) -> None:
    capturing = Capture(CaptureSettings.model_validate({"max_file_mib": 0.01, "keep_files": 3}), tmp_path, Metrics())
    capturing.start()
    for number in range(60):
        seen_by(capturing, f"Question {number}? " + "x" * 1000, completion(f"Answer {number}"))
    written_by(capturing)
    files = sorted(tmp_path.glob("*.jsonl"))
    assert len(files) == 3
    assert all(file.stat().st_size <= 0.01 * 2**20 for file in files)
    numbers = [int(turn.turn.message.text.split()[1].rstrip("?")) for turn in logged(tmp_path)]
    assert numbers == list(range(numbers[0], 60)), "what is kept is the newest, in order, without a gap"
    assert len(numbers) > 10


def test_what_a_crash_cut_short_does_not_swallow_the_next_line(tmp_path: Path) -> None:
    (tmp_path / CURRENT).write_bytes(b'{"messages": [{"role": "user", "cont')
    capturing = Capture(CaptureSettings.model_validate({}), tmp_path, Metrics())
    capturing.start()
    seen_by(capturing, "Where is Rome?", completion())
    written_by(capturing)
    problems = Problems()
    assert len(list(read_turns([tmp_path / CURRENT], problems=problems))) == 1
    assert [p.line for p in problems.first] == [1]


def test_values_keep_their_names_over_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        capturing = Capture(CaptureSettings.model_validate({}), tmp_path, Metrics())
        capturing.start()
        seen_by(capturing, "Write to ada@example.org", completion(), session="one")
        written_by(capturing)
    first, second = logged(tmp_path)
    assert first.turn.message.text == second.turn.message.text
    assert first.record.session == second.record.session != "one"


def test_a_sample_keeps_whole_conversations(tmp_path: Path) -> None:
    capturing = Capture(CaptureSettings.model_validate({"sample_rate": 0.4}), tmp_path, Metrics())
    capturing.start()
    for number in range(100):
        for _ in range(2):
            seen_by(capturing, "Where is Rome?", completion(), session=f"s{number}")
    written_by(capturing)
    turns = logged(tmp_path)
    conversations = {turn.conversation for turn in turns}
    assert len(turns) == 2 * len(conversations)
    assert 20 <= len(conversations) <= 60


def test_a_slow_disk_makes_nobody_wait_and_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Metrics()
    capturing = Capture(CaptureSettings.model_validate({}), tmp_path, metrics)
    capturing.start()
    stuck = threading.Event()
    write = capturing._write
    monkeypatch.setattr(capturing, "_write", lambda line: (stuck.wait(30), write(line)))
    began = time.monotonic()
    for _ in range(1_200):
        seen_by(capturing, "Where is Rome?", completion())
    assert time.monotonic() - began < 20
    assert metrics.capture_dropped.labels("busy")._value.get() >= 190
    stuck.set()
    written_by(capturing)
    assert metrics.captured._value.get() >= 1


def test_a_disk_that_fails_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Metrics()
    capturing = Capture(CaptureSettings.model_validate({}), tmp_path, metrics)
    capturing.start()
    write, failures = capturing._write, iter([True, True])

    def failing(line: bytes) -> None:
        if next(failures, False):
            raise OSError(28, "No space left on device")
        write(line)

    monkeypatch.setattr(capturing, "_write", failing)
    for number in range(5):
        seen_by(capturing, f"Question {number}?", completion())
    written_by(capturing)
    assert metrics.capture_dropped.labels("disk")._value.get() == 2
    assert [turn.turn.message.text for turn in logged(tmp_path)] == ["Question 2?", "Question 3?", "Question 4?"]


def test_a_reply_that_is_too_large_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.capture._MOST_REPLY", 1000)
    metrics = Metrics()
    capturing = Capture(CaptureSettings.model_validate({}), tmp_path, metrics)
    capturing.start()
    seen_by(capturing, "Where is Rome?", completion("x" * 2000))
    written_by(capturing)
    assert metrics.capture_dropped.labels("too-large")._value.get() == 1
    assert logged(tmp_path) == []
