"""A log to audit, with known truth: conversations of the labelled data, asked again and again in their wordings.

What is asked follows Zipf's law over *questions* (a question is a set of conversations that the labels call
equivalent), and each time one of the question's wordings is drawn. Which repeats are exact, reworded or in context
follows from that. The data hold too few questions for a long log, and real ones are often about another number: a share
of the requests has its numbers replaced by others, near to all its siblings. Of those it is not known what they have in
common with others (a number may matter or not), so truth knows nothing of them.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from eval.data import families, load_pairs
from fingerprint.conversation import Turn
from fingerprint.traffic import Record, encode_record

__all__ = ["main", "questions", "records", "write_log"]

_EXPONENT: Final = 0.6
_RENUMBERED: Final = 0.5
_NUMBER: Final = re.compile(r"\d{2,}")
_WEEK_S: Final = 7 * 86_400.0
_BEGAN: Final = 1_760_000_000.0

Conversation = list[dict[str, str]]


def questions(seed: int = 0) -> list[list[Conversation]]:
    """Return every question of the data as its wordings, in a random order.

    A family's ``base`` and ``same`` are one question, each of its ``different`` another; pairs of the public files that
    are equivalent are one question, others two. Questions that share a wording are one.
    """
    found: list[list[Conversation]] = []
    for family in families():
        found.append([_messages(family["base"]), *(_messages(one) for one in family["same"])])
        found += [[_messages(one)] for one in family["different"]]
    for pair in load_pairs():
        sides = [_of_turn(pair.a), _of_turn(pair.b)]
        found += [sides] if pair.equivalent else [[side] for side in sides]
    found = _joined(found)
    random.Random(seed).shuffle(found)
    return found


def _joined(found: list[list[Conversation]]) -> list[list[Conversation]]:
    """Questions that have a wording in common, word for word, are one."""
    parent = list(range(len(found)))

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    of_wording: dict[str, int] = {}
    for number, wordings in enumerate(found):
        for wording in wordings:
            parent[root(number)] = root(of_wording.setdefault(json.dumps(wording), number))
    joined: dict[int, dict[str, Conversation]] = {}
    for number, wordings in enumerate(found):
        joined.setdefault(root(number), {}).update({json.dumps(wording): wording for wording in wordings})
    return [list(wordings.values()) for wordings in joined.values()]


def _messages(value: Any) -> Conversation:
    messages = value["messages"] if isinstance(value, dict) else value
    return [{"role": m["role"], "content": m["content"]} for m in messages]


def _of_turn(turn: Turn) -> Conversation:
    return [{"role": m.role, "content": m.text} for m in turn.messages]


def records(count: int, seed: int = 0) -> Iterator[tuple[int | None, Record]]:
    """Yield (question, record) of ``count`` requests over a week, oldest first; None where the truth is not known."""
    rng = random.Random(seed)
    asked = questions(seed)
    weights = [1.0 / (rank + 1) ** _EXPONENT for rank in range(len(asked))]
    chosen = rng.choices(range(len(asked)), weights, k=count)
    times = sorted(rng.uniform(0.0, _WEEK_S) for _ in range(count))
    for number, (question, time) in enumerate(zip(chosen, times, strict=True)):
        wording = rng.choice(asked[question])
        known: int | None = question
        if rng.random() < _RENUMBERED and any(_NUMBER.search(m["content"]) for m in wording):
            wording, known = _renumbered(wording, rng), None
        yield (
            known,
            Record(
                messages=list(wording),
                answer=f"The answer to question {question}.",
                turns="last",
                time=_BEGAN + time,
                session=f"s{number}",
                model="model",
                completion_tokens=200,
                prompt_tokens=20 + sum(len(m["content"]) for m in wording) // 4,
                seconds=2.0,
            ),
        )


def main(arguments: Sequence[str]) -> int:
    """Write a log: FILE COUNT [SEED]."""
    file, count, *seed = arguments
    write_log(Path(file), int(count), int(seed[0]) if seed else 0)
    return 0


def _renumbered(wording: Conversation, rng: random.Random) -> Conversation:
    """The same with other numbers, each replaced by the same one wherever it stands."""
    others: dict[str, str] = {}

    def other(match: re.Match[str]) -> str:
        old = match.group()
        if old not in others:
            others[old] = str(rng.randrange(10 ** (len(old) - 1), 10 ** len(old)))
        return others[old]

    return [{"role": m["role"], "content": _NUMBER.sub(other, m["content"])} for m in wording]


def write_log(file: Path, count: int, seed: int = 0) -> list[int | None]:
    """Write a log of ``count`` requests; returns the question of each (see `records`). Raises `DataMissing`."""
    truth: list[int | None] = []
    with file.open("wb") as out:
        for question, record in records(count, seed):
            truth.append(question)
            out.write(encode_record(record))
    file.with_suffix(".truth.json").write_text(json.dumps(truth), "utf-8")
    return truth


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
