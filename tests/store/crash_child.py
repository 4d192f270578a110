"""The process that gets killed: records without end, and says which entries are committed.

``python -m tests.store.crash_child DATABASE SEED`` waits for a line on standard input, forks a child that writes, and
answers with the child's process id. The child prints one JSON line after each flush. One parent serves many children,
so that each need not import everything anew.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys

import alembic.command  # noqa: F401 - otherwise each child imports it anew

from store.cache import Cache
from store.settings import StoreSettings
from store.types import Policy
from tests.store.support import NearEnough, WordEmbedder, ask, no_objections, say


def answer_of(question: str) -> str:
    """A reply long enough to take several database pages, that can be checked against its question."""
    return " ".join([question] * (1 + len(question) * 7 % 400))


async def work(url: str, seed: int) -> None:
    chance = random.Random(seed)
    cache = await Cache.open(
        StoreSettings(url=url, lookup_deadline_ms=10_000),
        embedder=WordEmbedder(),
        confidence=NearEnough(),
        policy=Policy(answer=0.7, verify=0.5),
        objections=no_objections,
    )
    number = 0
    while True:
        batch: dict[str, str] = {}
        for _ in range(chance.randrange(1, 12)):
            number += 1
            question = f"question {number} of run {seed} {'word ' * chance.randrange(30)}".strip()
            first = ask(question, session=f"s{seed}")
            batch[question] = cache.record(first, say(answer_of(question)))
            if chance.random() < 0.3:
                cache.record(ask(question, answer_of(question), "go on"), say("and on"))
            if chance.random() < 0.3:
                other = ask(f"{question} please")
                _, hit = await cache.search(other)
                if hit is not None:
                    cache.follow(other, hit)
            if chance.random() < 0.1:
                # Replaced: the second answer is the one that counts.
                batch[question] = cache.record(first, say(answer_of(question)))
        if await cache.flush():
            print(json.dumps(batch), flush=True)


def main() -> None:
    url = f"sqlite:///{sys.argv[1]}"
    seed = int(sys.argv[2])
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            asyncio.run(work(url, seed))
        print(json.dumps({"pid": child}), flush=True)
        os.waitpid(child, 0)
        print(json.dumps({"killed": child}), flush=True)
        seed += 1


if __name__ == "__main__":
    main()
