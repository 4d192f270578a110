"""How questions, answers and vectors are written into the database, and read back."""

from __future__ import annotations

import zlib
from typing import Final, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from fingerprint.conversation import Message, Turn
from fingerprint.text import utf8
from store.types import Answer

__all__ = [
    "is_damaged",
    "pack_answer",
    "pack_question",
    "pack_vector",
    "unpack_answer",
    "unpack_question",
    "unpack_vector",
]

_PLAIN: Final = b"\x00"
_ZLIB: Final = b"\x01"
_COMPRESS_FROM: Final = 512  # bytes; below that zlib saves nothing worth its microseconds

# Texts are stored as bytes: UTF-8 with lone surrogates, which MessagePack's own strings cannot carry.
_QUESTION: Final = msgspec.msgpack.Decoder(list[tuple[bytes, bytes, bytes]])
_ANSWER: Final = msgspec.msgpack.Decoder(tuple[bytes, bytes])

Vector = NDArray[np.float32]
T = TypeVar("T")


def pack_question(turn: Turn) -> bytes:
    """Encode a turn without its leading system messages (those belong to the identity)."""
    return _pack([(utf8(m.role), utf8(m.text), m.opaque) for m in (*turn.history, turn.message)])


def unpack_question(data: bytes, system: tuple[Message, ...]) -> Turn:
    """Decode what `pack_question` wrote; ``system`` are the leading messages of the turn it is compared with.

    Raises `ValueError` where the bytes are not what was written.
    """
    stored = _unpack(data, _QUESTION)
    messages = tuple(Message(_text(role), _text(text), opaque) for role, text, opaque in stored)
    if not messages:
        raise ValueError("a question without a message")
    return Turn(system, messages[:-1], messages[-1])


def pack_answer(answer: Answer) -> bytes:
    """Encode body and text together: the text occurs in the body, so compression pays for it once."""
    return _pack((answer.body, utf8(answer.text)))


def unpack_answer(data: bytes, *, prompt_tokens: int, completion_tokens: int, seconds: float) -> Answer:
    """Decode what `pack_answer` wrote. Raises `ValueError` where the bytes are not what was written."""
    body, text = _unpack(data, _ANSWER)
    return Answer(body, _text(text), prompt_tokens, completion_tokens, seconds)


def pack_vector(vector: Vector) -> bytes:
    """Encode a vector of shape (dimension,) as little-endian float16: 768 bytes for 384 dimensions."""
    return vector.astype("<f2").tobytes()


def unpack_vector(data: bytes) -> Vector:
    """Decode a vector into float32, shape (dimension,)."""
    return np.frombuffer(data, dtype="<f2").astype(np.float32)


def is_damaged(data: bytes | None) -> bool:
    """Whether the bytes of a vector are none that `pack_vector` writes; None (no vector) is no damage."""
    if data is None:
        return False
    return not data or len(data) % 2 != 0 or not bool(np.isfinite(np.frombuffer(data, dtype="<f2")).all())


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _pack(value: object) -> bytes:
    data = msgspec.msgpack.encode(value)
    return _PLAIN + data if len(data) < _COMPRESS_FROM else _ZLIB + zlib.compress(data, 1)


def _unpack(data: bytes, decoder: msgspec.msgpack.Decoder[T]) -> T:
    try:
        kind, rest = data[:1], data[1:]
        return decoder.decode(zlib.decompress(rest) if kind == _ZLIB else rest)
    except (zlib.error, msgspec.DecodeError) as error:
        raise ValueError(f"stored bytes cannot be read: {error}") from error
