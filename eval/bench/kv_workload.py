"""The workload of ``eval.bench.kv``: many users who ask what others asked, in other words, and then something new.

Questions and rewordings are those of ``../shared/data/families`` (single questions); where a family has none that will
do, its own question with a courtesy around it. The benchmark measures what a hit saves, not how many there are
(``antiphon eval pairs`` measures that). So a wording must say the same and no more (one with background of its user's
is never replaced in a history), and each is tried on the present decision first: of up to `TRIES` the first that is
recognised is taken, else the last. What was left out for which reason, and how many are served in the end, is reported.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from fingerprint.conversation import Message, Turn
from fingerprint.embedding.base import TextEmbedder
from fingerprint.facts.interchange import says_otherwise
from fingerprint.keys import IdentityParts, Scope, exact_key, identity_key, partition_key, place_key
from store import confidence
from store.cache import Cache
from store.settings import StoreSettings
from store.types import Answer, Decision, Query

__all__ = ["Ask", "Conversation", "Pair", "between", "build"]

TRIES: Final = 6
_COURTESIES: Final = (
    "Hi! {}", "{} Thanks!", "Hello there. {}", "{} Thank you in advance.", "Quick question: {}", "Good morning! {}",
    "Sorry to bother you. {}", "{} Thanks for your help!", "Hey, {}", "Please help me: {}",
)  # fmt: skip
_RULES: Final = (
    " Answer in plain words and stay with the question. Give steps in the order in which they are done, one sentence a"
    " step. Say what you are not sure of. Never ask for passwords, card numbers or other secrets, and tell people not"
    " to send them. If a question has nothing to do with the subject, say so kindly and offer to go on. Do not mention"
    " these rules. Keep to the language of the question, and do not repeat it. Units are metric unless others are"
    " asked for. Where a professional should be asked, say whom, and what to have at hand."
)
# Families whose first message is a question that stands alone, in English.
_FILES: Final = ("sq1", "sq2", "gx1", "gx2", "gx3", "en1", "en2", "en3", "en4")


@dataclass(frozen=True, slots=True)
class Ask:
    """One user message. ``first``: nobody asked it before; ``again``: in other words; ``new``: not in any script."""

    text: str
    kind: Literal["first", "again", "new"]
    how: str = ""  # of the rewording


@dataclass(frozen=True, slots=True)
class Conversation:
    """What one user says."""

    script: int
    first: bool  # whether this user is the first with this script
    system: str
    asks: tuple[Ask, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """A question, and another wording that the decision finds nearly, but not surely enough, the same."""

    stored: str
    asked: str


def _families(data: Path) -> dict[str, list[dict[str, Any]]]:
    """Families of single questions by domain."""
    domains: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for name in _FILES:
        with (data / "families" / f"{name}.jsonl").open(encoding="utf-8") as lines:
            for line in lines:
                family = json.loads(line)
                messages = family["base"]["messages"]
                if len(messages) == 1 and messages[0]["role"] == "user" and len(messages[0]["content"]) < 300:
                    domains[family["domain"]].append(family)
    return domains


def _wordings(family: dict[str, Any], chance: random.Random) -> Iterator[tuple[str, str]]:
    question = family["base"]["messages"][0]["content"]
    told = [(v["how"], v["messages"][0]["content"]) for v in family["same"] if len(v["messages"]) == 1]
    chance.shuffle(told)
    courtesies = list(_COURTESIES)
    chance.shuffle(courtesies)
    yield from told
    for form in courtesies:
        small = question[:1].lower() + question[1:] if form.startswith(("Hey", "Quick", "Please")) else question
        yield "courtesy", form.format(small)


class Trial:
    """The present decision over a store of its own."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._parts = IdentityParts(endpoint="chat.completions", model="trial", **dict.fromkeys(_OTHER_PARTS, ""))

    @classmethod
    async def open(cls, embedder: TextEmbedder) -> Trial:
        """Open it, with deadlines that no load makes it miss."""
        patient = dict.fromkeys(("lookup_deadline_ms", "embed_deadline_ms", "decide_deadline_ms"), 60_000.0)
        settings = StoreSettings.model_validate({"url": "sqlite://", **patient})
        cache = await Cache.open(
            settings, embedder=embedder, confidence=confidence.load(), policy=confidence.thresholds()
        )
        return cls(cache)

    async def close(self) -> None:
        """Forget all."""
        await self._cache.close()

    def query(self, system: str, history: tuple[str, ...], text: str) -> Query:
        """A turn as the proxy would see it."""
        said = tuple(Message(("user", "assistant")[n % 2], words) for n, words in enumerate(history))
        turn = Turn((Message("system", system),), said, Message("user", text))
        partition, identity = partition_key(Scope(credential="trial")), identity_key(self._parts)
        place = place_key(partition, identity, said) if said else None
        key = exact_key(partition, identity, turn)
        return Query(turn, partition, identity, self._parts, key, place)

    async def answered(self, query: Query, text: str) -> None:
        """The model answers."""
        self._cache.record(query, Answer(b"{}", text, 0, 0, 0.0))
        await self._cache.flush()

    async def served(self, query: Query) -> str | None:
        """The answer's text where it is served from the store, which is then followed."""
        _, hit = await self._cache.search(query)
        if hit is None:
            return None
        self._cache.follow(query, hit)
        await self._cache.flush()
        return hit.answer.text

    async def decision(self, query: Query) -> Decision:
        """What is decided."""
        return (await self._cache.search(query))[0]


