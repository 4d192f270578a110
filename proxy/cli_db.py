"""``antiphon db``: what is done to the database itself, past any proxy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proxy.cli_output import FAILED, UNUSABLE, CommandError, say, say_finding, say_json, say_table, store_error

if TYPE_CHECKING:
    from store.settings import StoreSettings

__all__ = ["register"]

Load = Callable[..., Any]

StoreOption = Annotated[str | None, typer.Option("--store", metavar="URL", help="Database URL, or the path of a file.")]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="TOML file (else $ANTIPHON_CONFIG, else the data folder's)."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer, load: Load) -> None:
    """Add the commands to the app; ``load`` gives the settings under --config and --store."""

    def settings(config: Path | None, store: str | None, name: str = "--store") -> StoreSettings:
        chosen: StoreSettings = load(config, None, {"store.url": (name, store)}).settings.store
        return chosen

    db = typer.Typer(help="The database itself.", no_args_is_help=True)
    app.add_typer(db, name="db")

    @db.command("upgrade")
    def upgrade(store: StoreOption = None, config: ConfigOption = None) -> None:
        """Create the tables, or bring them to this release. A proxy does the same when it starts."""
        chosen = settings(config, store)
        with _failing():
            from store.database import Database
            from store.migrations import HEAD

            before = _revision(chosen)
            database = Database.open(chosen)
            database.close()
            say(f"{database.name}: {_from(before)}revision {HEAD}")

    @db.command("check")
    def check(store: StoreOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
        """Look through all of it; exit code 1 where there is a problem. A proxy may be using it meanwhile."""
        chosen = settings(config, store)
        findings = []
        with _failing(), _bar(not as_json) as told:
            from store.checking import check as looked
            from store.reading import must_exist, reading

            must_exist(chosen)
            with reading(chosen) as connection:
                findings = list(looked(connection, lambda done, size: told("checking", done, size)))
        if as_json:
            say_json([asdict(finding) for finding in findings])
        else:
            for finding in findings:
                say_finding(finding.check, finding.status, finding.seen, finding.advice)
        if any(finding.status == "problem" for finding in findings):
            raise typer.Exit(FAILED)

    @db.command("copy")
    def copy(
        target: Annotated[str, typer.Argument(metavar="TARGET", help="URL of the database to copy into.")],
        store: StoreOption = None,
        config: ConfigOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Copy everything into another, empty database (SQLite into PostgreSQL, or any other way), and verify it.

        Nothing else may use either of them. An interrupted copy goes on where it stopped when it is started again.
        """
        chosen, into = settings(config, store), settings(config, target, "TARGET")
        if into.url == chosen.url:
            raise CommandError("TARGET is the store itself: name another database", UNUSABLE)
        with _failing(), _bar(not as_json) as told:
            from store.copying import copy as copied
            from store.database import Database
            from store.reading import must_exist

            must_exist(chosen)
            source = Database.open(chosen, alone=True)
            try:
                destination = Database.open(into, alone=True, unfinished=True)
                try:
                    done = copied(source, destination, lambda what, table, n, size: told(f"{what} {table}", n, size))
                finally:
                    destination.close()
            finally:
                source.close()
        if as_json:
            say_json(asdict(done))
            return
        say_table(
            ("table", "rows", "copied now", "left out", "checksum"),
            [(t.table, t.rows, t.copied_now, t.left_out, t.checksum) for t in done.tables],
        )
        say(f"{destination.name}: {done.rows} rows, the same in number and checksum")

    @db.command("compact")
    def compact(
        dimensions: Annotated[int, typer.Option("--dimensions", min=8, help="Dimensions to keep (256 or 128).")] = 256,
        max_loss: Annotated[
            float,
            typer.Option(
                "--max-loss",
                min=0,
                max=2,
                help="Most by which the similarity of near turns may change (cosine, 99th percentile).",
            ),
        ] = 0.02,
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Only measure what would be lost.")] = False,
        store: StoreOption = None,
        config: ConfigOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Make stored vectors smaller by principal components; refused where that would lose too much.

        No proxy may be running on it. There is no way back but to let the vectors be made anew.
        """
        chosen = settings(config, store)
        with _failing(), _bar(not as_json) as told:
            from store.compacting import compact as compacted
            from store.database import Database
            from store.reading import must_exist

            must_exist(chosen)
            database = Database.open(chosen, alone=True)
            try:
                before = database.size_bytes()
                done = compacted(database, dimensions=dimensions, most_loss=max_loss, dry_run=dry_run, progress=told)
                after = database.size_bytes()
            finally:
                database.close()
        if as_json:
            say_json({"spaces": [asdict(one) for one in done], "bytes_before": before, "bytes_after": after})
            return
        if not done:
            say(f"no vector has more than {dimensions} dimensions")
            return
        say_table(
            ("space", "dimensions", "vectors", "similarity changes by (99 %)", "nearest that stay", "kept"),
            [
                (
                    one.space,
                    f"{one.before} → {one.after}",
                    one.vectors,
                    "as before" if one.loss is None else f"{one.loss.cosine_p99:.4f}",
                    "" if one.loss is None else f"{one.loss.recall:.1%}",
                    "" if one.loss is None else f"{one.loss.kept:.1%}",
                )
                for one in done
            ],
        )
        verb = "nothing was changed" if dry_run else f"{before / 2**20:.1f} MiB → {after / 2**20:.1f} MiB"
        say(f"{database.name}: {verb}")


def _from(before: str | None) -> str:
    return "made with " if before is None else f"revision {before} → "


def _revision(chosen: StoreSettings) -> str | None:
    from store.errors import StoreError
    from store.reading import reading, revision

    try:
        with reading(chosen) as connection:
            return revision(connection)
    except StoreError:  # not there yet; whatever else it is, opening it says so
        return None


@contextmanager
def _failing() -> Iterator[None]:
    """Turn what the store says into one line."""
    from store.errors import StoreError

    try:
        yield
    except StoreError as error:
        raise store_error(error) from None


@contextmanager
def _bar(wanted: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar on standard error, where that is a terminal; else a line for each tenth."""
    if not wanted:
        yield lambda *_: None
        return
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            tasks: dict[str, Any] = {}

            def show(what: str, done: int, size: int) -> None:
                if what not in tasks:
                    tasks[what] = progress.add_task(what, total=size)
                progress.update(tasks[what], completed=done, total=size)

            yield show
        return
    told: dict[str, int] = {}

    def tell(what: str, done: int, size: int) -> None:
        tenth = 10 * done // size if size else 10
        if told.get(what) != tenth:
            told[what] = tenth
            print(f"{what}: {done} of {size}", file=sys.stderr, flush=True)

    yield tell
