"""Content codings of replies (RFC 9110 §8.4.1): the backend is asked for none, and may send one all the same."""

from __future__ import annotations

import zlib
from typing import Final

__all__ = ["can_decode", "decoded"]

_PLAIN: Final = frozenset({b"", b"identity"})
_GZIP: Final = frozenset({b"gzip", b"x-gzip"})
_DEFLATE: Final = b"deflate"


def can_decode(coding: bytes, *, streamed: bool) -> bool:
    """Whether a reply in this coding (lower case) can be read; of a stream only one in none, event by event."""
    return coding in _PLAIN or (not streamed and (coding in _GZIP or coding == _DEFLATE))


def decoded(data: bytes, coding: bytes, most: int) -> bytes | None:
    """Return the plain bytes of a whole body; ``None`` where it is damaged, cut short or over ``most`` bytes."""
    if coding in _PLAIN:
        return data
    # "deflate" is the zlib format; some send it without its header.
    windows = (16 + zlib.MAX_WBITS,) if coding in _GZIP else (zlib.MAX_WBITS, -zlib.MAX_WBITS)
    for window in windows:
        reader = zlib.decompressobj(window)
        try:
            plain = reader.decompress(data, most)
        except zlib.error:
            continue
        return plain if reader.eof and not reader.unused_data else None
    return None
