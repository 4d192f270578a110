"""The second stage of the reuse confidence: a small cross-encoder that reads both conversations at once.

Two models, one a language group: six layers of MiniLM for Latin scripts; for all others the English model gone on
training in Chinese, with the words of multilingual-e5-small mapped into its space. Both come from
``eval.train.cross_encoder`` and are shipped as int8 ONNX graphs without their word tables, 12 MB each: the words come
from the exports the embedders use anyway (``fingerprint.embedding.prepare``).

A pair is read in both orders and the logits are averaged; where the caller finds the first reading enough, the second
is spared. Which order comes first depends on the texts alone, so the score is symmetric either way. It is a plain
logit, neither calibrated nor comparable between the two models; whoever combines it asks ``route`` which one it came
from. Never trust it alone: it is weak where only the order of the same words differs ("from A to B", "from B to A"),
which is what the guards and the order comparisons of the first stage are for.
"""

from __future__ import annotations

import functools
import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from fingerprint.conversation import Turn
from fingerprint.embedding.packed_e5 import unpack_rows
from fingerprint.embedding.prepare import MINILM, MULTILINGUAL_E5, TOKENIZER, WORDS, Source, ensure
from fingerprint.embedding.unigram import Unigram, load_unigram
from fingerprint.runtime import one_thread_options, ort
from fingerprint.text import encodable, script_of
from store.confidence.pair_text import READING, SCHEMA_VERSION, Encoded, PairReader

__all__ = ["ArtefactError", "CrossEncoder", "Route", "unigram_tokens", "wordpiece_tokens"]

Route = Literal["en", "zh"]
ROUTES: Final[tuple[Route, ...]] = ("en", "zh")
_SOURCES: Final[dict[Route, Source]] = {"en": MINILM, "zh": MULTILINGUAL_E5}
_MOST_ROUTED_CHARACTERS: Final = 2000
_SLOW: Final = ["SkipLayerNormFusion"]
"""Rewrites of onnxruntime that cost more than they save: its joined kernel needs eight times as long as both nodes."""
_Tokens = tuple[Sequence[int], Sequence[tuple[int, int]]]


