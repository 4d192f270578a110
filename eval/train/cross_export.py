"""Writes a trained cross-encoder as the int8 ONNX graph that ships, and scores the held-out fold with it.

usage:
    python -m eval.train.cross_export export RUN_FOLDER ARTEFACT.onnx
    python -m eval.train.cross_export score [--fold 0] [--scores OUT.npz] [--json OUT.json]

``export`` adds the markers in front of the encoder graph and the pooled head behind it, then quantises the weights of
every matrix product to int8, one scale an output channel (activations are quantised as they come). ``score`` needs the
project's own environment, not the training one: it runs the code that serves.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

from eval.data import load_families, load_pairs
from fingerprint.embedding.bert_graph import build_bert_graph

__all__ = ["export", "figures", "graph_of"]

_POSITIONS = 256  # more than the reader ever makes


def graph_of(weights: dict[str, NDArray[np.generic]], shape: dict[str, Any]) -> onnx.ModelProto:
    """The whole cross-encoder in float32.

    Inputs: ``words`` float32 (pairs, tokens, width), ``markers``, ``sides``, ``last`` int64 (pairs, tokens). Output:
    ``logit`` float32 (pairs,). No padding: every row of a batch has the same length.
    """
    inner = dict(weights)
    inner["embeddings.position_embeddings.weight"] = weights["embeddings.position_embeddings.weight"][:_POSITIONS]
    model = build_bert_graph(
        inner,
        layers=shape["layers"],
        heads=shape["heads"],
        epsilon=shape["epsilon"],
        outputs=("hidden",),
        token_types=True,
    )
    graph = model.graph
    nodes: list[onnx.NodeProto] = []
    extra: list[onnx.TensorProto] = []

    def tensor(name: str, value: NDArray[Any]) -> str:
        extra.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name

    def node(op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    table = tensor("marker_table", np.asarray(weights["marker_embeddings.weight"], np.float32))
    node("Gather", [table, "markers"], "marker_rows", axis=0)
    words = "words"
    if "projection.weight" in weights:
        matrix = tensor("projection.matrix", np.asarray(weights["projection.weight"], np.float32).T)
        bias = tensor("projection.bias", np.asarray(weights["projection.bias"], np.float32))
        node("MatMul", ["words", matrix], "words.mapped", name="projection")
        words = node("Add", ["words.mapped", bias], "words.placed")
    node("Add", [words, "marker_rows"], "embeddings")
    node("Identity", ["sides"], "token_type_ids")
    node("Equal", ["sides", "sides"], "all_tokens")
    node("Cast", ["all_tokens"], "mask", to=TensorProto.FLOAT)
    front = len(nodes)

    node("Gather", ["hidden", tensor("zero", np.asarray(0, np.int64))], "head.first", axis=1)
    last_axis, token_axis = tensor("axis.last", np.asarray([2])), tensor("axis.tokens", np.asarray([1]))
    one = tensor("one", np.asarray(1.0, np.float32))
    for side, name in ((1, "u"), (2, "v")):
        node("Equal", ["last", tensor(f"side.{name}", np.asarray(side, np.int64))], f"{name}.is")
        node("Cast", [f"{name}.is"], f"{name}.mask", to=TensorProto.FLOAT)
        node("Unsqueeze", [f"{name}.mask", last_axis], f"{name}.column")
        node("Mul", ["hidden", f"{name}.column"], f"{name}.kept")
        node("ReduceSum", [f"{name}.kept", token_axis], f"{name}.total", keepdims=0)
        node("ReduceSum", [f"{name}.mask", token_axis], f"{name}.count", keepdims=1)
        node("Max", [f"{name}.count", one], f"{name}.safe")
        node("Div", [f"{name}.total", f"{name}.safe"], name)
    node("Add", ["u", "v"], "head.sum")
    node("Sub", ["u", "v"], "head.signed")
    node("Abs", ["head.signed"], "head.difference")
    node("Mul", ["u", "v"], "head.product")
    node("Concat", ["head.first", "head.sum", "head.difference", "head.product"], "head.features", axis=1)
    for name, source, result in (("dense", "head.features", "head.inner"), ("out", "head.gelu", "head.logit")):
        matrix = tensor(f"head.{name}.matrix", np.asarray(weights[f"head.{name}.weight"], np.float32).T)
        bias = tensor(f"head.{name}.bias", np.asarray(weights[f"head.{name}.bias"], np.float32))
        node("MatMul", [source, matrix], f"{result}.product", name=f"head.{name}")
        node("Add", [f"{result}.product", bias], result)
        if name == "dense":
            node("Gelu", [result], "head.gelu", approximate="none")
    node("Squeeze", ["head.logit", tensor("axis.one", np.asarray([1]))], "logit")

    width = shape["hidden"]
    whole = helper.make_graph(
        [*nodes[:front], *graph.node, *nodes[front:]],
        "cross_encoder",
        [
            helper.make_tensor_value_info("words", TensorProto.FLOAT, ["pairs", "tokens", width]),
            helper.make_tensor_value_info("markers", TensorProto.INT64, ["pairs", "tokens"]),
            helper.make_tensor_value_info("sides", TensorProto.INT64, ["pairs", "tokens"]),
            helper.make_tensor_value_info("last", TensorProto.INT64, ["pairs", "tokens"]),
        ],
        [helper.make_tensor_value_info("logit", TensorProto.FLOAT, ["pairs"])],
        [*graph.initializer, *extra],
    )  # fmt: skip
    made = helper.make_model(whole, opset_imports=model.opset_import, producer_name="antiphon")
    made.ir_version = model.ir_version
    onnx.checker.check_model(made, full_check=True)
    return made


def export(run: Path, out: Path) -> None:
    """Write the artefact of a training run."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    meta = json.loads((run / "meta.json").read_text())
    made = graph_of(load_file(run / "model.safetensors"), meta["shape"])
    with tempfile.TemporaryDirectory() as folder:
        plain, narrow = Path(folder) / "plain.onnx", Path(folder) / "narrow.onnx"
        onnx.save(made, str(plain))
        quantize_dynamic(
            plain, narrow, per_channel=True, weight_type=QuantType.QInt8, op_types_to_quantize=["MatMul"],
            # Word embeddings and the head's features differ in scale: one for all would lose the small ones.
            nodes_to_exclude=["projection", "head.dense", "head.out"],
            extra_options={"MatMulConstBOnly": True, "DefaultTensorType": TensorProto.FLOAT},
        )  # fmt: skip
        model = onnx.load(str(narrow))
    kept = {k: meta[k] for k in ("lang", "schema", "last_tokens", "context_tokens", "seen", "seed", "held_out")}
    helper.set_model_props(model, {"antiphon": json.dumps(kept, sort_keys=True)})
    out.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(out))
    print(f"{out}: {out.stat().st_size / 1e6:.1f} MB, {meta['seen']} rows")


