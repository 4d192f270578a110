"""Served answers are checked in the background: real proxy, real store, a backend whose answers the test decides."""

from __future__ import annotations

import itertools
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from store.types import Policy
from tests.proxy.support import (
    DONE,
    STREAM_HEAD,
    Plain,
    Proxy,
    Request,
    by_words,
    completion,
    event,
    reply,
    running_proxy,
    until,
)
from tests.proxy.support import chunked as chunks

STORED = "how do I reset the password of my account"
ASKED = "how do I reset a password of an account"
OTHER = "how do I reset the phone of my account"  # as near, with another fingerprint
BAND = Policy(answer=0.9999, verify=0.3)
FAST: dict[str, Any] = {"enabled": True, "max_per_minute": 60_000.0, "sample_rate": 0.0}


class Backend:
    """Answers every question with the text set for it, by default one that says nothing new."""

    def __init__(self) -> None:
        self.says: dict[str, str] = {}
        self.status: dict[str, str] = {}
        self.bodies: list[dict[str, Any]] = []
        self.plain = Plain(self._answer)

    def _answer(self, connection: socket.socket, request: Request) -> None:
        body = json.loads(request.body)
        self.bodies.append(body | {"authorization": request.header("authorization")})
        question = body["messages"][-1]["content"]
        text = self.says.get(question, "Open the settings.")
        if question in self.status:
            connection.sendall(reply(b"{}", "Content-Type: application/json", status=self.status[question]))
        elif body.get("stream"):
            data = event(text, role="assistant") + event(finish="stop") + DONE
            connection.sendall(STREAM_HEAD + chunks(data) + b"0\r\n\r\n")
        else:
            connection.sendall(reply(completion(text), "Content-Type: application/json"))

    def asked(self, question: str) -> int:
        return sum(body["messages"][-1]["content"] == question for body in self.bodies)


@pytest.fixture
def backend() -> Iterator[Backend]:
    made = Backend()
    yield made
    made.plain.close()


@contextmanager
def proxy_of(backend: Backend, policy: Policy = BAND, **sections: Any) -> Iterator[Proxy]:
    sections["verification"] = FAST | sections.get("verification", {})
    with running_proxy(backend.plain.url, open_with=by_words("sqlite://", policy), **sections) as proxy:
        yield proxy


def checks(proxy: Proxy, source: str, outcome: str) -> float:
    value = proxy.app.metrics.registry.get_sample_value("antiphon_checks_total", {"source": source, "outcome": outcome})
    return value or 0.0


def stats(proxy: Proxy) -> Any:
    return proxy.send("GET", "/antiphon/stats").json


def kinds(proxy: Proxy) -> dict[str, Any]:
    return {one["kind"]: one for one in stats(proxy)["budget"]}


def eventually(condition: Callable[[], bool]) -> None:
    until(condition, 15.0)


def remember(proxy: Proxy) -> None:
    """Store the first question, and wait until it can be found by meaning."""
    assert proxy.ask(STORED).reuse == "miss"
    eventually(lambda: stats(proxy)["indexed"] >= 1)


def test_a_suspect_is_served_checked_and_promoted_by_agreement(backend: Backend) -> None:
    with proxy_of(backend) as proxy:
        remember(proxy)
        got = proxy.ask(ASKED)
        assert (got.reuse, got.headers["x-antiphon-reason"], got.text) == ("answer", "suspect", "Open the settings.")
        eventually(lambda: checks(proxy, "suspect", "agree") == 1)
        assert backend.asked(ASKED) == 1
        assert proxy.ask(ASKED).headers["x-antiphon-reason"] == "suspect"
        eventually(lambda: proxy.ask(ASKED).reuse == "answer" and checks(proxy, "suspect", "agree") >= 2)
        eventually(lambda: stats(proxy)["suspects"] == 0)
        eventually(lambda: proxy.ask(ASKED).headers["x-antiphon-reason"] == "exact")
        asked = backend.asked(ASKED)
        assert asked <= 3  # one may have been under way when it was promoted
        proxy.ask(ASKED)
        time.sleep(0.1)
        assert backend.asked(ASKED) == asked  # verified: not asked again
        assert kinds(proxy)["band"]["observations"] >= 2
        assert kinds(proxy)["band"]["wrong"] == 0


