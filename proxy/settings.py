"""Settings: one TOML file, environment variables over it, command-line flags over those.

Every setting has its unit in its name or its type, and a description. Unknown keys are errors that name the nearest
known one; a bad value is one clear line. ``Settings(...)`` itself reads neither file nor environment: only :func:`load`
does, and it also says where each value came from.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args, get_origin
from urllib.parse import urlsplit, urlunsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import platformdirs
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict
from rapidfuzz import fuzz, process

from store.settings import StoreSettings
from store.types import Policy

__all__ = [
    "AdminSettings",
    "AdmissionSettings",
    "BudgetSettings",
    "CaptureSettings",
    "DecisionSettings",
    "FlightSettings",
    "KvSettings",
    "LimitsSettings",
    "Loaded",
    "LoggingSettings",
    "Origin",
    "RolloutSettings",
    "ServerSettings",
    "Setting",
    "Settings",
    "SettingsError",
    "SharingSettings",
    "TracingSettings",
    "UpstreamSettings",
    "VerificationSettings",
    "data_folder",
    "every_setting",
    "example_toml",
    "list_from_text",
    "load",
    "nearest",
    "policy_of",
    "shown",
]

ENV_PREFIX = "ANTIPHON_"
CONFIG_NAME = "antiphon.toml"
#: Variables with our prefix that are not settings.
ENV_NOT_SETTINGS = frozenset({"ANTIPHON_HOME", "ANTIPHON_CONFIG"})
# Kubernetes puts these into every pod beside a service named "antiphon": they must not stop the proxy from starting.
_KUBERNETES = re.compile(
    r"ANTIPHON(_\w+)?_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)\Z"
)


class SettingsError(ValueError):
    """The settings cannot be used. The message has one line for each fault and never contains a secret."""


# --------------------------------------------------------------------------------------------------------- the model


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class ServerSettings(_Section):
    """Where the proxy listens."""

    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on.")
    port: int = Field(8080, ge=0, le=65535, description="TCP port to listen on; 0 takes any free one.")
    graceful_shutdown_s: int = Field(
        30,
        ge=0,
        le=3600,
        description="Seconds that running replies and pending writes get to finish after a stop.",
    )
    keep_alive_s: int = Field(75, ge=1, le=3600, description="Seconds an idle client connection is kept open.")
    backlog: int = Field(2048, ge=1, le=65535, description="Connections the operating system may queue before accept.")
    max_body_mib: float = Field(
        32.0,
        gt=0,
        le=1024,
        description="Largest request body, in MiB, that is read for look-up; a larger one is passed through.",
    )


def _http_url(value: str) -> str:
    """Check an upstream URL; a trailing slash or ``/v1`` is dropped, since every request brings its own path."""
    parts = urlsplit(value.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be a URL such as http://127.0.0.1:30000")
    if parts.query or parts.fragment:
        raise ValueError("must have no query and no fragment")
    try:
        _ = parts.port
    except ValueError:
        raise ValueError("has a port that is not a number from 0 to 65535") from None
    path = parts.path.rstrip("/").removesuffix("/v1")
    return urlunsplit((parts.scheme, parts.netloc, path.rstrip("/"), "", ""))


class UpstreamSettings(_Section):
    """The SGLang (or other OpenAI-compatible) backend behind the proxy."""

    url: Annotated[str, AfterValidator(_http_url)] = Field(
        "http://127.0.0.1:30000", description="URL of the backend; requests keep their own path."
    )
    connect_timeout_s: float = Field(5.0, gt=0, le=600, description="Seconds to wait for a connection to the backend.")
    read_timeout_s: float = Field(
        600.0, gt=0, le=86400, description="Seconds to wait for the next byte of a reply before the client gets a 504."
    )
    max_connections: int = Field(
        1000, ge=1, le=100_000, description="Connections to the backend open at the same time; more requests wait."
    )
    pool_timeout_s: float = Field(
        30.0, gt=0, le=3600, description="Seconds a request waits for a free connection to the backend before a 504."
    )
    keep_alive_s: float = Field(
        30.0, ge=0, le=3600, description="Seconds an idle connection to the backend is kept for reuse."
    )
    verify_tls: bool = Field(True, description="Whether the backend's TLS certificate is checked.")
    version_interval_s: float = Field(
        5.0,
        ge=0,
        le=86400,
        description="Seconds between looks at the backend's weights version; 0 never looks.",
    )
    version: str = Field(
        "",
        description="The operator's own version of the backend, part of the identity of every answer: for backends "
        "that do not report a weights version. Changing it makes every older answer unreachable.",
    )


def _caller(value: str) -> str:
    """Check one trusted caller: a network such as ``10.0.0.0/8``, or ``sha256:`` and the digest of a bearer token."""
    text = value.strip().lower()
    if text.startswith("sha256:"):
        if re.fullmatch(r"sha256:[0-9a-f]{64}", text) is None:
            raise ValueError("sha256: must be followed by 64 hexadecimal digits")
        return text
    try:
        return str(ipaddress.ip_network(text, strict=False))
    except ValueError:
        raise ValueError(f"{value!r} is neither an address, nor a network, nor sha256:DIGEST") from None


def _header(value: str) -> str:
    """Check the name of a header (RFC 9110 §5.1); names are compared in lower case."""
    name = value.strip().lower()
    if re.fullmatch(r"[!#$%&'*+.^_`|~0-9a-z-]+", name) is None:
        raise ValueError(f"{value!r} is not the name of a header")
    if name.startswith("x-antiphon-"):
        raise ValueError("headers of the proxy's own have a meaning of their own")
    return name


class SharingSettings(_Section):
    """Who may get an answer that somebody else's question produced."""

    share: Literal["session", "user", "credential", "tenant"] = Field(
        "credential",
        description="Who shares answers: the same session, the same `user` field, the same API key, or everybody of "
        "one tenant whatever the API key. A personal turn is never shared beyond its session or user.",
    )
    trusted_tenant_callers: tuple[Annotated[str, AfterValidator(_caller)], ...] = Field(
        (),
        description="Callers whose `X-Antiphon-Tenant` header is believed: addresses or networks (`10.0.0.0/8`), or "
        "`sha256:` and the SHA-256 of a bearer token. From anybody else the header is ignored.",
    )
    volatile_system_parts: tuple[re.Pattern[str], ...] = Field(
        (),
        description="Regular expressions for the parts of a system prompt that vary without a meaning (today's date, a "
        "request id); what they match is masked before the system prompt enters the identity.",
    )

    credential_headers: tuple[Annotated[str, AfterValidator(_header)], ...] = Field(
        (),
        description="Names of further headers that tell callers apart: requests that differ in one share no answers. "
        "Those whose names say so (`Authorization`, `X-Api-Key`, `Cookie`, anything with token, user, session, …) need "
        "not be listed.",
    )
    ignored_headers: tuple[Annotated[str, AfterValidator(_header)], ...] = Field(
        (),
        description="Names of headers that do not tell callers apart although their names sound so. Only for headers "
        "on which neither an answer nor the right to see it depends.",
    )

    @cached_property
    def _networks(self) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
        return tuple(ipaddress.ip_network(c) for c in self.trusted_tenant_callers if not c.startswith("sha256:"))

    def trusts(self, peer: str | None, bearer: str | None) -> bool:
        """Whether the caller at address ``peer`` with this bearer token may name the tenant it speaks for."""
        if not self.trusted_tenant_callers:
            return False
        if bearer and f"sha256:{sha256(bearer.encode()).hexdigest()}" in self.trusted_tenant_callers:
            return True
        if peer is None:
            return False
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self._networks)


