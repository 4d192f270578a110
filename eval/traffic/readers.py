"""Readers: one row of somebody's log → a `Record`. Which kind a file is, is told from its first rows.

Where each form is described:

- OpenAI request and response bodies, and Batch files: platform.openai.com/docs/api-reference
- LiteLLM's ``StandardLoggingPayload`` and spend logs: docs.litellm.ai/docs/proxy/logging_spec
- Langfuse's exports of observations and traces: langfuse.com/docs/api-and-data-platform
- ShareGPT: ``conversations`` of ``from`` and ``value``
- SGLang's ``--log-requests``: ``sglang/srt/utils/request_logger.py``
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from eval.traffic.errors import BadRow, TrafficError, UnknownFormat
from eval.traffic.fields import answer_of, first, integer, messages_of, parsed, seconds_between, text_or_none, when
from eval.traffic.problems import Problems
from eval.traffic.source import COMPRESSED, csv_rows, json_rows, name_of, opened
from eval.traffic.templates import messages_from_prompt
from fingerprint.traffic import FORMAT_VERSION, Record

__all__ = ["FORMATS", "Format", "detect", "kind_of", "question_columns", "read_records"]

Row: TypeAlias = Mapping[str, Any]

_BAD_LOOKED_AT: Final = 200  # rows that are no rows, before a file is given up
_OTHERS_LOOKED_AT: Final = 50_000  # lines of a server's log that say other things
_LOOKED_AT: Final = 20  # rows that are asked what kind of log this is
_CONVERSATION_FIELDS: Final = frozenset({"messages", "model", "user", "input", "instructions", "prompt", "system"})
_OF_THE_LOG: Final = frozenset({"stream", "stream_options"})


class Ignored(Exception):  # noqa: N818 - not an error: the row belongs there and is no chat turn
    """A row without a chat turn; ``what`` says what it is."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of log. ``claims`` says whether a row looks like it; ``read`` raises `BadRow` and `Ignored`."""

    name: str
    what: str
    claims: Callable[[Row], bool]
    read: Callable[[Row], Iterable[Record]]


# ------------------------------------------------------------------------------------------------------- our own


_OF_A_REQUEST: Final = (
    "temperature", "top_p", "top_k", "min_p", "max_tokens", "max_completion_tokens", "n", "seed", "stop", "tools",
    "tool_choice", "functions", "function_call", "parallel_tool_calls", "response_format", "presence_penalty",
    "frequency_penalty", "repetition_penalty", "logit_bias", "reasoning_effort", "verbosity", "lora_path", "regex",
    "ebnf", "json_schema", "chat_template_kwargs", "separate_reasoning",
)  # fmt: skip


def _native_claims(row: Row) -> bool:
    return isinstance(row.get("messages"), list)


def _native(row: Row) -> Iterator[Record]:
    """Our own form; also what is near it: ``conversation_id``, ``timestamp``, times of messages as ``t``."""
    version = row.get("v", FORMAT_VERSION)
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise BadRow(f"version {version!r} of the format; this release reads {FORMAT_VERSION}")
    known = {name: row[name] for name in Record.__struct_fields__ if name in row and row[name] is not None}
    known["time"] = when(first(row, ("time", "timestamp", "created", "created_at")))
    known["session"] = text_or_none(first(row, ("session", "session_id", "conversation_id")))
    known["user"] = text_or_none(first(row, ("user", "user_id")))
    known["id"] = text_or_none(row.get("id"))
    if "request" not in known:  # a request body as it was sent; only fields that are known to belong to one
        known["request"] = {name: row[name] for name in _OF_A_REQUEST if row.get(name) is not None}
    known["messages"] = [_timed(message) for message in messages_of(row["messages"])]
    if "answer" not in known and row.get("completion") is not None:
        known["answer"] = answer_of(row["completion"])[0]
    try:
        yield msgspec.convert(known, Record)
    except msgspec.ValidationError as error:
        raise BadRow(str(error)) from None


def _timed(message: dict[str, Any]) -> dict[str, Any]:
    """A message with its time under ``time``, in seconds."""
    moment = first(message, ("time", "t", "timestamp"))
    if moment is None:
        return message
    rest = {name: value for name, value in message.items() if name not in ("time", "t", "timestamp")}
    return {**rest, "time": when(moment)}


