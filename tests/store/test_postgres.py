"""What is PostgreSQL's own: the vectors in it, deadlines, the server going away, upgrades at the same time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from numpy.typing import NDArray
from sqlalchemy import Connection, create_engine, make_url, text
from sqlalchemy.exc import OperationalError

from store.counters import Failures
from store.database import Database
from store.errors import StoreUnavailable, UnsupportedStore
from store.halves import to_halfvec
from store.migrations import HEAD
from store.models import Base
from store.neighbours import Bucket
from store.postgres import PostgresDatabase, examine
from store.postgres_index import PostgresIndex
from store.settings import StoreSettings
from tests.postgres import Server, server
from tests.store.support import Open, ask, look_up, say

CAPITAL = "what is the capital of portugal"
REWORDED = "what is the capital city of portugal"


@pytest.fixture
def store_url(postgres_url: str) -> str:
    return postgres_url


def plain(url: str) -> str:
    """The same for psycopg itself."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


async def test_an_answer_is_recorded_found_in_other_words_corrected_and_retracted(open_cache: Open) -> None:
    """The common path in one test, for the fast tier; all of the store's tests run on PostgreSQL as well (slow)."""
    cache = await open_cache()
    entry = cache.record(ask(CAPITAL), say("Lisbon"))
    other = cache.record(ask("in which year did it open"), say("1901"))
    assert await cache.flush()
    hit = await look_up(cache, ask(REWORDED))
    assert hit is not None
    assert (hit.entry_id, hit.exact) == (entry, False)
    await cache.close()
    cache = await open_cache()
    hit = await cache.exact(ask(REWORDED))  # a wording now
    assert hit is not None
    assert hit.answer.text == "Lisbon"
    assert await cache.correct(ask("in which year did it open", "1901", "no, wrong")) == 1
    assert await cache.retract(entry)
    for words in (CAPITAL, REWORDED, "in which year did it open"):
        assert await cache.exact(ask(words)) is None
        assert (await cache.search(ask(words)))[1] is None
    row = await cache.entry(other)
    assert row is not None
    assert row.state == "suspect"
    assert await cache.purge({"state": "suspect"}, dry_run=False) == 1
    assert (await cache.stats()).by_state == {"retracted": 1}
    assert cache.failures.counts() == {}


async def test_vectors_are_half_precision_vectors_of_the_database_itself(open_cache: Open, store_url: str) -> None:
    cache = await open_cache()
    cache.record(ask(CAPITAL, "Lisbon", "and of spain"), say("Madrid"))
    await cache.flush()
    with psycopg.connect(plain(store_url)) as connection:
        found = connection.execute(
            'SELECT pg_typeof(query)::text, vector_dims(query), l2_norm(query), pg_typeof("window")::text FROM vectors'
        ).fetchone()
    assert found is not None
    assert found[:2] == ("halfvec", 64)
    assert found[2] == pytest.approx(1.0, abs=1e-3)
    assert found[3] == "halfvec"


@pytest.mark.filterwarnings("ignore:Did not recognize type 'halfvec'")
def test_the_revisions_make_what_the_models_say(store_url: str) -> None:
    with create_engine(store_url).connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": False})
        assert compare_metadata(context, Base.metadata) == []


def test_a_server_is_examined_without_changing_anything(postgres: Server, store_url: str) -> None:
    seen = examine(store_url)
    assert (seen.pgvector, seen.schema, seen.entries) == ("0.8.5", HEAD, 0)
    assert examine(postgres.url("postgres")).schema is None


@pytest.mark.parametrize("url", ["postgresql+psycopg://nobody@127.0.0.1:1/nothing", "postgresql://127.0.0.1:1/nothing"])
def test_a_server_that_is_not_there_is_said_in_one_line_without_the_password(url: str) -> None:
    with pytest.raises(StoreUnavailable) as refused:
        Database.open(StoreSettings(url=url.replace("nobody", "nobody:pa55word")))
    assert "cannot be used" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "pa55word" not in str(refused.value)


