"""The rooms import each other one way only, and the command imports them lazily."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = ("onnxruntime", "onnx", "faiss", "spacy", "sqlalchemy", "alembic", "httpx", "uvicorn", "numpy", "tokenizers")


def test_the_rooms_keep_to_the_import_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlinter import cli

    monkeypatch.chdir(ROOT)
    assert (
        cli.lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True, verbose=False)
        == cli.EXIT_STATUS_SUCCESS
    )


@pytest.mark.parametrize("arguments", [["--help"], ["serve", "--help"], ["config"], ["--version"]])
def test_the_command_imports_no_heavy_room_before_it_needs_it(arguments: list[str], tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from proxy.cli import main\n"
        f"sys.argv = ['antiphon', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code, stop.code\n"
        f"found = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "assert not found, found\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "", "ANTIPHON_HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr


def test_no_room_imports_the_training_libraries() -> None:
    code = (
        "import sys, pkgutil, importlib\n"
        "for room in ('fingerprint', 'store', 'proxy'):\n"
        "    package = importlib.import_module(room)\n"
        "    for module in pkgutil.walk_packages(package.__path__, room + '.'):\n"
        "        if 'migrations' not in module.name:\n"  # Alembic runs those itself
        "            importlib.import_module(module.name)\n"
        "found = [name for name in ('torch', 'sklearn', 'scipy', 'matplotlib', 'eval') if name in sys.modules]\n"
        "assert not found, found\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
