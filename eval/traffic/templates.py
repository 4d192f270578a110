"""A prompt as the backend saw it → the messages it was made from, for the chat templates in common use."""

from __future__ import annotations

import re
from typing import Any, Final

from eval.traffic.errors import BadRow

__all__ = ["messages_from_prompt"]

_ROLES: Final = {"system", "user", "assistant", "tool", "developer"}
_TEMPLATES: Final = (
    # ChatML: Qwen, SmolLM, Yi, …
    re.compile(r"<\|im_start\|>(?P<role>\w+)\n(?P<text>.*?)(?:<\|im_end\|>\n?|\Z)", re.DOTALL),
    # Llama 3
    re.compile(r"<\|start_header_id\|>(?P<role>\w+)<\|end_header_id\|>\n\n(?P<text>.*?)(?:<\|eot_id\|>|\Z)", re.DOTALL),
    # Llama 4
    re.compile(r"<\|header_start\|>(?P<role>\w+)<\|header_end\|>\n\n(?P<text>.*?)(?:<\|eot\|>|\Z)", re.DOTALL),
    # Gemma, where the assistant is called "model"
    re.compile(r"<start_of_turn>(?P<role>\w+)\n(?P<text>.*?)(?:<end_of_turn>\n?|\Z)", re.DOTALL),
    # Phi
    re.compile(r"<\|(?P<role>system|user|assistant)\|>\n?(?P<text>.*?)(?:<\|end\|>\n?|\Z)", re.DOTALL),
    # DeepSeek
    re.compile(r"<｜(?P<role>User|Assistant)｜>(?P<text>.*?)(?=<｜|\Z)", re.DOTALL),
)
_DEEPSEEK_SYSTEM: Final = re.compile(r"<｜begin▁of▁sentence｜>(?P<text>[^<]+)")
_INST: Final = re.compile(
    r"\[INST\]\s*(?:<<SYS>>\n(?P<system>.*?)\n<</SYS>>\s*)?(?P<user>.*?)\s*\[/INST\](?P<said>.*?)(?=</s>|\[INST\]|\Z)",
    re.DOTALL,
)


def messages_from_prompt(prompt: str) -> list[dict[str, Any]]:
    """Return the messages of a rendered prompt; a prompt in no known template is one user message.

    Raises `BadRow` for an empty prompt, or one that ends in nothing a user said.
    """
    if not prompt.strip():
        raise BadRow("the prompt is empty")
    for template in _TEMPLATES:
        found = [_message(match["role"], match["text"]) for match in template.finditer(prompt)]
        if not found:
            continue
        system = _DEEPSEEK_SYSTEM.match(prompt.lstrip())
        if system is not None and "<｜User｜>" in prompt:
            found.insert(0, {"role": "system", "content": system["text"].strip()})
        return _ending(found)
    turns: list[dict[str, Any]] = []
    for match in _INST.finditer(prompt):
        if match["system"]:
            turns.append({"role": "system", "content": match["system"].strip()})
        turns.append({"role": "user", "content": match["user"]})
        if match["said"].strip():
            turns.append({"role": "assistant", "content": match["said"].strip()})
    return _ending(turns) if turns else [{"role": "user", "content": prompt}]


def _message(role: str, text: str) -> dict[str, Any]:
    low = "assistant" if role == "model" else role.lower()
    return {"role": low if low in _ROLES else "user", "content": text.strip()}


def _ending(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Drop the opening of the answer that was to be written."""
    while messages and messages[-1]["role"] == "assistant":
        messages.pop()
    if not messages:
        raise BadRow("nobody asked anything in this prompt")
    return messages
