"""Server-sent events arrive in any pieces and are the same events."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.endpoints.sse import Event, EventReader

LINES = st.lists(
    st.one_of(
        st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=12).map(
            lambda text: f"data: {text}"
        ),
        st.sampled_from(["", "", ": keep-alive", "event: x", "data", "id: 7", "data:no space", "nonsense"]),
    ),
    max_size=12,
)
STREAMS = st.tuples(LINES, st.sampled_from(["\n", "\r\n", "\r"])).map(lambda p: (p[1].join(p[0]) + p[1]).encode())


def read(stream: bytes, cuts: list[int]) -> tuple[list[Event], bytes]:
    reader = EventReader()
    events: list[Event] = []
    position = 0
    for cut in [*sorted(c % (len(stream) + 1) for c in cuts), len(stream)]:
        events += reader.feed(stream[position:cut])
        position = cut
    events += reader.close()
    return events, reader.rest


@given(STREAMS, st.lists(st.integers(0, 500), max_size=20))
def test_any_split_of_a_stream_gives_the_same_events(stream: bytes, cuts: list[int]) -> None:
    assert read(stream, cuts) == read(stream, [])


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=10))
def test_no_byte_is_lost_or_changed(stream: bytes, cuts: list[int]) -> None:
    events, rest = read(stream, cuts)
    assert b"".join(event.raw for event in events) + rest == stream


def test_data_lines_are_joined_and_comments_carry_no_data() -> None:
    events, rest = read(b"\xef\xbb\xbfdata: a\ndata:b\n\n: still here\n\nevent: end\r\ndata:  c\r\n\r\nda", [])
    assert [(e.data, e.name) for e in events] == [(b"a\nb", b""), (None, b""), (b" c", b"end")]
    assert rest == b"da"


def test_a_character_torn_between_packets_survives() -> None:
    stream = "data: 你好🙂\n\n".encode()
    (event,), _ = read(stream, list(range(len(stream))))
    assert event.data == "你好🙂".encode()


def test_an_event_is_there_as_soon_as_its_last_byte_is() -> None:
    reader = EventReader()
    assert reader.feed(b"data: a\n") == []
    assert len(reader.feed(b"\n")) == 1
    assert len(reader.feed(b"data: b\r\n\r\n")) == 1
