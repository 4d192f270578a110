"""``antiphon audit``: from files to a report. Two passes: embed what is new, then ask each turn of the cache."""

from __future__ import annotations

import asyncio
import gc
import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from eval.admission import Admitted, Rules
from eval.audit.errors import AuditError
from eval.audit.report import Inputs, report_of
from eval.audit.sheet import Row, Sampler
from eval.audit.spool import Spool
from eval.audit.tally import Tally
from eval.audit.vectors import KeptVectors
from eval.audit.walk import Outcome, Walk
from eval.report import Report
from eval.traffic import Problems, read_turns
from fingerprint.conversation import Message, Turn
from fingerprint.embedding.base import TextEmbedder
from fingerprint.hygiene import Prefixes, Prompt, prompt_of
from store.judges import GARBAGE, Judges
from store.settings import StoreSettings
from store.types import Policy, ReuseConfidence
from store.window import said

__all__ = ["Audit", "Options", "audit"]

log = logging.getLogger(__name__)

_MANY: Final = 1_000  # turns that are worth the start of processes, a few seconds


@dataclass(frozen=True, slots=True)
class Options:
    """How to audit. ``threads`` embed and judge; ``replies`` are embedded too where it shall be exactly as in the proxy
    (it changes nothing but the order of candidates, where there are more than are judged)."""

    kind: str = "auto"
    strict: bool = False
    limit: int | None = None
    sample: int = 200
    seed: int = 0
    threads: int = 2
    replies: bool = False
    rules: Rules = field(default_factory=Rules)
    store: StoreSettings = field(default_factory=lambda: StoreSettings.model_validate({}))


@dataclass(frozen=True, slots=True)
class Audit:
    """What was found."""

    report: Report
    rows: list[Row]
    tally: Tally


def audit(
    files: Sequence[Path | str],
    options: Options,
    *,
    embedder: TextEmbedder,
    confidence: ReuseConfidence,
    policy: Policy,
    keep: Path,
    command: str = "",
    console: Console | None = None,
    each: Callable[[Outcome], None] | None = None,
    make: Callable[[], ReuseConfidence] | None = None,
) -> Audit:
    """Audit logs. ``keep`` is the file of embeddings (`eval.audit.vectors`); ``each`` hears of every turn's outcome.
    ``make`` returns the same confidence in another process (`store.judges`): with it, and from ``_MANY`` turns on, as
    many processes judge as there are threads.

    Memory does not grow with the texts of the log; time grows linearly with its turns. Raises
    `eval.traffic.errors.TrafficError` for a log that cannot be read, `AuditError` and `store.errors.StoreError`.
    """
    problems = Problems(strict=options.strict)
    folder = Path(tempfile.mkdtemp(prefix="antiphon-audit-"))
    vectors = KeptVectors(embedder, keep)
    try:
        spool = Spool(folder)
        with _progress(console) as progress:
            return _audit(spool, vectors, files, options, problems, confidence, policy, command, progress, each, make)
    finally:
        vectors.close()
        shutil.rmtree(folder, ignore_errors=True)


