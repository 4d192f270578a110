"""Capture: what users ask and get, as a log that ``antiphon audit`` and the other tools read. Off unless wanted.

Everything but keeping the bytes of a reply happens in a thread behind a bounded queue: a request never waits for it and
never fails by it. What cannot be kept is counted by why, and said in the log once a minute.

Credentials, sessions and users are written as keyed digests. Personal data and secrets in texts are replaced
(`fingerprint.redaction`) before anything reaches the disk. Files belong to the proxy's user alone.
"""

from __future__ import annotations

import logging
import os
import queue
import secrets
import threading
import time
from collections.abc import MutableMapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from fingerprint.redaction import Redactor
from fingerprint.text import utf8
from fingerprint.traffic import Record, encode_record
from proxy.codings import decoded
from proxy.endpoints import Endpoint, Json
from proxy.endpoints.sse import EventReader
from proxy.metrics import Metrics
from proxy.plans import Plan
from proxy.settings import CaptureSettings
from proxy.upstream import Scope, Send

__all__ = ["CURRENT", "Capture"]

log = logging.getLogger(__name__)

CURRENT: Final = "traffic.jsonl"
"""The file that is written to; full ones are ``traffic-TIME.jsonl`` beside it."""

_KEY: Final = "traffic.key"
_MOST_REPLY: Final = 8 << 20  # bytes
_WAITING: Final = 1_000  # replies
_WAITING_BYTES: Final = 64 << 20  # of them together
_LOG_EVERY_S: Final = 60.0
_NOT_A_FIELD: Final = frozenset(
    {"messages", "system", "input", "instructions", "prompt", "model", "user", "stream", "stream_options", "cache_salt"}
)
_DECODE: Final = msgspec.json.Decoder().decode


@dataclass(slots=True)
class _Seen:
    """One request with its reply, as it went over the wire."""

    endpoint: Endpoint
    plan: Plan
    session: str | None
    at: float
    began: float
    seconds: float = 0.0
    status: int = 0
    headers: list[tuple[bytes, bytes]] | None = None
    pieces: list[bytes] | None = None
    size: int = 0


