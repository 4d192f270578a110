"""The admin surface: who gets in, what it shows and does, and how it says no."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.datastructures import Headers

from proxy.admin import ADMIN_TOKEN_HEADER, Readiness
from proxy.app import Antiphon, Opened, create_app
from proxy.settings import Settings
from store.cache import Cache
from store.confidence import load, thresholds
from store.types import Answer

TOKEN = "a-token-of-some-length"
LOCAL = ("127.0.0.1", 40000)
LOCAL_URL = "http://127.0.0.1:8080"
KEY = {"Authorization": "Bearer app-key"}


def settings_for(folder: Path, **sections: dict[str, Any]) -> Settings:
    sections["store"] = {"url": f"sqlite:///{folder}/antiphon.db"}
    sections["upstream"] = {"url": "http://127.0.0.1:9", "version_interval_s": 0}
    return Settings.model_validate(sections)


async def without_embedder(chosen: Settings) -> Opened:
    cache = await Cache.open(chosen.store, embedder=None, confidence=load(), policy=thresholds())
    return Opened(cache, "none")


@asynccontextmanager
async def running(chosen: Settings) -> AsyncIterator[Antiphon]:
    app = create_app(chosen, open_with=without_embedder)
    async with app.router.lifespan_context(app):
        await app.state.readiness.wait()
        yield app


def client(
    app: Antiphon, peer: tuple[str, int] = LOCAL, base_url: str = LOCAL_URL, **headers: str
) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=app, client=peer)
    return httpx.AsyncClient(transport=transport, base_url=base_url, headers=headers)


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Antiphon]:
    """A proxy on loopback without a token."""
    async with running(settings_for(tmp_path)) as made:
        yield made


@pytest.fixture
def bare(tmp_path: Path) -> Antiphon:
    """The same, its store not yet open: enough to see who gets in, and what is refused before the store is asked."""
    return create_app(settings_for(tmp_path))


@pytest.fixture
def bare_public(tmp_path: Path) -> Antiphon:
    """A proxy that listens beyond loopback, with a token, its store not yet open."""
    return create_app(settings_for(tmp_path, server={"host": "0.0.0.0"}, admin={"token": TOKEN}))


@pytest.fixture
async def public(tmp_path: Path) -> AsyncIterator[Antiphon]:
    """A proxy that listens beyond loopback, with a token."""
    async with running(settings_for(tmp_path, server={"host": "0.0.0.0"}, admin={"token": TOKEN})) as made:
        yield made


def body(question: str, **fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": question}], **fields}).encode()


async def store(app: Antiphon, question: str, headers: dict[str, str] | None = None, **fields: Any) -> str:
    """Put an answered turn into the cache, as the proxy does after the last byte."""
    raw = Headers(headers or KEY)
    query = app.turns.query_for(raw, "/v1/chat/completions", body(question, **fields), peer="127.0.0.1")
    cache: Cache = app.state.cache
    entry_id = cache.record(query, Answer(b'{"choices":[]}', f"About: {question}", 7, 5, 0.5))
    await cache.flush()
    return entry_id


def assert_error(reply: httpx.Response, status: int, code: str) -> str:
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == code
    assert "\n" not in error["message"]
    return str(error["message"])


# ------------------------------------------------------------------------------------------------------ who gets in

CLOSED = [
    ("GET", "/metrics"),
    ("GET", "/stats"),
    ("GET", "/entries"),
    ("GET", "/entries/x"),
    ("POST", "/explain"),
    ("POST", "/purge"),
]


@pytest.mark.parametrize(("method", "path"), CLOSED)
async def test_beyond_loopback_nobody_gets_in_without_the_token(bare_public: Antiphon, method: str, path: str) -> None:
    async with client(bare_public) as http:
        reply = await http.request(method, f"/antiphon{path}")
        assert_error(reply, 401, "invalid_admin_token")
        assert reply.headers["www-authenticate"].startswith("Bearer")
        assert_error(
            await http.request(method, f"/antiphon{path}", headers={ADMIN_TOKEN_HEADER: "wrong-token"}),
            401,
            "invalid_admin_token",
        )


@pytest.mark.parametrize(("method", "path"), CLOSED)
async def test_beyond_loopback_and_without_a_token_the_surface_is_closed(
    tmp_path: Path, method: str, path: str
) -> None:
    app = create_app(settings_for(tmp_path, server={"host": "0.0.0.0"}))
    async with client(app) as http:
        assert "admin.token" in assert_error(await http.request(method, f"/antiphon{path}"), 403, "admin_closed")


@pytest.mark.parametrize("headers", [{ADMIN_TOKEN_HEADER: TOKEN}, {"Authorization": f"Bearer {TOKEN}"}])
async def test_the_token_opens_the_surface_from_anywhere(bare_public: Antiphon, headers: dict[str, str]) -> None:
    async with client(bare_public, ("203.0.113.9", 1), "http://cache.example") as http:
        assert (await http.get("/antiphon/metrics", headers=headers)).status_code == 200
        from_a_page = {**headers, "Origin": "https://dashboard.example"}
        assert (await http.get("/antiphon/metrics", headers=from_a_page)).status_code == 200


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost:8080", "localhost", "[::1]:8080", "LOCALHOST:1"])
async def test_on_loopback_a_local_caller_needs_no_token(bare: Antiphon, host: str) -> None:
    async with client(bare, Host=host) as http:
        assert (await http.get("/antiphon/metrics")).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "localhost.evil.example:8080"},
        {"Host": ""},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost.evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"X-Forwarded-For": "127.0.0.1"},
        {"Forwarded": "for=127.0.0.1"},
        {"X-Real-IP": "127.0.0.1"},
        {"Via": "1.1 gateway"},
    ],
)
async def test_a_web_page_or_a_reverse_proxy_is_not_a_local_caller(bare: Antiphon, headers: dict[str, str]) -> None:
    async with client(bare, LOCAL, LOCAL_URL, **headers) as http:
        assert_error(await http.get("/antiphon/stats"), 403, "admin_closed")
        assert_error(await http.post("/antiphon/purge", json={"entry": "x"}), 403, "admin_closed")


async def test_a_page_served_from_this_machine_is_a_local_caller(bare: Antiphon) -> None:
    async with client(bare, Origin="http://localhost:3000") as http:
        assert (await http.get("/antiphon/metrics")).status_code == 200


async def test_a_caller_from_elsewhere_is_not_local_whatever_it_says(bare: Antiphon) -> None:
    async with client(bare, ("192.0.2.7", 1), Host="localhost") as http:
        assert_error(await http.get("/antiphon/stats"), 403, "admin_closed")


async def test_health_and_readiness_are_open_to_everybody(bare_public: Antiphon) -> None:
    async with client(bare_public, ("203.0.113.9", 1), "http://10.0.0.3") as http:
        for path, status in (("health", 200), ("ready", 503)):
            assert (await http.get(f"/antiphon/{path}")).status_code == status
            assert (await http.head(f"/antiphon/{path}")).status_code == status


async def test_no_error_repeats_the_token(bare_public: Antiphon) -> None:
    async with client(bare_public) as http:
        reply = await http.get("/antiphon/stats", headers={ADMIN_TOKEN_HEADER: TOKEN + "x"})
        assert TOKEN not in reply.text


# -------------------------------------------------------------------------------------------------------- readiness


async def test_not_ready_before_the_store_is_open_and_ready_after(tmp_path: Path) -> None:
    import asyncio

    gate = asyncio.Event()

    async def slowly(chosen: Settings) -> Opened:
        await gate.wait()
        return await without_embedder(chosen)

    app = create_app(settings_for(tmp_path), open_with=slowly)
    async with app.router.lifespan_context(app), client(app) as http:
        reply = await http.get("/antiphon/ready")
        assert (reply.status_code, reply.json()) == (503, {"status": "starting", "backend": reply.json()["backend"]})
        assert (await http.get("/antiphon/health")).status_code == 200
        assert_error(await http.get("/antiphon/stats"), 503, "store_unavailable")
        gate.set()
        assert await app.state.readiness.wait() == "ready"
        assert (await http.get("/antiphon/ready")).json() == {"status": "ready", "backend": "unreachable"}


async def test_a_proxy_without_its_store_is_ready_and_says_that_it_is_degraded(tmp_path: Path) -> None:
    async def broken(chosen: Settings) -> Opened:
        raise OSError("no disk")

    app = create_app(settings_for(tmp_path), open_with=broken)
    async with app.router.lifespan_context(app), client(app) as http:
        await app.state.readiness.wait()
        reply = await http.get("/antiphon/ready")
        assert reply.status_code == 200
        assert reply.json()["status"] == "degraded"
        assert reply.json()["reason"]
        async with client(app, ("192.0.2.7", 1)) as stranger:
            told = (await stranger.get("/antiphon/ready")).json()
            assert told == {"status": "degraded", "backend": "unreachable"}  # no path, no reason
        assert b"antiphon_degraded 1.0" in (await http.get("/antiphon/metrics")).content


async def test_a_stopping_proxy_is_not_ready() -> None:
    readiness = Readiness()
    readiness.ready()
    readiness.stopping()
    assert not readiness.serves


# ----------------------------------------------------------------------------------------------------- what it shows


async def test_metrics_are_in_the_prometheus_text_format_with_the_stores_numbers(app: Antiphon) -> None:
    await store(app, "How high is the tower?")
    async with client(app) as http:
        reply = await http.get("/antiphon/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=")
    assert 'antiphon_entries{state="active"} 1.0' in reply.text
    assert "antiphon_write_queue_depth 0.0" in reply.text


async def test_stats_count_what_is_stored(app: Antiphon) -> None:
    await store(app, "How high is the tower?")
    async with client(app) as http:
        stats = (await http.get("/antiphon/stats")).json()
    assert stats["status"] == "ready"
    assert stats["entries"] == 1


async def test_entries_are_listed_page_by_page_newest_first(app: Antiphon) -> None:
    ids = [await store(app, f"What is {name}?") for name in ("copper", "iron", "zinc")]
    async with client(app) as http:
        first = (await http.get("/antiphon/entries", params={"limit": 2})).json()
        assert [row["id"] for row in first["entries"]] == [ids[2], ids[1]]
        second = (await http.get("/antiphon/entries", params={"limit": 2, "after": first["next"]})).json()
        assert [row["id"] for row in second["entries"]] == [ids[0]]
        assert second["next"] is None
        assert first["entries"][0]["question"] == "What is zinc?"
        assert first["entries"][0]["answer"] == "About: What is zinc?"


async def test_entries_can_be_filtered_by_dimension(app: Antiphon) -> None:
    await store(app, "What is copper?")
    other = await store(app, "What is copper?", model="n")
    async with client(app) as http:
        rows = (await http.get("/antiphon/entries", params={"model": "n"})).json()["entries"]
        assert [row["id"] for row in rows] == [other]
        assert rows[0]["parts"]["model"] == "n"
        message = assert_error(await http.get("/antiphon/entries", params={"modle": "n"}), 400, "unknown_dimension")
        assert "model" in message


@pytest.mark.parametrize("limit", ["0", "501", "-1", "x", "", "1.5", "9" * 30])
async def test_a_bad_limit_is_refused(bare: Antiphon, limit: str) -> None:
    async with client(bare) as http:
        reply = await http.get("/antiphon/entries", params={"limit": limit})
    assert_error(reply, 400, "invalid_value")
    assert reply.json()["error"]["param"] == "limit"


async def test_one_entry_is_shown_by_its_id(app: Antiphon) -> None:
    entry = await store(app, "What is copper?")
    async with client(app) as http:
        assert (await http.get(f"/antiphon/entries/{entry}")).json()["id"] == entry
        assert_error(await http.get("/antiphon/entries/nothing"), 404, "no_such_entry")


async def test_explain_shows_the_decision_without_calling_the_model(app: Antiphon) -> None:
    entry = await store(app, "What is copper?")
    async with client(app, LOCAL, LOCAL_URL, **KEY) as http:
        known = (await http.post("/antiphon/explain", content=body("What is copper?"))).json()
        assert (known["level"], known["entry"]) == ("answer", entry)
        unknown = (await http.post("/antiphon/explain", content=body("What is iron?"))).json()
        assert (unknown["level"], unknown["candidates"]) == ("miss", [])
        nonsense = (await http.post("/antiphon/explain", content=b"{")).json()
        assert (nonsense["level"], nonsense["candidates"]) == ("bypass", [])
        other_path = await http.post("/antiphon/explain", params={"path": "/v1/nothing"}, content=body("x"))
        assert other_path.json()["level"] == "bypass"
        assert_error(await http.post("/antiphon/explain", params={"pth": "x"}, content=b""), 400, "unknown_field")


async def test_explain_as_another_caller_shows_nothing_of_this_one(app: Antiphon) -> None:
    await store(app, "What is copper?")
    async with client(app, Authorization="Bearer another-key") as http:
        assert (await http.post("/antiphon/explain", content=body("What is copper?"))).json()["level"] == "miss"


async def test_the_admin_token_as_header_leaves_the_callers_credential_to_explain(public: Antiphon) -> None:
    entry = await store(public, "What is copper?")
    headers = {**KEY, ADMIN_TOKEN_HEADER: TOKEN}
    async with client(public, ("203.0.113.9", 1), **headers) as http:
        assert (await http.post("/antiphon/explain", content=body("What is copper?"))).json()["entry"] == entry


async def test_the_admin_token_as_bearer_is_nobodys_credential_to_explain(public: Antiphon) -> None:
    entry = await store(public, "What is copper?", headers={"Accept": "*/*"})
    async with client(public, Authorization=f"Bearer {TOKEN}") as http:
        assert (await http.post("/antiphon/explain", content=body("What is copper?"))).json()["entry"] == entry


# ------------------------------------------------------------------------------------------------------ what it does


async def served(app: Antiphon, question: str) -> bool:
    query = app.turns.query_for(Headers(KEY), "/v1/chat/completions", body(question), peer="127.0.0.1")
    return await app.state.cache.exact(query) is not None


async def test_a_purged_entry_is_not_served_again(app: Antiphon) -> None:
    entry = await store(app, "What is copper?")
    assert await served(app, "What is copper?")
    async with client(app) as http:
        dry = await http.post("/antiphon/purge", json={"entry": entry, "dry_run": True})
        assert dry.json() == {"purged": 1, "dry_run": True}
        assert await served(app, "What is copper?")
        assert (await http.post("/antiphon/purge", json={"entry": entry})).json() == {"purged": 1, "dry_run": False}
        assert not await served(app, "What is copper?")
        assert_error(await http.post("/antiphon/purge", json={"entry": "nothing"}), 404, "no_such_entry")


async def test_a_purge_by_dimension_counts_first_and_then_removes(app: Antiphon) -> None:
    await store(app, "What is copper?")
    await store(app, "What is iron?")
    async with client(app) as http:
        where = {"where": {"model": "m"}, "dry_run": True}
        assert (await http.post("/antiphon/purge", json=where)).json() == {"purged": 2, "dry_run": True}
        assert await served(app, "What is iron?")
        assert (await http.post("/antiphon/purge", json={"where": {"model": "other"}})).json()["purged"] == 0
        assert (await http.post("/antiphon/purge", json={"where": {"model": "m"}})).json()["purged"] == 2
        assert not await served(app, "What is iron?")


@pytest.mark.parametrize(
    ("raw", "code", "named"),
    [
        (b"", "invalid_json", "JSON"),
        (b"[]", "invalid_json", "object"),
        (b'"x"', "invalid_json", "object"),
        (b"[" * 60_000, "invalid_json", "JSON"),
        (b"{}", "invalid_value", "either"),
        (b'{"entry": "a", "where": {"model": "m"}}', "invalid_value", "either"),
        (b'{"entry": 3}', "invalid_value", "entry"),
        (b'{"entry": ""}', "invalid_value", "entry"),
        (b'{"where": {}}', "invalid_value", "where"),
        (b'{"where": ["model"]}', "invalid_value", "where"),
        (b'{"where": {"model": 3}}', "invalid_value", "model"),
        (b'{"where": {"state": "bogus"}}', "invalid_value", "retracted"),
        (b'{"where": {"modle": "m"}}', "unknown_dimension", "model"),
        (b'{"where": {"model": "m"}, "dryrun": true}', "unknown_field", "dry_run"),
        (b'{"where": {"model": "m"}, "dry_run": "yes"}', "invalid_value", "dry_run"),
    ],
)
async def test_a_wrong_purge_is_refused_and_says_what_is_wrong(
    bare: Antiphon, raw: bytes, code: str, named: str
) -> None:
    async with client(bare) as http:
        assert named in assert_error(await http.post("/antiphon/purge", content=raw), 400, code)


async def test_a_body_without_end_is_refused(bare: Antiphon) -> None:
    async with client(bare) as http:
        assert_error(await http.post("/antiphon/purge", content=b" " * 70_000), 413, "body_too_large")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_a_wrong_method_is_refused_with_the_right_one(bare: Antiphon, method: str) -> None:
    async with client(bare) as http:
        reply = await http.request(method, "/antiphon/purge")
    assert_error(reply, 405, "method_not_allowed")
    assert reply.headers["allow"] == "POST"


async def test_an_unknown_path_names_the_nearest(bare: Antiphon) -> None:
    async with client(bare) as http:
        assert "/antiphon/entries?" in assert_error(await http.get("/antiphon/entrys"), 404, "no_such_path")


@pytest.mark.parametrize("path", ["/antiphon", "/antiphon/", "/antiphon/entries/"])
async def test_a_path_where_nothing_is_is_an_error_in_json(bare: Antiphon, path: str) -> None:
    async with client(bare) as http:
        assert (await http.get(path)).status_code in (404, 503)
        assert (await http.get(path)).headers["content-type"] == "application/json"


@pytest.mark.parametrize("query", ["after=zzz", "after=", f"after={'0' * 31}", "state=bogus"])
async def test_a_page_of_entries_that_cannot_be_is_refused(app: Antiphon, query: str) -> None:
    async with client(app) as http:
        assert_error(await http.get(f"/antiphon/entries?{query}"), 400, "invalid_value")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/feedback", {"entry": "\ud800", "rating": "up"}),
        ("/feedback", {"\ud800": "x"}),
        ("/feedback", {"entry": "\x00", "rating": "up"}),
        ("/purge", {"where": {"model": "\udfff"}}),
        ("/purge", {"where": {"\ud800": "x"}}),
        ("/purge", {"entry": "a\ud800"}),
    ],
)
async def test_a_text_that_no_database_can_hold_is_refused(app: Antiphon, path: str, body: object) -> None:
    async with client(app) as http:
        reply = await http.post(f"/antiphon{path}", content=json.dumps(body).encode())
        assert reply.status_code == 400
        assert reply.json()["error"]["message"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    raw=st.binary(max_size=60)
    | st.recursive(st.none() | st.booleans() | st.text(max_size=5), st.lists).map(str).map(str.encode)
)
async def test_no_body_makes_the_surface_fail(app: Antiphon, raw: bytes) -> None:
    async with client(app) as http:
        for path in ("purge", "feedback"):
            assert (await http.post(f"/antiphon/{path}", content=raw)).status_code == 400
        assert (await http.post("/antiphon/explain", content=raw)).json()["candidates"] == []


# ---------------------------------------------------------------------------------------------------------- feedback


async def test_thumbs_down_takes_the_answer_out_of_circulation(app: Antiphon) -> None:
    entry = await store(app, "What is copper?")
    async with client(app) as http:
        up = await http.post("/antiphon/feedback", json={"entry": entry, "rating": "up"})
        assert up.json() == {"entry": entry, "rating": "up"}
        assert await served(app, "What is copper?")
        assert (await http.post("/antiphon/feedback", json={"entry": entry, "rating": "down"})).status_code == 200
    assert not await served(app, "What is copper?")


async def test_an_app_may_rate_its_own_answers_and_nobody_elses(public: Antiphon) -> None:
    entry = await store(public, "What is copper?")
    down = {"entry": entry, "rating": "down"}
    async with client(public, ("203.0.113.9", 1), "http://cache.example") as http:
        for headers in ({"Authorization": "Bearer another-key"}, {}):
            reply = await http.post("/antiphon/feedback", json=down, headers=headers)
            unknown = await http.post("/antiphon/feedback", json={**down, "entry": "0" * 32}, headers=headers)
            assert_error(reply, 404, "no_such_entry")
            assert reply.json()["error"]["message"].replace(entry, "") == unknown.json()["error"]["message"].replace(
                "0" * 32, ""
            )
        assert await served(public, "What is copper?")
        assert (await http.post("/antiphon/feedback", json=down, headers=KEY)).status_code == 200
    assert not await served(public, "What is copper?")


@pytest.mark.parametrize("headers", [{"Authorization": "Bearer another-key"}, {"X-Forwarded-User": "eve"}])
async def test_a_local_app_that_shows_a_credential_rates_its_own_answers_only(
    app: Antiphon, headers: dict[str, str]
) -> None:
    entry = await store(app, "What is copper?")
    down = {"entry": entry, "rating": "down"}
    async with client(app) as http:
        assert_error(await http.post("/antiphon/feedback", json=down, headers=headers), 404, "no_such_entry")
        assert await served(app, "What is copper?")
        assert (await http.post("/antiphon/feedback", json=down, headers=KEY)).status_code == 200
    assert not await served(app, "What is copper?")


async def test_the_operator_with_the_token_rates_any_answer(public: Antiphon) -> None:
    entry = await store(public, "What is copper?")
    down = {"entry": entry, "rating": "down"}
    async with client(public, ("203.0.113.9", 1), "http://cache.example") as http:
        headers = {ADMIN_TOKEN_HEADER: TOKEN, "Authorization": "Bearer another-key"}
        assert (await http.post("/antiphon/feedback", json=down, headers=headers)).status_code == 200
    assert not await served(public, "What is copper?")


async def test_a_web_page_without_a_credential_may_not_rate(app: Antiphon) -> None:
    entry = await store(app, "What is copper?", headers={"Accept": "*/*"})
    async with client(app, Origin="https://evil.example") as http:
        reply = await http.post("/antiphon/feedback", json={"entry": entry, "rating": "down"})
    assert_error(reply, 403, "admin_closed")


@pytest.mark.parametrize("rating", ["bad", "", None, 1, ["up"]])
async def test_another_rating_is_refused(bare: Antiphon, rating: object) -> None:
    async with client(bare) as http:
        reply = await http.post("/antiphon/feedback", json={"entry": "x", "rating": rating})
    assert_error(reply, 400, "invalid_value")
