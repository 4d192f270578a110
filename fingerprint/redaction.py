"""Personal data and secrets out of a text: e-mail addresses, phone numbers, payment cards, keys and passwords.

What is found is replaced by its kind and a keyed digest (``[email 4f1c09]``): the same value by the same word, so that
conversations still mean what they meant and two numbers are still two; without the key nobody can tell which value it
was. Linear in the length of the text. Names and addresses are not found: no pattern tells them from other words.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final

from fingerprint.text import utf8

__all__ = ["KINDS", "Redactor"]

_SEPARATED: Final = r"[ .\-\u00a0\u2011]"  # between groups of digits
# Every quantifier is bounded, and what may follow it is another character: no text makes a search go back far.
_PATTERNS: Final[tuple[tuple[str, str], ...]] = (
    (
        "key",
        r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[A-Za-z0-9+/=\s\\]{0,8000}(?:-----END [A-Z ]{0,30}PRIVATE KEY-----)?"
        r"|\beyJ[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{8,2000}"  # JSON Web Token
        r"|\b(?:sk|pk|rk)[-_](?:[a-z]{2,10}[-_])?[A-Za-z0-9_-]{16,200}"  # OpenAI, Anthropic, Stripe, …
        r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"  # AWS
        r"|\bgh[pousr]_[A-Za-z0-9]{30,255}|\bgithub_pat_[A-Za-z0-9_]{22,255}|\bglpat-[A-Za-z0-9_-]{16,64}"
        r"|\bxox[abeoprs]-[A-Za-z0-9-]{10,250}"  # Slack
        r"|\bAIza[0-9A-Za-z_-]{35}|\bya29\.[0-9A-Za-z_-]{20,500}"  # Google
        r"|\bhf_[A-Za-z0-9]{20,64}|\bnpm_[A-Za-z0-9]{36}\b",
    ),
    ("email", r"(?<![\w.+%-])[\w.+%-]{1,64}@(?:[\w-]{1,63}\.){1,8}[A-Za-z\u00a1-\uffff]{2,24}(?![\w-])"),
    ("card", rf"(?<![\d.,])\d(?:{_SEPARATED}?\d){{12,18}}(?![\d])"),
    (
        "phone",
        rf"(?<![\w.+])\+\d{{1,3}}(?:{_SEPARATED}?\(?\d{{1,5}}\)?){{2,6}}(?!\d)"  # international
        rf"|(?<![\w.])\(\d{{3}}\){_SEPARATED}?\d{{3}}{_SEPARATED}\d{{4}}(?!\d)"  # North America
        rf"|(?<![\w.\-])\d{{3}}[ .\-]\d{{3}}[ .\-]\d{{4}}(?![\d\-])"
        r"|(?<!\d)1[3-9]\d(?:[ -]?\d{4}){2}(?!\d)"  # Chinese mobile
        r"|(?<!\d)0\d{2,3}-\d{7,8}(?!\d)"  # Chinese landline
        rf"|(?<![\w.\-])0\d{{1,4}}(?:[ /\-]\d{{2,4}}){{2,4}}(?![\d\-])",  # a trunk prefix and groups
    ),
)
# Only the value goes; the name in front of it stays, so that the sentence can be read.
_NAMED: Final = re.compile(
    r"(?P<name>\b(?:password|passwd|passphrase|pwd|secret|api[_ -]?key|access[_ -]?token|auth[_ -]?token|token|bearer"
    r"|密码|口令)\b"
    r"[\"']?\s{0,3}(?:[=:：]\s{0,3}|\bis\s{1,3}|是\s{0,3}|(?<=bearer)\s{1,3}|(?<=Bearer)\s{1,3}))"
    r"[\"']?(?P<value>[^\s\"',;。，；]{6,256})",
    re.IGNORECASE,
)
_ALL: Final = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in _PATTERNS))
_NOT_A_DIGIT: Final = re.compile(r"\D")
_HINT: Final = re.compile(r"[@\d]|(?i:key|secret|token|bearer|passw|pwd|passphrase|密码|口令|sk-|hf_)")

KINDS: Final = (*(kind for kind, _ in _PATTERNS), "secret")
"""What is found: "key", "email", "card", "phone", "secret"."""


class Redactor:
    """Replaces what is found; ``key`` (at least 16 bytes, kept secret) makes the words that stand for it."""

    def __init__(self, key: bytes) -> None:
        if len(key) < 16:
            raise ValueError("a key of at least 16 bytes")
        self._key = key[:64]

    def text(self, text: str, found: set[str] | None = None) -> str:
        """Return ``text`` without personal data; the kinds of what was replaced go into ``found``."""
        if _HINT.search(text) is None:
            return text

        def note(kind: str, value: str) -> str:
            if found is not None:
                found.add(kind)
            mark = blake2b(utf8(value), digest_size=3, key=self._key, person=b"antiphon.redact").hexdigest()
            return f"[{kind} {mark}]"

        def one(match: re.Match[str]) -> str:
            kind, value = str(match.lastgroup), match.group()
            if kind == "card" and not _is_card(value):
                return self._phone_within(value, note)
            if kind == "phone" and not 7 <= len(_NOT_A_DIGIT.sub("", value)) <= 15:
                return value
            return note(kind, _same(kind, value))

        text = _ALL.sub(one, text)
        return _NAMED.sub(lambda m: m["name"] + _secret(m["value"], note), text)

    def value(self, value: Any, found: set[str] | None = None) -> Any:
        """Return a JSON value with every string in it redacted, keys of objects apart."""
        if isinstance(value, str):
            return self.text(value, found)
        if isinstance(value, list):
            return [self.value(item, found) for item in value]
        if isinstance(value, dict):
            return {name: self.value(item, found) for name, item in value.items()}
        return value

    def _phone_within(self, value: str, note: Callable[[str, str], str]) -> str:
        """Digits as many as a card's that are none may still be a phone number in groups."""
        match = re.fullmatch(_PATTERNS[3][1], value)
        digits = len(_NOT_A_DIGIT.sub("", value))
        return note("phone", _same("phone", value)) if match is not None and digits <= 15 else value


def _same(kind: str, value: str) -> str:
    """The same value however it is written."""
    if kind in ("card", "phone"):
        return _NOT_A_DIGIT.sub("", value)
    return value.lower() if kind == "email" else value


def _secret(value: str, note: Callable[[str, str], str]) -> str:
    # "[key 4f1c09]" stands there already, and a word such as "required" is no secret.
    if value.startswith("[") or (value.isalpha() and value.islower()):
        return value
    return note("secret", value)


def _is_card(value: str) -> bool:
    """Whether digits are a payment card's: 13 to 19 of them, a known first one, Luhn's sum (ISO/IEC 7812-1)."""
    digits = [int(sign) for sign in value if sign.isdigit()]
    if not 13 <= len(digits) <= 19 or digits[0] not in (2, 3, 4, 5, 6) or len(set(digits)) == 1:
        return False
    total = 0
    for place, digit in enumerate(reversed(digits)):
        doubled = digit * 2 if place % 2 else digit
        total += doubled - 9 if doubled > 9 else doubled
    return total % 10 == 0
