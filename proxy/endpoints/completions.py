"""``/v1/completions``: exact repeats only."""

from __future__ import annotations

from fingerprint.conversation import Message, Turn
from fingerprint.errors import NotUnderstood
from fingerprint.keys import canonical
from fingerprint.text import normalise
from proxy.endpoints.base import Assembler, Endpoint, Json, Template, Verdict
from proxy.endpoints.choices import ChoicesAssembler, judge_choices, stream_choices

__all__ = ["Completions"]


class Completions(Endpoint):
    """OpenAI's text completions."""

    name = "completions"
    path = "/v1/completions"
    salted = True
    id_prefix = "cmpl-"

    def read(self, body: Json) -> Turn:
        """Read ``prompt``: a text, or anything else as an opaque whole."""
        prompt = body.get("prompt")
        if isinstance(prompt, str):
            return Turn((), (), Message("user", normalise(prompt)))
        if isinstance(prompt, list) and prompt:
            return Turn((), (), Message("user", "", canonical(prompt)))
        raise NotUnderstood("the prompt is neither a text nor a list")

    def bypass(self, body: Json) -> str | None:
        """State at the backend, and several prompts at once."""
        if body.get("session_params"):
            return "stateful"
        if body.get("return_hidden_states") or body.get("input_embeds"):
            return "internals"
        n = body.get("n")
        if n is not None and (type(n) is not int or not 1 <= n <= 128):
            return "not-understood"
        prompt = body.get("prompt")
        if isinstance(prompt, list) and not all(type(item) is int for item in prompt):
            return "several-prompts"
        return None

    def streams(self) -> bool:
        """Yes."""
        return True

    def assembler(self) -> Assembler:
        """Plain texts."""
        return ChoicesAssembler(chat=False)

    def judge(self, reply: object, body: Json) -> Verdict:
        """Judge every choice."""
        return judge_choices(reply, body, chat=False, expected=body.get("n") or 1)

    def as_stream(self, reply: Json, *, include_usage: bool) -> Template:
        """Texts, then the finish reason."""
        return stream_choices(reply, chat=False, include_usage=include_usage, prefix=self.id_prefix)
