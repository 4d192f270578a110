"""A cache moved from one engine to the other is the same cache, however often the move was interrupted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, func, select, text

from store.cache import Cache
from store.copying import CopyFailed, copy
from store.database import Database
from store.errors import StoreInUse
from store.models import Bar, Base, Entry, SessionTurn, Vector
from store.settings import StoreSettings
from tests.store.support import Open, ask, look_up, say

pytestmark = pytest.mark.slow

CAPITAL = "what is the capital of portugal"
REWORDED = "what is the capital city of portugal"


def opened(url: str) -> Database:
    return Database.open(StoreSettings(url=url), alone=True, unfinished=True)


async def fill(cache: Cache) -> str:
    """Something in every table; returns the entry that answers `CAPITAL`."""
    for number in range(60):
        asked = ask(f"question {number}", session=f"ein Sitzung-{number}ß")
        cache.record(asked, say(f"answer {number}"))
        cache.record(ask(f"question {number}", f"answer {number}", "and then"), say("nothing"))
    entry = cache.record(ask(CAPITAL), say("Lisbon"))
    assert await cache.flush()
    assert await look_up(cache, ask(REWORDED)) is not None
    assert await cache.correct(ask("question 3", "answer 3", "no, wrong", session="s")) >= 1
    assert await cache.retract((await cache.entries(limit=50, after=None, where={}))[-1].id)
    await cache.feedback(entry, "up", partition=None)
    assert await cache.flush()
    return entry


def contents(database: Database) -> dict[str, list[Any]]:
    with database.upkeep.connect() as connection:
        return {
            table.name: sorted((tuple(row) for row in connection.execute(select(table))), key=repr)
            for table in Base.metadata.sorted_tables
            if table.name not in ("changes", "properties")
        }


async def test_everything_is_there_afterwards_and_goes_on_from_there(
    open_cache: Open, store_url: str, postgres_url: str
) -> None:
    cache = await open_cache()
    entry = await fill(cache)
    await cache.close()
    source, target = opened(store_url), opened(postgres_url)
    told: list[tuple[str, str, int, int]] = []
    done = copy(source, target, lambda *args: told.append(args))
    assert contents(source) == contents(target)
    filled = {table.table for table in done.tables if table.rows}
    assert {"entries", "identities", "vectors", "wordings", "places", "sessions", "bars", "purges"} <= filled
    assert not done.resumed
    assert {(what, table) for what, table, n, size in told if n == size} >= {
        ("copying", "entries"),
        ("verifying", "entries"),
    }
    source.close()
    target.close()

    cache = await open_cache(url=postgres_url)
    for words in (CAPITAL, REWORDED):
        hit = await cache.exact(ask(words))
        assert hit is not None
        assert hit.entry_id == entry
    assert (await cache.search(ask("what is the capital city of portugal please")))[1] is not None
    new = cache.record(ask("something new"), say("fine"))  # numbers go on after those that came over
    assert await cache.flush()
    assert await cache.entry(new) is not None
    # And back.
    await cache.close()
    back = opened(store_url + ".back")
    source = opened(postgres_url)
    copy(source, back)
    assert contents(source) == contents(back)
    source.close()
    back.close()
    cache = await open_cache(url=store_url + ".back")
    assert (await cache.search(ask("what is the capital city of portugal please")))[1] is not None


@pytest.mark.parametrize("when", [1, 2, 3, 5, 8])
async def test_an_interrupted_copy_goes_on_where_it_stopped(
    open_cache: Open, store_url: str, postgres_url: str, when: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = await open_cache()
    await fill(cache)
    await cache.close()
    monkeypatch.setattr("store.copying._SLICE", 25)
    source, target = opened(store_url), opened(postgres_url)
    interrupt = stop_after(target, 1 + when)
    with pytest.raises(KeyboardInterrupt):
        copy(source, target)
    interrupt()
    target.close()
    with pytest.raises(StoreInUse, match="not finished"):
        Database.open(StoreSettings(url=postgres_url))
    target = opened(postgres_url)
    done = copy(source, target)
    assert done.resumed
    assert contents(source) == contents(target)
    assert sum(table.copied_now for table in done.tables) < done.rows
    source.close()
    target.close()
    Database.open(StoreSettings(url=postgres_url)).close()


def stop_after(database: Database, transactions: int) -> Callable[[], None]:
    """Have the database's writer fail after so many commits; returns what ends that."""
    left = transactions

    def committing(connection: object) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt

    event.listen(database.writer, "commit", committing)
    return lambda: event.remove(database.writer, "commit", committing)