# -------------------------------------------------------------------------------------------- OpenAI, as logged


_BODIES: Final = ("request.body", "request", "body", "req", "reqPayload", "request_body", "providerRequest.json")
_REPLIES: Final = (
    "response.body", "response", "resp", "respPayload", "response_body", "providerResponse.json", "output_completion",
)  # fmt: skip


def _openai_body(row: Row) -> Mapping[str, Any] | None:
    body = parsed(first(row, _BODIES))
    if isinstance(body, Mapping) and {"messages", "input", "prompt"} & body.keys():
        return body
    if "messages" in row and first(row, _REPLIES) is not None:  # the body's fields beside the response
        return {name: row[name] for name in ("messages", "model", "user", *_OF_A_REQUEST) if name in row}
    return None


def _openai_claims(row: Row) -> bool:
    return _openai_body(row) is not None


def _openai(row: Row) -> Iterator[Record]:
    """``{"request": body, "response": body}`` under its usual names, and lines of a Batch input file."""
    body = _openai_body(row)
    if body is None:
        raise BadRow("there is no request body")
    reply = parsed(first(row, _REPLIES))
    url = str(first(row, ("url", "path", "endpoint", "request.url", "request.path")) or "")
    status = first(row, ("status", "status_code", "response.status_code", "response.status", "statusCode"))
    started = when(first(row, ("time", "timestamp", "created_at", "start_time", "requestedAt", "request.timestamp")))
    ended = when(first(row, ("end_time", "receivedAt", "response.timestamp")))
    replied = when(reply.get("created")) if isinstance(reply, Mapping) else None
    failed = (isinstance(reply, Mapping) and reply.get("error")) or _failed(status)
    yield _from_body(
        body,
        None if failed else reply,
        failed=bool(failed),
        url=url,
        id=text_or_none(first(row, ("id", "custom_id", "request_id"))),
        time=started if started is not None else replied,
        session=text_or_none(first(row, ("session", "session_id", "conversation_id", "headers.x-antiphon-session"))),
        user=text_or_none(first(row, ("user", "user_id"))),
        seconds=_duration(row) if _duration(row) is not None else seconds_between(started, ended),
    )  # fmt: skip


def _failed(status: Any) -> bool:
    code = integer(status)
    return code is not None and code >= 300


def _duration(row: Row) -> float | None:
    for name, unit in (
        ("seconds", 1.0), ("latency_s", 1.0), ("duration_s", 1.0), ("response_time", 1.0),
        ("latency_ms", 1e-3), ("duration_ms", 1e-3), ("response_time_ms", 1e-3), ("response.response_time", 1e-3),
    ):  # fmt: skip
        value = first(row, (name,))
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
            return float(value) * unit
    return None


def _from_body(
    body: Mapping[str, Any],
    reply: Any,
    *,
    url: str = "",
    id: str | None = None,  # noqa: A002 - the field's name
    time: float | None = None,
    session: str | None = None,
    user: str | None = None,
    seconds: float | None = None,
    **more: Any,
) -> Record:
    """A record from a request body of any of the endpoints we know and its reply. Raises `BadRow`, `Ignored`."""
    endpoint = "chat.completions"
    if "messages" in body:
        messages = messages_of(body["messages"])
        if body.get("system") is not None or "/messages" in url:
            endpoint = "messages"
            if body.get("system") is not None:
                messages = [{"role": "system", "content": body["system"]}, *messages]
    elif "prompt" in body:
        endpoint = "completions"
        if not isinstance(body["prompt"], str):
            raise Ignored("a text completion of several prompts")
        messages = messages_of(body["prompt"])
    elif "input" in body and "embedding" not in str(body.get("model", "")) and "embedding" not in url:
        endpoint = "responses"
        messages = messages_of(body["input"])
        if body.get("instructions"):
            messages = [{"role": "system", "content": body["instructions"]}, *messages]
    else:
        raise Ignored("no chat request")
    text, finish = answer_of(reply)
    more["failed"] = more.get("failed") or None  # left out where it did not fail
    usage = reply.get("usage") if isinstance(reply, Mapping) else None
    usage = usage if isinstance(usage, Mapping) else {}
    prompt = integer(more.pop("prompt_tokens", None))
    completion = integer(more.pop("completion_tokens", None))
    return Record(
        messages=messages,
        answer=text,
        turns="last",
        id=id,
        time=time,
        session=session,
        user=user or text_or_none(first(body, ("user", "safety_identifier", "metadata.user_id"))),
        model=text_or_none(body.get("model")) or text_or_none(more.pop("model", None)),
        endpoint=endpoint,
        request={
            name: value
            for name, value in body.items()
            if name not in _CONVERSATION_FIELDS and name not in _OF_THE_LOG and value is not None
        },
        finish_reason=finish,
        prompt_tokens=prompt if prompt is not None else integer(first(usage, ("prompt_tokens", "input_tokens"))),
        completion_tokens=completion
        if completion is not None
        else integer(first(usage, ("completion_tokens", "output_tokens"))),
        cached_tokens=integer(
            first(usage, ("prompt_tokens_details.cached_tokens", "input_tokens_details.cached_tokens"))
        ),
        seconds=seconds,
        **{name: value for name, value in more.items() if value is not None},
    )


