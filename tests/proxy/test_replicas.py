"""Real proxies, as processes, on one PostgreSQL database."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.conftest import Serve
from tests.processes import Running

pytestmark = pytest.mark.slow

LIMIT_S = 1.0  # store.changes_limit_ms, by default
# A busy machine is no reason for a miss here.
PATIENT = {"ANTIPHON_STORE__LOOKUP_DEADLINE_MS": "5000", "ANTIPHON_STORE__EMBED_DEADLINE_MS": "20000"}
PATIENT |= {"ANTIPHON_STORE__DECIDE_DEADLINE_MS": "20000"}
CAPITAL = "What is the capital of Portugal?"
Reply = tuple[str, str, str]  # reuse, entry, answer


def ask(proxy: Running, *texts: str, session: str | None = None, stream: bool = False, timeout: float = 120) -> Reply:
    """Send a chat turn; returns how it was reused, its entry and the answer."""
    messages = [{"role": ("user", "assistant")[nth % 2], "content": text} for nth, text in enumerate(texts)]
    headers = {"Authorization": "Bearer key"} | ({"X-Antiphon-Session": session} if session else {})
    body = {"model": "m", "messages": messages, "stream": stream}
    reply = httpx.post(f"{proxy.url}/v1/chat/completions", json=body, headers=headers, timeout=timeout)
    assert reply.status_code == 200, reply.text
    text = reply.text if stream else reply.json()["choices"][0]["message"]["content"]
    return reply.headers["x-antiphon-reuse"], reply.headers.get("x-antiphon-entry", ""), text


def admin(proxy: Running, path: str, body: dict[str, Any]) -> dict[str, Any]:
    reply = httpx.post(f"{proxy.url}/antiphon/{path}", json=body, timeout=60)
    assert reply.status_code == 200, reply.text
    said: dict[str, Any] = reply.json()
    return said


def served(proxy: Running, *texts: str, entry: str = "") -> Reply:
    """Ask until the answer comes from the cache: what was recorded is committed a moment later."""
    for _ in range(200):
        reply = ask(proxy, *texts)
        if reply[0] == "answer" and entry in ("", reply[1]):
            return reply
        time.sleep(0.05)
    raise AssertionError("never served from the cache")


@pytest.fixture
def pair(serve: Serve, scripted_upstream: Any, postgres_url: str) -> tuple[Running, Running]:
    one, other = (serve(scripted_upstream.url, store=postgres_url, env=PATIENT) for _ in range(2))
    return one, other


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


def test_what_one_stored_the_next_request_to_the_other_gets(
    pair: tuple[Running, Running], scripted_upstream: Any
) -> None:
    one, other = pair
    reuse, entry, answer = ask(one, CAPITAL)
    assert reuse == "miss"
    assert served(other, CAPITAL) == ("answer", entry, answer)
    assert served(one, CAPITAL) == ("answer", entry, answer)
    assert ask(other, "What's the capital of Portugal?")[2] == answer  # in other words
    assert len([call for call in scripted_upstream.calls if call.path == "/v1/chat/completions"]) == 1


@pytest.mark.parametrize("how", ["entry", "where", "feedback"])
def test_no_proxy_serves_what_another_took_out_of_circulation(pair: tuple[Running, Running], how: str) -> None:
    one, other = pair
    _, entry, _ = ask(one, CAPITAL)
    for proxy in pair:
        served(proxy, CAPITAL, entry=entry)
        served(proxy, CAPITAL, entry=entry)
    gone = threading.Event()
    late: list[Reply] = []
    seen: list[bool] = []

    def hammer() -> None:
        """Ask the other proxy without a pause: what begins a second after the answer was taken out must not get it."""
        while True:
            begun_late = gone.is_set()
            reply = ask(other, CAPITAL)
            seen.append(reply[1] == entry)
            if begun_late:
                if reply[1] == entry:
                    late.append(reply)
                return

    thread = threading.Thread(target=hammer)
    thread.start()
    while not seen:  # it was served before anything was taken out
        time.sleep(0.005)
    if how == "entry":
        assert admin(one, "purge", {"entry": entry})["purged"] == 1
    elif how == "where":
        assert admin(one, "purge", {"where": {"model": "m"}, "dry_run": False})["purged"] >= 1
    else:
        admin(one, "feedback", {"entry": entry, "rating": "down"})
    time.sleep(LIMIT_S)
    gone.set()
    thread.join(60)
    assert seen[0]
    assert late == []
    assert ask(one, CAPITAL)[1] != entry


def test_a_correction_at_one_reaches_everybody(pair: tuple[Running, Running]) -> None:
    one, other = pair
    _, entry, answer = ask(one, CAPITAL)
    served(other, CAPITAL, entry=entry)
    assert ask(one, CAPITAL, answer, "No, that is wrong.")[0] != "answer"
    time.sleep(LIMIT_S)
    assert ask(other, CAPITAL)[1] != entry


def test_the_same_turn_at_both_at_once_costs_one_call(
    pair: tuple[Running, Running], scripted_upstream: Any, pool: ThreadPoolExecutor
) -> None:
    scripted_upstream.play({"delay_ms": 1500})
    replies = list(pool.map(lambda nth: ask(pair[nth % 2], CAPITAL, stream=nth % 4 > 1), range(8)))
    calls = [call for call in scripted_upstream.calls if call.path == "/v1/chat/completions"]
    assert len(calls) == 1
    assert len({entry for _, entry, _ in replies}) == 1
    assert sorted({reuse for reuse, _, _ in replies}) == ["answer", "miss"]


def waits_for_a_call(upstream: Any, count: int) -> None:
    for _ in range(1200):
        if len([call for call in upstream.calls if call.path == "/v1/chat/completions"]) >= count:
            return
        time.sleep(0.05)
    raise AssertionError("the backend was not called")


@pytest.mark.parametrize("fate", [signal.SIGKILL, signal.SIGSTOP])
def test_a_proxy_that_dies_or_hangs_while_it_answers_holds_up_no_other(
    pair: tuple[Running, Running], scripted_upstream: Any, pool: ThreadPoolExecutor, fate: signal.Signals
) -> None:
    one, other = pair
    scripted_upstream.play({"delay_ms": 3_000})
    lost: Future[Reply] = pool.submit(ask, one, CAPITAL, timeout=2)
    waits_for_a_call(scripted_upstream, 1)
    os.killpg(one.process.pid, fate)
    try:
        scripted_upstream.play({})
        reuse, _, _ = ask(other, CAPITAL)
        assert reuse == "miss"
        assert len([call for call in scripted_upstream.calls if call.path == "/v1/chat/completions"]) == 2
        with pytest.raises(httpx.HTTPError):
            lost.result(30)
        assert served(other, CAPITAL)[0] == "answer"
    finally:
        if fate is signal.SIGSTOP:
            os.killpg(one.process.pid, signal.SIGCONT)


def test_a_database_that_goes_away_breaks_no_request_and_is_used_again_when_it_is_back(
    serve: Serve, scripted_upstream: Any
) -> None:
    from tests.postgres import server

    scripted_upstream.play({"content": "The same as ever."})  # answers that keep changing are not served for long
    with server() as own, own.database() as url:
        proxy = serve(scripted_upstream.url, store=url, env=PATIENT)
        _, entry, _ = ask(proxy, CAPITAL)
        served(proxy, CAPITAL, entry=entry)
        own.kill()
        time.sleep(LIMIT_S + 0.2)
        for number in range(20):
            assert ask(proxy, f"Question {number}: what is it?")[0] == "miss"
        assert ask(proxy, CAPITAL)[0] == "miss"  # somebody else may have retracted it meanwhile
        own.restart()
        assert eventually(lambda: ask(proxy, CAPITAL)[0] == "answer")
        assert eventually(lambda: ask(proxy, "Question 3: what is it?")[0] == "answer")
        status = httpx.get(f"{proxy.url}/antiphon/ready", timeout=30).status_code
        assert status == 200


def eventually(condition: Callable[[], bool]) -> bool:
    for _ in range(300):
        if condition():
            return True
        time.sleep(0.1)
    return False


def test_a_proxy_started_before_its_database_uses_it_once_it_is_there(serve: Serve, scripted_upstream: Any) -> None:
    from tests.postgres import server

    scripted_upstream.play({"content": "The same as ever."})
    with server() as own, own.database() as url:
        own.kill()
        proxy = serve(scripted_upstream.url, store=url, env=PATIENT)
        assert ask(proxy, CAPITAL)[0] != "answer"
        own.restart()
        assert eventually(lambda: ask(proxy, CAPITAL)[0] == "answer")
