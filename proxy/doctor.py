"""``antiphon doctor``: looks at everything a proxy needs and says what to do about what is missing.

Each check is a function from :class:`Patient` to findings. It starts no proxy, changes nothing, and never raises.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

import httpx
import numpy as np

from proxy.cli_output import CommandError
from proxy.cli_serve import bind, file_limit, is_loopback, url_of
from proxy.settings import Loaded, Settings

if TYPE_CHECKING:
    from fingerprint.embedding import Embedding

__all__ = ["CHECKS", "Finding", "Patient", "examine"]

_GIB = 2**30
_MIB = 2**20
_PATIENCE_S = 5.0

Status = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check saw, and what to do about it."""

    check: str
    status: Status
    seen: str
    advice: str = ""


@dataclass(slots=True)
class Patient:
    """What the checks look at. ``server_info`` is filled by the check of the backend for those after it."""

    loaded: Loaded
    client: httpx.Client
    reachable: bool = False
    server_info: dict[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        """The effective settings."""
        return self.loaded.settings

    def ask(self, path: str) -> Any:
        """The JSON the backend answers to a GET, ``None`` for any other answer."""
        try:
            reply = self.client.get(self.settings.upstream.url + path)
            return reply.json() if reply.status_code == 200 else None
        except (httpx.HTTPError, ValueError):
            return None


def examine(loaded: Loaded) -> Iterator[Finding]:
    """Run every check, in order, yielding findings as they are made."""
    upstream = loaded.settings.upstream
    timeout = httpx.Timeout(_PATIENCE_S, connect=min(_PATIENCE_S, upstream.connect_timeout_s))
    with httpx.Client(timeout=timeout, verify=upstream.verify_tls, trust_env=False) as client:
        patient = Patient(loaded, client)
        for name, check in CHECKS.items():
            try:
                yield from check(patient)
            except Exception as error:
                yield Finding(name, "problem", f"the check itself failed: {error!r}", "please report this")


# ------------------------------------------------------------------------------------------------------- the backend


def _backend(patient: Patient) -> Iterator[Finding]:
    url = patient.settings.upstream.url
    started = time.perf_counter()
    try:
        reply = patient.client.get(f"{url}/v1/models")
    except httpx.TimeoutException:
        yield Finding(
            "backend", "problem", f"{url} does not answer within {_PATIENCE_S:g} s", "look at the backend's log"
        )
        return
    except httpx.HTTPError as error:
        advice = "start the backend, or name the right one with --upstream or upstream.url"
        yield Finding("backend", "problem", f"{url} cannot be reached ({error or type(error).__name__})", advice)
        return
    took_ms = (time.perf_counter() - started) * 1000
    patient.reachable = True
    if reply.status_code in (401, 403):
        yield Finding(
            "backend", "ok", f"{url} answers in {took_ms:.0f} ms and wants an API key, which the clients bring"
        )
    elif reply.status_code == 200:
        yield Finding(
            "backend", "ok", f"{url} answers in {took_ms:.0f} ms, models: {', '.join(_models(reply)) or 'none'}"
        )
    elif reply.status_code == 503:
        yield Finding("backend", "warning", f"{url} is not ready yet (503)", "wait until the model is loaded")
    else:
        advice = "check that upstream.url names an OpenAI-compatible backend, without /v1"
        yield Finding("backend", "warning", f"{url}/v1/models answers {reply.status_code}", advice)


def _models(reply: httpx.Response) -> list[str]:
    try:
        return [str(model["id"]) for model in reply.json()["data"]]
    except (ValueError, KeyError, TypeError):
        return []


def _versions(patient: Patient) -> Iterator[Finding]:
    if not patient.reachable:
        return
    own = patient.settings.upstream.version
    info = patient.ask("/model_info") or patient.ask("/get_model_info")
    if isinstance(info, dict) and "model_path" in info:
        version = info.get("weight_version")
        yield Finding(
            "model", "ok", f"{info['model_path']}, weights version {version!r}, tokenizer {info.get('tokenizer_path')}"
        )
        if version == "default" and not own:
            yield Finding(
                "model",
                "warning",
                "the backend calls its weights version 'default', so new weights of the same name go unnoticed",
                "start SGLang with --weight-version NAME, or set upstream.version and change it with the weights",
            )
    elif own:
        yield Finding("model", "ok", f"the backend reports no version; upstream.version is {own!r}")
    else:
        yield Finding(
            "model",
            "warning",
            "the backend reports no weights version (/model_info), so new weights of the same name go unnoticed",
            "set upstream.version and change it whenever the backend changes",
        )


def _cache_report(patient: Patient) -> Iterator[Finding]:
    if not patient.reachable:
        return
    info = patient.ask("/server_info") or patient.ask("/get_server_info")
    info = info if isinstance(info, dict) else {}
    patient.server_info = info
    if info.get("disable_radix_cache") is True:
        yield Finding(
            "radix cache",
            "warning",
            "SGLang runs with --disable-radix-cache: no KV reuse",
            "start it without that flag",
        )
    reported = info.get("enable_cache_report")
    if reported is None:
        reported = _usage_tells(patient)
    if reported is True:
        yield Finding("cache report", "ok", "the backend reports cached tokens")
    elif reported is False:
        yield Finding(
            "cache report",
            "warning",
            "the backend does not report cached tokens, so KV savings cannot be shown",
            "start SGLang with --enable-cache-report",
        )
    else:
        yield Finding("cache report", "warning", "could not be found out (no /server_info, no usage in a reply)")


def _usage_tells(patient: Patient) -> bool | None:
    """Whether a one-token reply carries ``cached_tokens``; ``None`` where it cannot be told."""
    models = patient.ask("/v1/models")
    try:
        model = models["data"][0]["id"]
        body = {"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]}
        reply = patient.client.post(f"{patient.settings.upstream.url}/v1/chat/completions", json=body, timeout=60)
        if reply.status_code != 200:
            return None
        usage = reply.json()["usage"]
    except (httpx.HTTPError, ValueError, KeyError, TypeError, IndexError):
        return None
    details = usage.get("prompt_tokens_details")
    return isinstance(details, dict) and isinstance(details.get("cached_tokens"), int)


# -------------------------------------------------------------------------------------------------------- this machine


def _embedder(patient: Patient) -> Iterator[Finding]:
    from fingerprint.embedding import EmbedderError
    from fingerprint.embedding.router import load_router

    try:
        router = load_router()
        for text, near, far in _SENTENCES:
            started = time.perf_counter()
            router.encode([text])  # reads the weights
            loading_s = time.perf_counter() - started
            started = time.perf_counter()
            embeddings = [embedding for embedding in router.encode([text, near, far]) if embedding is not None]
            each_ms = (time.perf_counter() - started) * 1000 / 3
            yield _sanity(embeddings, text, f"loaded in {loading_s:.1f} s, {each_ms:.0f} ms a sentence")
    except (EmbedderError, OSError) as error:
        seen = f"{error or type(error).__name__}; without it only exact repeats are found"
        yield Finding("embedder", "problem", seen, "run: antiphon models prepare")


def _sanity(embeddings: Sequence[Embedding], text: str, cost: str) -> Finding:
    """Whether a paraphrase is nearer to a sentence than something unrelated is."""
    if len(embeddings) != 3 or len({embedding.space for embedding in embeddings}) != 1:
        return Finding("embedder", "problem", f"no embedder can read {text!r}", "reinstall antiphon")
    first, near, far = (embedding.vector for embedding in embeddings)
    space = embeddings[0].space
    length = float(np.linalg.norm(first))
    if abs(length - 1) > 1e-3 or not float(first @ near) > float(first @ far):
        advice = "delete its folder under cache/embedders and run: antiphon models prepare"
        return Finding("embedder", "problem", f"{space} gives vectors without sense (length {length:.3f})", advice)
    return Finding("embedder", "ok", f"{space}: {cost}")


_SENTENCES = (
    ("How do I reset my password?", "I forgot my password, how can I set a new one?", "Which trains stop in Kyoto?"),
    ("怎么重置密码？", "我忘了密码，怎样设置新的？", "哪些火车停靠京都？"),
)


def _confidence(patient: Patient) -> Iterator[Finding]:
    from store.confidence import load, thresholds

    try:
        confidence, policy = load(), thresholds()
    except Exception as error:
        yield Finding("confidence", "problem", f"the reuse confidence does not load: {error}", "reinstall antiphon")
        return
    decision = patient.settings.decision
    source = confidence.version
    if decision.thresholds_file is not None:
        from store.confidence.thresholds_file import ThresholdsError, read_thresholds

        try:
            policy = read_thresholds(decision.thresholds_file, confidence.version).policy
            source += f" with {decision.thresholds_file}"
        except ThresholdsError as error:
            yield Finding("confidence", "problem", str(error), "run antiphon calibrate, or unset the setting")
            return
    answer = policy.answer if decision.answer is None else decision.answer
    verify = policy.verify if decision.verify is None else decision.verify
    seen = f"{source}; an answer is reused from {answer:.4f} on, looked at more closely from {verify:.4f} on"
    if answer < policy.answer:
        advice = f"remove decision.answer unless you have measured it; the calibrated threshold is {policy.answer:.4f}"
        yield Finding(
            "confidence", "warning", seen + ": lower than calibrated, so wrong answers will be served", advice
        )
    else:
        yield Finding("confidence", "ok", seen)


def _store(patient: Patient) -> Iterator[Finding]:
    from sqlalchemy.engine import make_url

    try:
        url = make_url(patient.settings.store.url)
    except Exception:
        yield Finding("store", "problem", "store.url is not a database URL", "write sqlite:////path/to/antiphon.db")
        return
    if url.get_backend_name() == "postgresql":
        yield _server(patient.settings.store.url)
        return
    if url.get_backend_name() != "sqlite":
        seen = f"store.url names {url.get_backend_name()!r}"
        advice = "write sqlite:////path/antiphon.db or postgresql+psycopg://user@host/database"
        yield Finding("store", "problem", seen, advice)
        return
    if url.database in (None, "", ":memory:"):
        yield Finding(
            "store", "warning", "a temporary database: nothing survives a restart", "name a file in store.url"
        )
        return
    path = Path(str(url.database)).expanduser().absolute()
    folder = _existing(path.parent)
    yield from _disk(folder)
    if not path.exists():
        yield _writable(folder, path)
        return
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=_PATIENCE_S)) as connection:
            verdict = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            entries = connection.execute("SELECT count(*) FROM entries").fetchone()[0] if "entries" in tables else 0
    except sqlite3.Error as error:
        advice = "restore it from a backup, or move it away: the proxy starts a fresh one"
        yield Finding("store", "problem", f"{path} cannot be read: {error}", advice)
        return
    if verdict != "ok":
        yield Finding("store", "problem", f"{path} is damaged: {verdict}", "move it away: the proxy starts a fresh one")
        return
    yield Finding("store", "ok", f"{path} is sound, {entries} entries, {path.stat().st_size / _MIB:.1f} MiB")


