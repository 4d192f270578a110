"""The request's ``Cache-Control`` (RFC 9111 §5.2.1): what a caller may ask of the cache.

Only directives that make matching stricter have an effect; ``max-stale`` is ignored, and so is anything malformed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["NOTHING_ASKED", "Directives", "parse", "ttl_seconds"]

# RFC 9110 §5.6.2 and §5.6.4: token [ "=" ( token / quoted-string ) ]
_DIRECTIVE: Final = re.compile(
    r"""[ \t]*([!#$%&'*+.^_`|~0-9A-Za-z-]+)(?:=(?:"((?:[^"\\]|\\.)*)"|([!#$%&'*+.^_`|~0-9A-Za-z-]+)))?[ \t]*(?:,|$)"""
)
_LONGEST: Final = 1 << 31  # RFC 9111 §1.2.2: what a delta-seconds that is too large stands for


@dataclass(frozen=True, slots=True)
class Directives:
    """What the caller asked for."""

    no_cache: bool = False  # a fresh answer, which then replaces the stored one
    no_store: bool = False  # neither looked up nor stored
    only_if_cached: bool = False  # 504 instead of a call to the backend
    max_age_s: int | None = None  # no answer older than this


NOTHING_ASKED: Final = Directives()


def parse(values: list[str], pragma: str | None = None) -> Directives:
    """Read the values of all ``Cache-Control`` lines of a request (and ``Pragma``, used only where there is none).

    Of several ``max-age`` the smallest counts. ``min-fresh`` above 0 asks for a remaining lifetime that is not known
    here, so it is answered as ``no-cache`` is: stricter, never looser.
    """
    if not values:
        if pragma is not None and "no-cache" in pragma.lower():  # RFC 9111 §5.4
            return Directives(no_cache=True)
        return NOTHING_ASKED
    no_cache = no_store = only_if_cached = False
    max_age: int | None = None
    for name, argument in _directives(",".join(values)):
        if name == "no-cache":
            no_cache = True
        elif name == "no-store":
            no_store = True
        elif name == "only-if-cached":
            only_if_cached = True
        elif name == "max-age":
            seconds = _delta_seconds(argument)
            if seconds is not None:
                max_age = seconds if max_age is None else min(max_age, seconds)
        elif name == "min-fresh" and _delta_seconds(argument):
            no_cache = True
    return Directives(no_cache, no_store, only_if_cached, max_age)


def ttl_seconds(value: str | None) -> float | None:
    """Read ``X-Antiphon-TTL``: a number of seconds, 0 or more; anything else counts as not sent."""
    if value is None or re.fullmatch(r"\d{1,12}(?:\.\d{1,9})?", value.strip(), re.ASCII) is None:
        return None
    return float(value)


def _directives(text: str) -> list[tuple[str, str | None]]:
    found: list[tuple[str, str | None]] = []
    position = 0
    while position < len(text):
        match = _DIRECTIVE.match(text, position)
        if match is None:  # skip what cannot be read, up to the next comma
            comma = text.find(",", position)
            if comma < 0:
                break
            position = comma + 1
            continue
        name, quoted, token = match.groups()
        argument = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else token
        found.append((name.lower(), argument))
        position = match.end()
    return found


def _delta_seconds(argument: str | None) -> int | None:
    if argument is None or not (argument.isascii() and argument.isdigit()):
        return None
    return int(argument) if len(argument) <= 10 else _LONGEST
