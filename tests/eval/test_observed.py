"""Observations: read, counted, and what went wrong put into groups."""

from __future__ import annotations

import json
import random
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from eval.observed.command import run
from eval.observed.misjudged import clusters, differences
from eval.observed.read import read_observations, samples_of
from eval.observed.report import figures, report_on
from eval.traffic import Problems, TrafficError
from store.agreement import AgreementVerdict
from store.shadow import Conflict, Observation


def hit(question: str, stored: str, verdict: AgreementVerdict | None, confidence: float = 0.96) -> Observation:
    return Observation(
        time=1.0, level="answer", reason="confident", confidence=confidence, entry="e", similarity=0.9, verdict=verdict,
        lang="en", intent="how_to", question=question, stored_question=stored, answer="A", stored_answer="B",
        prompt_tokens=10, completion_tokens=5, seconds=2.0,
    )  # fmt: skip


def some(n: int = 200, wrong: float = 0.1, seed: int = 0) -> list[Observation]:
    """Hits, one in ten of them wrong; misses and bypasses among them."""
    chance = random.Random(seed)
    seen: list[Observation] = []
    for number in range(n):
        verdict: AgreementVerdict = "differ" if chance.random() < wrong else "agree"
        seen.append(hit(f"How do I pay bill {number}?", f"How can I pay bill {number}?", verdict, chance.random()))
        seen.append(Observation(time=1.0, level="miss", reason="confidence too low", entry="e", confidence=0.3,
                                verdict="differ", lang="en"))  # fmt: skip
    return [*seen, Observation(time=1.0, level="bypass", reason="smalltalk")]


def write(path: Path, seen: list[Observation]) -> Path:
    path.write_bytes(b"".join(msgspec.json.encode(o) + b"\n" for o in seen))
    return path


def test_figures_count_what_they_say() -> None:
    seen = [
        hit("a", "b", "agree"),
        hit("a", "b", "differ"),
        hit("a", "b", "unclear"),
        hit("a", "b", None),
        msgspec.structs.replace(hit("a", "a", "differ"), exact=True),
        Observation(time=1.0, level="miss"),
        Observation(time=1.0, level="bypass", reason="creative"),
    ]
    found = figures(seen)
    assert (found["turns"], found["looked_up"], found["hits"]) == (7, 6, 5)
    assert found["hit_rate"] == pytest.approx(5 / 7)
    reworded = found["kinds"]["reworded"]
    assert [reworded[k] for k in ("right", "wrong", "doubtful", "unknown")] == [1, 1, 1, 1]
    assert reworded["wrong_rate"] == 0.5 and reworded["worst"] == pytest.approx(2 / 3)
    assert found["wrong_rate"] == 0.5  # what differs in the same words is the model's doing
    assert found["tokens"] == {"prompt": 50, "completion": 25} and found["seconds"] == 10.0


def test_what_was_observed_is_what_thresholds_are_chosen_from() -> None:
    guarded = msgspec.structs.replace(hit("a", "b", "agree"), level="miss", objections=("numbers",), confidence=0.0)
    exact = msgspec.structs.replace(hit("a", "a", "agree"), exact=True)
    samples, unclear = samples_of([hit("a", "b", "agree", 0.9), hit("a", "b", "unclear"), guarded, exact])
    assert unclear == 1
    assert [(s.score, s.right) for s in samples] == [(0.9, True), (0.0, True)]


@pytest.mark.parametrize(
    ("question", "stored", "kind"),
    [
        ("What does plan 3 cost?", "What does plan 5 cost?", "number"),
        ("How do I enable two-factor login?", "How do I disable two-factor login?", "polarity"),
        ("How do I get from Oslo to Bergen?", "How do I get from Bergen to Oslo?", "direction"),
        ("How do I install numpy?", "How do I upgrade my phone?", "related only"),
    ],
)
def test_a_mistake_is_named_by_what_conflicts(question: str, stored: str, kind: str) -> None:
    assert kind in differences(hit(question, stored, "differ"))