class DecisionSettings(_Section):
    """When a stored answer is good enough for a turn that is worded differently."""

    enabled: bool = Field(True, description="Whether reworded turns are looked up at all; off leaves exact repeats.")
    answer: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Least reuse confidence (0 to 1) at which a stored answer is served. Unset: the calibrated "
        "threshold shipped with the confidence model. Callers can only make matching stricter, never looser.",
    )
    verify: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Least reuse confidence (0 to 1) at which a candidate is looked at more closely. Unset: the "
        "calibrated threshold shipped with the confidence model.",
    )
    max_candidates: int = Field(8, ge=1, le=64, description="Stored turns compared with the new one, at most.")
    verifier: Literal["none", "backend"] = Field(
        "none",
        description="Who is asked about candidates between `verify` and `answer` that no guard objects to: nobody, or "
        "the backend itself, with one token and its log-probabilities of yes and no. A failure or a missed deadline "
        "counts as no. What it says yes to is served as suspect.",
    )
    verifier_least: float = Field(
        0.98,
        gt=0,
        le=1,
        description="Least calibrated probability (0 to 1) of yes at which the answer is served. Take it, slope and "
        "intercept from `python -m eval.bench.verifier` with your own model.",
    )
    verifier_slope: float = Field(1.0, ge=0, le=100, description="Slope of the calibration of the verifier (Platt).")
    verifier_intercept: float = Field(
        0.0, ge=-100, le=100, description="Intercept of the calibration of the verifier (Platt)."
    )
    verifier_deadline_ms: float = Field(
        300.0, gt=0, le=60_000, description="Milliseconds the verifier may take; then it is a no."
    )
    verifier_model: str = Field("", description="Model that is asked; empty: the one of the request.")
    verifier_api_key: SecretStr | None = Field(
        None, description="API key for asking the backend. Best set through `ANTIPHON_DECISION__VERIFIER_API_KEY`."
    )
    by_traffic: bool = Field(
        False,
        description="Whether more traffic makes matching stricter: `answer` is then at least 0.80 + 0.05 · log10(daily "
        "requests / 10,000), between 0.80 and 0.99, by the requests of the last 24 hours. Never looser than without.",
    )
    thresholds_file: Path | None = Field(
        None,
        description="File of `antiphon calibrate` with the operator's own thresholds; read again whenever it changes. "
        "A broken one keeps the thresholds in force; at the start it leaves exact repeats only, until it is mended. "
        "`answer` and `verify`, where set, go before it.",
    )
    thresholds_interval_s: float = Field(
        2.0, gt=0, le=3600, description="Seconds between looks at whether `thresholds_file` has changed."
    )

    @model_validator(mode="after")
    def _ordered(self) -> DecisionSettings:
        if self.answer is not None and self.verify is not None and self.verify > self.answer:
            raise ValueError("verify must not be greater than answer")
        return self


