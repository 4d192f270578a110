"""Replies made of ``choices``: chat completions and text completions, whole and streamed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from proxy.endpoints.base import Assembled, Assembler, Json, Template, Verdict, count_of, text_of
from proxy.endpoints.pieces import natural_pieces

__all__ = ["ChoicesAssembler", "judge_choices", "stream_choices"]

_DECODE: Final = msgspec.json.Decoder().decode
_ENCODE: Final = msgspec.json.Encoder().encode

_DONE: Final = b"[DONE]"
# Top-level members of a chunk that differ from chunk to chunk and say nothing about the answer.
_NOISE: Final = frozenset({"choices", "usage", "object", "obfuscation"})
_CONCATENATED: Final = ("content", "reasoning_content", "reasoning", "refusal")


class _Choice:
    """One choice while it arrives."""

    def __init__(self) -> None:
        self.texts: dict[str, list[str]] = {}
        self.role: str | None = None
        self.tool_calls: dict[int, Json] = {}
        self.finish_reason: str | None = None
        self.logprobs: Any = None
        self.more: Json = {}


class ChoicesAssembler(Assembler):
    """Assembles the chunks of a stream of choices; ``chat`` tells deltas from plain texts."""

    def __init__(self, *, chat: bool) -> None:
        self._chat = chat
        self._choices: dict[int, _Choice] = {}
        self._top: Json = {}
        self._usage: Json | None = None
        self._why_not: str | None = None
        self._done = False

    def add(self, data: bytes) -> bool:
        """Take the data of one event. Whatever is not understood makes the stream one that is not stored."""
        if data.strip() == _DONE:
            self._done = True
            return False
        if self._done:
            self._refuse("after-done")
            return False
        try:
            chunk = _DECODE(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            chunk = None
        if not isinstance(chunk, dict):
            self._refuse("not-json")
            return False
        if chunk.get("error") is not None:
            self._refuse("error-event")
            return False
        choices = chunk.get("choices")
        if not isinstance(choices, list):
            self._refuse("no-choices")
            return False
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self._usage = usage
        self._add_top(chunk)
        for part in choices:
            self._add_choice(part)
        return not choices and isinstance(usage, dict)

    def finish(self) -> Assembled:
        """Return the reply in its non-streamed form. ``usage`` is null where the stream told none."""
        if self._why_not is None and not self._done:
            self._why_not = "no-done"
        if self._why_not is None and sorted(self._choices) != list(range(len(self._choices))):
            self._why_not = "choice-missing"
        if self._why_not is not None:
            return Assembled(None, self._why_not)
        reply: Json = {"id": "", "object": "chat.completion" if self._chat else "text_completion", "created": 0}
        reply.update(self._top)
        reply["choices"] = [self._whole(index, self._choices[index]) for index in sorted(self._choices)]
        reply["usage"] = self._usage
        return Assembled(reply)

    def _refuse(self, why: str) -> None:
        self._why_not = self._why_not or why

    def _add_top(self, chunk: Json) -> None:
        for key, value in chunk.items():
            if key in _NOISE or value is None:
                continue
            known = self._top.setdefault(key, value)
            if known != value and key not in ("id", "created"):
                self._refuse("changing-field")

    def _add_choice(self, part: object) -> None:
        if not isinstance(part, dict):
            return self._refuse("not-a-choice")
        index = part.get("index", 0)
        if not isinstance(index, int) or isinstance(index, bool):
            return self._refuse("not-a-choice")
        choice = self._choices.setdefault(index, _Choice())
        for key, value in part.items():
            if value is None or key == "index":
                continue
            if key == "delta" and self._chat:
                self._add_delta(choice, value)
            elif key == "text" and not self._chat:
                self._add_text(choice, "text", value)
            elif key == "finish_reason" and isinstance(value, str):
                choice.finish_reason = value
            elif key == "logprobs":
                self._add_logprobs(choice, value)
            elif choice.more.setdefault(key, value) != value:
                self._refuse("changing-field")
        return None

    def _add_delta(self, choice: _Choice, delta: object) -> None:
        if not isinstance(delta, dict):
            return self._refuse("not-a-delta")
        for key, value in delta.items():
            if value is None:
                continue
            if key == "role" and isinstance(value, str):
                choice.role = choice.role or value
            elif key in _CONCATENATED:
                self._add_text(choice, key, value)
            elif key == "tool_calls" and isinstance(value, list):
                for position, call in enumerate(value):
                    self._add_tool_call(choice, position, call)
            else:
                self._refuse("unknown-delta")
        return None

    def _add_text(self, choice: _Choice, key: str, value: object) -> None:
        if isinstance(value, str):
            choice.texts.setdefault(key, []).append(value)
        else:
            self._refuse("not-text")

    def _add_tool_call(self, choice: _Choice, position: int, call: object) -> None:
        if not isinstance(call, dict):
            return self._refuse("not-a-tool-call")
        index = call.get("index")
        index = index if isinstance(index, int) else position
        function = call.get("function") or {}
        if not isinstance(function, dict):
            return self._refuse("not-a-tool-call")
        known = choice.tool_calls.setdefault(index, {"id": None, "type": "function", "function": {"name": None}})
        for key, value in call.items():
            if key in ("index", "function") or value is None:
                continue
            if key == "id" or key == "type":
                known[key] = value
            else:
                self._refuse("unknown-tool-call")
        target = known["function"]
        for key, value in function.items():
            if value is None:
                continue
            if key == "arguments" and isinstance(value, str):
                target["arguments"] = target.get("arguments", "") + value
            elif key == "name" and isinstance(value, str):
                target["name"] = (target["name"] or "") + value
            else:
                self._refuse("unknown-tool-call")
        return None

    def _add_logprobs(self, choice: _Choice, value: object) -> None:
        """Join lists member by member, as both endpoints stream them."""
        if not isinstance(value, dict):
            return self._refuse("not-logprobs")
        known = choice.logprobs = choice.logprobs or {}
        for key, part in value.items():
            if isinstance(part, list):
                known[key] = (known.get(key) or []) + part
            elif part is not None:
                self._refuse("not-logprobs")
            else:
                known.setdefault(key, None)
        return None

    def _whole(self, index: int, choice: _Choice) -> Json:
        texts = {key: "".join(parts) for key, parts in choice.texts.items()}
        whole: Json = {"index": index}
        if self._chat:
            message: Json = {"role": choice.role or "assistant", "content": texts.get("content")}
            calls = [choice.tool_calls[i] for i in sorted(choice.tool_calls)]
            if calls and not message["content"]:
                message["content"] = None
            message.update({key: texts[key] for key in _CONCATENATED if key != "content" and texts.get(key)})
            if calls:
                message["tool_calls"] = calls
            whole["message"] = message
        else:
            whole["text"] = texts.get("text", "")
        whole["logprobs"] = choice.logprobs
        whole["finish_reason"] = choice.finish_reason
        return whole | choice.more


def judge_choices(reply: object, body: Json, *, chat: bool, expected: int | None) -> Verdict:
    """Judge a reply made of choices: every choice finished by itself, said something, and none is missing.

    ``expected`` is the number of choices asked for, ``None`` where it cannot be told.
    """
    if not isinstance(reply, dict):
        return Verdict("not-an-object", shareable=False)
    if reply.get("error") is not None or reply.get("object") == "error":
        return Verdict("error", shareable=False)
    usage = reply.get("usage")
    metadata = reply.get("metadata")
    version = metadata.get("weight_version") if isinstance(metadata, dict) else None
    why_not, text, shareable = _why_not(reply.get("choices"), body, chat=chat, expected=expected)
    return Verdict(
        why_not,
        text=text,
        prompt_tokens=count_of(usage, "prompt_tokens") or 0,
        completion_tokens=count_of(usage, "completion_tokens") or 0,
        cached_tokens=count_of(usage, "prompt_tokens_details", "cached_tokens"),
        weight_version=version if isinstance(version, str) else None,
        shareable=shareable,
    )


def _why_not(choices: object, body: Json, *, chat: bool, expected: int | None) -> tuple[str | None, str, bool]:
    if not isinstance(choices, list) or not choices:
        return "no-choices", "", False
    if expected is not None and len(choices) != expected:
        return "choice-missing", "", False
    texts: list[str] = []
    for index, choice in enumerate(choices):
        if not isinstance(choice, dict) or choice.get("index", index) != index:
            return "not-a-choice", "", False
        finish = choice.get("finish_reason")
        message = choice.get("message") if chat else choice
        if not isinstance(message, dict):
            return "not-a-choice", "", False
        content = message.get("content" if chat else "text")
        calls = message.get("tool_calls") if chat else None
        if finish == "tool_calls" and body.get("tools") and isinstance(calls, list) and calls:
            texts.append(text_of(content))
            continue
        if finish != "stop":
            why = finish if finish in ("length", "content_filter", "abort", "tool_calls") else "unfinished"
            return why, "", finish in ("length", "content_filter", "tool_calls")
        if not isinstance(content, str) or not content.strip():
            return "empty", "", True
        if calls or message.get("refusal") or message.get("audio") or message.get("function_call"):
            return "unusual", "", True
        texts.append(content)
    return None, texts[0], True


def stream_choices(reply: Json, *, chat: bool, include_usage: bool, prefix: str) -> Template:
    """Prepare a stored reply as the stream that it might have been; ends with ``[DONE]``."""
    top = {key: value for key, value in reply.items() if key not in ("choices", "usage")}
    top["id"] = Template.ID
    top["created"] = Template.CREATED
    if chat:
        top["object"] = "chat.completion.chunk"
    # Every chunk begins and ends the same: write those bytes once.
    head, _, tail = _ENCODE(top | {"choices": []} | ({"usage": None} if include_usage else {})).rpartition(b"[]")
    out: list[bytes] = []
    for index, choice in enumerate(reply.get("choices") or []):
        for part in _parts(index, choice, chat=chat):
            out += (b"data: ", head, b"[", _ENCODE(part), b"]", tail, b"\n\n")
    if include_usage:
        out += (b"data: ", _ENCODE(top | {"choices": [], "usage": reply.get("usage")}), b"\n\n")
    out.append(b"data: [DONE]\n\n")
    return Template.of(b"".join(out), prefix)


def _parts(index: int, choice: Json, *, chat: bool) -> Iterator[Json]:
    more = {k: v for k, v in choice.items() if k not in ("index", "message", "text", "logprobs", "finish_reason")}
    quiet = dict.fromkeys(more)  # what belongs to the end is null before it
    logprobs = choice.get("logprobs")

    def part(piece: object, *, logprobs: object = None, finish: object = None) -> Json:
        extra = quiet if finish is None else more
        return {
            "index": index,
            "delta" if chat else "text": piece,
            "logprobs": logprobs,
            "finish_reason": finish,
        } | extra

    finish = choice.get("finish_reason")
    if not chat:
        text = text_of(choice.get("text"))
        # Log-probabilities belong to tokens, and where tokens end is not known here: one piece keeps them together.
        for piece in [text] if logprobs is not None else natural_pieces(text):
            yield part(piece, logprobs=logprobs)
        yield part("", finish=finish)
        return
    message = choice.get("message") or {}
    yield part({"role": message.get("role") or "assistant", "content": ""})
    for key in ("reasoning_content", "reasoning"):
        for piece in natural_pieces(text_of(message.get(key))):
            yield part({key: piece})
    content = text_of(message.get("content"))
    for piece in [content] if logprobs is not None else natural_pieces(content):
        yield part({"content": piece}, logprobs=logprobs)
    rest = {
        key: value
        for key, value in message.items()
        if key not in ("role", "content", "reasoning_content", "reasoning", "tool_calls") and value is not None
    }
    if rest:
        yield part(rest)
    for number, call in enumerate(message.get("tool_calls") or []):
        yield part({"tool_calls": [{**call, "index": number}]})
    yield part({}, finish=finish)
