"""``antiphon audit``: what the cache would have answered, found by the code that serves."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import sqlite3
import stat
import time
import tomllib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from eval.admission import Rules, admit
from eval.audit.errors import AuditError
from eval.audit.label import label, pairs_of, summary
from eval.audit.report import verdict
from eval.audit.run import Audit, Options, audit
from eval.audit.sheet import read_sheet, write_sheet
from eval.audit.spool import Spool
from eval.audit.tally import Share
from eval.audit.vectors import KeptVectors
from eval.audit.walk import Outcome, Walk
from eval.bench.audit_log import write_log
from eval.data import DataMissing, data_root, read_pairs
from eval.statistics import clustered, wilson
from eval.traffic import BadRow, Record, TrafficError, encode_record, read_turns, turns_of
from fingerprint.embedding.base import Embedding, TextEmbedder
from proxy.endpoints import ENDPOINTS
from proxy.plans import Planner
from proxy.settings import Settings
from store.cache import Cache
from store.judges import Judges
from store.settings import StoreSettings
from store.sqlite import SqliteDatabase
from store.types import Answer, Policy, ReuseConfidence
from tests.store.support import NearEnough, WordEmbedder

POLICY = Policy(answer=0.9, verify=0.7)


def record(text: str, at: float, *, before: Sequence[tuple[str, str]] = (), **more: Any) -> Record:
    history = [
        message
        for asked, said in before
        for message in ({"role": "user", "content": asked}, {"role": "assistant", "content": said})
    ]
    fields: dict[str, Any] = {"answer": f"Answer to: {text}", "turns": "last", "model": "m", **more}
    return Record(messages=[*history, {"role": "user", "content": text}], time=1_700_000_000 + at, **fields)


def written(folder: Path, records: Sequence[Record], name: str = "log.jsonl") -> Path:
    path = folder / name
    path.write_bytes(b"".join(map(encode_record, records)))
    return path


def audited(path: Path, *, embedder: TextEmbedder | None = None, **options: Any) -> Audit:
    return audit(
        [path],
        Options(**options),
        embedder=embedder or WordEmbedder(),
        confidence=NearEnough(),
        policy=POLICY,
        keep=path.parent / "kept.sqlite3",
    )


# ------------------------------------------------------------------------------------------------------ what is found

LOG = [
    record("How tall is the tower of Pisa", 0, session="a"),
    record("How tall is the tower of Pisa", 30, session="b"),  # exact
    record("How tall is the tower of Pisa please", 90_000, session="c"),  # reworded
    record("Where do puffins breed", 100_000, session="d"),  # new
    record("And in which months", 100_010, before=[("Where do puffins breed", "Answer to: Where do puffins breed")],
           session="d"),
    record("And months which in", 200_000, before=[("Where do puffins breed", "Answer to: Where do puffins breed")],
           session="e"),  # in context
    record("Where do puffins breed", 200_100, session="d"),  # regenerate
    record("What is the weather in Oslo right now", 200_200, session="f"),  # time-sensitive
    record("What is the weather in Oslo right now", 200_201, session="g"),
]  # fmt: skip


def test_repeats_are_found_exact_reworded_and_in_context(tmp_path: Path) -> None:
    tally = audited(written(tmp_path, LOG)).tally
    found = {kind: share.hits for kind, share in tally.kinds.items() if share.hits}
    assert found == {"exact": 1, "reworded": 1, "in context": 1, "new": 3, "regenerate": 1, "not looked up": 2}
    assert (tally.served.hits, tally.served.n) == (3, 9)
    assert dict(tally.ages) == {"under a minute": 1, "under a week": 2}
    assert dict(tally.not_looked_up) == {"time-sensitive": 2}


def test_a_log_out_of_order_is_asked_in_the_order_of_its_times(tmp_path: Path) -> None:
    shuffled = list(LOG)
    random.Random(1).shuffle(shuffled)
    assert audited(written(tmp_path, shuffled)).tally.kinds["exact"].hits == 1
    assert audited(written(tmp_path, shuffled)).tally.served.hits == 3


def test_an_answer_older_than_its_lifetime_does_not_count(tmp_path: Path) -> None:
    store = StoreSettings.model_validate({"default_ttl_s": 60.0})
    tally = audited(written(tmp_path, LOG), store=store).tally
    assert {kind: s.hits for kind, s in tally.kinds.items() if s.hits and kind != "new"} == {
        "exact": 1, "regenerate": 1, "not looked up": 2
    }  # fmt: skip


def test_a_corrected_answer_is_not_found_again(tmp_path: Path) -> None:
    first = ("Tell me about the red fox", "Answer to: Tell me about the red fox")
    log = [
        record(first[0], 0, session="a"),
        record("No, that is wrong, I meant the arctic fox", 10, before=[first], session="a"),
        record(first[0], 20, session="b"),
    ]
    assert audited(written(tmp_path, log[:1] + log[2:])).tally.kinds["exact"].hits == 1
    tally = audited(written(tmp_path, log)).tally
    assert dict(tally.not_looked_up) == {"correction": 1}
    assert tally.served.hits == 0


def test_callers_do_not_share_unless_the_operator_says_so(tmp_path: Path) -> None:
    log = [record("Where do puffins breed", n, caller=f"key{n}", session=f"s{n}") for n in range(3)]
    assert audited(written(tmp_path, log)).tally.served.hits == 0
    assert audited(written(tmp_path, log), rules=Rules(share="tenant")).tally.served.hits == 2


def test_an_answer_that_failed_or_was_cut_off_is_not_there_to_be_found(tmp_path: Path) -> None:
    for broken in ({"finish_reason": "length"}, {"failed": True, "answer": None}):
        log = [record("Where do puffins breed", 0, **broken), record("Where do puffins breed", 1)]
        assert audited(written(tmp_path, log)).tally.served.hits == 0


def test_what_is_at_stake_is_what_the_answered_turns_cost(tmp_path: Path) -> None:
    log = [
        record("Where do puffins breed", n, session=f"s{n}", prompt_tokens=100, completion_tokens=50, seconds=2.0)
        for n in range(4)
    ]
    tally = audited(written(tmp_path, log)).tally
    assert (tally.tokens, tally.tokens_at_stake, tally.prompt_tokens_at_stake) == (600, 450, 300)
    assert (tally.seconds, tally.seconds_at_stake, tally.tokens_told) == (8.0, 6.0, 4)


class Letters:
    """Embeds a text as its letters."""

    name = "letters"

    def encode(self, texts: Sequence[str]) -> list[Embedding | None]:
        out: list[Embedding | None] = []
        for text in texts:
            vector = np.full(26, 0.01, np.float32)
            for letter in text.lower():
                vector[ord(letter) % 26] += 1
            out.append(Embedding(vector / np.float32(np.linalg.norm(vector)), "letters"))
        return out


class Nearest(NearEnough):
    """Says under which cosine it serves nothing, as the shipped confidence does."""

    nearest = {"en": 0.9, "zh": 0.9}  # noqa: RUF012


def a_random_log(turns: int, seed: int) -> list[Record]:
    """Few words, many repeats, conversations that interleave, corrections among them."""
    rng = random.Random(seed)
    words = ["puffins", "towers", "rivers", "engines", "violins", "deserts"]
    open_: dict[str, list[tuple[str, str]]] = {}
    log = []
    for n in range(turns):
        session = f"s{rng.randrange(turns // 3)}"
        before = open_.setdefault(session, [])
        text = f"{rng.choice(['Where are', 'How old are', 'Who likes'])} {rng.choice(words)} {rng.choice(words)}"
        if before and rng.random() < 0.1:
            text = "No, that is wrong"
        log.append(record(text, n, before=before[-3:], session=session, answer=f"About {text}"))
        before.append((text, f"About {text}"))
    return log


def outcomes(
    path: Path,
    folder: Path,
    embedder: TextEmbedder,
    confidence: ReuseConfidence,
    policy: Policy,
    at_once: int,
    judges: Judges | None = None,
    depth: int = 32,
) -> list[Outcome]:
    folder.mkdir()
    vectors = KeptVectors(embedder, path.parent / "kept.sqlite3")
    spool = Spool(folder)
    for logged in spool.fill(read_turns([path])):
        for message in (*logged.turn.history, logged.turn.message):
            spool.want(vectors.key(message.text), message.text)
    spool.sort()
    vectors.make(spool.wanted(), threads=2, done=lambda count: None)
    walk = Walk(
        spool,
        vectors,
        confidence=confidence,
        policy=policy,
        settings=StoreSettings.model_validate({"retrieval_depth": depth}),
        threads=2,
        at_once=at_once,
        judges=judges,
    )

    async def go() -> list[Outcome]:
        return [outcome async for outcome in walk.run()]

    found = asyncio.run(go())
    spool.close()
    vectors.close()
    assert walk.failures == {}
    return found


def what_was_decided(found: Sequence[Outcome]) -> list[tuple[int, str, int | None]]:
    return [(o.number, o.kind, o.earlier if o.served else None) for o in found]


async def through_the_cache(
    path: Path, embedder: TextEmbedder, confidence: ReuseConfidence, policy: Policy
) -> list[str]:
    """The same log asked of the cache one by one, as the proxy would, and nothing else."""
    now = 0.0
    settings = StoreSettings.model_validate(
        {"url": "sqlite://", "lookup_deadline_ms": 60_000, "embed_deadline_ms": 60_000, "decide_deadline_ms": 60_000}
    )
    cache = await Cache.open(settings, embedder=embedder, confidence=confidence, policy=policy, clock=lambda: now)
    found = []
    try:
        for logged in read_turns([path]):
            now = logged.time or now
            one = admit(logged, Rules(), embedder=embedder.name, decision=cache.decision)
            query = one.query
            if one.correction:
                await cache.correct(query)
            if one.bypass is not None:
                found.append("not looked up")
                continue
            if cache.served_before(query):
                kind, hit = "regenerate", None
            elif (hit := await cache.exact(query)) is not None:
                kind = "exact"
            else:
                decision, hit = await cache.search(query)
                kind = "not sure" if decision.level == "kv" else "new"
                if hit is not None:
                    kind = "in context" if query.turn.history else "reworded"
            if hit is not None:
                cache.follow(query, replace(hit, answer=replace(hit.answer, text=logged.answer or "")))
            else:
                cache.record(query, Answer(b"{}", logged.answer or "", 0, 0, 0.0))
            await cache.flush()
            found.append(kind)
    finally:
        await cache.close()
    return found


@pytest.mark.parametrize(("depth", "count", "corrections"), [(32, 8, True), (3, 8, True), (8, 1, True), (4, 2, False)])
@pytest.mark.parametrize("seed", [1])
def test_asking_several_at_a_time_decides_what_the_cache_decides_one_by_one(
    tmp_path: Path, seed: int, depth: int, count: int, corrections: bool
) -> None:
    log = [one for one in a_random_log(90, seed) if corrections or "wrong" not in one.messages[-1]["content"]]
    path = written(tmp_path, log)
    policy = Policy(answer=0.97, verify=0.9, max_candidates=count)
    several = outcomes(path, tmp_path / "a", Letters(), Nearest(), policy, at_once=12, depth=depth)
    single = outcomes(path, tmp_path / "b", Letters(), Nearest(), policy, at_once=1, depth=depth)
    assert what_was_decided(several) == what_was_decided(single)
    if depth != 32:
        return
    direct = asyncio.run(through_the_cache(path, Letters(), Nearest(), policy))
    assert [o.kind for o in single] == direct
    assert len(set(direct)) >= 5, "the log shows little"


@pytest.mark.slow
def test_with_the_shipped_models_too_the_audit_decides_what_the_cache_decides(tmp_path: Path) -> None:
    from fingerprint.embedding.router import load_router
    from store.confidence import load, thresholds

    try:
        write_log(tmp_path / "log.jsonl", 250)
    except DataMissing as missing:
        pytest.skip(str(missing))
    router, confidence, policy = load_router(), load(), thresholds()
    with Judges(2, load) as judges:
        several = outcomes(tmp_path / "log.jsonl", tmp_path / "a", router, confidence, policy, 12, judges)
    direct = asyncio.run(through_the_cache(tmp_path / "log.jsonl", router, confidence, policy))
    assert [o.kind for o in several] == direct


# -------------------------------------------------------------------------------------- admission is that of the proxy

TEXTS = (
    "What is a fjord?", "What is my balance?", "Write a poem about rain", "hello", "No, I meant the other one",
    "What time is it now?", "我的订单到哪了？", "Quel temps fait-il ?", "Can I return my shoes?", "Tell me about Rust",
)  # fmt: skip


@given(
    text=st.sampled_from(TEXTS),
    before=st.sampled_from(["", "What is a fjord?", "What is my balance?"]),
    session=st.none() | st.sampled_from(["s1", "s2"]),
    user=st.none() | st.sampled_from(["u1"]),
    fields=st.sampled_from([
        {}, {"temperature": 0.5}, {"tools": [{"type": "function"}]}, {"n": 2}, {"response_format": {"type": "text"}},
        {"response_format": {"type": "json_object"}}, {"logprobs": True}, {"background": True},
    ]),
    share=st.sampled_from(["session", "user", "credential", "tenant"]),
    creative=st.booleans(),
    time_sensitive=st.sampled_from(["never", "exact"]),
    system=st.sampled_from(["", "Be brief."]),
)  # fmt: skip
def test_admission_is_that_of_the_proxy(
    text: str, before: str, session: str | None, user: str | None, fields: dict[str, Any], share: Any, creative: bool,
    time_sensitive: Any, system: str,
) -> None:  # fmt: skip
    messages = [{"role": "system", "content": system}] if system else []
    if before:
        messages += [{"role": "user", "content": before}, {"role": "assistant", "content": "It is a bay."}]
    messages.append({"role": "user", "content": text})
    body = {"model": "m", "messages": messages, **fields} | ({"user": user} if user else {})
    settings = Settings.model_validate(
        {"sharing": {"share": share}, "admission": {"creative": creative, "time_sensitive": time_sensitive}}
    )
    headers = [(b"x-antiphon-session", session.encode())] if session else []
    plan = Planner(settings).plan(
        ENDPOINTS["/v1/chat/completions"], headers, b"", json.dumps(body).encode(), "127.0.0.1"
    )
    (logged,) = turns_of(Record(messages=messages, turns="last", session=session, user=user, model="m", request=fields))
    rules = Rules(share=share, creative=creative, time_sensitive=time_sensitive)
    one = admit(logged, rules, embedder="e", decision="d")
    assert (one.bypass or "").partition(":")[0] == (plan.bypass or "").partition(":")[0]
    assert one.correction == plan.correction
    if plan.bypass is None:
        assert one.query.semantic == plan.semantic
        assert one.query.ttl_s == plan.ttl_s
        assert one.query.partition == plan.partition


# ------------------------------------------------------------------------------------------------------------ prefixes


def test_what_breaks_prefixes_is_told_with_the_setting_that_helps(tmp_path: Path) -> None:
    def asked(day: int, text: str) -> Record:
        system = {"role": "system", "content": f"You help. Today is 2026-01-{day:02d}. Be brief."}
        return Record(
            messages=[system, {"role": "user", "content": text}],
            answer="Yes.",
            turns="last",
            time=day,
            session=f"s{day}",
        )

    log = [asked(day, "Where do puffins breed") for day in range(1, 29)]
    found = audited(written(tmp_path, log))
    assert found.tally.served.hits == 0, "each day's prompt is an identity of its own"
    (cause,) = found.report.document()["sections"]["prefixes"]["tables"]["causes"]["rows"]
    assert (cause["cause"], cause["requests"]) == ("volatile-system", 27)
    (setting,) = [v for v in found.report.document()["sections"]["prefixes"]["verdicts"] if "volatile" in v["text"]]
    patterns = tomllib.loads(setting["text"].partition("sharing.")[2])["volatile_system_parts"]
    rules = Rules(volatile=tuple(re.compile(pattern) for pattern in patterns))
    store = StoreSettings.model_validate({})
    assert audited(written(tmp_path, log), rules=rules, store=store).tally.served.hits == 27


# ------------------------------------------------------------------------------------------------------- what comes in


def test_an_empty_log_is_an_audit_of_nothing(tmp_path: Path) -> None:
    found = audited(written(tmp_path, []))
    assert (found.tally.turns, found.rows) == (0, [])
    found.report.write(html=tmp_path / "r.html", json=tmp_path / "r.json")
    assert "There is nothing to judge" in (tmp_path / "r.html").read_text("utf-8")
    found.report.show(Console(file=(tmp_path / "out").open("w")))


def test_a_single_turn_is_judged_without_a_promise(tmp_path: Path) -> None:
    found = audited(written(tmp_path, LOG[:1]))
    assert (found.tally.turns, found.tally.served.hits) == (1, 0)
    assert verdict(found.tally.served)[0] == "It cannot be told yet"


def test_bad_rows_are_told_in_the_report_and_strict_stops(tmp_path: Path) -> None:
    path = written(tmp_path, LOG)
    path.write_bytes(path.read_bytes() + b"{broken\n")
    found = audited(path)
    assert found.tally.turns == len(LOG)
    assert found.report.document()["input"]["first"][0]["line"] == len(LOG) + 1
    with pytest.raises(BadRow, match=f":{len(LOG) + 1}: not JSON"):
        audited(path, strict=True)


def test_huge_rows_go_through(tmp_path: Path) -> None:
    log = [record("Where do puffins breed " * 10_000, n, session=f"s{n}") for n in range(2)]
    log.append(record("x", 3, before=[("y " * 100_000, "z " * 900_000)], session="s9"))
    assert audited(written(tmp_path, log)).tally.kinds["exact"].hits == 1


def test_texts_of_any_kind_go_through(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"messages": [{"role": "user", "content": "\ud83d half"}], "answer": "\ud83d"},
        {"messages": [{"role": "user", "content": ""}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}]}]},
        {"messages": [{"role": "user", "content": "a\x00b"}], "session": ""},
        {"messages": [{"role": "tool", "content": "7", "tool_call_id": "t"}], "turns": "last"},
    ]
    path = tmp_path / "odd.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows * 2), "utf-8")
    tally = audited(path).tally
    assert tally.turns + audited(path).report.document()["input"]["skipped"] == 10


# ---------------------------------------------------------------------------------------------------------- embeddings


def test_no_text_is_embedded_twice_not_even_by_the_next_audit(tmp_path: Path) -> None:
    path = written(tmp_path, LOG)
    first = WordEmbedder()
    audited(path, embedder=first)
    assert len(first.seen) == len(set(first.seen)) == 6
    again = WordEmbedder()
    second = audited(path, embedder=again)
    assert again.seen == []
    assert second.tally.served.hits == 3
    assert second.report.document()["timings"]["found_on_disk"] == 6


def test_the_file_of_embeddings_holds_no_text(tmp_path: Path) -> None:
    audited(written(tmp_path, LOG))
    assert b"puffins" not in (tmp_path / "kept.sqlite3").read_bytes()


def test_a_new_folder_for_embeddings_is_for_its_owner_only(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        KeptVectors(WordEmbedder(), tmp_path / "new" / "kept.sqlite3").close()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


def test_a_file_that_is_no_file_of_embeddings_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, LOG)
    (tmp_path / "kept.sqlite3").write_bytes(b"something else, and long enough to be looked at" * 100)
    with pytest.raises(AuditError, match="cannot be used"):
        audited(path)


@pytest.mark.parametrize("journal", ["delete", "wal"])
@pytest.mark.parametrize(
    "tables",
    ["CREATE TABLE notes (text)", "CREATE TABLE vectors (id, text)", "CREATE VIEW v AS SELECT 1 AS one", "the store's"],
)
def test_a_database_of_something_else_is_not_written_to(tmp_path: Path, tables: str, journal: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    file = folder / "others.db"
    if tables == "the store's":
        SqliteDatabase.take(StoreSettings(url=f"sqlite:///{file}")).close()
    with closing(sqlite3.connect(file)) as database:
        database.execute(f"PRAGMA journal_mode = {journal}")
        if tables != "the store's":
            database.execute(tables)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}
    with pytest.raises(AuditError, match="is a database of something else: it is left alone"):
        KeptVectors(WordEmbedder(), file)
    assert before == {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


def test_a_file_of_embeddings_is_taken_up_again_after_a_kill_too(tmp_path: Path) -> None:
    file, killed = tmp_path / "kept.sqlite3", tmp_path / "killed.sqlite3"
    first = KeptVectors(WordEmbedder(), file)
    first.make([[(first.key("a word"), "a word")]], threads=1, done=lambda count: None)
    for ending in ("", "-wal"):  # what is only in the log of a process that did not end by itself
        killed.with_name(killed.name + ending).write_bytes(file.with_name(file.name + ending).read_bytes())
    first.close()
    for path in (file, killed):
        again = KeptVectors(WordEmbedder(), path)
        again.make([[(again.key("a word"), "a word")]], threads=1, done=lambda count: None)
        assert (again.made, again.found) == (0, 1)
        again.close()


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    audited(written(tmp_path, LOG))
    with pytest.raises(TrafficError):
        audited(tmp_path / "none.jsonl")
    assert list((tmp_path / "tmp").iterdir()) == []


# ------------------------------------------------------------------------------------------------------------ the sheet


def test_pairs_are_drawn_labelled_and_calibrated_with(tmp_path: Path) -> None:
    found = audited(written(tmp_path, LOG), sample=20)
    assert {row.stratum for row in found.rows} == {"served"}
    row = next(row for row in found.rows if row.asked.history)
    assert (row.stored.message.text, row.asked.message.text) == ("And in which months", "And months which in")
    sheet = tmp_path / "sheet.csv"
    write_sheet(found.rows, sheet)
    assert read_pairs(sheet) == [], "nobody has said anything yet"

    words = iter(["x", "y", "b", "y", "n"])
    rows = label(sheet, lambda question: next(words), Console(file=(tmp_path / "out").open("w")))
    assert [r.equivalent for r in rows] == [True, False]
    told = summary(rows)["served"]
    assert (told["labelled"], told["right"], told["share"]) == (2, 1, 0.5)
    pairs = read_pairs(sheet)
    assert [(p.equivalent, p.category, p.label_origin) for p in pairs] == [
        (True, "served", "operator"),
        (False, "served", "operator"),
    ]
    assert {p.b.message.text for p in pairs} == {r.asked.message.text for r in found.rows}
    assert len(pairs_of(rows)) == 2


def test_labelling_stops_and_goes_on_where_it_was(tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.csv"
    write_sheet(audited(written(tmp_path, LOG), sample=20).rows, sheet)
    words = iter(["n", "q"])
    with (tmp_path / "out").open("w") as out:
        label(sheet, lambda question: next(words), Console(file=out))
        rows = label(sheet, lambda question: "y", Console(file=out, width=60))
    assert [row.equivalent for row in rows] == [False, True]


def test_the_same_seed_draws_the_same_sheet(tmp_path: Path) -> None:
    path = written(tmp_path, a_random_log(60, 3))
    drawn = [[row.id for row in audited(path, sample=10, seed=seed).rows] for seed in (5, 5, 6)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert 0 < len(drawn[0]) <= 10


def test_weights_say_how_many_turns_a_row_stands_for(tmp_path: Path) -> None:
    found = audited(written(tmp_path, a_random_log(60, 3)), sample=10)
    seen = {
        t["stratum"]: t["turns in the log"]
        for t in found.report.document()["sections"]["sheet"]["tables"]["strata"]["rows"]
    }
    for stratum in {row.stratum for row in found.rows}:
        total = sum(row.weight for row in found.rows if row.stratum == stratum)
        assert total == pytest.approx(seen[stratum])


def test_no_cell_of_a_sheet_is_a_formula(tmp_path: Path) -> None:
    log = [record("=cmd|'/C calc'!A0", 0, session="a"), record("=cmd|'/C  calc'!A0", 9, session="b")]
    found = audited(written(tmp_path, log))
    rows = [replace_text(row) for row in found.rows]
    sheet = tmp_path / "sheet.csv"
    write_sheet(rows, sheet)
    text = sheet.read_text("utf-8")
    assert rows, "nothing was drawn"
    for line in text.replace('"', "").splitlines():
        assert not any(cell.startswith(("=", "+", "@")) for cell in line.split(","))
    assert [r.asked for r in read_sheet(sheet)] == [r.asked for r in rows]


def replace_text(row: Any) -> Any:
    row.note = "=1+1"
    return row


@pytest.mark.parametrize(
    ("text", "why"),
    [("", "no sheet"), ("id,b\n1,2\n", "no sheet"), ("equivalent,question1,question2\nperhaps,a,b\n", "is no label")],
)
def test_what_is_no_sheet_is_refused(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "sheet.csv"
    path.write_text(text, "utf-8")
    if why == "no sheet":
        if text:
            with pytest.raises(TrafficError, match=why):
                read_sheet(path)
        else:
            assert read_sheet(path) == []
    else:
        with pytest.raises(TrafficError, match=why):
            read_pairs(path)


def test_a_csv_of_question_pairs_is_read_as_pairs(tmp_path: Path) -> None:
    path = tmp_path / "quora.csv"
    path.write_text("id,question1,question2,is_duplicate\n1,How?,In what way?,1\n2,How?,Why?,0\n", "utf-8")
    assert [(p.a.message.text, p.b.message.text, p.equivalent) for p in read_pairs(path)] == [
        ("How?", "In what way?", True),
        ("How?", "Why?", False),
    ]


# ----------------------------------------------------------------------------------------------------------- intervals


@given(st.lists(st.booleans(), min_size=1, max_size=300))
def test_clusters_of_one_have_at_least_wilsons_interval(hits: list[bool]) -> None:
    low, high = clustered([(int(hit), 1) for hit in hits])
    at_least = wilson(sum(hits), len(hits))
    assert low <= at_least[0] + 1e-9
    assert high >= at_least[1] - 1e-9
    if len(hits) >= 30 and 0 < sum(hits) < len(hits):
        assert (low, high) == pytest.approx(at_least, abs=0.02)


def test_turns_that_repeat_by_conversation_say_less() -> None:
    alike = clustered([(10, 10)] * 5 + [(0, 10)] * 5)
    mixed = clustered([(5, 10)] * 10)
    assert alike[1] - alike[0] > 2 * (mixed[1] - mixed[0])
    assert clustered([]) == (0.0, 1.0)
    assert clustered([(0, 50)])[1] > 0.5, "one conversation says little"


def test_the_interval_covers_the_true_share_of_clustered_turns() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(300):
        of_each = rng.beta(2, 4, 60)
        turns = rng.integers(1, 12, 60)
        low, high = clustered([(int(rng.binomial(n, p)), int(n)) for p, n in zip(of_each, turns, strict=True)])
        covered += low <= 1 / 3 <= high
    assert 0.9 <= covered / 300 <= 1.0


@pytest.mark.parametrize(
    ("hits", "n", "headline"),
    [(90, 1000, "too seldom"), (450, 1000, "Worth it"), (700, 1000, "Clearly worth it"), (6, 20, "cannot be told")],
)
def test_the_verdict_is_where_the_interval_lies(hits: int, n: int, headline: str) -> None:
    share = Share()
    for number in range(n):
        share.add(number, number < hits)
    assert headline in verdict(share)[0]


# ---------------------------------------------------------------------------------------------------------- end to end


@pytest.mark.slow
def test_the_command_audits_the_recorded_conversations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from proxy.cli import main

    try:
        chats = data_root() / "chats" / "mtrag_conversations.jsonl"
    except DataMissing as missing:
        pytest.skip(str(missing))
    arguments = ["antiphon", "audit", str(chats), "--limit", "120", "--keep", str(tmp_path / "kept.sqlite3")]
    outs = [
        "--report",
        str(tmp_path / "r.html"),
        "--json",
        str(tmp_path / "r.json"),
        "--sheet",
        str(tmp_path / "s.csv"),
    ]
    began = time.perf_counter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", arguments + outs)
        patch.setenv("ANTIPHON_HOME", str(tmp_path))
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code in (0, None), capsys.readouterr().err
    told = json.loads((tmp_path / "r.json").read_text("utf-8"))
    assert told["sections"]["repeats"]["figures"]["served"]["n"] == 120
    assert told["store_failures"] == {}
    assert "Is it worth it?" in capsys.readouterr().out
    assert len(read_sheet(tmp_path / "s.csv")) > 0
    assert time.perf_counter() - began < 600


@pytest.mark.slow
def test_the_audit_of_a_log_with_known_truth_finds_repeats_and_few_others(tmp_path: Path) -> None:
    from fingerprint.embedding.router import load_router
    from store.confidence import load, thresholds

    try:
        truth = write_log(tmp_path / "log.jsonl", 1200)
    except DataMissing as missing:
        pytest.skip(str(missing))
    found = outcomes(tmp_path / "log.jsonl", tmp_path / "a", load_router(), load(), thresholds(), at_once=6)
    served = [(o.earlier, o.number) for o in found if o.served and o.earlier is not None]
    assert len(served) == sum(o.served for o in found) > 20
    assert all(earlier < asked for earlier, asked in served)
    known = [(a, b) for a, b in ((truth[earlier], truth[asked]) for earlier, asked in served) if None not in (a, b)]
    assert sum(a == b for a, b in known) / len(known) > 0.9
