"""The audit as a report: the verdict first, then what it rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from eval.audit.sheet import Row, text_of
from eval.audit.tally import AGES, Share, Tally
from eval.report import Bars, Column, Curve, Lines, Report, Section
from eval.report.document import Tone
from fingerprint.hygiene import Summary
from store.types import Policy

__all__ = ["LITTLE", "MUCH", "Inputs", "report_of", "verdict"]

LITTLE: Final = 0.30
MUCH: Final = 0.60
"""The marks: under the first, answers repeat too seldom for a semantic cache to pay; above the second it carries the
load. Between them it depends on what an answer costs."""

_EXAMPLES: Final = 6  # of each kind
_MOST_BARS: Final = 12


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a report is made from."""

    tally: Tally
    problems: Mapping[str, Any]
    identities: int
    partitions: int
    prefixes: Sequence[Summary]
    prefix_requests: int
    rows: Sequence[Row]
    seen: Mapping[str, int]
    policy: Policy
    model: str
    files: Sequence[str]
    command: str
    failures: Mapping[str, int]
    timings: Mapping[str, float]
    seed: int
    replies: bool


def verdict(share: Share) -> tuple[str, str, Tone]:
    """Return (headline, why, tone) for the share of turns with an earlier equivalent, by where its interval lies."""
    if not share.n:
        return "There is nothing to judge", "The log has no turns.", "plain"
    low, high = share.interval
    span = f"between {100 * low:.1f} and {100 * high:.1f} % of the turns (95 %)"
    if high < LITTLE:
        return (
            "Answers repeat too seldom",
            f"The cache would have answered {span}, under the mark of 30 %. Forward everything and reuse prefixes only "
            "(decision.enabled = false), or look at the intents below: one of them alone may be worth it.",
            "bad",
        )
    if low >= MUCH:
        return (
            "Clearly worth it",
            f"The cache would have answered {span}, over the mark of 60 %. Label the sheet to know how many of these "
            "answers would have been right, then calibrate.",
            "good",
        )
    if low >= LITTLE:
        return (
            "Worth it",
            f"The cache would have answered {span}, over the mark of 30 %. Label the sheet to know how many of these "
            "answers would have been right, then calibrate.",
            "good",
        )
    return (
        "It cannot be told yet",
        f"The cache would have answered {span}; the mark of 30 % lies within. Audit a longer log.",
        "doubtful",
    )


def report_of(inputs: Inputs) -> Report:
    """Return the report."""
    tally = inputs.tally
    span = ""
    if tally.first_at is not None and tally.last_at is not None:
        began, ended = (
            datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%d %H:%M") for t in (tally.first_at, tally.last_at)
        )
        span = f", {began} to {ended} UTC"
    report = Report(
        "audit",
        "Is it worth it?",
        command=inputs.command,
        subtitle=f"{tally.turns:,} turns of {len(tally.conversations):,} conversations{span}",
        facts={
            "files": list(inputs.files),
            "thresholds": {"answer": inputs.policy.answer, "verify": inputs.policy.verify, "model": inputs.model},
            "seed": inputs.seed,
            "replies_embedded": inputs.replies,
            "input": dict(inputs.problems),
            "store_failures": dict(inputs.failures),
            "timings": {name: round(value, 3) for name, value in inputs.timings.items()},
        },
    )
    _repeats(report, tally)
    _stakes(report, tally)
    _who(report, tally)
    _refused(report, tally)
    _prefixes(report, inputs)
    _examples(report, inputs)
    _input(report, inputs)
    return report


