"""The key under which a question is found in the same words but for a courtesy (`fingerprint.plain`).

At one place of a conversation such turns are the same: no vector is made and no model asked. The key does not hold the
place, for a question may be asked at many: whoever looks an entry up by it compares the node too.
"""

from __future__ import annotations

from fingerprint.conversation import Turn
from fingerprint.keys import canonical, dated_key, digest
from fingerprint.plain import is_material, minds_courtesies, plain

__all__ = ["plain_key"]


def plain_key(turn: Turn, partition: bytes, identity: bytes, dates: str) -> bytes | None:
    """Return the key, 32 bytes; None where the message is not to be found in this way."""
    if turn.message.opaque:
        return None
    if any(message.opaque or minds_courtesies(message.text) for message in turn.system):
        return None
    last = next((m for m in reversed(turn.history) if m.role == "assistant"), None)
    if last is not None and is_material(last.text, reply=True):
        return None
    if any(is_material(m.text, reply=False) for m in turn.history if m.role != "assistant"):
        return None
    text = plain(turn.message.text)
    if text is None:
        return None
    return dated_key(digest("plain", canonical((partition, identity, turn.message.role, text))), dates)
