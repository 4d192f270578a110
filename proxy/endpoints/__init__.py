"""The endpoints whose turns are understood, by path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from proxy.endpoints.base import Assembled, Assembler, Endpoint, Json, Template, Verdict
from proxy.endpoints.chat import ChatCompletions
from proxy.endpoints.completions import Completions
from proxy.endpoints.messages import Messages
from proxy.endpoints.responses import Responses

__all__ = ["ENDPOINTS", "Assembled", "Assembler", "Endpoint", "Json", "Template", "Verdict"]

ENDPOINTS: Final[Mapping[str, Endpoint]] = {
    endpoint.path: endpoint for endpoint in (ChatCompletions(), Completions(), Responses(), Messages())
}
