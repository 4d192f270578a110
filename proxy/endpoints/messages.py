"""``/v1/messages``, Anthropic's format: text turns that are not streamed."""

from __future__ import annotations

from typing import Final

from fingerprint.chat import turn_from_messages
from fingerprint.conversation import Turn
from fingerprint.errors import NotUnderstood
from proxy.endpoints.base import Endpoint, Json, Verdict, count_of, text_of

__all__ = ["Messages"]

_PLAIN: Final = frozenset(
    {"model", "messages", "system", "max_tokens", "temperature", "top_p", "top_k", "stop_sequences", "metadata",
     "stream", "service_tier"}
)  # fmt: skip


class Messages(Endpoint):
    """Anthropic's messages."""

    name = "messages"
    path = "/v1/messages"
    anthropic = True
    created_field = None
    id_prefix = "msg_"

    def read(self, body: Json) -> Turn:
        """Read ``system`` and ``messages``; the conversation itself has no system messages in this format."""
        messages = body.get("messages")
        if not isinstance(messages, list):
            raise NotUnderstood("messages is not a list")
        for message in messages:
            if not isinstance(message, dict) or message.get("role") not in ("user", "assistant"):
                raise NotUnderstood("a message has an unknown role")
        system = body.get("system")
        if system is None:
            return turn_from_messages(messages)
        return turn_from_messages([{"role": "system", "content": system}, *messages])

    def bypass(self, body: Json) -> str | None:
        """Streams, tools that run at the backend, and state kept there."""
        if body.get("stream"):
            return "stream"
        if any(body.get(name) for name in ("tools", "mcp_servers", "container", "context_management")):
            return "tools"
        return None

    def exact_only(self, body: Json, turn: Turn) -> bool:
        """Whether anything beyond plain text and sampling is involved."""
        return (
            turn.message.role != "user" or not body.keys() <= _PLAIN or any(message.opaque for message in turn.messages)
        )

    def judge(self, reply: object, body: Json) -> Verdict:
        """A message that ended its turn and holds nothing but text."""
        if not isinstance(reply, dict):
            return Verdict("not-an-object", shareable=False)
        if reply.get("type") != "message" or reply.get("error") is not None:
            return Verdict("error", shareable=False)
        stop = reply.get("stop_reason")
        if stop not in ("end_turn", "stop_sequence"):
            return Verdict("length" if stop == "max_tokens" else "unfinished", shareable=stop == "max_tokens")
        content = reply.get("content")
        if not isinstance(content, list) or not all(isinstance(b, dict) and b.get("type") == "text" for b in content):
            return Verdict("unusual")
        text = "".join(text_of(block.get("text")) for block in content)
        if not text.strip():
            return Verdict("empty")
        usage = reply.get("usage")
        return Verdict(
            None,
            text=text,
            prompt_tokens=count_of(usage, "input_tokens") or 0,
            completion_tokens=count_of(usage, "output_tokens") or 0,
            cached_tokens=count_of(usage, "cache_read_input_tokens"),
        )
