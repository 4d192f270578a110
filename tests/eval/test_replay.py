"""A log once more: the rate it tells is the true one, and an interruption changes nothing."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eval.data import expand_families, families
from eval.observed.report import figures
from eval.replay.errors import ReplayError
from eval.replay.log import drawn, in_order, reactions
from eval.replay.offline import replay
from eval.replay.work import Work
from eval.traffic import LoggedTurn, Problems, TrafficError
from fingerprint.traffic import Record, encode_record
from store.shadow import Observation, outcome_of
from store.types import Policy
from tests.eval.test_pairs import Letters, Trusting

ANTIPHON = str(Path(sys.executable).with_name("antiphon"))


def write(path: Path, records: Sequence[Record]) -> Path:
    path.write_bytes(b"".join(map(encode_record, records)))
    return path


def record(question: str, answer: str | None, **more: Any) -> Record:
    return Record(messages=[{"role": "user", "content": question}], answer=answer, model="m", **more)


def turns_of(path: Path) -> list[LoggedTurn]:
    return in_order([path], problems=Problems(strict=True))


async def replayed(
    turns: Sequence[LoggedTurn], url: str = "sqlite://", begin: int = 0, answer: float = 0.9
) -> list[Observation]:
    policy = Policy(answer=answer, verify=0.5)
    walk = replay(turns, url=url, embedder=Letters(), confidence=Trusting(), policy=policy, begin=begin)
    return [seen async for seen in walk]


def known_truth(n: int, seed: int = 0) -> tuple[list[Record], dict[str, str]]:
    """A log whose users ask for the numbers of rooms, one in four with a slip that changes what is meant."""
    chance = random.Random(seed)
    names = [
        f"{a} {b}" for a in ("harbour", "garden", "castle", "river") for b in ("hall", "room", "wing", "tower", "annex")
    ]
    numbers = {name: str(1000 + place) for place, name in enumerate(names)}
    log, truth = [], {}
    for number in range(n):
        name = chance.choice(names)
        polite = chance.choice(["", " please", " thank you", " kindly"])
        question = f"which number has the {name} on the plan{polite}"
        if chance.random() < 0.25:
            name, question = f"old {name}", question.replace(name, f"old {name}")
            numbers.setdefault(name, str(2000 + len(numbers)))
        truth[question] = numbers[name]
        log.append(record(question, f"It has the number {numbers[name]}.", time=1e9 + number))
    return log, truth


async def test_the_reported_rate_of_wrong_hits_encloses_the_true_one(tmp_path: Path) -> None:
    log, truth = known_truth(400)
    seen = await replayed(turns_of(write(tmp_path / "log.jsonl", log)), answer=0.97)
    hits = [o for o in seen if o.hit and not o.exact]
    wrong = sum(truth[o.question] != truth[o.stored_question] for o in hits)
    found = figures(seen)
    low, high = found["wrong_ci"]
    assert len(hits) > 60 and 0 < wrong < len(hits)
    assert low <= wrong / len(hits) <= high
    assert found["wrong_rate"] == pytest.approx(wrong / len(hits))  # answers that are facts are told apart for certain


async def test_a_replay_is_the_same_every_time(tmp_path: Path) -> None:
    turns = turns_of(write(tmp_path / "log.jsonl", known_truth(80)[0]))
    one, other = await replayed(turns), await replayed(turns)
    ignore = {"decide_seconds": 0.0, "entry": ""}
    assert [msgspec.structs.replace(o, **ignore) for o in one] == [msgspec.structs.replace(o, **ignore) for o in other]


async def test_an_interrupted_replay_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    turns = turns_of(write(tmp_path / "log.jsonl", known_truth(60)[0]))
    whole = await replayed(turns)

    work = Work(tmp_path / "work", {"a": 1})
    assert work.begin() == 0
    walk = replay(
        turns, url=f"sqlite:///{work.store}", embedder=Letters(), confidence=Trusting(),
        policy=Policy(answer=0.9, verify=0.5),
    )  # fmt: skip
    done = 0
    async for seen in walk:
        work.add(msgspec.json.encode(seen) + b"\n")
        done += 1
        if done == 30:
            work.save(done)
        if done == 37:  # the power goes: seven turns more, of which nobody knows
            break
    await walk.aclose()  # type: ignore[attr-defined]
    work.close()

    work = Work(tmp_path / "work", {"a": 1})
    assert work.begin() == 30
    before = [msgspec.json.decode(line, type=Observation) for line in work.lines()]
    rest = await replayed(turns, url=f"sqlite:///{work.store}", begin=30)
    work.close()
    got = [(o.level, o.exact, round(o.confidence, 2), o.verdict) for o in [*before, *rest]]
    assert got == [(o.level, o.exact, round(o.confidence, 2), o.verdict) for o in whole]
    with pytest.raises(ReplayError, match="other a"):
        Work(tmp_path / "work", {"a": 2}).begin()
    assert Work(tmp_path / "work", {"a": 2}).begin(fresh=True) == 0
    busy = Work(tmp_path / "work", {"a": 2})
    busy.begin(fresh=True)
    with pytest.raises(ReplayError, match="another replay is at work"):
        Work(tmp_path / "work", {"a": 2}).begin()
    busy.close()
    (tmp_path / "work" / "checkpoint.json").write_text("{")
    with pytest.raises(ReplayError, match="damaged"):
        Work(tmp_path / "work", {"a": 2}).begin()


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize(
    "others",
    [
        {"results.jsonl": "somebody's"},
        {"store.db": "somebody's", "checkpoint.json": "{}"},
        {"notes.txt": "somebody's"},
        {"lock": "", "results.jsonl": "somebody's", "notes.txt": "somebody's"},
        {"lock": "pid 7", "results.jsonl": "somebody's"},
    ],
    ids=",".join,
)
def test_a_folder_of_something_else_is_refused_and_nothing_in_it_is_touched(
    tmp_path: Path, others: dict[str, str], fresh: bool
) -> None:
    for name, text in others.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ReplayError, match="holds files of something else: it is left alone"):
        Work(tmp_path, {"a": 1}).begin(fresh=fresh)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == others


@pytest.mark.parametrize("marked", [True, False])
def test_a_replays_own_folder_may_hold_its_reports_too_and_one_of_an_earlier_release_is_known(
    tmp_path: Path, marked: bool
) -> None:
    first = Work(tmp_path / "work", {"a": 1})
    first.begin()
    first.add(b"{}\n")
    first.save(1)
    first.close()
    if not marked:
        (tmp_path / "work" / "lock").write_text("")
    (tmp_path / "work" / "report.html").write_text("kept")
    for fresh, done in ((False, 1), (True, 0)):
        again = Work(tmp_path / "work", {"a": 1})
        assert again.begin(fresh=fresh) == done
        again.close()
    assert (tmp_path / "work" / "report.html").read_text() == "kept"


async def test_conversations_go_on_from_the_stored_turn_and_corrections_withdraw_it(tmp_path: Path) -> None:
    def chat(*said: str) -> list[dict[str, str]]:
        return [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(said)]

    log = [
        Record(messages=chat("where is the museum shop"), answer="In the hall.", time=1.0, session="a"),
        Record(messages=chat("where is the museum shop", "In the hall.", "and when does it open"), answer="At 9.",
               time=2.0, session="a"),
        Record(messages=chat("where is the museum shop please"), answer="It is in the hall.", time=3.0, session="b"),
        Record(messages=chat("where is the museum shop please", "It is in the hall.", "and when does it open"),
               answer="At 9.", time=4.0, session="b"),
        Record(messages=chat("where is the museum shop please", "It is in the hall.", "No, that is wrong."),
               answer="Sorry.", time=5.0, session="b"),
        Record(messages=chat("where is the museum shop"), answer="In the yard.", time=6.0, session="c"),
    ]  # fmt: skip
    turns = turns_of(write(tmp_path / "log.jsonl", log))
    seen = await replayed(turns)
    assert [o.hit for o in seen] == [False, False, True, True, False, False]
    assert seen[3].same_place and outcome_of(seen[3]) == "right"
    assert reactions(turns) == ["went on", "left", "went on", "edited", "left", "left"]


def test_what_users_did_next_is_read_off_the_log(tmp_path: Path) -> None:
    def chat(session: str, at: float, *said: str, **more: Any) -> Record:
        messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(said)]
        return Record(messages=messages, answer="A.", time=at, session=session, **more)

    log = [
        chat("a", 1, "how do I pay a bill"),
        chat("a", 2, "how do I pay a bill", "A.", "How do I pay a bill?!"),
        chat("a", 3, "how do I pay a bill", "A.", "How do I pay a bill?!", "A.", "No, that's wrong, I meant by card"),
        chat("b", 4, "how do I pay a bill", reaction="reasked"),
    ]
    turns = turns_of(write(tmp_path / "log.jsonl", log))
    assert reactions(turns) == ["reasked", "corrected", "left", "reasked"]


def test_turns_are_asked_in_the_order_of_their_times(tmp_path: Path) -> None:
    log = [record(f"question {t}", "A", time=float(t)) for t in (3, 1, 2)]
    one, other = write(tmp_path / "a.jsonl", log[:1]), write(tmp_path / "b.jsonl", log[1:])
    turns = in_order([one, other], problems=Problems())
    assert [t.time for t in turns] == [1.0, 2.0, 3.0]
    assert sum(drawn(f"c{n}", 0.3, 0) for n in range(2000)) == pytest.approx(600, abs=80)
    assert [drawn(f"c{n}", 0.3, 0) for n in range(50)] != [drawn(f"c{n}", 0.3, 1) for n in range(50)]


@pytest.mark.parametrize(("content", "turns"), [(b"", 0), (b"\n", 0), (b"nonsense\n{}\n", 0)])
def test_an_empty_or_broken_log_has_no_turns(tmp_path: Path, content: bytes, turns: int) -> None:
    file = tmp_path / "log.jsonl"
    file.write_bytes(content)
    problems = Problems()
    try:
        assert len(in_order([file], problems=problems)) == turns
    except TrafficError as error:
        assert "log.jsonl" in str(error) or "format" in str(error)


@pytest.mark.slow
def test_the_command_reports_the_true_rate_on_conversation_families(tmp_path: Path, shared: Path) -> None:
    """Pairs of families with known labels become a log: an answer a class, so that the truth is known."""
    pairs = [p for p in expand_families(families(["sq1"])[:40]) if p.lang == "en"]
    pairs = random.Random(0).sample(pairs, 160)
    log, answers = [], {}
    for number, pair in enumerate(pairs):
        stored, other = f"The reference is {7000 + 2 * number}.", f"The reference is {7001 + 2 * number}."
        for at, (turn, answer) in enumerate(((pair.a, stored), (pair.b, stored if pair.equivalent else other))):
            messages = [{"role": m.role, "content": m.text} for m in turn.messages]
            # Each pair in a cache of its own: the label says nothing about the others.
            log.append(Record(messages=messages, answer=answer, time=1e9 + 2 * number + at, caller=pair.id, model="m"))
            answers[len(log) - 1] = pair.equivalent
    file, out = write(tmp_path / "log.jsonl", log), tmp_path / "out.json"
    command = [ANTIPHON, "replay", str(file), "--work", str(tmp_path / "work"), "--json", str(out)]
    command += ["--html", str(tmp_path / "r.html"), "--set", "decision.answer=0.5", "--set", "decision.verify=0.4"]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    found = json.loads(out.read_text())["figures"]
    rows = [json.loads(line) for line in (tmp_path / "work" / "results.jsonl").read_text().splitlines()]
    hits = [int(row["id"]) for row in rows if row["level"] == "answer" and not row.get("exact")]
    wrong = sum(not answers[number] for number in hits)
    assert len(hits) > 20
    low, high = found["wrong_ci"]
    assert low <= wrong / len(hits) <= high
    # Once more: everything is there already.
    again = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    assert json.loads(out.read_text())["figures"]["hits"] == found["hits"], again.stdout


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_done(tmp_path: Path) -> None:
    file = write(tmp_path / "log.jsonl", known_truth(600)[0])
    work = tmp_path / "work"
    command = [ANTIPHON, "replay", str(file), "--work", str(work)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    end = time.monotonic() + 120
    while not (work / "results.jsonl").exists() or (work / "results.jsonl").stat().st_size < 1000:
        assert time.monotonic() < end and running.poll() is None
        time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    said, _ = running.communicate(timeout=120)
    assert running.returncode == 130 and "goes on from here" in said
    state = json.loads((work / "checkpoint.json").read_text())
    assert 0 < state["done"] < 600
    done = subprocess.run([*command, "--json", str(tmp_path / "o.json")], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout
    assert json.loads((tmp_path / "o.json").read_text())["figures"]["turns"] == 600


@pytest.mark.slow
def test_a_calibration_on_a_log_that_is_stopped_reports_nothing(tmp_path: Path) -> None:
    file, out = write(tmp_path / "log.jsonl", known_truth(3000)[0]), tmp_path / "thresholds.json"
    command = [ANTIPHON, "calibrate", str(file), "--out", str(out)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    time.sleep(15)  # under way, and by far not through
    assert running.poll() is None
    running.send_signal(signal.SIGINT)
    said, _ = running.communicate(timeout=120)
    assert running.returncode == 130
    assert "samples" not in said
    assert not out.exists()
