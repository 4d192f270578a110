"""Several backends: SGLang's gateway with its cache-aware policy between the proxy and two real SGLang servers.

The gateway is a program of its own (`pip install smg`); name it with ``SMG``, or have it on the path.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.conftest import ROOT, proxy_process
from tests.e2e.test_kv import NEW, PATIENT, SYSTEM, User, served_twice, shaped_model, shaped_server
from tests.processes import Running, a_free_port, running

pytestmark = pytest.mark.backend


@dataclass(frozen=True, slots=True)
class Fleet:
    """The proxy, and the two servers behind the gateway behind it."""

    proxy: Running
    workers: tuple[Running, Running]

    def worked(self) -> list[int]:
        """Requests that each server has answered."""
        told = []
        for worker in self.workers:
            lines = httpx.get(f"{worker.url}/metrics", timeout=60).text.splitlines()
            told.append(
                sum(int(float(li.rsplit(" ", 1)[1])) for li in lines if li.startswith("sglang:num_requests_total{"))
            )
        return told


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    smg = os.environ.get("SMG") or shutil.which("smg")
    if not smg:
        pytest.skip("SGLang's gateway is not there; `pip install smg` into an environment and name it with SMG")
    folder = tmp_path_factory.mktemp("fleet")
    model = shaped_model(folder)
    with ExitStack() as stack:
        one, two = (stack.enter_context(shaped_server(model, folder / f"sglang-{n}.log")) for n in (1, 2))
        port = a_free_port()
        env = {"SMG": smg, "WORKERS": f"{one.url} {two.url}", "PORT": str(port), "PROMETHEUS_PORT": str(a_free_port())}
        command = [str(ROOT / "deploy" / "sglang" / "launch_router.sh")]
        gateway = stack.enter_context(
            running(command, port=port, ready="/readiness", log=folder / "gateway.log", env=env, patience_s=300)
        )
        home: Path = folder / "home"
        home.mkdir()
        yield Fleet(stack.enter_context(proxy_process(home, gateway.url, *PATIENT)), (one, two))


def test_a_conversation_finds_the_server_that_has_its_prefix(fleet: Fleet) -> None:
    user = served_twice(fleet.proxy.url)
    got = user.say(NEW)
    assert (got.reuse, got.headers["x-antiphon-turns-replaced"]) == ("kv", "2")
    assert got.prefilled < 60
    assert got.cached > 300


def test_the_salt_goes_through_the_gateway(fleet: Fleet) -> None:
    prompt = [{"role": "system", "content": "Rules, behind a gateway. " + SYSTEM}, {"role": "user", "content": NEW}]
    cached = [
        User(fleet.proxy.url, key=key).send(prompt, {"Cache-Control": "no-cache"}).cached
        for key in ("one", "two", "one", "two")
    ]
    assert cached[:2] == [0, 0]
    assert min(cached[2:]) > 200


def test_callers_with_nothing_in_common_are_spread_over_both_servers(fleet: Fleet) -> None:
    for number in range(8):
        system = f"Assistant {number * 7919}. " + f"Rule {number}: say nothing of it. " * 20
        User(fleet.proxy.url, system=system).say(f"What is rule {number} about?")
    assert min(fleet.worked()) > 0
