"""Fingerprints of stored turns: made in the background when a candidate first needed one, then read with the entry."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from fingerprint.conversation import Turn
from fingerprint.facts import fingerprint_of, pack
from store.bounded import Bounded
from store.counters import Failures
from store.types import Candidate, Decision
from store.writer import Writer
from store.writes import FingerprintWrite

__all__ = ["Prints"]

_REMEMBERED: Final = 4_096  # entries whose fingerprints were asked for lately


class Prints:
    """Writes the fingerprints that decisions lacked. Never blocks, never raises."""

    def __init__(self, writer: Writer, failures: Failures) -> None:
        self._writer = writer
        self._failures = failures
        self._pool = ThreadPoolExecutor(1, "antiphon-prints")
        self._asked: Bounded[str, bool] = Bounded(_REMEMBERED)

    def lacking(self, candidates: Sequence[Candidate], decision: Decision, verify: float) -> None:
        """Have the fingerprints made that this decision needed and did not find: of candidates no guard objects to,
        with a confidence of ``verify`` or more."""
        near = {j.entry_id for j in decision.judgements if not j.objections and j.confidence >= verify}
        wanted = {
            c.entry_id: c.turn
            for c in candidates
            if c.fingerprint is None and c.entry_id in near and c.entry_id not in self._asked
        }
        if not wanted:
            return
        for entry_id in wanted:
            self._asked[entry_id] = True
        try:
            self._pool.submit(self._make, wanted)
        except RuntimeError:  # closing
            return

    def wait(self) -> None:
        """Block until everything asked for so far is on its way to the writer."""
        with contextlib.suppress(RuntimeError):  # closed
            self._pool.submit(lambda: None).result()

    def close(self) -> None:
        """Stop; what is not made is made when it is needed again."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _make(self, wanted: dict[str, Turn]) -> None:
        try:
            self._writer.put(FingerprintWrite({key: pack(fingerprint_of(turn)) for key, turn in wanted.items()}))
        except Exception as error:
            self._failures.note("prints", error)
