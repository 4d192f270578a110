"""The real embedders: what they read, what they refuse, and that a vector is a vector of its text alone."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from fingerprint.embedding.base import Embedding, UnreadableError, WeightsError
from fingerprint.embedding.bert import BertEmbedder
from fingerprint.embedding.prepare import MINILM, MULTILINGUAL_E5
from fingerprint.embedding.router import Router, load_embedder, load_router


@pytest.fixture(scope="module")
def router() -> Router:
    try:
        MINILM.locate()
        MULTILINGUAL_E5.locate()
    except WeightsError as error:
        pytest.skip(str(error))
    return load_router()


@pytest.fixture(scope="module")
def minilm(router: Router) -> BertEmbedder:
    return load_embedder(MINILM)


def one(router: Router, text: str) -> Embedding:
    (embedding,) = router.encode([text])
    assert embedding is not None
    return embedding


def cosine(router: Router, a: str, b: str) -> float:
    first, second = one(router, a), one(router, b)
    assert first.space == second.space
    return float(first.vector @ second.vector)


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("How do I reset my password?", MINILM), ("Où est la gare ?", MINILM), ("42", MINILM),
        ("怎么重置密码？", MULTILINGUAL_E5),
        ("upgrade 集群 to 1.30", MULTILINGUAL_E5), ("Как дела?", MULTILINGUAL_E5), ("パスワード", MULTILINGUAL_E5),
        ("angle α", MULTILINGUAL_E5), ("I like it 👍", MULTILINGUAL_E5),
    ],
)  # fmt: skip
def test_a_text_goes_to_the_embedder_that_reads_its_script(router: Router, text: str, source: object) -> None:
    assert one(router, text).space == source.space  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", ["", " \n", "\ud800", "\U00013000\U00013001", "a \ue123 b"])
def test_what_nobody_can_read_is_refused(router: Router, text: str) -> None:
    assert router.encode([text]) == [None]


def test_the_english_model_refuses_chinese_instead_of_taking_all_of_it_for_the_same(minilm: BertEmbedder) -> None:
    assert minilm.encode(["怎么重置密码", "ok", "[SEP]"])[0::2] == [None, None]
    assert not minilm.readable("怎么注册账号") and minilm.readable("How?")
    with pytest.raises(UnreadableError):
        minilm.embed(["fine", "怎么注册账号"])


def test_what_means_the_same_is_nearer_than_what_does_not(router: Router) -> None:
    question = "How do I reset my password?"
    assert cosine(router, question, "I forgot my password, how can I change it?") > 0.8
    assert cosine(router, question, "What is the capital of France?") < 0.2
    assert cosine(router, "怎么重置密码？", "如何找回密码") > cosine(router, "怎么重置密码？", "今天午饭吃什么")


def test_vectors_have_norm_one_and_do_not_depend_on_what_else_is_asked(router: Router) -> None:
    texts = ["a", "How do I reset my password?", "怎么重置密码？", "word " * 300, "在吗"]
    together = router.encode(texts)
    for text, embedding in zip(texts, together, strict=True):
        assert embedding is not None and embedding.vector.dtype == np.float32
        assert np.linalg.norm(embedding.vector) == pytest.approx(1, abs=1e-5)
        np.testing.assert_array_equal(embedding.vector, one(router, text).vector)


def test_a_text_longer_than_the_window_is_flagged_and_its_end_still_counts(router: Router) -> None:
    filler = "The train leaves at noon. " * 60
    long = one(router, filler + "Cats sleep all day.")
    other = one(router, filler + "Interest rates rose sharply in March, said the bank.")
    assert long.partial and other.partial
    assert not one(router, "The train leaves at noon.").partial
    assert not np.array_equal(long.vector, other.vector)
    assert one(router, "长" * 600).partial


def test_an_enormous_text_takes_no_longer_than_a_long_one(router: Router) -> None:
    assert one(router, "many words here " * 200_000).partial


def test_normalisation_forms_share_a_vector(router: Router) -> None:
    np.testing.assert_array_equal(one(router, "café").vector, one(router, "cafe\u0301").vector)


def test_the_name_names_every_space(router: Router) -> None:
    assert router.name == f"{MINILM.space}+{MULTILINGUAL_E5.space}"
    assert router.spaces == {MINILM.space: 384, MULTILINGUAL_E5.space: 384}
    with pytest.raises(ValueError, match="different names"):
        Router([])


@pytest.mark.slow
def test_both_embedders_together_stay_small(router: Router) -> None:
    program = (
        "import psutil; from fingerprint.embedding.router import load_router; r = load_router();"
        "[r.encode([text]) for text in ('How do I pay? ' * 30, '怎么付款？' * 60)];"
        "print(psutil.Process().memory_info().rss)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 300 * 2**20