def policy_of(decision: DecisionSettings, calibrated: Policy) -> Policy:
    """The thresholds in force: the operator's, else the calibrated ones; ``verify`` is never above ``answer``."""
    answer = calibrated.answer if decision.answer is None else decision.answer
    verify = calibrated.verify if decision.verify is None else decision.verify
    return Policy(answer=answer, verify=min(answer, verify), max_candidates=decision.max_candidates)


class RolloutSettings(_Section):
    """Whether answers are served from the cache, or only watched first."""

    mode: Literal["serve", "shadow"] = Field(
        "serve",
        description="`serve` answers from the cache. `shadow` lets the model answer every turn, decides all the same "
        "in the background, and writes down how the stored answer compares with the real one "
        "(`antiphon shadow report`).",
    )
    canary_percent: float = Field(
        0.0,
        ge=0,
        le=100,
        description="In shadow mode: percentage of sessions that are served from the cache all the same, always the "
        "same ones (without `X-Antiphon-Session`: of conversations, by how they begin).",
    )
    observations: str = Field(
        "",
        description="File that shadow mode writes its observations to, one JSON object a line. Empty: `shadow.jsonl` "
        "in the data folder.",
    )
    observations_max_mib: float = Field(
        256.0, gt=0, le=1_048_576, description="MiB at which the file is set aside (one older file is kept)."
    )
    keep_texts: bool = Field(
        True,
        description="Whether observations hold the beginnings of the messages and answers compared; without them wrong "
        "answers are counted and cannot be looked at.",
    )
    redact: bool = Field(
        True,
        description="Whether e-mail addresses, phone and card numbers, keys and passwords are replaced in them.",
    )
    queue_size: int = Field(
        1_000, ge=1, le=1_000_000, description="Turns that may wait to be compared; further ones are left out, counted."
    )


def _time_zone(value: str) -> str:
    """Check the name of a time zone; empty stands for the machine's own."""
    name = value.strip()
    try:
        if name:
            ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("write the name of a time zone, such as Europe/Berlin or UTC") from None
    return name


class AdmissionSettings(_Section):
    """Which turns are looked up and stored at all."""

    time_sensitive: Literal["never", "exact"] = Field(
        "never",
        description="Turns whose answer changes with time ('what is the weather'): never cached, or exact repeats "
        "only, for `time_sensitive_ttl_s`.",
    )
    time_sensitive_ttl_s: float = Field(
        60.0, gt=0, le=86400, description="Lifetime in seconds of a time-sensitive answer, where those are stored."
    )
    time_zone: Annotated[str, AfterValidator(_time_zone)] = Field(
        "",
        description="Time zone (IANA name, such as `Europe/Berlin`) in which 'yesterday' or 'this week' is read: an "
        "answer to such a turn is only reused while that means the same days. Unset: the machine's own.",
    )
    creative: bool = Field(False, description="Whether turns that ask for invention (a poem, a name) are cached.")
    smalltalk: bool = Field(False, description="Whether greetings, thanks and the like are cached.")
    tools: bool = Field(
        True, description="Whether exact repeats of turns with tools are cached; off passes them through."
    )


