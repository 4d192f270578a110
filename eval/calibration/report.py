"""The report of a calibration: what is promised, what it rests on, and the curves to judge it by."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eval.calibration.figures import curves
from eval.calibration.samples import Sample, rights, scores
from eval.observed.misjudged import Cluster
from eval.observed.report import misjudged_section
from eval.report import Bars, Column, Curve, Histogram, Lines, Mark, Report

__all__ = ["report_on"]


def report_on(
    figures: dict[str, Any], samples: Sequence[Sample], misjudged: Sequence[Cluster] = (), *, command: str
) -> Report:
    """Put the report together from the figures of `eval.calibration.command.calibrate`."""
    report = Report(
        kind="calibrate",
        title="Thresholds for your traffic",
        subtitle=f"{figures['n']['samples']:,} samples from {_named(figures['sources'])}",
        command=command,
        facts={"figures": figures},
    )
    _promise(report, figures)
    if samples:
        _curves(report, figures, samples)
    _groups(report, figures)
    _windows(report, figures)
    _refit(report, figures)
    misjudged_section(report, misjudged)
    return report


def _named(sources: Sequence[str]) -> str:
    names = [Path(source).name for source in sources[:4]]
    return ", ".join(names) + (f" and {len(sources) - 4} more" if len(sources) > 4 else "")


def _promise(report: Report, f: dict[str, Any]) -> None:
    part = report.section("What can be promised")
    supported = f["answer"] is not None
    if supported:
        words = f"answer = {f['answer']:.4f}, verify = {f['verify']:.4f}"
        why = f"Goal: {f['goal']['in_words']}. "
        if f["bound"] is not None:
            side = "at least" if f["goal"]["kind"] == "precision" else "at most"
            why += f"The samples support {side} {100 * f['bound']:.2f} %."
        part.words(why, headline=words, tone="good")
    else:
        part.words(
            f"Goal: {f['goal']['in_words']}. {f['why_not'][:1].upper()}{f['why_not'][1:]}.",
            headline="The samples do not support the goal", tone="bad",
        )  # fmt: skip
    if f["raised"]:
        part.words(f["raised"], headline="Raised for one language", tone="doubtful")
    for name in f["missed"]:
        part.words(
            f"Beyond doubt the goal is missed for {name} at this threshold: calibrate it apart, or add samples.",
            headline=f"Missed for {name}", tone="bad",
        )  # fmt: skip
    at = f["at"] if supported else f["shipped"]
    which = "" if supported else " at the shipped threshold"
    part.figure("precision", f"Hits that are right{which}", at["precision"], unit="share",
                interval=tuple(at["precision_ci"]) if at["hits"] else None, n=at["hits"])  # fmt: skip
    part.figure("reused", f"Right stored answers that are reused{which}", at["right_rate"], unit="share",
                interval=tuple(at["right_ci"]) if at["n_right"] else None, n=at["n_right"])  # fmt: skip
    part.figure("wrong", f"Wrong stored answers that are served{which}", at["wrong_rate"], unit="share",
                interval=tuple(at["wrong_ci"]) if at["n_wrong"] else None, n=at["n_wrong"])  # fmt: skip
    part.figure("needed", "Fewest samples, without an error, that support the goal", f["needed"], unit="count",
                note=f"there are {f['have']}")  # fmt: skip
    forbidden = f["n"]["forbidden"]
    n_right, n_wrong = f["n"]["right"], f["n"]["wrong"]
    part.figure("forbidden_right", "Right answers that admission or a guard forbids",
                forbidden["right"] / n_right if n_right else None, unit="share", n=n_right)  # fmt: skip
    part.figure("forbidden_wrong", "Wrong answers that admission or a guard forbids",
                forbidden["wrong"] / n_wrong if n_wrong else None, unit="share", n=n_wrong)  # fmt: skip
    if f.get("unclear"):
        part.words(
            f"{f['unclear']} look-ups are left out: whether the stored answer says the same as the real one could not "
            "be told. Were they mostly wrong, the promise would be too good; look at some of them."
        )


def _curves(report: Report, f: dict[str, Any], samples: Sequence[Sample]) -> None:
    part = report.section("What it rests on")
    score, right = scores(samples), rights(samples)
    asked = score > 0
    marks = [Mark(f["answer"], "answer"), Mark(f["verify"], "verify")] if f["answer"] is not None else []
    marks.append(Mark(f["shipped"]["threshold"], "shipped answer"))
    part.plot(
        Histogram("distributions", "Confidence in right and in wrong stored answers",
                  {"right": score[right & asked].tolist(), "wrong": score[~right & asked].tolist()},
                  "confidence", limits=(0.0, 1.0), marks=marks,
                  note="without those that admission or a guard forbids")
    )  # fmt: skip
    found = curves(samples)
    at, name = (f["at"], "answer") if f["answer"] is not None else (f["shipped"], "shipped answer")
    n_right, n_wrong = int(right.sum()), int((~right).sum())
    if found["roc"] and n_right and n_wrong:
        x = [0.0, *(p[0] for p in found["roc"])]
        y = [0.0, *(p[1] for p in found["roc"])]
        here = [Mark(at["wrong_rate"] or 0.0, name, at["right_rate"] or 0.0)]
        auc = f" (AUC {f['auc']:.3f})" if f["auc"] is not None else ""
        part.plot(
            Lines("roc", f"ROC{auc}", [Curve("all thresholds", x, y, n=len(samples), steps=True)],
                  "wrong stored answers served, share", "right ones reused, share", xlim=(0, 1), ylim=(0, 1),
                  diagonal="blind", marks=here, square=True,
                  note="the curve ends where everything is served that no guard forbids")
        )  # fmt: skip
    if found["precision_recall"]:
        rows = sorted(found["precision_recall"])
        here = [Mark(at["right_rate"] or 0.0, name, at["precision"])] if at["precision"] is not None else []
        lowest = max(0.0, min(p[1] for p in rows) - 0.05)
        part.plot(
            Lines("precision_recall", "Precision and recall",
                  [Curve("precision, with its 95 % interval", [p[0] for p in rows], [p[1] for p in rows],
                         [max(p[3], lowest) for p in rows], [p[4] for p in rows], n=len(samples))],
                  "right stored answers reused, share", "hits that are right, share", xlim=(0, 1),
                  ylim=(lowest, 1.002), marks=here)
        )  # fmt: skip
    if found["reliability"]:
        bins = found["reliability"]
        part.plot(
            Lines("reliability", "Reliability of the confidence",
                  [Curve("seen", [b["mean"] for b in bins],
                         [b["share"] for b in bins], [b["ci"][0] for b in bins], [b["ci"][1] for b in bins],
                         n=int(np.sum(asked)), points=True)],
                  "confidence", "stored answers that are right, share", xlim=(0, 1), ylim=(0, 1), diagonal="perfect",
                  square=True, note="with 95 % intervals; depends on the mix of right and wrong pairs in the file")
        )  # fmt: skip


def _groups(report: Report, f: dict[str, Any]) -> None:
    part = None
    for key, one, title in (
        ("languages", "language", "By language"),
        ("intents", "intent", "By intent"),
        ("categories", "category", "By category"),
    ):
        found = {name: g for name, g in f[key].items() if g["at"] is not None}
        if len(found) < (1 if key == "languages" else 2):
            continue
        part = part or report.section("Where", "Groups of at least 20 samples, all at the same threshold.")
        part.table(
            key,
            title,
            (Column(one, text=True), Column("samples"), Column("hits"), Column("right", "share"),
             Column("from", "share"), Column("to", "share"), Column("reused", "share"), Column("AUC", "score"),
             Column("threshold of its own", "score")),
            [
                (name, g["n"], g["at"]["hits"], g["at"]["precision"],
                 *(g["at"]["precision_ci"] if g["at"]["hits"] else (None, None)), g["at"]["right_rate"], g["auc"],
                 g["own"])
                for name, g in found.items()
            ],
            note="A group without a threshold of its own has too few samples to support the goal by itself.",
        )  # fmt: skip


def _windows(report: Report, f: dict[str, Any]) -> None:
    windows = f.get("windows") or {}
    if not windows:
        return
    part = report.section(
        "Window length",
        "The same questions, all in one cache, with windows of different lengths (store.window_rounds).",
    )
    part.table(
        "windows",
        "Rounds in the window",
        (Column("rounds", text=True), Column("right hits", "share"), Column("from", "share"), Column("to", "share"),
         Column("wrong hits", "share"), Column("from ", "share"), Column("to ", "share"), Column("AUC", "score")),
        [
            (rounds, w["right_rate"], *(w["right_ci"] if w["n_equivalent"] else (None, None)), w["wrong_rate"],
             *(w["wrong_ci"] if w["wrong_rate"] is not None else (None, None)), w["auc"])
            for rounds, w in windows.items()
        ],
    )  # fmt: skip


def _refit(report: Report, f: dict[str, Any]) -> None:
    r = f["refit"]
    if r is None:
        return
    part = report.section("Corrected confidence")
    if r["used"]:
        part.words(f"A {r['method']} curve corrects the model's confidence.", headline="Corrected", tone="good")
    else:
        part.words(
            f"{r['why_not'][:1].upper()}{r['why_not'][1:]}.", headline="The shipped curve stays", tone="doubtful"
        )
    if r["calibration_error"] is not None:
        part.plot(
            Bars("calibration_error", "Mean distance of confidence and truth, on samples the curve was not fitted to",
                 ["shipped", r["method"]], [r["calibration_error"]["before"], r["calibration_error"]["after"]],
                 "calibration error", n=[r["n"], r["n"]], percent=False)
        )  # fmt: skip