# ------------------------------------------------------------------------------------------------------ LiteLLM


def _litellm_claims(row: Row) -> bool:
    return "call_type" in row and ("messages" in row or "proxy_server_request" in row or "request_id" in row)


def _litellm(row: Row) -> Iterator[Record]:
    """``StandardLoggingPayload`` (callbacks to files, S3, GCS, …), and rows of the table ``LiteLLM_SpendLogs``."""
    kind = str(row["call_type"])
    if "completion" not in kind and "responses" not in kind and "messages" not in kind:
        raise Ignored(kind or "a call without a type")
    asked = parsed(row.get("messages"))
    body = parsed(row.get("proxy_server_request"))
    if isinstance(body, Mapping) and isinstance(parsed(body.get("body")), Mapping):
        body = parsed(body["body"])
    if not asked:  # a spend log keeps the messages in the request, and that only where prompts are stored
        asked = first(body, ("messages", "input", "prompt")) if isinstance(body, Mapping) else None
    if not asked:
        raise BadRow("the messages were not logged (store_prompts_in_spend_logs)")
    if isinstance(asked, Mapping) and "messages" in asked:
        asked = asked["messages"]
    parameters = parsed(row.get("model_parameters"))
    rest = parameters if isinstance(parameters, Mapping) else (body if isinstance(body, Mapping) else {})
    started, ended = when(first(row, ("startTime", "start_time"))), when(first(row, ("endTime", "end_time")))
    failed = str(row.get("status") or "success") == "failure"
    yield _from_body(
        {**rest, "messages": messages_of(asked), "model": first(row, ("model_group", "model"))},
        None if failed else parsed(row.get("response")),
        failed=failed,
        id=text_or_none(first(row, ("id", "request_id"))),
        time=started,
        session=text_or_none(first(row, ("session_id", "metadata.session_id", "trace_id", "litellm_session_id"))),
        user=text_or_none(first(row, ("end_user", "metadata.user_api_key_end_user_id", "user"))),
        seconds=seconds_between(started, ended),
        caller=text_or_none(first(row, ("metadata.user_api_key_hash", "api_key"))),
        prompt_tokens=row.get("prompt_tokens"),
        completion_tokens=row.get("completion_tokens"),
    )


# ----------------------------------------------------------------------------------------------------- Langfuse


def _langfuse_claims(row: Row) -> bool:
    if isinstance(row.get("observations"), list):
        return True
    observed = bool({"traceId", "trace_id", "parentObservationId", "sessionId", "session_id"} & row.keys())
    return "input" in row and "output" in row and observed