def _audit(
    spool: Spool,
    vectors: KeptVectors,
    files: Sequence[Path | str],
    options: Options,
    problems: Problems,
    confidence: ReuseConfidence,
    policy: Policy,
    command: str,
    progress: Progress,
    each: Callable[[Outcome], None] | None,
    make: Callable[[], ReuseConfidence] | None,
) -> Audit:
    timings: dict[str, float] = {}
    started = time.perf_counter()
    reading = progress.add_task("reading", total=None)
    for logged in spool.fill(read_turns(files, kind=options.kind, problems=problems, limit=options.limit)):
        for text in _texts(logged.turn, logged.answer, options):
            spool.want(vectors.key(text), text)
        progress.advance(reading)
    spool.sort()
    progress.update(reading, total=len(spool), completed=len(spool))
    timings["read_s"] = time.perf_counter() - started

    started = time.perf_counter()
    embedding = progress.add_task("embedding", total=spool.texts())
    vectors.make(spool.wanted(), threads=options.threads, done=lambda count: progress.advance(embedding, count))
    timings["embed_s"] = time.perf_counter() - started
    timings["embedded"], timings["found_on_disk"] = vectors.made, vectors.found

    started = time.perf_counter()
    tally, sampler, prefixes = Tally(len(spool)), Sampler(options.sample, options.seed), Prefixes()
    identities: set[bytes] = set()
    partitions: set[bytes] = set()

    def admitted(one: Admitted) -> None:
        identities.add(one.query.identity)
        partitions.add(one.query.partition)

    judging = progress.add_task("judging", total=len(spool))

    async def go(walk: Walk) -> None:
        async for outcome in walk.run(admitted):
            tally.add(outcome)
            sampler.add(outcome)
            _see(prefixes, outcome)
            progress.advance(judging)
            if each is not None:
                each(outcome)

    with _judges(make, confidence, options.threads, len(spool)) as judges:
        walk = Walk(
            spool,
            vectors,
            confidence=confidence,
            policy=policy,
            settings=options.store,
            rules=options.rules,
            threads=options.threads,
            judges=judges,
        )
        with _garbage_looked_for_seldom():
            asyncio.run(go(walk))
    timings["judge_s"], timings["asked_again"] = time.perf_counter() - started, walk.asked_again
    rows = sampler.rows(spool)
    inputs = Inputs(
        tally=tally,
        problems=problems.summary(),
        identities=len(identities),
        partitions=len(partitions),
        prefixes=prefixes.report(),
        prefix_requests=prefixes.requests,
        rows=rows,
        seen=sampler.seen,
        policy=policy,
        model=confidence.version,
        files=[str(file) for file in files],
        command=command,
        failures=walk.failures,
        timings=timings,
        seed=options.seed,
        replies=options.replies,
    )
    spool.close()
    return Audit(report_of(inputs), rows, tally)


@contextmanager
def _garbage_looked_for_seldom() -> Iterator[None]:
    """What is kept of texts is many small objects that refer to nothing."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(GARBAGE)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _judges(
    make: Callable[[], ReuseConfidence] | None, confidence: ReuseConfidence, processes: int, turns: int
) -> AbstractContextManager[Judges | None]:
    if make is None or processes < 2 or turns < _MANY:
        return nullcontext()
    try:
        judges = Judges(processes, make)
    except (OSError, ImportError) as error:  # no shared memory, no semaphores
        log.warning("no processes to judge in (%s): threads do", error)
        return nullcontext()
    try:
        version = judges.version()
    except BrokenExecutor:  # no memory for more of the models
        log.warning("the processes that judge did not start: threads do")
        judges.close()
        return nullcontext()
    if version != confidence.version:
        judges.close()
        raise AuditError(
            f"the processes that judge have another confidence model ({version}, not {confidence.version})"
        )
    return judges


def _texts(turn: Turn, answer: str | None, options: Options) -> Iterator[str]:
    """What the cache will want the vectors of: the message and the context's; replies only where asked for."""
    if turn.message.text.strip():
        yield turn.message.text
    rounds = options.store.window_rounds
    for message in reversed(turn.history):
        if rounds <= 0:
            break
        if message.role == "user":
            rounds -= 1
        if message.text.strip() and (message.role == "user" or (message.role == "assistant" and options.replies)):
            yield said(message)
    if options.replies and answer and answer.strip():
        yield said(Message("assistant", answer))


def _see(prefixes: Prefixes, outcome: Outcome) -> None:
    logged = outcome.logged
    body: dict[str, Any] = {
        **logged.body,
        "messages": [{"role": m.role, "content": m.text} for m in logged.turn.messages],
    }
    prompt: Prompt | None = prompt_of(body)
    prefixes.see(
        prompt,
        conversation=logged.record.session,
        scope=(logged.record.caller, logged.record.model),
        prompt_tokens=logged.record.prompt_tokens,
    )


def _progress(console: Console | None) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=console is None,
        transient=True,
    )
