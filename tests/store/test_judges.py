"""Decisions of other processes are those of this one."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import BrokenExecutor

import psutil
import pytest

from fingerprint.conversation import Message, Turn
from store.cache import Cache
from store.decide import decide
from store.judges import Judges, guards
from store.settings import StoreSettings
from store.types import Candidate, Policy, ReuseConfidence
from tests.store.support import Clock, NearEnough, WordEmbedder, ask, say

POLICY = Policy(answer=0.8, verify=0.5)


def near_enough() -> ReuseConfidence:
    return NearEnough()


def nothing() -> ReuseConfidence:
    raise RuntimeError("no model here")


def turn(text: str) -> Turn:
    return Turn((), (), Message("user", text))


def candidate(text: str, similarity: float) -> Candidate:
    return Candidate(text, turn(text), similarity, 1.0, same_place=True)


def test_another_process_decides_as_this_one_does() -> None:
    query = turn("what does grep -v do")
    near = [candidate("what does grep -V do", 0.99), candidate("what does grep -v do?", 0.9)]
    with Judges(1, near_enough) as judges:
        assert judges.version() == "near-enough"
        for candidates in (near, near[:1], []):
            there = judges.executor.submit(judges.work(query, candidates, POLICY, thorough=False)).result(60)
            assert there == decide(query, candidates, POLICY, NearEnough(), guards)
        there = judges.executor.submit(judges.work(query, near, POLICY, thorough=True)).result(60)
        assert [j.objections != () for j in there.judgements] == [False, True]
        assert there.entry_id == "what does grep -v do?"


def test_judges_end_with_a_process_that_is_killed() -> None:
    program = (
        "import time; from store.judges import Judges; from tests.store.test_judges import near_enough; "
        "judges = Judges(1, near_enough); judges.version(); print(*judges.executor._processes, flush=True); "
        "time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as main:
        assert main.stdout is not None
        judge = psutil.Process(int(main.stdout.readline()))
        assert judge.is_running()
        main.kill()
        main.wait(30)
    judge.wait(30)


def test_judges_without_a_model_say_so() -> None:
    with Judges(1, nothing) as judges, pytest.raises(BrokenExecutor):
        judges.version()


async def test_a_cache_serves_what_its_judges_decide_and_misses_where_they_are_gone() -> None:
    with Judges(1, near_enough) as judges:
        judges.version()
        deadlines = dict.fromkeys(("lookup_deadline_ms", "embed_deadline_ms", "decide_deadline_ms"), 60_000.0)
        cache = await Cache.open(
            StoreSettings.model_validate({"url": "sqlite://", **deadlines}),
            embedder=WordEmbedder(),
            confidence=NearEnough(),
            policy=POLICY,
            clock=Clock(),
            judges=judges,
        )
        try:
            cache.record(ask("how do I reset the password of my account"), say("Open Settings."))
            await cache.flush()
            reworded = ask("how do I reset a password of my account")
            decision, hit = await cache.search(reworded)
            assert decision.level == "answer" and hit is not None and hit.answer.text == "Open Settings."
            judges.close()
            decision, hit = await cache.search(reworded)
            assert (decision.level, hit) == ("miss", None)
        finally:
            await cache.close()