class FlightSettings(_Section):
    """Identical turns that arrive at the same time."""

    enabled: bool = Field(True, description="Whether identical concurrent turns share one call to the backend.")
    elsewhere_wait_s: float = Field(
        5.0,
        ge=0,
        le=600,
        description="Seconds a turn waits for another proxy on the same PostgreSQL database that is having it answered "
        "just now, before it calls the backend itself; 0: it does not wait.",
    )


class KvSettings(_Section):
    """Reuse of the backend's KV cache."""

    cache_salt: bool = Field(
        True,
        description="Whether `cache_salt` is sent to SGLang per partition, so that nobody can time another's prefixes.",
    )
    canonical_history: bool = Field(
        True,
        description="Whether the earlier turns of a conversation that were served from the cache are forwarded in the "
        "words the backend has computed already. `X-Antiphon-Canonical-History: off` turns it off for one request.",
    )
    reference_turn: bool = Field(
        False,
        description="Whether a turn that is nearly, but not surely enough, the same as a stored one is forwarded with "
        "that question and its answer before it. What the model answers then is not stored.",
    )
    stable_bytes: bool = Field(
        True,
        description="Whether tools are forwarded with their JSON keys in the order in which they were first seen, "
        "whatever order the client writes them in.",
    )
    hygiene: bool = Field(
        True,
        description="Whether forwarded requests are compared with the ones before them for what breaks their prefixes "
        "(`antiphon_prefix_breaks_total`).",
    )


class VerificationSettings(_Section):
    """Served answers that are checked against fresh ones in the background."""

    enabled: bool = Field(
        False,
        description="Whether served answers are checked in the background, by asking the backend again. Costs the "
        "backend at most `max_per_minute` requests a minute.",
    )
    serve_suspects: bool = Field(
        True,
        description="Whether a turn that is not sure enough, but has the same structural fingerprint as a stored one, "
        "is served as suspect while it is verified; off sends it to the backend and learns from the answer. Without "
        "`enabled` nothing is served as suspect.",
    )
    agreements: int = Field(
        2,
        ge=1,
        le=100,
        description="Checks that must agree before a suspect counts as verified; one that differs ends it.",
    )
    sample_rate: float = Field(
        0.02,
        ge=0,
        le=1,
        description="Share (0 to 1) of the other hits, and of the misses that had a near candidate, that is checked. "
        "With an error budget reworded turns are all checked until there is evidence enough.",
    )
    max_per_minute: float = Field(
        30.0, gt=0, le=60_000, description="Requests a minute that checks may send to the backend, at most."
    )
    max_running: int = Field(1, ge=1, le=64, description="Checks that run at the same time, at most.")
    queue_size: int = Field(
        256, ge=1, le=100_000, description="Checks that may wait; further ones are dropped and counted."
    )
    priority: int | None = Field(
        None,
        description="`priority` of the checks' requests, for an SGLang with `--enable-priority-scheduling`. SGLang "
        "takes requests without one for the least urgent unless `--default-priority-value` says otherwise: give "
        "clients one with that flag, and checks a smaller one here. Unset: none is sent.",
    )
    agree_cosine: float = Field(
        0.95, ge=-1, le=1, description="Cosine of two answers from which they agree, where no fact differs."
    )
    differ_cosine: float = Field(
        0.75, ge=-1, le=1, description="Cosine of two answers under which they differ, whatever their facts."
    )
    window: int = Field(20, ge=1, le=10_000, description="Last checks of one question that make up its accuracy.")
    least_checks: int = Field(3, ge=1, le=10_000, description="Checks of one question before it can be barred.")
    least_accuracy: float = Field(
        0.95, ge=0, le=1, description="Accuracy (0 to 1) of the last checks of one question under which it is barred."
    )
    barred_hours: float = Field(24.0, gt=0, le=8_760, description="Hours for which a question is barred.")
    judge_url: Annotated[str, AfterValidator(lambda value: _http_url(value) if value.strip() else "")] = Field(
        "",
        description="URL of an OpenAI-compatible endpoint whose model decides where facts and similarity cannot tell "
        "whether two answers agree. It sees questions and answers. Empty: nobody is asked.",
    )
    judge_model: str = Field("", description="Name of the judge's model.")
    judge_api_key: SecretStr | None = Field(
        None, description="API key for the judge. Best set through `ANTIPHON_VERIFICATION__JUDGE_API_KEY`."
    )
    judge_timeout_s: float = Field(60.0, gt=0, le=3600, description="Seconds the judge may take.")

    @model_validator(mode="after")
    def _sound(self) -> VerificationSettings:
        if self.differ_cosine > self.agree_cosine:
            raise ValueError("differ_cosine must not be greater than agree_cosine")
        return self


