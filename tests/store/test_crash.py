"""``kill -9`` at any moment loses no acknowledged entry and leaves no half one (a real process, many times)."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from store.codec import unpack_answer, unpack_question
from tests.store.crash_child import answer_of
from tests.store.support import Open, ask

ROUNDS = 25
SEED = 20_261_129


def killed_children(database: Path, rounds: int) -> dict[str, str]:
    """Let a process write and kill it, again and again; returns what it acknowledged (question → entry id)."""
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
                early, pid = chance.random() < 0.4, 0
                for line in parent.stdout:
                    said = json.loads(line)
                    if "killed" in said:
                        break
                    pid = said.get("pid", pid)
                    if "pid" not in said:
                        acknowledged |= said
                    # The moment: in the middle of opening, or after up to some hundred transactions.
                    if timer is None and (early or "pid" not in said):
                        timer = threading.Timer(chance.uniform(0, 0.5), os.kill, (pid, signal.SIGKILL))
                        timer.start()
                assert timer is not None, f"round {round_number} did not start"
                timer.join()
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
    acknowledged = killed_children(path, ROUNDS)
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
