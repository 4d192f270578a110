"""A BERT sentence embedder: tokens, rows of a memory-mapped word table, one onnxruntime session, mean over tokens."""

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from fingerprint.embedding.base import Embedding, UnreadableError, Vector
from fingerprint.embedding.packed_e5 import unpack_rows
from fingerprint.embedding.unigram import Unigram
from fingerprint.runtime import one_thread_options, ort
from fingerprint.text import normalise, scripts_of

__all__ = ["BertEmbedder", "Pieces", "UnigramPieces", "WordPieces", "make_session"]

_PRIVATE: Final = re.compile(r"[\ue000-\uf8ff\U000f0000-\U0010ffff]")
_MOST_CHARACTERS: Final = 20_000  # read of one text; far more than any window, and tokenizing stays bounded
_AT_ONCE: Final = 16  # texts of one length; more do not make it faster
_MOST_CHUNKS: Final = 4  # windows read of a text that is longer than one
_MOST_TOKEN_CHARACTERS: Final = 12  # no tokenizer here makes tokens that are longer on average


def make_session(model: Path) -> ort.InferenceSession:
    """Open ``model`` for one CPU thread and little memory: no arena that only grows, weights mapped from the file."""
    options = one_thread_options()
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    return ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


class Pieces(ABC):
    """Text to token ids without special tokens, or ``None`` where something in it has no token."""

    @abstractmethod
    def ids(self, text: str) -> list[int] | None:
        """Return at least one id, or ``None``: unreadable, or nothing to read."""


class WordPieces(Pieces):
    """The tokenizer of an English BERT. It reads Latin letters; the few others in its vocabulary mean little to it."""

    def __init__(self, file: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(file))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._unknown = self._tokenizer.token_to_id("[UNK]")
        self._special = frozenset(
            self._tokenizer.token_to_id(token) for token in ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")
        )

    def ids(self, text: str) -> list[int] | None:
        """Return ids for a text in Latin letters all of whose words have pieces."""
        # The library drops private-use characters without a word; whoever uses them means something.
        if not scripts_of(text) <= {"latin"} or _PRIVATE.search(text):
            return None
        try:
            ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        except (UnicodeEncodeError, TypeError):  # lone surrogates
            return None
        # A text that spells out "[SEP]" would be read as the sign itself.
        return ids if ids and self._special.isdisjoint(ids) else None


class UnigramPieces(Pieces):
    """The tokenizer of a multilingual model."""

    def __init__(self, unigram: Unigram) -> None:
        self._unigram = unigram

    def ids(self, text: str) -> list[int] | None:
        """Return ids for a text in any script, provided that no sign in it is unknown."""
        ids = self._unigram.encode(text)
        return ids if ids and self._unigram.unknown not in ids else None


