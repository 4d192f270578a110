"""A log through two live chains, with and without the cache, at recorded or scaled speed.

Each conversation is carried on by its user's recorded messages and the answers of the chain itself, as every client
does: the chain with the cache then sees what it has served. Both chains get every turn, one after the other, in an
order drawn for each turn, so that neither always finds the backend warm.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from eval.replay.client import Chain, Reply
from eval.traffic import LoggedTurn
from fingerprint.conversation import Turn
from store.agreement import AgreementVerdict

__all__ = ["Conversation", "Seen", "conversations", "walk"]

Compare = Callable[[str, str], Any]
_NOT_SENT: Final = frozenset({"stream", "stream_options", "messages"})


class Seen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One turn as both chains answered it."""

    conversation: str
    turn: int
    """Place in the conversation, from 0."""
    question: str
    cached: Reply
    plain: Reply
    verdict: AgreementVerdict | None = None
    why: str = ""
    cosine: float | None = None
    recorded: str = ""
    reaction: str = ""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The turns of one user, in order; ``times`` are seconds after the beginning of the log."""

    name: str
    turns: tuple[LoggedTurn, ...]
    times: tuple[float, ...]
    reactions: tuple[str, ...]


def conversations(turns: Sequence[LoggedTurn], reactions: Sequence[str]) -> list[Conversation]:
    """Put the turns of a log, in the order of their times, together to conversations. A turn asked anew is left out."""
    first = next((t.time for t in turns if t.time is not None), 0.0)
    by_name: dict[str, list[tuple[LoggedTurn, float, str]]] = defaultdict(list)
    at = 0.0
    for turn, reaction in zip(turns, reactions, strict=True):
        at = max(at, turn.time - first) if turn.time is not None else at
        if turn.turn.message.role == "user":
            by_name[turn.conversation].append((turn, at, reaction))
    found = []
    for name, rows in by_name.items():
        kept: list[tuple[LoggedTurn, float, str]] = []
        for row in rows:
            rounds = _rounds(row[0].turn)
            kept = [one for one in kept if _rounds(one[0].turn) < rounds]
            kept.append(row)
        found.append(
            Conversation(name, tuple(r[0] for r in kept), tuple(r[1] for r in kept), tuple(r[2] for r in kept))
        )
    return found


async def walk(
    chats: Sequence[Conversation],
    cached: Chain,
    plain: Chain,
    compare: Compare,
    *,
    seed: int,
    speed: float | None,
    at_once: int,
    model: str | None,
    done: dict[tuple[str, int], Seen],
    on_seen: Callable[[Seen], None],
    stopped: Callable[[], bool],
) -> None:
    """Ask both chains every turn that is not in ``done``; ``on_seen`` hears of each as it is answered.

    ``speed`` 1 keeps the recorded times, 10 is ten times as fast, None asks as fast as answers come; at most
    ``at_once`` conversations are under way.
    """
    loop = asyncio.get_running_loop()
    places = asyncio.Semaphore(at_once)
    left = [at for chat in chats for n, at in enumerate(chat.times) if (chat.name, n) not in done]
    began, origin = loop.time(), min(left, default=0.0)

    async def carry_on(chat: Conversation) -> None:
        if all((chat.name, n) in done for n in range(len(chat.turns))):
            return
        if speed is not None:  # a conversation that has not begun yet takes no place
            await _until(began + (chat.times[_next(chat, done)] - origin) / speed, stopped)
        async with places:
            said: dict[str, list[dict[str, str]]] = {cached.name: [], plain.name: []}
            for number, logged in enumerate(chat.turns):
                if stopped():
                    return
                known = done.get((chat.name, number))
                if known is None:
                    if speed is not None:
                        await _until(began + (chat.times[number] - origin) / speed, stopped)
                        if stopped():
                            return
                    known = await one(chat, number, logged, said)
                    on_seen(known)
                for chain, reply in ((cached, known.cached), (plain, known.plain)):
                    said[chain.name] += [
                        {"role": "user", "content": logged.turn.message.text},
                        {"role": "assistant", "content": reply.text if reply.ok else (logged.answer or "")},
                    ]

    async def one(chat: Conversation, number: int, logged: LoggedTurn, said: dict[str, list[dict[str, str]]]) -> Seen:
        fields = {name: value for name, value in logged.record.request.items() if name not in _NOT_SENT}
        fields["model"] = model or logged.record.model or "default"
        system = [{"role": m.role, "content": m.text} for m in logged.turn.system]
        last = {"role": "user", "content": logged.turn.message.text}
        headers = {}
        if logged.record.session is not None:
            headers["X-Antiphon-Session"] = logged.record.session.encode("ascii", "replace").decode()
        order = [cached, plain]
        random.Random(f"{seed}:{chat.name}:{number}").shuffle(order)
        replies: dict[str, Reply] = {}
        for chain in order:
            replies[chain.name] = await chain.ask({**fields, "messages": [*system, *said[chain.name], last]}, headers)
        mine, other = replies[cached.name], replies[plain.name]
        found = await asyncio.to_thread(compare, mine.text, other.text) if mine.ok and other.ok else None
        return Seen(
            conversation=chat.name,
            turn=number,
            question=logged.turn.message.text,
            cached=mine,
            plain=other,
            verdict=None if found is None else found.verdict,
            why="" if found is None else found.reason,
            cosine=None if found is None else found.cosine,
            recorded=logged.answer or "",
            reaction=chat.reactions[number],
        )

    async with asyncio.TaskGroup() as group:
        for chat in chats:
            group.create_task(carry_on(chat))


def _next(chat: Conversation, done: dict[tuple[str, int], Seen]) -> int:
    return next(n for n in range(len(chat.turns)) if (chat.name, n) not in done)


def _rounds(turn: Turn) -> int:
    return sum(m.role == "user" for m in turn.history)


async def _until(moment: float, stopped: Callable[[], bool]) -> None:
    loop = asyncio.get_running_loop()
    while (left := moment - loop.time()) > 0 and not stopped():  # noqa: ASYNC110 - a stop is no event of this loop's
        await asyncio.sleep(min(left, 0.5))