async def test_a_copy_needs_a_database_of_its_own(open_cache: Open, store_url: str, postgres_url: str) -> None:
    for url in (store_url, postgres_url):
        cache = await open_cache(url=url)
        cache.record(ask(CAPITAL), say("Lisbon"))
        await cache.close()
    source, target = opened(store_url), opened(postgres_url)
    with pytest.raises(CopyFailed, match="not empty"):
        copy(source, target)
    source.close()
    target.close()


async def test_what_a_proxy_uses_is_not_copied(open_cache: Open, store_url: str, postgres_url: str) -> None:
    cache = await open_cache(url=postgres_url)
    with pytest.raises(StoreInUse, match="in use"):
        Database.open(StoreSettings(url=postgres_url), alone=True)
    await cache.close()
    database = Database.open(StoreSettings(url=postgres_url), alone=True)
    with pytest.raises(StoreInUse, match="copied or compacted"):
        await open_cache(url=postgres_url)
    database.close()
    await open_cache(url=postgres_url)


async def test_a_difference_is_found(
    open_cache: Open, store_url: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = await open_cache()
    await fill(cache)
    await cache.close()
    source, target = opened(store_url), opened(postgres_url)

    def falsify(what: str, table: str, done: int, size: int) -> None:
        if (what, table, done) == ("verifying", "entries", 0):
            with target.writer.begin() as writing:
                writing.execute(text("UPDATE entries SET thumbs_up = thumbs_up + 1 WHERE number = 5"))

    with pytest.raises(CopyFailed, match="table entries is not the same"):
        copy(source, target, falsify)
    source.close()
    target.close()


async def test_a_damaged_vector_is_left_out_and_made_anew(open_cache: Open, store_url: str, postgres_url: str) -> None:
    cache = await open_cache()
    entry = cache.record(ask(CAPITAL), say("Lisbon"))
    cache.record(ask("who wrote faust"), say("Goethe"))
    assert await cache.flush()
    await cache.close()
    source, target = opened(store_url), opened(postgres_url)
    with source.writer.begin() as writing:
        writing.execute(text("UPDATE vectors SET query = x'007c' WHERE number = 1"))  # infinity
    done = {table.table: table for table in copy(source, target).tables}
    assert (done["vectors"].rows, done["vectors"].left_out) == (1, 1)
    source.close()
    target.close()
    cache = await open_cache(url=postgres_url)
    assert await cache.flush()
    found = (await cache.search(ask(REWORDED)))[1]
    assert found is not None
    assert found.entry_id == entry


async def test_every_table_is_copied_in_an_order_both_engines_share(open_cache: Open, store_url: str) -> None:
    cache = await open_cache()
    await fill(cache)
    await cache.close()
    source = opened(store_url)
    with source.upkeep.connect() as connection:
        for model in (Entry, Vector, SessionTurn, Bar):
            assert connection.execute(select(func.count()).select_from(model)).scalar_one() > 1
    source.close()


def test_the_path_of_a_file_is_enough(tmp_path: Path) -> None:
    source, target = opened(f"sqlite:///{tmp_path}/a.db"), opened(f"sqlite:///{tmp_path}/b.db")
    assert copy(source, target).rows == 0
    source.close()
    target.close()