def test_only_one_driver_is_used() -> None:
    with pytest.raises(UnsupportedStore, match="psycopg"):
        Database.open(StoreSettings(url="postgresql+psycopg2://localhost/antiphon"))


async def test_a_statement_over_its_time_is_a_miss_and_frees_its_connection(open_cache: Open, store_url: str) -> None:
    cache = await open_cache(lookup_deadline_ms=400)
    cache.record(ask(CAPITAL), say("Lisbon"))
    await cache.flush()
    cache._memory.clear()
    with psycopg.connect(plain(store_url)) as connection:
        connection.execute("LOCK TABLE entries IN ACCESS EXCLUSIVE MODE")
        for _ in range(2):
            assert await cache.exact(ask(CAPITAL)) is None
        assert cache.failures.counts()["read.slow"] == 2
    await asyncio.sleep(0.5)
    hit = await cache.exact(ask(CAPITAL))
    assert hit is not None
    assert hit.answer.text == "Lisbon"


def test_processes_that_start_together_upgrade_one_after_the_other(postgres: Server) -> None:
    name = "together"
    postgres.execute(f"CREATE DATABASE {name}")
    failed: list[BaseException] = []

    def start() -> None:
        try:
            Database.open(StoreSettings(url=postgres.url(name))).close()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    assert examine(postgres.url(name)).schema == HEAD
    postgres.execute(f"DROP DATABASE {name} WITH (FORCE)")


# ------------------------------------------------------------------------------------------------- nearest


DIMENSIONS = 48
Filled = tuple[PostgresDatabase, dict[Bucket, NDArray[np.float32]]]
SPACE = "it's a space: 100%"  # whatever an embedder calls itself


@pytest.fixture
def filled(
    store_url: str,
) -> Iterator[Filled]:
    """A database with one large, one middling and many small buckets, vectors in clusters."""
    database = Database.open(StoreSettings(url=store_url))
    assert isinstance(database, PostgresDatabase)
    chance = np.random.default_rng(7)
    centres = chance.standard_normal((60, DIMENSIONS))
    sizes = [6_000, 600, *[20] * 70]
    buckets: dict[Bucket, NDArray[np.float32]] = {}
    number = 1  # as the database counts
    with psycopg.connect(plain(store_url)) as connection:
        from pgvector.psycopg import register_vector

        register_vector(connection)
        connection.execute("SET session_replication_role = replica")  # vectors without entries
        with connection.cursor().copy(
            "COPY vectors (number, space, query, bucket) FROM STDIN WITH (FORMAT BINARY)"
        ) as copy:
            copy.set_types(["int8", "text", "halfvec", "bytea"])
            for nth, size in enumerate(sizes):
                bucket = Bucket(bytes([nth]) * 32, b"i" * 32, SPACE)
                vectors = centres[chance.integers(0, 60, size)] + 0.6 * chance.standard_normal((size, DIMENSIONS))
                vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
                buckets[bucket] = vectors.astype(np.float32)
                for vector in vectors:
                    copy.write_row((number, SPACE, to_halfvec(vector.astype(np.float16)), bucket.digest()))
                    number += 1
        connection.execute("ANALYZE vectors")
    yield database, buckets
    database.close()


def test_an_index_is_made_by_one_worker_where_there_is_no_room_for_several(store_url: str) -> None:
    """Workers share their memory in /dev/shm; a container's is small, and that cannot be arranged here."""

    class Full:
        def __init__(self, connection: Connection) -> None:
            self.connection, self.said, self.full = connection, list[str](), True

        def execute(self, *arguments: Any) -> Any:
            return self.connection.execute(*arguments)

        def exec_driver_sql(self, statement: str) -> Any:
            self.said.append(statement)
            if self.full and statement.startswith("CREATE INDEX"):
                self.full = False
                raise OperationalError(statement, None, psycopg.errors.DiskFull("could not resize shared memory"))
            return self.connection.exec_driver_sql(statement)

    index = PostgresIndex(make_url(store_url), exact_below=1)
    index._all = 1_000_000
    with create_engine(store_url, isolation_level="AUTOCOMMIT").connect() as connection:
        full = Full(connection)
        index._make("ix_vectors_near_8_test", "space", 8, full)  # type: ignore[arg-type]
        assert "SET max_parallel_maintenance_workers = 0" in full.said
        valid = connection.execute(
            text("SELECT indisvalid FROM pg_index WHERE indexrelid = 'ix_vectors_near_8_test'::regclass")
        )
        assert valid.scalar_one()
        kib = connection.execute(
            text("SELECT setting::bigint FROM pg_settings WHERE name = 'maintenance_work_mem'")
        ).scalar_one()
        assert kib > 800 * 1024  # a million vectors, in memory


