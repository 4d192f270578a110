"""What breaks prefixes: why a backend's KV cache cannot reuse a prompt that it has nearly seen before.

A KV cache (SGLang's radix cache, vLLM's prefix cache) reuses the longest common *token prefix*; whatever comes after
the first difference is computed again, however alike it is. `Prefixes` compares each request with the one before it in
its conversation, else with the last one under the same system prompt, and names the difference and what it costs.

Pure: requests in, findings out. Tokens are estimates (`estimated_tokens`) unless a request comes with the number its
backend counted; then the estimate is scaled to that. They stay estimates: where in a prompt a text ends is known to the
backend's tokenizer alone.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Final, Literal, TypeVar

from rapidfuzz.distance import Postfix, Prefix

from fingerprint.errors import NotUnderstood
from fingerprint.keys import canonical
from fingerprint.text import utf8

__all__ = [
    "ADVICE",
    "CAUSES",
    "Cause",
    "Finding",
    "Prefixes",
    "Prompt",
    "Summary",
    "Volatile",
    "estimated_tokens",
    "prompt_of",
    "volatile_parts",
]

Cause = Literal[
    "volatile-system",
    "changed-system",
    "reordered-keys",
    "reordered-tools",
    "changed-tools",
    "trimmed-history",
    "edited-history",
]

ADVICE: Final[Mapping[Cause, str]] = {
    "volatile-system": "A timestamp, date or id in the system prompt differs from request to request. Move it to the "
    "last user message, or to the end of the system prompt.",
    "changed-system": "The system prompt changes within a conversation. Put what changes (retrieved documents, state) "
    "into the last user message.",
    "reordered-keys": "The same tools come with their JSON keys in another order. Antiphon sends them on in one order; "
    "without it, serialise them with sorted keys.",
    "reordered-tools": "The same tools come in another order. Keep them in one order, by name for instance.",
    "changed-tools": "The set of tools changes within a conversation. Send all of them always, and restrict them with "
    "`tool_choice`.",
    "trimmed-history": "The oldest messages are dropped from the history, so everything behind them shifts. Trim "
    "rarely and by much rather than often and by little.",
    "edited-history": "Earlier messages are changed afterwards (stripped, summarised, annotated). Send them back as "
    "they were.",
}
"""What to do about each cause."""

CAUSES: Final[tuple[Cause, ...]] = tuple(ADVICE)

_CONVERSATIONS: Final = 4096
_TEMPLATES: Final = 512
_EXAMPLE: Final = 60  # characters

# Order matters: what an earlier pattern has taken, a later one does not see.
_VOLATILE: Final[tuple[tuple[str, str], ...]] = (
    ("uuid", r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"),
    (
        "timestamp",
        r"\b\d{4}-\d{2}-\d{2}[T ]\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:\s?(?:Z\b|UTC\b|GMT\b|[+-]\d{2}:?\d{2}\b))?",
    ),
    ("date", r"\b\d{4}-\d{2}-\d{2}\b|\b\d{1,2}[./]\d{1,2}[./]\d{4}\b|\d{4}年\d{1,2}月\d{1,2}日"),
    (
        "date",
        r"\b(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day,?\s+)?(?:"
        r"\d{1,2}(?:st|nd|rd|th)?\s+(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?,?\s+\d{4}"
        r"|(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?\s+\d{1,2}(?:st|nd|rd|th)?,?\s+\d{4})\b",
    ),
    ("time", r"\b\d{1,2}:\d{2}(?::\d{2})?(?:\s?[ap](?:m\b|\.m\.))?|\d{1,2}[点时]\d{1,2}分"),
    ("timestamp", r"\b1[5-9]\d{8}(?:\d{3})?(?:\.\d+)?\b"),  # seconds or milliseconds since 1970, from 2017 on
    ("id", r"\b(?:req|request|sess|session|trace|run|conv|conversation|msg|thread|user|usr|cust|txn)[-_:#]?"
           r"(?=[A-Za-z0-9_-]*\d)[A-Za-z0-9_-]{5,}\b"),
    ("id", r"\b(?=[0-9a-fA-F]*\d)(?=[0-9a-fA-F]*[a-fA-F])[0-9a-fA-F]{12,64}\b"),
)  # fmt: skip
_VOLATILE_RE: Final = re.compile("|".join(f"(?P<p{n}>{p})" for n, (_, p) in enumerate(_VOLATILE)), re.IGNORECASE)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Volatile:
    """A part of a text that looks as if it were another one next time."""

    kind: str  # "timestamp" | "date" | "time" | "uuid" | "id"
    start: int  # characters
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a request puts before the model, in the order in which nearly every chat template renders it."""

    system: str
    tools: tuple[str, ...]  # each as JSON, keys in the order they came in
    tool_keys: tuple[bytes, ...]  # each canonically: equal where only the order of keys differs
    messages: tuple[bytes, ...]  # 16 bytes that stand for each message after the system prompt, its role included
    roles: tuple[str, ...]
    message_tokens: tuple[int, ...]  # estimated

    @property
    def tokens(self) -> int:
        """All of it, estimated."""
        return estimated_tokens(self.system) + self.tool_tokens + sum(self.message_tokens)

    @property
    def tool_tokens(self) -> int:
        """The tools, estimated."""
        return sum(map(estimated_tokens, self.tools))


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that kept one request from reusing what the backend had."""

    cause: Cause
    tokens: int  # estimated: what came behind the difference though the backend had it
    where: str  # in words
    example: str = ""  # from the request; at most 60 characters. Do not log it where texts must not be logged
    pattern: str | None = None  # a regular expression for `sharing.volatile_system_parts`


@dataclass(slots=True)
class Summary:
    """One cause over many requests."""

    cause: Cause
    requests: int = 0
    tokens: int = 0  # estimated
    where: dict[str, int] = field(default_factory=dict)  # where it was found → requests, at most 20
    example: str = ""
    patterns: set[str] = field(default_factory=set)

    @property
    def advice(self) -> str:
        """What to do about it."""
        return ADVICE[self.cause]


def estimated_tokens(text: str) -> int:
    """Estimate the tokens of a text, at least 0: four characters each in scripts with spaces, one each otherwise."""
    if text.isascii():
        return (len(text) + 3) // 4
    wide = sum(character >= "\u2e80" for character in text)
    return wide + (len(text) - wide + 3) // 4


def volatile_parts(text: str) -> list[Volatile]:
    """Find what in a system prompt may change from request to request: dates, times, ids. In order of place."""
    found = []
    for match in _VOLATILE_RE.finditer(text):
        number = int((match.lastgroup or "p0")[1:])
        found.append(Volatile(_VOLATILE[number][0], match.start(), match.end(), match.group()))
    return found


def prompt_of(body: Mapping[str, Any]) -> Prompt | None:
    """Read a chat request (OpenAI's or Anthropic's form, parsed JSON); ``None`` where it is neither.

    Leading system and developer messages, ``system`` and ``instructions`` are the system prompt.
    """
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        return None
    leading = 0
    system = [_text(body[name]) for name in ("system", "instructions") if body.get(name)]
    for message in messages:
        if message.get("role") not in ("system", "developer"):
            break
        system.append(_text(message.get("content")))
        leading += 1
    rest = messages[leading:]
    tools = body.get("tools") or body.get("functions") or []
    if not isinstance(tools, list):
        return None
    try:
        keys = tuple(_digest(canonical(tool)) for tool in tools)
        digests = tuple(_digest(canonical(_said(message))) for message in rest)
    except (NotUnderstood, TypeError):
        return None
    return Prompt(
        system="\n".join(system),
        tools=tuple(json.dumps(tool, ensure_ascii=False, separators=(",", ":")) for tool in tools),
        tool_keys=keys,
        messages=digests,
        roles=tuple(str(message.get("role")) for message in rest),
        message_tokens=tuple(estimated_tokens(_text(message.get("content"))) + 4 for message in rest),
    )


class Prefixes:
    """Sees requests in their order and says what broke their prefixes. Bounded in memory; not for several threads.

    ``scope`` keeps apart those who share no KV cache (partitions, tenants); ``conversation`` is an id where there is
    one, and without it a request is taken to follow the one whose last message it repeats.
    """

    def __init__(self, *, conversations: int = _CONVERSATIONS) -> None:
        self.requests = 0
        self._most = conversations
        self._conversations: OrderedDict[Hashable, Prompt] = OrderedDict()
        self._templates: OrderedDict[Hashable, Prompt] = OrderedDict()
        self._summaries: dict[Cause, Summary] = {}

    def see(
        self,
        prompt: Prompt | None,
        *,
        conversation: Hashable | None = None,
        scope: Hashable = None,
        prompt_tokens: int | None = None,
    ) -> list[Finding]:
        """Take one request; return what kept it from reusing more, each with what it would cost by itself.

        ``prompt_tokens`` is what the backend counted for this prompt. ``None`` for ``prompt`` (a request that is not
        read) returns nothing.
        """
        if prompt is None:
            return []
        self.requests += 1
        before = self._before(prompt, conversation, scope)
        template = (scope, _digest(utf8(_masked(prompt.system))), tuple(sorted(prompt.tool_keys)))
        findings: list[Finding] = []
        if before is not None:
            findings = list(_compare(before, prompt, same_conversation=True))
        else:
            last = self._templates.get(template)
            if last is not None:
                findings = list(_compare(last, prompt, same_conversation=False))
        if prompt_tokens is not None and prompt.tokens > 0:
            findings = [_scaled(one, prompt_tokens / prompt.tokens) for one in findings]
        known = before or self._templates.get(template)
        if known is not None and known.system == prompt.system:  # one copy of a long text is enough
            tools = known.tools if known.tools == prompt.tools else prompt.tools
            prompt = replace(prompt, system=known.system, tools=tools)
        _keep(self._templates, template, prompt, _TEMPLATES)
        for key in _keys(prompt, conversation, scope):
            _keep(self._conversations, key, prompt, self._most)
        for one in findings:
            self._count(one)
        return findings

    def report(self) -> list[Summary]:
        """What was found so far, the dearest first."""
        return sorted(self._summaries.values(), key=lambda summary: -summary.tokens)

    def _before(self, prompt: Prompt, conversation: Hashable | None, scope: Hashable) -> Prompt | None:
        """The request before this one in its conversation."""
        if conversation is not None:
            return self._conversations.get((scope, "id", conversation))
        users = [n for n, role in enumerate(prompt.roles) if role == "user"]
        if len(users) < 2:
            return None
        for key in _ends(prompt, users[-2], scope):
            if key in self._conversations:
                return self._conversations[key]
        return None

    def _count(self, finding: Finding) -> None:
        summary = self._summaries.setdefault(finding.cause, Summary(finding.cause))
        summary.requests += 1
        summary.tokens += finding.tokens
        if finding.where in summary.where or len(summary.where) < 20:
            summary.where[finding.where] = summary.where.get(finding.where, 0) + 1
        summary.example = summary.example or finding.example
        if finding.pattern is not None:
            summary.patterns.add(finding.pattern)


def _keys(prompt: Prompt, conversation: Hashable | None, scope: Hashable) -> Iterator[Hashable]:
    """Under what a request is remembered, to be found by the one after it."""
    if conversation is not None:
        yield (scope, "id", conversation)
    elif prompt.roles and prompt.roles[-1] == "user":
        yield from _ends(prompt, len(prompt.roles) - 1, scope)


def _ends(prompt: Prompt, last: int, scope: Hashable) -> Iterator[Hashable]:
    """A conversation up to its message ``last``, named by the last two messages, or by the only one."""
    if last > 0:
        yield (scope, "end", prompt.messages[last - 1 : last + 1])
    else:
        yield (scope, "start", prompt.messages[0])


def _compare(before: Prompt, now: Prompt, *, same_conversation: bool) -> Iterator[Finding]:
    history = sum(before.message_tokens) if same_conversation else 0
    if before.system != now.system:
        at = Prefix.similarity(before.system, now.system)
        lost = estimated_tokens(now.system[at:]) + now.tool_tokens + history
        part = next((v for v in volatile_parts(now.system) if v.end > at), None)
        if part is not None and part.start <= at and _masked(before.system) == _masked(now.system):
            where = f"{part.kind} at character {part.start} of the system prompt"
            number = next(n for n, (kind, p) in enumerate(_VOLATILE) if kind == part.kind and _takes(p, part.text))
            lost = max(0, lost - estimated_tokens(part.text))
            yield Finding("volatile-system", lost, where, part.text[:_EXAMPLE], _VOLATILE[number][1])
        elif same_conversation:
            share = at / max(1, len(now.system))
            where = f"after {share:.0%} of the system prompt"
            kept = _kept_after(before.system, now.system, at) + now.tool_tokens + history
            yield Finding("changed-system", kept, where, now.system[at : at + _EXAMPLE])
    if before.tools != now.tools:
        behind = now.tool_tokens + history
        if before.tool_keys == now.tool_keys:
            yield Finding("reordered-keys", behind, "tools")
        elif sorted(before.tool_keys) == sorted(now.tool_keys):
            yield Finding("reordered-tools", behind, "tools")
        elif same_conversation:
            common = sum(estimated_tokens(tool) for tool in set(before.tools) & set(now.tools))
            yield Finding("changed-tools", common + history, "tools")
    if same_conversation:
        yield from _compare_messages(before, now)


def _compare_messages(before: Prompt, now: Prompt) -> Iterator[Finding]:
    old, new = before.messages, now.messages
    same = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    if same == len(old):
        return
    again = set(old[same:])
    lost = sum(tokens for digest, tokens in zip(new[same:], now.message_tokens[same:], strict=True) if digest in again)
    if not lost:
        return
    dropped = _dropped(old, new, same)
    if dropped:
        where = "the oldest messages" if same == 0 else f"messages after the first {same}"
        yield Finding("trimmed-history", lost, where, f"{dropped} messages dropped")
    else:
        yield Finding("edited-history", lost, f"a message of the {now.roles[same]}", f"message {same + 1}")


def _dropped(old: Sequence[bytes], new: Sequence[bytes], same: int) -> int:
    """How many messages behind the first ``same`` were left out, where the rest goes on as it was; else 0."""
    for count in range(1, len(old) - same):
        rest = old[same + count :]
        if tuple(new[same : same + len(rest)]) == tuple(rest):
            return count
    return 0


def _kept_after(before: str, now: str, at: int) -> int:
    """Estimate what of a text behind a change is as it was: the common end."""
    tail = Postfix.similarity(before[at:], now[at:])
    return estimated_tokens(now[len(now) - tail :]) if tail else 0


def _masked(text: str) -> str:
    return _VOLATILE_RE.sub("\x00", text)


def _takes(pattern: str, text: str) -> bool:
    return re.fullmatch(pattern, text, re.IGNORECASE) is not None


def _scaled(finding: Finding, factor: float) -> Finding:
    return Finding(finding.cause, round(finding.tokens * factor), finding.where, finding.example, finding.pattern)


def _keep(kept: OrderedDict[Hashable, T], key: Hashable, value: T, most: int) -> None:
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > most:
        kept.popitem(last=False)


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16, person=b"antiphon.prefix").digest()


def _said(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as templates see it: without fields that are null, one text part the same as a string."""
    said = {key: value for key, value in message.items() if value is not None}
    content = said.get("content")
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        part = content[0]
        if part.keys() == {"type", "text"} and isinstance(part.get("text"), str):
            said["content"] = part["text"]
    return said


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        return "\n".join(text for text in texts if isinstance(text, str))
    return ""
