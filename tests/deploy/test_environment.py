"""Setting up: a second run does nothing, an interrupted one goes on, and a failure says what happened."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.environment import ROOT, SetupError, Step, digest_of, make_environment

Steps = Callable[[Path], list[Step]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An environment whose Python is there already: making one takes many seconds."""
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "env" / "stamps").mkdir()
    (tmp_path / "env" / "stamps" / "python").write_text("3.11")
    return tmp_path / "env"


def write_line(tmp_path: Path, name: str, lock: Path, *, always: bool = False) -> Step:
    """A step that leaves a line in a file each time it runs."""
    code = f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r} + ' ')"
    return Step(name, name, [sys.executable, "-c", code], [lock], always)


def what_ran(tmp_path: Path) -> list[str]:
    """The names of the steps that ran since the last call, in order."""
    path = tmp_path / "ran"
    names = path.read_text().split() if path.exists() else []
    path.unlink(missing_ok=True)
    return names


def test_only_steps_whose_inputs_changed_run_again(tmp_path: Path, folder: Path) -> None:
    first, second = tmp_path / "first.lock", tmp_path / "second.lock"
    first.write_text("a==1")
    second.write_text("b==1")

    def steps(python: Path) -> list[Step]:
        return [
            write_line(tmp_path, "first", first),
            write_line(tmp_path, "second", second),
            write_line(tmp_path, "always", second, always=True),
        ]

    make_environment(folder, steps)
    assert what_ran(tmp_path) == ["first", "second", "always"]
    make_environment(folder, steps)
    assert what_ran(tmp_path) == ["always"]
    second.write_text("b==2")
    make_environment(folder, steps)
    assert what_ran(tmp_path) == ["second", "always"]


def test_a_failed_step_shows_its_last_words_and_the_next_run_goes_on_there(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "lock"
    lock.write_text("a==1")
    broken = True

    def steps(python: Path) -> list[Step]:
        failing = Step("second", "the second", [sys.executable, "-c", "raise SystemExit('no space left')"], [lock])
        return [write_line(tmp_path, "first", lock), failing if broken else write_line(tmp_path, "second", lock)]

    with pytest.raises(SetupError, match=r"^env 2/2: the second failed \(exit status 1\)"):
        make_environment(folder, steps)
    assert "no space left" in capsys.readouterr().err
    assert what_ran(tmp_path) == ["first"]
    broken = False
    make_environment(folder, steps)
    assert what_ran(tmp_path) == ["second"]


def test_the_digest_of_a_folder_depends_on_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("2")
    before = digest_of([tmp_path])
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_text("compiled")
    assert digest_of([tmp_path]) == before
    (tmp_path / "a").write_text("2")
    (tmp_path / "b").write_text("1")
    assert digest_of([tmp_path]) != before


def canonical(requirement: str) -> str:
    """The name of a requirement, as PEP 503 compares names."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def locked(name: str) -> dict[str, str]:
    """Name → the pinned version, from a lock file."""
    lines = (ROOT / "requirements" / name).read_text("utf-8").splitlines()
    pins = [line.split()[0].split("==") for line in lines if "==" in line and line[0].isalnum()]
    return {canonical(package): version for package, version in pins}


def test_what_the_project_asks_for_is_locked_and_both_lock_files_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    run_time, development = locked("proxy.lock"), locked("dev.lock")
    assert {canonical(one) for one in project["dependencies"]} <= run_time.keys()
    assert {canonical(one) for one in [*extras["dev"], *extras["eval"]]} <= development.keys()
    assert run_time.items() <= development.items()


@pytest.mark.parametrize("path", sorted((ROOT / "requirements").iterdir()), ids=lambda path: path.name)
def test_lock_files_name_no_machine(path: Path) -> None:
    text = path.read_text("utf-8")
    assert not re.search(r"https?://|file:/|--find-links|--index-url|--extra-index-url|(?<![\w.])/\w", text)
