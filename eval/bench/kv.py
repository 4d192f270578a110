"""What KV reuse saves on a real SGLang: ``python -m eval.bench.kv [--json OUT] [--plot OUT.png]``.

The same users (`eval.bench.kv_workload`) talk to one SGLang three times, its KV cache flushed before each:

- ``direct``: to SGLang itself, with its own prefix caching;
- ``answers``: through Antiphon with ``kv.canonical_history = false``: answers are reused, histories go as they came;
- ``antiphon``: through Antiphon as it is.

The users come at the same moments each time, so a chain that spares the backend work has less of a queue before it.
The backend has one half of the machine's cores to itself, users and proxy share the other half, in all three chains: as
where the backend has a GPU, neither takes the other's processor time.
Tokens are those the backend reports (``usage``), the KV tokens resident at the end are its own gauge; no token is
estimated. The model is the shaped one (``deploy/sglang/build_shaped.py``). A second part asks SmolLM2 whether answers
are the worse for it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import httpx

from eval.bench.kv_workload import Conversation, Pair, between, build
from eval.bench.proxy import free_port, is_ready, process
from eval.provenance import commit
from fingerprint.embedding.base import TextEmbedder
from fingerprint.embedding.router import load_router
from store import agreement
from store.window import cosine

__all__ = ["CHAINS", "main"]

_CORES: Final = sorted(os.sched_getaffinity(0))
_BACKENDS: Final = set(_CORES[: max(1, len(_CORES) // 2)])
_OTHERS: Final = set(_CORES[len(_CORES) // 2 :])
CHAINS: Final = ("direct", "answers", "antiphon")
_ROOT: Final = Path(__file__).resolve().parents[2]
_PATIENCE_S: Final = 900.0
_POOL: Final = 262_144  # KV tokens: enough for every chain, so that nothing is evicted and residency can be read
_SENSE_POOL: Final = 32_768
_START_S: Final = 600.0
# Long enough that no answer is cut off: what ended at the limit is not stored, and a first answer that is missing sends
# everybody behind it another way.
_SPEECH: Final = {"temperature": 1, "min_tokens": 12, "max_tokens": 600}
_SENSE: Final = {"temperature": 0, "max_tokens": 120}
_BRIEF: Final = "Answer in one short sentence."
# On a loaded machine the store would miss its deadlines, and every such turn is a miss.
_PATIENT: Final = tuple(f"store.{name}_deadline_ms=20000" for name in ("lookup", "embed", "decide"))


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn as it went."""

    conversation: int
    turn: int
    kind: str  # first | again | new
    reuse: str  # "" where nothing stood before the backend
    replaced: int
    ttft_s: float
    prompt: int  # tokens, as the backend counted; 0 where it was not asked
    cached: int
    completion: int
    text: str
    reason: str = ""  # the word of X-Antiphon-Reason before any colon

    @property
    def forwarded(self) -> bool:
        """Whether the backend generated it."""
        return self.reuse != "answer"

    @property
    def prefilled(self) -> int:
        """Prompt tokens that had to be computed."""
        return self.prompt - self.cached if self.forwarded else 0


async def ask(client: httpx.AsyncClient, url: str, model: str, messages: list[dict[str, str]], **fields: Any) -> Turn:
    """Send one streamed chat request; the time to the first token is that to the first event with content."""
    body = {"model": model, "messages": messages, "stream": True, "stream_options": {"include_usage": True}, **fields}
    began = time.perf_counter()
    first = 0.0
    pieces: list[str] = []
    usage: dict[str, Any] = {}
    async with client.stream("POST", f"{url}/v1/chat/completions", json=body) as reply:
        if reply.status_code != 200:
            raise SystemExit(f"{url} answers {reply.status_code}: {(await reply.aread())[:500]!r}")
        async for line in reply.aiter_lines():
            if not line.startswith("data: {"):
                continue
            event = json.loads(line[6:])
            usage = event.get("usage") or usage
            for choice in event.get("choices") or ():
                if piece := choice["delta"].get("content"):
                    first = first or time.perf_counter()
                    pieces.append(piece)
        headers = reply.headers
    details = usage.get("prompt_tokens_details") or {}
    return Turn(
        0, 0, "",
        headers.get("x-antiphon-reuse", ""), int(headers.get("x-antiphon-turns-replaced", 0)),
        (first or time.perf_counter()) - began,
        int(usage.get("prompt_tokens", 0)), int(details.get("cached_tokens") or 0),
        int(usage.get("completion_tokens", 0)), "".join(pieces),
        headers.get("x-antiphon-reason", "").partition(":")[0],
    )  # fmt: skip