class BertEmbedder:
    """One vector space made by a BERT encoder; an `Embedder`.

    The session and the tokenizer are loaded at the first text (or by `warm_up`), so that an embedder no traffic asks
    for costs no memory. Texts run one by one at their own length: a vector is the same to the bit whatever its batch.
    """

    def __init__(
        self,
        name: str,
        dimensions: int,
        *,
        window: int,
        prefix: str,
        first: int,
        last: int,
        model: Path,
        words: Path,
        pieces: Callable[[], Pieces],
    ) -> None:
        """``window`` counts the special tokens and the prefix; ``prefix`` is put before every text."""
        self._name = name
        self._dimensions = dimensions
        self._window = window
        self._prefix = prefix
        self._first = first
        self._last = last
        self._model = model
        self._words_file = words
        self._make_pieces = pieces
        self._lock = threading.Lock()
        self._loaded: tuple[Pieces, ort.InferenceSession, NDArray[np.generic], list[int]] | None = None

    @property
    def name(self) -> str:
        """Name of the vector space, with the hash of its weights."""
        return self._name

    @property
    def dimensions(self) -> int:
        """Length of every vector."""
        return self._dimensions

    def warm_up(self) -> None:
        """Load what the first text would have to wait for."""
        self._load()

    def rest(self) -> None:
        """Give up the session and the tokenizer; the next text loads them anew."""
        with self._lock:
            self._loaded = None

    def readable(self, text: str) -> bool:
        """Say whether there are tokens for everything in ``text`` and anything in it at all."""
        return self._ids(text)[0] is not None

    def encode(self, texts: Sequence[str]) -> list[Embedding | None]:
        """Embed each text; ``None`` for one that is not readable."""
        return [self._encode(text) for text in texts]

    def encode_many(self, texts: Sequence[str]) -> list[Embedding | None]:
        """Embed many texts at less cost each: those of one length run together, so that nothing is padded.

        A vector may differ from that of `encode` in its last bits (below 1e-6 an element).
        """
        out: list[Embedding | None] = [None] * len(texts)
        lengths: dict[int, list[tuple[int, list[int]]]] = {}
        room = self._window - 2 - len(self._load()[3])
        for place, text in enumerate(texts):
            ids, cut = self._ids(text)
            if ids is not None and not cut and len(ids) <= room:
                lengths.setdefault(len(ids), []).append((place, ids))
            elif ids is not None:
                out[place] = self._encode(text)
        for same in lengths.values():
            for start in range(0, len(same), _AT_ONCE):
                some = same[start : start + _AT_ONCE]
                for (place, _), mean in zip(some, self._run_many([ids for _, ids in some]), strict=True):
                    norm = np.float32(np.linalg.norm(mean))
                    out[place] = Embedding(mean / max(norm, np.float32(1e-12)), self._name, False)
        return out

    def embed(self, texts: Sequence[str]) -> Vector:
        """Return float32 (texts, dimensions), L2 norm 1; raises `UnreadableError`."""
        vectors = np.empty((len(texts), self._dimensions), np.float32)
        for row, embedding in enumerate(self.encode(texts)):
            if embedding is None:
                raise UnreadableError(f"text {row} has no tokens in {self._name}")
            vectors[row] = embedding.vector
        return vectors

    def _load(self) -> tuple[Pieces, ort.InferenceSession, NDArray[np.generic], list[int]]:
        if self._loaded is None:
            with self._lock:
                if self._loaded is None:
                    pieces = self._make_pieces()
                    words = np.load(self._words_file, mmap_mode="r")
                    prefix = (pieces.ids(self._prefix) or []) if self._prefix else []
                    self._loaded = (pieces, make_session(self._model), words, prefix)
        return self._loaded

    def _ids(self, text: str) -> tuple[list[int] | None, bool]:
        """Return the ids of ``text`` and whether some of it was left out unread."""
        pieces = self._load()[0]
        text = normalise(text)
        most = min(_MOST_CHARACTERS, _MOST_TOKEN_CHARACTERS * _MOST_CHUNKS * self._window)
        if len(text) <= most:
            return pieces.ids(text), False
        return pieces.ids(f"{text[: most // 2]} {text[-most // 2 :]}"), True

    def _encode(self, text: str) -> Embedding | None:
        ids, cut = self._ids(text)
        if ids is None:
            return None
        room = self._window - 2 - len(self._load()[3])
        chunks = [ids[start : start + room] for start in range(0, len(ids), room)]
        partial = cut or len(chunks) > 1
        if len(chunks) > _MOST_CHUNKS:  # evenly spread, the beginning and the end among them
            picks = np.linspace(0, len(chunks) - 1, _MOST_CHUNKS).round().astype(int)
            chunks = [chunks[pick] for pick in picks]
        total = sum(len(chunk) for chunk in chunks)
        mean = np.zeros(self._dimensions, np.float32)
        for chunk in chunks:
            mean += self._run(chunk) * np.float32(len(chunk) / total)
        norm = np.float32(np.linalg.norm(mean))
        return Embedding(mean / max(norm, np.float32(1e-12)), self._name, partial)

    def _run(self, ids: list[int]) -> Vector:
        return np.asarray(self._run_many([ids])[0], np.float32)

    def _run_many(self, many: Sequence[list[int]]) -> Vector:
        """Means over the tokens, float32 (texts, dimensions), of texts that have equally many."""
        _, session, words, prefix = self._load()
        rows = words[[token for ids in many for token in (self._first, *prefix, *ids, self._last)]]
        packed = rows.dtype == np.uint8
        embeddings = unpack_rows(rows.view(np.uint8)) if packed else rows.astype(np.float32, copy=False)
        embeddings = embeddings.reshape(len(many), -1, embeddings.shape[-1])
        mask = np.ones(embeddings.shape[:2], np.float32)
        (mean,) = session.run(["mean"], {"embeddings": embeddings, "mask": mask})
        return np.asarray(mean, np.float32)
