"""Reading logs: every form people have them in, and everything that can be wrong with one."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import json
import lzma
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.data import DataMissing, data_root
from eval.traffic import (
    BadRow,
    LoggedTurn,
    Problems,
    Record,
    TrafficError,
    UnknownFormat,
    encode_record,
    read_turns,
    source,
)
from eval.traffic.readers import detect
from fingerprint.traffic import decode_record

ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where is Rome?"}]
REPLY = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1_700_000_000,
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "In Italy."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 12, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}},
}


def written(folder: Path, rows: list[Any], name: str = "log.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return path


def read(path: Path, **how: Any) -> tuple[list[LoggedTurn], Problems]:
    problems = Problems(strict=how.pop("strict", False))
    return list(read_turns([path], problems=problems, **how)), problems


# ------------------------------------------------------------------------------------------------------ our own form


def test_a_request_with_its_answer_is_one_turn(tmp_path: Path) -> None:
    record = Record(
        messages=[*ASKED, {"role": "assistant", "content": "In Italy."}, {"role": "user", "content": "And Oslo?"}],
        answer="In Norway.",
        turns="last",
        time=1_700_000_000.5,
        session="s1",
        user="u1",
        model="m",
        request={"temperature": 0.2},
        seconds=0.8,
    )
    path = tmp_path / "log.jsonl"
    path.write_bytes(encode_record(record))
    (turn,), problems = read(path)
    assert problems.skipped == 0
    assert turn.record == record
    assert turn.turn.message.text == "And Oslo?"
    assert [m.text for m in turn.turn.history] == ["Where is Rome?", "In Italy."]
    assert [m.text for m in turn.turn.system] == ["Be brief."]
    assert (turn.answer, turn.time, turn.conversation) == ("In Norway.", 1_700_000_000.5, "s1")
    assert turn.body == {"temperature": 0.2, "model": "m"}


def test_a_whole_conversation_is_a_turn_for_each_user_message(tmp_path: Path) -> None:
    talk = [
        {"role": "user", "content": "One?", "time": 10},
        {"role": "assistant", "content": "1", "time": 12},
        {"role": "user", "content": "Two?", "time": "1970-01-01T00:00:20Z"},
    ]
    turns, _ = read(written(tmp_path, [{"conversation_id": "c", "messages": talk}]))
    assert [(t.turn.message.text, t.answer, t.time, t.index) for t in turns] == [
        ("One?", "1", 10.0, 0),
        ("Two?", None, 20.0, 1),
    ]
    assert {t.conversation for t in turns} == {"c"}
    assert turns[1].turn.history[0].opaque == b"", "the time is no part of what was said"


def test_messages_that_end_with_the_assistant_are_a_whole_conversation(tmp_path: Path) -> None:
    (turn,), _ = read(written(tmp_path, [{"messages": [*ASKED, {"role": "assistant", "content": "In Italy."}]}]))
    assert (turn.turn.message.text, turn.answer) == ("Where is Rome?", "In Italy.")


def test_a_request_body_as_it_was_sent_keeps_the_fields_that_change_an_answer(tmp_path: Path) -> None:
    row = {"model": "m", "messages": ASKED, "temperature": 0.7, "turn": "17", "user": "u"}
    (turn,), _ = read(written(tmp_path, [row]))
    assert turn.body == {"temperature": 0.7, "model": "m"}, "a label of the log is no part of the request"
    assert turn.record.user == "u"


def test_an_answer_that_was_cut_off_is_not_complete(tmp_path: Path) -> None:
    rows = [{"messages": ASKED, "answer": "In It", "finish_reason": "length"}, {"messages": ASKED, "answer": "x"}]
    turns, _ = read(written(tmp_path, rows))
    assert [t.complete for t in turns] == [False, True]


def test_conversations_without_a_session_are_told_apart_by_how_they_begin_and_by_user(tmp_path: Path) -> None:
    later = [*ASKED, {"role": "assistant", "content": "In Italy."}, {"role": "user", "content": "And Oslo?"}]
    rows = [
        {"messages": ASKED, "turns": "last"},
        {"messages": later, "turns": "last"},
        {"messages": ASKED, "user": "u2"},
        {"messages": [{"role": "user", "content": "Hi, what is a cat?"}]},
    ]
    first, second, third, fourth = (t.conversation for t in read(written(tmp_path, rows))[0])
    assert first == second
    assert len({first, third, fourth}) == 3


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(
    text=st.text(st.characters(exclude_categories=["Cs"])),
    answer=st.none() | st.text(st.characters(exclude_categories=["Cs"])),
    time=st.none() | st.floats(0, 4e9),
    request=st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), json_values, max_size=3),
)
def test_what_is_written_is_what_is_read(
    text: str, answer: str | None, time: float | None, request: dict[str, Any]
) -> None:
    record = Record(messages=[{"role": "user", "content": text}], answer=answer, time=time, request=request)
    line = encode_record(record)
    assert line.count(b"\n") == 1
    assert decode_record(line) == record


# --------------------------------------------------------------------------------------------------- what people have


@pytest.mark.parametrize(
    "row",
    [
        {"request": {"model": "m", "messages": ASKED, "temperature": 0}, "response": REPLY, "latency_ms": 900},
        {"body": json.dumps({"model": "m", "messages": ASKED, "temperature": 0}), "response_body": json.dumps(REPLY)},
        {"request": {"body": {"model": "m", "messages": ASKED, "temperature": 0}}, "response": {"body": REPLY}},
        {"model": "m", "messages": ASKED, "temperature": 0, "response": REPLY},
    ],
    ids=["objects", "texts", "http", "flat"],
)
def test_an_openai_request_with_its_response_is_read(tmp_path: Path, row: dict[str, Any]) -> None:
    path = written(tmp_path, [row])
    assert detect(path) == "openai"
    (turn,), problems = read(path)
    assert problems.skipped == 0
    assert (turn.turn.message.text, turn.answer, turn.record.model) == ("Where is Rome?", "In Italy.", "m")
    assert (turn.record.prompt_tokens, turn.record.completion_tokens, turn.record.cached_tokens) == (12, 3, 8)
    assert turn.time == 1_700_000_000
    assert turn.body == {"model": "m", "temperature": 0}


def test_a_batch_input_file_is_turns_without_answers(tmp_path: Path) -> None:
    row = {
        "custom_id": "r1",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"model": "m", "messages": ASKED},
    }
    (turn,), _ = read(written(tmp_path, [row]))
    assert (turn.answer, turn.record.id) == (None, "r1")


def test_a_failed_request_is_a_turn_without_an_answer(tmp_path: Path) -> None:
    rows = [
        {"request": {"messages": ASKED}, "response": {"error": {"message": "overloaded"}}},
        {"request": {"messages": ASKED}, "response": REPLY, "status_code": 500},
    ]
    turns, _ = read(written(tmp_path, rows))
    assert [t.answer for t in turns] == [None, None]


def test_responses_and_messages_requests_are_read_too(tmp_path: Path) -> None:
    rows = [
        {
            "url": "/v1/responses",
            "request": {"model": "m", "input": "Where is Rome?", "instructions": "Be brief."},
            "response": {"output": [{"type": "message", "content": [{"type": "output_text", "text": "In Italy."}]}]},
        },
        {
            "request": {"model": "c", "system": "Be brief.", "messages": ASKED[1:]},
            "response": {
                "role": "assistant",
                "content": [{"type": "text", "text": "In Italy."}],
                "stop_reason": "end_turn",
            },
        },
    ]
    turns, _ = read(written(tmp_path, rows))
    assert [(t.record.endpoint, t.answer, t.turn.system[0].text, t.complete) for t in turns] == [
        ("responses", "In Italy.", "Be brief.", True),
        ("messages", "In Italy.", "Be brief.", True),
    ]


def test_litellm_logging_payloads_are_read(tmp_path: Path) -> None:
    row = {
        "id": "chatcmpl-9",
        "trace_id": "t-1",
        "call_type": "acompletion",
        "status": "success",
        "model": "openai/m",
        "model_group": "m",
        "startTime": 1_700_000_000.0,
        "endTime": 1_700_000_001.5,
        "prompt_tokens": 20,
        "completion_tokens": 4,
        "end_user": "u1",
        "metadata": {"user_api_key_hash": "88dc28"},
        "messages": ASKED,
        "response": REPLY,
        "model_parameters": {"temperature": 0.1, "stream": True},
    }
    path = written(tmp_path, [row, {**row, "call_type": "aembedding"}, {**row, "messages": None}])
    assert detect(path) == "litellm"
    (turn,), problems = read(path)
    assert turn.answer == "In Italy."
    assert (turn.time, turn.record.seconds) == (1_700_000_000.0, 1.5)
    assert (turn.record.user, turn.record.caller, turn.record.session) == ("u1", "88dc28", "t-1")
    assert (turn.record.prompt_tokens, turn.body) == (20, {"temperature": 0.1, "model": "m"})
    assert problems.ignored == {"aembedding": 1}
    assert [p.line for p in problems.first] == [3]


def test_litellm_spend_logs_keep_the_messages_in_the_request(tmp_path: Path) -> None:
    row = {
        "request_id": "chatcmpl-9",
        "call_type": "acompletion",
        "api_key": "88dc28",
        "startTime": "2026-01-02T03:04:05.000Z",
        "endTime": "2026-01-02T03:04:06.000Z",
        "model": "m",
        "end_user": "",
        "messages": {},
        "proxy_server_request": json.dumps({"model": "m", "messages": ASKED, "temperature": 0.1}),
        "response": json.dumps(REPLY),
        "session_id": "s",
    }
    (turn,), problems = read(written(tmp_path, [row]))
    assert problems.skipped == 0
    assert (turn.turn.message.text, turn.answer, turn.record.session) == ("Where is Rome?", "In Italy.", "s")
    assert turn.record.seconds == 1.0
    assert turn.time == 1_767_323_045.0


def test_langfuse_observations_are_read(tmp_path: Path) -> None:
    api = {
        "id": "o1",
        "traceId": "t1",
        "type": "GENERATION",
        "startTime": "2026-01-02T03:04:05.000Z",
        "endTime": "2026-01-02T03:04:07.000Z",
        "model": "m",
        "modelParameters": {"temperature": 0.1},
        "input": ASKED,
        "output": {"role": "assistant", "content": "In Italy."},
        "usageDetails": {"input": 12, "output": 3, "total": 15},
        "sessionId": "s1",
        "userId": "u1",
    }
    blob = {
        "id": "o2",
        "trace_id": "t2",
        "type": "GENERATION",
        "start_time": "2026-01-02 03:04:05.000000",
        "end_time": "2026-01-02 03:04:07.000000",
        "provided_model_name": "m",
        "model_parameters": json.dumps({"temperature": 0.1}),
        "input": json.dumps({"messages": ASKED}),
        "output": json.dumps({"role": "assistant", "content": "In Italy."}),
        "usage_details": json.dumps({"input": 12, "output": 3}),
        "session_id": "s1",
        "user_id": "u1",
    }
    path = written(tmp_path, [api, blob, {**api, "type": "SPAN"}])
    assert detect(path) == "langfuse"
    turns, problems = read(path)
    assert problems.skipped == 0
    assert problems.ignored == {"span": 1}
    assert len(turns) == 2
    for turn in turns:
        assert (turn.turn.message.text, turn.answer) == ("Where is Rome?", "In Italy.")
        assert (turn.time, turn.record.seconds) == (1_767_323_045.0, 2.0)
        assert (turn.record.session, turn.record.user, turn.record.prompt_tokens) == ("s1", "u1", 12)
        assert turn.body == {"temperature": 0.1, "model": "m"}


def test_a_langfuse_trace_brings_its_generations_in_one_document(tmp_path: Path) -> None:
    trace = {
        "id": "t1",
        "sessionId": "s1",
        "observations": [
            {"type": "SPAN", "input": "x"},
            {"type": "GENERATION", "input": ASKED, "output": "In Italy.", "startTime": "2026-01-02T03:04:05Z"},
        ],
    }
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace, indent=2), "utf-8")
    (turn,), _ = read(path)
    assert (turn.answer, turn.record.session) == ("In Italy.", "s1")


def test_sharegpt_is_one_json_array_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_CHUNK", 64)  # so that items lie across pieces
    items = [
        {
            "id": f"c{n}",
            "conversations": [
                {"from": "human", "value": f"Question {n}?"},
                {"from": "gpt", "value": 'Answer, with ] and " and \\ in it'},
                {"from": "human", "value": "谢谢"},
            ],
        }
        for n in range(50)
    ]
    path = tmp_path / "sharegpt.json"
    path.write_text(json.dumps(items, indent=1, ensure_ascii=False), "utf-8")
    assert detect(path) == "sharegpt"
    turns, problems = read(path)
    assert (len(turns), problems.rows, problems.skipped) == (100, 50, 0)
    assert turns[-2].turn.message.text == "Question 49?"
    assert turns[-2].line > turns[0].line


SGLANG = {
    "timestamp": "2026-01-02T03:04:06.000000",
    "event": "request.finished",
    "rid": "r1",
    "obj": {
        "rid": "r1",
        "text": "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhere is Rome?<|im_end|>\n"
        "<|im_start|>assistant\n",
        "sampling_params": {"temperature": 0.1},
    },
    "out": {
        "text": "In Italy.",
        "meta_info": {
            "finish_reason": {"type": "stop"},
            "prompt_tokens": 12,
            "completion_tokens": 3,
            "cached_tokens": 8,
            "e2e_latency": 1.0,
        },
    },
}


def test_sglangs_request_log_is_read_among_its_other_lines(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    received = {**SGLANG, "event": "request.received"}
    path.write_text(
        "[2026-01-02 03:04:05] Prefill batch, #new-seq: 1\n"
        f"[2026-01-02 03:04:05] {json.dumps(received)}\n[2026-01-02 03:04:06] {json.dumps(SGLANG)}\n",
        "utf-8",
    )
    assert detect(path) == "sglang"
    (turn,), problems = read(path)
    assert problems.skipped == 0
    assert [m.text for m in turn.turn.messages] == ["Be brief.", "Where is Rome?"]
    assert (turn.answer, turn.record.cached_tokens, turn.record.seconds) == ("In Italy.", 8, 1.0)
    assert turn.time == 1_767_323_045.0


@pytest.mark.parametrize(
    "prompt",
    [
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|><|start_header_id|>user"
        "<|end_header_id|>\n\nWhere is Rome?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
        "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nWhere is Rome? [/INST]",
        "<|system|>\nBe brief.<|end|>\n<|user|>\nWhere is Rome?<|end|>\n<|assistant|>\n",
        "<｜begin▁of▁sentence｜>Be brief.<｜User｜>Where is Rome?<｜Assistant｜>",
    ],
    ids=["llama3", "llama2", "phi", "deepseek"],
)
def test_the_chat_templates_in_use_are_taken_apart(tmp_path: Path, prompt: str) -> None:
    row = {**SGLANG, "obj": {**SGLANG["obj"], "text": prompt}}  # type: ignore[dict-item]
    (turn,), _ = read(written(tmp_path, [row]))
    assert [(m.role, m.text) for m in turn.turn.messages] == [("system", "Be brief."), ("user", "Where is Rome?")]


def test_a_csv_of_question_pairs_is_two_turns_a_row(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(
        'id,question1,question2,is_duplicate\n1,"How, exactly?","Why\nnot?",0\n2,only,three\n3,What?,"Who?",1\n',
        "utf-8",
    )
    turns, problems = read(path)
    assert [t.turn.message.text for t in turns] == ["How, exactly?", "Why\nnot?", "What?", "Who?"]
    assert [(p.line, p.why) for p in problems.first] == [(4, "3 cells under 4 columns")]


# -------------------------------------------------------------------------------------------------- what can be wrong


def test_an_empty_file_is_a_log_without_turns(tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_bytes(b"\n \n")
    turns, problems = read(path, strict=True)
    assert (turns, problems.rows) == ([], 0)


def test_one_line_without_a_line_feed_is_read(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps({"messages": ASKED}).encode())
    assert len(read(path)[0]) == 1


BROKEN = [
    (b'{"messages": [', "not JSON"),
    (b'{"messages": []}', "no messages"),
    (b'{"messages": [{"role": "wizard", "content": "x"}]}', "unknown role"),
    (b'{"messages": [{"role": "user", "content": 7}]}', "content"),
    (b'{"messages": [{"role": "system", "content": "only"}]}', "nobody"),
    (b'{"messages": [{"role": "user", "content": "x"}], "v": 99}', "version"),
    (b'{"messages": [{"role": "user", "content": "x"}], "time": "yesterday"}', "time"),
    (b'{"messages": [{"role": "user", "content": "x"}], "answer": 7}', "answer"),
    (b"7", "not an object"),
    (b"\xff\xfe\x00", "not JSON"),
]


def test_bad_rows_are_reported_with_their_line_and_skipped(tmp_path: Path) -> None:
    good = json.dumps({"messages": ASKED}).encode()
    path = tmp_path / "broken.jsonl"
    path.write_bytes(b"\n".join([good, *(row for row, _ in BROKEN), good]))
    turns, problems = read(path)
    assert len(turns) == 2
    assert [p.line for p in problems.first] == list(range(2, 2 + len(BROKEN)))
    for problem, (_, why) in zip(problems.first, BROKEN, strict=True):
        assert why in problem.why
    assert problems.summary()["skipped"] == len(BROKEN)


def test_strict_stops_at_the_first_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_bytes(json.dumps({"messages": ASKED}).encode() + b"\n{oh\n")
    with pytest.raises(BadRow, match=r"broken\.jsonl:2: not JSON"):
        read(path, strict=True)


def test_a_line_without_end_is_refused_without_being_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MOST_BYTES", 1 << 20)
    path = tmp_path / "huge.jsonl"
    good = json.dumps({"messages": ASKED}).encode() + b"\n"
    path.write_bytes(good + b'{"messages": "' + b"x" * (3 << 20) + b'"}\n' + good)
    turns, problems = read(path)
    assert len(turns) == 2
    assert [(p.line, p.why) for p in problems.first] == [(2, "longer than 1 MiB")]


def test_a_broken_array_keeps_what_stands_before_the_fault(tmp_path: Path) -> None:
    path = tmp_path / "talks.json"
    talk = json.dumps({"conversations": [{"from": "human", "value": "Hm?"}]})
    path.write_text(f"[{talk},\n{talk},\n{{oops,\n{talk}]", "utf-8")
    turns, problems = read(path)
    assert len(turns) == 2
    assert problems.first[0].line == 3
    assert "lost" in problems.first[0].why


def test_compressed_logs_are_read_and_a_damaged_one_is_reported(tmp_path: Path) -> None:
    row = json.dumps({"messages": ASKED}).encode() + b"\n"
    path = tmp_path / "log.jsonl.gz"
    path.write_bytes(gzip.compress(row * 1000))
    assert len(read(path)[0]) == 1000
    path.write_bytes(gzip.compress(row * 100_000)[:-400])
    turns, problems = read(path)
    assert 0 < len(turns) < 100_000
    assert problems.skipped >= 1


@pytest.mark.parametrize("name", ["log.jsonl", "log.json", "log.csv", "-"])
@pytest.mark.parametrize("good", [0, 40])
def test_an_error_of_the_disk_is_an_error_that_names_the_file_and_never_a_shorter_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, good: int
) -> None:
    row = json.dumps({"messages": ASKED})
    text = {"log.json": f"[{row},\n" + f"{row},\n" * good, "log.csv": "question\n" + "Why?\n" * good}
    data = io.BytesIO(text.get(name, f"{row}\n" * good).encode() if good else b"")

    class Failing(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            if not (part := data.read(min(len(buffer), 300))):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            buffer[: len(part)] = part
            return len(part)

    def failing(path: Path | str) -> io.BufferedReader:
        data.seek(0)
        return io.BufferedReader(Failing())

    monkeypatch.setattr("eval.traffic.source._opened", failing)
    path = name if name == "-" else tmp_path / name
    said = f"{'standard input' if name == '-' else path} cannot be read: Input/output error"
    for kind in ("auto", "csv" if name == "log.csv" else "antiphon"):
        with pytest.raises(TrafficError, match=f"^{re.escape(said)}$"):
            list(read_turns([path], kind=kind))


@pytest.mark.parametrize("name", ["log.jsonl", "log.json", "log.csv"])
@pytest.mark.parametrize(("ending", "packed"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)])
@pytest.mark.parametrize("damage", ["torn", "garbled", "no archive"])
def test_what_stands_before_the_damage_of_an_archive_is_read_and_an_archive_of_nothing_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    ending: str,
    packed: Callable[[bytes], bytes],
    damage: str,
) -> None:
    monkeypatch.setattr(source, "_CHUNK", 4096)
    rng = random.Random(1)
    asked = ["".join(rng.choices("abcdefgh", k=600)) for _ in range(3_000)]  # bzip2 packs 900 kB at a time
    rows = [json.dumps({"messages": [{"role": "user", "content": text}]}) for text in asked]
    text = {"log.json": f"[{','.join(rows)}]", "log.csv": "question\n" + "\n".join(asked)}
    data = packed(text.get(name, "\n".join(rows)).encode())
    place = len(data) * 3 // 4
    path = tmp_path / (name + ending)
    if damage == "no archive":
        path.write_bytes(b"hello")
        with pytest.raises(TrafficError, match=f"^{re.escape(str(path))} cannot be read: "):
            read(path)
        return
    path.write_bytes(data[:place] if damage == "torn" else data[:place] + rng.randbytes(300) + data[place + 300 :])
    turns, problems = read(path)
    assert [turn.turn.message.text for turn in turns[:1_300]] == asked[:1_300]
    assert problems.skipped > 0
    if damage == "torn":
        assert [turn.turn.message.text for turn in turns] == asked[: len(turns)]
        assert problems.first[-1].why.startswith("cannot be read on: ")
    with pytest.raises(BadRow):
        read(path, strict=True)


def test_a_file_that_is_no_log_is_refused_with_the_formats_there_are(tmp_path: Path) -> None:
    with pytest.raises(UnknownFormat, match=r"antiphon.*csv"):
        read(written(tmp_path, [{"level": "info", "msg": "started"}]))
    with pytest.raises(TrafficError, match="there is no file"):
        read(tmp_path / "none.jsonl")
    with pytest.raises(TrafficError, match="folder"):
        read(tmp_path)
    with pytest.raises(TrafficError, match="no format is called wat"):
        read(written(tmp_path, []), kind="wat")


def test_a_long_file_of_something_else_is_given_up_soon(tmp_path: Path) -> None:
    path = tmp_path / "other.log"
    path.write_bytes(b"[2026-01-02 03:04:05] something else happened\n" * 1_000_000)
    began = time.process_time()
    with pytest.raises(UnknownFormat):
        read(path)
    assert time.process_time() - began < 5


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    row = json.dumps({"messages": [*ASKED, {"role": "assistant", "content": "x" * 2_000}, ASKED[1]], "turns": "last"})
    path = tmp_path / "long.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for _ in range(100_000):
            file.write(row + "\n")
    code = (
        "import resource, sys\nfrom eval.traffic import read_turns\n"
        "turns = read_turns([sys.argv[1]])\nnext(turns)\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "count = 1 + sum(1 for _ in turns)\n"
        "print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    ).stdout
    count, grown_kib = map(int, out.split())
    assert count == 100_000
    assert grown_kib < 32 * 1024, f"{path.stat().st_size >> 20} MiB were read"


@settings(max_examples=150)
@given(rows=st.lists(st.binary(max_size=60) | json_values.map(lambda v: json.dumps(v).encode()), max_size=6))
def test_no_bytes_whatever_break_the_reader(tmp_path_factory: pytest.TempPathFactory, rows: list[bytes]) -> None:
    path = tmp_path_factory.mktemp("any") / "log.jsonl"
    path.write_bytes(b"\n".join(rows))
    for kind in ("antiphon", "openai", "litellm", "langfuse", "sharegpt", "sglang", "csv"):
        problems, count = Problems(), 0
        try:
            for turn in read_turns([path], kind=kind, problems=problems):
                assert turn.turn.message.role
                count += 1
        except TrafficError:  # a file that holds nothing that can be used
            assert count == 0 and problems.skipped == problems.rows > 0


def test_the_recorded_conversations_are_read_whole() -> None:
    try:
        path = data_root() / "chats" / "mtrag_conversations.jsonl"
    except DataMissing as missing:
        pytest.skip(str(missing))
    turns, problems = read(path)
    assert problems.skipped == 0
    assert len({t.conversation for t in turns}) == 507
    assert all(t.time is not None for t in turns)
    assert sum(t.answer is None for t in turns) == 507, "each conversation ends in a question"
