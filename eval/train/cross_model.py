"""The cross-encoder as a torch module: a BERT encoder over marked tokens, pooled last messages, a small head.

Written out rather than taken from transformers so that what is trained is exactly what the runtime graph computes, and
so that bf16 autocast on a CPU spends its time in matrix products. Parameter names are those of a Hugging Face
``BertModel``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["CrossModel", "Shape"]


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a model."""

    layers: int
    hidden: int = 384
    heads: int = 12
    wide: int = 1536
    positions: int = 512
    markers: int = 26
    epsilon: float = 1e-12
    head: int = 128
    projected: bool = False
    """Whether word embeddings of another model pass a linear map into this one's space."""


class _Attention(nn.Module):  # type: ignore[misc, unused-ignore]
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        h = shape.hidden
        self.heads = shape.heads
        self.self = nn.ModuleDict({n: nn.Linear(h, h) for n in ("query", "key", "value")})
        self.output = nn.ModuleDict({"dense": nn.Linear(h, h), "LayerNorm": nn.LayerNorm(h, shape.epsilon)})

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, h = x.shape
        q, k, v = (
            self.self[n](x).view(batch, length, self.heads, -1).transpose(1, 2) for n in ("query", "key", "value")
        )
        # Spelt out: on short rows of a CPU the fused kernel's backward pass takes several times as long.
        weights = torch.softmax(q @ k.transpose(2, 3) * (h // self.heads) ** -0.5 + mask.to(q.dtype), dim=-1)
        mixed = self.output["dense"]((weights.to(v.dtype) @ v).transpose(1, 2).reshape(batch, length, h))
        return self.output["LayerNorm"](x + mixed)  # type: ignore[no-any-return, unused-ignore]


class _Layer(nn.Module):  # type: ignore[misc, unused-ignore]
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention = _Attention(shape)
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(shape.hidden, shape.wide)})
        self.output = nn.ModuleDict(
            {"dense": nn.Linear(shape.wide, shape.hidden), "LayerNorm": nn.LayerNorm(shape.hidden, shape.epsilon)}
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention(x, mask)
        inner = self.output["dense"](functional.gelu(self.intermediate["dense"](x)))
        return self.output["LayerNorm"](x + inner)  # type: ignore[no-any-return, unused-ignore]


class CrossModel(nn.Module):  # type: ignore[misc, unused-ignore]
    """``forward`` returns one logit a row; positive: one answer serves both conversations."""

    def __init__(self, shape: Shape, words: Tensor, dropout: float = 0.1) -> None:
        """``words`` is the frozen table of word embeddings, (vocabulary, hidden); it is not part of the state."""
        super().__init__()
        h = shape.hidden
        self.shape, self.dropout = shape, dropout
        self.register_buffer("words", words, persistent=False)
        self.embeddings = nn.ModuleDict(
            {
                "position_embeddings": nn.Embedding(shape.positions, h),
                "token_type_embeddings": nn.Embedding(2, h),
                "LayerNorm": nn.LayerNorm(h, shape.epsilon),
            }
        )
        self.projection = nn.Linear(h, h) if shape.projected else None
        self.marker_embeddings = nn.Embedding(shape.markers, h)
        nn.init.zeros_(self.marker_embeddings.weight)
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(_Layer(shape) for _ in range(shape.layers))})
        self.head = nn.ModuleDict({"dense": nn.Linear(4 * h, shape.head), "out": nn.Linear(shape.head, 1)})

    def forward(self, ids: Tensor, markers: Tensor, sides: Tensor, last: Tensor, mask: Tensor) -> Tensor:
        """All (batch, length) integers but ``mask``, 1 where there is a token. Returns (batch,) logits."""
        e = self.embeddings
        position = torch.arange(ids.shape[1])
        x = functional.embedding(ids, self.words)  # type: ignore[arg-type, unused-ignore]
        x = (self.projection(x) if self.projection is not None else x) + self.marker_embeddings(markers)
        x = x + e["position_embeddings"](position) + e["token_type_embeddings"](sides)
        x = functional.dropout(e["LayerNorm"](x), self.dropout, self.training)
        bias = (1.0 - mask.float())[:, None, None, :] * -1e4
        for layer in self.encoder["layer"]:  # type: ignore[union-attr, unused-ignore]
            x = layer(x, bias)
        x = x.float()
        pooled = []
        for side in (1, 2):
            chosen = (last == side).float()[:, :, None]
            pooled.append((x * chosen).sum(1) / chosen.sum(1).clamp_min(1.0))
        u, v = pooled
        features = torch.cat([x[:, 0], u + v, (u - v).abs(), u * v], dim=1)
        features = functional.dropout(features, self.dropout, self.training)
        return self.head["out"](functional.gelu(self.head["dense"](features.to(x.dtype))))[:, 0].float()  # type: ignore[no-any-return, unused-ignore]
