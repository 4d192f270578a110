"""Fixtures that several rooms share: ports, the proxy as a real process, and the backends to put behind it."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis
import pytest

from tests.postgres import postgres, postgres_url
from tests.processes import Running, a_free_port, running

__all__ = ["postgres", "postgres_url"]

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"
BACKEND_ENV = ROOT / ".backend"
MODEL_NAME = "SmolLM2-135M-Instruct"

Serve = Callable[..., Running]

# A loaded machine is no reason to fail, and CI tries the same examples every time.
hypothesis.settings.register_profile(
    "antiphon",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("antiphon")


@pytest.fixture(scope="session")
def free_port() -> Callable[[], int]:
    """Call it for a port of the loopback address that nobody listens on."""
    return a_free_port


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder beside the repository with data and acceptance cases; without it the test is skipped."""
    if not SHARED.is_dir():
        pytest.skip("../shared is not there")
    return SHARED


@pytest.fixture(scope="session")
def scripted_upstream_module(shared: Path) -> ModuleType:
    """The module of the scripted backend, with ``ScriptedUpstream``."""
    name = "scripted_upstream"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, shared / "cases" / "scripted_upstream.py")
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # its dataclasses look themselves up there
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture
def scripted_upstream(scripted_upstream_module: ModuleType) -> Iterator[Any]:
    """A scripted backend: ``url``, ``calls``, ``play(script)``; every answer is one that no other call gets."""
    upstream = scripted_upstream_module.ScriptedUpstream()
    yield upstream
    upstream.close()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts real proxies: ``serve(upstream, *flags, store=None, env={})``, each ready when it is returned.

    They share one SQLite file unless ``store`` says otherwise, and have no settings of this machine's user.
    """
    with ExitStack() as stack:
        yield lambda *args, **kwargs: stack.enter_context(proxy_process(tmp_path, *args, **kwargs))


def proxy_process(
    folder: Path, upstream: str, *flags: str, store: str | None = None, env: dict[str, str] | None = None
) -> AbstractContextManager[Running]:
    """``antiphon serve`` with the project's defaults and its data in ``folder``, while the context is open."""
    port = a_free_port()
    store = store or f"sqlite:///{folder / 'antiphon.db'}"
    command = [str(Path(sys.executable).with_name("antiphon")), "serve", "--upstream", upstream]
    command += ["--host", "127.0.0.1", "--port", str(port), "--store", store, *flags]
    return running(
        command,
        port=port,
        ready="/antiphon/ready",
        log=folder / f"antiphon-{port}.log",
        env={"ANTIPHON_HOME": str(folder), "OMP_NUM_THREADS": "1", **(env or {})},
    )


@pytest.fixture(scope="session")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The real SGLang with SmolLM2, started once for all tests that need it."""
    if not (BACKEND_ENV / "models" / MODEL_NAME / "config.json").exists():
        pytest.skip("the backend's environment is not there; run `make backend`")
    port = a_free_port()
    log = tmp_path_factory.mktemp("backend") / "sglang.log"
    command = [str(ROOT / "deploy" / "sglang" / "launch.sh"), "--port", str(port)]
    with running(command, port=port, ready="/health", log=log, env={}, patience_s=900) as program:
        yield program