def _repeats(report: Report, tally: Tally) -> None:
    part = report.section(
        "Repeats",
        "Each turn was asked, in the order of the log, of a cache that held the turns before it: the same look-up, "
        "guards, confidence and thresholds that serve. What it would have answered is not yet what it would have "
        "answered rightly: that is what the sheet is for.",
        key="repeats",
    )
    headline, why, tone = verdict(tally.served)
    part.words(why, headline=headline, tone=tone)
    share = tally.served
    part.figure(
        "served", "Turns the cache would have answered", share.value, unit="share", interval=share.interval, n=share.n
    )
    for key, kind, name in (
        ("exact", "exact", "… in the very same words"),
        ("reworded", "reworded", "… in other words, opening a conversation"),
        ("in_context", "in context", "… in other words, within a conversation"),
        ("not_sure", "not sure", "Near, and not sure enough to answer"),
    ):
        _share(part, key, name, tally.kinds[kind])
    so_far, shares = 0, []
    for served, turns in tally.stretches:
        so_far += turns
        shares.append((so_far, 100 * served / turns if turns else 0.0))
    if len(shares) > 1:
        part.plot(
            Lines(
                "over_time",
                "Share of turns answered, as the cache fills",
                [Curve("of each stretch", [x for x, _ in shares], [y for _, y in shares], n=tally.turns, points=True)],
                "turns asked so far",
                "answered from the cache, % of the stretch",
                ylim=(0, max(5.0, 1.15 * max(y for _, y in shares))),
                note="Where the line still rises at the end, a longer log would show a larger share.",
            )
        )


def _share(part: Section, key: str, name: str, share: Share) -> None:
    part.figure(key, name, share.value, unit="share", interval=share.interval if share.n else None, n=share.n)


def _stakes(report: Report, tally: Tally) -> None:
    part = report.section(
        "At stake", "What the turns that the cache would have answered cost at the backend.", key="stakes"
    )
    estimated = "" if tally.tokens_told == tally.turns else f"{tally.turns - tally.tokens_told:,} turns estimated"
    share = tally.tokens_at_stake / tally.tokens if tally.tokens else None
    part.figure("tokens", "Tokens not computed", tally.tokens_at_stake, unit="tokens", note=estimated)
    part.figure("tokens_share", "… of all tokens", share, unit="share", n=tally.turns)
    part.figure(
        "prompt_tokens", "… of these in prompts", tally.prompt_tokens_at_stake, unit="tokens",
        note="a warm prefix cache skips many of them anyway",
    )  # fmt: skip
    if tally.seconds_told:
        part.figure(
            "seconds", "Time users would not have waited", tally.seconds_at_stake, unit="seconds",
            n=tally.seconds_told_served,
        )  # fmt: skip
        part.figure(
            "seconds_share", "… of all waiting", tally.seconds_at_stake / tally.seconds if tally.seconds else None,
            unit="share", n=tally.seconds_told,
        )  # fmt: skip
    else:
        part.figure(
            "seconds", "Time users would not have waited", None, unit="seconds", note="the log tells no times taken"
        )


def _who(report: Report, tally: Tally) -> None:
    part = report.section("By intent and age", key="groups")
    for key, title, groups in (
        ("by_intent", "Answered from the cache, by intent", tally.by_intent),
        ("by_language", "Answered from the cache, by language", tally.by_language),
        ("by_model", "Answered from the cache, by model", tally.by_model),
    ):
        if len(groups) < 2 and key != "by_intent":
            continue
        shown = sorted(groups.items(), key=lambda item: -item[1].n)[:_MOST_BARS]
        if shown:
            part.plot(_bars(key, title, shown, "share of the turns of that kind, %"))
    told = sum(tally.ages.values())
    if told:
        rows = [(name, tally.ages[name], tally.ages[name] / told) for name, _ in AGES if tally.ages[name]]
        part.table(
            "ages",
            "How old the earlier equivalent was",
            [Column("age", text=True), Column("turns", "count"), Column("share", "share")],
            rows,
            note="A lifetime (store.default_ttl_s) shorter than most of these ages would lose them.",
        )


def _bars(key: str, title: str, groups: Sequence[tuple[str, Share]], xlabel: str) -> Bars:
    intervals = [share.interval for _, share in groups]
    return Bars(
        key,
        title,
        [name.replace("_", " ") for name, _ in groups],
        [share.value or 0.0 for _, share in groups],
        xlabel,
        [low for low, _ in intervals],
        [high for _, high in intervals],
        [share.n for _, share in groups],
    )


def _refused(report: Report, tally: Tally) -> None:
    part = report.section("Why the others were not answered", key="refused")
    rows: list[tuple[str, str, int, float]] = []
    for group, counts in (
        ("not looked up", tally.not_looked_up), ("asked of the model", tally.reasons),
    ):  # fmt: skip
        rows += [(group, reason, n, n / tally.turns) for reason, n in counts.most_common(12)]
    regenerated = tally.kinds["regenerate"].hits
    if regenerated:
        rows.append(("asked of the model", "asked again in the same session", regenerated, regenerated / tally.turns))
    columns = [Column("", text=True), Column("reason", text=True), Column("turns", "count"), Column("share", "share")]
    part.table("reasons", "Turns by reason", columns, rows)
    if tally.vetoes:
        part.table(
            "vetoes",
            "Guards that vetoed the best candidate",
            [Column("guard", text=True), Column("turns", "count")],
            tally.vetoes.most_common(15),
        )


