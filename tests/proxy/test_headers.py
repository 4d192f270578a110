"""Which headers cross the proxy."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.headers import cache_status, field_value, forwarded, returned


def test_hop_by_hop_fields_and_those_named_in_connection_stay_here() -> None:
    got = forwarded(
        [
            (b"host", b"me"), (b"connection", b"close, X-Mine"), (b"x-mine", b"1"), (b"te", b"trailers"),
            (b"upgrade", b"h2c"), (b"proxy-authorization", b"secret"), (b"transfer-encoding", b"chunked"),
            (b"accept-encoding", b"gzip"), (b"authorization", b"Bearer x"), (b"x-other", b"a"), (b"x-other", b"b"),
        ]
    )  # fmt: skip
    assert got == [
        (b"accept-encoding", b"gzip"), (b"authorization", b"Bearer x"), (b"x-other", b"a"), (b"x-other", b"b"),
    ]  # fmt: skip


def test_the_proxys_own_headers_never_pass_through_it() -> None:
    assert forwarded([(b"x-antiphon-session", b"s"), (b"x-antiphon-admin-token", b"t")]) == []
    headers = returned(
        [(b"X-Antiphon-Entry", b"forged"), (b"Date", b"now"), (b"Set-Cookie", b"a"), (b"set-cookie", b"b")]
    )
    assert headers == [(b"date", b"now"), (b"set-cookie", b"a"), (b"set-cookie", b"b")]


def test_a_reply_without_a_date_gets_one() -> None:
    assert [name for name, _ in returned([])] == [b"date"]


def test_cache_status_says_what_happened() -> None:
    assert cache_status(hit=True) == b"antiphon; hit"
    assert cache_status(fwd="miss", stored=True) == b"antiphon; fwd=miss; stored"
    assert cache_status(fwd="miss", collapsed=True) == b"antiphon; fwd=miss; collapsed"
    assert cache_status(fwd="bypass", detail='a "b"') == b'antiphon; fwd=bypass; detail="a \\"b\\""'


@given(st.text(max_size=300))
def test_any_text_becomes_a_value_that_cannot_end_the_header(text: str) -> None:
    value = field_value(text)
    assert len(value) <= 200
    assert all(0x20 <= byte <= 0x7E for byte in value)