def figures(score: NDArray[np.float64], equivalent: NDArray[np.bool_]) -> dict[str, float]:
    """AUC, and the share of equivalent pairs above what 1 % and 3 % of the different ones pass."""
    right, wrong = score[equivalent], np.sort(score[~equivalent])
    out: dict[str, float] = {"equivalent": float(len(right)), "different": float(len(wrong))}
    if len(right) and len(wrong):
        below = np.searchsorted(wrong, right, side="left") + np.searchsorted(wrong, right, side="right")
        out["auc"] = round(float(below.mean() / 2 / len(wrong)), 4)
        for share in (0.01, 0.03):
            out[f"right@{share:.0%}"] = round(float((right > np.quantile(wrong, 1 - share)).mean()), 3)
    return out


def score(arguments: argparse.Namespace) -> None:
    """Score a fold with the shipped artefacts and report."""
    from store.confidence.cross_encoder import CrossEncoder

    model = CrossEncoder.load()
    pairs = [p for p in (*load_families(), *load_pairs()) if p.fold == arguments.fold]
    if arguments.lang:
        pairs = [p for p in pairs if p.lang == arguments.lang]
    if arguments.every > 1:
        pairs = pairs[:: arguments.every]
    out, times = np.zeros(len(pairs)), np.zeros(len(pairs))
    once: list[float] = []  # after the first of the two orders
    for i, pair in enumerate(pairs):
        started = time.thread_time()
        out[i] = model.score(pair.a, pair.b, enough=lambda logit: bool(once.append(logit)))  # type: ignore[func-returns-value]
        times[i] = 1000 * (time.thread_time() - started)
    if arguments.scores:
        ids = np.array([p.id for p in pairs])
        np.savez(arguments.scores, id=ids, score=out, once=np.array(once), version=model.version)
    truth = np.array([p.equivalent for p in pairs])
    groups: dict[str, list[int]] = defaultdict(list)
    for i, pair in enumerate(pairs):
        kind = f"families {pair.lang}" if pair.is_family else f"pairs {pair.domain}"
        groups[kind].append(i)
    report: dict[str, Any] = {k: figures(out[v], truth[v]) for k, v in sorted(groups.items())}
    for lang in ("en", "zh"):
        mine = [i for i in groups.get(f"families {lang}", []) if not truth[i]]
        if not mine:
            continue
        bars = {share: float(np.quantile(out[mine], 1 - share)) for share in (0.01, 0.03)}
        by_subtype: dict[str, list[int]] = defaultdict(list)
        for i in groups[f"families {lang}"]:
            by_subtype[f"{'same' if truth[i] else 'different'} {pairs[i].subtype}"].append(i)
        report[f"families {lang} above bar"] = {
            k: {"n": len(v), **{f"{s:.0%}": round(float((out[v] > bar).mean()), 3) for s, bar in bars.items()}}
            for k, v in sorted(by_subtype.items())
        }
        spent = np.sort(times[groups[f"families {lang}"]])
        quantiles = {q: round(float(np.quantile(spent, float(q))), 1) for q in ("0.5", "0.9", "0.99", "1.0")}
        report[f"cpu ms {lang}"] = quantiles
    report["version"] = model.version
    text = json.dumps(report, indent=1, ensure_ascii=False)
    if arguments.json:
        arguments.json.write_text(text)
    print(text)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    e = commands.add_parser("export")
    e.add_argument("run", type=Path)
    e.add_argument("out", type=Path)
    s = commands.add_parser("score")
    s.add_argument("--fold", type=int, default=0)
    s.add_argument("--lang", choices=("en", "zh"))
    s.add_argument("--every", type=int, default=1, help="take one pair in this many")
    s.add_argument("--scores", type=Path)
    s.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "export":
        export(arguments.run, arguments.out)
    else:
        score(arguments)


if __name__ == "__main__":
    main()
