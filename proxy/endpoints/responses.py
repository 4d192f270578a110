"""``/v1/responses``: exact repeats of text turns that are not streamed and that the backend does not keep."""

from __future__ import annotations

from typing import Final

from fingerprint.conversation import Message, Turn
from fingerprint.errors import NotUnderstood
from fingerprint.keys import canonical
from fingerprint.text import normalise
from proxy.endpoints.base import Endpoint, Json, Verdict, count_of, text_of

__all__ = ["Responses"]

_STATEFUL: Final = ("previous_response_id", "conversation", "background", "prompt")


class Responses(Endpoint):
    """OpenAI's responses."""

    name = "responses"
    path = "/v1/responses"
    created_field = "created_at"
    id_prefix = "resp_"

    def read(self, body: Json) -> Turn:
        """Read ``instructions`` and ``input``."""
        instructions = body.get("instructions")
        system: tuple[Message, ...] = ()
        if isinstance(instructions, str):
            system = (Message("system", normalise(instructions)),)
        elif instructions is not None:
            raise NotUnderstood("instructions is not a text")
        given = body.get("input")
        if isinstance(given, str):
            return Turn(system, (), Message("user", normalise(given)))
        if not isinstance(given, list) or not given:
            raise NotUnderstood("input is neither a text nor a list")
        items = [_item(item) for item in given]
        return Turn(system, tuple(items[:-1]), items[-1])

    def bypass(self, body: Json) -> str | None:
        """Whatever the backend keeps or runs.

        Unless ``store`` is false the backend keeps the response under its id, for ``previous_response_id`` and for
        reading it again; a replay under a fresh id would break both.
        """
        if any(body.get(name) for name in _STATEFUL) or body.get("store") is not False:
            return "stateful"
        if body.get("stream"):
            return "stream"
        if body.get("tools") or body.get("include"):
            return "tools"
        return None

    def judge(self, reply: object, body: Json) -> Verdict:
        """A completed response whose output is text."""
        if not isinstance(reply, dict):
            return Verdict("not-an-object", shareable=False)
        if reply.get("error") is not None or reply.get("object") != "response":
            return Verdict("error", shareable=False)
        if reply.get("status") != "completed" or reply.get("incomplete_details") is not None:
            return Verdict("unfinished", shareable=False)
        texts: list[str] = []
        output = reply.get("output")
        for item in output if isinstance(output, list) else []:
            kind = item.get("type") if isinstance(item, dict) else None
            if kind == "reasoning":
                continue
            blocks = item.get("content") if kind == "message" else None
            if not isinstance(blocks, list):
                return Verdict("unusual")
            for block in blocks:
                if not isinstance(block, dict) or block.get("type") != "output_text":
                    return Verdict("unusual")
                texts.append(text_of(block.get("text")))
        text = "".join(texts)
        if not text.strip():
            return Verdict("empty")
        usage = reply.get("usage")
        return Verdict(
            None,
            text=text,
            prompt_tokens=count_of(usage, "input_tokens") or 0,
            completion_tokens=count_of(usage, "output_tokens") or 0,
            cached_tokens=count_of(usage, "input_tokens_details", "cached_tokens"),
        )


def _item(item: object) -> Message:
    """Read one input item; anything that is not simply a role and a text also enters as an opaque whole."""
    if not isinstance(item, dict):
        raise NotUnderstood("an input item is not an object")
    role = item.get("role")
    if item.get("type", "message") != "message" or role not in ("user", "assistant", "system", "developer"):
        return Message("tool", "", canonical(item))
    content = item.get("content")
    if isinstance(content, str):
        plain = item.keys() <= {"role", "content", "type"}
        return Message(str(role), normalise(content), b"" if plain else canonical(item))
    if not isinstance(content, list):
        raise NotUnderstood("an input item has no readable content")
    texts = [text_of(part.get("text")) for part in content if isinstance(part, dict)]
    return Message(str(role), normalise("\n".join(texts)), canonical(item))
