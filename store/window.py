"""The window: the last rounds before a message, and one vector that stands for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fingerprint.conversation import Message

__all__ = ["cosine", "window_texts", "window_vector"]

DECAY: Final = 0.6
"""Weight of a round against the one after it: of five rounds the last carries 43 %, the first 6 %."""


def window_texts(history: Sequence[Message], rounds: int) -> list[tuple[str, float]]:
    """Return the texts of the last ``rounds`` rounds of ``history``, newest first, each with its weight, 0 … 1.

    A round is a user message with everything up to the next one.
    Only what users and the assistant said: tool results and system messages say little about what is talked about.
    """
    texts: list[tuple[str, float]] = []
    age = 0
    for message in reversed(history):
        if age >= rounds:
            break
        if message.role in ("user", "assistant") and message.text.strip():
            texts.append((message.text, DECAY**age))
        if message.role == "user":
            age += 1
    return texts


def window_vector(parts: Sequence[tuple[NDArray[np.float32], float]]) -> NDArray[np.float32] | None:
    """Return the weighted mean of unit vectors of shape (d,), scaled to length 1; None where it has no direction."""
    if not parts:
        return None
    total = np.zeros_like(parts[0][0], dtype=np.float32)
    for vector, weight in parts:
        total += np.float32(weight) * vector
    length = float(np.linalg.norm(total))
    return total / np.float32(length) if length > 1e-6 else None


def cosine(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """Return the cosine of two vectors of shape (d,), −1 … 1; 0 where one has no length or the shapes differ."""
    if one.shape != other.shape:
        return 0.0
    lengths = float(np.linalg.norm(one)) * float(np.linalg.norm(other))
    if not lengths:
        return 0.0
    return max(-1.0, min(1.0, float(one @ other) / lengths))
