"""``antiphon serve``: bind, put the app together, run until told to stop."""

from __future__ import annotations

import asyncio
import errno
import gc
import ipaddress
import logging
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from proxy.cli_output import UNUSABLE, CommandError, complain, say
from proxy.logs import configure, event
from proxy.settings import Loaded, Settings

try:
    import resource
except ImportError:  # not on this platform
    resource = None  # type: ignore[assignment]

__all__ = ["bind", "file_limit", "is_loopback", "serve", "url_of"]

log = logging.getLogger(__name__)

_MOST_FILES = 1 << 20


def is_loopback(host: str) -> bool:
    """Whether an address (or ``localhost``) can only be reached from this machine."""
    if host.lower() == "localhost":
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def bind(host: str, port: int) -> socket.socket:
    """A bound socket, not yet listening.

    Raises :class:`CommandError` (exit code 2) in one clear line where the address cannot be had.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise CommandError(f"the address {host!r} is not known here: {error.strerror}", UNUSABLE) from None
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    if os.name == "posix":
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise CommandError(_why_not(error, host, port), UNUSABLE) from None
    listener.setblocking(False)
    return listener


def _why_not(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is already in use; stop what uses it or choose another with --port"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"port {port} on {host} needs more rights than this user has; choose one above 1023 with --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine; choose another with --host"
    return f"cannot listen on {host} port {port}: {error.strerror}"


def url_of(host: str, port: int) -> str:
    """The URL under which a local client reaches the proxy."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"http://{shown}:{port}"


def file_limit() -> int | None:
    """How many files (connections, too) a process of this user may have open at most; ``None``: any number."""
    if resource is None:
        return None
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if hard == resource.RLIM_INFINITY else hard


def _allow_many_connections() -> None:
    """Raise the soft limit on open files, often 1024, as far as this user may."""
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _prepare_folder(settings: Settings, home: Path) -> None:
    """Make the data folder (for its owner only) where the store is a file in it."""
    if not settings.store.url.startswith(f"sqlite:///{home}"):
        return
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        complain(f"the data folder {home} cannot be made ({error.strerror}); nothing will be cached")


class _Server(uvicorn.Server):
    """uvicorn, saying in our words where it listens and when it is ready."""

    def __init__(self, config: uvicorn.Config, app: Any, url: str) -> None:
        super().__init__(config)
        self._app = app
        self._url = url
        self._announcing: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announcing = asyncio.create_task(self._announce())

    async def _announce(self) -> None:
        readiness = self._app.state.readiness
        state = await readiness.wait()
        # What is loaded now stays as long as the process: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        say(f"{state}: {self._url}/v1")
        event(log, logging.INFO, state, url=self._url, **({"why": readiness.why} if readiness.why else {}))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._announcing is not None:
            self._announcing.cancel()
        say("stopping: finishing running replies and writes")
        await super().shutdown(sockets)


def serve(loaded: Loaded) -> None:
    """Run the proxy until SIGINT or SIGTERM; returns after a graceful shutdown.

    Raises :class:`CommandError` where it cannot start.
    """
    from store.database import parse_url
    from store.errors import UnsupportedStore

    settings = loaded.settings
    configure(settings.logging)
    try:
        parse_url(settings.store.url)
    except UnsupportedStore as error:  # no other start would mend it
        raise CommandError(str(error), UNUSABLE) from None
    serving = False

    def stop_early(signum: int, frame: FrameType | None) -> None:
        # uvicorn raises the signal once more when it has shut down; that one must not end in a non-zero status.
        if not serving:
            sys.exit(0)

    signal.signal(signal.SIGTERM, stop_early)
    signal.signal(signal.SIGINT, stop_early)

    host = settings.server.host
    listener = bind(host, settings.server.port)
    url = url_of(host, listener.getsockname()[1])
    say(f"listening on {url}, backend {settings.upstream.url}")
    if not is_loopback(host) and settings.admin.token is None:
        complain("no admin token is set, so /antiphon/ is closed on this address (ANTIPHON_ADMIN__TOKEN opens it)")
    _prepare_folder(settings, loaded.home)
    _allow_many_connections()

    from proxy.app import create_app
    from proxy.protocol import limited

    app = create_app(settings)
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=limited(settings.limits),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,  # ours says more
        # The peer's address decides who is local: it must not come from a header.
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=settings.server.backlog,
        timeout_keep_alive=settings.server.keep_alive_s,
        timeout_graceful_shutdown=settings.server.graceful_shutdown_s,
    )
    server = _Server(config, app, url)
    serving = True
    try:
        server.run(sockets=[listener])
    except SystemExit:
        raise CommandError("the proxy could not start; the log above says why") from None
    except OSError as error:  # another process began to listen between our bind and our listen
        raise CommandError(_why_not(error, host, settings.server.port), UNUSABLE) from None
    logging.shutdown()
    if not server.started:
        raise CommandError("the proxy could not start; the log above says why")