def _langfuse(row: Row) -> Iterator[Record]:
    """Observations (UI, API or blob storage export), and traces with or without their observations inside."""
    inside = row.get("observations")
    if isinstance(inside, list) and any(isinstance(one, Mapping) for one in inside):
        shared = {name: row.get(name) for name in ("sessionId", "session_id", "userId", "user_id") if row.get(name)}
        for one in inside:
            if isinstance(one, Mapping) and str(one.get("type")) == "GENERATION":
                yield from _langfuse({**shared, "traceId": row.get("id"), **one})
        return
    kind = str(row.get("type") or "GENERATION")
    if kind != "GENERATION":
        raise Ignored(kind.lower())
    output = None if str(row.get("level") or "") == "ERROR" else parsed(row.get("output"))
    asked = parsed(row.get("input"))
    body: dict[str, Any] = {}
    if isinstance(asked, Mapping) and "messages" in asked:  # with tools and the like beside the messages
        body, asked = {k: v for k, v in asked.items() if k != "messages"}, asked["messages"]
    if asked is None or asked == "":
        raise BadRow("the input was not exported")
    parameters = parsed(first(row, ("modelParameters", "model_parameters")))
    if isinstance(parameters, Mapping):
        body = {**parameters, **body}
    started = when(first(row, ("startTime", "start_time", "timestamp")))
    ended = when(first(row, ("endTime", "end_time")))
    usage = parsed(first(row, ("usageDetails", "usage_details", "usage")))
    usage = usage if isinstance(usage, Mapping) else {}
    yield _from_body(
        {
            **body,
            "messages": messages_of(asked),
            "model": first(row, ("model", "providedModelName", "provided_model_name")),
        },
        output,
        failed=str(row.get("level") or "") == "ERROR",
        id=text_or_none(row.get("id")),
        time=started,
        session=text_or_none(first(row, ("sessionId", "session_id", "traceId", "trace_id"))),
        user=text_or_none(first(row, ("userId", "user_id"))),
        seconds=seconds_between(started, ended) if ended is not None else _duration({"seconds": row.get("latency")}),
        prompt_tokens=first(usage, ("input", "promptTokens", "prompt_tokens", "input_tokens"))
        or first(row, ("promptTokens", "inputUsage")),
        completion_tokens=first(usage, ("output", "completionTokens", "completion_tokens", "output_tokens"))
        or first(row, ("completionTokens", "outputUsage")),
    )


# ----------------------------------------------------------------------------------------------------- ShareGPT

_SPEAKERS: Final = {
    "human": "user", "user": "user", "gpt": "assistant", "chatgpt": "assistant", "assistant": "assistant",
    "bard": "assistant", "bing": "assistant", "model": "assistant", "system": "system", "tool": "tool",
    "observation": "tool", "function_call": "assistant",
}  # fmt: skip


def _sharegpt_claims(row: Row) -> bool:
    talk = row.get("conversations", row.get("conversation", row.get("items")))
    return isinstance(talk, list) and all(isinstance(m, Mapping) and ("from" in m or "role" in m) for m in talk[:3])


def _sharegpt(row: Row) -> Iterator[Record]:
    """``{"id", "conversations": [{"from": "human" | "gpt", "value": text}, …]}``."""
    talk = row.get("conversations", row.get("conversation", row.get("items")))
    if not isinstance(talk, list):
        raise BadRow("no conversations")
    if not talk:
        raise Ignored("an empty conversation")
    messages: list[dict[str, Any]] = []
    if isinstance(row.get("system"), str) and row["system"]:
        messages.append({"role": "system", "content": row["system"]})
    for said in talk:
        speaker = str(first(said, ("from", "role")) if isinstance(said, Mapping) else "").lower()
        text = first(said, ("value", "content", "text")) if isinstance(said, Mapping) else None
        if speaker not in _SPEAKERS:
            raise BadRow(f"nobody knows who {speaker[:30]!r} is")
        if not isinstance(text, str):
            continue  # said nothing
        messages.append({"role": _SPEAKERS[speaker], "content": text})
    if not any(message["role"] == "user" for message in messages):
        raise Ignored("a conversation without a user")
    yield Record(
        messages=messages,
        turns="all",
        id=text_or_none(row.get("id")),
        session=text_or_none(row.get("id")),
        model=text_or_none(row.get("model")),
        time=when(first(row, ("time", "timestamp", "create_time"))),
    )


# ------------------------------------------------------------------------------------------------------- SGLang


def _sglang_claims(row: Row) -> bool:
    return str(row.get("event", "")).startswith("request.") and isinstance(row.get("obj"), Mapping)


