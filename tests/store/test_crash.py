"""``kill -9`` at any moment loses no acknowledged entry and leaves no half one (a real process, many times)."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import inspect

from store.codec import unpack_answer, unpack_question
from store.models import Base
from store.settings import StoreSettings
from store.sqlite import SqliteDatabase
from tests.store.crash_child import answer_of
from tests.store.crash_steps import DIED, DONE, STEPS
from tests.store.crash_steps import open_cache as open_steps
from tests.store.support import Open, ask

ROUNDS = 25
SEED = 20_261_129


def killed_children(
    database: Path, rounds: int, *, latest_s: float, early: float, after_each: Callable[[], None] = lambda: None
) -> dict[str, str]:
    """Let a process write and kill it, again and again; returns what it acknowledged (question → entry id).

    It is killed at most ``latest_s`` seconds after its first acknowledgement, or (with the probability ``early``) after
    its start. ``after_each`` is called when it is dead.
    """
    chance = random.Random(SEED)
    acknowledged: dict[str, str] = {}
    command = [sys.executable, "-m", "tests.store.crash_child", str(database), str(SEED)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        try:
            for round_number in range(rounds):
                parent.stdin.write("next\n")
                parent.stdin.flush()
                timer = None
                at_start, pid = chance.random() < early, 0
                for line in parent.stdout:
                    said = json.loads(line)
                    if "killed" in said:
                        break
                    pid = said.get("pid", pid)
                    if "pid" not in said:
                        acknowledged |= said
                    # The moment: in the middle of opening, or after up to some hundred transactions.
                    if timer is None and (at_start or "pid" not in said):
                        timer = threading.Timer(chance.uniform(0, latest_s), os.kill, (pid, signal.SIGKILL))
                        timer.start()
                assert timer is not None, f"round {round_number} did not start"
                timer.join()
                after_each()
        finally:
            parent.stdin.close()
            deadline = time.monotonic() + 10
            while parent.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            parent.kill()
    return acknowledged


@pytest.mark.slow
async def test_killing_the_process_loses_no_acknowledged_entry_and_leaves_no_half_one(
    tmp_path: Path, open_cache: Open
) -> None:
    path = tmp_path / "antiphon.db"
    acknowledged = killed_children(path, ROUNDS, latest_s=0.5, early=0.4)
    assert len(acknowledged) > 100

    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
        entries = database.execute("SELECT id, question, answer, state, parent, depth FROM entries").fetchall()
        places = {node for (node,) in database.execute("SELECT node FROM places")}
        sessions = {node for (node,) in database.execute("SELECT node FROM sessions")}
    states = {}
    for entry, question, answer, state, parent, depth in entries:
        states[entry] = state
        # Nothing half: question and answer can be read and belong together, and so do the rows beside them.
        turn = unpack_question(question, ())
        text = unpack_answer(answer, prompt_tokens=0, completion_tokens=0, seconds=0.0).text
        if depth:
            assert text == "and on"
            assert parent is not None
        else:
            assert text == answer_of(turn.message.text)
        if state == "active":
            assert entry in places
            assert depth or entry in sessions
    assert {entry for entry in acknowledged.values() if states.get(entry) != "active"} == set()

    cache = await open_cache(clock=time.time)
    assert not list(tmp_path.glob("*.corrupt-*"))  # noqa: ASYNC240
    for question, entry in list(acknowledged.items())[:: max(1, len(acknowledged) // 100)]:
        hit = await cache.exact(ask(question))
        assert hit is not None
        assert (hit.entry_id, hit.answer.text) == (entry, answer_of(question))
    await cache.flush()
    assert cache.failures.counts() == {}


@pytest.mark.slow
def test_killing_the_process_while_the_tables_are_made_leaves_a_database_that_opens(tmp_path: Path) -> None:
    path = tmp_path / "antiphon.db"

    def opens() -> None:
        database = SqliteDatabase.take(StoreSettings(url=f"sqlite:///{path}"))
        with database.readers.connect() as connection:
            assert set(Base.metadata.tables) <= set(inspect(connection).get_table_names())
        database.close()
        assert not list(tmp_path.glob("*.corrupt-*"))
        for file in tmp_path.iterdir():
            file.unlink()

    killed_children(path, 20, latest_s=0.15, early=1.0, after_each=opens)


def expected_after(steps: list[str]) -> list[dict[str, str | None]]:
    """What may be found after these steps were done: with the next one, begun and not done, in effect or not."""
    names, held = list(STEPS), dict[str, str | None]()
    for name in names[: len(steps)]:
        held |= STEPS[name]
    begun = {**held, **STEPS[names[len(steps)]]} if len(steps) < len(names) else held
    return [held, begun]


async def answers(url: str, questions: set[str]) -> dict[str, str | None]:
    """What each question gets after the next start."""
    cache = await open_steps(url)
    try:
        hits = {question: await cache.exact(ask(question)) for question in questions}
        return {question: None if hit is None else hit.answer.text for question, hit in hits.items()}
    finally:
        await cache.close()


@pytest.mark.slow
@pytest.mark.parametrize("where", ["begin", "commit"])
def test_a_process_that_dies_at_any_write_leaves_what_was_done_and_nothing_half(tmp_path: Path, where: str) -> None:
    command = [sys.executable, "-m", "tests.store.crash_steps"]
    root = Path(__file__).parents[2]
    finished, number = False, 0
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        while not finished:
            number += 1
            path = tmp_path / f"{number}.db"
            parent.stdin.write(f"{path} {number} {where}\n")
            parent.stdin.flush()
            steps: list[str] = []
            for line in parent.stdout:
                if line.startswith("status "):
                    status = int(line.split()[1])
                    break
                steps.append(line.strip())
            assert status in (DIED, DONE), f"it failed at write {number}, after {steps}"
            finished = status == DONE
            assert steps == list(STEPS)[: len(steps)]
            with sqlite3.connect(path) as database:
                assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
                assert database.execute("PRAGMA foreign_key_check").fetchall() == []
            questions = {question for step in STEPS.values() for question in step}
            found = asyncio.run(answers(f"sqlite:///{path}", questions))
            may = expected_after(steps)
            for question, text in found.items():
                allowed = {held.get(question) for held in may}
                assert text in allowed, f"{question!r} got {text!r} after {steps} at {where} {number}"
    assert number > len(STEPS)
