"""Messages and turns as plain values, whatever endpoint they came through."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Message", "Turn"]


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation.

    ``text`` is the message's text: a string content as it stands, a list of text parts joined by ``"\\n"``; in Unicode
    NFC, otherwise untouched. ``opaque`` is the injective encoding (``keys.canonical``) of everything in the message
    that is neither its role nor its text (tool calls, images, audio, ``name``, ``tool_call_id``, …); empty where
    there is none. A list of one text part and the same plain string are the same message.
    """

    role: str
    text: str
    opaque: bytes = b""


@dataclass(frozen=True, slots=True)
class Turn:
    """One user message with the conversation before it.

    ``system`` holds the leading system and developer messages, ``history`` what lies between them and ``message``,
    the last message of the conversation. Later system messages stay in ``history``.
    """

    system: tuple[Message, ...]
    history: tuple[Message, ...]
    message: Message

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole conversation in order."""
        return (*self.system, *self.history, self.message)
