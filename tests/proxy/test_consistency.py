"""What takes an answer out of circulation, as an app and an operator see it over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import proxy.turns
from tests.proxy.support import Got, Proxy, running_proxy, until

Backend = Any  # the scripted backend of the shared cases


@pytest.fixture(scope="module")
def backend(scripted_upstream_module: ModuleType) -> Iterator[Backend]:
    """Start it."""
    upstream = scripted_upstream_module.ScriptedUpstream()
    yield upstream
    upstream.close()


PLAN = "how shall we move the archive"
GO = "then do it that way"


def say(proxy: Proxy, messages: list[dict[str, str]], text: str, **headers: str) -> Got:
    """Go on with a conversation the way an app does."""
    messages.append({"role": "user", "content": text})
    body = {"model": proxy.model, "messages": messages}
    got = proxy.send(body=json.dumps(body).encode(), headers={k.replace("_", "-"): v for k, v in headers.items()})
    proxy.settle()
    messages.append({"role": "assistant", "content": got.text})
    return got


def admin(proxy: Proxy, path: str, body: Any = None, **headers: str) -> Got:
    data = None if body is None else json.dumps(body).encode()
    return proxy.send("GET" if body is None else "POST", f"/antiphon{path}", data, headers)


def states(proxy: Proxy) -> dict[str, str]:
    return {row["question"]: row["state"] for row in admin(proxy, "/entries").json["entries"]}


def test_after_a_correction_nobody_meets_what_was_said_about_the_old_plan(backend: Backend) -> None:
    with running_proxy(backend.url) as proxy:
        first: list[dict[str, str]] = []
        say(proxy, first, PLAN)
        say(proxy, first, GO)
        old = first[-1]["content"]
        second: list[dict[str, str]] = []
        assert say(proxy, second, PLAN).reuse == "answer"
        corrected = say(proxy, second, "no, I meant by rail")
        assert (corrected.reuse, corrected.headers["x-antiphon-reason"]) == ("bypass", "correction: denial")
        assert say(proxy, second, GO).reuse != "answer"
        until(lambda: states(proxy).get(GO) is not None)
        rows = admin(proxy, "/entries").json["entries"]
        assert {row["state"] for row in rows if row["question"] == PLAN} == {"suspect"}
        assert {row["state"] for row in rows if row["answer"] == old[:500]} >= {"frozen"}
        # Asked afresh by somebody else, the plan is made anew.
        third: list[dict[str, str]] = []
        assert say(proxy, third, PLAN).reuse != "answer"


def test_a_correction_reaches_an_answer_that_only_the_session_shares(backend: Backend) -> None:
    """Of a turn about the asker's own things the answer is kept for the session; its correction does not say so."""
    with running_proxy(backend.url) as proxy:
        talk: list[dict[str, str]] = []
        entry = say(proxy, talk, "what is the state of my order", X_Antiphon_Session="s").headers["x-antiphon-entry"]
        corrected = say(proxy, talk, "no, that is wrong", X_Antiphon_Session="s")
        assert corrected.headers["x-antiphon-reason"] == "correction: denial"
        until(lambda: admin(proxy, f"/entries/{entry}").json["state"] == "suspect")
        reworded = say(proxy, [], "what is the state of my order please", X_Antiphon_Session="s")
        assert reworded.reuse != "answer"


def test_the_whole_cache_is_emptied_at_once_and_the_log_says_by_whom(backend: Backend) -> None:
    with running_proxy(backend.url) as proxy:
        for question in ("one thing", "another thing"):
            proxy.ask(question)
            assert proxy.ask(question).reuse == "answer"
        assert admin(proxy, "/purge", {"all": True, "dry_run": True}).json == {"purged": 2, "dry_run": True}
        assert proxy.ask("one thing").reuse == "answer"
        done = admin(proxy, "/purge", {"all": True, "reason": "new prices"})
        assert done.json == {"purged": 2, "dry_run": False}
        for question in ("one thing", "another thing"):
            assert proxy.ask(question).reuse == "miss"
            assert proxy.ask(question).reuse == "answer"
        (line,) = admin(proxy, "/audit-log?action=epoch").json["audit"]
        assert line["actor"] == "local caller from 127.0.0.1"
        assert line["target"] == {"epoch": "1", "reason": "new prices"}
        assert admin(proxy, "/stats").json["epoch"] == 1
        assert b"antiphon_epoch 1.0" in admin(proxy, "/metrics").body


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"all": True, "entry": "x"}, "either"),
        ({"all": True, "where": {"model": "m"}}, "either"),
        ({"all": False}, "all can only be true"),
        ({"all": "yes"}, "all can only be true"),
        ({"where": {"model": "m"}, "reason": "why"}, "reason goes with all only"),
        ({"entry": "x", "resaon": "why"}, "did you mean reason?"),
    ],
)
def test_an_ambiguous_purge_empties_nothing(backend: Backend, body: dict[str, Any], word: str) -> None:
    with running_proxy(backend.url) as proxy:
        proxy.ask("one thing")
        refused = admin(proxy, "/purge", body)
        assert refused.status == 400
        assert word in refused.json["error"]["message"]
        assert proxy.ask("one thing").reuse == "answer"


