"""What the log looks like, and what it never holds."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.logs import AccessLog, configure, event, mask
from proxy.settings import LoggingSettings


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def log_to(**fields: object) -> tuple[io.StringIO, logging.Logger]:
    stream = io.StringIO()
    configure(LoggingSettings.model_validate(fields), stream)
    return stream, logging.getLogger("proxy.test")


def test_a_line_for_people_has_time_severity_event_and_values() -> None:
    stream, log = log_to()
    event(log, logging.INFO, "ready", url="http://h", seconds=1.25, words="two words")
    moment, level, rest = stream.getvalue().rstrip("\n").split(maxsplit=2)
    assert moment.endswith("Z")
    assert (level, rest) == ("info", 'ready url=http://h seconds=1.25 words="two words"')


def test_a_line_for_machines_is_one_json_object() -> None:
    stream, log = log_to(format="json")
    event(log, logging.WARNING, "slow", seconds=1.25, event="not overwritten")
    line = json.loads(stream.getvalue())
    assert line["event"] == "slow"
    assert line["level"] == "warning"
    assert line["seconds"] == 1.25


def test_an_exception_stays_in_one_json_line() -> None:
    stream, log = log_to(format="json")
    try:
        raise ValueError("no\nway")
    except ValueError:
        log.exception("it failed")
    assert stream.getvalue().count("\n") == 1
    assert "ValueError" in json.loads(stream.getvalue())["exception"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_line_holds_a_credential_whoever_writes_it(form: str) -> None:
    stream, log = log_to(format=form)
    log.warning("sent Authorization: Bearer abcdef-123456 and basic dXNlcjpwYXNz")
    log.warning("key sk-abcdefghijkl of postgresql://me:pa55word@h/db asked /v1/x?api_key=s3cretkey&b=1")
    event(log, logging.WARNING, "x", header="Bearer abcdef-123456")
    try:
        raise ValueError("Bearer abcdef-123456")
    except ValueError:
        log.exception("failed")
    text = stream.getvalue()
    for secret in ("abcdef-123456", "dXNlcjpwYXNz", "sk-abcdefghijkl", "pa55word", "s3cretkey"):
        assert secret not in text
    assert "b=1" in text


@given(st.text(max_size=80))
def test_masking_leaves_other_text_alone_and_is_done_once(text: str) -> None:
    assert mask(mask(text)) == mask(text)
    if ":" not in text and "=" not in text and "sk-" not in text.lower() and " " not in text:
        assert mask(text) == text


def test_less_than_the_level_is_not_written() -> None:
    stream, log = log_to(level="error")
    log.warning("not this")
    logging.getLogger("httpx").error("but this")
    assert "not this" not in stream.getvalue()
    assert "but this" in stream.getvalue()


def test_the_libraries_chatter_is_left_out() -> None:
    stream, _ = log_to(level="info")
    logging.getLogger("httpx").info("HTTP Request: POST http://h/v1/chat/completions")
    assert stream.getvalue() == ""


async def test_a_request_gets_a_line_with_what_came_of_it_and_never_its_query_or_texts() -> None:
    stream = io.StringIO()
    configure(LoggingSettings(level="error", format="json", access=True), stream)
    head = [(b"x-antiphon-reuse", b"miss"), (b"x-antiphon-reason", b"no candidate"), (b"content-type", b"a/b")]

    async def send(message: Any) -> None:
        pass

    scope = {"method": "POST", "path": "/v1/x", "query_string": b"key=private", "client": ("10.0.0.1", 5)}
    noting = AccessLog().sending(scope, send)
    await noting({"type": "http.response.start", "status": 200, "headers": head})
    await noting({"type": "http.response.body", "body": b"private", "more_body": True})
    assert stream.getvalue() == ""
    await noting({"type": "http.response.body", "body": b"", "more_body": False})
    line = json.loads(stream.getvalue())
    assert line.pop("seconds") >= 0
    assert {key: line[key] for key in ("event", "method", "path", "status", "reuse", "reason", "client")} == {
        "event": "request", "method": "POST", "path": "/v1/x", "status": 200, "reuse": "miss",
        "reason": "no candidate", "client": "10.0.0.1",
    }  # fmt: skip
    assert "private" not in stream.getvalue()
