"""``/v1/chat/completions``."""

from __future__ import annotations

from typing import Final

from fingerprint.chat import turn_from_messages
from fingerprint.conversation import Turn
from proxy.endpoints.base import Assembler, Endpoint, Json, Template, Verdict
from proxy.endpoints.choices import ChoicesAssembler, judge_choices, stream_choices

__all__ = ["ChatCompletions"]

# The answer depends on state at the backend, on the live web, or carries what a replay cannot give.
_STATEFUL: Final = ("session_params", "previous_response_id", "conversation", "background", "web_search_options")
_OPAQUE: Final = ("input_ids", "input_embeds", "return_hidden_states", "return_routed_experts", "return_meta_info")
# The reply has a form that was asked for in detail: only the very same request may share it.
_FORMED: Final = (
    "tools", "functions", "tool_choice", "function_call", "logprobs", "top_logprobs", "response_format", "regex",
    "ebnf", "json_schema", "structural_tag", "structured_outputs", "guided_json", "guided_regex", "guided_choice",
    "guided_grammar", "guided_decoding_backend", "modalities", "audio", "prediction", "continue_final_message",
    "custom_logit_processor", "custom_params",
)  # fmt: skip


class ChatCompletions(Endpoint):
    """OpenAI's chat completions, as SGLang serves them."""

    name = "chat.completions"
    path = "/v1/chat/completions"
    salted = True
    rewordable = True
    id_prefix = "chatcmpl-"

    def read(self, body: Json) -> Turn:
        """Read ``messages``."""
        return turn_from_messages(body.get("messages"))

    def bypass(self, body: Json) -> str | None:
        """State at the backend, token ids instead of text, and shapes that are not what the API says."""
        for name in _STATEFUL:
            if body.get(name):
                return "stateful"
        for name in _OPAQUE:
            if body.get(name):
                return "opaque-input" if name.startswith("input") else "internals"
        if _choices_asked(body) is None:
            return "not-understood"
        return None

    def exact_only(self, body: Json, turn: Turn) -> bool:
        """Whether tools, parts that are no text, a form, or several choices are involved."""
        if turn.message.role != "user" or _choices_asked(body) != 1:
            return True
        if any(body.get(name) for name in _FORMED if name != "response_format"):
            return True
        form = body.get("response_format")
        if form is not None and form != {"type": "text"}:
            return True
        return any(message.opaque or message.role in ("tool", "function") for message in turn.messages)

    def streams(self) -> bool:
        """Yes."""
        return True

    def assembler(self) -> Assembler:
        """Deltas."""
        return ChoicesAssembler(chat=True)

    def judge(self, reply: object, body: Json) -> Verdict:
        """Judge every choice."""
        return judge_choices(reply, body, chat=True, expected=_choices_asked(body))

    def as_stream(self, reply: Json, *, include_usage: bool) -> Template:
        """Role first, then reasoning, content, tool calls, finish reason."""
        return stream_choices(reply, chat=True, include_usage=include_usage, prefix=self.id_prefix)


def _choices_asked(body: Json) -> int | None:
    n = body.get("n")
    if n is None:
        return 1
    return n if type(n) is int and 1 <= n <= 128 else None
