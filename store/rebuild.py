"""The vector index, made anew from the database in the background when look-ups turn slow or fail."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from sqlalchemy import Engine

from store.counters import Failures
from store.neighbours import Neighbours

__all__ = ["Rebuilder"]

log = logging.getLogger(__name__)


class Rebuilder:
    """Remembers that the index is to be made anew, and makes it. `run` is for a thread of the upkeep."""

    def __init__(self, index: Neighbours, readers: Engine, failures: Failures, clock: Callable[[], float]) -> None:
        self._index = index
        self._readers = readers
        self._failures = failures
        self._clock = clock
        self._lock = threading.Lock()
        self._due = False
        self.count = 0  # rebuilds that were finished

    @property
    def due(self) -> bool:
        """Whether a rebuild was asked for and has not succeeded yet."""
        return self._due

    def ask(self) -> bool:
        """Ask for a rebuild; returns whether that is news."""
        news, self._due = not self._due, True
        return news

    def run(self) -> None:
        """Make the index anew where that is due; where it cannot be done, it stays due."""
        if not self._due or not self._lock.acquire(blocking=False):
            return
        try:
            with self._readers.connect() as connection:
                self._index.rebuild(connection, self._clock(), self._failures)
        except Exception as error:
            self._failures.note("rebuild", error)
        else:
            self._due = False
            self.count += 1
            log.info("the vector index was made anew")
        finally:
            self._lock.release()
