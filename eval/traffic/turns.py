"""Turns out of records: every user message with the conversation before it and the answer it got."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from eval.traffic.errors import BadRow
from eval.traffic.problems import Problems
from eval.traffic.readers import read_records
from fingerprint.chat import message_from_dict
from fingerprint.conversation import Message, Turn
from fingerprint.errors import NotUnderstood
from fingerprint.text import utf8
from fingerprint.traffic import Record

__all__ = ["LoggedTurn", "read_turns", "turns_of"]


@dataclass(frozen=True, slots=True)
class LoggedTurn:
    """One turn that somebody really asked.

    ``time`` in seconds since the epoch; ``conversation`` is the session where the log names one, else what tells
    conversations apart: a digest of how it began, with the user. ``index`` counts the turns of a record from 0.
    ``answer`` is None where the log has none (never asked, failed, cut off).
    """

    turn: Turn
    answer: str | None
    time: float | None
    conversation: str
    record: Record
    file: str
    line: int
    index: int = 0

    @property
    def complete(self) -> bool:
        """Whether the answer may be stored: there, and not cut off (DESIGN §3.9)."""
        return bool(self.answer and self.answer.strip()) and self.record.finish_reason in (None, "stop", "end_turn")

    @property
    def storable(self) -> bool:
        """Whether it may be taken that there was an answer that can be stored: told complete, or not told at all."""
        if self.record.failed or self.record.finish_reason not in (None, "stop", "end_turn"):
            return False
        return self.answer is None or bool(self.answer.strip())

    @property
    def body(self) -> dict[str, Any]:
        """The request's fields but the conversation's, as they enter the identity."""
        model = {} if self.record.model is None else {"model": self.record.model}
        return {**self.record.request, **model}


def read_turns(
    paths: Sequence[Path | str],
    *,
    kind: str = "auto",
    problems: Problems | None = None,
    limit: int | None = None,
) -> Iterator[LoggedTurn]:
    """Yield the turns of logs in the order they are written, at most ``limit``; bad rows go to ``problems``.

    Raises `eval.traffic.errors.TrafficError` where a file cannot be read or has only bad rows, or (``strict``) for the
    first bad row.
    """
    problems = problems or Problems()
    count = 0
    for file, line, record in read_records(paths, kind=kind, problems=problems):
        try:
            turns = turns_of(record, file=file, line=line)
        except BadRow as bad:
            problems.add(bad)
            continue
        for turn in turns:
            if limit is not None and count >= limit:
                return
            count += 1
            yield turn
    problems.none_read()


def turns_of(record: Record, *, file: str = "", line: int = 0) -> list[LoggedTurn]:
    """Return the turns of one record, oldest first. Raises `BadRow` where it has none or cannot be read."""
    times: list[float | None] = []
    messages: list[Message] = []
    for raw in record.messages:
        moment = raw.get("time")
        times.append(float(moment) if isinstance(moment, int | float) and not isinstance(moment, bool) else None)
        plain = {name: value for name, value in raw.items() if name != "time"} if "time" in raw else raw
        try:
            messages.append(message_from_dict(plain))
        except NotUnderstood as error:
            raise BadRow(error.reason, file, line) from None
    if not messages:
        raise BadRow("messages is empty", file, line)
    lead = 0
    while lead < len(messages) and messages[lead].role in ("system", "developer"):
        lead += 1
    system, said = tuple(messages[:lead]), tuple(messages[lead:])
    times = times[lead:]
    conversation = _conversation(record, said)
    whole = record.turns == "all" or (
        record.turns is None and bool(said) and (said[-1].role == "assistant" or any(t is not None for t in times))
    )
    if not whole:
        if not said:
            raise BadRow("nobody says anything but the system", file, line)
        turn = Turn(system, said[:-1], said[-1])
        moment = record.time if record.time is not None else times[-1]
        return [LoggedTurn(turn, record.answer, moment, conversation, record, file, line)]
    found: list[LoggedTurn] = []
    for at, message in enumerate(said):
        if message.role != "user":
            continue
        behind = said[at + 1] if at + 1 < len(said) else None
        answer = behind.text if behind is not None and behind.role == "assistant" and behind.text else None
        if at == len(said) - 1 and record.answer is not None:
            answer = record.answer
        moment = times[at] if times[at] is not None else (record.time if at == len(said) - 1 or not found else None)
        found.append(
            LoggedTurn(
                Turn(system, said[:at], message), answer, moment, conversation, record, file, line, len(found)
            )
        )  # fmt: skip
    if not found:
        raise BadRow("no user says anything", file, line)
    return found


def _conversation(record: Record, said: Sequence[Message]) -> str:
    if record.session is not None:
        return record.session
    begun = blake2b(digest_size=12)
    for part in (record.caller or "", record.user or "", said[0].role if said else "", said[0].text if said else ""):
        encoded = utf8(part)
        begun.update(len(encoded).to_bytes(8, "big") + encoded)
    return begun.hexdigest()
