"""The context of a turn: which texts stand for what was said before it, and the vectors made of them.

Strategies (``store.context_strategy``):

- ``current``: the message alone; what was said before does not order candidates;
- ``window``: the last rounds, the newest weighing most;
- ``window+topic``: these, and the first turn of the conversation as a field of its own;
- ``summary``: these, and the sentences that stand for everything before them (extractive, no model) in its place.

In all of them a topic shift cuts the window: rounds before it do not count, and a turn that opens a new topic has the
context of a first message (`fingerprint.facts.topics`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fingerprint.conversation import Message, Turn
from fingerprint.facts.topics import Round, relevant_rounds, rounds_of, summary_of
from store.settings import ContextStrategy

__all__ = [
    "Context",
    "ContextStrategy",
    "ContextVectors",
    "context_name",
    "context_of",
    "cosine",
    "said",
    "window_vector",
]

Floats = NDArray[np.float32]

DECAY: Final = 0.6
"""Weight of a round against the one after it: of five rounds the last carries 43 %, the first 6 %."""

_REPLY: Final = 120  # characters
_MADE_BY: Final = "2"  # raise it whenever a strategy takes other texts from the same conversation


@dataclass(frozen=True, slots=True)
class Context:
    """What stands for what was said before a turn.

    ``window``: texts, newest first, each with its weight, 0 … 1. ``topic``: the text of the second field, "" where the
    strategy has none. ``fresh``: nothing said before counts, as for a first message.
    """

    window: tuple[tuple[str, float], ...]
    topic: str
    fresh: bool

    @property
    def texts(self) -> list[str]:
        """Everything that is embedded."""
        return [*(text for text, _ in self.window), *([self.topic] if self.topic else [])]


@dataclass(frozen=True, slots=True)
class ContextVectors:
    """The vectors of a context, shape (d,) and length 1; None where there is none (in this space, or in time)."""

    window: Floats | None
    topic: Floats | None
    fresh: bool


def context_name(strategy: ContextStrategy, rounds: int) -> str:
    """The name vectors of a context are stored under; those of two names are never compared."""
    return f"{strategy}/{rounds}/{_MADE_BY}"


def context_of(turn: Turn, strategy: ContextStrategy, rounds: int, *, cut: bool = True) -> Context:
    """The context of a turn. Linear in the ``rounds`` last rounds (and, for ``summary``, in the whole history).

    ``cut`` false lets a window go on behind a shift of topic: to measure what the cut is worth.
    """
    if not turn.history:
        return Context((), "", fresh=True)
    if strategy == "current" or rounds == 0:
        return Context((), "", fresh=False)
    counting = relevant_rounds(turn, rounds) if cut else rounds_of(turn.history, rounds)
    window = tuple(
        (said(message), DECAY**age) for age, round_ in enumerate(counting) for message in reversed(round_.messages)
    )
    if not window:
        return Context((), "", fresh=True)
    topic = ""
    if strategy == "window+topic":
        topic = next((m.text for m in turn.history if m.role == "user" and m.text.strip()), "")
    elif strategy == "summary":
        topic = summary_of(_before(turn, counting))
    return Context(window, topic, fresh=False)


def said(message: Message) -> str:
    """What of a message counts in a context: of a reply its beginning, which says what it is about. A whole one would
    keep the embedder busy for a tenth of a second while turns wait."""
    return message.text[:_REPLY] if message.role == "assistant" else message.text


def _before(turn: Turn, counting: Sequence[Round]) -> Sequence[Message]:
    """The messages before the rounds of the window; the whole history where the window holds all of it."""
    oldest = counting[-1].messages[0]
    at = next((n for n, message in enumerate(turn.history) if message is oldest), 0)
    return turn.history[:at] or turn.history


def window_vector(parts: Sequence[tuple[Floats, float]]) -> Floats | None:
    """Return the weighted mean of unit vectors of shape (d,), scaled to length 1; None where it has no direction."""
    if not parts:
        return None
    total = np.zeros_like(parts[0][0], dtype=np.float32)
    for vector, weight in parts:
        total += np.float32(weight) * vector
    length = float(np.linalg.norm(total))
    return total / np.float32(length) if length > 1e-6 else None


def cosine(one: Floats, other: Floats) -> float:
    """Return the cosine of two vectors of shape (d,), −1 … 1; 0 where one has no length or the shapes differ."""
    if one.shape != other.shape:
        return 0.0
    lengths = float(np.linalg.norm(one)) * float(np.linalg.norm(other))
    if not lengths:
        return 0.0
    return max(-1.0, min(1.0, float(one @ other) / lengths))