def _server(url: str) -> Finding:
    from store.errors import StoreError
    from store.postgres import examine

    try:
        server = examine(url)
    except StoreError as error:
        return Finding("store", "problem", str(error), "start the server, or correct store.url")
    seen = f"PostgreSQL {server.version}, pgvector {server.pgvector or 'not created yet'}"
    version = server.pgvector or server.pgvector_available
    if version is None:
        advice = "install pgvector on the server, then let a superuser run CREATE EXTENSION vector in this database"
        return Finding("store", "problem", seen, advice)
    if tuple(int(part) for part in version.split(".")[:2]) < (0, 8):
        return Finding("store", "problem", f"{seen} is too old", "install pgvector 0.8 or newer")
    there = "no tables yet" if server.entries is None else f"about {server.entries} entries, schema {server.schema}"
    return Finding("store", "ok", f"{seen}, {there}")


def _existing(folder: Path) -> Path:
    """The nearest folder that exists."""
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    return folder


def _writable(folder: Path, path: Path) -> Finding:
    if os.access(folder, os.W_OK | os.X_OK):
        return Finding("store", "ok", f"{path} does not exist yet and will be made")
    return Finding("store", "problem", f"{folder} is not writable", "give this user the folder, or set store.url")


def _disk(folder: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(folder).free
    seen = f"{free / _GIB:.1f} GiB free under {folder}"
    if free < 100 * _MIB:
        yield Finding("disk", "problem", seen, "make room: answers can soon no longer be stored")
    elif free < _GIB:
        yield Finding("disk", "warning", seen, "make room: 100,000 entries take about half a GiB")
    else:
        yield Finding("disk", "ok", seen)


def _port(patient: Patient) -> Iterator[Finding]:
    host, port = patient.settings.server.host, patient.settings.server.port
    try:
        bind(host, port).close()
    except CommandError as error:
        state = _running_state(patient, url_of(host, port))
        if state is None:
            yield Finding("port", "problem", str(error))
        else:
            status: Status = "ok" if state == "ready" else "warning"
            yield Finding("port", status, f"a proxy runs on {host} port {port} and says: {state}")
        return
    yield Finding("port", "ok", f"{host} port {port} is free")


def _running_state(patient: Patient, url: str) -> str | None:
    """What an Antiphon that listens there says of itself; ``None`` where it is something else."""
    try:
        state = patient.client.get(f"{url}/antiphon/ready").json()["status"]
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return None
    return state if state in ("starting", "ready", "degraded", "stopping") else None


def _admin(patient: Patient) -> Iterator[Finding]:
    host, token = patient.settings.server.host, patient.settings.admin.token
    if is_loopback(host):
        who = "local callers" if token is None else "local callers, and others with the admin token"
        yield Finding("admin", "ok", f"open to {who}")
    elif token is None:
        advice = "set a token: ANTIPHON_ADMIN__TOKEN=$(openssl rand -hex 24)"
        yield Finding("admin", "warning", f"closed: {host} is no loopback address and there is no admin token", advice)
    else:
        yield Finding("admin", "ok", "open with the admin token")


def _limits(patient: Patient) -> Iterator[Finding]:
    most, wanted = file_limit(), 2 * patient.settings.upstream.max_connections + 100
    if most is not None and most < wanted:
        advice = f"raise it to {wanted} (ulimit -Hn, LimitNOFILE=), or lower upstream.max_connections"
        yield Finding("files", "warning", f"only {most} files may be open, and each stream takes two", advice)
    else:
        yield Finding("files", "ok", f"{'any number of' if most is None else most} files may be open")


#: Every check by the name of its findings, in the order of running.
def _rollout(patient: Patient) -> Iterator[Finding]:
    rollout = patient.settings.rollout
    if rollout.mode != "shadow":
        return
    share = f", but for {rollout.canary_percent:g} % of sessions" if rollout.canary_percent else ""
    file = Path(rollout.observations).expanduser().absolute()
    folder = _existing(file.parent)
    if file.is_dir() or not os.access(file if file.exists() else folder, os.W_OK):
        advice = "name a file that the proxy may write in rollout.observations"
        yield Finding("shadow mode", "problem", f"observations cannot be written to {file}", advice)
        return
    yield Finding("shadow mode", "ok", f"nobody is served from the cache{share}; observations go to {file}")


CHECKS: dict[str, Callable[[Patient], Iterator[Finding]]] = {
    "backend": _backend,
    "model": _versions,
    "cache report": _cache_report,
    "embedder": _embedder,
    "confidence": _confidence,
    "store": _store,
    "shadow mode": _rollout,
    "port": _port,
    "admin": _admin,
    "files": _limits,
}