def test_context_conflicts_where_the_words_are_the_same_and_the_conversation_is_not() -> None:
    seen = msgspec.structs.replace(
        hit("And how long does that take?", "And how long does that take?", "differ"),
        before="You can pay by card.", stored_before="We ship by post.",
    )  # fmt: skip
    assert differences(seen)[0] == "context"


def test_relations_of_the_guards_come_first() -> None:
    seen = msgspec.structs.replace(hit("x", "y", "differ"), conflicts=(Conflict("polarity", "One says yes."),))
    assert "polarity" in differences(seen)


def test_mistakes_of_a_kind_stand_together_with_what_would_have_stopped_them() -> None:
    cities = ["Oslo", "Bergen", "Paris", "Rome", "Madrid"]
    seen = [
        hit(f"What is the price of room {n}?", f"What is the price of room {n + 7}?", "differ", 0.95) for n in range(12)
    ]
    seen += [hit(f"How do I enable alerts in {c}?", f"How do I disable alerts in {c}?", "differ", 0.97) for c in cities]
    seen += [hit("How can I reset the password?", "How do I reset the password?", "agree", 0.99) for _ in range(50)]
    groups = clusters(seen)
    assert sum(len(g.cases) for g in groups) == 17
    kinds = {g.kind: g for g in groups}
    assert len(kinds["number"].cases) == 12 and len(kinds["polarity"].cases) == 5
    best = kinds["number"].stops[0]
    assert (best.stopped, best.of, best.right_lost, best.of_right) == (12, 12, 0, 50)
    assert any("0.95" in stop.what for stop in kinds["number"].stops)
    assert clusters(seen) == groups
    json.dumps([g.as_json() for g in groups])
    assert clusters([o for o in seen if o.verdict == "agree"]) == []


@pytest.mark.parametrize("content", [b"", b"\n\n"])
def test_an_empty_file_makes_a_report_that_says_so(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "s.jsonl"
    file.write_bytes(content)
    html, out = tmp_path / "r.html", tmp_path / "r.json"
    run([file], html=html, json_out=out)
    document = json.loads(out.read_text())
    assert document["figures"]["turns"] == 0
    assert "No turns" in html.read_text()


@pytest.mark.parametrize("content", [b"{}\n", b"[1]\n\xff\xfe\nnot json\n", b'{"time": "late"}\n'])
def test_a_file_without_a_single_observation_is_refused_with_its_first_row(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "s.jsonl"
    file.write_bytes(content)
    for strict in (False, True):
        with pytest.raises(TrafficError, match=r"s\.jsonl:1"):
            run([file], strict=strict)


def test_rows_that_cannot_be_read_are_counted_beside_those_that_can(tmp_path: Path) -> None:
    file, out = write(tmp_path / "s.jsonl", [hit("a", "b", "differ")]), tmp_path / "r.json"
    with file.open("ab") as more:
        more.write(b"not json\n")
    run([file], json_out=out)
    assert json.loads(out.read_text())["rows"]["skipped"] == 1


def test_one_line_is_enough_for_a_report(tmp_path: Path) -> None:
    for number, one in enumerate((hit("a", "b", "differ"), Observation(time=1.0, level="miss"))):
        file = write(tmp_path / f"{number}.jsonl", [one])
        run([file], html=tmp_path / "r.html", json_out=tmp_path / "r.json")
        assert json.loads((tmp_path / "r.json").read_text())["figures"]["turns"] == 1


def test_a_huge_file_is_read_line_by_line(tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", some(3000))
    problems = Problems()
    assert sum(1 for _ in read_observations([file], problems)) == 6001
    assert problems.skipped == 0


def test_the_report_shows_the_wrong_rate_with_its_interval(tmp_path: Path) -> None:
    seen = some(400)
    report = report_on(seen, kind="shadow", title="T", command="c")
    found = figures(seen)
    low, high = found["wrong_ci"]
    assert low <= 0.1 <= high and low < found["wrong_rate"] < high
    console = Console(width=140, record=True)
    with console.capture() as shown:
        report.show(console)
    assert f"{100 * found['wrong_rate']:.1f} %" in shown.get()
    report.write(html=tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "<svg" in page and "smalltalk" in page