def _prefixes(report: Report, inputs: Inputs) -> None:
    tally = inputs.tally
    part = report.section(
        "Prefixes",
        "What keeps the backend's KV cache from reusing a prompt it has nearly seen: the first difference ends the "
        "prefix, whatever comes behind it. Tokens are estimates.",
        key="prefixes",
    )
    part.figure(
        "identities",
        "Different identities",
        inputs.identities,
        unit="count",
        note="model, system prompt, tools, fields",
    )
    part.figure("partitions", "Groups that share answers", inputs.partitions, unit="count")
    if inputs.prefixes:
        part.table(
            "causes",
            "What breaks prefixes",
            [
                Column("cause", text=True), Column("requests", "count"), Column("tokens", "tokens"),
                Column("where", text=True), Column("for example", text=True), Column("what to do", text=True),
            ],
            [
                (
                    one.cause, one.requests, one.tokens, max(one.where, key=one.where.__getitem__, default=""),
                    one.example, one.advice,
                )
                for one in inputs.prefixes
            ],
        )  # fmt: skip
        patterns = sorted(set().union(*(one.patterns for one in inputs.prefixes)))
        if patterns:
            part.words(
                "sharing.volatile_system_parts = [" + ", ".join(f"'{pattern}'" for pattern in patterns) + "]",
                headline="A setting that lets requests share answers though their system prompts differ in these parts",
            )
    elif inputs.prefix_requests:
        part.words("No request broke a prefix that the one before it had left.")
    if tally.turns and inputs.identities > 0.5 * tally.turns and tally.turns > 20:
        part.words(
            "More than half of the requests have an identity of their own, so that hardly any could share an answer. "
            "Look for what varies: a date in the system prompt, a field with an id in it.",
            headline="Requests differ in what they ask with, not only in what they ask",
            tone="doubtful",
        )


def _examples(report: Report, inputs: Inputs) -> None:
    part = report.section(
        "Pairs to label",
        "Drawn at random from each stratum. Whether the stored answer would do for the turn that was asked is for a "
        "person to say: label the sheet (antiphon label), then calibrate with it.",
        key="sheet",
    )
    drawn = {name: [row for row in inputs.rows if row.stratum == name] for name in inputs.seen}
    part.table(
        "strata",
        "The sheet",
        [Column("stratum", text=True), Column("turns in the log", "count"), Column("drawn", "count")],
        [(name, inputs.seen[name], len(rows)) for name, rows in drawn.items()],
    )
    for rows in drawn.values():
        for row in rows[:_EXAMPLES]:
            part.example(
                f"{row.stratum}: {' '.join(row.asked.message.text.split())[:90]}",
                [("stored", text_of(row.stored)), ("asked", text_of(row.asked))],
                facts=[f"similarity {row.similarity:.2f}, confidence {row.confidence:.2f}", row.reason],
            )


def _input(report: Report, inputs: Inputs) -> None:
    part = report.section("What was read", key="input")
    part.figure("rows", "Rows", int(inputs.problems["rows"]), unit="count")
    part.figure("skipped", "Rows that could not be used", int(inputs.problems["skipped"]), unit="count")
    part.figure("ignored", "Rows without a chat turn", sum(inputs.problems["ignored"].values()), unit="count")
    part.figure("untimed", "Turns without a time", inputs.tally.turns - inputs.tally.timed, unit="count")
    if inputs.problems["first"]:
        part.table(
            "bad_rows",
            "The first rows that could not be used",
            [Column("file", text=True), Column("line"), Column("why", text=True)],
            [(p["file"], str(p["line"]), p["why"]) for p in inputs.problems["first"][:20]],
        )
    if inputs.failures:
        part.words(
            ", ".join(f"{name}: {count}" for name, count in sorted(inputs.failures.items())),
            headline="The store failed now and then; these turns count as not answered",
            tone="doubtful",
        )
