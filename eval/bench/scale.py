"""How the store bears 100,000 entries: ``python -m eval.bench.scale [--entries N] [--buckets N] [--json OUT]``.

A million: ``--entries 1000000 --buckets 1 --at-once``. PostgreSQL: copy a filled database there (``antiphon db copy``),
then ``--filled postgresql+psycopg://… --entries N``.

The entries are recorded through the cache itself, in one process; another one opens the database and is measured: how
long it takes until it can serve, what a look-up costs once the embedding is there (exact repeats from disk and from
memory, reworded turns, turns never seen), and its resident memory; then that of a third with the default embedders and
the shipped reuse confidence loaded as well. Vectors are synthetic (384 dimensions, 1,000 topics), so that no time goes
into making 100,000 real ones; what makes them is measured elsewhere (``eval.bench.embedders``, ``eval.bench.proxy``).

With ``--buckets 1`` everything is in one index, the worst for a look-up; with many, the worst for memory.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import asdict
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil
from numpy.typing import NDArray

from eval.provenance import commit
from fingerprint.conversation import Message, Turn
from fingerprint.embedding.base import Embedding
from fingerprint.keys import IdentityParts, Scope, exact_key, identity_key, partition_key, place_key
from fingerprint.text import SCHEMA_VERSION, normalise
from store.cache import Cache
from store.codec import pack_answer, pack_question, pack_vector
from store.database import Database
from store.neighbours import Bucket
from store.settings import StoreSettings
from store.types import Answer, Candidate, Policy, Query

__all__ = ["main"]

DIMENSIONS: Final = 384
_AT_ONCE: Final = 2_000  # rows in one transaction
_MAKERS: Final = 4  # processes that make rows
TOPICS: Final = 1_000
LOOK_UPS: Final = 500
_ANSWER: Final = "An answer of a common length, in a few sentences that say what there is to say about it. " * 7


class Synthetic:
    """Topic, question and wording each add a direction, with falling weight: rewordings are nearest, then topics."""

    name = "synthetic"

    def encode(self, texts: Sequence[str]) -> list[Embedding | None]:
        """Embed "question Q about topic T, in words W"."""
        return [Embedding(self.vector(text), self.name) for text in texts]

    def vector(self, text: str) -> NDArray[np.float32]:
        words = text.split()
        topic = words[4] if len(words) > 4 else text
        vector: NDArray[np.float32] = _topic(topic) + 0.8 * _direction(" ".join(words[:5])) + 0.25 * _direction(text)
        return vector / np.float32(np.linalg.norm(vector))


SPACE: Final = Synthetic()


class Similarity:
    """A confidence that costs nothing: what it weighs is measured elsewhere."""

    version = "similarity"

    def first(self, query: Turn, candidate: Candidate) -> float:
        """Return the cosine."""
        return max(0.0, candidate.similarity)

    def second(self, query: Turn, candidate: Candidate, first: float) -> float:
        """Return the first estimate."""
        return first


@lru_cache(TOPICS)
def _topic(text: str) -> NDArray[np.float32]:
    return _direction(text)


def _direction(text: str) -> NDArray[np.float32]:
    seed = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
    vector = np.random.Generator(np.random.SFC64(seed)).standard_normal(DIMENSIONS, dtype=np.float32)
    return vector / np.float32(np.linalg.norm(vector))


def question(number: int, words: str = "plain") -> str:
    """Return the text of a question; the same number in other ``words`` is the same question."""
    return f"question {number} about topic {number % TOPICS}, in {words} words and not too few of them"


def query(number: int, buckets: int, words: str = "plain") -> Query:
    """Return a turn; every third one is the second of its conversation."""
    parts = IdentityParts(
        "chat.completions", "bench", "1", "", "", "", "", "", SCHEMA_VERSION, Synthetic.name, "", ""
    )  # fmt: skip
    partition, identity = _partition(number % buckets), identity_key(parts)
    history: tuple[Message, ...] = ()
    if number % 3 == 2:
        first = question(number - 1)
        history = (Message("user", first), Message("assistant", answer(number - 1).text))
    turn = Turn((), history, Message("user", question(number, words)))
    return Query(
        turn=turn,
        partition=partition,
        identity=identity,
        parts=parts,
        exact_key=exact_key(partition, identity, turn),
        place_key=place_key(partition, identity, history) if history else None,
    )


@lru_cache(4_096)
def _partition(bucket: int) -> bytes:
    return partition_key(Scope(credential=f"credential {bucket}"))


def answer(number: int) -> Answer:
    """Return a reply of about a kilobyte."""
    text = f"{_ANSWER} ({number})"
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    body = {"id": f"{number:032x}", "object": "chat.completion", "created": 1, "model": "bench", "choices": [choice]}
    return Answer(json.dumps(body).encode(), text, prompt_tokens=30, completion_tokens=150, seconds=2.0)


def _settings(database: str, **changed: Any) -> StoreSettings:
    url = database if "://" in database else f"sqlite:///{database}"
    return StoreSettings(url=url, max_entries=100_000_000, max_mib=1_000_000.0, changes_limit_ms=60_000, **changed)


async def _open(database: str, **changed: Any) -> Cache:
    settings = _settings(database, **changed)
    guards = lambda query, candidate, same_place: ((), ())  # noqa: E731 - they are measured elsewhere
    policy = Policy(answer=0.9, verify=0.8)
    return await Cache.open(settings, embedder=Synthetic(), confidence=Similarity(), policy=policy, objections=guards)


async def fill(database: str, entries: int, buckets: int) -> dict[str, float]:
    """Record the entries; returns what that took."""
    cache = await _open(database, ivf_threshold=1_000_000)  # this process need not search
    started = time.perf_counter()
    for number in range(entries):
        cache.record(query(number, buckets), answer(number))
        if number % 500 == 499:
            await cache.flush()
    if not await cache.flush():
        raise SystemExit(f"some entries were not written: {cache.failures.counts()}")
    seconds = time.perf_counter() - started
    await cache.close()
    return {"seconds": round(seconds, 1), "entries_per_second": round(entries / seconds)}


def _rows(start: int, stop: int, buckets: int, now: float) -> tuple[list[tuple[Any, ...]], ...]:
    """Make the rows of some entries, as the cache would write them: of ``entries``, ``vectors`` and ``places``."""
    entries, vectors, places = [], [], []
    for number in range(start, stop):
        asked, said = query(number, buckets), answer(number)
        turn, new = asked.turn, f"{number + 1:032x}"
        parent = f"{number:032x}" if turn.history else None
        # What is asked (``question_key``) is left out: finding out takes milliseconds, and no look-up reads it.
        entries.append(
            (number + 1, new, asked.partition, 1, asked.exact_key, parent, len(turn.history), "active", 1, True, now,
             now + 604_800, 0, now, 0, 0, 30, 150, 2.0, pack_question(turn), pack_answer(said))
        )  # fmt: skip
        message = SPACE.vector(turn.message.text)
        before = pack_vector(SPACE.vector(turn.history[0].text)) if turn.history else None
        bucket = Bucket(asked.partition, asked.identity, SPACE.name).digest()
        vectors.append((number + 1, SPACE.name, pack_vector(message), before, bucket))
        spoken = (*turn.history, turn.message, Message("assistant", normalise(said.text)))
        places.append((place_key(asked.partition, asked.identity, spoken), new, now))
    return entries, vectors, places


_STATEMENTS: Final = (
    "INSERT INTO entries (number, id, partition, identity_number, exact_key, parent, depth, state, version, semantic, "
    "created_at, expires_at, hit_count, last_used_at, thumbs_up, thumbs_down, prompt_tokens, completion_tokens, "
    "seconds, question, answer) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    'INSERT INTO vectors (number, space, query, "window", bucket) VALUES (?, ?, ?, ?, ?)',
    "INSERT INTO places (place_key, node, used_at) VALUES (?, ?, ?)",
)


def fill_at_once(database: str, entries: int, buckets: int) -> dict[str, float]:
    """Write the rows that `fill` would leave behind, without the cache: a million in minutes. Returns what it took."""
    Database.open(_settings(database)).close()
    started, now = time.perf_counter(), time.time()
    asked = query(0, buckets)
    parts = {"number": 1, "identity": asked.identity, **asdict(asked.parts)}
    starts = range(0, entries, _AT_ONCE)
    with closing(sqlite3.connect(database, isolation_level=None)) as connection, ProcessPoolExecutor(_MAKERS) as makers:
        connection.execute("PRAGMA synchronous = OFF")
        names = ", ".join(parts)
        places = ", ".join("?" * len(parts))
        connection.execute(f"INSERT INTO identities ({names}) VALUES ({places})", list(parts.values()))  # noqa: S608
        made = deque(makers.submit(_rows, n, min(entries, n + _AT_ONCE), buckets, now) for n in starts[: 2 * _MAKERS])
        coming = iter(starts[2 * _MAKERS :])
        while made:
            connection.execute("BEGIN")
            for statement, rows in zip(_STATEMENTS, made.popleft().result(), strict=True):
                connection.executemany(statement, rows)
            connection.execute("COMMIT")
            if (n := next(coming, None)) is not None:
                made.append(makers.submit(_rows, n, min(entries, n + _AT_ONCE), buckets, now))
    seconds = time.perf_counter() - started
    return {"seconds": round(seconds, 1), "entries_per_second": round(entries / seconds), "at_once": True}


async def measure(database: str, entries: int, buckets: int) -> dict[str, Any]:
    """Open the database and look things up."""
    process = psutil.Process()
    before = process.memory_info().rss
    started, used = time.perf_counter(), time.process_time()
    cache = await _open(database, lookup_deadline_ms=10_000)
    opened, opened_cpu = time.perf_counter() - started, time.process_time() - used
    after_opening = process.memory_info().rss
    await cache.search(query(0, buckets, "first"))  # names the vector space
    started = time.perf_counter()
    await asyncio.to_thread(cache._index.keep_up)  # PostgreSQL's index, where there is none yet
    made = time.perf_counter() - started
    chance = np.random.default_rng(1)
    known = [int(number) for number in chance.integers(0, entries, LOOK_UPS)]
    found = {"exact": 0, "reworded": 0, "unseen": 0}

    async def exact(number: int) -> None:
        found["exact"] += await cache.exact(query(number, buckets)) is not None

    async def reworded(number: int) -> None:
        hit = (await cache.search(query(number, buckets, "other")))[1]
        found["reworded"] += hit is not None and hit.answer.text == answer(number).text

    async def unseen(number: int) -> None:
        asked = query(number + 3 * entries, buckets, "new")
        found["unseen"] += (await cache.exact(asked) or (await cache.search(asked))[1]) is not None

    results: dict[str, Any] = {
        "start_s": round(opened, 2),
        "start_cpu_s": round(opened_cpu, 2),
        "index_s": round(made, 2),
        "exact_from_disk_ms": await _times(exact, known),
        "exact_from_memory_ms": await _times(exact, known),
        "reworded_ms": await _times(reworded, known),
        "unseen_ms": await _times(unseen, known),
    }
    stats = await cache.stats()
    results |= {
        "found": {
            "exact": f"{found['exact'] // 2} of {LOOK_UPS}",
            "reworded": f"{found['reworded']} of {LOOK_UPS}",
            "unseen": f"{found['unseen']} of {LOOK_UPS}",
        },
        "resident_mib": {
            "before_opening": _mib(before),
            "after_opening": _mib(after_opening),
            "after_look_ups": _mib(process.memory_info().rss),
            "most": _mib(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024),
        },
        "database_mib": _mib(stats.database_bytes),
        "indexed": stats.indexed,
        "buckets": stats.buckets,
        "failures": stats.failures,
    }
    await cache.close()
    return results


async def complete(database: str) -> dict[str, Any]:
    """Open the database with everything a proxy loads beside it; returns the resident memory."""
    from fingerprint.embedding.router import load_router
    from store import confidence

    cache = await Cache.open(
        _settings(database, embed_deadline_ms=60_000),
        embedder=load_router(),
        confidence=confidence.load(),
        policy=confidence.thresholds(),
    )
    process = psutil.Process()
    opened = process.memory_info().rss
    await cache.search(_plain("How do I reset my password?"))
    latin = process.memory_info().rss
    await cache.search(_plain("怎么重置密码？"))
    both = process.memory_info().rss
    await cache.close()
    return {"opened": _mib(opened), "after_a_latin_text": _mib(latin), "after_a_chinese_text": _mib(both)}


def _plain(text: str) -> Query:
    parts = IdentityParts("chat.completions", "bench", "1", "", "", "", "", "", SCHEMA_VERSION, "default", "", "")
    partition, identity = partition_key(Scope(credential="c")), identity_key(parts)
    turn = Turn((), (), Message("user", text))
    return Query(turn, partition, identity, parts, exact_key(partition, identity, turn), None)


async def _times(work: Callable[[int], Awaitable[None]], numbers: Sequence[int]) -> dict[str, float]:
    """Return the wall-clock times of ``work``, and the processor time of all threads together, in ms."""
    taken, busy = [], []
    for number in numbers:
        started, used = time.perf_counter(), time.process_time()
        await work(number)
        taken.append((time.perf_counter() - started) * 1000)
        busy.append((time.process_time() - used) * 1000)
    p50, p95 = np.percentile(taken, (50, 95))
    cpu_p50, cpu_p95 = np.percentile(busy, (50, 95))
    return {
        name: round(float(ms), 3)
        for name, ms in zip(("p50", "p95", "cpu_p50", "cpu_p95"), (p50, p95, cpu_p50, cpu_p95), strict=True)
    }


def _mib(size: int) -> float:
    return round(size / 2**20, 1)


def _in_its_own_process(step: str, database: str, entries: int, buckets: int) -> Any:
    command = [sys.executable, "-m", "eval.bench.scale", "--step", step, "--database", database]
    command += ["--entries", str(entries), "--buckets", str(buckets)]
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    return json.loads(done.stdout.splitlines()[-1])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and print it; ``--json OUT`` also writes it to a file."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--buckets", type=int, action="append", help="indexes the entries are divided among (1, 2000)")
    parser.add_argument(
        "--at-once",
        action="store_true",
        help="write the rows past the cache, where recording takes hours",
    )
    parser.add_argument(
        "--filled",
        metavar="DATABASE",
        help="path or URL of a database that is there already: one with one bucket that an earlier run filled, "
        "or a copy of it that `antiphon db copy` made (PostgreSQL)",
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--step", choices=("fill", "fill-at-once", "measure", "complete"), help=argparse.SUPPRESS)
    parser.add_argument("--database", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    buckets = chosen.buckets or [1, 2_000]
    if chosen.step:
        steps: dict[str, Callable[[], Any]] = {
            "fill": lambda: fill(chosen.database, chosen.entries, buckets[0]),
            "fill-at-once": lambda: asyncio.to_thread(fill_at_once, chosen.database, chosen.entries, buckets[0]),
            "measure": lambda: measure(chosen.database, chosen.entries, buckets[0]),
            "complete": lambda: complete(chosen.database),
        }
        print(json.dumps(asyncio.run(steps[chosen.step]())))
        return
    results: dict[str, Any] = {
        "entries": chosen.entries,
        "commit": commit(),
        "machine": {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count()},
        "load_at_start": round(os.getloadavg()[0], 1),
    }
    for number in [1] if chosen.filled else buckets:
        with tempfile.TemporaryDirectory() as folder:
            database = chosen.filled or str(Path(folder) / "scale.db")
            run: dict[str, Any] = {}
            if not chosen.filled:
                step = "fill-at-once" if chosen.at_once else "fill"
                run["recording"] = _in_its_own_process(step, database, chosen.entries, number)
            # Twice: the first start may have to make the index, the second finds what the first left behind.
            first = _in_its_own_process("measure", database, chosen.entries, number)
            run["first_start"] = {key: first[key] for key in ("start_s", "start_cpu_s", "index_s", "resident_mib")}
            run |= _in_its_own_process("measure", database, chosen.entries, number)
            if not (chosen.filled or chosen.at_once):  # the same, whatever the number
                run["resident_with_embedders_mib"] = _in_its_own_process("complete", database, chosen.entries, number)
            results[f"in_{number}_buckets"] = run
    print(json.dumps(results, indent=2))
    if chosen.json:
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
