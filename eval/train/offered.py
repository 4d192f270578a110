"""What retrieval would offer out of real chats, and how much of it the decision would serve.

usage: python -m eval.train.offered [--json OUT]

The families hold look-alikes and equivalents, and hardly anything a full cache is full of: other questions on the same
subject. Here every user message of ``../shared/data/chats`` meets

* ``start``: its two nearest among the first messages of other conversations, as turns without a history;
* ``same``: another message of its own conversation, asked at its place, after its history.

All are taken for different; a few are not ("what is a secret?" twice), so the share served is an upper bound on the
share of wrong hits. Used to choose ``--at-least`` of ``eval.train.calibrate``; nothing is trained on them.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eval.data import data_root
from fingerprint.conversation import Message, Turn
from fingerprint.embedding.base import Embedding, TextEmbedder
from fingerprint.embedding.router import load_router
from fingerprint.facts import objections
from store.confidence import load, thresholds
from store.types import Candidate

CONVERSATIONS = 220
SAME, START = 700, 1100
SHOWN = 12
LEVELS = (0.7, 0.8, 0.85, 0.9, 0.92, 0.94, 0.96)
LONGEST = 400  # characters of a message that takes part
SEED = 7


def conversations() -> list[tuple[Message, ...]]:
    """Up to ``CONVERSATIONS`` of each file of chats, drawn with a seed."""
    rng = random.Random(SEED)
    found: list[tuple[Message, ...]] = []
    for file in sorted((data_root() / "chats").glob("*.jsonl")):
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        for row in rng.sample(rows, min(CONVERSATIONS, len(rows))):
            messages = tuple(Message(m["role"], m["content"]) for m in row["messages"] if m["role"] != "system")
            if len(messages) > 1:
                found.append(messages)
    return found


def same_place(chats: Sequence[tuple[Message, ...]]) -> list[tuple[Turn, Turn]]:
    """Two messages of one conversation, both at the place of the first."""
    rng = random.Random(SEED)
    pairs = []
    for chat in chats:
        places = [i for i, m in enumerate(chat) if m.role == "user" and len(m.text) < LONGEST]
        for place in places:
            others = [i for i in places if i != place and chat[i].text != chat[place].text]
            if place and others:
                before = chat[:place]
                pairs.append((Turn((), before, chat[place]), Turn((), before, chat[rng.choice(others)])))
    return rng.sample(pairs, min(SAME, len(pairs)))


def measure() -> dict[str, Any]:
    """Ask every pair; the share served at several levels of confidence, and the surest."""
    embedder, confidence, policy = load_router(), load(), thresholds()
    chats = conversations()
    known: dict[str, Embedding | None] = {}

    def vector(text: str) -> Embedding | None:
        if text not in known:
            (known[text],) = embedder.encode((text,))
        return known[text]

    def judged(one: Turn, other: Turn, same: bool) -> float | None:
        a, b = vector(one.message.text), vector(other.message.text)
        if a is None or b is None or a.space != b.space:
            return None
        if objections(one, other, same_place=same):
            return 0.0
        candidate = Candidate("offered", one, float(a.vector @ b.vector), 1.0, same)
        first = confidence.first(other, candidate)
        return confidence.second(other, candidate, first) if first > 0 else 0.0

    texts = sorted({m.text for chat in chats for m in chat if m.role == "user" and len(m.text) < LONGEST})
    texts = random.Random(SEED).sample(texts, min(START, len(texts)))
    rows = [(t, e) for t in texts if (e := vector(t)) is not None and e.space == _commonest(embedder, texts)]
    matrix = np.stack([e.vector for _, e in rows])
    near = matrix @ matrix.T
    np.fill_diagonal(near, -1.0)
    start = [
        (Turn((), (), Message("user", rows[i][0])), Turn((), (), Message("user", rows[int(j)][0])))
        for i in range(len(rows))
        for j in np.argsort(-near[i])[:2]
    ]
    out: dict[str, Any] = {"answer": policy.answer, "model": confidence.version}
    for name, pairs, same in (("same", same_place(chats), True), ("start", start, False)):
        scored = [(p, a.message.text, b.message.text) for a, b in pairs if (p := judged(a, b, same)) is not None]
        surest = sorted(scored, reverse=True)[:SHOWN]
        out[name] = {
            "pairs": len(scored),
            "served": sum(p >= policy.answer for p, _, _ in scored),
            "above": {f"{level:g}": sum(p >= level for p, _, _ in scored) for level in LEVELS},
            "surest": [{"confidence": round(p, 3), "stored": a, "asked": b} for p, a, b in surest],
        }
    return out


def _commonest(embedder: TextEmbedder, texts: Sequence[str]) -> str:
    spaces = [e.space for t in texts[:50] if (e := embedder.encode((t,))[0]) is not None]
    return max(set(spaces), key=spaces.count)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="OUT")
    options = parser.parse_args()
    text = json.dumps(measure(), indent=1, ensure_ascii=False)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
