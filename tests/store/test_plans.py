"""Every look-up and every frequent write goes through an index: none of them may walk through a table."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sqlalchemy import event

from tests.store.support import Open, ask, look_up, say


async def test_no_look_up_and_no_frequent_write_walks_through_a_table(open_cache: Open, tmp_path: Path) -> None:
    cache = await open_cache()
    await cache.flush()
    statements: dict[str, tuple[object, ...]] = {}

    def note(_connection, _cursor, statement, parameters, _context, many):  # type: ignore[no-untyped-def]
        if statement.startswith(("SELECT", "UPDATE", "DELETE")):
            statements[statement] = parameters[0] if many else parameters

    for engine in (cache._database.readers, cache._database.writer):
        event.listen(engine, "before_cursor_execute", note)
    cache.record(ask("one two three", session="s"), say("yes"))
    cache.record(ask("one two three", "yes", "four five"), say("no"))
    await cache.flush()
    await look_up(cache, ask("one two three please", session="s"))
    await look_up(cache, ask("one two three please", "yes", "four five"))
    await look_up(cache, ask("one two three please", "yes", "four five please"))
    cache._memory.clear()
    await cache.exact(ask("one two three"))
    await cache.exact(ask("never seen"))
    cache.record(ask("one two three"), say("yes again"))
    await cache.correct(ask("one two three", "yes again", "no"))
    await cache.retract(cache.reserve())
    await cache.flush()
    assert len(statements) > 15

    with sqlite3.connect(tmp_path / "antiphon.db") as database:
        for statement, parameters in statements.items():
            plan = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]
            assert not [step for step in plan if step.startswith("SCAN")], (statement, plan)
            # The index of identities is for purges: one identity may have every entry there is.
            assert not [step for step in plan if "ix_entries_identity" in step], (statement, plan)
        (children,) = [s for s in statements if "entries.parent = ?" in s and "vectors" in s]
        plan = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {children}", statements[children])]
        assert any("ix_entries_parent" in step for step in plan), plan