def test_one_disagreement_retracts_a_suspect_and_the_fresh_answer_takes_its_place(backend: Backend) -> None:
    backend.says = {STORED: "It takes 3 days.", ASKED: "It takes 5 days."}
    with proxy_of(backend) as proxy:
        remember(proxy)
        assert proxy.ask(ASKED).text == "It takes 3 days."
        eventually(lambda: checks(proxy, "suspect", "differ") == 1)
        eventually(lambda: proxy.ask(ASKED).text == "It takes 5 days.")
        assert proxy.ask(ASKED).headers["x-antiphon-reason"] == "exact"
        assert kinds(proxy)["band"]["wrong"] == 1
        assert "antiphon_wrong_hit_rate" in proxy.send("GET", "/antiphon/metrics").body.decode()


def test_another_fingerprint_is_no_suspect(backend: Backend) -> None:
    with proxy_of(backend) as proxy:
        remember(proxy)
        assert proxy.ask(OTHER).reuse != "answer"


@pytest.mark.parametrize("verification", [{"enabled": False}, {"serve_suspects": False}])
def test_where_suspects_are_not_served_the_turn_goes_to_the_backend(
    backend: Backend, verification: dict[str, Any]
) -> None:
    with proxy_of(backend, verification=verification) as proxy:
        remember(proxy)
        got = proxy.ask(ASKED)
        assert (got.reuse, got.headers["x-antiphon-reason"]) == ("kv", "not verified yet")


def test_a_miss_with_a_near_candidate_is_evidence_that_costs_no_request(backend: Backend) -> None:
    backend.says = {ASKED: "That takes 5 days and a form."}
    with proxy_of(backend, verification={"serve_suspects": False, "sample_rate": 1.0}) as proxy:
        remember(proxy)
        proxy.ask(ASKED)
        eventually(lambda: checks(proxy, "miss", "differ") == 1)
        assert backend.asked(ASKED) == 1
        assert kinds(proxy)["band"] | {"threshold": 0, "bound": 0, "rate": 0} == {
            "kind": "band", "observations": 1, "wrong": 1, "above": 1, "wrong_above": 1, "rate": 0, "bound": 0,
            "threshold": 0, "decided_by": "calibration",
        }  # fmt: skip


def test_exact_repeats_are_drawn_at_the_configured_rate_and_a_changed_answer_replaces_the_old_one(
    backend: Backend,
) -> None:
    backend.says = {STORED: "It takes 3 days."}
    with proxy_of(backend, verification={"sample_rate": 1.0}) as proxy:
        remember(proxy)
        backend.says = {STORED: "It takes 5 days."}
        assert proxy.ask(STORED).text == "It takes 3 days."
        eventually(lambda: checks(proxy, "hit", "differ") == 1)
        eventually(lambda: proxy.ask(STORED).text == "It takes 5 days.")
        assert kinds(proxy)["exact"]["wrong"] == 1
        entry = proxy.ask(STORED).headers["x-antiphon-entry"]
        eventually(lambda: len(proxy.send("GET", f"/antiphon/entries/{entry}").json.get("history", ())) == 2)
        history = proxy.send("GET", f"/antiphon/entries/{entry}").json["history"]
        assert [(one["verdict"], one["why"], one["state"]) for one in history] == [
            ("first", "", "retracted"),
            ("differ", "numbers", "active"),
        ]


def test_a_check_asks_what_the_client_asked_unstreamed_and_with_the_clients_own_credential(backend: Backend) -> None:
    with proxy_of(backend, verification={"priority": -5}) as proxy:
        remember_as = {"authorization": "Bearer sk-me"}
        assert proxy.ask(STORED, remember_as, temperature=0.5, stream=True).reuse == "miss"
        eventually(lambda: stats(proxy)["indexed"] >= 1)
        assert proxy.ask(ASKED, remember_as, temperature=0.5, stream=True).headers["x-antiphon-reason"] == "suspect"
        eventually(lambda: checks(proxy, "suspect", "agree") == 1)
        asked = backend.bodies[-1]
        assert "stream" not in asked
        assert "stream_options" not in asked
        assert (asked["temperature"], asked["priority"], asked["authorization"]) == (0.5, -5, ["Bearer sk-me"])
        assert "priority" not in backend.bodies[0]


@pytest.mark.parametrize("status", ["500 Oops", "429 Slow down", "200 OK"])
def test_a_check_that_fails_is_no_approval(backend: Backend, status: str) -> None:
    with proxy_of(backend) as proxy:
        remember(proxy)
        backend.status = {ASKED: status}  # also a 200 without an answer in it
        eventually(lambda: proxy.ask(ASKED).reuse == "answer" and checks(proxy, "suspect", "failed") >= 3)
        assert proxy.ask(ASKED).headers["x-antiphon-reason"] == "suspect"
        eventually(lambda: stats(proxy)["suspects"] == 1)
        assert kinds(proxy)["band"]["observations"] == 0


