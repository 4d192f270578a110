"""The usage of a reply that is passed through unread: found in its last bytes."""

from __future__ import annotations

import json
import re
from typing import Final

from proxy.endpoints.base import count_of

__all__ = ["UsageTap"]

_TAIL: Final = 64 * 1024
# Inside of a text its quotes would be escaped.
_USAGE: Final = re.compile(rb'(?<!\\)"usage"\s*:\s*(?=\{)')
_READ: Final = json.JSONDecoder().raw_decode


class UsageTap:
    """Sees the bytes of a reply as they pass."""

    def __init__(self) -> None:
        self._tail = b""

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self._tail = (self._tail + data)[-_TAIL:]

    def tokens(self) -> tuple[int, int | None] | None:
        """Return prompt tokens and cached tokens (``None`` where the backend does not tell); ``None``: no usage."""
        for match in reversed(list(_USAGE.finditer(self._tail))):
            try:
                usage, _ = _READ(self._tail[match.end() :].decode("utf-8", "replace"))
            except (ValueError, RecursionError):
                continue
            prompt = count_of(usage, "prompt_tokens")
            if prompt is not None:
                return prompt, count_of(usage, "prompt_tokens_details", "cached_tokens")
        return None