class BudgetSettings(_Section):
    """How many wrong hits are borne, and how thresholds keep to it."""

    wrong_hits: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Share (0 to 1) of the reworded hits of each kind that may be wrong, such as 0.01. Thresholds rise "
        "until the upper bound of the observed share is below it. Unset: the thresholds stay as they are.",
    )
    confidence: float = Field(
        0.95, gt=0.5, lt=1, description="Confidence (0 to 1) of the upper bound, at all times at once."
    )
    evidence: int = Field(5_000, ge=10, le=1_000_000, description="Last checked decisions of each kind that count.")


class AdminSettings(_Section):
    """The surface under `/antiphon/`."""

    token: SecretStr | None = Field(
        None,
        description="Token that opens the admin surface. Without one only a local caller of a proxy that listens on "
        "loopback gets in. Best set through `ANTIPHON_ADMIN__TOKEN`.",
    )

    @model_validator(mode="after")
    def _long_enough(self) -> AdminSettings:
        if self.token is not None and re.fullmatch(r"[!-~]{8,}", self.token.get_secret_value()) is None:
            raise ValueError("token must have at least 8 characters, printable ASCII without spaces")
        return self


class LimitsSettings(_Section):
    """How much is taken on. What is only too much for the cache is forwarded uncached, unless you want it refused."""

    over: Literal["forward", "refuse"] = Field(
        "forward",
        description="What becomes of a body over `server.max_body_mib` and of a turn over `limits.max_messages`: "
        "forwarded uncached, or refused with 413.",
    )
    max_messages: int = Field(
        2_000, ge=1, le=1_000_000, description="Messages of a turn, with its history, that is looked up and stored."
    )
    max_headers: int = Field(500, ge=16, le=100_000, description="Headers of a request; more get 431.")
    max_head_kib: float = Field(
        256.0, ge=8, le=65_536, description="KiB of request line and headers together; more get 431."
    )
    head_timeout_s: float = Field(
        60.0,
        gt=0,
        le=3_600,
        description="Seconds a client has to send request line and headers before it gets 408 and is disconnected.",
    )
    max_concurrent_requests: int = Field(
        0, ge=0, le=1_000_000, description="Requests, streams included, answered at a time; more get 503. 0: no limit."
    )
    max_concurrent_per_caller: int = Field(
        0,
        ge=0,
        le=1_000_000,
        description="Requests of one caller (its credential, else its address) answered at a time; more get 429. 0: no "
        "limit.",
    )


class TracingSettings(_Section):
    """OpenTelemetry traces. Needs the packages of `pip install 'antiphon[otlp]'`."""

    endpoint: str = Field(
        "",
        pattern=r"^(https?://\S+)?$",
        description="URL that spans are sent to (OTLP over HTTP), such as `http://collector:4318/v1/traces`; empty: no "
        "traces. Headers for it come from `OTEL_EXPORTER_OTLP_HEADERS`.",
    )
    sample_ratio: float = Field(
        1.0, ge=0, le=1, description="Share (0 to 1) of requests traced, where the caller's `traceparent` does not say."
    )
    service_name: str = Field("antiphon", min_length=1, description="Name of this service in the traces.")
    content: bool = Field(
        False, description="Whether questions and answers stand in the traces. They are private: off unless asked for."
    )


class CaptureSettings(_Section):
    """Keeping what users ask and get, as a log for `antiphon audit` and the other tools. Off unless switched on."""

    enabled: bool = Field(
        False, description="Whether requests and answers are written to disk. Users' words are: think of who may read."
    )
    folder: Path | None = Field(
        None, description="Folder for the log. Unset: `traffic` in the data folder. Only the proxy's user may read it."
    )
    redact: bool = Field(
        True,
        description="Whether e-mail addresses, phone and card numbers, keys and passwords in texts are replaced before "
        "they are written. Names and addresses are not recognised.",
    )
    sample_rate: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Share (0 to 1) of the conversations that is kept: whole ones, not single requests.",
    )
    max_file_mib: float = Field(
        64.0, gt=0, le=65_536, description="MiB after which a file is closed and the next one begun."
    )
    keep_files: int = Field(16, ge=1, le=100_000, description="Files of the log kept; beyond it the oldest goes.")