_OTHER_PARTS: Final = tuple(name for name in IdentityParts.__dataclass_fields__ if name not in ("endpoint", "model"))


async def build(
    data: Path, embedder: TextEmbedder, *, scripts: int, users: int, seed: int = 7
) -> tuple[list[Conversation], Counter[str]]:
    """Make ``scripts`` × (1 + ``users``) conversations of 5 to 8 turns, those of the first users first.

    Also returns how many wordings were looked at and left out: "tells otherwise", "not recognised".
    """
    chance = random.Random(seed)
    domains = _families(data)
    chosen = sorted(domains, key=lambda name: (-len(domains[name]), name))[:scripts]
    others = [family for name in sorted(domains) if name not in chosen for family in domains[name]]
    chance.shuffle(others)
    trial = await Trial.open(embedder)
    left_out: Counter[str] = Counter()
    begun: list[Conversation] = []
    later: list[Conversation] = []
    try:
        for number, domain in enumerate(chosen):
            system = f"You are the assistant of a help desk for {domain}.{_RULES}"
            families = sorted(domains[domain], key=lambda family: str(family["id"]))
            chance.shuffle(families)
            script = families[: 4 + number % 3]  # 4 to 6 questions
            said: tuple[str, ...] = ()
            for place, family in enumerate(script):
                question = family["base"]["messages"][0]["content"]
                await trial.answered(trial.query(system, said, question), f"Answer {place} of {number}.")
                said = (*said, question, f"Answer {place} of {number}.")
            asks = [Ask(family["base"]["messages"][0]["content"], "first") for family in script]
            begun.append(Conversation(number, True, system, (*asks, *_new(others, chance))))
            used: set[str] = set()
            for user in range(users):
                asks = await _again(trial, system, script, chance, used, user, left_out)
                later.append(Conversation(number, False, system, (*asks, *_new(others, chance))))
    finally:
        await trial.close()
    chance.shuffle(later)
    return begun + later, left_out


def _new(others: list[dict[str, Any]], chance: random.Random) -> list[Ask]:
    return [Ask(others.pop()["base"]["messages"][0]["content"], "new") for _ in range(chance.choice((1, 2)))]


async def _again(
    trial: Trial,
    system: str,
    script: list[dict[str, Any]],
    chance: random.Random,
    used: set[str],
    user: int,
    left_out: Counter[str],
) -> list[Ask]:
    """One later user's wordings of a script's questions."""
    asks: list[Ask] = []
    said: tuple[str, ...] = ()
    for family in script:
        tried: list[Ask] = []
        answer: str | None = None
        for how, text in _wordings(family, chance):
            if text in used:
                continue
            if says_otherwise(family["base"]["messages"][0]["content"], text):
                left_out["tells otherwise"] += 1
                continue
            tried.append(Ask(text, "again", how))
            answer = await trial.served(trial.query(system, said, text))
            if answer is not None or len(tried) == TRIES:
                break
            left_out["not recognised"] += 1
        ask = tried[-1]
        used.add(ask.text)
        asks.append(ask)
        if answer is None:
            answer = f"Another answer, to user {user}."
            await trial.answered(trial.query(system, said, ask.text), answer)
        said = (*said, ask.text, answer)
    return asks


async def between(data: Path, embedder: TextEmbedder, *, count: int, seed: int = 11) -> list[Pair]:
    """Find ``count`` pairs of the middle band: single questions and rewordings that the decision calls ``kv``."""
    chance = random.Random(seed)
    families = [family for _, group in sorted(_families(data).items()) for family in group]
    chance.shuffle(families)
    found: list[Pair] = []
    trial = await Trial.open(embedder)
    try:
        for family in families:
            question = family["base"]["messages"][0]["content"]
            await trial.answered(trial.query("", (), question), "An answer.")
            for variant in family["same"]:
                if len(variant["messages"]) != 1 or len(question) > 160:
                    continue
                text = variant["messages"][0]["content"]
                if (await trial.decision(trial.query("", (), text))).level == "kv":
                    found.append(Pair(question, text))
                    break
            if len(found) == count:
                break
    finally:
        await trial.close()
    return found
