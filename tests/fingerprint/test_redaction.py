"""Personal data and secrets are taken out of a text, and nothing else is."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerprint.redaction import KINDS, Redactor

REDACT = Redactor(b"0123456789abcdef")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("email", "ada.lovelace+cards@mail.example.co.uk"),
        ("email", "李雷@例子.公司"),
        ("phone", "+1 (415) 555-0132"),
        ("phone", "+49 30 901820"),
        ("phone", "(415) 555-0132"),
        ("phone", "415-555-0132"),
        ("phone", "13812345678"),
        ("phone", "138 1234 5678"),
        ("phone", "010-62345678"),
        ("phone", "030 901 820 11"),
        ("card", "4111 1111 1111 1111"),
        ("card", "5500-0000-0000-0004"),
        ("card", "378282246310005"),
        ("key", "sk-proj-abcdefghijklmnop1234567890"),
        ("key", "sk-ant-api03-abcdefghijklmnopqrstuv"),
        ("key", "AKIAIOSFODNN7EXAMPLE"),
        ("key", "ghp_abcdefghijklmnopqrstuvwxyz0123456789"),
        ("key", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N"),
        ("key", "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\n-----END RSA PRIVATE KEY-----"),
    ],
)
def test_what_is_personal_is_replaced_by_its_kind(kind: str, value: str) -> None:
    found: set[str] = set()
    text = REDACT.text(f"Please note {value}, thank you.", found)
    assert value not in text
    assert found == {kind}
    assert text.startswith(f"Please note [{kind} ")
    assert text.endswith("], thank you.")


@pytest.mark.parametrize(
    "text",
    [
        "My password is hunter42!",
        "api_key = 'a8f5f167f44f4964e6c998dee827110c'",
        "Authorization: Bearer 8d7f6s5d4f3s2a1q",
        "密码：Abc12345",
    ],
)
def test_the_value_of_a_secret_goes_and_its_name_stays(text: str) -> None:
    found: set[str] = set()
    redacted = REDACT.text(text, found)
    assert found == {"secret"}
    assert not any(word in redacted for word in ("hunter42", "a8f5f167", "8d7f6s5d", "Abc12345"))
    assert redacted[:3] == text[:3]


@pytest.mark.parametrize(
    "text",
    [
        "Where is order ORD-78912345?",
        "Version 10.15.7 of macOS came on 2019-10-07 at 10:30:15.",
        "The sum of 1234567 and 89101112 is 90335679.",
        "Invoice 2024-000123-01 over 1,299.00 EUR",
        "My password is required to be long.",
        "ISBN 978-3-16-148410-0, and the card number 4111 1111 1111 1112 is not valid.",
        "192.168.100.100 answers on port 8080",
        "It was 20240131 and then 20240201.",
        "Reach me @ the station, bring the token of thanks.",
        "一百三十八万",
        "",
    ],
)
def test_other_numbers_and_words_stay(text: str) -> None:
    found: set[str] = set()
    assert REDACT.text(text, found) == text
    assert found == set()


def test_one_value_is_one_word_however_it_is_written() -> None:
    one, other = REDACT.text("4111 1111 1111 1111"), REDACT.text("4111-1111-1111-1111")
    assert one == other
    assert REDACT.text("Ada@x.org") == REDACT.text("ada@x.org") != REDACT.text("bob@x.org")
    assert Redactor(b"another key of mine").text("ada@x.org") != REDACT.text("ada@x.org")


def test_what_is_redacted_stays_as_it_is() -> None:
    once = REDACT.text("Write to ada@x.org, password: s3cr3t-value, +49 30 901820")
    assert REDACT.text(once) == once


def test_whole_bodies_are_redacted_but_for_their_keys() -> None:
    body = {"messages": [{"content": [{"text": "ada@x.org"}]}], "ada@x.org": 1, "n": 4111111111111111, "x": None}
    found: set[str] = set()
    redacted = REDACT.value(body, found)
    assert "ada@x.org" not in redacted["messages"][0]["content"][0]["text"]
    assert redacted.keys() == body.keys()
    assert found == {"email"}


@given(st.text())
def test_any_text_can_be_redacted(text: str) -> None:
    found: set[str] = set()
    REDACT.text(text, found)
    assert found <= set(KINDS)


@pytest.mark.parametrize(
    "piece",
    ["1 ", "a.", "a@", "1-", "+1", "eyJ", "sk-", "token ", "-----BEGIN PRIVATE KEY-----", "(123) ", "@a.", "0 12"],
)
def test_no_text_takes_long(piece: str) -> None:
    text = piece * (60_000 // len(piece))
    began = time.process_time()
    REDACT.text(text)
    assert time.process_time() - began < 5.0
