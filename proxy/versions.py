"""Watches which model, weights and tokenizer the backend serves; a change makes every older answer unreachable."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from proxy.errors import UpstreamError
from proxy.settings import UpstreamSettings
from proxy.upstream import Upstream

__all__ = ["UNKNOWN", "Version", "VersionWatcher"]

log = logging.getLogger(__name__)

_PATHS: Final = (b"/model_info", b"/get_model_info")  # newer and older SGLang
_ABSENT: Final = frozenset({404, 405, 410, 501})
_PATIENCE_S: Final = 3.0
_GATHERING_S: Final = 0.03
_LONGEST_REPLY: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Version:
    """What the backend serves, as the identity of an answer sees it. Strings, empty where not known."""

    weights: str = ""  # operator's version, weights version, model path
    tokenizer: str = ""
    reported: str | None = None  # the backend's own ``weight_version``
    model_path: str = ""


UNKNOWN: Final = Version()


class VersionWatcher:
    """Knows the backend's version; asks again at intervals, and at once when a reply hints at another one."""

    def __init__(
        self,
        upstream: Upstream,
        settings: UpstreamSettings,
        *,
        on_error: Callable[[], None] = lambda: None,
        on_change: Callable[[Version, Version], None] = lambda old, new: None,
    ) -> None:
        self._upstream = upstream
        self._interval_s = settings.version_interval_s
        self._operators = settings.version
        self._on_error = on_error
        self._on_change = on_change
        self._current = self._version(None, "", "")
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[bool] | None = None
        self.sglang: bool | None = None  # whether the backend has SGLang's endpoints; None: not known yet

    @property
    def current(self) -> Version:
        """The version as last seen."""
        return self._current

    async def start(self, patience_s: float = 5.0) -> None:
        """Look once, waiting a moment at most, then keep watching."""
        if self._interval_s <= 0:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self.refresh()
        self._task = asyncio.create_task(self._watch(), name="antiphon-versions")

    async def stop(self) -> None:
        """Stop watching."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def refresh(self) -> bool:
        """Ask the backend now; return whether it told (or is known to have nothing to tell)."""
        for path in _PATHS:
            target = self._upstream.target(path)
            assert target is not None
            try:
                reply = await self._upstream.open("GET", target, [], timeout_s=_PATIENCE_S)
            except UpstreamError:
                return False
            body = b""
            try:
                async for chunk in reply:
                    body += chunk
                    if len(body) > _LONGEST_REPLY:
                        return False
            except UpstreamError:
                return False
            finally:
                await reply.aclose()
            if reply.status == 200:
                return self._take(body)
            if reply.status not in _ABSENT:  # 401, 403, 503: there, but not telling
                return False
        self.sglang = False
        return True

    def observed(self, weight_version: str) -> None:
        """Take note of the version a reply says it came from."""
        if weight_version == self._current.reported:
            return
        if self._interval_s <= 0 or self.sglang is not True:  # nobody else to ask
            self._set(self._version(weight_version, self._current.model_path, self._current.tokenizer))
        else:
            self._hurry.set()

    def version_of(self, weight_version: str) -> Version:
        """Return the version under which an answer that names its ``weight_version`` belongs."""
        current = self._current
        if weight_version == current.reported:
            return current
        return self._version(weight_version, current.model_path, current.tokenizer)

    async def unchanged(self, since: Version) -> bool:
        """Whether the backend still serves ``since``: asked after an answer that does not say where it came from."""
        if self._current != since:
            return False
        if self._interval_s <= 0 or self.sglang is not True:
            return True
        # Streams that end close together share one question, which is asked after the last of them has ended.
        if self._checking is None:
            self._checking = asyncio.create_task(self._check_soon(), name="antiphon-version-check")
        return await asyncio.shield(self._checking) and self._current == since

    async def _check_soon(self) -> bool:
        await asyncio.sleep(_GATHERING_S)
        self._checking = None
        return await self.refresh()

    async def _watch(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval_s):
                    await self._hurry.wait()
            self._hurry.clear()
            try:
                await self.refresh()
            except Exception:
                self._on_error()
                log.exception("the backend's version could not be read")

    def _take(self, body: bytes) -> bool:
        try:
            info = msgspec.json.decode(body)
        except msgspec.DecodeError:
            info = None
        if not isinstance(info, dict):
            self.sglang = False
            return True
        self.sglang = "model_path" in info or "weight_version" in info
        weight, path, tokenizer = (info.get(name) for name in ("weight_version", "model_path", "tokenizer_path"))
        self._set(
            self._version(
                weight if isinstance(weight, str) else None,
                path if isinstance(path, str) else "",
                tokenizer if isinstance(tokenizer, str) else "",
            )
        )
        return True

    def _set(self, version: Version) -> None:
        if version != self._current:
            log.info("the backend serves version %s", version.weights or "(unknown)")
            old, self._current = self._current, version
            self._on_change(old, version)

    def _version(self, reported: str | None, model_path: str, tokenizer: str) -> Version:
        told = f"{reported or ''}@{model_path}" if reported or model_path else ""
        weights = "+".join(part for part in (self._operators, told) if part)
        return Version(weights or "unknown", tokenizer, reported, model_path)
