"""Settings of the store; the proxy's settings embed this model as the section ``[store]``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = ["CheckSettings", "ContextStrategy", "StoreSettings"]

ContextStrategy = Literal["current", "window", "window+topic", "summary"]


class StoreSettings(BaseModel):
    """Where answers are kept, for how long, and how long a look-up may take."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    url: str = Field(
        "",
        description="Database URL (SQLAlchemy): `sqlite:////path/antiphon.db` for one proxy, `sqlite://` for a "
        "temporary file that is deleted at the end, or `postgresql+psycopg://user:password@host/database` for any "
        "number of proxies (needs `antiphon[postgres]`, and pgvector 0.8 on the server). Empty: a file in the data "
        "folder.",
    )
    default_ttl_s: float = Field(
        604_800.0,
        gt=0,
        description="Lifetime in seconds of a stored answer where neither the caller nor an admission rule sets one "
        "(seven days). Measured from the moment it was stored; a hit never renews it.",
    )
    lookup_deadline_ms: float = Field(
        250.0, gt=0, le=60_000, description="Milliseconds one read of the database may take; then it is a miss."
    )
    embed_deadline_ms: float = Field(
        500.0, gt=0, le=60_000, description="Milliseconds the embedding of a turn may take; then it is a miss."
    )
    decide_deadline_ms: float = Field(
        500.0, gt=0, le=60_000, description="Milliseconds the reuse decision may take; then it is a miss."
    )
    busy_timeout_ms: int = Field(
        5_000,
        ge=0,
        le=600_000,
        description="Milliseconds the writer waits at a time for a database locked by somebody else.",
    )
    locked_patience_s: float = Field(
        30.0,
        ge=0,
        le=3_600,
        description="Seconds of a database that is locked, or (PostgreSQL) away, after which waiting writes are "
        "dropped and counted.",
    )
    write_queue_size: int = Field(
        2_048, ge=1, le=1_000_000, description="Writes that may wait; further ones are dropped and counted."
    )
    write_linger_ms: float = Field(
        0.0,
        ge=0,
        le=60_000,
        description="How long a write that nobody waits for may wait for others to share its transaction.",
    )
    changes_poll_ms: float = Field(
        250.0,
        gt=0,
        le=60_000,
        description="Milliseconds between two looks at what other proxies on the same PostgreSQL database took out of "
        "circulation; where the server notifies, it is known sooner.",
    )
    changes_limit_ms: float = Field(
        1_000.0,
        gt=0,
        le=3_600_000,
        description="Milliseconds without such a look after which nothing is served from the cache until one succeeds. "
        "Must be more than `changes_poll_ms`.",
    )

    @model_validator(mode="after")
    def _looks_often_enough(self) -> Self:
        if self.changes_limit_ms <= self.changes_poll_ms:
            raise ValueError(f"changes_limit_ms must be more than changes_poll_ms, which is {self.changes_poll_ms:g}")
        return self

    decide_threads: int = Field(
        1, ge=1, le=64, description="Threads that judge candidates. Half of a judgement runs outside of Python's lock."
    )
    read_threads: int = Field(2, ge=1, le=64, description="Threads, and database connections, that read.")
    memory_mib: float = Field(
        64.0, ge=0, le=1_048_576, description="MiB of answers kept in memory for exact repeats; 0 keeps none."
    )
    max_entry_kib: float = Field(
        1_024.0,
        gt=0,
        le=1_048_576,
        description="Largest turn (history, question and answer together), in KiB, that is stored.",
    )
    max_entries: int = Field(
        200_000,
        ge=1,
        description="Entries kept; beyond it the least valuable are removed: expected tokens saved (length, hits, how "
        "far they can be trusted) over the time since their last use.",
    )
    max_mib: float = Field(
        4_096.0,
        ge=16,
        le=16_777_216,
        description="MiB the entries may take in the database; beyond it the least valuable are removed.",
    )
    cold_days: float = Field(
        30.0, gt=0, description="Days without a hit after which an entry with fewer than `cold_hits` hits is removed."
    )
    cold_hits: int = Field(5, ge=0, description="Hits from which on an entry is not removed for being cold.")
    long_life_tokens: float = Field(
        4.0,
        ge=0,
        description="Expected tokens saved (length of the answer, times repeats, times how far it can be trusted) from "
        "which on an answer lives for `default_ttl_s`; one that saves fewer lives for `medium_ttl_s`.",
    )
    medium_ttl_s: float = Field(
        86_400.0, gt=0, description="Lifetime in seconds of an answer that saves few tokens (a day)."
    )
    no_life_tokens: float = Field(
        0.25,
        ge=0,
        description="Expected tokens saved below which an answer is not stored: short ones that were corrected or "
        "doubted again and again. 0 stores everything.",
    )
    min_repeats: int = Field(
        0,
        ge=0,
        le=1_000,
        description="How often a question must have been repeated before its stored answer is served. 0 serves the "
        "first repeat.",
    )
    doubts_to_suspect: int = Field(
        3,
        ge=0,
        le=1_000,
        description="Sessions that ask again or regenerate right after a hit before its entry becomes suspect, if they "
        "are at least a fifth of its hits. 0: such doubts are only counted.",
    )
    window_rounds: int = Field(
        5, ge=0, le=64, description="Rounds of history (a question and its replies) that make up the window vector."
    )
    context_strategy: ContextStrategy = Field(
        "window",
        description="What of the conversation orders candidates besides the message: `current` nothing, `window` the "
        "last rounds, `window+topic` also the first turn, `summary` also the sentences that stand for what lies before "
        "the window. Entries stored under another strategy keep being found by their message.",
    )
    retrieval_depth: int = Field(
        32, ge=1, le=1_024, description="Nearest entries that are looked at before the best of them are judged."
    )
    ivf_threshold: int = Field(
        20_000,
        ge=1_000,
        description="Entries in one bucket (partition, identity, vector space) above which its index is IVF-Flat "
        "instead of exact; on PostgreSQL, vectors in one space above which it gets an HNSW index.",
    )
    place_days: float = Field(
        30.0, gt=0, description="Days the place of a conversation in the forest is remembered after its last turn."
    )
    session_hours: float = Field(
        24.0, gt=0, description="Hours a session's answered turns are remembered, so that a repeat is a regenerate."
    )
    drift_window: int = Field(
        100, ge=2, le=10_000, description="Last answers to one question whose variance is watched (drift)."
    )
    drift_variance: float = Field(
        0.08,
        ge=0,
        le=1,
        description="Variance of the last answers to one question (of their vectors, 0 to 1) above which it is not "
        "served until they settle.",
    )
    drift_cosine: float = Field(
        0.95, ge=-1, le=1, description="Cosine of two answers to one question under which they count as different."
    )
    drift_least_answers: int = Field(
        3, ge=2, le=10_000, description="Answers to one question before their variance says anything."
    )


@dataclass(frozen=True, slots=True)
class CheckSettings:
    """What the operator decides about checks. Rates and confidences 0 … 1, cosines −1 … 1."""

    enabled: bool = False  # whether anything is verified in the background
    serve_suspects: bool = True
    agreements: int = 2  # checks that promote a suspect
    agree_cosine: float = 0.95
    differ_cosine: float = 0.75
    window: int = 20  # checks of one question that count
    least_checks: int = 3  # before there are as many, nothing is barred
    accuracy: float = 0.95  # under it a question is barred
    bar_s: float = 86_400.0
    wrong_hits: float | None = None  # the error budget
    alpha: float = 0.05  # chance that a bound fails
    evidence: int = 5_000  # observations of one kind that count

    @property
    def suspects(self) -> bool:
        """Whether what is not sure enough may be served as suspect."""
        return self.enabled and self.serve_suspects
