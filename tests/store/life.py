"""The life of entries as a state machine over a real store, beside a model that knows what may still be served.

The model is told what was done, never what the store thinks. An answer that is served must be one that the model still
holds for alive: not replaced, retracted, corrected, purged, expired or of an older epoch, and of the right caller and
weights.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import event
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from store.cache import Cache
from store.checks import Checked
from store.drift import question_key, same_question
from store.settings import CheckSettings, StoreSettings
from store.types import Hit, Policy, Query
from tests.store.support import Clock, NearEnough, WordEmbedder, ask, no_objections, parts_of, say

T = TypeVar("T")

TTL_S = 3_600.0
OPENING = "hello I have a question"
QUESTIONS = (
    "how do I reset the password of my account",
    "how do I reset a password of an account",  # the same question in other small words
    "how do I reset the phone of my account",
    "what does grep -v do",
    "what does grep -V do",
)
questions = st.sampled_from(QUESTIONS)
callers = st.sampled_from(("alice", "bob"))
weights = st.sampled_from(("1", "2"))
sessions = st.sampled_from((None, "s1", "s2"))
BARRED_S = 86_400.0


@dataclass
class Entry:
    """What the model knows of an entry."""

    text: str
    query: Query
    who: str
    weights: str
    expires_at: float
    dead: str = ""


class Life(RuleBasedStateMachine):
    """Everything that can happen to entries, in any order."""

    url = ""  # a database of another engine

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp(prefix="antiphon-life-"))
        self.clock = Clock()
        self.entries: dict[str, Entry] = {}
        self.withheld: dict[str, set[str]] = {}  # session -> texts that were corrected in it
        self.disputed: dict[str, set[bytes]] = {}  # session -> exact keys whose answers were corrected in it
        self.barred: dict[bytes, float] = {}  # question key -> until when
        self.last: tuple[Query, Hit] | None = None
        self.number = 0

    @initialize()
    def begin(self) -> None:
        self.cache = self.run(self.open())

    def teardown(self) -> None:
        self.run(self.cache.close())
        self.loop.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, 300))

    async def open(self) -> Cache:
        deadlines: dict[str, Any] = dict.fromkeys(
            ("lookup_deadline_ms", "embed_deadline_ms", "decide_deadline_ms"), 60_000.0
        )
        return await Cache.open(
            StoreSettings(
                url=self.url or f"sqlite:///{self.folder}/antiphon.db",
                default_ttl_s=TTL_S,
                drift_variance=1.0,  # what withholds answers for their variance is tested elsewhere
                **deadlines,
            ),
            embedder=WordEmbedder(),
            confidence=NearEnough(),
            policy=Policy(answer=0.97, verify=0.5),
            objections=no_objections,
            clock=self.clock,
            checks=CheckSettings(enabled=True, bar_s=BARRED_S),
        )

    # ---------------------------------------------------------------------------------------------- what may happen

    def query(self, question: str, who: str, version: str, session: str | None, before: str | None) -> Query:
        texts = (OPENING, before, question) if before is not None else (question,)
        return ask(*texts, who=who, session=session, parts=parts_of(weights_version=version))

    def befores(self) -> list[str | None]:
        return [None, *(entry.text for entry in self.entries.values() if entry.query.turn.message.text == OPENING)][:4]

    @rule(
        question=st.sampled_from((*QUESTIONS, OPENING)), who=callers, version=weights, session=sessions, data=st.data()
    )
    def record(self, question: str, who: str, version: str, session: str | None, data: st.DataObject) -> None:
        """The backend answers."""
        before = None if question == OPENING else data.draw(st.sampled_from(self.befores()))
        self.put(question, who, version, session, before)

    @rule(question=questions, who=callers, version=weights)
    def record_alone(self, question: str, who: str, version: str) -> None:
        """The same without history or session: most of what is found in other words."""
        self.put(question, who, version, None, None)

    def put(self, question: str, who: str, version: str, session: str | None, before: str | None) -> None:
        self.number += 1
        text = f"answer {self.number}"
        query = self.query(question, who, version, session, before)
        entry_id = self.cache.record(query, say(text))
        self.run(self.cache.flush())
        key = self.key_of(query)
        for other in self.entries.values():
            same = other.query.exact_key == query.exact_key
            if same or (self.key_of(other.query) == key and same_question(query.turn, other.query.turn)):
                other.dead = other.dead or "replaced"
        self.entries[entry_id] = Entry(text, query, who, version, self.clock.now + TTL_S)

    @rule(question=questions, who=callers, version=weights, session=sessions, data=st.data())
    def ask(self, question: str, who: str, version: str, session: str | None, data: st.DataObject) -> None:
        """Somebody asks; what is served must be alive."""
        query = self.query(question, who, version, session, data.draw(st.sampled_from(self.befores())))
        hit = self.run(self.look_up(query))
        event("hit" if hit is not None else "miss")
        if hit is not None:
            self.may_be_served(query, hit, who, version)
            self.last = (query, hit)

    @rule(data=st.data(), session=sessions)
    @precondition(lambda self: self.entries)
    def ask_again(self, data: st.DataObject, session: str | None) -> None:
        """Somebody asks literally what was answered before."""
        entry = data.draw(st.sampled_from(list(self.entries.values())))
        texts = [message.text for message in entry.query.turn.messages]
        query = ask(*texts, who=entry.who, session=session, parts=parts_of(weights_version=entry.weights))
        hit = self.run(self.look_up(query))
        event("exact hit" if hit is not None else "exact miss")
        if hit is not None:
            self.may_be_served(query, hit, entry.who, entry.weights)
            self.last = (query, hit)
        elif not entry.dead and self.clock.now < entry.expires_at:
            # Alive, and asked for by its own words: only a bar or a correction may withhold it.
            barred = self.barred.get(self.key_of(entry.query), 0.0) > self.clock.now
            disputed = query.exact_key in self.disputed.get(f"{session}{entry.who}", set())
            assert barred or disputed or any(entry.text in texts for texts in self.withheld.values()), entry

    async def look_up(self, query: Query) -> Hit | None:
        hit = await self.cache.exact(query)
        if hit is None:
            _, hit = await self.cache.search(query)
        if hit is not None:
            self.cache.follow(query, hit)
            await self.cache.flush()
        return hit

    @rule(data=st.data(), session=sessions)
    @precondition(lambda self: self.entries)
    def correct(self, data: st.DataObject, session: str | None) -> None:
        """A conversation that got an answer corrects it."""
        entry_id = data.draw(st.sampled_from(list(self.entries)))
        entry = self.entries[entry_id]
        texts = [message.text for message in entry.query.turn.messages]
        version = parts_of(weights_version=entry.weights)
        affected = self.run(
            self.cache.correct(
                ask(*texts, entry.text, "no, that is wrong", who=entry.who, session=session, parts=version)
            )
        )
        if affected:
            entry.dead = entry.dead or "corrected"
        if session is not None:
            self.withheld.setdefault(session + entry.who, set()).add(entry.text)
            self.disputed.setdefault(session + entry.who, set()).add(entry.query.exact_key)

    @rule(data=st.data(), how=st.sampled_from(("retract", "feedback")))
    @precondition(lambda self: self.entries)
    def withdraw(self, data: st.DataObject, how: str) -> None:
        entry_id = data.draw(st.sampled_from(list(self.entries)))
        if how == "retract":
            self.run(self.cache.retract(entry_id))
        else:
            self.run(self.cache.feedback(entry_id, "down", partition=None))
        self.entries[entry_id].dead = self.entries[entry_id].dead or how

    @rule(
        what=st.sampled_from(("purge", "epoch", "restart", "restart", "wait", "wait")),
        version=weights,
        seconds=st.sampled_from((1.0, TTL_S - 1, TTL_S, BARRED_S - 1, BARRED_S)),
    )
    def upheaval(self, what: str, version: str, seconds: float) -> None:
        """What concerns all entries; one rule, so that most of a life passes without."""
        event(what)
        if what == "purge":
            self.run(self.cache.purge({"weights_version": version}, dry_run=False))
        elif what == "epoch":
            self.run(self.cache.raise_epoch(dry_run=False))
        elif what == "restart":
            self.run(self.cache.close())
            self.cache = self.run(self.open())
        else:
            self.clock.now += seconds
        for entry in self.entries.values():
            if what == "epoch" or (what == "purge" and entry.weights == version):
                entry.dead = entry.dead or what

    @rule(wrong=st.booleans(), times=st.integers(1, 4))
    @precondition(lambda self: self.last is not None)
    def check(self, wrong: bool, times: int) -> None:
        """What was served is compared with a fresh answer."""
        assert self.last is not None
        query, hit = self.last
        for _ in range(times):
            found: Checked = self.run(self.checked(query, hit, wrong))
            if found.barred:
                event("barred")
                key = self.key_of(self.entries[hit.entry_id].query)
                self.barred[key] = max(self.barred.get(key, 0.0), self.clock.now + BARRED_S)

    async def checked(self, query: Query, hit: Hit, wrong: bool) -> Checked:
        future = self.cache.checks.checked(
            hit.entry_id, query.exact_key, hit.kind, hit.decided, wrong=wrong, source="hit"
        )
        found: Checked = await asyncio.wrap_future(future)
        return found

    # --------------------------------------------------------------------------------------------------- what holds

    def key_of(self, query: Query) -> bytes:
        return question_key(query.turn, query.partition, query.identity, query.place_key)

    def may_be_served(self, query: Query, hit: Hit, who: str, version: str) -> None:
        entry = self.entries[hit.entry_id]
        assert hit.answer.text == entry.text
        assert not entry.dead, f"{entry.text} was served, though it is {entry.dead}"
        assert self.clock.now < entry.expires_at, f"{entry.text} has expired"
        assert (entry.who, entry.weights) == (who, version)
        assert self.clock.now >= self.barred.get(self.key_of(entry.query), 0.0), f"{entry.text} is barred"
        if query.session is not None:
            assert entry.text not in self.withheld.get(query.session + who, set()), f"{entry.text} was corrected here"

    @invariant()
    def nothing_failed(self) -> None:
        if hasattr(self, "cache"):
            assert self.cache.failures.counts() == {}