@pytest.mark.slow
def test_the_nearest_of_each_bucket_are_found_through_the_index_as_by_comparing_all(
    filled: Filled,
) -> None:
    database, buckets = filled
    index = PostgresIndex(database.url, exact_below=1_000)
    with database.readers.connect() as connection:
        index.load(connection, 0.0, Failures())
        large = next(iter(buckets))
        index.search(large, buckets[large][0], 5, connection=connection)  # names the space
        index.keep_up()
        assert len(index._valid) == 1
        started = {bucket: 1 + sum(len(v) for v in list(buckets.values())[:nth]) for nth, bucket in enumerate(buckets)}
        right = wanted = 0
        for nth, (bucket, vectors) in enumerate(list(buckets.items())[:12]):
            count = min(32, len(vectors))
            for query in vectors[:: max(1, len(vectors) // 20)]:
                found = index.search(bucket, query, count, connection=connection)
                best = np.argsort(-(vectors @ query))[:count] + started[bucket]
                right += len({number for number, _ in found} & set(best.tolist()))
                wanted += count
                assert all(started[bucket] <= number < started[bucket] + len(vectors) for number, _ in found), nth
                assert found == sorted(found, key=lambda one: -one[1])
                assert found[0][1] == pytest.approx(1.0, abs=2e-3)
        assert right / wanted >= 0.99
        # The large bucket goes through the index, the others are compared as a whole.
        assert not index._is_small(large, 32, connection)
        # So few vectors may cost less to compare one by one: what must hold is that the index can answer the query.
        connection.execute(text("SET enable_sort = off"))
        plan = "\n".join(
            row[0]
            for row in connection.execute(
                text(f"EXPLAIN {index._known(SPACE, DIMENSIONS).text}"),
                {"vector": to_halfvec(buckets[large][0]), "bucket": large.digest(), "count": 32},
            )
        )
        assert "ix_vectors_near" in plan, plan


# ------------------------------------------------------------------------------------------------- the server goes away


@pytest.mark.slow
async def test_a_server_that_is_killed_is_a_miss_and_what_was_to_be_written_waits_for_it(open_cache: Open) -> None:
    with server() as own, own.database() as url:
        cache = await open_cache(url=url, lookup_deadline_ms=2_000, changes_limit_ms=1_000)
        cache.record(ask(CAPITAL), say("Lisbon"))
        assert await cache.flush()
        assert cache.exact_now(ask(CAPITAL)) is not None
        own.kill()
        await asyncio.sleep(1.5)
        # What another process retracts cannot be known now: not even what is in memory is served.
        assert cache.exact_now(ask(CAPITAL)) is None
        assert await cache.exact(ask(CAPITAL)) is None
        assert (await cache.search(ask(REWORDED)))[1] is None
        cache.record(ask("who wrote faust"), say("Goethe"))
        own.restart()
        assert await cache.flush()
        for words, answer in ((CAPITAL, "Lisbon"), ("who wrote faust", "Goethe")):
            hit = None
            for _ in range(300):  # until the link has heard from it again
                hit = hit or await cache.exact(ask(words))
                await asyncio.sleep(0 if hit else 0.1)
            assert hit is not None
            assert hit.answer.text == answer
        counts = cache.failures.counts()
        assert counts.get("write.waiting_for_database", 0) > 0
        assert "write.down" not in counts
        await cache.close()