class ArtefactError(RuntimeError):
    """An artefact is missing, damaged, or made for another version of the code."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    """One model, ready to run."""

    session: ort.InferenceSession
    reader: PairReader
    words: Callable[[NDArray[np.int64]], NDArray[np.float32]]  # ids (tokens,) to (tokens, width)

    def logit(self, pair: Encoded) -> float:
        """What the model says of one pair in one order."""
        feeds: dict[str, NDArray[Any]] = {
            "words": self.words(pair.ids)[np.newaxis],
            "markers": pair.markers[np.newaxis],
            "sides": pair.sides[np.newaxis],
            "last": pair.last[np.newaxis],
        }
        (logits,) = self.session.run(["logit"], feeds)
        return float(np.asarray(logits)[0])


def wordpiece_tokens(file: Path) -> Callable[[str], _Tokens]:
    """Tokens of an English BERT, from its ``tokenizer.json``."""
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True  # a text that spells out "[SEP]" is read as text

    def tokenise(text: str) -> _Tokens:
        encoding = tokenizer.encode(encodable(text), add_special_tokens=False)
        return encoding.ids, encoding.offsets

    return tokenise


def unigram_tokens(unigram: Unigram, pieces: Sequence[str]) -> Callable[[str], _Tokens]:
    """Tokens of a multilingual model, with the place of each found again by reading along."""

    def tokenise(text: str) -> _Tokens:
        ids = unigram.encode(encodable(text))
        places: list[tuple[int, int]] = []
        at = 0
        for index in ids:
            piece = pieces[index].replace("▁", "")
            found = text.find(piece, at) if piece and index != unigram.unknown else -1
            if found < 0:
                places.append((at, at))
            else:
                at = found + len(piece)
                places.append((found, at))
        return ids, places

    return tokenise


class CrossEncoder:
    """Scores pairs of turns; each model is loaded at the first pair that needs it. Safe to share between threads."""

    def __init__(self, artefacts: dict[Route, Path], folders: Sequence[Path] | None = None) -> None:
        """``folders`` are where the exports of the embedders lie, as for ``prepare.ensure``."""
        self._artefacts = artefacts
        self._folders = folders
        self._lock = threading.Lock()
        self._models: dict[Route, _Loaded] = {}
        digest = hashlib.blake2b(digest_size=6)
        for route in ROUTES:
            digest.update(_file_digest(artefacts[route]))
        self._version = f"cross-{SCHEMA_VERSION}.{READING}-{digest.hexdigest()}"

    @classmethod
    def load(cls, folders: Sequence[Path] | None = None) -> CrossEncoder:
        """The shipped models. Raises `ArtefactError` where their files are missing."""
        folder = Path(str(resources.files("store.confidence"))) / "artefacts"
        return cls({route: folder / f"cross_encoder_{route}.onnx" for route in ROUTES}, folders)

    @property
    def version(self) -> str:
        """Hash of the artefacts and of the way conversations are read."""
        return self._version

    def warm_up(self, *routes: Route) -> None:
        """Load models now (all, where none is named). Raises `ArtefactError`, `NotPreparedError`."""
        for route in routes or ROUTES:
            self._model(route)

    @staticmethod
    def route(query: Turn, candidate: Turn) -> Route:
        """Which model reads this pair; symmetric."""
        for turn in (query, candidate):
            recent = [m.text[:_MOST_ROUTED_CHARACTERS] for m in (*turn.history[-2:], turn.message)]
            if any(script_of(text) not in ("latin", "none") for text in recent):
                return "zh"
        return "en"

    def score(self, query: Turn, candidate: Turn, *, enough: Callable[[float], bool] | None = None) -> float:
        """The logit that one answer serves both turns, averaged over both orders; symmetric and deterministic.

        ``enough`` is asked about the logit of the first reading; where it is content, that is the score, for half the
        time. Time is bounded: a pair is cut to about 200 tokens whatever its size. Raises `ArtefactError` and
        `NotPreparedError` where a model cannot be loaded.
        """
        model = self._model(self.route(query, candidate))
        forth, back = model.reader.read(*sorted((query, candidate), key=_said))
        once = model.logit(forth)
        if enough is not None and enough(once):
            return once
        return (once + model.logit(back)) / 2

    def _model(self, route: Route) -> _Loaded:
        with self._lock:
            if route not in self._models:
                self._models[route] = _load(route, self._artefacts[route], self._folders)
            return self._models[route]


def _said(turn: Turn) -> list[str]:
    return [m.text for m in (turn.message, *turn.history, *turn.system)]


@functools.lru_cache(maxsize=8)
def _digest_of(path: Path, _size: int, _changed: int) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32)).digest()


def _file_digest(path: Path) -> bytes:
    try:
        stat = path.stat()
    except OSError as error:
        raise ArtefactError(f"no artefact at {path}") from error
    return _digest_of(path, stat.st_size, stat.st_mtime_ns)


def _load(route: Route, artefact: Path, folders: Sequence[Path] | None) -> _Loaded:
    try:
        session = ort.InferenceSession(
            str(artefact), one_thread_options(), providers=["CPUExecutionProvider"], disabled_optimizers=_SLOW
        )
        meta = json.loads(session.get_modelmeta().custom_metadata_map["antiphon"])
    except Exception as error:  # onnxruntime raises many kinds
        raise ArtefactError(f"{artefact.name} cannot be loaded: {error}") from error
    if meta["schema"] != SCHEMA_VERSION:
        raise ArtefactError(f"{artefact.name} was made for schema {meta['schema']}, this is {SCHEMA_VERSION}")
    export, manifest = ensure(_SOURCES[route], folders)
    table = np.load(export / WORDS, mmap_mode="r")
    if manifest.tokenizer == "wordpiece":
        tokenise = wordpiece_tokens(export / TOKENIZER)
    else:
        unigram = load_unigram(export / TOKENIZER, manifest.unknown, frozenset(manifest.special))
        tokenise = unigram_tokens(unigram, unigram.pieces)

    def words(ids: NDArray[np.int64]) -> NDArray[np.float32]:
        rows = table[ids]
        return unpack_rows(rows) if rows.dtype == np.uint8 else np.asarray(rows, dtype=np.float32)

    reader = PairReader(
        tokenise,
        cls=manifest.first,
        sep=manifest.last,
        last_tokens=meta["last_tokens"],
        context_tokens=meta["context_tokens"],
    )
    return _Loaded(session, reader, words)
