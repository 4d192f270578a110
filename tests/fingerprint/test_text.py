"""The text pipeline takes any string and loses nothing but the normalisation form."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerprint.text import has_lone_surrogates, normalise, script_of, scripts_of, utf8

any_text = st.text(st.characters())


@given(any_text)
def test_normalising_is_nfc_and_idempotent(text: str) -> None:
    assert normalise(text) == unicodedata.normalize("NFC", text) == normalise(normalise(text))


@given(any_text, any_text)
def test_no_string_breaks_the_helpers_and_bytes_tell_texts_apart(a: str, b: str) -> None:
    assert (utf8(a) == utf8(b)) == (a == b)
    assert has_lone_surrogates(a) == any(unicodedata.category(c) == "Cs" for c in a)
    assert (script_of(a) == "none") == (not scripts_of(a))


def test_case_and_width_are_kept() -> None:
    assert normalise("US us ＵＳ") == "US us ＵＳ"


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("How are you?", "latin"), ("Größe café", "latin"), ("怎么重置密码？", "han"),
        ("升级 Kubernetes 到 1.30", "han"),
        ("Was heißt 你好 auf Deutsch, bitte sehr?", "latin"), ("ありがとうございます", "kana"), ("안녕", "hangul"),
        ("Как дела?", "cyrillic"), ("مرحبا", "arabic"), ("שלום", "hebrew"), ("नमस्ते", "devanagari"),
        ("สวัสดี", "thai"), ("γειά σου", "greek"), ("გამარჯობა", "other"), ("12:30 — 5 €", "none"), ("", "none"),
        ("👍", "none"),
    ],
)  # fmt: skip
def test_the_script_is_the_one_most_words_are_written_in(text: str, script: str) -> None:
    assert script_of(text) == script


def test_all_scripts_of_a_mixed_text_are_seen() -> None:
    assert scripts_of("把 k8s 升级 до α") == {"han", "latin", "cyrillic", "greek"}
