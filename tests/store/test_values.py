"""The small parts: stored forms, memory, ids, window, bars."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerprint.conversation import Message, Turn
from store.bars import Bars, items_of, scopes_of, text_digest
from store.bounded import Bounded
from store.codec import pack_answer, pack_question, pack_vector, unpack_answer, unpack_question, unpack_vector
from store.ids import IdMaker
from store.memory import Kept, Memory
from store.settings import StoreSettings
from store.types import Answer
from store.window import context_of, cosine, window_vector
from tests.store.support import ask

any_text = st.text(st.characters(), max_size=50) | st.just("\ud83d lone") | st.text("ab ", min_size=600, max_size=900)
messages = st.builds(
    Message, st.sampled_from(["user", "assistant", "tool", "\ud800"]), any_text, st.binary(max_size=20)
)


# ------------------------------------------------------------------------------------------------- stored forms


@given(st.lists(messages, max_size=6), messages, st.lists(messages, max_size=2))
def test_a_question_comes_back_as_it_was(history: list[Message], message: Message, system: list[Message]) -> None:
    turn = Turn(tuple(system), tuple(history), message)
    assert unpack_question(pack_question(turn), tuple(system)) == turn


@given(st.binary(max_size=2_000), any_text)
def test_an_answer_comes_back_as_it_was(body: bytes, text: str) -> None:
    answer = Answer(body, text, 3, 4, 0.5)
    assert unpack_answer(pack_answer(answer), prompt_tokens=3, completion_tokens=4, seconds=0.5) == answer


@given(st.binary(max_size=60))
def test_damaged_bytes_are_a_value_error_and_nothing_else(data: bytes) -> None:
    for read in (
        lambda: unpack_question(data, ()),
        lambda: unpack_answer(data, prompt_tokens=0, completion_tokens=0, seconds=0.0),
    ):
        try:
            read()
        except ValueError:
            continue


def test_a_vector_takes_two_bytes_a_dimension_and_comes_back_nearly() -> None:
    vector = np.random.default_rng(1).standard_normal(384).astype(np.float32)
    vector /= np.linalg.norm(vector)
    data = pack_vector(vector)
    assert len(data) == 768
    assert cosine(unpack_vector(data), vector) == pytest.approx(1.0, abs=1e-5)


# ------------------------------------------------------------------------------------------------- memory


def kept(entry: str, size: int = 1000, key: bytes = b"k") -> Kept:
    return Kept(entry, key, entry, Answer(b"x" * size, "y", 1, 1, 1.0), b"", 0.0, 1.0)


def test_memory_keeps_to_its_limit_and_forgets_what_was_unused_longest() -> None:
    memory = Memory(10_000)
    for number in range(5):
        memory.put(b"%d" % number, kept(str(number)))
    assert memory.get(b"0") is not None
    memory.put(b"5", kept("5"))
    assert memory.get(b"1") is None
    assert memory.get(b"0") is not None
    assert memory.size_bytes <= 10_000
    memory.put(b"large", kept("large", 20_000))
    assert memory.get(b"large") is None


def test_memory_of_nothing_keeps_nothing() -> None:
    memory = Memory(0)
    memory.put(b"0", kept("0", 0))
    assert (memory.get(b"0"), memory.size_bytes) == (None, 0)


def test_removing_an_entry_removes_all_its_keys() -> None:
    memory = Memory(10_000)
    memory.put(b"own", kept("e"))
    memory.put(b"wording", kept("e"))
    memory.put(b"other", kept("f"))
    memory.remove("e")
    assert [memory.get(key) is None for key in (b"own", b"wording", b"other")] == [True, True, False]


def test_what_was_read_before_a_removal_is_not_kept_after_it() -> None:
    memory = Memory(10_000)
    before = memory.generation
    memory.remove("e")  # not in memory, but being read from the database this moment
    memory.put(b"own", kept("e"), generation=before)
    assert memory.get(b"own") is None
    memory.put(b"own", kept("e"), generation=memory.generation)
    assert memory.get(b"own") is not None


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "get", "forget", "remove", "clear"]), st.integers(0, 5), st.integers(0, 4000)
        ),
        max_size=50,
    )
)
def test_memory_always_knows_what_it_weighs(steps: list[tuple[str, int, int]]) -> None:
    memory = Memory(9_000)
    for step, number, size in steps:
        key, entry = b"%d" % number, str(number % 3)
        if step == "put":
            memory.put(key, kept(entry, size))
        elif step == "get":
            memory.get(key)
        elif step == "forget":
            memory.forget(key)
        elif step == "remove":
            memory.remove(entry)
            assert all((found := memory.get(b"%d" % k)) is None or found.id != entry for k in range(6))
        else:
            memory.clear()
        assert 0 <= memory.size_bytes <= 9_000
        assert (memory.size_bytes == 0) == (len(memory) == 0)


def test_a_bounded_dictionary_forgets_the_oldest() -> None:
    items: Bounded[int, str] = Bounded(2)
    for number in (1, 2, 1, 3):
        items[number] = str(number)
    assert (1 in items, 2 in items, items.get(3), len(items)) == (True, False, "3", 2)


# ------------------------------------------------------------------------------------------------- ids


@given(st.lists(st.floats(0, 4e9), min_size=2, max_size=30))
def test_ids_grow_whatever_the_clock_does(times: list[float]) -> None:
    make = IdMaker()
    ids = [make(now) for now in times]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)
    assert all(len(one) == 32 and one[12] == "7" for one in ids)  # a UUID version 7


# ------------------------------------------------------------------------------------------------- window


def talk(*texts: str) -> tuple[Message, ...]:
    return tuple(Message(("user", "assistant")[number % 2], text) for number, text in enumerate(texts))


def before(history: tuple[Message, ...], rounds: int) -> list[tuple[str, float]]:
    return list(context_of(Turn((), history, Message("user", "and then?")), "window", rounds).window)


def test_the_window_is_the_last_rounds_the_newest_weighing_most() -> None:
    texts = before(talk("a", "b", "c", "d", "e", "f"), rounds=2)
    assert texts == [("f", 1.0), ("e", 1.0), ("d", 0.6), ("c", 0.6)]
    assert before(talk("a", "b"), rounds=0) == []
    assert before((), rounds=5) == []


def test_what_tools_and_systems_say_is_not_in_the_window() -> None:
    history = (Message("user", "a"), Message("tool", "{...}"), Message("system", "be brief"), Message("assistant", " "))
    assert before(history, rounds=5) == [("a", 1.0)]


def test_the_window_vector_has_length_one_and_leans_to_the_newest() -> None:
    one, other = np.eye(2, dtype=np.float32)
    vector = window_vector([(one, 1.0), (other, 0.6)])
    assert vector is not None
    assert float(np.linalg.norm(vector)) == pytest.approx(1.0)
    assert vector[0] > vector[1] > 0
    assert window_vector([]) is None
    assert window_vector([(one, 1.0), (-one, 1.0)]) is None


def test_a_cosine_of_what_cannot_be_compared_is_zero() -> None:
    assert cosine(np.ones(2, dtype=np.float32), np.ones(3, dtype=np.float32)) == 0.0
    assert cosine(np.zeros(2, dtype=np.float32), np.ones(2, dtype=np.float32)) == 0.0
    assert cosine(np.ones(2, dtype=np.float32), -np.ones(2, dtype=np.float32)) == pytest.approx(-1.0)


# ------------------------------------------------------------------------------------------------- bars


def test_a_bar_holds_in_the_conversation_it_was_put_up_in_from_there_on() -> None:
    bars = Bars()
    items = items_of(entry_id="e", exact_key=None, answer_digest=None)
    bars.add(scopes_of(ask("a", "b", "no"), here=True), items)
    assert bars.bars(ask("a", "b", "no", "sorry", "a"), items)
    assert bars.bars(ask("a", "b", "no", "sorry", "a", "c", "d"), items)
    for other in (ask("a"), ask("a", "b", "yes", "sorry", "a"), ask("a", "B", "no", "sorry", "a"), ask("no")):
        assert not bars.bars(other, items)
    assert not bars.bars(ask("a", "b", "no", "sorry", "a", who="bob"), items)
    assert not bars.bars(
        ask("a", "b", "no", "sorry", "a"), items_of(entry_id="f", exact_key=b"k", answer_digest=text_digest("t"))
    )


def test_a_bar_of_a_session_holds_in_that_session_of_that_partition_only() -> None:
    bars = Bars()
    items = items_of(entry_id=None, exact_key=b"k" * 32, answer_digest=None)
    bars.add(scopes_of(ask("no", session="s"), here=True), items)
    assert bars.bars(ask("anything", session="s"), items)
    assert not bars.bars(ask("anything", session="t"), items)
    assert not bars.bars(ask("anything", session="s", who="bob"), items)
    assert not bars.bars(ask("anything"), items)


@given(st.lists(any_text, min_size=1, max_size=7), st.lists(any_text, min_size=1, max_size=7))
def test_the_scope_of_one_conversation_is_in_another_only_as_its_beginning(one: list[str], two: list[str]) -> None:
    (scope,) = scopes_of(ask(*one), here=True)
    inside = scope in scopes_of(ask(*two), here=False)
    assert inside == (len(one) < len(two) and two[: len(one)] == one)


def test_the_same_words_in_another_normalisation_form_are_the_same_answer() -> None:
    assert text_digest("café") == text_digest("cafe\u0301")
    assert text_digest("café") != text_digest("cafe")


# ------------------------------------------------------------------------------------------------- settings


def test_every_setting_says_what_it_is_and_in_which_unit() -> None:
    units = ("_s", "_ms", "_mib", "_kib", "_days", "_hours", "_variance", "_cosine", "_tokens")
    for name, field in StoreSettings.model_fields.items():
        assert field.description, name
        if field.annotation is float:
            assert name.endswith(units), name


@pytest.mark.parametrize(
    "wrong", [{"default_ttl_s": 0}, {"lookup_deadline_ms": -1}, {"write_queue_size": 0}, {"unknown": 1}]
)
def test_a_setting_without_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        StoreSettings(**wrong)


def test_values_that_cross_the_border_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        kept("e").id = "f"  # type: ignore[misc]
