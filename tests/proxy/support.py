"""The real app on a real server in a thread of this process, faulty backends on plain sockets, a plain client."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import uvicorn

from proxy.app import Antiphon, OpenCache, Opened, create_app
from proxy.checking import checks_of
from proxy.protocol import limited
from proxy.settings import Settings
from store.cache import Cache
from store.types import Policy
from tests.processes import a_free_port
from tests.store.support import NearEnough, WordEmbedder, no_objections

CHAT = "/v1/chat/completions"


@dataclass
class Got:
    """A reply as a client got it."""

    status: int
    headers: dict[str, str]
    body: bytes
    cut: bool = False

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[str]:
        lines = self.body.decode().split("\n")
        return [line.removeprefix("data: ") for line in lines if line.startswith("data:")]

    @property
    def chunks(self) -> list[dict[str, Any]]:
        return [json.loads(event) for event in self.events if event != "[DONE]"]

    @property
    def text(self) -> str:
        """The answer, streamed or not."""
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            parts = [c["delta"].get("content") or "" for chunk in self.chunks for c in chunk["choices"]]
            return "".join(parts)
        return str(self.json["choices"][0]["message"]["content"])

    @property
    def reuse(self) -> str:
        return self.headers.get("x-antiphon-reuse", "")


@dataclass
class Proxy:
    """A running proxy."""

    port: int
    app: Antiphon
    model: str = "m"  # of what `ask` asks; one of its own keeps a test's turns apart

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def send(
        self, method: str = "POST", path: str = CHAT, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Got:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            try:
                return Got(response.status, names, response.read())
            except http.client.IncompleteRead as error:
                return Got(response.status, names, error.partial, cut=True)
        finally:
            connection.close()

    def ask(self, content: str, headers: dict[str, str] | None = None, path: str = CHAT, **fields: Any) -> Got:
        """Ask one question; the reply comes when everything behind it has been recorded."""
        body: dict[str, Any] = {"model": self.model, "messages": [{"role": "user", "content": content}], **fields}
        got = self.send(path=path, body=json.dumps(body).encode(), headers=headers)
        self.settle()
        return got

    def settle(self) -> None:
        """Wait until no call to the backend is under way."""
        flights = self.app.turns._flights
        until(lambda: not flights._tasks)

    def knows_its_backend(self) -> None:
        """Wait until the backend's version is known: what is asked before has another identity."""
        until(lambda: self.app.state.versions.sglang is not None)


def until(condition: Callable[[], bool], patience_s: float = 10.0) -> None:
    """Wait for something that will become true."""
    end = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def by_words(url: str, policy: Policy = Policy(answer=0.7, verify=0.5)) -> OpenCache:  # noqa: B008 - frozen
    """A real store at ``url`` with an embedder that compares words, so that no model is loaded."""

    async def open_cache(settings: Settings) -> Opened:
        store = settings.store.model_copy(
            update={"url": url, **dict.fromkeys(("lookup_deadline_ms", "embed_deadline_ms", "decide_deadline_ms"), 9e3)}
        )
        cache = await Cache.open(
            store,
            embedder=WordEmbedder(),
            confidence=NearEnough(),
            policy=policy,
            objections=no_objections,
            checks=checks_of(settings.verification, settings.budget),
        )
        return Opened(cache, "words")

    return open_cache


@contextmanager
def running_proxy(backend: str, *, open_with: OpenCache | None = None, **sections: dict[str, Any]) -> Iterator[Proxy]:
    """Run the app until the block ends; by default over a temporary store."""
    sections["upstream"] = {"url": backend, "version_interval_s": 0, **sections.get("upstream", {})}
    settings = Settings(**sections)  # type: ignore[arg-type]
    app = create_app(settings, open_with=open_with or by_words("sqlite://"))
    port = a_free_port()
    config = uvicorn.Config(
        app, host="127.0.0.1", port=port, loop="uvloop", http=limited(settings.limits), ws="none", log_config=None,
        server_header=False, date_header=False, timeout_graceful_shutdown=5,
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        until(lambda: app.state.readiness.serves and server.started)
        yield Proxy(port, app)
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive(), "the proxy did not stop"


@dataclass
class Request:
    """What a faulty backend received."""

    head: bytes
    body: bytes = b""

    @property
    def line(self) -> str:
        return self.head.split(b"\r\n", 1)[0].decode()

    def header(self, name: str) -> list[str]:
        found = [line.split(b":", 1) for line in self.head.split(b"\r\n")[1:]]
        return [value.strip().decode("latin-1") for key, value in found if key.lower() == name.lower().encode()]


@dataclass
class Plain:
    """A backend on plain sockets: ``behave`` gets each connection and its first request, and may do anything."""

    behave: Callable[[socket.socket, Request], None]
    requests: list[Request] = field(default_factory=list)
    closed: threading.Event = field(default_factory=threading.Event)  # set when a peer closed while we served it

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            while (request := read_request(connection)) is not None:
                self.requests.append(request)
                self.behave(connection, request)

    def close(self) -> None:
        self._listener.close()

    def wait_for_hang_up(self, connection: socket.socket) -> None:
        """Return when the other side has closed; sets ``closed``."""
        with suppress(OSError):
            while connection.recv(4096):
                pass
        self.closed.set()


def read_request(connection: socket.socket) -> Request | None:
    """Read one request with a body of known or chunked length."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    request = Request(head)
    if length := request.header("content-length"):
        while len(body) < int(length[0]):
            body += connection.recv(65536)
    elif request.header("transfer-encoding"):
        while not body.endswith(b"0\r\n\r\n"):
            body += connection.recv(65536)
    request.body = body
    return request


def reply(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    """A complete reply of known length."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def chunked(*pieces: bytes) -> bytes:
    """Pieces of a chunked body."""
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nSet-Cookie: who=first\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def event(content: str | None = None, *, finish: str | None = None, **delta: Any) -> bytes:
    """One chunk of a chat stream."""
    if content is not None:
        delta["content"] = content
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "c", "created": 1, "model": "m", "choices": [choice]}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def completion(content: str = "Yes.", **fields: Any) -> bytes:
    """A whole chat completion."""
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "message": message, "finish_reason": "stop", **fields}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    return json.dumps(
        {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    ).encode()
