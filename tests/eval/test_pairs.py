"""``antiphon eval pairs``: what counts as right and wrong, through the store that serves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eval.data import Pair, pair_of, read_pairs
from eval.pairs import Outcome, figures, measure
from fingerprint.conversation import Turn
from fingerprint.embedding.base import Embedding
from store.types import Candidate, Policy


class Letters:
    """Embeds a text as its letters: enough for neighbours to be near."""

    name = "letters"

    def encode(self, texts: Sequence[str]) -> list[Embedding | None]:
        out: list[Embedding | None] = []
        for text in texts:
            vector = np.full(64, 1e-3, np.float32)
            for letter in text.lower():
                vector[ord(letter) % 64] += 1
            out.append(Embedding(vector / np.float32(np.linalg.norm(vector)), "letters"))
        return out


class Trusting:
    """Takes the cosine for the confidence."""

    version = "test"

    def first(self, query: Turn, candidate: Candidate) -> float:
        return max(0.0, min(1.0, candidate.similarity))

    def second(self, query: Turn, candidate: Candidate, first: float) -> float:
        return first


def pair(name: str, a: list[dict[str, Any]] | str, b: list[dict[str, Any]] | str, equivalent: bool) -> Pair:
    def messages(side: list[dict[str, Any]] | str) -> list[dict[str, Any]]:
        return [{"role": "user", "content": side}] if isinstance(side, str) else side

    row = {
        "id": name,
        "lang": "en",
        "category": "paraphrase" if equivalent else "related",
        "a": {"messages": messages(a)},
        "b": {"messages": messages(b)},
        "equivalent": equivalent,
    }
    return pair_of(row, domain="test")


async def outcomes(pairs: list[Pair], *, shared: bool = False, answer: float = 0.9) -> dict[str, Outcome]:
    policy = Policy(answer=answer, verify=0.5)
    found = await measure(pairs, embedder=Letters(), confidence=Trusting(), policy=policy, shared=shared)
    return {o.pair.id: o for o in found}


async def test_a_reworded_pair_is_a_right_hit_and_a_different_one_that_is_served_a_wrong_hit() -> None:
    pairs = [
        pair("same", "where do I find the museum shop", "where can I find the museum shop", True),
        pair("other", "opening hours of the museum shop", "opening hours of the museum shops", False),
        pair("far", "opening hours of the museum shop", "zzz qqq xxx", False),
    ]
    found = await outcomes(pairs)
    assert (found["same"].served, found["same"].right) == (True, True)
    assert (found["other"].served, found["other"].right) == (True, False)
    assert not found["far"].served
    result = figures(list(found.values()))
    assert (result["right"], result["wrong"], result["n_equivalent"], result["n_different"]) == (1, 1, 1, 2)
    assert set(result["right_at"]) == {"0.01", "0.03", "0.05"}
    assert set(result["categories"]) == {"paraphrase", "related"}
    json.dumps(result)


async def test_every_pair_has_a_cache_of_its_own() -> None:
    pairs = [
        pair("one", "where do I find the museum shop", "zzz qqq xxx", False),
        pair("two", "something else entirely", "where do I find the museum shop now", False),
    ]
    found = await outcomes(pairs)
    assert not found["one"].served and not found["two"].served


async def test_shared_serves_from_all_and_counts_another_pairs_entry_as_wrong() -> None:
    pairs = [
        pair("one", "where do I find the museum shop", "zzz qqq xxx", False),
        pair("two", "something else entirely", "where do I find the museum shop now", True),
    ]
    found = await outcomes(pairs, shared=True)
    assert (found["two"].served, found["two"].right) == (True, False)
    assert figures(list(found.values()))["wrong"] == 1


async def test_shared_leaves_out_pairs_whose_question_is_stored_word_for_word() -> None:
    pairs = [
        pair("one", "where do I find the museum shop", "where can I find the museum shop", True),
        pair("two", "where can I find the museum shop", "where is the museum shop to be found", True),
    ]
    assert set(await outcomes(pairs, shared=True)) == {"one"}


async def test_other_system_messages_are_another_identity_and_never_meet() -> None:
    def chat(system: str) -> list[dict[str, Any]]:
        return [{"role": "system", "content": system}, {"role": "user", "content": "where is the museum shop"}]

    found = await outcomes([pair("one", chat("You are terse."), chat("You are verbose."), False)])
    assert not found["one"].served and found["one"].score == 0


async def test_a_correction_is_never_looked_up() -> None:
    history = [
        {"role": "user", "content": "where is the museum shop"},
        {"role": "assistant", "content": "On the ground floor."},
    ]
    a = [*history, {"role": "user", "content": "No, that is wrong, I meant the café"}]
    found = await outcomes([pair("one", a, a, True)], answer=0.1)
    assert not found["one"].served and found["one"].decision.level == "bypass"


def test_a_file_in_the_pair_format_is_read(tmp_path: Path) -> None:
    row = {
        "id": "x", "lang": "zh", "category": "related", "equivalent": False, "source": "somewhere",
        "a": {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "一"}]},
        "b": {"messages": [{"role": "user", "content": "二"}]},
    }  # fmt: skip
    file = tmp_path / "mine.jsonl"
    file.write_text(json.dumps(row) + "\n\n", encoding="utf-8")
    (read,) = read_pairs(file)
    assert (read.domain, read.a.system[0].text, read.b.message.text) == ("mine", "s", "二")


def test_a_row_without_a_label_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text('{"id": "x", "lang": "en", "category": "related"}\n', encoding="utf-8")
    with pytest.raises(KeyError):
        read_pairs(file)