def _sglang(row: Row) -> Iterator[Record]:
    """``--log-requests --log-requests-level 3 --log-requests-format json``: the finished requests."""
    event, obj, out = str(row["event"]), row["obj"], row.get("out")
    if event != "request.finished":
        raise Ignored(event)  # said again, with its answer, when it finishes
    if not isinstance(out, Mapping) or not isinstance(obj, Mapping):
        raise BadRow("a finished request without its result")
    if "text" not in obj or "text" not in out:
        raise BadRow("the texts were not logged (--log-requests-level 3)")
    prompt = obj.get("text")
    if not isinstance(prompt, str):
        raise Ignored("a request without a text")
    if isinstance(out.get("text"), list):
        raise Ignored("a batch in one request")
    meta = out.get("meta_info")
    meta = meta if isinstance(meta, Mapping) else {}
    finish = first(meta, ("finish_reason.type",)) or meta.get("finish_reason")
    sampling = obj.get("sampling_params")
    request = {"sampling_params": sampling} if isinstance(sampling, Mapping) else {}
    if obj.get("lora_path"):
        request["lora_path"] = obj["lora_path"]
    took = meta.get("e2e_latency")
    ended = when(row.get("timestamp"))
    seconds = float(took) if isinstance(took, int | float) and took >= 0 else None
    yield Record(
        messages=messages_from_prompt(prompt),
        answer=text_or_none(out.get("text")) if finish != "abort" else None,
        turns="last",
        id=text_or_none(first(row, ("rid",)) or obj.get("rid")),
        time=when(meta.get("request_received_ts")) or (ended - seconds if ended and seconds is not None else ended),
        endpoint="chat.completions",
        request=request,
        failed=finish == "abort",
        finish_reason=text_or_none(finish),
        prompt_tokens=integer(meta.get("prompt_tokens")),
        completion_tokens=integer(meta.get("completion_tokens")),
        cached_tokens=integer(meta.get("cached_tokens")),
        seconds=seconds,
    )


_LOG_PREFIX: Final = re.compile(rb"^\[[^\]]{4,40}\]\s*(?=\{)")


# --------------------------------------------------------------------------------------------------- CSV, pairs

_QUESTIONS: Final = (
    ("question1", "question2"), ("sentence1", "sentence2"), ("text1", "text2"), ("a", "b"), ("query1", "query2"),
)  # fmt: skip


