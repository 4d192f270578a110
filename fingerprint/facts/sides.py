"""One turn with the facts of its messages, as the rules read it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from fingerprint.conversation import Turn
from fingerprint.facts.extract import Facts, Token, facts_of, is_slip

__all__ = ["Side", "side_of"]

_MESSAGES = 40  # how far back a conversation is read


@dataclass(frozen=True)
class Side:
    """``last``: the message that asks; ``history``: role and facts of what was said before, oldest first."""

    last: Facts
    history: tuple[tuple[str, Facts], ...]

    @cached_property
    def messages(self) -> tuple[Facts, ...]:
        """The last message, then what was said before it, oldest first."""
        return self.last, *(facts for _, facts in self.history)

    @cached_property
    def everything(self) -> str:
        """All messages folded, to look for a counterpart in."""
        return f" {' '.join(facts.folded for _, facts in self.history)} {self.last.folded} "

    @cached_property
    def squeezed(self) -> str:
        """The letters and digits of the whole conversation, folded."""
        return "".join([*(facts.squeezed for _, facts in self.history), self.last.squeezed])

    @cached_property
    def words(self) -> frozenset[str]:
        """Every word of the conversation, as written (folded) and as stem."""
        return frozenset().union(*[facts.words for facts in self.messages])

    @cached_property
    def persons(self) -> frozenset[str]:
        """Everybody the conversation is about."""
        return frozenset().union(*[facts.persons for facts in self.messages])

    @cached_property
    def names(self) -> frozenset[str]:
        """Every capitalised name of the conversation, folded."""
        return frozenset().union(*[facts.names for facts in self.messages])

    def has_word(self, token: Token) -> bool:
        """Whether the conversation holds the word or an inflection of it."""
        return token.stem in self.words or token.low in self.words

    def has_name(self, name: str) -> bool:
        """Whether the conversation holds the name, a spelling slip of it, or a word it begins with."""
        if self.says(name) or name in self.squeezed:
            return True
        if name in self.words or any(is_slip(name, other, names=True) for other in self.names):
            return True
        return any(
            is_slip(name, word, names=False)
            for word in self.words
            if word[:1] == name[:1] and abs(len(word) - len(name)) <= 2 and word not in self.names
        )

    @cached_property
    def solid(self) -> str:
        """All messages in lower case without spaces, every sign kept."""
        return "\n".join([facts.solid for facts in self.messages])

    @cached_property
    def numbers(self) -> frozenset[float]:
        """Every number of the conversation, as written and in base units."""
        found = [q for facts in self.messages for q in facts.numbers]
        return frozenset(q.value for q in found) | frozenset(q.written for q in found)

    @cached_property
    def times(self) -> frozenset[str]:
        """Every date and time of the conversation."""
        return frozenset(t for facts in self.messages for t in facts.times)

    @cached_property
    def offer(self) -> Facts | None:
        """The assistant message that the last message answers."""
        return next((facts for role, facts in reversed(self.history) if role == "assistant"), None)

    def says(self, value: str) -> bool:
        """Whether the folded ``value`` stands anywhere in the conversation."""
        if value.isascii():
            return f" {value} " in self.everything
        return value.replace(" ", "") in self.squeezed


def side_of(turn: Turn) -> Side:
    """The facts of a turn's last messages."""
    return _side(turn.message.text, tuple((m.role, m.text) for m in turn.history[-_MESSAGES:] if m.text))


@lru_cache(maxsize=256)  # one turn is compared with several candidates
def _side(last: str, history: tuple[tuple[str, str], ...]) -> Side:
    return Side(facts_of(last), tuple((role, facts_of(text)) for role, text in history))
