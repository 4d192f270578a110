"""A folder in which a replay can be interrupted at any moment, by Ctrl-C or by the power going, and gone on with.

What has been done is what the last checkpoint says: the store as it was then, and so many lines of results. Whatever
was written after it is dropped and done again.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final

from eval.replay.errors import ReplayError

__all__ = ["Work"]

_FORMAT: Final = 1
_MARK: Final = "antiphon replay\n"
"""What the lock file holds: it says whose the folder is."""
_OURS: Final = (
    "lock",
    "results.jsonl",
    "store.db",
    "store.db.index",
    "checkpoint.db",
    "checkpoint.json",
    "checkpoint.new",
)


class Work:
    """One replay's folder. Blocks: for a thread of its own or between turns."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        """``config`` is everything on which the results depend; a folder made with another one is refused."""
        self.folder = folder
        self.results = folder / "results.jsonl"
        self.store = folder / "store.db"
        self._kept_store = folder / "checkpoint.db"
        self._state = folder / "checkpoint.json"
        self._config = json.loads(json.dumps(config))
        self._file: IO[bytes] | None = None
        self._lock: IO[str] | None = None

    def begin(self, *, fresh: bool = False) -> int:
        """Make the folder ready; returns how many results there are already.

        Raises `ReplayError` where it belongs to another replay, to no replay at all, or one is at work in it, and
        ``OSError``.
        """
        try:
            return self._begin(fresh=fresh)
        except BaseException:
            self.close()
            raise

    def _begin(self, *, fresh: bool) -> int:
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # what users said lies in it
        except (FileExistsError, NotADirectoryError):
            raise ReplayError(f"{self.folder} is no folder; name one with --work") from None
        if not self._is_ours():  # before anything is written
            raise ReplayError(f"{self.folder} holds files of something else: it is left alone; name another --work")
        self._lock = (self.folder / "lock").open("a+")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ReplayError(
                f"another replay is at work in {self.folder}: wait for it, or take another --work"
            ) from None
        if not (self.folder / "lock").stat().st_size:
            self._lock.write(_MARK)
            self._lock.flush()
        state: dict[str, Any] | None = None
        if self._state.exists() and not fresh:
            state = self._saved()
            if state is None:
                raise ReplayError(f"{self._state} is damaged; --fresh starts anew")
            if state["config"] != self._config:
                names = [n for n in self._config if state["config"].get(n) != self._config[n]]
                raise ReplayError(
                    f"{self.folder} belongs to a replay with other {', '.join(names)}; --fresh starts anew"
                )
        for path in (self.store, *self._beside(self.store)):
            path.unlink(missing_ok=True)
        if state is None:
            for path in (self._kept_store, self._state, self.results):
                path.unlink(missing_ok=True)
        elif self._kept_store.exists():
            shutil.copyfile(self._kept_store, self.store)
        self.results.touch(mode=0o600)
        self._file = self.results.open("ab")
        done, size = (0, 0) if state is None else (int(state["done"]), int(state["bytes"]))
        if self._file.tell() < size:
            raise ReplayError(f"{self.results} has lost lines; --fresh starts anew")
        self._file.truncate(size)
        return done

    def _is_ours(self) -> bool:
        """Whether the folder is a replay's, or empty: a wrong name must cost nobody a file."""
        names = {path.name for path in self.folder.iterdir()}
        if not names:
            return True
        try:
            with (self.folder / "lock").open("rb") as file:
                mark = file.read(len(_MARK) + 1)
        except OSError:  # there is none, or it is no file
            return False
        if mark:
            return mark == _MARK.encode()
        # One without a mark: made by an earlier release, or begun at this very moment.
        known = {*_OURS, *(path.name for path in self._beside(self.store))}
        return names <= known or self._saved() is not None

    def _saved(self) -> dict[str, Any] | None:
        """What the last checkpoint says; None where it is damaged or none. Raises ``OSError``."""
        try:
            state = json.loads(self._state.read_text("utf-8"))
            known = state["format"] == _FORMAT and {*state} >= {"config", "done", "bytes"}
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        return dict(state) if known else None

    def add(self, line: bytes) -> None:
        """Append one result, with its line feed. Raises ``OSError``."""
        assert self._file is not None
        self._file.write(line)

    def lines(self) -> Iterator[bytes]:
        """Yield the results so far."""
        if self._file is not None:
            self._file.flush()
        with self.results.open("rb") as file:
            yield from file

    def save(self, done: int) -> None:
        """Make ``done`` results last. What the store was given must be committed. Raises ``OSError``."""
        assert self._file is not None
        self._file.flush()
        os.fsync(self._file.fileno())
        if self.store.exists():
            aside = self._kept_store.with_suffix(".new")
            aside.unlink(missing_ok=True)
            aside.touch(mode=0o600)
            with (
                contextlib.closing(sqlite3.connect(self.store)) as now,
                contextlib.closing(sqlite3.connect(aside)) as kept,
            ):
                now.backup(kept)
            aside.replace(self._kept_store)
        state = {"format": _FORMAT, "config": self._config, "done": done, "bytes": self._file.tell()}
        aside = self._state.with_suffix(".new")
        aside.write_text(json.dumps(state), "utf-8")
        aside.replace(self._state)

    def close(self) -> None:
        """Close the files."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._lock is not None:
            self._lock.close()  # and with it the lock is given up
            self._lock = None

    @staticmethod
    def _beside(store: Path) -> tuple[Path, ...]:
        return tuple(store.with_name(store.name + ending) for ending in ("-wal", "-shm", ".lock", "-journal"))
