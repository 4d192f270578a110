"""Only languages there are tables for are judged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerprint.comparisons.readable import readable


@pytest.mark.parametrize(
    "text",
    [
     "How do I reset my password?", "suitcase fee?", "ok", "", "12:30", "怎么重置密码？",
     "iPhone 15 怎么截屏", "git commit -m x", "résumé layout", "α = 0.05?"],
)  # fmt: skip
def test_english_chinese_and_texts_without_words_are_read(text: str) -> None:
    assert readable(text)


@pytest.mark.parametrize(
    "text",
    [
        "Wie kann ich mein Passwort zurücksetzen?",
        "Comment réinitialiser mon mot de passe ?",
        "¿Cómo cambio mi contraseña?",
        "Come posso cambiare la mia password?",
        "Hoe kan ik mijn wachtwoord wijzigen?",
        "パスワードを変更したい",
        "비밀번호를 바꾸고 싶어요",
        "Как сбросить пароль?",
        "كيف أغير كلمة المرور؟",
        "รีเซ็ตรหัสผ่านอย่างไร",
    ],
)
def test_other_languages_are_not(text: str) -> None:
    assert not readable(text)


@given(st.text(max_size=300))
def test_any_text_gets_an_answer(text: str) -> None:
    assert readable(text) in (True, False)
