"""The turns of a log in the order in which they were asked, and what their users did next."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Final

from rapidfuzz import fuzz

from eval.traffic import LoggedTurn, Problems, read_turns
from fingerprint.signals import signals_of
from fingerprint.text import utf8

__all__ = ["REACTIONS", "drawn", "in_order", "reactions"]

REACTIONS: Final = ("corrected", "reasked", "edited", "left", "went on")
"""What a user did next: contradicted the answer; asked the same again; changed the question and sent it anew; left (no
further turn); went on."""

_SAME: Final = 88.0  # rapidfuzz token_set_ratio, 0 … 100, from which two messages ask the same


def drawn(conversation: str, share: float, seed: int) -> bool:
    """Whether a conversation belongs to the sample: always the same ones for a seed."""
    name = blake2b(utf8(f"{seed}:{conversation}"), digest_size=8).digest()
    return int.from_bytes(name, "big") / 2**64 < share


def in_order(
    files: Sequence[Path | str],
    *,
    problems: Problems,
    kind: str = "auto",
    share: float = 1.0,
    seed: int = 0,
    limit: int | None = None,
) -> list[LoggedTurn]:
    """Return the turns of all files by time; those without one stay behind the turn they follow in the file.

    Raises `eval.traffic.TrafficError`.
    """
    last = float("-inf")
    timed: list[tuple[float, int, LoggedTurn]] = []
    for number, turn in enumerate(read_turns(files, kind=kind, problems=problems)):
        if share < 1 and not drawn(turn.conversation, share, seed):
            continue
        last = turn.time if turn.time is not None else last
        timed.append((last, number, turn))
    timed.sort(key=lambda item: item[:2])
    turns = [turn for _, _, turn in timed]
    return turns if limit is None else turns[:limit]


def reactions(turns: Sequence[LoggedTurn]) -> list[str]:
    """What the user did after each turn, as far as the log tells; what it says itself goes first."""
    by_conversation: dict[str, list[int]] = defaultdict(list)
    for number, turn in enumerate(turns):
        by_conversation[turn.conversation].append(number)
    found = ["left"] * len(turns)
    for numbers in by_conversation.values():
        for place, number in enumerate(numbers):
            told = turns[number].record.reaction
            if told is not None:
                found[number] = told
            elif place + 1 < len(numbers):
                found[number] = _next(turns[number], turns[numbers[place + 1]])
    return found


def _next(turn: LoggedTurn, following: LoggedTurn) -> str:
    if following.turn.history == turn.turn.history:
        return "reasked" if following.turn.message.text == turn.turn.message.text else "edited"
    if signals_of(following.turn).correction:
        return "corrected"
    if fuzz.token_set_ratio(following.turn.message.text.casefold(), turn.turn.message.text.casefold()) >= _SAME:
        return "reasked"
    return "went on"
