"""Whatever header may say who asks parts the cache; what names a request or a program does not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.callers import CallerHeaders
from proxy.endpoints import ENDPOINTS
from proxy.plans import Planner
from proxy.settings import Settings

CALLERS = """
    authorization proxy-authorization x-authorization x-api-key api-key apikey x-apikey x-goog-api-key cookie
    x-auth-token x-access-token x-session-token x-amz-security-token x-id-token authtoken x-csrf-token
    x-forwarded-user x-forwarded-email x-forwarded-access-token x-forwarded-preferred-username x-forwarded-groups
    x-remote-user remote-user remote-email x-user-id x-user x-userid x-username x-authenticated-user
    x-authenticated-userid x-auth-request-user x-auth-request-email x-auth-request-access-token x-consumer-id
    x-consumer-username x-consumer-custom-id x-credential-identifier cf-access-jwt-assertion
    cf-access-authenticated-user-email cf-access-client-secret x-goog-iap-jwt-assertion
    x-goog-authenticated-user-email x-amzn-oidc-identity x-amzn-oidc-data x-amzn-oidc-accesstoken
    x-ms-client-principal x-ms-client-principal-id x-ms-token-aad-id-token ocp-apim-subscription-key
    openai-organization openai-project x-tenant-id x-org-id x-account-id x-session-id x-session x_user_id
    x-forwarded-client-cert x-litellm-api-key x-functions-key
"""
OTHERS = """
    user-agent x-user-agent x-amz-user-agent x-stainless-lang x-stainless-retry-count sec-fetch-user sec-ch-ua host
    accept accept-encoding accept-language content-type content-length connection origin referer x-request-id
    x-client-request-id x-correlation-id x-b3-traceid x-b3-spanid traceparent tracestate baggage x-amzn-trace-id
    x-cloud-trace-context x-forwarded-for x-forwarded-proto via forwarded idempotency-key x-idempotency-key
    x-antiphon-session x-antiphon-tenant x-antiphon-admin-token authority x-author x-amz-date x-ratelimit-limit-tokens
    x-amz-content-sha256 x-goog-api-client anthropic-version priority x-auth-request-id
"""


@pytest.mark.parametrize("name", CALLERS.split())
def test_a_header_that_says_who_asks_parts_the_cache(name: str) -> None:
    assert partition({name: "a"}) != partition({name: "b"})
    assert partition({name: "a"}) != partition({})


@pytest.mark.parametrize("name", [n for n in OTHERS.split() if not n.startswith(("x-antiphon", "anthropic"))])
def test_a_header_that_says_something_else_does_not(name: str) -> None:
    assert partition({name: "a"}) == partition({name: "b"}) == partition({})


def test_the_proxys_own_headers_are_nobodys_credential() -> None:
    assert not any(name.encode() in CallerHeaders() for name in OTHERS.split())


def test_the_operator_can_add_and_take_away_names() -> None:
    sharing = {"credential_headers": ["X-Team-Badge"], "ignored_headers": ["X-Session-Id"]}
    assert partition({"x-team-badge": "a"}, sharing) != partition({"x-team-badge": "b"}, sharing)
    assert partition({"x-team-badge": "a"}) == partition({"x-team-badge": "b"})
    assert partition({"x-session-id": "a"}, sharing) == partition({"x-session-id": "b"}, sharing)


@pytest.mark.parametrize("name", ["", "a b", "a:b", "X-Antiphon-Session", "ü"])
def test_what_is_no_name_of_a_header_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="header"):
        Settings.model_validate({"sharing": {"credential_headers": [name]}})


@given(st.lists(st.binary(max_size=30), max_size=200))
def test_any_name_can_be_asked_for_twice(names: list[bytes]) -> None:
    callers = CallerHeaders()
    assert [name in callers for name in names] == [name in callers for name in names]


def test_names_that_are_made_up_do_not_pile_up() -> None:
    callers = CallerHeaders()
    for number in range(10_000):
        assert b"x-%d" % number not in callers
    assert len(callers._known) <= 4096


def partition(headers: dict[str, str], sharing: dict[str, list[str]] | None = None) -> bytes:
    planner = Planner(Settings.model_validate({"sharing": sharing or {}}))
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "What is a sluice?"}]}).encode()
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    return planner.plan(ENDPOINTS["/v1/chat/completions"], raw, b"", body, None).partition
