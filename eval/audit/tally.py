"""Counting outcomes as they come: shares with intervals, ages, tokens, seconds. Of a turn only counts are kept."""

from __future__ import annotations

from collections import Counter, defaultdict
from hashlib import blake2b
from typing import Final

import msgspec

from eval.audit.walk import KINDS, Outcome
from eval.statistics import clustered
from fingerprint.conversation import Turn
from fingerprint.facts import fingerprint_of
from fingerprint.hygiene import estimated_tokens
from fingerprint.language import language_of
from fingerprint.text import utf8
from store.bounded import Bounded

__all__ = ["AGES", "Share", "Tally", "age_of"]

AGES: Final = (
    ("under a minute", 60.0), ("under an hour", 3_600.0), ("under a day", 86_400.0), ("under a week", 604_800.0),
    ("longer", float("inf")),
)  # fmt: skip
_BINS: Final = 20  # of the confidence
_MEANINGS: Final = 100_000  # of turns, a hundred bytes each
_STRETCHES: Final = 20  # of the log, in which the share is told


class Share:
    """One share of turns, with what its interval needs: hits and turns of every conversation.

    Shares of the same turns may hold the same ``turns`` (conversation → turns); whoever made that counts them there.
    """

    __slots__ = ("_hits", "_own", "_turns", "hits", "n")

    def __init__(self, turns: dict[int, int] | None = None) -> None:
        self.n = 0
        self.hits = 0
        self._own = turns is None
        self._turns: dict[int, int] = {} if turns is None else turns
        self._hits: dict[int, int] = {}

    def add(self, conversation: int, hit: bool) -> None:
        """Count one turn."""
        self.n += 1
        if self._own:
            self._turns[conversation] = self._turns.get(conversation, 0) + 1
        if hit:
            self.hits += 1
            self._hits[conversation] = self._hits.get(conversation, 0) + 1

    @property
    def value(self) -> float | None:
        """The share, 0 … 1; None where there are no turns."""
        return self.hits / self.n if self.n else None

    @property
    def interval(self) -> tuple[float, float]:
        """Its 95 % interval; turns of one conversation are not independent (`eval.statistics.clustered`)."""
        return clustered((self._hits.get(one, 0), turns) for one, turns in self._turns.items())


def age_of(gap_s: float) -> str:
    """Name the bucket of an age gap."""
    return next(name for name, most in AGES if gap_s < most or most == float("inf"))


class Tally:
    """All counts of an audit."""

    def __init__(self, turns: int) -> None:
        """``turns`` is how many are expected: it sets the length of the stretches in which the share is told."""
        self.turns = 0
        self._meanings: Bounded[bytes, tuple[str, str]] = Bounded(_MEANINGS)
        self.conversations: dict[int, int] = {}
        """Turns of each."""
        self.kinds: dict[str, Share] = {kind: Share(self.conversations) for kind in KINDS}
        self.served = Share(self.conversations)
        self.by_intent: dict[str, Share] = defaultdict(Share)
        self.by_language: dict[str, Share] = defaultdict(Share)
        self.by_model: dict[str, Share] = defaultdict(Share)
        self.ages: Counter[str] = Counter()
        self.not_looked_up: Counter[str] = Counter()
        self.vetoes: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.confidences: dict[str, list[int]] = {"served": [0] * _BINS, "not served": [0] * _BINS}
        self.stretches: list[list[int]] = []  # served, turns
        self.first_at: float | None = None
        self.last_at: float | None = None
        self.timed = 0
        self.tokens = 0
        self.tokens_at_stake = 0
        self.prompt_tokens_at_stake = 0
        self.tokens_told = 0  # turns whose tokens the log tells
        self.seconds = 0.0
        self.seconds_at_stake = 0.0
        self.seconds_told = 0
        self.seconds_told_served = 0
        self._stretch = max(1, -(-turns // _STRETCHES))

    def add(self, outcome: Outcome) -> None:
        """Count one turn."""
        logged, served = outcome.logged, outcome.served
        conversation = hash(logged.conversation)
        if self.turns % self._stretch == 0:
            self.stretches.append([0, 0])
        self.turns += 1
        self.stretches[-1][0] += served
        self.stretches[-1][1] += 1
        self.conversations[conversation] = self.conversations.get(conversation, 0) + 1
        self.served.add(conversation, served)
        for kind, share in self.kinds.items():
            share.add(conversation, kind == outcome.kind)
        intent, language = self._meaning(logged.turn)
        self.by_intent[intent].add(conversation, served)
        self.by_language[language].add(conversation, served)
        self.by_model[logged.record.model or "not told"].add(conversation, served)
        if outcome.kind == "not looked up":
            self.not_looked_up[outcome.reason] += 1
        elif outcome.kind in ("new", "not sure"):
            self.reasons[outcome.reason.partition(":")[0]] += 1
            self.vetoes.update(outcome.vetoes)
        if served and outcome.gap_s is not None and logged.time is not None:
            self.ages[age_of(outcome.gap_s)] += 1
        if outcome.kind in ("reworded", "in context", "not sure", "new") and outcome.similarity is not None:
            bins = self.confidences["served" if served else "not served"]
            bins[min(_BINS - 1, int(outcome.confidence * _BINS))] += 1
        if logged.time is not None:
            self.timed += 1
            self.first_at = logged.time if self.first_at is None else min(self.first_at, logged.time)
            self.last_at = logged.time if self.last_at is None else max(self.last_at, logged.time)
        self._cost(outcome)

    def _meaning(self, turn: Turn) -> tuple[str, str]:
        key = _digest(turn)  # what is asked again and again is read once
        found = self._meanings.get(key)
        if found is None:
            found = _meaning(turn)
            self._meanings[key] = found
        return found

    def _cost(self, outcome: Outcome) -> None:
        logged, served = outcome.logged, outcome.served
        record = logged.record
        told = record.prompt_tokens is not None and record.completion_tokens is not None
        self.tokens_told += told
        prompt = record.prompt_tokens
        if prompt is None:
            prompt = sum(estimated_tokens(m.text) + 4 for m in logged.turn.messages)
        answer = record.completion_tokens
        if answer is None:
            answer = estimated_tokens(logged.answer or "")
        self.tokens += prompt + answer
        if served:
            self.tokens_at_stake += prompt + answer
            self.prompt_tokens_at_stake += prompt
        if record.seconds is not None:
            self.seconds_told += 1
            self.seconds += record.seconds
            if served:
                self.seconds_told_served += 1
                self.seconds_at_stake += record.seconds


def _digest(turn: Turn) -> bytes:
    said = [(message.role, utf8(message.text), message.opaque) for message in turn.messages]
    return blake2b(msgspec.msgpack.encode(said), digest_size=16, person=b"antiphon.tally").digest()


def _meaning(turn: Turn) -> tuple[str, str]:
    """Intent and language of a turn, "other" where no rule says; never raises."""
    try:
        intent = fingerprint_of(turn).intent or "other"
    except Exception:
        intent = "other"
    return intent, language_of(turn.message.text) or "other"