class Capture:
    """Writes what `tap` saw. Make one, `start` it, `close` it."""

    def __init__(self, settings: CaptureSettings, folder: Path, metrics: Metrics) -> None:
        """``folder`` is where the files go (``capture.folder``, or a folder of the data folder)."""
        self._settings = settings
        self._folder = folder
        self._metrics = metrics
        self._queue: queue.Queue[_Seen | None] = queue.Queue(_WAITING)
        self._bytes = 0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._file: IO[bytes] | None = None
        self._written = 0
        self._key = b""
        self._redactor: Redactor | None = None
        self._told: dict[str, float] = {}
        self._threshold = round(settings.sample_rate * (1 << 32))

    def start(self) -> None:
        """Open the file and start writing. Raises ``OSError`` where that cannot be done."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._key = self._made_key()
        self._redactor = Redactor(self._key) if self._settings.redact else None
        self._open()
        self._thread = threading.Thread(target=self._work, name="antiphon-capture", daemon=True)
        self._thread.start()
        log.info("what is asked and answered is captured in %s", self._folder)

    def close(self, patience_s: float = 5.0) -> None:
        """Write what waits, for so long at most, and stop."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            self._queue.put(None, timeout=patience_s)
        except queue.Full:
            return
        thread.join(patience_s)

    # ------------------------------------------------------------------------------------------- on the client's path

    def tap(self, endpoint: Endpoint, scope: Scope, plan: Plan, send: Send) -> Send:
        """Return a ``send`` that keeps what passes through it; ``send`` itself where there is nothing to keep."""
        try:
            seen = self._wanted(endpoint, scope, plan)
        except Exception as error:
            self._dropped("failed", error)
            return send
        if seen is None:
            return send

        async def tapped(message: MutableMapping[str, Any]) -> None:
            await send(message)  # the client first
            self._see(seen, message)

        return tapped

    def _wanted(self, endpoint: Endpoint, scope: Scope, plan: Plan) -> _Seen | None:
        if self._thread is None or not plan.understood or plan.turn is None:
            return None
        session = next((v.decode("latin-1") for n, v in scope["headers"] if n == b"x-antiphon-session"), None)
        if self._threshold < 1 << 32:
            begun = session if session is not None else (plan.turn.history or (plan.turn.message,))[0].text
            drawn = blake2b(utf8(begun), digest_size=4, key=self._key, person=b"antiphon.sample").digest()
            if int.from_bytes(drawn, "big") >= self._threshold:
                return None
        return _Seen(endpoint, plan, session, time.time(), time.perf_counter(), pieces=[])

    def _see(self, seen: _Seen, message: MutableMapping[str, Any]) -> None:
        try:
            if message["type"] == "http.response.start":
                seen.status, seen.headers = message["status"], list(message["headers"])
                return
            if seen.pieces is None:
                return
            piece = message.get("body", b"")
            seen.size += len(piece)
            if seen.size > _MOST_REPLY:
                seen.pieces = None
                self._dropped("too-large")
                return
            seen.pieces.append(piece)
            if message.get("more_body", False):
                return
            seen.seconds = time.perf_counter() - seen.began
            self._put(seen)
        except Exception as error:
            self._dropped("failed", error)

    def _put(self, seen: _Seen) -> None:
        weight = seen.size + 4 * sum(len(m.text) for m in seen.plan.turn.messages) if seen.plan.turn else seen.size
        with self._lock:
            if self._bytes + weight > _WAITING_BYTES:
                full = True
            else:
                full, self._bytes = False, self._bytes + weight
        seen.size = weight
        try:
            if full:
                raise queue.Full
            self._queue.put_nowait(seen)
        except queue.Full:
            if not full:
                self._release(weight)
            self._dropped("busy")

    def _release(self, weight: int) -> None:
        with self._lock:
            self._bytes -= weight

    # ------------------------------------------------------------------------------------------------- in the thread

    def _work(self) -> None:
        while (seen := self._queue.get()) is not None:
            try:
                record = self._record(seen)
                if record is not None:
                    self._write(encode_record(record))
                    self._metrics.captured.inc()
            except OSError as error:
                self._dropped("disk", error)
                self._shut()
            except Exception as error:
                self._dropped("failed", error)
            finally:
                self._release(seen.size)
        self._shut()

    def _record(self, seen: _Seen) -> Record | None:
        plan, endpoint = seen.plan, seen.endpoint
        assert plan.turn is not None
        headers = {name.lower(): value.decode("latin-1") for name, value in seen.headers or ()}
        reply = self._reply(seen, headers)
        good = 200 <= seen.status < 300
        verdict = endpoint.judge(reply, plan.body) if good and reply is not None else None
        found: set[str] = set()
        redact = self._redactor
        messages = _messages(endpoint, plan)
        answer = verdict.text if verdict is not None and verdict.text else None
        request = {n: v for n, v in plan.body.items() if n not in _NOT_A_FIELD and v is not None}
        if redact is not None:
            messages = redact.value(messages, found)
            answer = None if answer is None else redact.text(answer, found)
            request = redact.value(request, found)
        reuse = headers.get(b"x-antiphon-reuse")
        confidence = headers.get(b"x-antiphon-confidence")
        user = plan.body.get("user")
        return Record(
            messages=messages,
            answer=answer,
            turns="last",
            time=round(seen.at, 3),
            session=None if seen.session is None else self._name("session", seen.session),
            user=self._name("user", user) if isinstance(user, str) and user else None,
            caller=self._name("caller", plan.partition.hex()),
            model=plan.body.get("model") if isinstance(plan.body.get("model"), str) else None,
            endpoint=endpoint.name,
            request=request,
            knowledge_version=plan.knowledge_version,
            finish_reason=_finish_reason(reply),
            failed=not good,
            prompt_tokens=verdict.prompt_tokens or None if verdict is not None else None,
            completion_tokens=verdict.completion_tokens or None if verdict is not None else None,
            cached_tokens=None if verdict is None else verdict.cached_tokens,
            seconds=round(seen.seconds, 4) if reuse != "answer" else None,
            reuse=reuse if reuse in ("answer", "kv", "miss", "bypass") else None,  # type: ignore[arg-type]
            reason=headers.get(b"x-antiphon-reason"),
            entry=headers.get(b"x-antiphon-entry"),
            confidence=None if confidence is None else float(confidence),
            redacted=tuple(sorted(found)),
        )

    def _reply(self, seen: _Seen, headers: dict[bytes, str]) -> Json | None:
        data = b"".join(seen.pieces or ())
        if headers.get(b"content-type", "").startswith("text/event-stream"):
            if not seen.endpoint.streams():
                return None
            reader, assembler = EventReader(), seen.endpoint.assembler()
            for event in (*reader.feed(data), *reader.close()):
                if event.data is not None:
                    assembler.add(event.data)
            return assembler.finish().reply
        plain = decoded(data, headers.get(b"content-encoding", "").strip().lower().encode("latin-1"), _MOST_REPLY)
        value = None if plain is None else _DECODE(plain)
        return value if isinstance(value, dict) else None

    def _name(self, kind: str, value: str) -> str:
        """The same name for the same value, from which nobody without the key can tell the value."""
        return blake2b(utf8(f"{kind}\0{value}"), digest_size=8, key=self._key, person=b"antiphon.name").hexdigest()

    # ------------------------------------------------------------------------------------------------------ the files

    def _made_key(self) -> bytes:
        path = self._folder / _KEY
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # noqa: PTH123
                file.write(secrets.token_bytes(32))
        except FileExistsError:
            pass
        key = path.read_bytes()
        if len(key) < 16:
            raise OSError(f"{path} holds no key; remove it, and values get other names from then on")
        return key[:64]

    def _open(self) -> None:
        path = self._folder / CURRENT
        file = open(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600), "ab")  # noqa: PTH123, SIM115
        self._written = file.tell()
        if self._written:  # a line that a crash cut short must not swallow the next one
            with path.open("rb") as end:
                end.seek(-1, os.SEEK_END)
                if end.read(1) != b"\n":
                    self._written += file.write(b"\n")
        self._file = file

    def _write(self, line: bytes) -> None:
        if self._file is None:
            self._open()
        if self._written and self._written + len(line) > self._settings.max_file_mib * (1 << 20):
            self._rotate()
        assert self._file is not None
        self._written += self._file.write(line)
        if self._queue.empty():
            self._file.flush()

    def _rotate(self) -> None:
        self._shut()
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
        (self._folder / CURRENT).rename(self._folder / f"traffic-{stamp}.jsonl")
        full = sorted(self._folder.glob("traffic-*.jsonl"))
        for old in full[: max(0, len(full) - self._settings.keep_files + 1)]:
            old.unlink(missing_ok=True)
        self._open()

    def _shut(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError as error:
                self._dropped("disk", error)

    def _dropped(self, why: str, error: Exception | None = None) -> None:
        self._metrics.capture_dropped.labels(why).inc()
        now = time.monotonic()
        if now - self._told.get(why, -_LOG_EVERY_S) >= _LOG_EVERY_S:
            self._told[why] = now
            log.warning("a request was not captured (%s)%s", why, f": {error!r}" if error is not None else "")


def _messages(endpoint: Endpoint, plan: Plan) -> list[dict[str, Any]]:
    """The conversation as OpenAI messages: as it was sent where that is what was sent, else its texts."""
    told = plan.body.get("messages")
    if endpoint.name == "chat.completions" and isinstance(told, list):
        return told
    assert plan.turn is not None
    return [{"role": message.role, "content": message.text} for message in plan.turn.messages]


def _finish_reason(reply: Json | None) -> str | None:
    if reply is None:
        return None
    choices = reply.get("choices")
    reason = choices[0].get("finish_reason") if isinstance(choices, list) and choices else reply.get("stop_reason")
    return reason if isinstance(reason, str) else None
