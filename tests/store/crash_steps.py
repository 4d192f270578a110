"""A fixed life of some entries, in a process that dies at a chosen write.

``python -m tests.store.crash_steps`` reads lines ``DATABASE NUMBER begin|commit`` and forks a child for each: it does
the steps below and ends without a word at the NUMBER-th BEGIN (between two writes) or COMMIT (inside of one). It prints
the name of each step that was done, then the parent prints its exit status.
"""

from __future__ import annotations

import asyncio
import os
import sys

import alembic.command  # noqa: F401 - otherwise each child imports it anew
from sqlalchemy import event

from store.cache import Cache
from store.settings import CheckSettings, StoreSettings
from store.types import Policy
from tests.store.support import NearEnough, WordEmbedder, ask, no_objections, say

CAPITAL = "what is the capital of portugal"
REWORDED = "what is the capital city of portugal"
DIED, DONE = 7, 0

# After each step: which answer each question must get (None: none); what is not named keeps what it had.
STEPS: dict[str, dict[str, str | None]] = {
    "recorded": {CAPITAL: "Lisbon"},
    "followed": {REWORDED: "Lisbon"},
    "corrected": {CAPITAL: None, REWORDED: None},
    "recorded again": {CAPITAL: "Lisboa"},
    "replaced": {CAPITAL: "Lisbon, still"},
    "barred": {CAPITAL: None},
    "other recorded": {"who wrote it": "Pessoa"},
    "retracted": {"who wrote it": None},
    "third recorded": {"when was it": "In 1934"},
    "purged": {"when was it": None},
    "fourth recorded": {"where is it": "At home"},
    "epoch raised": {"where is it": None},
    "last recorded": {"why is it": "Because"},
}


async def open_cache(url: str) -> Cache:
    return await Cache.open(
        StoreSettings(
            url=url,
            lookup_deadline_ms=60_000,
            embed_deadline_ms=60_000,
            decide_deadline_ms=60_000,
            drift_least_answers=100,  # three answers that differ would stop being served, sooner or later
        ),
        embedder=WordEmbedder(),
        confidence=NearEnough(),
        policy=Policy(answer=0.7, verify=0.5),
        objections=no_objections,
        checks=CheckSettings(enabled=True),
    )


async def work(url: str, number: int, where: str) -> None:
    cache = await open_cache(url)
    count = 0

    def reached(_connection: object) -> None:
        nonlocal count
        count += 1
        if count == number:
            os._exit(DIED)

    event.listen(cache._database.writer, where, reached, insert=True)

    async def done(step: str) -> None:
        assert await cache.flush()
        print(step, flush=True)

    cache.record(ask(CAPITAL), say("Lisbon"))
    await done("recorded")
    _, hit = await cache.search(ask(REWORDED))
    assert hit is not None
    cache.follow(ask(REWORDED), hit)
    await done("followed")
    await cache.correct(ask(CAPITAL, "Lisbon", "no, that is wrong"))
    await done("corrected")
    cache.record(ask(CAPITAL), say("Lisboa"))
    await done("recorded again")
    entry = cache.record(ask(CAPITAL), say("Lisbon, still"))
    await done("replaced")
    for _ in range(3):
        checked = cache.checks.checked(entry, ask(CAPITAL).exact_key, "exact", 1.0, wrong=True, source="hit")
        await asyncio.wrap_future(checked)
    await done("barred")
    entry = cache.record(ask("who wrote it"), say("Pessoa"))
    await done("other recorded")
    await cache.retract(entry)
    await done("retracted")
    entry = cache.record(ask("when was it"), say("In 1934"))
    await done("third recorded")
    await cache.purge({"entry": entry}, dry_run=False)
    await done("purged")
    cache.record(ask("where is it"), say("At home"))
    await done("fourth recorded")
    await cache.raise_epoch(dry_run=False)
    await done("epoch raised")
    cache.record(ask("why is it"), say("Because"))
    await done("last recorded")
    await cache.close()


def main() -> None:
    for line in sys.stdin:
        path, number, where = line.split()
        child = os.fork()
        if child == 0:
            asyncio.run(work(f"sqlite:///{path}", int(number), where))
            os._exit(DONE)
        _, status = os.waitpid(child, 0)
        print(f"status {os.waitstatus_to_exitcode(status)}", flush=True)


if __name__ == "__main__":
    main()