def test_an_unclear_check_is_no_approval_and_gives_the_turn_an_answer_of_its_own(backend: Backend) -> None:
    backend.says = {ASKED: "Open the settings and look there."}
    with proxy_of(backend) as proxy:
        remember(proxy)
        proxy.ask(ASKED)
        eventually(lambda: checks(proxy, "suspect", "unclear") == 1)
        eventually(lambda: proxy.ask(ASKED).text == "Open the settings and look there.")
        assert kinds(proxy)["band"]["observations"] == 0


def test_checks_are_paced_and_what_cannot_wait_is_dropped_and_counted(backend: Backend) -> None:
    slow = {"sample_rate": 1.0, "max_per_minute": 1.0, "queue_size": 1}
    with proxy_of(backend, verification=slow) as proxy:
        for number in range(4):
            proxy.ask(f"question {number}")
        for number in range(4):
            assert proxy.ask(f"question {number}").reuse == "answer"
        eventually(lambda: checks(proxy, "hit", "agree") == 1)
        assert checks(proxy, "hit", "dropped") >= 1
        time.sleep(0.2)
        assert len(backend.bodies) == 5  # one check in the first minute


def test_the_budget_holds_back_what_its_evidence_speaks_against(backend: Backend) -> None:
    backend.says = {f"how do I reset the password of account {n}": f"It takes {n} days." for n in range(3, 10)}
    policy = Policy(answer=0.5, verify=0.3)
    with proxy_of(backend, policy, budget={"wrong_hits": 0.4}) as proxy:
        for number in range(3, 10):
            proxy.ask(f"how do I reset the password of account {number}")
        eventually(lambda: kinds(proxy)["same_place"]["wrong"] >= 3)
        others = itertools.count(33)

        def held() -> bool:
            got = proxy.ask(f"how do I reset the password of account {next(others)}")
            return (got.reuse, got.headers["x-antiphon-reason"]) == ("kv", "held back by the error budget")

        eventually(held)
        report = kinds(proxy)["same_place"]
        assert report["threshold"] is None or report["threshold"] > 0.6
        assert report["decided_by"] in ("closed", "evidence")


class Judge:
    """A judge model that says what it is told to."""

    def __init__(self, says: str) -> None:
        self.says = says
        self.asked: list[dict[str, Any]] = []
        self.plain = Plain(self._answer)

    def _answer(self, connection: socket.socket, request: Request) -> None:
        self.asked.append(json.loads(request.body) | {"authorization": request.header("authorization")})
        connection.sendall(reply(completion(self.says), "Content-Type: application/json"))


@pytest.mark.parametrize(
    ("says", "outcome"),
    [("SAME", "agree"), ("**Different.**", "differ"), ("I cannot tell", "unclear"), ("", "unclear")],
)
def test_a_judge_decides_what_facts_and_similarity_leave_open(backend: Backend, says: str, outcome: str) -> None:
    judge = Judge(says)
    backend.says = {ASKED: "Open the settings and look there."}
    settings = {"judge_url": f"{judge.plain.url}/v1", "judge_model": "referee", "judge_api_key": "sk-judge"}
    with proxy_of(backend, verification=settings) as proxy:
        remember(proxy)
        proxy.ask(ASKED)
        eventually(lambda: checks(proxy, "suspect", outcome) == 1)
    (asked,) = judge.asked
    assert (asked["model"], asked["authorization"]) == ("referee", ["Bearer sk-judge"])
    assert ASKED in asked["messages"][1]["content"]
    judge.plain.close()


def test_the_judge_is_not_asked_where_a_fact_differs(backend: Backend) -> None:
    judge = Judge("SAME")
    backend.says = {STORED: "It takes 3 days.", ASKED: "It takes 5 days."}
    with proxy_of(backend, verification={"judge_url": judge.plain.url}) as proxy:
        remember(proxy)
        proxy.ask(ASKED)
        eventually(lambda: checks(proxy, "suspect", "differ") == 1)
    assert judge.asked == []
    judge.plain.close()


def test_a_hundred_repeats_of_a_suspect_at_once_are_one_check(backend: Backend) -> None:
    with proxy_of(backend, verification={"max_per_minute": 30.0}) as proxy:
        remember(proxy)
        threads = [threading.Thread(target=proxy.ask, args=(ASKED,)) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        eventually(lambda: checks(proxy, "suspect", "agree") == 1)
        assert backend.asked(ASKED) == 1