def question_columns(row: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the names of the two columns of a pair, where there are such; ``row`` has its names in lower case."""
    return next((pair for pair in _QUESTIONS if all(name in row for name in pair)), None)


def _csv_claims(row: Row) -> bool:
    low = {name.lower(): value for name, value in row.items()}
    return question_columns(low) is not None or bool(low.keys() & {"question", "prompt", "query", "message"})


def _csv(row: Row) -> Iterator[Record]:
    """Pairs of questions, the first asked before the second; or one question a row, with its answer where given."""
    low = {name.lower(): value for name, value in row.items()}
    moment = when(first(low, ("time", "timestamp", "created_at")))
    common: dict[str, Any] = {
        "turns": "last",
        "time": moment,
        "session": text_or_none(first(low, ("session", "session_id"))),
        "user": text_or_none(first(low, ("user", "user_id"))),
        "model": text_or_none(first(low, ("model",))),
    }
    names = question_columns(low)
    if names is not None:
        yield from (Record(messages=messages_of(low[name]), **common) for name in names)
        return
    asked = first(low, ("question", "prompt", "query", "message"))
    if asked is None:
        raise BadRow("no question")
    yield Record(
        messages=[{"role": "user", "content": str(asked)}],
        answer=text_or_none(first(low, ("answer", "response", "completion"))),
        **common,
    )


# -------------------------------------------------------------------------------------------------- which is it

FORMATS: Final[Mapping[str, Format]] = {
    one.name: one
    for one in (
        Format("sglang", "SGLang's request log (level 3, JSON)", _sglang_claims, _sglang),
        Format("litellm", "LiteLLM: standard logging payloads or spend logs", _litellm_claims, _litellm),
        Format("langfuse", "Langfuse: exported observations or traces", _langfuse_claims, _langfuse),
        Format("sharegpt", "ShareGPT conversations", _sharegpt_claims, _sharegpt),
        Format("openai", "OpenAI requests with their responses; Batch input files", _openai_claims, _openai),
        Format("antiphon", "Antiphon's own conversations, and what is close to them", _native_claims, _native),
        Format("csv", "CSV or TSV of questions or pairs of questions", _csv_claims, _csv),
    )
}
"""By name, in the order in which they are asked."""

_CSV_ENDINGS: Final = (".csv", ".tsv")


def _is_csv(path: Path | str) -> bool:
    file = Path(path)
    return (file.stem if file.suffix in COMPRESSED else file.name).lower().endswith(_CSV_ENDINGS)


def _rows(path: Path | str, problems: Problems, kind: str) -> Iterator[tuple[int, Any]]:
    if kind == "csv" or _is_csv(path):
        yield from csv_rows(path, problems)
    elif kind == "sglang":
        yield from _log_rows(path, problems)
    else:
        yield from json_rows(path, problems)


def _log_rows(path: Path | str, problems: Problems) -> Iterator[tuple[int, Any]]:
    """Rows of a log whose lines begin with a time in brackets and hold other things too."""
    from eval.traffic.source import lines

    decode, name = msgspec.json.Decoder().decode, name_of(path)
    for number, line in lines(path, problems):
        line = _LOG_PREFIX.sub(b"", line)
        if not line.startswith(b"{"):
            problems.ignore("another line of the server's log")
            continue
        problems.rows += 1
        try:
            yield number, decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            problems.add(BadRow(f"not JSON: {error}", name, number))


class _Enough(Exception):  # noqa: N818
    """So much of a file has been looked at that more would not help."""


class _Trial(Problems):
    """Gives up on a file that may be long and is something else."""

    def add(self, problem: BadRow) -> None:
        super().add(problem)
        if self.skipped >= _BAD_LOOKED_AT:
            raise _Enough

    def ignore(self, what: str) -> None:
        super().ignore(what)
        if self.ignored[what] >= _OTHERS_LOOKED_AT:
            raise _Enough


def detect(path: Path | str) -> str:
    """Say which format a file is in; an empty file is "antiphon", a log without turns. Raises `UnknownFormat`."""
    if _is_csv(path):
        return "csv"
    if str(path) == "-":
        return "antiphon"
    seen = 0
    for rows in (json_rows, _log_rows):
        trial = _Trial()
        try:
            for _, row in rows(path, trial):
                seen += 1
                if isinstance(row, Mapping):
                    for one in FORMATS.values():
                        if one.name != "csv" and one.claims(row):
                            return one.name
                if seen >= _LOOKED_AT:
                    break
        except _Enough:
            continue
        if seen == 0 and trial.rows == 0 and not trial.ignored:
            return "antiphon"
    raise UnknownFormat(
        f"{name_of(path)}: none of its first rows looks like a log that can be read; "
        f"name its format ({', '.join(FORMATS)})"
    )


def kind_of(path: Path | str, kind: str = "auto") -> str:
    """Return the format a file is read as: ``kind``, or what `detect` says.

    Raises `TrafficError` where there is no such format or no such file.
    """
    if kind == "auto":
        return detect(path)
    if kind not in FORMATS:
        raise TrafficError(f"no format is called {kind}; there are {', '.join(FORMATS)}")
    if str(path) != "-":
        opened(path).close()
    return kind


def read_records(
    paths: Sequence[Path | str],
    *,
    kind: str = "auto",
    problems: Problems | None = None,
) -> Iterator[tuple[str, int, Record]]:
    """Yield (file name, line, record) of every good row of ``paths``, in order, holding one row at a time.

    ``kind`` is a name of `FORMATS` or "auto". Bad rows go to ``problems``, which decides whether to go on. Raises
    `TrafficError` where a file cannot be read at all.
    """  # fmt: skip
    problems = problems or Problems()
    for path in paths:
        name = name_of(path)
        reader = FORMATS[kind_of(path, kind)]
        for line, row in _rows(path, problems, reader.name):
            if not isinstance(row, Mapping):
                problems.add(BadRow("not an object", name, line))
                continue
            try:
                for record in reader.read(row):
                    yield name, line, record
            except Ignored as ignored:
                problems.ignore(ignored.what)
            except BadRow as bad:
                problems.add(bad.at(name, line))
            except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
                problems.add(BadRow(f"not a row of {reader.name}: {error!r}", name, line))