async def talk(
    client: httpx.AsyncClient, url: str, number: int, conversation: Conversation, *, starts_s: float, think_s: float
) -> list[Turn]:
    """One user's conversation, a pause before each further message."""
    await asyncio.sleep(starts_s)
    messages = [{"role": "system", "content": conversation.system}]
    turns = []
    for place, said in enumerate(conversation.asks):
        if place:
            await asyncio.sleep(think_s)
        messages.append({"role": "user", "content": said.text})
        got = await ask(client, url, "shaped", messages, **_SPEECH)
        messages.append({"role": "assistant", "content": got.text})
        turns.append(replace(got, conversation=number, turn=place, kind=said.kind))
    return turns


async def run(url: str, work: Sequence[Conversation], *, spread_s: float, think_s: float) -> list[Turn]:
    """All conversations: those of the first users, and when they have ended those of the others, spread over time."""
    chance = random.Random(3)
    async with httpx.AsyncClient(
        timeout=_PATIENCE_S, trust_env=False, limits=httpx.Limits(max_connections=200)
    ) as client:
        turns: list[Turn] = []
        for first in (True, False):
            group = [(n, one) for n, one in enumerate(work) if one.first == first]
            starts = [0.3 * n if first else chance.uniform(0, spread_s) for n in range(len(group))]
            talks = [
                talk(client, url, n, one, starts_s=at, think_s=0.1 if first else think_s)
                for (n, one), at in zip(group, starts, strict=True)
            ]
            turns += [turn for told in await asyncio.gather(*talks) for turn in told]
            await asyncio.sleep(1.0)
        return turns


def resident(backend: str) -> int:
    """KV tokens the backend holds, used and reusable; read from its gauges, which it renews when it works."""
    httpx.post(f"{backend}/generate", json={"text": "x", "sampling_params": {"max_new_tokens": 1}}, timeout=60)
    time.sleep(1.0)
    text = httpx.get(f"{backend}/metrics", timeout=60).text
    value = 0.0
    for line in text.splitlines():
        if line.startswith(("sglang:kv_used_tokens{", "sglang:kv_evictable_tokens{")):
            value += float(line.rsplit(" ", 1)[1])
    return int(value)


def flush(backend: str) -> None:
    """Empty the backend's KV cache."""
    for _ in range(60):
        if httpx.post(f"{backend}/flush_cache", timeout=60).status_code == 200:
            return
        time.sleep(1.0)
    raise SystemExit("the backend does not flush its cache")