class LoggingSettings(_Section):
    """What is written to standard error. Message texts and secrets are never logged."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least severity that is written.")
    format: Literal["text", "json"] = Field("text", description="Lines for people, or one JSON object a line.")
    access: bool = Field(
        False,
        description="Whether every request gets a line: method, path without its query, status, what was reused and "
        "why, seconds, client.",
    )


class Settings(BaseSettings):
    """All settings. Building one directly reads neither files nor the environment; :func:`load` does."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=True,
        enable_decoding=False,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )

    server: ServerSettings = Field(default_factory=lambda: ServerSettings.model_validate({}))
    upstream: UpstreamSettings = Field(default_factory=lambda: UpstreamSettings.model_validate({}))
    store: StoreSettings = Field(default_factory=lambda: StoreSettings.model_validate({}))
    sharing: SharingSettings = Field(default_factory=lambda: SharingSettings.model_validate({}))
    decision: DecisionSettings = Field(default_factory=lambda: DecisionSettings.model_validate({}))
    rollout: RolloutSettings = Field(default_factory=lambda: RolloutSettings.model_validate({}))
    admission: AdmissionSettings = Field(default_factory=lambda: AdmissionSettings.model_validate({}))
    flight: FlightSettings = Field(default_factory=lambda: FlightSettings.model_validate({}))
    kv: KvSettings = Field(default_factory=lambda: KvSettings.model_validate({}))
    verification: VerificationSettings = Field(default_factory=lambda: VerificationSettings.model_validate({}))
    budget: BudgetSettings = Field(default_factory=lambda: BudgetSettings.model_validate({}))
    admin: AdminSettings = Field(default_factory=lambda: AdminSettings.model_validate({}))
    limits: LimitsSettings = Field(default_factory=lambda: LimitsSettings.model_validate({}))
    tracing: TracingSettings = Field(default_factory=lambda: TracingSettings.model_validate({}))
    capture: CaptureSettings = Field(default_factory=lambda: CaptureSettings.model_validate({}))
    logging: LoggingSettings = Field(default_factory=lambda: LoggingSettings.model_validate({}))

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what is passed in: the layers are put together, and their origins kept, by :func:`load`."""
        return (init_settings,)


# -------------------------------------------------------------------------------------------- the model, enumerated


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, as the documentation, ``antiphon config`` and the check for unknown keys see it."""

    name: str  # "server.port"
    section: str
    key: str
    info: FieldInfo

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"{ENV_PREFIX}{self.section.upper()}__{self.key.upper()}"

    @property
    def secret(self) -> bool:
        """Whether the value must never be shown."""
        return SecretStr in _alternatives(self.info.annotation)

    @property
    def takes_list(self) -> bool:
        """Whether the value is a list."""
        return any(get_origin(a) in (tuple, list, frozenset, set) for a in _alternatives(self.info.annotation))

    @property
    def default(self) -> Any:
        """The default value."""
        value = self.info.get_default(call_default_factory=True, validated_data={})
        return None if value is PydanticUndefined else value

    @property
    def kind(self) -> str:
        """The type in words: ``integer``, ``number``, ``text``, ``true or false``, ``list``, or the words allowed."""
        kinds = [_kind(a) for a in _alternatives(self.info.annotation) if a is not type(None)]
        return " or ".join(dict.fromkeys(kinds))

    def value_in(self, settings: Settings) -> Any:
        """The value these settings give it."""
        return getattr(getattr(settings, self.section), self.key)

    @property
    def description(self) -> str:
        """What it does, in a sentence or two."""
        return self.info.description or ""


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    """The members of a union (or the annotation alone), without ``Annotated`` wrappers."""
    if get_origin(annotation) is Annotated:
        return _alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Literal, tuple, list, frozenset, set) or not get_args(annotation):
        return (annotation,)
    return tuple(part for inner in get_args(annotation) for part in _alternatives(inner))


