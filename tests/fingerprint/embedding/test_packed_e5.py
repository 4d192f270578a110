"""The packed model file is read as it was written."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fingerprint.embedding.base import WeightsError
from fingerprint.embedding.packed_e5 import read_packed, unpack_rows

WIDTH, WIDE, PIECES = 32, 64, ["<s>", "<pad>", "</s>", "<unk>", "▁a", "怎么"]


def pack(values: NDArray[np.float32]) -> bytes:
    """Q4_0 with a scale of 1/8 in every block: exact for multiples of 1/8 between -1 and 7/8."""
    nibbles = np.round(values.reshape(-1, 32) * 8 + 8).astype(np.uint8)
    scale = np.full((len(nibbles), 1), 0.125, "<f2").view(np.uint8)
    return np.concatenate([scale, nibbles[:, :16] | nibbles[:, 16:] << 4], axis=1).tobytes()


def grid(*shape: int, seed: int) -> NDArray[np.float32]:
    return (np.random.default_rng(seed).integers(-8, 8, shape) / 8).astype(np.float32)


@pytest.fixture
def tensors() -> dict[str, NDArray[np.float32]]:
    made = {"emb.word": grid(len(PIECES), WIDTH, seed=0), "emb.pos": grid(16, WIDTH, seed=1)}
    made |= {name: grid(WIDTH, seed=2) for name in ("emb.ln.w", "emb.ln.b")}
    made["emb.type"] = grid(2, WIDTH, seed=3)
    for short, rows, columns in (
        ("q", 32, 32),
        ("k", 32, 32),
        ("v", 32, 32),
        ("ao", 32, 32),
        ("fi", 64, 32),
        ("fo", 32, 64),
    ):
        made[f"l0.{short}.w"] = grid(rows, columns, seed=len(made))
        made[f"l0.{short}.b"] = grid(rows, seed=len(made))
    for short in ("aln", "oln"):
        made[f"l0.{short}.w"] = made[f"l0.{short}.b"] = grid(WIDTH, seed=len(made))
    return made


@pytest.fixture
def file(tmp_path: Path, tensors: dict[str, NDArray[np.float32]]) -> Path:
    header = b"E5S1" + struct.pack("<i7i", 1, WIDTH, 1, 4, WIDE, len(PIECES), 16, 2) + struct.pack("<fi", 1e-6, 32)
    blobs = [piece.encode() for piece in PIECES]
    offsets = np.cumsum([0, *map(len, blobs)]).astype("<u4")
    vocabulary = struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, offsets[-1]) + offsets.tobytes()
    vocabulary += np.arange(len(PIECES), dtype="<f4").tobytes() + b"".join(blobs) + struct.pack("<iI", 0, 3) + b"map"
    bodies = {
        name: pack(value) if name == "emb.word" or (name.startswith("l0") and value.ndim == 2) else value.tobytes()
        for name, value in tensors.items()
    }
    size = 4 + sum(2 + len(name) + struct.calcsize("<BIQQ") for name in bodies)
    at = len(header) + len(vocabulary) + size
    directory = struct.pack("<i", len(bodies))
    for name, body in bodies.items():
        directory += struct.pack("<H", len(name)) + name.encode()
        directory += struct.pack("<BIQQ", 0, tensors[name].size, at, len(body))
        at += len(body)
    path = tmp_path / "model.bin"
    path.write_bytes(header + vocabulary + directory + b"".join(bodies.values()))
    return path


def test_header_vocabulary_and_tensors_come_back(file: Path, tensors: dict[str, NDArray[np.float32]]) -> None:
    model = read_packed(file)
    assert (model.layers, model.heads, model.pieces) == (1, 4, tuple(PIECES))
    assert (model.first, model.last, model.pad, model.unknown) == (0, 2, 1, 3)
    assert model.epsilon == pytest.approx(1e-6)
    np.testing.assert_array_equal(unpack_rows(model.words), tensors["emb.word"])
    np.testing.assert_array_equal(unpack_rows(model.words[[5, 1]]), tensors["emb.word"][[5, 1]])
    np.testing.assert_array_equal(model.weights["encoder.layer.0.output.dense.weight"], tensors["l0.fo.w"])
    np.testing.assert_array_equal(model.weights["embeddings.position_embeddings.weight"], tensors["emb.pos"])
    assert len(model.weights) == 4 + 16


@pytest.mark.parametrize("damage", [lambda raw: b"nope" + raw[4:], lambda raw: raw[:60], lambda raw: raw[:-200]])
def test_a_file_that_is_not_such_a_model_is_refused(file: Path, damage: object) -> None:
    file.write_bytes(damage(file.read_bytes()))  # type: ignore[operator]
    with pytest.raises(WeightsError):
        read_packed(file)