@contextlib.contextmanager
def sglang(model: str, *, pool: int) -> Iterator[str]:
    """The real SGLang with one of the two models and room for ``pool`` KV tokens; its URL."""
    port = free_port()
    path = _ROOT / ".backend" / "models" / model
    if not (path / "config.json").exists():
        raise SystemExit(
            f"{path} is not there: make backend, and .backend/bin/python deploy/sglang/build_shaped.py {path}"
        )
    command = [str(_ROOT / "deploy" / "sglang" / "launch.sh"), "--port", str(port)]
    command += ["--max-total-tokens", str(pool)]
    with (
        _on_cores(_BACKENDS),
        process(command, port, _healthy, environment={"MODEL_PATH": str(path)}, patience_s=_START_S),
        _on_cores(_OTHERS),
    ):
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def _on_cores(cores: set[int]) -> Iterator[None]:
    """What is started inside runs on these cores only, and so does this process."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _healthy(port: int) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=10).status_code == 200
    return False


@contextlib.contextmanager
def antiphon(backend: str, *settings: str) -> Iterator[str]:
    """The proxy before it, with an empty store; its URL."""
    port = free_port()
    with tempfile.TemporaryDirectory() as home:
        command = [str(Path(sys.executable).with_name("antiphon")), "serve", "--port", str(port), "--upstream", backend]
        command += ["--store", "sqlite://", *(word for one in settings for word in ("--set", one))]
        environment = {"ANTIPHON_HOME": home, "OMP_NUM_THREADS": "1", "ANTIPHON_LOGGING__LEVEL": "warning"}
        with process(command, port, is_ready, environment=environment, patience_s=_START_S):
            yield f"http://127.0.0.1:{port}"


# ------------------------------------------------------------------------------------------------------- the figures


def summary(turns: Sequence[Turn], after_hit: set[tuple[int, int]], forwarded: set[tuple[int, int]]) -> dict[str, Any]:
    """One chain in numbers. The two sets are places of turns, the same for all chains."""
    later = [turn for turn in turns if (turn.conversation, turn.turn) in after_hit]
    same = [turn for turn in turns if (turn.conversation, turn.turn) in forwarded]
    both = [turn for turn in same if (turn.conversation, turn.turn) in after_hit]
    return {
        "turns": len(turns),
        "served_from_cache": sum(not turn.forwarded for turn in turns),
        "reasons_where_forwarded": dict(Counter(turn.reason for turn in turns if turn.reason and turn.forwarded)),
        "with_turns_replaced": sum(turn.replaced > 0 for turn in turns),
        "prefilled_tokens": sum(turn.prefilled for turn in turns),
        "generated_tokens": sum(turn.completion for turn in turns if turn.forwarded),
        "prefilled_tokens_after_a_hit": sum(turn.prefilled for turn in later),
        "turns_after_a_hit": len(later),
        "prefilled_tokens_of_forwarded_turns_after_a_hit": sum(turn.prefilled for turn in both),
        "forwarded_turns_after_a_hit": len(both),
        "ttft_ms": _spread([turn.ttft_s for turn in turns]),
        "ttft_of_forwarded_turns_ms": _spread([turn.ttft_s for turn in same]),
    }


def _spread(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(value * 1000 for value in seconds)
    if not ordered:
        return {}
    return {
        "p50": round(statistics.median(ordered), 1),
        "p95": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))], 1),
    }


def _fewer(ours: float, theirs: float) -> float:
    """How much less ``ours`` is than ``theirs``, as a share."""
    return round(1 - ours / theirs, 4) if theirs else 0.0


def compare(chains: dict[str, list[Turn]], kept: dict[str, int]) -> dict[str, Any]:
    """All chains, and the shares by which ours is lower."""
    ours = chains["antiphon"]
    hit_at: dict[int, int] = {}
    for turn in ours:
        if not turn.forwarded:
            hit_at[turn.conversation] = min(turn.turn, hit_at.get(turn.conversation, turn.turn))
    after = {(t.conversation, t.turn) for t in ours if t.turn > hit_at.get(t.conversation, 99)}
    forwarded = {(t.conversation, t.turn) for t in ours if t.forwarded}
    told = {
        name: summary(turns, after, forwarded) | {"kv_tokens_resident": kept[name]} for name, turns in chains.items()
    }
    again = [turn for turn in ours if turn.kind == "again"]
    mine = told["antiphon"]
    ratios: dict[str, Any] = {
        "share_of_repeated_turns_served": round(sum(not turn.forwarded for turn in again) / max(1, len(again)), 4),
        "share_of_all_turns_served": round(mine["served_from_cache"] / max(1, mine["turns"]), 4),
        "new_turns_served": sum(not turn.forwarded for turn in ours if turn.kind == "new"),
    }
    for other in ("direct", "answers"):
        theirs = told[other]
        ratios[f"fewer_than_{other}"] = {
            "prefilled_tokens_after_a_hit": _fewer(
                mine["prefilled_tokens_after_a_hit"], theirs["prefilled_tokens_after_a_hit"]
            ),
            "prefilled_tokens_of_forwarded_turns_after_a_hit": _fewer(
                mine["prefilled_tokens_of_forwarded_turns_after_a_hit"],
                theirs["prefilled_tokens_of_forwarded_turns_after_a_hit"],
            ),
            "prefilled_tokens": _fewer(mine["prefilled_tokens"], theirs["prefilled_tokens"]),
            "median_ttft": _fewer(mine["ttft_ms"]["p50"], theirs["ttft_ms"]["p50"]),
            "median_ttft_of_forwarded_turns": _fewer(
                mine["ttft_of_forwarded_turns_ms"]["p50"], theirs["ttft_of_forwarded_turns_ms"]["p50"]
            ),
            "kv_tokens_resident": _fewer(mine["kv_tokens_resident"], theirs["kv_tokens_resident"]),
        }
    return {"chains": told, "ratios": ratios}


def measure(
    work: Sequence[Conversation], *, spread_s: float, think_s: float, pool: int, settings: Sequence[str] = ()
) -> tuple[dict[str, Any], dict[str, list[Turn]]]:
    """Run the three chains; returns the figures, and every turn."""
    chains: dict[str, list[Turn]] = {}
    kept: dict[str, int] = {}
    loads: dict[str, float] = {}
    with sglang("shaped", pool=pool) as backend:
        asyncio.run(run(backend, work[:1], spread_s=0, think_s=0))  # the first requests of a process are slow
        for name in CHAINS:
            flush(backend)
            with contextlib.ExitStack() as stack:
                url = backend
                if name != "direct":
                    off = ("kv.canonical_history=false",) if name == "answers" else ()
                    url = stack.enter_context(antiphon(backend, *off, *settings))
                loads[name] = round(os.getloadavg()[0], 1)
                began = time.monotonic()
                chains[name] = asyncio.run(run(url, work, spread_s=spread_s, think_s=think_s))
                kept[name] = resident(backend)
            _say(f"{name}: {len(chains[name])} turns in {time.monotonic() - began:.0f} s")
    return compare(chains, kept) | {"load_before": loads}, chains


# --------------------------------------------------------------------------------------------------- does it make sense


async def sense(
    work: Sequence[Conversation], pairs: Sequence[Pair], embedder: TextEmbedder, settings: Sequence[str] = ()
) -> dict[str, Any]:
    """Ask SmolLM2 what other words in the history, and a reference turn, do to its answers; greedy decoding."""
    with sglang("SmolLM2-135M-Instruct", pool=_SENSE_POOL) as backend:
        client = httpx.AsyncClient(timeout=_PATIENCE_S, trust_env=False)
        async with client:
            with antiphon(backend, *settings) as url:
                told = await _histories(client, backend, url, work)
                between_off = await _middle(client, url, pairs)
            with antiphon(backend, "kv.reference_turn=true", *settings) as url:
                between_on = await _middle(client, url, pairs)
    return {
        "model": "SmolLM2-135M-Instruct",
        "decoding": "greedy",
        "history_as_it_came": _agreement(told["plain"], embedder),
        "history_in_other_words": _agreement(told["replaced"], embedder)
        | {
            "prefilled_tokens_per_turn": round(statistics.mean(told["prefilled"]), 1) if told["prefilled"] else None,
            "prefilled_tokens_per_turn_as_it_came": round(statistics.mean(told["literal"]), 1)
            if told["literal"]
            else None,
        },
        "middle_band_against_the_stored_answer": {
            "generated_afresh": _agreement(between_off, embedder),
            "with_reference_turn": _agreement(between_on, embedder),
        },
    }


async def _histories(client: httpx.AsyncClient, backend: str, url: str, work: Sequence[Conversation]) -> dict[str, Any]:
    """The last turn's answer through the proxy beside the backend's own to the literal history, user by user."""
    plain: list[tuple[str, str]] = []
    replaced: list[tuple[str, str]] = []
    prefilled: list[int] = []
    literal: list[int] = []
    for conversation in work:
        messages = [{"role": "system", "content": _BRIEF}]
        for said in [one for one in conversation.asks if one.kind != "new"][:2]:
            messages.append({"role": "user", "content": said.text})
            got = await ask(client, url, "SmolLM2-135M-Instruct", messages, **_SENSE)
            messages.append({"role": "assistant", "content": got.text})
        messages.append({"role": "user", "content": next(one.text for one in conversation.asks if one.kind == "new")})
        got = await ask(client, url, "SmolLM2-135M-Instruct", messages, **_SENSE)
        beside = await ask(client, backend, "SmolLM2-135M-Instruct", messages, **_SENSE)
        if got.replaced:
            replaced.append((got.text, beside.text))
            prefilled.append(got.prefilled)
            literal.append(beside.prefilled)
        elif got.forwarded:
            plain.append((got.text, beside.text))
    return {"plain": plain, "replaced": replaced, "prefilled": prefilled, "literal": literal}


async def _middle(client: httpx.AsyncClient, url: str, pairs: Sequence[Pair]) -> list[tuple[str, str]]:
    """Ask the second question of each pair; beside it the stored answer to the first."""
    found = []
    for pair in pairs:
        stored = await ask(client, url, "SmolLM2-135M-Instruct", _brief(pair.stored), **_SENSE)
        await asyncio.sleep(0.5)  # its vectors are made in the background
        got = await ask(client, url, "SmolLM2-135M-Instruct", _brief(pair.asked), **_SENSE)
        if got.reuse == "kv":
            found.append((got.text, stored.text))
    return found


def _brief(text: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": _BRIEF}, {"role": "user", "content": text}]


def _agreement(pairs: Sequence[tuple[str, str]], embedder: TextEmbedder) -> dict[str, Any]:
    """How often two answers are the same, and how alike they are."""
    cosines: list[float] = []
    verdicts = {"agree": 0, "unclear": 0, "differ": 0}
    for one, other in pairs:
        vectors = embedder.encode([one, other])
        near = None
        if vectors[0] is not None and vectors[1] is not None and vectors[0].space == vectors[1].space:
            near = cosine(vectors[0].vector, vectors[1].vector)
            cosines.append(near)
        verdicts[agreement.compare(one, other, near).verdict] += 1
    return {
        "turns": len(pairs),
        "the_same": sum(one == other for one, other in pairs),
        "mean_cosine": round(statistics.mean(cosines), 3) if cosines else None,
        "agreement": verdicts,
    }


# ---------------------------------------------------------------------------------------------------------- the command


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def table(results: dict[str, Any]) -> str:
    """The chains as a Markdown table."""
    rows = (
        ("turns served from the cache", "served_from_cache", ""),
        ("prompt tokens prefilled", "prefilled_tokens", ""),
        ("… on the turns after a hit", "prefilled_tokens_after_a_hit", ""),
        ("… on those of them that Antiphon forwards", "prefilled_tokens_of_forwarded_turns_after_a_hit", ""),
        ("tokens generated", "generated_tokens", ""),
        ("KV tokens resident at the end", "kv_tokens_resident", ""),
        ("TTFT, median", "ttft_ms", "p50"),
        ("TTFT of forwarded turns, median", "ttft_of_forwarded_turns_ms", "p50"),
        ("TTFT of forwarded turns, 95th percentile", "ttft_of_forwarded_turns_ms", "p95"),
    )
    lines = ["| | SGLang alone | answers cached | Antiphon |", "|---|---|---|---|"]
    for title, key, inner in rows:
        cells = []
        for name in CHAINS:
            value = results["chains"][name][key]
            cells.append(f"{value[inner]:,.0f} ms" if inner else f"{value:,}")
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def report(results: dict[str, Any]) -> str:
    """The section of the documentation: the chains, the shares by which ours is lower, what sense the answers make."""
    lines: list[str] = []
    taken = results["taken"]
    load = f"load {', '.join(str(value) for value in results.get('load_before', {}).values())}"
    work = results["workload"]
    lines += [
        f"{work['conversations']} conversations, {work['turns']} turns, the later users spread over "
        f"{work['spread_s']:g} s; `{taken['command']}` at {taken['commit']} on "
        f"{taken['date']}, {taken['cores']} cores, {load} before the three.",
        "",
    ]
    if "chains" in results:
        ratios = results["ratios"]
        lines += [table(results), ""]
        lines += ["| fewer, or sooner, than | SGLang alone | answers cached |", "|---|---|---|"]
        for title, key in (
            ("prefilled tokens on the turns after a hit", "prefilled_tokens_after_a_hit"),
            ("… on those of them that are forwarded", "prefilled_tokens_of_forwarded_turns_after_a_hit"),
            ("KV tokens resident", "kv_tokens_resident"),
            ("median TTFT, all turns", "median_ttft"),
            ("median TTFT, forwarded turns", "median_ttft_of_forwarded_turns"),
        ):
            cells = [f"{ratios[f'fewer_than_{other}'][key]:.0%}" for other in ("direct", "answers")]
            lines.append(f"| {title} | {' | '.join(cells)} |")
        lines += [
            "",
            f"Served from the cache: {ratios['share_of_repeated_turns_served']:.0%} of the repeated turns, "
            f"{ratios['share_of_all_turns_served']:.0%} of all, {ratios['new_turns_served']} of the new ones.",
        ]
    if "sense" in results:
        sense = results["sense"]
        middle = sense["middle_band_against_the_stored_answer"]
        lines += ["", "| SmolLM2, greedy | turns | the same words | mean cosine | agree / unclear / differ |"]
        lines += ["|---|---|---|---|---|"]
        for title, told in (
            ("history as it came, against SGLang alone", sense["history_as_it_came"]),
            ("history in other words, against the literal history", sense["history_in_other_words"]),
            ("middle band afresh, against the stored answer", middle["generated_afresh"]),
            ("middle band with a reference turn, against the stored answer", middle["with_reference_turn"]),
        ):
            verdicts = " / ".join(str(told["agreement"][name]) for name in ("agree", "unclear", "differ"))
            cells = [str(told["turns"]), str(told["the_same"]), str(told["mean_cosine"]), verdicts]
            lines.append(f"| {title} | {' | '.join(cells)} |")
        words = sense["history_in_other_words"]
        if words["turns"]:
            lines += [
                "",
                f"On these turns {words['prefilled_tokens_per_turn']} tokens were prefilled, "
                f"{words['prefilled_tokens_per_turn_as_it_came']} with the literal history.",
            ]
    return "\n".join(lines)


def write_report(results: dict[str, Any], page: Path) -> None:
    """Renew what stands between the marks in a page of the documentation."""
    before, begin, rest = page.read_text("utf-8").partition("<!-- kv:begin -->")
    _, end, after = rest.partition("<!-- kv:end -->")
    page.write_text(f"{before}{begin}\n{report(results)}\n{end}{after}", encoding="utf-8")


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description="What KV reuse saves on a real SGLang.")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the figures here too")
    parser.add_argument("--page", type=Path, metavar="FILE", help="renew the figures in this page (docs/kv.md)")
    parser.add_argument("--plot", type=Path, metavar="OUT", help="draw them (.png or .svg)")
    parser.add_argument("--part", choices=["speed", "sense", "all"], default="all")
    parser.add_argument("--data", type=Path, default=_ROOT.parent / "shared" / "data", help="default: ../shared/data")
    parser.add_argument("--scripts", type=int, default=9, help="different scripts (default 9)")
    parser.add_argument("--users", type=int, default=7, help="later users of each script (default 7)")
    parser.add_argument("--spread-s", type=float, default=28.0, help="seconds over which the later users come")
    parser.add_argument("--think-s", type=float, default=1.0, help="seconds from an answer to the next message")
    parser.add_argument("--pool", type=int, default=_POOL, help=f"KV tokens the backend has room for (default {_POOL})")
    parser.add_argument("--patient", action="store_true", help="raise the store's deadlines, on a loaded machine")
    options = parser.parse_args()
    settings = _PATIENT if options.patient else ()
    if not (options.data / "families").is_dir():
        raise SystemExit(f"{options.data} is not there")
    embedder = load_router()
    began = time.monotonic()
    work, left_out = asyncio.run(build(options.data, embedder, scripts=options.scripts, users=options.users))
    _say(f"workload: {len(work)} conversations ({time.monotonic() - began:.0f} s)")
    hows: dict[str, int] = {}
    for conversation in work:
        for said in conversation.asks:
            hows[said.how or said.kind] = hows.get(said.how or said.kind, 0) + 1
    results: dict[str, Any] = {
        "workload": {
            "conversations": len(work),
            "turns": sum(len(one.asks) for one in work),
            "turns_by_wording": dict(sorted(hows.items())),
            "wordings_left_out": dict(sorted(left_out.items())),
            "spread_s": options.spread_s,
            "think_s": options.think_s,
            "kv_pool_tokens": options.pool,
            "settings": list(settings),
        }
    }
    if options.part != "sense":
        figures, _ = measure(
            work, spread_s=options.spread_s, think_s=options.think_s, pool=options.pool, settings=settings
        )
        results |= figures
    if options.part != "speed":
        pairs = asyncio.run(between(options.data, embedder, count=6))
        some = [one for one in work if one.first][:2] + [one for one in work if not one.first and one.script < 2][:6]
        results["sense"] = asyncio.run(sense(some, pairs, embedder, settings))
    results["taken"] = {
        "command": " ".join(["python -m eval.bench.kv", *sys.argv[1:]]),
        "commit": commit(short=True),
        "date": time.strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "load_after": round(os.getloadavg()[0], 1),
        "seconds": round(time.monotonic() - began),
    }
    print(json.dumps(results, indent=1))
    if options.json and options.part != "all" and options.json.exists():  # the other part stays
        results = json.loads(options.json.read_text("utf-8")) | results
    _say(report(results))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if options.page:
        write_report(results, options.page)
    if options.plot and "chains" in results:
        from eval.bench.kv_plot import draw

        draw(results, options.plot)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
