"""The graph computes what BERT computes, checked against an independent reading of the paper in numpy."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

from fingerprint.embedding.bert_graph import BLOCK, build_bert_graph

WIDTH, HEADS, LAYERS, WIDE, POSITIONS, EPSILON = 12, 3, 2, 20, 16, 1e-5
Weights = dict[str, NDArray[np.float32]]


@pytest.fixture(scope="module")
def weights() -> Weights:
    return made(WIDTH, WIDE)


def made(width: int, wide: int) -> Weights:
    rng = np.random.default_rng(7)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.position_embeddings.weight": (POSITIONS, width),
        "embeddings.token_type_embeddings.weight": (2, width),
        "embeddings.LayerNorm.weight": (width,),
        "embeddings.LayerNorm.bias": (width,),
    }
    for layer in range(LAYERS):
        prefix = f"encoder.layer.{layer}."
        for name in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            shapes[f"{prefix}{name}.weight"] = (width, width)
            shapes[f"{prefix}{name}.bias"] = (width,)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes[f"{prefix}{name}.weight"] = shapes[f"{prefix}{name}.bias"] = (width,)
        shapes |= {
            f"{prefix}intermediate.dense.weight": (wide, width),
            f"{prefix}intermediate.dense.bias": (wide,),
            f"{prefix}output.dense.weight": (width, wide),
            f"{prefix}output.dense.bias": (width,),
        }
    return {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}


def norm(x: NDArray[np.float64], weights: Weights, name: str) -> NDArray[np.float64]:
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON)
    return np.asarray(scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"])


def reference(weights: Weights, tokens: NDArray[np.float32], types: NDArray[np.int64]) -> NDArray[np.float64]:
    """Hidden states (tokens, width) of one unpadded sequence."""

    def dense(x: NDArray[np.float64], name: str) -> NDArray[np.float64]:
        return np.asarray(x @ weights[f"{name}.weight"].T.astype(np.float64) + weights[f"{name}.bias"])

    x = tokens.astype(np.float64) + weights["embeddings.position_embeddings.weight"][: len(tokens)]
    x = norm(x + weights["embeddings.token_type_embeddings.weight"][types], weights, "embeddings.LayerNorm")
    for layer in range(LAYERS):
        prefix = f"encoder.layer.{layer}."
        query, key, value = (dense(x, f"{prefix}attention.self.{part}") for part in ("query", "key", "value"))
        size = WIDTH // HEADS
        heads = []
        for head in range(HEADS):
            cut = slice(head * size, (head + 1) * size)
            scores = query[:, cut] @ key[:, cut].T / math.sqrt(size)
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            heads.append(shares / shares.sum(-1, keepdims=True) @ value[:, cut])
        attended = dense(np.concatenate(heads, -1), f"{prefix}attention.output.dense")
        x = norm(x + attended, weights, f"{prefix}attention.output.LayerNorm")
        inner = dense(x, f"{prefix}intermediate.dense")
        inner = inner * 0.5 * (1 + np.vectorize(math.erf)(inner / math.sqrt(2)))
        x = norm(x + dense(inner, f"{prefix}output.dense"), weights, f"{prefix}output.LayerNorm")
    return x


def session(model: onnx.ModelProto) -> ort.InferenceSession:
    onnx.checker.check_model(model)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def tokens(count: int, seed: int = 1) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(0, 1, (count, WIDTH)).astype(np.float32)


def test_every_output_agrees_with_the_paper(weights: Weights) -> None:
    model = build_bert_graph(
        weights, layers=LAYERS, heads=HEADS, epsilon=EPSILON, outputs=("hidden", "first", "mean", "unit_mean")
    )
    x = tokens(7)
    hidden, first, mean, unit = session(model).run(None, {"embeddings": x[None], "mask": np.ones((1, 7), np.float32)})
    expected = reference(weights, x, np.zeros(7, np.int64))
    np.testing.assert_allclose(hidden[0], expected, atol=1e-4)
    np.testing.assert_allclose(first[0], expected[0], atol=1e-4)
    np.testing.assert_allclose(mean[0], expected.mean(0), atol=1e-4)
    np.testing.assert_allclose(unit[0], expected.mean(0) / np.linalg.norm(expected.mean(0)), atol=1e-4)


def test_token_types_are_an_input_where_asked_for(weights: Weights) -> None:
    model = build_bert_graph(
        weights, layers=LAYERS, heads=HEADS, epsilon=EPSILON, outputs=("hidden",), token_types=True
    )
    types = np.array([0, 0, 1, 1, 0], np.int64)
    x = tokens(5)
    feeds = {"embeddings": x[None], "mask": np.ones((1, 5), np.float32), "token_type_ids": types[None]}
    np.testing.assert_allclose(session(model).run(None, feeds)[0][0], reference(weights, x, types), atol=1e-4)


def test_padding_has_no_influence(weights: Weights) -> None:
    run = session(build_bert_graph(weights, layers=LAYERS, heads=HEADS, epsilon=EPSILON)).run
    short, long = tokens(4), tokens(9, seed=2)
    padded = np.stack([np.concatenate([short, np.full((5, WIDTH), 9, np.float32)]), long])
    mask = np.array([[1] * 4 + [0] * 5, [1] * 9], np.float32)
    together = run(None, {"embeddings": padded, "mask": mask})[0]
    for row, alone in enumerate((short, long)):
        (single,) = run(None, {"embeddings": alone[None], "mask": np.ones((1, len(alone)), np.float32)})
        np.testing.assert_allclose(together[row], single[0], atol=1e-5)


def test_in_eight_bits_it_computes_nearly_the_same_and_takes_a_third_of_the_room() -> None:
    weights = made(BLOCK * 3, BLOCK * 6)
    exact, rounded = (
        build_bert_graph(weights, layers=LAYERS, heads=HEADS, epsilon=EPSILON, eight_bits=e) for e in (False, True)
    )
    x = np.random.default_rng(3).normal(0, 1, (1, 9, BLOCK * 3)).astype(np.float32)
    feeds = {"embeddings": x, "mask": np.ones((1, 9), np.float32)}
    (one,), (two,) = (session(model).run(None, feeds)[0] for model in (exact, rounded))
    assert 0.999 < float(one @ two) < 0.9999999  # rounded, and not by much
    sizes = [sum(len(t.raw_data) for t in m.graph.initializer if len(t.dims) >= 2) for m in (rounded, exact)]
    assert sizes[0] < 0.34 * sizes[1]


@pytest.mark.parametrize("length", [1, 2, 9])
def test_in_eight_bits_a_vector_does_not_depend_on_its_batch(length: int) -> None:
    weights = made(BLOCK * 3, BLOCK * 6)
    run = session(build_bert_graph(weights, layers=LAYERS, heads=HEADS, epsilon=EPSILON, eight_bits=True)).run
    x = np.random.default_rng(4).normal(0, 1, (16, length, BLOCK * 3)).astype(np.float32)
    x[3] *= 50  # a loud neighbour
    (together,) = run(None, {"embeddings": x, "mask": np.ones((16, length), np.float32)})
    for row in range(16):
        (alone,) = run(None, {"embeddings": x[row : row + 1], "mask": np.ones((1, length), np.float32)})
        np.testing.assert_allclose(together[row], alone[0], atol=1e-6)


def test_a_missing_tensor_and_a_wrong_number_of_heads_are_said(weights: Weights) -> None:
    with pytest.raises(KeyError, match=r"encoder\.layer\.2"):
        build_bert_graph(weights, layers=3, heads=HEADS, epsilon=EPSILON)
    with pytest.raises(ValueError, match=f"{BLOCK} does not divide the {WIDTH} inputs"):
        build_bert_graph(weights, layers=LAYERS, heads=HEADS, epsilon=EPSILON, eight_bits=True)
    with pytest.raises(ValueError, match="5 heads"):
        build_bert_graph(weights, layers=LAYERS, heads=5, epsilon=EPSILON)
