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
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

from proxy.settings import LoggingSettings

__all__ = ["configure", "event", "mask"]

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
    access = logging.getLogger("uvicorn.access")
    access.handlers.clear()
    access.propagate = True
    access.disabled = not settings.access
    access.setLevel(logging.INFO)
    if settings.access and settings.level in ("warning", "error"):
        access.addHandler(handler)
        access.propagate = False