@pytest.mark.parametrize(
    "path",
    ["/audit-log?limit=0", "/audit-log?limit=x", "/audit-log?before=-1", "/audit-log?action=purg", "/audit-log?limt=3"],
)
def test_a_wrong_question_to_the_log_is_refused(backend: Backend, path: str) -> None:
    with running_proxy(backend.url) as proxy:
        assert admin(proxy, path).status == 400
        assert admin(proxy, "/audit-log").json == {"audit": [], "next": None}


def test_feedback_counts_once_for_each_session(backend: Backend) -> None:
    with running_proxy(backend.url) as proxy:
        key = {"Authorization": "Bearer the-app"}
        entry = proxy.ask("rate me", key).headers["x-antiphon-entry"]
        for session in ("a", "a", "b"):
            done = admin(proxy, "/feedback", {"entry": entry, "rating": "up"}, **key, **{"X-Antiphon-Session": session})
            assert done.status == 200
        assert admin(proxy, f"/entries/{entry}").json["thumbs_up"] == 2
        other = admin(proxy, "/feedback", {"entry": entry, "rating": "down"}, Authorization="Bearer somebody-else")
        assert other.status == 404
        assert proxy.ask("rate me", key).reuse == "answer"
        for _ in range(2):
            assert admin(proxy, "/feedback", {"entry": entry, "rating": "down"}, **key).status == 200
        row = admin(proxy, f"/entries/{entry}").json
        assert (row["thumbs_down"], row["state"]) == (1, "retracted")
        assert proxy.ask("rate me", key).reuse == "miss"


def test_a_regeneration_right_after_a_hit_is_a_doubt(backend: Backend) -> None:
    with running_proxy(backend.url) as proxy:
        entry = proxy.ask("doubt me").headers["x-antiphon-entry"]
        assert proxy.ask("doubt me", {"X-Antiphon-Session": "s"}).reuse == "answer"
        again = proxy.ask("doubt me", {"X-Antiphon-Session": "s"})
        assert again.headers["x-antiphon-reason"] == "regenerate"
        until(lambda: admin(proxy, f"/entries/{entry}").json.get("doubts") == 1)


class Days:
    """The clock of the proxy, as far as it asks what day it is."""

    now = datetime(2026, 11, 28, 23, 30, tzinfo=UTC)

    @classmethod
    def of(cls, zone: Any) -> Any:
        class Moved(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
                return Days.now.astimezone(tz or zone)

        return Moved


@pytest.mark.parametrize(("zone", "same"), [("UTC", True), ("Asia/Shanghai", False)])
def test_what_yesterday_means_is_read_in_the_operators_time_zone(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, zone: str, same: bool
) -> None:
    """From 15:50 to 16:10 UTC it is one day in London, and two in Shanghai."""
    monkeypatch.setattr(proxy.turns, "datetime", Days.of(ZoneInfo(zone)))
    question = "I bought it yesterday, can I return it?"
    with running_proxy(backend.url, admission={"time_zone": zone}) as running:
        Days.now = datetime(2026, 11, 28, 15, 50, tzinfo=UTC)
        assert running.ask(question).reuse == "miss"
        assert running.ask(question).reuse == "answer"
        assert running.ask("How do I return it?").reuse != "answer"
        Days.now += timedelta(minutes=20)
        assert (running.ask(question).reuse == "answer") == same
        assert running.ask("How do I return it?").reuse == "answer"
        Days.now += timedelta(days=7)
        assert running.ask(question).reuse != "answer"
        assert running.ask("How do I return it?").reuse == "answer"


def test_while_look_ups_pause_turns_are_forwarded_at_once_and_memory_still_serves(backend: Backend) -> None:
    with running_proxy(backend.url) as running:
        assert running.ask("in memory").reuse == "miss"
        cache = running.app.state.cache
        for _ in range(5):
            cache._readers.breaker.failed()
        got = running.ask("something new")
        assert (got.status, got.reuse) == (200, "bypass")
        assert got.headers["x-antiphon-reason"].startswith("breaker")
        assert "fwd=bypass" in got.headers["cache-status"]
        assert running.ask("in memory").reuse == "answer"
        assert running.ask("something else", {"Cache-Control": "only-if-cached"}).status == 504
        assert admin(running, "/stats").json["breakers"]["read"] == "open"
        metrics = admin(running, "/metrics").body
        assert b'antiphon_breaker_open{part="read"} 1.0' in metrics
        assert b'antiphon_reasons_total{reason="breaker",reuse="bypass"} 1.0' in metrics
