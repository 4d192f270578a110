"""Shadow mode: no client ever sees the cache, and what it would have done is known afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from proxy.doctor import CHECKS, Finding, Patient
from proxy.settings import load
from proxy.shadow import ObservationLog, share_of
from store.cache import Cache
from tests.proxy.support import CHAT, Got, Proxy, running_proxy, until

# The backend's version is asked for at the start, and a busy machine makes no miss of a hit.
SURE: dict[str, Any] = {
    "upstream": {"version_interval_s": 60},
    "store": dict.fromkeys(("lookup_deadline_ms", "embed_deadline_ms", "decide_deadline_ms"), 20_000),
}
Backend = Any  # the scripted backend of the shared cases

STREAM = (
    ("where is the museum shop", "and when does it open"),
    ("where is the museum shop please", "and when does it open"),
    ("how heavy is a grown african elephant bull", "and an asian one"),
    ("where is the museum shop", "and when does it open"),
    ("how heavy is a grown african elephant bull please", "and an asian one then"),
    ("thanks", "where is the town hall"),
)


@pytest.fixture
def backend(scripted_upstream_module: ModuleType) -> Iterator[Backend]:
    upstream = scripted_upstream_module.ScriptedUpstream()
    yield upstream
    upstream.close()


def calls(backend: Backend) -> int:
    return sum(call.method == "POST" for call in backend.calls)


def watched(proxy: Proxy, got: Got) -> Got:
    """Wait until the turn is observed and what it left in the store can be found."""
    shadow, cache = proxy.app.turns._shadow, proxy.app.state.cache
    until(lambda: shadow is None or shadow.waiting == 0)
    asyncio.run_coroutine_threadsafe(cache.flush(), cache._tidy.get_loop()).result(20)
    return got


def say(proxy: Proxy, messages: list[dict[str, str]], **fields: Any) -> Got:
    headers = fields.pop("headers", None)
    body = json.dumps({"model": "m", "messages": messages, **fields}).encode()
    got = proxy.send(path=CHAT, body=body, headers=headers)
    proxy.settle()
    return watched(proxy, got)


def play(proxy: Proxy) -> list[str]:
    """The stream, each conversation carried on by its client; what was reused at each turn."""
    reuse = []
    for questions in STREAM:
        messages: list[dict[str, str]] = []
        for question in questions:
            messages.append({"role": "user", "content": question})
            got = say(proxy, messages)
            assert got.status == 200
            reuse.append(got.reuse)
            messages.append({"role": "assistant", "content": got.text})
    return reuse


def observed(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def shadow(file: Path, **more: Any) -> dict[str, Any]:
    return {"mode": "shadow", "observations": str(file), **more}


def test_every_turn_is_answered_by_the_model_and_what_would_have_been_served_is_written_down(
    backend: Backend, tmp_path: Path
) -> None:
    file = tmp_path / "deep" / "shadow.jsonl"
    with running_proxy(backend.url, **SURE, rollout=shadow(file)) as proxy:
        answers = [say(proxy, [{"role": "user", "content": q}]) for q in ("where is the museum shop",) * 2]
        answers.append(say(proxy, [{"role": "user", "content": "where is the museum shop please"}], stream=True))
        assert calls(backend) == 3
        assert len({got.text for got in answers}) == 3
        assert [got.reuse for got in answers] == ["miss"] * 3
        assert {got.headers["x-antiphon-reason"] for got in answers} == {"shadow"}
        assert not any("x-antiphon-entry" in got.headers for got in answers)
        rows = observed(file)
        assert [(row["level"], row.get("exact", False)) for row in rows] == [
            ("miss", False), ("answer", True), ("answer", False)
        ]  # fmt: skip
        assert rows[1]["answer"] == answers[1].text and rows[1]["stored_answer"] == answers[0].text
        assert rows[1]["verdict"] in ("differ", "unclear")
        assert b'antiphon_shadow_turns_total{reuse="answer"' in proxy.app.metrics.text()
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("answer", ["The same thing every time.", None])
def test_the_shadow_estimate_is_the_live_rate_on_the_same_stream(
    backend: Backend, tmp_path: Path, answer: str | None
) -> None:
    backend.play({"content": answer} if answer else {})
    with running_proxy(backend.url, **SURE) as proxy:
        live = play(proxy)
    backend.calls.clear()
    file = tmp_path / "shadow.jsonl"
    with running_proxy(backend.url, **SURE, rollout=shadow(file)) as proxy:
        assert not {"answer", "kv"} & set(play(proxy))
    assert [row["level"] for row in observed(file)] == live
    forwarded = [
        tuple(m["content"] for m in call.body["messages"] if m["role"] == "user")
        for call in backend.calls
        if call.method == "POST"
    ]
    assert forwarded == [questions[: n + 1] for questions in STREAM for n in range(2)]  # in everybody's own words
    assert live.count("answer") >= 5 and "bypass" in live


def test_a_judge_decides_where_facts_and_similarity_cannot(
    backend: Backend, tmp_path: Path, scripted_upstream_module: ModuleType
) -> None:
    judge = scripted_upstream_module.ScriptedUpstream()
    try:
        judge.play({"content": "SAME"})
        file = tmp_path / "s.jsonl"
        verification = {"judge_url": judge.url, "judge_model": "j"}
        with running_proxy(backend.url, **SURE, rollout=shadow(file), verification=verification) as proxy:
            for answer in (
                "You find it in the hall beside the stairs.",
                "You will find it in the hall beside the stairs there.",
            ):
                backend.play({"content": answer})
                say(proxy, [{"role": "user", "content": "where is the museum shop"}])
        (asked,) = [call for call in judge.calls if call.method == "POST"]
        assert "beside the stairs" in asked.body["messages"][1]["content"]
        assert observed(file)[1]["verdict"] == "agree"
    finally:
        judge.close()


def test_only_if_cached_finds_nothing(backend: Backend, tmp_path: Path) -> None:
    with running_proxy(backend.url, **SURE, rollout=shadow(tmp_path / "s.jsonl")) as proxy:
        say(proxy, [{"role": "user", "content": "where is the museum shop"}])
        again = {"headers": {"Cache-Control": "only-if-cached"}}
        assert say(proxy, [{"role": "user", "content": "where is the museum shop"}], **again).status == 504


def test_a_client_never_waits_for_a_look_up(backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held, search = threading.Event(), Cache.search

    async def stuck(self: Cache, query: Any, **more: Any) -> Any:
        await asyncio.to_thread(held.wait)
        return await search(self, query, **more)

    monkeypatch.setattr(Cache, "search", stuck)
    file = tmp_path / "s.jsonl"
    with running_proxy(backend.url, **SURE, rollout=shadow(file, queue_size=2)) as proxy:
        questions = [f"where is the museum shop number {word}" for word in ("one", "two", "three", "four", "five")]
        for question in questions:  # each answered while the first is still being looked up
            assert proxy.ask(question).status == 200
        assert not file.exists()
        held.set()
        until(lambda: proxy.app.turns._shadow is not None and proxy.app.turns._shadow.waiting == 0)
        assert 2 <= len(observed(file)) <= 3  # one in hand, two in the queue
        assert b'antiphon_shadow_dropped_total{why="queue"}' in proxy.app.metrics.text()


def test_a_broken_look_up_or_an_unwritable_file_is_counted_and_no_clients_business(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(self: Cache, query: Any, **more: Any) -> Any:
        raise RuntimeError("no")

    folder = tmp_path / "a-folder"
    folder.mkdir()
    with running_proxy(backend.url, **SURE, rollout=shadow(folder)) as proxy:
        assert say(proxy, [{"role": "user", "content": "where is the museum shop"}]).status == 200
        assert b'antiphon_shadow_dropped_total{why="file"} 1.0' in proxy.app.metrics.text()
        monkeypatch.setattr(Cache, "search", broken)
        assert say(proxy, [{"role": "user", "content": "where is the town hall"}]).status == 200
        assert b'antiphon_shadow_dropped_total{why="error"} 1.0' in proxy.app.metrics.text()


def test_a_failing_backend_fails_as_it_does_without_a_cache(backend: Backend, tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    with running_proxy(backend.url, **SURE, rollout=shadow(file)) as proxy:
        say(proxy, [{"role": "user", "content": "where is the museum shop"}])
        backend.play({"status": 500, "body": {"error": "down"}})
        got = say(proxy, [{"role": "user", "content": "where is the museum shop"}])
        assert (got.status, got.json) == (500, {"error": "down"})
        backend.play({"finish_reason": "length"})
        say(proxy, [{"role": "user", "content": "where is the museum shop"}])
    rows = observed(file)
    assert [row["level"] for row in rows] == ["miss", "answer", "answer"]  # a hit, with nothing to compare it with
    assert not any("verdict" in row for row in rows)


def test_a_correction_is_carried_out_behind_the_turns_before_it(backend: Backend, tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    with running_proxy(backend.url, **SURE, rollout=shadow(file)) as proxy:
        messages = [{"role": "user", "content": "where is the museum shop"}]
        said = say(proxy, messages).text
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "No, that is wrong."}]
        assert say(proxy, messages).reuse == "bypass"
        say(proxy, [{"role": "user", "content": "where is the museum shop"}])
    assert [row["level"] for row in observed(file)] == ["miss", "bypass", "miss"]


def test_the_canary_serves_a_stable_share_of_sessions(backend: Backend, tmp_path: Path) -> None:
    with running_proxy(backend.url, **SURE, rollout=shadow(tmp_path / "s.jsonl", canary_percent=40)) as proxy:
        say(proxy, [{"role": "user", "content": "where is the museum shop"}], headers={"X-Antiphon-Session": "first"})
        served = {}
        for name in [f"session {n}" for n in range(30)]:
            got = say(
                proxy, [{"role": "user", "content": "where is the museum shop"}], headers={"X-Antiphon-Session": name}
            )
            served[name] = got.reuse
        assert set(served.values()) == {"answer", "miss"}
        for name, reuse in served.items():  # once more, with another question of the same sessions
            body = [{"role": "user", "content": f"where is the museum shop please {name.split()[1]}"}]
            got = say(proxy, body, headers={"X-Antiphon-Session": name})
            assert reuse == "answer" or got.reuse == "miss"


@pytest.mark.parametrize(
    ("settings", "there", "absent"),
    [
        ({}, "[email", "ann@example.com"),
        ({}, "against", "4111"),
        ({"redact": False}, "ann@example.com", "[email"),
        ({"keep_texts": False}, "verdict", "museum"),
    ],
)
def test_observations_hold_no_more_than_was_allowed(
    backend: Backend, tmp_path: Path, settings: dict[str, Any], there: str, absent: str
) -> None:
    file = tmp_path / "s.jsonl"
    with running_proxy(backend.url, **SURE, rollout=shadow(file, **settings)) as proxy:
        for question, paid in (("where is the museum of ann@example.com", "4111 1111 1111 1111"),
                               ("where is the museum of ann@example.com please", "4539 5787 6362 1486")):  # fmt: skip
            backend.play({"content": f"Write to ann@example.com about the museum, paid by {paid}."})
            say(proxy, [{"role": "user", "content": question}])
    text = file.read_text()
    assert there in text and absent not in text


def test_the_doctor_says_where_observations_go_or_that_they_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTIPHON_HOME", str(tmp_path))

    def found(**flags: Any) -> list[Finding]:
        return list(CHECKS["shadow mode"](Patient(load(flags=flags), httpx.Client())))

    assert found() == []
    (fine,) = found(**{"rollout.mode": "shadow"})
    assert fine.status == "ok" and str(tmp_path / "shadow.jsonl") in fine.seen
    (bad,) = found(**{"rollout.mode": "shadow", "rollout.observations": str(tmp_path)})
    assert bad.status == "problem"


def test_shares_are_even_and_always_the_same() -> None:
    shares = [share_of(f"session {n}") for n in range(4000)]
    assert shares == [share_of(f"session {n}") for n in range(4000)]
    assert abs(sum(s < 0.1 for s in shares) / 4000 - 0.1) < 0.02


def test_a_full_file_is_set_aside(tmp_path: Path) -> None:
    log = ObservationLog(tmp_path / "s.jsonl", 100)
    for number in range(10):
        log.write(b"%030d\n" % number)
    log.close()
    assert (tmp_path / "s.jsonl").read_bytes().endswith(b"9\n")
    assert {f.name for f in tmp_path.iterdir()} == {"s.jsonl", "s.jsonl.1"}
    assert all(f.stat().st_size <= 100 for f in tmp_path.iterdir())


def test_a_new_folder_for_observations_is_for_its_owner_only(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        log = ObservationLog(tmp_path / "new" / "s.jsonl", 100)
        log.write(b"1\n")
        log.close()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
