"""Thresholds on somebody's own data: kept promises, honest refusals, curves that are better or not used."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from eval.calibration.choose import Goal, choose, hits_needed, least_share, most_share, point_at
from eval.calibration.command import Calibration, Options, calibrate, holds_pairs, labelled, run, thresholds_of
from eval.calibration.refit import error_of, refit
from eval.calibration.report import report_on
from eval.calibration.samples import Sample
from eval.traffic import TrafficError
from store.confidence import load
from store.confidence.thresholds_file import read_thresholds
from store.shadow import Observation
from store.types import Policy

SHIPPED = Policy(answer=0.94, verify=0.7)


def drawn(n: int, *, seed: int = 0, right: float = 0.5, lang: str = "en") -> list[Sample]:
    """Samples whose confidence says much, though not all, about the truth."""
    rng = np.random.default_rng(seed)
    truth = rng.random(n) < right
    score = np.where(truth, rng.beta(6, 1.2, n), rng.beta(1.5, 5, n))
    return [
        Sample(f"{lang}{i}", float(s), bool(t), lang, "how_to")
        for i, (s, t) in enumerate(zip(score, truth, strict=True))
    ]


def calibrated(samples: Sequence[Sample], options: Options | None = None) -> Calibration:
    return calibrate(samples, options or Options(), model="m-1", sources=["here"], shipped=SHIPPED)


def test_forty_pairs_cannot_promise_ninety_nine_percent_and_are_told_how_many_can() -> None:
    choice = choose([Sample(str(i), 0.99, True) for i in range(40)], Goal())
    assert choice.answer is None
    assert choice.needed == 299  # 0.99 ** 299 < 0.05
    assert "299" in choice.why_not and "40 surest" in choice.why_not
    assert thresholds_of(calibrated(drawn(40))) is None


def test_the_least_number_of_hits_without_an_error_does_promise_it() -> None:
    good = [Sample(str(i), 0.9 + i / 10_000, True) for i in range(299)]
    assert choose(good[1:], Goal()).answer is None
    choice = choose(good, Goal())
    assert choice.answer == pytest.approx(0.9)
    assert choice.bound is not None and choice.bound >= 0.99


@pytest.mark.parametrize(("wrong", "needed"), [(0.0, 299), (0.005, 1300), (0.01, None), (0.5, None)])
def test_errors_that_were_seen_make_more_hits_necessary_or_the_promise_impossible(
    wrong: float, needed: int | None
) -> None:
    found = hits_needed(Goal(), wrong)
    assert found is None if needed is None else found is not None and needed <= found <= 1.5 * needed


def test_the_promise_is_broken_in_no_more_runs_than_was_said() -> None:
    # Truth: right with probability equal to the confidence, so the precision above t is the mean confidence above t.
    rng = np.random.default_rng(1)
    broken = 0
    runs = 300
    for _ in range(runs):
        score = rng.beta(8, 0.4, 900)
        samples = [Sample(str(i), float(s), bool(rng.random() < s)) for i, s in enumerate(score)]
        choice = choose(samples, Goal(value=0.95))
        if choice.answer is not None:
            broken += int(np.mean(score[score >= choice.answer]) < 0.95)
    assert broken / runs <= 0.05 + 2 * (0.05 * 0.95 / runs) ** 0.5


def test_what_is_promised_is_kept_on_fresh_data() -> None:
    choice = choose(drawn(8000), Goal())
    assert choice.answer is not None and choice.at is not None
    fresh = point_at(drawn(40_000, seed=7), choice.answer)
    assert fresh.right / fresh.hits >= 0.99
    assert fresh.right / fresh.n_right > 0.5  # and it is of use


def test_one_early_error_does_not_end_the_search() -> None:
    samples = drawn(8000)
    samples.append(Sample("odd", 0.99999, False))
    with_error, without = choose(samples, Goal()), choose(samples[:-1], Goal())
    assert with_error.answer is not None and without.answer is not None
    assert with_error.answer == pytest.approx(without.answer, abs=0.05)


def test_a_budget_counts_the_wrong_candidates_that_are_served() -> None:
    samples = drawn(4000)
    choice = choose(samples, Goal("budget", 0.01))
    assert choice.answer is not None and choice.at is not None and choice.bound is not None
    assert choice.at.wrong / choice.at.n_wrong <= choice.bound <= 0.01
    assert choose(drawn(400), Goal("budget", 0.01)).answer is None


def test_where_equal_turns_are_rare_the_same_precision_takes_a_higher_threshold() -> None:
    samples = drawn(20_000)
    half, rare = choose(samples, Goal()), choose(samples, Goal(equal_share=0.2))
    assert half.answer is not None and rare.answer is not None
    assert rare.answer > half.answer


def test_what_a_guard_forbids_is_never_served_whatever_the_threshold() -> None:
    samples = [Sample("a", 0.0, True), Sample("b", 0.0, False)]
    assert point_at(samples, 0.0).hits == 0
    assert choose(samples, Goal()).answer is None
    assert choose([], Goal()).answer is None


@pytest.mark.parametrize("value", [0.0, 1.0, -1, 2])
def test_a_goal_that_no_data_can_support_is_refused(value: float) -> None:
    with pytest.raises(ValueError):
        Goal(value=value)


def test_verify_is_the_95th_percentile_of_the_wrong_ones_and_never_above_answer() -> None:
    samples = drawn(8000)
    choice = choose(samples, Goal())
    wrong = [s.score for s in samples if not s.right]
    assert choice.answer is not None
    assert choice.verify == pytest.approx(min(choice.answer, float(np.quantile(wrong, 0.95))))


def test_the_strictest_language_with_the_data_to_say_so_decides() -> None:
    easy = [s for s in drawn(12_000) if s.right or s.score < 0.3]
    rng = np.random.default_rng(3)
    hard = [
        Sample(f"zh{i}", float(s), bool(s > 0.85 or rng.random() < 0.5), "zh") for i, s in enumerate(rng.random(4000))
    ]
    result = calibrated([*easy, *hard])
    assert result.choice.answer is not None and result.choice.answer > 0.8
    assert "zh" in result.figures["raised"]
    assert not result.figures["missed"]


@pytest.mark.parametrize("method", ["isotonic", "platt"])
def test_a_curve_that_is_off_is_corrected_and_one_that_is_right_stays(method: str) -> None:
    rng = np.random.default_rng(5)
    probability = rng.random(4000)
    truth = rng.random(4000) < probability
    good = [Sample(str(i), float(p), bool(t)) for i, (p, t) in enumerate(zip(probability, truth, strict=True))]
    off = [Sample(s.id, s.score**3, s.right) for s in good]
    corrected = refit(off, method)  # type: ignore[arg-type]
    assert corrected.correction is not None and corrected.calibration_error is not None
    assert corrected.calibration_error[1] < 0.5 * corrected.calibration_error[0]
    after = np.array([corrected.correction(s.score) for s in off])
    assert error_of(after, np.array([s.right for s in off])) < 0.05
    assert refit(good[:150], method).correction is None  # type: ignore[arg-type]


def test_the_file_serves_the_same_samples_with_the_curve_as_without(tmp_path: Path) -> None:
    samples = drawn(8000)
    plain, curved = calibrated(samples), calibrated(samples, Options(method="isotonic"))
    one, other = thresholds_of(plain), thresholds_of(curved)
    assert one is not None and other is not None and other.correction is not None
    file = tmp_path / "mine.json"
    other.write(file)
    read = read_thresholds(file, "m-1")
    assert read.correction is not None
    served = [s for s in samples if s.score >= one.answer]
    served_too = [s for s in samples if read.correction(s.score) >= read.answer]
    assert abs(len(served) - len(served_too)) <= 0.02 * len(served)
    assert read.evidence["at"]["hits"] == len(served)


def test_all_figures_are_json_and_the_report_can_be_shown(tmp_path: Path) -> None:
    for number, samples in enumerate(
        (drawn(3000), drawn(40), [], [Sample("x", 0.9, True)], [Sample("x", 0.9, False)], [Sample("x", 0.0, True)])
    ):
        result = calibrated(samples, Options(method="platt"))
        report = report_on(result.figures, result.samples, command="antiphon calibrate")
        html, out = tmp_path / f"{number}.html", tmp_path / f"{number}.json"
        report.write(html=html, json=out)
        json.loads(out.read_text())
        console = Console(width=140)
        with console.capture() as captured:
            report.show(console)
        assert f"{len(samples):,} samples" in captured.get()
        assert ("do not support" in captured.get()) == (result.choice.answer is None)


def test_a_file_without_a_single_observation_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    file.write_bytes(b"not json\n{}\n")
    with pytest.raises(TrafficError, match=r"none of 2 rows can be used; the first: s\.jsonl:1"):
        run([file], Options(), from_shadow=True)


@pytest.mark.parametrize("content", [b"", b"\n", b'{"time": 1, "level": "miss"}\n'])
def test_observations_that_say_nothing_promise_nothing(tmp_path: Path, content: bytes) -> None:
    file, out = tmp_path / "s.jsonl", tmp_path / "t.json"
    file.write_bytes(content)
    assert not run([file], Options(), from_shadow=True, out=out, html=tmp_path / "r.html")
    assert not out.exists() and (tmp_path / "r.html").exists()


def test_pairs_and_logs_are_told_apart(tmp_path: Path) -> None:
    pairs, log, sheet = tmp_path / "pairs.jsonl", tmp_path / "log.jsonl", tmp_path / "sheet.csv"
    pairs.write_text('\n{"a": {"messages": []}, "b": {"messages": []}, "equivalent": true}\n')
    log.write_text('{"messages": [{"role": "user", "content": "hello"}], "answer": "hi"}\n')
    sheet.write_text("question1,question2,is_duplicate\n")
    assert holds_pairs(pairs) and holds_pairs(sheet) and not holds_pairs(log)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ('{"a": 1, "b": 2}', "there is no 'id'"),
        ("{{{", "malformed"),
        ("[1]", "not a labelled pair"),
        ('{"id": "x", "lang": "en", "category": "c", "a": {"messages": []}, "b": {}}', "not a labelled|there is no"),
    ],
)
def test_a_broken_row_of_pairs_stops_with_its_line(tmp_path: Path, row: str, why: str) -> None:
    good: dict[str, object] = {"id": "1", "lang": "en", "category": "related", "equivalent": False}
    good |= {side: {"messages": [{"role": "user", "content": side}]} for side in ("a", "b")}
    file = tmp_path / "pairs.jsonl"
    file.write_text(f"{json.dumps(good)}\n\n{row}\n")
    with pytest.raises(TrafficError, match=r"pairs\.jsonl:3: ") as raised:
        labelled(file)
    assert re.search(why, str(raised.value))
    file.write_text(json.dumps(good))
    assert [p.domain for p in labelled(file)] == ["pairs"]


@pytest.mark.slow
def test_a_log_gives_thresholds_or_says_why_not(tmp_path: Path, shared: Path) -> None:
    log = tmp_path / "log.jsonl"
    with (shared / "data" / "chats" / "mtrag_conversations.jsonl").open() as chats:
        log.write_text("".join(next(chats) for _ in range(6)))
    assert not run([log], Options(), json_out=tmp_path / "o.json", html=tmp_path / "o.html")
    figures = json.loads((tmp_path / "o.json").read_text())["figures"]
    assert figures["n"]["samples"] + figures["unclear"] > 10 and "299" in figures["why_not"] + str(figures["needed"])


def test_what_shadow_mode_observed_gives_thresholds_for_the_shipped_model(tmp_path: Path) -> None:
    file, out = tmp_path / "s.jsonl", tmp_path / "t.json"
    with file.open("wb") as lines:
        for sample in drawn(4000):
            seen = Observation(time=1.0, level="miss", entry="e", confidence=sample.score,
                               verdict="agree" if sample.right else "differ", lang="en", intent="how_to")  # fmt: skip
            lines.write(msgspec.json.encode(seen) + b"\n")
    assert run([file], Options(), from_shadow=True, out=out)
    made = read_thresholds(out, load().version)
    assert point_at(drawn(40_000, seed=9), made.answer).right / point_at(drawn(40_000, seed=9), made.answer).hits > 0.99


@given(st.integers(0, 300), st.integers(0, 300), st.floats(0.001, 0.2))
def test_the_bounds_enclose_the_share_they_are_about(successes: int, failures: int, alpha: float) -> None:
    n = successes + failures
    low, high = least_share(successes, n, alpha), most_share(successes, n, alpha)
    assert 0.0 <= low <= (successes / n if n else 0.5) + 1e-12
    assert (successes / n if n else 0.5) - 1e-12 <= high <= 1.0