def _kind(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{word}`" for word in get_args(annotation))
    if get_origin(annotation) is not None:
        return "list"
    names = {bool: "true or false", int: "integer", float: "number", SecretStr: "secret text"}
    return names.get(annotation, "text")


def _section_models() -> dict[str, type[BaseModel]]:
    return {name: cast("type[BaseModel]", info.annotation) for name, info in Settings.model_fields.items()}


def every_setting() -> tuple[Setting, ...]:
    """All settings in the order of the model."""
    return tuple(
        Setting(f"{section}.{key}", section, key, info)
        for section, model in _section_models().items()
        for key, info in model.model_fields.items()
    )


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like ``name``, or ``None`` where nothing is near (rapidfuzz ratio under 60 of 100)."""
    options = list(known)
    by_ending = {option: option.rpartition(".")[2] for option in options}
    whole = process.extractOne(name, options, scorer=fuzz.ratio, score_cutoff=60)
    ending = process.extractOne(name.rpartition(".")[2], by_ending, scorer=fuzz.ratio, score_cutoff=80)
    if ending is not None and (whole is None or ending[1] > whole[1]):
        return str(ending[2])
    return None if whole is None else str(whole[0])


# ------------------------------------------------------------------------------------------------------------ loading


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from; ``detail`` is the file, the variable or the flag."""

    kind: Literal["default", "file", "environment", "flag"]
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.detail}".strip()


@dataclass(frozen=True, slots=True)
class Loaded:
    """The effective settings, where each came from, and the data folder."""

    settings: Settings
    home: Path
    config_file: Path | None
    origins: Mapping[str, Origin] = field(default_factory=dict)  # dotted name → origin; absent means default

    def origin(self, name: str) -> Origin:
        """Where the setting ``section.key`` came from."""
        return self.origins.get(name, Origin("default"))


def data_folder(environ: Mapping[str, str] | None = None) -> Path:
    """``ANTIPHON_HOME``, else the platform's user data folder for ``antiphon``. Not created here."""
    home = (os.environ if environ is None else environ).get("ANTIPHON_HOME", "")
    return Path(home).expanduser().absolute() if home else platformdirs.user_data_path("antiphon", appauthor=False)


def load(
    config: Path | str | None = None,
    flags: Mapping[str, Any] | None = None,
    *,
    flag_names: Mapping[str, str] | None = None,
) -> Loaded:
    """Put the settings together: defaults, then file, then environment, then flags.

    ``config`` names the TOML file; without it ``ANTIPHON_CONFIG`` does, else ``antiphon.toml`` in the data folder is
    read where it exists. ``flags`` maps dotted names (``"server.port"``) to values, ``None`` meaning "not given";
    ``flag_names`` maps the same names to what the user typed, for messages.

    Raises :class:`SettingsError` with one line for each fault.
    """
    home = data_folder()
    file = _config_file(config, home)
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    layers: list[tuple[dict[str, Any], Origin]] = []
    if file is not None:
        layers.append((_from_file(file), Origin("file", str(file))))
    layers.append((_from_environment(), Origin("environment")))
    layers.append((_nested(given), Origin("flag")))

    merged: dict[str, dict[str, Any]] = {}
    origins: dict[str, Origin] = {}
    settings_by_name = {setting.name: setting for setting in every_setting()}
    for values, origin in layers:
        for section, content in values.items():
            for key, value in content.items():
                name = f"{section}.{key}"
                merged.setdefault(section, {})[key] = value
                detail = origin.detail
                if origin.kind == "environment":
                    detail = settings_by_name[name].variable
                elif origin.kind == "flag":
                    detail = (flag_names or {}).get(name, f"--{key.replace('_', '-')}")
                origins[name] = Origin(origin.kind, detail)
    store = merged.setdefault("store", {})
    store["url"] = _store_url(store.get("url"), home)
    rollout = merged.setdefault("rollout", {})
    rollout["observations"] = rollout.get("observations") or str(home / "shadow.jsonl")
    try:
        settings = Settings(**cast("dict[str, Any]", merged))
    except ValidationError as error:
        raise SettingsError("\n".join(_faults(error, merged, origins))) from None
    return Loaded(settings=settings, home=home, config_file=file, origins=origins)


def _config_file(config: Path | str | None, home: Path) -> Path | None:
    named = config or os.environ.get("ANTIPHON_CONFIG") or None
    if named is None:
        default = home / CONFIG_NAME
        return default if default.is_file() else None
    path = Path(named).expanduser()
    if path.is_dir():
        raise SettingsError(f"{path} is a folder; name a configuration file")
    if not path.is_file():
        raise SettingsError(f"there is no configuration file {path}")
    return path


def _from_file(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path} is not valid TOML: {error}") from None
    faults = list(_unknown(values, f"in {path}"))
    if faults:
        raise SettingsError("\n".join(faults))
    return values


def _unknown(values: Mapping[str, Any], where: str) -> Iterator[str]:
    """One line for every key of a nested mapping that is not a setting."""
    models = _section_models()
    names = [setting.name for setting in every_setting()]
    for section, content in values.items():
        if section not in models and isinstance(content, Mapping):
            guess = nearest(section, models)
            yield f"unknown section [{section}] {where}" + (f"; did you mean [{guess}]?" if guess else "")
        elif section not in models:
            guess = nearest(section, names)
            yield f"unknown setting {section} {where}" + (f"; did you mean {guess}?" if guess else "")
        elif not isinstance(content, Mapping):
            yield f"{section} {where} is a section, not a value: write [{section}]"
        else:
            for key in content:
                if key not in models[section].model_fields:
                    name = f"{section}.{key}"
                    guess = nearest(name, names)
                    yield f"unknown setting {name} {where}" + (f"; did you mean {guess}?" if guess else "")


def _from_environment() -> dict[str, Any]:
    settings = every_setting()
    variables = {setting.variable: setting for setting in settings}
    faults = []
    for variable, value in os.environ.items():
        if not variable.upper().startswith(ENV_PREFIX) or not value:
            continue
        name = variable.upper()
        if name in variables or name in ENV_NOT_SETTINGS:
            continue
        if _KUBERNETES.match(name) or (name.endswith("_PORT") and "://" in value):
            continue
        guess = nearest(name.removeprefix(ENV_PREFIX).lower().replace("__", "."), [s.name for s in settings])
        hint = next((f"; did you mean {s.variable}?" for s in settings if s.name == guess), "")
        faults.append(f"unknown environment variable {variable}{hint}")
    if faults:
        raise SettingsError("\n".join(faults))
    values = EnvSettingsSource(Settings)()
    for setting in settings:
        content = values.get(setting.section, {})
        if setting.takes_list and isinstance(content.get(setting.key), str):
            content[setting.key] = list_from_text(content[setting.key], setting.variable)
    return values


def list_from_text(text: str, name: str) -> list[str]:
    """A list written as JSON, or as words separated by commas; raises :class:`SettingsError` that names ``name``."""
    if not text.lstrip().startswith("["):
        return [word.strip() for word in text.split(",") if word.strip()]
    try:
        value = json.loads(text)
    except ValueError as error:
        raise SettingsError(f"{name} is not a valid JSON list: {error}") from None
    return cast("list[str]", value)


def _nested(flat: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    nested: dict[str, dict[str, Any]] = {}
    for name, value in flat.items():
        section, _, key = name.partition(".")
        nested.setdefault(section, {})[key] = value
    return nested


def _store_url(given: Any, home: Path) -> Any:
    """The database URL: a plain path means an SQLite file there, nothing means one in the data folder."""
    if not given:
        return f"sqlite:///{home / 'antiphon.db'}"
    if isinstance(given, str) and "://" not in given:
        return f"sqlite:///{Path(given).expanduser().absolute()}"
    return given


def _faults(
    error: ValidationError, values: Mapping[str, Mapping[str, Any]], origins: Mapping[str, Origin]
) -> Iterator[str]:
    settings = {setting.name: setting for setting in every_setting()}
    seen = set()
    for fault in error.errors(include_url=False, include_context=False):
        location = [str(part) for part in fault["loc"]]
        name = ".".join(location[:2])
        message = fault["msg"].removeprefix("Value error, ")
        message = message[:1].lower() + message[1:]
        setting = settings.get(name)
        if setting is None:  # a whole section: two of its settings do not go together
            line = f"[{name}]: {message}"
        else:
            given = values.get(setting.section, {}).get(setting.key)
            what = "" if setting.secret or setting.takes_list or given is None else f", not {shown(setting, given)!r}"
            line = f"{name} ({origins.get(name, Origin('default'))}): {message}{what}"
        if name not in seen:
            seen.add(name)
            yield line


# ------------------------------------------------------------------------------------------------------------ showing

_PASSWORD = re.compile(r"(?<=://)([^:/@\s]*):[^@/\s]*(?=@)")


def shown(setting: Setting, value: Any) -> Any:
    """A value fit to be printed: secrets and passwords in URLs masked, patterns and tuples as plain values."""
    if isinstance(value, SecretStr) or setting.secret:
        return None if value is None else "********"
    if isinstance(value, re.Pattern):
        return value.pattern
    if isinstance(value, tuple | list | frozenset | set):
        return [shown(setting, item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, str):
        return _PASSWORD.sub(r"\1:********", value)
    return value


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def example_toml() -> str:
    """A commented configuration file with every setting at its default; valid as it stands."""
    lines = ["# Antiphon. Every setting is shown with its default; uncomment what you change.", ""]
    models = _section_models()
    section = ""
    for setting in every_setting():
        if setting.section != section:
            section = setting.section
            doc = (models[section].__doc__ or "").strip().splitlines()[0]
            lines += ["", f"# {doc}", f"[{section}]"]
        words = f"{setting.description} ({setting.kind})".replace("`", "")
        lines += [""] + [f"# {line}" for line in textwrap.wrap(words, width=100)]
        default = shown(setting, setting.default)
        lines.append(f"# {setting.key} = {'' if default is None else _toml(default)}".rstrip())
    return "\n".join(lines).lstrip("\n") + "\n"
