"""What the cross-encoder reads of two conversations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fingerprint.conversation import Message, Turn
from store.confidence.pair_text import MARKERS, PairReader

VOCABULARY: dict[str, int] = {}


def letters(text: str) -> tuple[Sequence[int], Sequence[tuple[int, int]]]:
    """A tokenizer of whole words (real ones are tried in test_cross_encoder)."""
    ids, places, at = [], [], 0
    for word in text.split(" "):
        ids.append(VOCABULARY.setdefault(word, len(VOCABULARY) + 10))
        places.append((at, at + len(word)))
        at += len(word) + 1
    return ids, places


def reader(last: int = 20, context: int = 30) -> PairReader:
    return PairReader(letters, cls=1, sep=2, last_tokens=last, context_tokens=context)


def turn(*texts: str) -> Turn:
    roles = ["user", "assistant"]
    history = [Message(roles[i % 2], text) for i, text in enumerate(texts[:-1])]
    return Turn((), tuple(history), Message("user", texts[-1]))


def words(ids: Iterable[int]) -> list[str]:
    known = {v: k for k, v in VOCABULARY.items()}
    return [known.get(int(i), "|") for i in ids]


def test_a_word_the_other_side_lacks_is_marked() -> None:
    read = reader().read_one(turn("price for 12 seats"), turn("price for 20 seats"))
    marks = dict(zip(words(read.ids), read.markers, strict=True))
    assert marks["12"] == 3 * 3 + 2
    assert marks["20"] == 13 + 3 * 3 + 2
    assert marks["price"] == 13 + 3 * 3  # its second occurrence: in the other last message


def test_a_plural_and_a_number_word_count_as_the_same_word() -> None:
    read = reader().read_one(turn("three Seats please"), turn("3 seat please"))
    assert {int(m) % 13 for m in read.markers[1:4]} == {9}


def test_an_early_sentence_that_differs_is_kept_and_an_equal_one_is_not() -> None:
    filler = "The hall is large and bright. Parking costs nothing at all."
    rounds = [filler, "Noted."] * 6
    a = turn("The wedding is on 4 June.", "Lovely.", *rounds, "How many chairs?", "We have 80.", "book them")
    b = turn("The wedding is on 9 July.", "Lovely.", *rounds, "How many chairs?", "We have 80.", "book them")
    seen = words(reader().read_one(a, b).ids)
    assert "June." in seen and "July." in seen
    assert "Parking" not in seen


def test_a_system_prompt_that_both_have_is_not_read() -> None:
    bare = turn("price for 12 seats"), turn("price for 20 seats")
    under = [replace(one, system=(Message("system", "Be brief and kind."),)) for one in bare]
    for seen, expected in zip(reader().read(*under), reader().read(*bare), strict=True):
        assert seen.ids.tolist() == expected.ids.tolist() and seen.markers.tolist() == expected.markers.tolist()
    assert reader().read_one(*under).ids.tolist() == reader().read_one(*bare).ids.tolist()


def test_a_system_prompt_that_only_one_has_is_read() -> None:
    bare = turn("price for 12 seats"), turn("price for 20 seats")
    under = replace(bare[0], system=(Message("system", "Be brief and kind."),))
    assert "brief" in words(reader().read_one(under, bare[1]).ids)


def test_the_message_being_answered_is_always_there() -> None:
    long = " ".join(f"Fact {i} is new." for i in range(300))
    a = turn(long, "Shall I cancel the order?", "yes please")
    b = turn("hello", "Shall I confirm the order?", "yes please")
    seen = words(reader().read_one(a, b).ids)
    assert "cancel" in seen and "confirm" in seen


messages = st.builds(Message, st.sampled_from(["user", "assistant", "tool"]), st.text(max_size=60))
turns = st.builds(
    Turn,
    st.lists(st.builds(Message, st.just("system"), st.text(max_size=30)), max_size=1).map(tuple),
    st.lists(messages, max_size=5).map(tuple),
    st.builds(Message, st.just("user"), st.text(max_size=80)),
)


@settings(max_examples=150, deadline=None)
@given(turns, turns)
def test_any_two_conversations_are_read_within_bounds(a: Turn, b: Turn) -> None:
    forth, back = reader().read(a, b)
    assert len(forth.ids) == len(back.ids) == len(forth.markers) == len(forth.last) == len(forth.sides)
    assert len(forth.ids) <= 3 + 2 * (20 + 30 + 20)
    assert forth.markers.min() >= 0 and forth.markers.max() < MARKERS
    assert sorted(forth.ids) == sorted(back.ids)
    again, _ = reader().read(a, b)
    assert np.array_equal(again.ids, forth.ids) and np.array_equal(again.markers, forth.markers)


def test_a_hundred_kilobytes_are_read_as_quickly_as_their_ends() -> None:
    a = turn("x1 " * 40_000, "ok", "重复，" * 30_000)
    b = turn("。" * 100_000, "?" * 50_000, "a" * 100_000)
    forth, _ = reader().read(a, b)
    assert len(forth.ids) <= 3 + 2 * (20 + 30 + 20)
