"""The small Unigram tokenizer agrees with the `tokenizers` library."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from fingerprint.embedding.unigram import Unigram

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
ALPHABET = "▁abc怎么重置é"


def vocabulary() -> list[tuple[str, float]]:
    rng = random.Random(3)
    pieces = {letter for letter in ALPHABET if letter != "c"}  # "c" alone is unknown
    while len(pieces) < 120:
        length = rng.randint(2, 5)
        start = rng.choice(["", "▁"])
        pieces.add(start + "".join(rng.choice(ALPHABET[1:]) for _ in range(length)))
    return [(piece, 0.0) for piece in SPECIAL] + [(piece, -rng.uniform(1, 9)) for piece in sorted(pieces)]


PIECES = vocabulary()
OURS = Unigram([p for p, _ in PIECES], [s for _, s in PIECES], 3, frozenset({0, 1, 2}))
THEIRS = Tokenizer(models.Unigram(PIECES, unk_id=3, byte_fallback=False))
THEIRS.normalizer = normalizers.Sequence(
    [normalizers.NFKC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
)
THEIRS.pre_tokenizer = pre_tokenizers.Metaspace()


@given(st.text(st.sampled_from(ALPHABET.replace("▁", "") + " \n x"), max_size=40))
def test_the_best_path_is_the_library_s(text: str) -> None:
    theirs = THEIRS.encode(text, add_special_tokens=False).ids
    assert OURS.encode(text) == theirs


def test_of_two_orders_of_the_same_pieces_the_library_s_is_taken() -> None:
    assert OURS.encode("bé么么么") == THEIRS.encode("bé么么么", add_special_tokens=False).ids


@given(st.text(st.characters(), max_size=60))
def test_no_text_breaks_it_or_yields_a_special_token(text: str) -> None:
    assert not {0, 1, 2} & set(OURS.encode(text))


def test_nothing_gives_nothing_and_width_is_folded() -> None:
    assert OURS.encode(" \n\t　") == []
    assert OURS.encode("ａｂ") == OURS.encode("ab")
