"""A log through two live chains: a real proxy, and the scripted backend behind it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from eval.replay.client import Chain, Reply
from eval.replay.live import Conversation, Seen, conversations, walk
from eval.replay.live_command import report_on
from eval.replay.log import in_order, reactions
from eval.traffic import Problems
from fingerprint.traffic import Record, encode_record
from store.agreement import Agreement
from tests.processes import a_free_port
from tests.proxy.support import running_proxy

Backend = Any
# The backend's version is asked for at the start, and a busy machine makes no miss of a hit.
SURE: dict[str, Any] = {
    "upstream": {"version_interval_s": 60},
    "store": dict.fromkeys(("lookup_deadline_ms", "embed_deadline_ms", "decide_deadline_ms"), 20_000),
}


@pytest.fixture
def backend(scripted_upstream_module: ModuleType) -> Iterator[Backend]:
    upstream = scripted_upstream_module.ScriptedUpstream()
    yield upstream
    upstream.close()


def chats(folder: Path) -> list[Conversation]:
    """Three users; the second asks what the first has asked."""
    log = folder / "log.jsonl"
    with log.open("wb") as lines:
        for number, questions in enumerate(
            (("where is the museum shop", "and when does it open"),) * 2 + (("how heavy is an elephant bull",),)
        ):
            messages: list[dict[str, Any]] = []
            for place, question in enumerate(questions):
                at = 1e9 + 10 * number + place
                messages += [
                    {"role": "user", "content": question, "time": at},
                    {"role": "assistant", "content": "Recorded.", "time": at + 0.5},
                ]
            record = Record(messages=messages, session=f"s{number}", model="m", request={"temperature": 0})
            lines.write(encode_record(record))
    turns = in_order([log], problems=Problems(strict=True))
    return conversations(turns, reactions(turns))


def same(one: str, other: str) -> Agreement:
    return Agreement("agree" if one == other else "differ", "")


async def play(
    found: list[Conversation], cached: str, plain: str, done: dict[tuple[str, int], Seen] | None = None,
    stop_after: int | None = None, speed: float | None = None, settle: Callable[[], None] = lambda: None,
) -> list[Seen]:  # fmt: skip
    seen: list[Seen] = []

    def on_seen(one: Seen) -> None:
        seen.append(one)
        settle()  # until it is recorded, however busy the machine is

    one = Chain("cached", cached, key="k", timeout_s=20)
    other = Chain("plain", plain, key="k", timeout_s=20)
    await walk(
        found, one, other, same, seed=0, speed=speed, at_once=1, model=None, done=done or {}, on_seen=on_seen,
        stopped=lambda: stop_after is not None and len(seen) >= stop_after,
    )  # fmt: skip
    await one.close()
    await other.close()
    return seen


def test_each_chain_carries_its_own_conversation_on_and_the_cache_is_seen(backend: Backend, tmp_path: Path) -> None:
    with running_proxy(backend.url, **SURE) as proxy:
        proxy.knows_its_backend()
        seen = asyncio.run(play(chats(tmp_path), proxy.url, backend.url, settle=proxy.settle))
    assert [s.cached.reuse for s in seen] == ["miss", "miss", "answer", "answer", "miss"], [s.cached for s in seen]
    assert {s.plain.reuse for s in seen} == {""}
    assert all(s.cached.ok and s.plain.ok and s.cached.first is not None for s in seen)
    assert seen[2].cached.text == seen[0].cached.text != seen[2].plain.text
    # The second turn of the second user carried what that chain had said.
    forwarded = [c.body["messages"] for c in backend.calls if c.method == "POST" and len(c.body["messages"]) == 3]
    said = {messages[1]["content"] for messages in forwarded}
    assert said == {seen[0].cached.text, seen[0].plain.text, seen[2].plain.text}
    report = report_on(seen, command="antiphon replay", names=["log.jsonl"])
    report.write(html=tmp_path / "r.html", json=tmp_path / "r.json")
    assert "mathdefault" not in (tmp_path / "r.html").read_text()  # a browser shows no TeX
    document = json.loads((tmp_path / "r.json").read_text())
    rows = document["sections"]["tokens"]["tables"]["tokens"]["rows"]
    assert rows[0]["prefilled"] + rows[0]["generated"] < rows[1]["prefilled"] + rows[1]["generated"]
    assert document["sections"]["answers"]["figures"]["hit_rate"]["value"] == pytest.approx(0.4)


def test_an_interrupted_live_replay_goes_on_with_the_answers_it_had(backend: Backend, tmp_path: Path) -> None:
    found = chats(tmp_path)
    with running_proxy(backend.url, **SURE) as proxy:
        proxy.knows_its_backend()
        first = asyncio.run(play(found, proxy.url, backend.url, stop_after=1, settle=proxy.settle))
        kept = [msgspec.json.decode(msgspec.json.encode(s), type=Seen) for s in first]
        known = {(s.conversation, s.turn): s for s in kept}
        rest = asyncio.run(play(found, proxy.url, backend.url, done=known, settle=proxy.settle))
    assert len(first) == 1 and len(first) + len(rest) == 5
    assert [s.cached.reuse for s in rest] == ["miss", "answer", "answer", "miss"], [s.cached for s in [*first, *rest]]


def test_recorded_pauses_are_kept_at_the_speed_asked_for(backend: Backend, tmp_path: Path) -> None:
    began = time.monotonic()
    asyncio.run(play(chats(tmp_path), backend.url, backend.url, speed=20.0))  # the last begins after 20 s
    assert time.monotonic() - began >= 1.0


def test_a_chain_that_fails_is_told_and_does_not_stop_the_rest(backend: Backend, tmp_path: Path) -> None:
    nobody = f"http://127.0.0.1:{a_free_port()}"
    seen = asyncio.run(play(chats(tmp_path), nobody, backend.url))
    assert len(seen) == 5
    assert {s.cached.error for s in seen} == {"ConnectError"} and all(s.plain.ok and s.verdict is None for s in seen)
    backend.play({"status": 500, "body": {"error": "down"}})
    assert {s.plain.error for s in asyncio.run(play(chats(tmp_path), nobody, backend.url))} == {"status 500"}
    backend.play({"end_after": 1})
    assert {s.plain.error for s in asyncio.run(play(chats(tmp_path), nobody, backend.url))} == {"cut off"}
    report_on(seen, command="c", names=["l"]).write(html=tmp_path / "r.html", json=tmp_path / "r.json")


@pytest.mark.slow
def test_the_command_replays_through_both_chains_and_knows_when_it_is_done(backend: Backend, tmp_path: Path) -> None:
    chats(tmp_path)
    with running_proxy(backend.url, **SURE) as proxy:
        proxy.knows_its_backend()
        command = [str(Path(sys.executable).with_name("antiphon")), "replay", str(tmp_path / "log.jsonl")]
        command += ["--cached", proxy.url, "--plain", backend.url, "--at-once", "1", "--api-key", "sk-not-to-be-seen"]
        command += [
            "--work",
            str(tmp_path / "work"),
            "--json",
            str(tmp_path / "o.json"),
            "--html",
            str(tmp_path / "o.html"),
        ]
        for _ in range(2):  # the second time everything is there already
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, done.stdout + done.stderr
            document = json.loads((tmp_path / "o.json").read_text())
            assert document["complete"] and document["sections"]["answers"]["figures"]["hit_rate"]["n"] == 5
            assert sum(call.method == "POST" for call in backend.calls) == 8  # two of ten came from the cache
    assert "not-to-be-seen" not in (tmp_path / "o.html").read_text() + (tmp_path / "o.json").read_text()
    half = subprocess.run([*command[:3], "--cached", backend.url], capture_output=True, text=True, timeout=300)
    assert half.returncode == 2 and "--plain" in half.stderr


def test_nothing_asked_makes_a_report_that_says_so(tmp_path: Path) -> None:
    report_on([], command="c", names=["l"]).write(html=tmp_path / "r.html")
    assert "No turns" in (tmp_path / "r.html").read_text()
    assert not Reply(error="x").ok
