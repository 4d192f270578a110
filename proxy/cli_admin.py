"""What ``antiphon explain``, ``entries``, ``stats`` and ``purge`` talk to: a running proxy, else the store itself.

Both sides return the same JSON values, those of the admin surface.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import httpx

from proxy.checking import checks_of
from proxy.cli_output import UNUSABLE, CommandError, complain, say, say_table, store_error
from proxy.cli_serve import url_of
from proxy.logs import configure
from proxy.settings import Loaded, LoggingSettings, policy_of

if TYPE_CHECKING:
    from fingerprint.embedding import TextEmbedder
    from store.cache import Cache

__all__ = ["Local", "Remote", "Surface", "choose", "read_body", "say_audit", "say_decision", "say_entries", "where_of"]

Json = dict[str, Any]
T = TypeVar("T")


class Surface(Protocol):
    """What can be asked of a proxy or a store."""

    def entries(self, limit: int, after: str | None, where: Mapping[str, str]) -> Json:
        """A page of entries, and the id to go on after: ``{"entries": […], "next": id or None}``."""

    def entry(self, entry_id: str) -> Json:
        """One entry with everything known of it."""

    def stats(self) -> Json:
        """The store in numbers."""

    def purge(self, *, entry: str | None, where: Mapping[str, str], dry_run: bool) -> int:
        """Remove one entry or all that match; how many it was, or would be."""

    def purge_all(self, *, dry_run: bool, reason: str) -> int:
        """Make everything unreachable at once; how many entries it was, or would be."""

    def audit(self, limit: int, before: int | None, action: str | None) -> Json:
        """A page of the audit log: ``{"audit": […], "next": line or None}``."""

    def explain(self, body: bytes, path: str, headers: Mapping[str, str]) -> Json:
        """The decision about a request body, without calling the model."""


class Remote:
    """A running proxy, by its admin surface."""

    def __init__(self, url: str, token: str | None) -> None:
        self._url = url.rstrip("/").removesuffix("/v1")
        self._headers = {"X-Antiphon-Admin-Token": token} if token else {}

    def runs(self) -> bool:
        """Whether an Antiphon answers there."""
        try:
            reply = httpx.get(f"{self._url}/antiphon/health", timeout=5, trust_env=False)
            return reply.status_code == 200 and reply.json().get("status") == "ok"
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, AttributeError):
            return False

    def _ask(self, method: str, path: str, **arguments: Any) -> Json:
        headers = {**self._headers, **arguments.pop("headers", {})}
        try:
            reply = httpx.request(
                method, f"{self._url}/antiphon{path}", headers=headers, timeout=120, trust_env=False, **arguments
            )
            value = reply.json()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise CommandError(f"no answer from {self._url}: {error or type(error).__name__}") from None
        except ValueError:
            raise CommandError(
                f"{self._url} does not answer as an Antiphon does (status {reply.status_code})"
            ) from None
        if reply.status_code >= 400:
            message = value.get("error", {}).get("message") if isinstance(value, dict) else None
            raise CommandError(str(message or f"{self._url} answers {reply.status_code}"))
        return dict(value)

    def entries(self, limit: int, after: str | None, where: Mapping[str, str]) -> Json:
        """A page of entries."""
        parameters = {"limit": str(limit), **({"after": after} if after else {}), **where}
        return self._ask("GET", "/entries", params=parameters)

    def entry(self, entry_id: str) -> Json:
        """One entry."""
        return self._ask("GET", f"/entries/{entry_id}")

    def stats(self) -> Json:
        """The store in numbers."""
        return self._ask("GET", "/stats")

    def purge(self, *, entry: str | None, where: Mapping[str, str], dry_run: bool) -> int:
        """Remove entries."""
        what: Json = {"entry": entry} if entry is not None else {"where": dict(where)}
        return int(self._ask("POST", "/purge", json={**what, "dry_run": dry_run})["purged"])

    def purge_all(self, *, dry_run: bool, reason: str) -> int:
        """Make everything unreachable."""
        what: Json = {"all": True, **({"reason": reason} if reason else {})}
        return int(self._ask("POST", "/purge", json={**what, "dry_run": dry_run})["purged"])

    def audit(self, limit: int, before: int | None, action: str | None) -> Json:
        """A page of the audit log."""
        parameters = {"limit": str(limit)}
        parameters |= {"before": str(before)} if before is not None else {}
        parameters |= {"action": action} if action is not None else {}
        return self._ask("GET", "/audit-log", params=parameters)

    def explain(self, body: bytes, path: str, headers: Mapping[str, str]) -> Json:
        """The decision about a request body."""
        return self._ask("POST", "/explain", params={"path": path}, content=body, headers=dict(headers))


class Local:
    """The store itself, where no proxy runs."""

    def __init__(self, loaded: Loaded) -> None:
        self._settings = loaded.settings

    def _with_cache(self, work: Callable[[Cache], Awaitable[T]], embedder: TextEmbedder | None = None) -> T:
        from proxy.admin import AdminError
        from store.cache import Cache
        from store.confidence import load, thresholds
        from store.errors import StoreError, StoreInUse
        from store.reading import must_exist

        async def run() -> T:
            policy = policy_of(self._settings.decision, thresholds())
            store = self._settings.store
            checks = checks_of(self._settings.verification, self._settings.budget)
            cache = await Cache.open(store, embedder=embedder, confidence=load(), policy=policy, checks=checks)
            try:
                return await work(cache)
            finally:
                await cache.close()

        configure(LoggingSettings(level="error", format="text", access=False))
        try:
            must_exist(self._settings.store)  # whoever looks, or takes away, makes nothing
            return asyncio.run(run())
        except StoreInUse as error:
            raise store_error(error, "; or name the proxy that uses it with --url http://HOST:PORT") from None
        except StoreError as error:
            raise store_error(error) from None
        except AdminError as error:
            raise CommandError(str(error)) from None

    def entries(self, limit: int, after: str | None, where: Mapping[str, str]) -> Json:
        """A page of entries."""
        from proxy.admin import page_of_entries

        return self._with_cache(lambda cache: page_of_entries(cache, limit=limit, after=after, where=where))

    def entry(self, entry_id: str) -> Json:
        """One entry."""
        from proxy.admin import entry_as_json

        return self._with_cache(lambda cache: entry_as_json(cache, entry_id))

    def stats(self) -> Json:
        """The store in numbers."""
        from proxy.admin import plain

        async def work(cache: Cache) -> Json:
            return dict(plain(await cache.stats()))

        return self._with_cache(work)

    def purge(self, *, entry: str | None, where: Mapping[str, str], dry_run: bool) -> int:
        """Remove entries."""
        from proxy.admin import purge_entries

        who = _who()
        return self._with_cache(
            lambda cache: purge_entries(cache, entry=entry, where=where, dry_run=dry_run, actor=who)
        )

    def purge_all(self, *, dry_run: bool, reason: str) -> int:
        """Make everything unreachable."""
        who = _who()
        return self._with_cache(lambda cache: cache.raise_epoch(dry_run=dry_run, actor=who, reason=reason))

    def audit(self, limit: int, before: int | None, action: str | None) -> Json:
        """A page of the audit log."""
        from proxy.admin import page_of_audit

        return self._with_cache(lambda cache: page_of_audit(cache, limit=limit, before=before, action=action))

    def explain(self, body: bytes, path: str, headers: Mapping[str, str]) -> Json:
        """The decision about a request body. Asks the backend for its version, which is part of every identity."""
        from starlette.datastructures import Headers

        from fingerprint.embedding.router import load_router
        from proxy.admin import explained
        from proxy.metrics import Metrics
        from proxy.turns import Turns
        from proxy.upstream import Upstream
        from proxy.versions import VersionWatcher

        settings, router = self._settings, load_router()

        async def work(cache: Cache) -> Json:
            upstream = Upstream(settings.upstream)
            try:
                versions = VersionWatcher(upstream, settings.upstream)
                if settings.upstream.version_interval_s > 0 and not await versions.refresh():
                    complain("the backend does not tell its version, so answers of a known version are not found")
                turns = Turns(settings, upstream, versions, Metrics())
                turns.cache, turns.embedder, turns.decision = cache, router.name, cache.decision
                return await explained(cache, turns, Headers(dict(headers)), path, body, peer=None)
            finally:
                await upstream.aclose()

        return self._with_cache(work, router)


def choose(loaded: Loaded, url: str | None, token: str | None, *, directly: bool) -> Surface:
    """The proxy at ``url`` (default: where the settings say one listens), else the store.

    ``directly`` goes to the store whatever runs. Raises :class:`CommandError` where a URL was given and
    nothing is there.
    """
    if directly:
        return Local(loaded)
    settings = loaded.settings
    configured = settings.admin.token.get_secret_value() if settings.admin.token is not None else None
    remote = Remote(url or url_of(settings.server.host, settings.server.port), token or configured)
    if remote.runs():
        return remote
    if url is not None:
        raise CommandError(f"no Antiphon answers at {url}")
    if sys.stderr.isatty():
        complain("no proxy runs here; looking into the store itself")
    return Local(loaded)


def where_of(items: list[str] | None) -> dict[str, str]:
    """``["model=a", …]`` as a mapping; raises :class:`CommandError`."""
    where = {}
    for item in items or []:
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise CommandError(f"--where {item}: write DIMENSION=VALUE", UNUSABLE)
        where[name.strip()] = value
    return where


def read_body(file: str) -> bytes:
    """The request body from a file, or from standard input for ``-``; raises :class:`CommandError`."""
    try:
        body = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror}", UNUSABLE) from None
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise CommandError(f"{file} is not JSON; it must hold the body of a chat request", UNUSABLE) from None
    if not isinstance(value, dict):
        raise CommandError(f"{file} must hold a JSON object, the body of a chat request", UNUSABLE)
    return body


# ------------------------------------------------------------------------------------------------------------- output


def say_entries(page: Json) -> None:
    """Print a page of entries."""
    now = _now()
    say_table(
        ("entry", "state", "age", "hits", "model", "question"),
        [
            (
                row["id"],
                row["state"],
                _span(now - float(row["created_at"])),
                row["hits"],
                row["parts"]["model"],
                _short(str(row.get("question", ""))),
            )
            for row in page["entries"]
        ],
    )
    if page["next"] is not None and sys.stdout.isatty():
        say(f"more: --after {page['next']}")


def say_audit(page: Json) -> None:
    """Print a page of the audit log."""
    rows = []
    for row in page["audit"]:
        at = datetime.fromtimestamp(float(row["at"]), UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        target = " ".join(f"{name}={value}" for name, value in row["target"].items())
        rows.append((row["number"], at, row["actor"], row["action"], row["entries"], target))
    say_table(("line", "when", "who", "what", "entries", "target"), rows)
    if page["next"] is not None and sys.stdout.isatty():
        say(f"more: --before {page['next']}")


def _who() -> str:
    """Whoever runs the command."""
    import getpass

    try:
        return f"command line ({getpass.getuser()})"
    except (KeyError, OSError):  # no such user, as in some containers
        return "command line"


def say_decision(decision: Json) -> None:
    """Print a decision: the outcome, then candidate by candidate what was compared and who objected."""
    chosen = f", entry {decision['entry']}" if decision.get("entry") else ""
    say(f"{decision['level']}: {decision['reason']} (confidence {decision['confidence']:.3f}{chosen})")
    for number, candidate in enumerate(decision["candidates"], 1):
        place = ", same place" if candidate["same_place"] else ""
        place += ", the same numbered thing" if candidate.get("direct") else ""
        say(
            f"{number}. {candidate['entry']}: similarity {candidate['similarity']:.3f}, "
            f"confidence {candidate['confidence']:.3f}{place}"
        )
        if candidate.get("question"):
            say(f"   asked: {_short(candidate['question'])}")
        if candidate["objections"]:
            say(f"   objected: {', '.join(candidate['objections'])}")
        for relation in sorted(candidate["relations"], key=lambda relation: relation["kind"] != "conflict"):
            say(f"   {relation['kind']:10} {relation['name']}: {relation['sentence']}")
    if (prompts := decision.get("prompts")) and (prompts["turns_replaced"] or prompts["reference"]):
        say_prompts(prompts)


def say_prompts(prompts: Json) -> None:
    """Print where the conversation that is forwarded differs from the one received."""
    say(f"forwarded with {prompts['turns_replaced']} of the earlier turns in the words the backend knows:")
    received, forwarded = prompts["received"]["messages"], list(prompts["forwarded"]["messages"])
    if prompts["reference"]:
        say(f"   before the new message: question and answer of entry {prompts['reference']}")
        del forwarded[-3:-1]
    for number, (was, now) in enumerate(zip(received, forwarded, strict=True), 1):
        if was != now:
            say(f"   message {number} was: {_short(_words(was))}")
            say(f"   message {number} now: {_short(_words(now))}")


def _words(message: Json) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else " ".join(str(part.get("text", "")) for part in content or ())


def _now() -> float:
    import time

    return time.time()


def _span(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _short(text: str, width: int = 70) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"
