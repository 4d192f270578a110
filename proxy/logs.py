"""Logging: lines for people or JSON for machines, on standard error.

No message of a conversation is ever logged and no secret: log calls in this project pass an event name and values
that are sizes, times, names and ids. As a second line of defence, what looks like a bearer token or a password in a
URL is masked in every line, also in those of libraries.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any, TextIO

from proxy.settings import LoggingSettings
from store.stages import observer

__all__ = ["AccessLog", "configure", "event", "mask"]

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

access = logging.getLogger("antiphon.access")
_TOLD = {b"x-antiphon-reuse": "reuse", b"x-antiphon-reason": "reason", b"x-antiphon-entry": "entry"}

_SECRETS = re.compile(
    r"""(?ix) (?P<bearer> \b (?:bearer|basic) \s+ ) [\w\-.~+/=]{4,}
      | (?P<key> \b sk- ) [\w\-]{8,}
      | (?P<query> [?&] (?: api[-_]?key | key | token | access_token ) = ) [^&\s"]+
      | (?P<url> ://[^:/@\s]* : ) [^@/\s]+ (?=@)"""
)


def mask(text: str) -> str:
    """Replace bearer tokens, API keys of the ``sk-…`` form, keys in queries and passwords in URLs by ``********``."""
    return _SECRETS.sub(lambda m: f"{m['bearer'] or m['key'] or m['query'] or m['url']}********", text)


def event(logger: logging.Logger, level: int, name: str, /, *, exc_info: bool = False, **values: Any) -> None:
    """Log one event with named values, which both formats print. Never pass texts of a conversation."""
    if logger.isEnabledFor(level):
        logger.log(level, name, exc_info=exc_info, extra={"antiphon": values})


class AccessLog:
    """One line a request: what was asked for, what came of it, how long it took. Never a query string or a text."""

    def sending(self, scope: MutableMapping[str, Any], send: Send) -> Send:
        """The same ``send``; the line is written with the last byte."""
        began = time.perf_counter()
        client = scope.get("client")
        told: dict[str, Any] = {"method": scope["method"], "path": scope["path"], "client": client[0] if client else ""}

        async def noting(message: MutableMapping[str, Any]) -> None:
            await send(message)
            if message["type"] == "http.response.start":
                told["status"] = message["status"]
                for name, value in message["headers"]:
                    if name in _TOLD:
                        told[_TOLD[name]] = value.decode("latin-1")
            elif not message.get("more_body", False):
                access.info("request", extra={"antiphon": told | {"seconds": round(time.perf_counter() - began, 4)}})

        return noting


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        values = "".join(f" {key}={_word(value)}" for key, value in _values(record).items())
        line = f"{moment} {record.levelname.lower():7} {record.getMessage()}{values}"
        if record.exc_info and record.exc_info[0] is not None:
            line += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
        return mask(line)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": mask(record.getMessage()),
        }
        watcher = observer()
        if (trace_id := getattr(watcher, "trace_id", None)) is not None:
            line["trace_id"] = trace_id
        for key, value in _values(record).items():
            line.setdefault(key, mask(value) if isinstance(value, str) else value)
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = mask("".join(traceback.format_exception(*record.exc_info)))
        return json.dumps(line, ensure_ascii=False, default=str)


def _values(record: logging.LogRecord) -> Mapping[str, Any]:
    values = getattr(record, "antiphon", None)
    return values if isinstance(values, Mapping) else {}


def _word(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return json.dumps(text, ensure_ascii=False) if re.search(r"[\s\"=]", text) or not text else text


def configure(settings: LoggingSettings, stream: TextIO | None = None) -> None:
    """Send all logging of the process to ``stream`` (default: standard error) in the configured form."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(_Json() if settings.format == "json" else _Text())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    # Libraries say little of use below a warning, and httpx would log every URL it calls.
    for name in ("httpx", "httpcore", "uvicorn", "uvicorn.error", "alembic", "sqlalchemy", "asyncio", "faiss"):
        library = logging.getLogger(name)
        library.handlers.clear()
        library.propagate = True
        library.setLevel(logging.WARNING if settings.level != "error" else logging.ERROR)
    access.handlers[:] = [handler]  # whatever the level of everything else
    access.propagate = False
    access.disabled = not settings.access
    access.setLevel(logging.INFO)
