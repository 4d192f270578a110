"""The index on disk: it saves time, and never decides what is found."""

from __future__ import annotations

import logging
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sqlalchemy import text

from store import reads
from store.counters import Failures
from store.index import VectorIndex, load
from store.index_file import Block, Cell, End, Header, ShelfBlock, Unusable, read, write
from store.neighbours import Bucket
from store.properties import store_token
from store.settings import StoreSettings
from store.sqlite import SqliteDatabase
from tests.store.support import Open, ask, say

DIMENSIONS = 16
SPACE = "space"
LARGE, SMALL = Bucket(b"p" * 32, b"i" * 32, SPACE), Bucket(b"q" * 32, b"i" * 32, SPACE)
Rows = dict[int, NDArray[np.float32]]


def unit(count: int, seed: int = 1) -> NDArray[np.float32]:
    vectors = np.random.default_rng(seed).standard_normal((count, DIMENSIONS))
    scaled: NDArray[np.float32] = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)
    return scaled.astype(np.float32)


class Store:
    """A database with vectors in a large bucket and a small one, and its index file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = SqliteDatabase.take(StoreSettings(url=f"sqlite:///{folder}/antiphon.db", ivf_threshold=1_000))
        self.file = folder / "antiphon.db.index"
        self.rows: dict[Bucket, Rows] = {LARGE: {}, SMALL: {}}
        with self.database.writer.begin() as connection:
            connection.execute(text("PRAGMA defer_foreign_keys = ON"))
            connection.execute(
                text(
                    "INSERT INTO identities VALUES "
                    f"(1, :i{', ' + ', '.join(['' + repr('')] * 12)})"  # every part is empty
                ),
                {"i": b"i" * 32},
            )
        self.insert(LARGE, unit(1_500))
        self.insert(SMALL, unit(30, seed=2))

    def insert(self, bucket: Bucket, vectors: NDArray[np.float32]) -> list[int]:
        with self.database.writer.begin() as connection:
            first = 1 + connection.execute(text("SELECT coalesce(max(number), 0) FROM entries")).scalar_one()
            numbers = list(range(first, first + len(vectors)))
            connection.execute(
                text(
                    "INSERT INTO entries (number, id, partition, identity_number, exact_key, depth, state, version, "
                    "semantic, created_at, expires_at, hit_count, last_used_at, thumbs_up, thumbs_down, "
                    "prompt_tokens, completion_tokens, seconds, question, answer) VALUES (:n, hex(randomblob(16)), "
                    ":p, 1, randomblob(32), 0, 'active', 1, 1, 0, 1e12, 0, 0, 0, 0, 1, 1, 1, x'00', x'00')"
                ),
                [{"n": number, "p": bucket.partition} for number in numbers],
            )
            connection.execute(
                text("INSERT INTO vectors (number, space, query, bucket) VALUES (:n, :s, :q, :b)"),
                [
                    {"n": number, "s": SPACE, "q": vector.astype("<f2").tobytes(), "b": bucket.digest()}
                    for number, vector in zip(numbers, vectors, strict=True)
                ],
            )
        self.rows[bucket] |= dict(zip(numbers, vectors, strict=True))
        return numbers

    def delete(self, bucket: Bucket, numbers: list[int]) -> None:
        with self.database.writer.begin() as connection:
            for number in numbers:
                connection.execute(text("DELETE FROM entries WHERE number = :n"), {"n": number})
                del self.rows[bucket][number]

    def index(self) -> tuple[VectorIndex, Failures]:
        failures = Failures()
        index = self.database.neighbours(StoreSettings(ivf_threshold=1_000))
        with self.database.readers.connect() as connection:
            index.load(connection, 0.0, failures)
        return index, failures

    def from_file(self) -> int:
        """How many vectors a start would take from the file."""
        with self.database.readers.connect() as connection:
            shelves, changed = load(connection, 1_000, Failures(), file=self.file, store=store_token(connection))
        return sum(shelf.size for shelf in shelves.values()) - changed

    def assert_right(self, index: VectorIndex) -> None:
        """The index holds exactly what the database does, each vector where it belongs."""
        assert len(index) == sum(map(len, self.rows.values()))
        for bucket, rows in self.rows.items():
            for number in list(rows)[:: max(1, len(rows) // 40)]:
                (found, similarity), *_ = index.search(bucket, rows[number], 1)
                assert found == number
                assert similarity == pytest.approx(float(rows[number] @ rows[number]), abs=2e-3)
            everything = {number for number, _ in index.search(bucket, unit(1, seed=9)[0], 5_000)}
            assert everything <= rows.keys()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_what_was_written_is_read_at_the_next_start(store: Store) -> None:
    index, failures = store.index()
    store.assert_right(index)
    index.close()
    assert store.file.stat().st_mode & 0o077 == 0
    assert store.from_file() == 1_530
    again, failures = store.index()
    store.assert_right(again)
    assert failures.counts() == {}
    before = store.file.stat().st_mtime_ns
    again.close()  # nothing has changed
    assert store.file.stat().st_mtime_ns == before
    assert list(store.folder.glob("*.new")) == []


def test_what_came_and_went_since_is_made_up_for(store: Store) -> None:
    index, _ = store.index()
    index.close()
    store.delete(LARGE, list(store.rows[LARGE])[10:90])
    store.delete(SMALL, list(store.rows[SMALL]))
    store.insert(LARGE, unit(50, seed=5))
    new = Bucket(b"r" * 32, b"i" * 32, SPACE)
    store.rows[new] = {}
    store.insert(new, unit(20, seed=6))
    assert store.from_file() > 1_200
    index, _ = store.index()
    store.assert_right(index)
    assert index.buckets == 2


def test_a_file_written_while_things_change_is_made_up_for(store: Store) -> None:
    index, _ = store.index()
    gone = list(store.rows[LARGE])[100:200]
    store.delete(LARGE, gone)
    index.remove(LARGE, gone)
    index.save()  # and then the process is killed
    store.insert(LARGE, unit(30, seed=5))
    index, _ = store.index()
    store.assert_right(index)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("missing", "there is no saved vector index {} yet: it is made from the database"),
        ("a folder", "the vector index is made from the database: {} cannot be read (Is a directory)"),
        ("empty", "the vector index is made from the database: {} has another format"),
        ("torn", "the vector index is made from the database: {} is damaged"),
        ("torn between blocks", "the vector index is made from the database: {} is torn"),
        ("a byte", "the vector index is made from the database: {} is damaged"),
        ("another store", "the vector index is made from the database: {} belongs to another store"),
        ("another format", "the vector index is made from the database: {} has another format"),
        ("a huge block", "the vector index is made from the database: {} is damaged"),
    ],
)
def test_a_file_that_is_not_right_costs_time_only_and_the_log_says_why(
    store: Store, damage: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    index, _ = store.index()
    index.close()
    data = bytearray(store.file.read_bytes())
    if damage == "missing":
        store.file.unlink()
    elif damage == "a folder":
        store.file.unlink()
        store.file.mkdir()
    elif damage == "empty":
        store.file.write_bytes(b"")
    elif damage == "torn":
        store.file.write_bytes(data[: len(data) // 2])
    elif damage == "torn between blocks":
        store.file.write_bytes(data[: -len(write_end(store))])
    elif damage == "a byte":
        data[len(data) // 2] ^= 1
        store.file.write_bytes(data)
    elif damage == "another store":
        write(store.file, [Header("other"), End(0)])
    elif damage == "another format":
        store.file.write_bytes(b"antiphon index 9\n" + data[17:])
    else:
        store.file.write_bytes(data[:17] + struct.pack("<QI", 1 << 60, 0) + data[17:])
    assert store.from_file() == 0
    caplog.clear()
    caplog.set_level(logging.INFO)
    index, failures = store.index()
    store.assert_right(index)
    assert failures.counts() == {}
    assert caplog.messages[0] == said.format(store.file)


def write_end(store: Store) -> bytes:
    """The bytes of the last block."""
    write(store.folder / "end", [End(1_530)])
    return (store.folder / "end").read_bytes()[17:]


def test_a_file_of_a_later_life_of_the_same_database_is_not_believed(store: Store) -> None:
    """A backup was restored: the same numbers stand for other vectors now."""
    index, _ = store.index()
    index.close()
    newest = list(store.rows[SMALL])[-3:]
    with store.database.writer.begin() as connection:
        for number, vector in zip(newest, unit(3, seed=8), strict=True):
            connection.execute(
                text("UPDATE vectors SET query = :q WHERE number = :n"),
                {"q": vector.astype("<f2").tobytes(), "n": number},
            )
            store.rows[SMALL][number] = vector
    assert store.from_file() == 0
    index, _ = store.index()
    store.assert_right(index)


def test_a_full_disk_leaves_the_old_file_and_a_word_in_the_log(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    index, _ = store.index()
    index.close()
    before = store.file.read_bytes()
    index.add(LARGE, store.insert(LARGE, unit(1, seed=5)), unit(1, seed=5))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    index.close()
    assert store.file.read_bytes() == before
    assert "could not be written" in caplog.text
    assert list(store.folder.glob("*.new")) == []


def test_a_small_index_has_no_file(tmp_path: Path) -> None:
    index = VectorIndex(1_000, file=tmp_path / "small.index", store="s")
    (tmp_path / "small.index").write_bytes(b"of larger days")
    index.add(SMALL, range(30), unit(30))
    index.close()
    assert list(tmp_path.iterdir()) == []


def test_the_rows_of_a_large_index_are_read_without_the_entries(store: Store) -> None:
    with store.database.readers.connect() as connection:
        found = reads.numbers_by_bucket(connection)
        assert {digest: list(numbers) for digest, numbers in found.items()} == {
            bucket.digest(): sorted(rows) for bucket, rows in store.rows.items()
        }
        plan = [
            row[3]
            for row in connection.execute(
                text("EXPLAIN QUERY PLAN SELECT bucket, number FROM vectors WHERE bucket IS NOT NULL AND number > 0 "
                     "ORDER BY bucket, number")
            )
        ]  # fmt: skip
        assert any("COVERING INDEX ix_vectors_bucket" in step for step in plan), plan


async def test_an_epoch_that_was_raised_leaves_the_older_vectors_out(open_cache: Open) -> None:
    cache = await open_cache()
    cache.record(ask("one two three"), say("yes"))
    await cache.flush()
    await cache.raise_epoch(dry_run=False)
    cache.record(ask("four five six"), say("no"))
    await cache.flush()
    await cache.close()
    cache = await open_cache()
    assert (await cache.stats()).indexed == 1


@given(st.binary(max_size=200))
def test_whatever_is_in_a_file_reading_it_is_a_block_or_unusable(data: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        path.write_bytes(b"antiphon index 1\n" + data)
        with pytest.raises(Unusable):
            list(read(path))


def test_blocks_come_back_as_they_were(tmp_path: Path) -> None:
    blocks: list[Block] = [
        Header("s"),
        ShelfBlock(b"p", b"i", "space", 2, 0, b""),
        Cell(0, b"12345678", b"1234"),
        End(1),
    ]
    write(tmp_path / "index", blocks)
    assert list(read(tmp_path / "index")) == blocks
