"""Nothing the store suffers reaches a request: a failure is a miss or a dropped write, in bounded time, counted."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from store.cache import Cache
from store.errors import StoreInUse, StoreUnavailable, UnsupportedStore
from store.sqlite import SqliteDatabase
from tests.store.support import Open, WordEmbedder, another_writer, ask, on_both_engines, say

CAPITAL = "what is the capital of portugal"
REWORDED = "what is the capital city of portugal"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the whole database, readers shut out too."""
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("PRAGMA locking_mode = EXCLUSIVE")
    blocker.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        blocker.execute("ROLLBACK")
        blocker.close()


async def assert_everything_answers(cache: Cache) -> None:
    """Whatever is broken, no call on the path of a request raises or hangs."""
    async with asyncio.timeout(30):
        cache.exact_now(ask(CAPITAL))
        await cache.exact(ask("never asked before"))
        await cache.search(ask("never asked before either"))
        cache.record(ask("and a new one"), say("fine"))
        hit = cache.exact_now(ask("and a new one"))
        if hit is not None:
            cache.follow(ask("and a new one"), hit)
        cache.served_before(ask(CAPITAL))
        await cache.correct(ask(CAPITAL, "Lisbon", "no"))


def moved_aside(folder: Path) -> list[Path]:
    return list(folder.glob("antiphon.db.corrupt-*Z"))


def hold_readers(cache: Cache, release: threading.Event) -> None:
    """Keep every reading thread busy, as a disk that hangs does."""
    for _ in range(cache.settings.read_threads):
        cache._readers._pool.submit(release.wait)


@on_both_engines
async def test_a_locked_database_is_a_miss_and_its_writes_wait(open_cache: Open, store_url: str) -> None:
    cache = await open_cache(lookup_deadline_ms=100, busy_timeout_ms=20)
    with another_writer(store_url):
        await assert_everything_answers(cache)
        assert cache.failures.counts().get("write.waiting_for_lock", 0) > 0
        assert len(cache._writer) > 0  # what waits for the database is not done, though it has left the queue
    assert await cache.flush()
    assert len(cache._writer) == 0
    assert await cache.exact(ask("and a new one")) is not None
    assert (await cache.stats()).entries == 1


@on_both_engines
async def test_a_lock_that_never_ends_drops_writes_and_counts_them(open_cache: Open, store_url: str) -> None:
    cache = await open_cache(lookup_deadline_ms=100, busy_timeout_ms=10, locked_patience_s=0.1)
    with another_writer(store_url):
        entry = cache.record(ask(CAPITAL), say("Lisbon"))
        assert not await cache.flush()
        assert cache.failures.counts()["write.locked"] >= 1
        with pytest.raises(StoreUnavailable, match="locked"):
            await cache.retract(entry)
        assert cache.exact_now(ask(CAPITAL)) is None  # retracted for this process all the same
    cache.record(ask(REWORDED), say("Lisbon"))
    assert await cache.flush()


async def test_a_database_nobody_can_read_is_a_miss(open_cache: Open, tmp_path: Path) -> None:
    cache = await open_cache(lookup_deadline_ms=100, busy_timeout_ms=10, locked_patience_s=0.1)
    cache.record(ask(CAPITAL), say("Lisbon"))
    await cache.flush()
    cache._database.readers.dispose()
    cache._database.writer.dispose()
    cache._database.upkeep.dispose()
    with locked(tmp_path / "antiphon.db"):
        await assert_everything_answers(cache)
        assert cache.exact_now(ask(CAPITAL)) is not None  # what is in memory needs no database
        assert (await cache.search(ask(REWORDED)))[1] is None
        with pytest.raises(StoreUnavailable):
            await cache.stats()
        assert {"read.locked", "read.slow"} & cache.failures.counts().keys()


@on_both_engines
async def test_a_reading_thread_that_hangs_costs_one_deadline_and_then_nothing(open_cache: Open) -> None:
    cache = await open_cache(lookup_deadline_ms=30)
    cache.record(ask(CAPITAL), say("Lisbon"))
    await cache.flush()
    release = threading.Event()
    try:
        hold_readers(cache, release)
        cache._known.forget()  # else a question nobody has asked costs no look
        for number in range(80):
            assert await cache.exact(ask(f"question {number}")) is None
        counts = cache.failures.counts()
        assert counts["read.slow"] == 5  # then the breaker is open
        decision, hit = await cache.search(ask(REWORDED))
        assert (decision.level, decision.reason, hit) == ("miss", "read: pausing after failures", None)
    finally:
        release.set()


@on_both_engines
async def test_a_full_queue_drops_and_counts_and_still_answers_from_memory(open_cache: Open, store_url: str) -> None:
    cache = await open_cache(write_queue_size=3, busy_timeout_ms=10)
    old = cache.record(ask(CAPITAL), say("Porto"))
    await cache.flush()
    with another_writer(store_url):
        for number in range(300):
            cache.record(ask(f"question {number}"), say("fine"))
        cache.record(ask(CAPITAL), say("Lisbon"))
        assert cache.failures.counts()["write.queue_full"] >= 290
        # What could not be written is no reason to serve what it replaced.
        for query in (ask(CAPITAL), ask(REWORDED)):
            assert await cache.exact(query) is None
            decision, hit = await cache.search(query)
            assert hit is None
            assert old not in [judgement.entry_id for judgement in decision.judgements]
    await cache.flush()


