"""One chain, asked over HTTP: when the first piece of an answer came and when the last, what it cost, from where."""

from __future__ import annotations

import time
from typing import Any, Final

import httpx
import msgspec

__all__ = ["Chain", "Reply"]

_DECODE: Final = msgspec.json.Decoder().decode
_MOST_BYTES: Final = 8 << 20


class Reply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a chain said. Times in seconds from sending the request; None where nothing came."""

    text: str = ""
    error: str = ""
    """Why there is no answer, in a few words."""
    first: float | None = None
    last: float | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reuse: str = ""
    reason: str = ""
    confidence: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether there is an answer."""
        return not self.error


class Chain:
    """A chat endpoint. `ask` never raises for what a server may do."""

    def __init__(self, name: str, url: str, *, key: str | None, timeout_s: float) -> None:
        self.name = name
        self.url = url.rstrip("/").removesuffix("/v1")
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(timeout_s, connect=10.0),
            limits=httpx.Limits(max_connections=256),
            headers={} if key is None else {"Authorization": f"Bearer {key}"},
            trust_env=False,
        )

    async def ask(self, body: dict[str, Any], headers: dict[str, str]) -> Reply:
        """Ask for a streamed answer with its usage."""
        asked = {**body, "stream": True, "stream_options": {"include_usage": True}}
        began = time.perf_counter()
        first: float | None = None
        parts: list[str] = []
        usage: dict[str, Any] = {}
        size = 0
        done = False
        try:
            async with self._client.stream(
                "POST", f"{self.url}/v1/chat/completions", content=msgspec.json.encode(asked),
                headers={"Content-Type": "application/json", **headers},
            ) as answer:  # fmt: skip
                if answer.status_code != 200:
                    return Reply(error=f"status {answer.status_code}", last=time.perf_counter() - began)
                async for line in answer.aiter_lines():
                    size += len(line)
                    if size > _MOST_BYTES:
                        return Reply(error="longer than 8 MiB", last=time.perf_counter() - began)
                    if not line.startswith("data:"):
                        continue
                    data = line[5:].strip()
                    if data == "[DONE]":
                        done = True
                        break
                    chunk = _DECODE(data.encode())
                    usage = chunk.get("usage") or usage
                    for choice in chunk.get("choices") or ():
                        piece = (choice.get("delta") or {}).get("content")
                        if piece:
                            first = first if first is not None else time.perf_counter() - began
                            parts.append(piece)
                last = time.perf_counter() - began
                told = answer.headers
        except httpx.HTTPError as error:
            return Reply(error=type(error).__name__, last=time.perf_counter() - began)
        except (msgspec.MsgspecError, UnicodeDecodeError, AttributeError):
            return Reply(error="not a stream of chat completions", last=time.perf_counter() - began)
        if not done:
            return Reply(error="cut off", last=last)
        details = usage.get("prompt_tokens_details") or {}
        return Reply(
            text="".join(parts),
            first=first,
            last=last,
            prompt_tokens=int(usage.get("prompt_tokens") or 0),
            completion_tokens=int(usage.get("completion_tokens") or 0),
            cached_tokens=int(details.get("cached_tokens") or 0),
            reuse=told.get("x-antiphon-reuse", ""),
            reason=told.get("x-antiphon-reason", ""),
            confidence=_number(told.get("x-antiphon-confidence")),
        )

    async def reachable(self) -> str:
        """Why the chain cannot be asked, in a few words; empty where it can."""
        try:
            answer = await self._client.get(f"{self.url}/v1/models")
        except httpx.HTTPError as error:
            return f"{self.url} cannot be reached ({type(error).__name__})"
        return "" if answer.status_code < 500 else f"{self.url} answers {answer.status_code}"

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def _number(text: str | None) -> float:
    try:
        return float(text or 0.0)
    except ValueError:
        return 0.0
