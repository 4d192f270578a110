"""Embeddings on disk: each distinct text is embedded once, in batches, and never again in a later run.

The file holds no text: vectors under a digest of the text and the name of the embedder. (A vector says something about
its text; the file belongs where the log belongs.)
"""

from __future__ import annotations

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path
from typing import Final

import numpy as np

from eval.audit.errors import AuditError
from fingerprint.embedding.base import Embedding, TextEmbedder
from fingerprint.text import utf8
from store.reading import looking_into

__all__ = ["KeptVectors", "key_of"]

_REMEMBERED: Final = 20_000  # vectors, 1.5 KiB each
_AT_ONCE: Final = 400  # look-ups in one statement
_COLUMNS: Final = ["key", "space", "partial", "vector"]


def key_of(embedder: str, text: str) -> bytes:
    """Return the 16 bytes a text's vector is kept under."""
    key = blake2b(digest_size=16, person=b"antiphon.kept")
    name = utf8(embedder)
    key.update(len(name).to_bytes(8, "big") + name + utf8(text))
    return key.digest()


class KeptVectors:
    """A `TextEmbedder` that answers from the file only: a text that was not made beforehand gives ``None``.

    Any thread may ask; `make` is for one at a time.
    """

    def __init__(self, embedder: TextEmbedder, file: Path) -> None:
        """Open ``file``, or make it. Raises `AuditError` where that cannot be done or it is something else."""
        self._embedder = embedder
        self._lock = threading.Lock()
        self._memory: OrderedDict[bytes, Embedding | None] = OrderedDict()
        self.made = 0
        self.found = 0
        try:
            _refuse_others(file)
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)  # texts of users can be guessed from vectors
            file.touch(mode=0o600)
            self._db = sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=60)
            self._db.executescript(
                "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;"
                "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, space TEXT, partial INTEGER, vector BLOB)"
                " WITHOUT ROWID;"
            )
        except (OSError, sqlite3.Error) as error:
            raise AuditError(f"{file} cannot be used to keep embeddings: {error}") from None

    @property
    def name(self) -> str:
        """The embedder's name: what it would be in the proxy, so that identities are the same."""
        return self._embedder.name

    def key(self, text: str) -> bytes:
        """Return what the vector of ``text`` is kept under."""
        return key_of(self._embedder.name, text)

    def make(
        self, batches: Iterable[Sequence[tuple[bytes, str]]], *, threads: int, done: Callable[[int], None]
    ) -> None:
        """Embed what is not there yet; ``done`` hears of every batch. What is made is kept, also after Ctrl-C."""
        with ThreadPoolExecutor(threads, "antiphon-audit-embed") as pool:
            for batch in batches:
                known = self._known([key for key, _ in batch])
                self.found += len(known)
                new = [(key, text) for key, text in batch if key not in known]
                if new:
                    # Of like length together, so that both threads finish at about the same time.
                    new.sort(key=lambda item: len(item[1]))
                    parts = [new[start::threads] for start in range(threads)]
                    for part, made in zip(parts, pool.map(self._embed, parts), strict=True):
                        self._keep([key for key, _ in part], made)
                    self.made += len(new)
                done(len(batch))
        getattr(self._embedder, "rest", lambda: None)()  # nothing else is embedded

    def encode(self, texts: Sequence[str]) -> list[Embedding | None]:
        """Return what was made of each text; ``None`` where nobody could read it or it was not made."""
        return [self._one(self.key(text)) for text in texts]

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def _embed(self, part: Sequence[tuple[bytes, str]]) -> list[Embedding | None]:
        many = getattr(self._embedder, "encode_many", self._embedder.encode)
        made: list[Embedding | None] = many([text for _, text in part])
        return made

    def _known(self, keys: Sequence[bytes]) -> set[bytes]:
        known: set[bytes] = set()
        with self._lock:
            for start in range(0, len(keys), _AT_ONCE):
                some = keys[start : start + _AT_ONCE]
                marks = ",".join("?" * len(some))
                known |= {
                    key
                    for (key,) in self._db.execute(f"SELECT key FROM vectors WHERE key IN ({marks})", some)  # noqa: S608
                }
        return known

    def _keep(self, keys: Sequence[bytes], made: Sequence[Embedding | None]) -> None:
        rows = [
            (key, None, 0, None)
            if one is None
            else (key, one.space, int(one.partial), one.vector.astype("<f4").tobytes())
            for key, one in zip(keys, made, strict=True)
        ]
        with self._lock:
            self._db.execute("BEGIN")
            self._db.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)", rows)
            self._db.execute("COMMIT")

    def _one(self, key: bytes) -> Embedding | None:
        with self._lock:
            if key in self._memory:
                self._memory.move_to_end(key)
                return self._memory[key]
            row = self._db.execute("SELECT space, partial, vector FROM vectors WHERE key = ?", (key,)).fetchone()
            one = None
            if row is not None and row[2] is not None:
                one = Embedding(np.frombuffer(row[2], "<f4"), row[0], bool(row[1]))
            self._memory[key] = one
            while len(self._memory) > _REMEMBERED:
                self._memory.popitem(last=False)
            return one


def _refuse_others(file: Path) -> None:
    """Raise `AuditError` for a database of something else: a wrong path must cost nobody a file."""
    if not file.is_file() or file.stat().st_size == 0:
        return
    with looking_into(file) as connection:
        found = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        tables = [name for (name,) in found]
        columns = [name for (name,) in connection.execute("SELECT name FROM pragma_table_info('vectors')")]
    if tables and (tables != ["vectors"] or columns != _COLUMNS):
        raise AuditError(f"{file} is a database of something else: it is left alone; name another file for embeddings")