async def test_a_full_disk_drops_writes_counts_them_and_heals(open_cache: Open) -> None:
    cache = await open_cache()
    cache.record(ask(CAPITAL), say("Lisbon"))
    await cache.flush()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, limits[1]))
    try:
        for number in range(50):
            cache.record(ask(f"question {number}"), say(f"{number}" * 5000))
        assert not await cache.flush()
        await assert_everything_answers(cache)
        assert (await cache.search(ask(REWORDED)))[1] is not None  # what is there is served
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    counts = cache.failures.counts()
    assert any(kind in counts for kind in ("write.full", "write.io")), counts
    entry = cache.record(ask("after the disk was emptied"), say("fine"))
    assert await cache.flush()
    row = await cache.entry(entry)
    assert row is not None


async def test_a_database_overwritten_while_it_is_used_is_a_miss_and_replaced_at_the_next_start(
    open_cache: Open, tmp_path: Path
) -> None:
    cache = await open_cache()
    cache.record(ask(CAPITAL), say("Lisbon"))
    await cache.flush()
    for path in (tmp_path / "antiphon.db", tmp_path / "antiphon.db-wal"):
        path.write_bytes(b"\xa5" * 200_000)
    cache._database.readers.dispose()
    cache._database.writer.dispose()
    cache._database.upkeep.dispose()
    await assert_everything_answers(cache)
    assert cache.exact_now(ask(CAPITAL)) is not None
    assert (await cache.search(ask(REWORDED)))[1] is None
    assert "read.corrupt" in cache.failures.counts()
    await cache.close()
    cache = await open_cache()
    assert (await cache.stats()).entries == 0
    assert len(moved_aside(tmp_path)) == 1


@pytest.mark.parametrize("damage", ["garbage", "truncated", "a page"])
async def test_a_damaged_file_is_moved_aside_with_a_word_in_the_log(
    damage: str, open_cache: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = await open_cache()
    for number in range(40):
        cache.record(ask(f"question {number}"), say("x" * 2000))
    await cache.flush()
    await cache.close()
    path = tmp_path / "antiphon.db"
    data = bytearray(path.read_bytes())
    if damage == "garbage":
        data[:] = b"this was a database once" * 1000
    elif damage == "truncated":
        del data[len(data) // 2 :]
    elif damage == "a page":
        data[4096 * 8 : 4096 * 30] = b"\xff" * (4096 * 22)
    path.write_bytes(data)
    cache = await open_cache()
    assert (await cache.stats()).entries == 0
    cache.record(ask(CAPITAL), say("Lisbon"))
    assert await cache.flush()
    assert len(moved_aside(tmp_path)) == 1
    assert "is damaged" in caplog.text


@pytest.mark.parametrize("kind", ["text", "another program's database"])
async def test_somebody_elses_file_is_refused_and_left_as_it_is(kind: str, open_cache: Open, tmp_path: Path) -> None:
    path = tmp_path / "antiphon.db"
    if kind == "text":
        path.write_text("My notes.\n")
    else:
        with closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TABLE bookmarks (url TEXT)")
            other.commit()
    before = path.read_bytes()
    with pytest.raises(UnsupportedStore, match="left alone"):
        await open_cache()
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["antiphon.db"]  # noqa: ASYNC240


async def test_a_backup_put_in_place_without_its_lock_file_is_used(open_cache: Open, tmp_path: Path) -> None:
    cache = await open_cache()
    cache.record(ask(CAPITAL), say("Lisbon"))
    await cache.flush()
    await cache.close()
    (tmp_path / "antiphon.db.lock").unlink()
    assert (await (await open_cache()).stats()).entries == 1


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE vectors SET query = x'00' WHERE number = 3",
        "UPDATE vectors SET query = x'0000' WHERE number = 3",
        "UPDATE vectors SET window = x'00' WHERE number = 3",
        "UPDATE entries SET question = x'01ff' WHERE number = 3",
        "UPDATE entries SET answer = x'00c1' WHERE number = 3",
    ],
)
async def test_one_damaged_row_costs_nothing_but_itself(damage: str, open_cache: Open, tmp_path: Path) -> None:
    cache = await open_cache()
    for number in range(10):
        cache.record(ask("hello there", "hi", f"question {number} of ten"), say(f"answer {number}"))
    await cache.flush()
    await cache.close()
    with sqlite3.connect(tmp_path / "antiphon.db") as database:
        assert database.execute(damage).rowcount == 1
    cache = await open_cache()
    for number in range(10):
        await cache.exact(ask("hello there", "hi", f"question {number} of ten"))
        _, hit = await cache.search(ask("hello there", "hi", f"question {number} of ten please"))
        if number != 2:
            assert hit is not None
            assert hit.answer.text == f"answer {number}"
    assert len(await cache.entries(limit=20, after=None, where={})) == 10


