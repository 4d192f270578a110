"""Who shares an answer, by what the turn is about and the language it is in."""

from __future__ import annotations

import json

import pytest

from proxy.endpoints import ENDPOINTS
from proxy.headers import RawHeaders
from proxy.plans import Plan, Planner
from proxy.settings import Settings

CHAT = ENDPOINTS["/v1/chat/completions"]
SESSION: RawHeaders = [(b"x-antiphon-session", b"s-1")]
OTHER: RawHeaders = [(b"x-antiphon-session", b"s-2")]


def plan(text: str, *, user: str | None = None, headers: RawHeaders | None = None) -> Plan:
    body = {"model": "m", "messages": [{"role": "user", "content": text}]} | ({"user": user} if user else {})
    return Planner(Settings()).plan(CHAT, headers or [], b"", json.dumps(body).encode(), None)


@pytest.mark.parametrize(
    "text", ["What medication am I on?", "我的申请怎么样了？", "Wie heiße ich?", "Какой у меня баланс?"]
)
def test_a_personal_turn_without_user_or_session_is_not_shared_at_all(text: str) -> None:
    assert (plan(text).bypass or "").startswith("personal")
    assert plan(text, user="a").bypass is None
    assert plan(text, user="a").partition != plan(text, user="b").partition
    assert plan(text, headers=SESSION).partition != plan(text, headers=OTHER).partition


@pytest.mark.parametrize("text", ["Is my deposit protected?", "我的权利有哪些"])
def test_what_may_be_personal_is_shared_within_the_user_where_one_is_told(text: str) -> None:
    assert plan(text).bypass is None
    assert plan(text).semantic
    assert plan(text, user="a").partition != plan(text, user="b").partition


def test_a_general_question_is_shared_by_all_users() -> None:
    text = "How many bones does an adult human have?"
    assert plan(text, user="a").partition == plan(text, user="b").partition == plan(text, headers=SESSION).partition


@pytest.mark.parametrize(
    "text", ["Wo liegt der Schwarzwald?", "富士山の高さは？", "Какая столица Франции?", "ما هي عاصمة المغرب؟"]
)
def test_where_the_guards_do_not_know_the_language_only_the_same_words_are_answered(text: str) -> None:
    asked = plan(text)
    assert asked.bypass is None
    assert not asked.semantic
    assert plan(text, user="a").partition != plan(text, user="b").partition