@on_both_engines
async def test_an_embedder_that_raises_is_a_miss_and_the_entry_is_found_by_its_words(open_cache: Open) -> None:
    class Dead(WordEmbedder):
        def encode(self, texts):  # type: ignore[no-untyped-def]
            raise RuntimeError("out of memory")

    cache = await open_cache(embedder=Dead())
    for number in range(10):
        cache.record(ask(f"question {number}"), say("fine"))
        decision, hit = await cache.search(ask(f"question {number} please"))
        assert (decision.level, hit) == ("miss", None)
    assert await cache.flush()
    assert await cache.exact(ask("question 3")) is not None
    assert sum(count for kind, count in cache.failures.counts().items() if kind.startswith("embed.")) == 10


@on_both_engines
async def test_an_embedder_that_hangs_costs_its_deadline(open_cache: Open) -> None:
    release = threading.Event()

    class Slow(WordEmbedder):
        def encode(self, texts):  # type: ignore[no-untyped-def]
            release.wait(20)
            return super().encode(texts)

    cache = await open_cache(embedder=Slow(), embed_deadline_ms=30)
    try:
        decision, hit = await cache.search(ask(CAPITAL))
        assert (decision.level, decision.reason, hit) == ("miss", "no vector in time", None)
        assert cache.failures.counts() == {"embed.slow": 1}
    finally:
        release.set()


@on_both_engines
async def test_a_decision_that_hangs_costs_its_deadline(open_cache: Open) -> None:
    release = threading.Event()

    def objections(query, candidate, same_place):  # type: ignore[no-untyped-def]
        release.wait(20)
        return (), ()

    cache = await open_cache(objections=objections, decide_deadline_ms=30)
    cache.record(ask(CAPITAL), say("Lisbon"))
    await cache.flush()
    try:
        decision, hit = await cache.search(ask(REWORDED))
        assert (decision.level, decision.reason, hit) == ("miss", "decide: slow", None)
    finally:
        release.set()


async def test_an_index_that_lost_its_vectors_is_a_miss(cache: Cache) -> None:
    cache.record(ask(CAPITAL), say("Lisbon"))
    await cache.flush()
    cache._index._shelves.clear()  # type: ignore[attr-defined]
    decision, hit = await cache.search(ask(REWORDED))
    assert (decision.reason, hit) == ("no candidate", None)
    assert await cache.exact(ask(CAPITAL)) is not None


async def test_two_caches_on_one_file_are_refused(open_cache: Open) -> None:
    first = await open_cache()
    with pytest.raises(StoreInUse, match="used by another proxy"):
        await open_cache()
    await first.close()
    await open_cache()


async def test_readers_beside_the_proxy_are_welcome(cache: Cache, tmp_path: Path) -> None:
    cache.record(ask(CAPITAL), say("Lisbon"))
    await cache.flush()
    with sqlite3.connect(f"file:{tmp_path}/antiphon.db?mode=ro", uri=True) as reader:
        assert reader.execute("SELECT count(*) FROM entries").fetchone() == (1,)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+asyncpg://localhost/antiphon",
        "mysql://localhost/antiphon",
        "redis://localhost",
        "sqlite+aiosqlite:///x.db",
        "sqlite:///x.db?mode=ro",
        "not a url",
        "",
    ],
)
async def test_a_database_this_release_cannot_use_is_refused_in_one_line(open_cache: Open, url: str) -> None:
    with pytest.raises(UnsupportedStore) as refused:
        await open_cache(url=url)
    assert "\n" not in str(refused.value)


async def test_a_folder_that_cannot_be_used_is_said(open_cache: Open, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match="cannot be used"):
        await open_cache(url=f"sqlite:///{tmp_path}/file/antiphon.db")


async def test_a_temporary_store_is_gone_when_it_is_closed(open_cache: Open) -> None:
    cache = await open_cache(url="sqlite://")
    assert isinstance(cache._database, SqliteDatabase)
    folder = cache._database.path.parent
    cache.record(ask(CAPITAL), say("Lisbon"))
    await cache.flush()
    assert folder.exists()
    await cache.close()
    assert not folder.exists()


@on_both_engines
async def test_after_closing_nothing_raises_on_the_path_of_a_request(cache: Cache) -> None:
    await cache.close()
    await cache.close()
    await assert_everything_answers(cache)


@on_both_engines
async def test_no_failure_s_log_line_holds_a_word_of_a_conversation(
    open_cache: Open, store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    cache = await open_cache(lookup_deadline_ms=50, busy_timeout_ms=10, locked_patience_s=0.05)
    with another_writer(store_url):
        cache.record(ask("my secret question"), say("my secret answer"))
        await cache.flush()
    assert "store failure write.locked" in caplog.text
    assert "secret" not in caplog.text
