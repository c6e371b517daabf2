"""Settings: environment first, then ``redrive.toml``, then defaults. Every name is listed in docs/settings.md."""

from __future__ import annotations

import difflib
import ipaddress
import json
import os
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from redrive.errors import ConfigError, WrongSetting
from redrive.kernel.backoff import Backoff
from redrive.kernel.task import MAX_ATTEMPTS, MAX_TIMEOUT_SECONDS

DEFAULT_URL = "sqlite:///redrive.db"
CONFIG_FILE = "redrive.toml"
AROUND = 20  # characters that are quoted before and after a mistake
# Read elsewhere, or set by redrive itself for its own processes.
OTHER_NAMES = {"REDRIVE_CONFIG", "REDRIVE_ACTOR", "REDRIVE_DEV", "REDRIVE_SUPERVISED", "REDRIVE_TOKEN"}
OURS = ("REDRIVE_", "TASK_WORKER_", "TASK_AUDIT_", "INTERNAL_WORKER_")
EARLIER = ("OUTBOX_", "BATCH_", "ENTERPRISE_WEBHOOK_")
# Settings of parts that are not built yet. They are named like this for those who come from the earlier system.
NOT_USED_YET = {
    *(
        f"OUTBOX_{name}_SECONDS"
        for name in ("BASE_BACKOFF", "MAX_BACKOFF", "LEASE", "RECLAIM_INTERVAL", "MAX_PROCESSING")
    ),
    *("OUTBOX_MAX_ATTEMPTS", "OUTBOX_METRICS_PORT", "OUTBOX_WORKER_ID"),
    *(f"BATCH_WORKER_MAX_{name}" for name in ("CLAIM", "START_TASKS_PER_BATCH", "POLL", "SETTLE")),
    *("BATCH_MAX_ITEM_SECONDS", "BATCH_MAX_POLL_COUNT"),
    *(f"ENTERPRISE_WEBHOOK_{name}" for name in ("RETRIES", "SECRET", "TIMEOUT_MS")),
}
MOST_MS = MAX_TIMEOUT_SECONDS * 1000  # as stores keep it, in an integer of four bytes
MOST_IN_KIND = 1_000_000
KindMap = dict[str, int]
# How each setting that is a map is written, for whoever got it wrong.
MAPS = {
    "kind_concurrency": '{"VIDEO_GEN": 1}',
    "kind_rate_limit_ms": '{"VIDEO_GEN": 500}',
    "public_fields": '{"VIDEO_GEN": ["shot_id"]}',
    "triage": '{"reports": {"look": "is the warehouse up?", "problems": ["the import is late"], "tables": ["report"]}}',
}


def _env(name: str, default: Any = ..., **limits: Any) -> Any:
    """A field that is read from this environment variable, or from its lower-case name in redrive.toml."""
    return Field(default, validation_alias=AliasChoices(name, name.lower()), **limits)


def parse_networks(given: object) -> list[str]:
    """Addresses and networks, as a list or with commas between. No ``*``: then anybody could say who they are."""
    parts = given.split(",") if isinstance(given, str) else given
    try:
        listed = [str(part).strip() for part in parts]  # type: ignore[attr-defined]
        return [str(ipaddress.ip_network(part)) for part in listed if part]
    except (TypeError, ValueError):
        raise ValueError(f"{given!r} are no addresses or networks; for example 10.0.0.5,10.1.0.0/16") from None


class Triage(BaseModel):
    """What to look at when a queue is in trouble, written by those who know it; shown by ``redrive doctor``."""

    model_config = ConfigDict(extra="forbid")

    look: str | None = None
    problems: list[str] = []
    tables: list[str] = []


class Settings(BaseSettings):
    """What can be configured. Durations keep the unit of their name."""

    model_config = SettingsConfigDict(case_sensitive=True, extra="ignore", env_ignore_empty=True, populate_by_name=True)

    url: str = _env("REDRIVE_URL", DEFAULT_URL, repr=False)
    app: str | None = _env("REDRIVE_APP", None)
    host: str = _env("REDRIVE_HOST", "127.0.0.1")
    port: int = _env("REDRIVE_PORT", 8321, ge=0, le=65535)
    http_connections: int = _env("REDRIVE_HTTP_CONNECTIONS", 500, ge=1, le=100_000)
    trusted_proxies: Annotated[list[str], NoDecode] = _env("REDRIVE_TRUSTED_PROXIES", [])
    console_idle_minutes: float = _env("REDRIVE_CONSOLE_IDLE_MINUTES", 120.0, gt=0, le=525_600)
    console_session_hours: float = _env("REDRIVE_CONSOLE_SESSION_HOURS", 24.0, gt=0, le=8_760)
    log_format: Literal["auto", "json", "text", "off"] = _env("REDRIVE_LOG", "auto")
    history_days: float = _env("REDRIVE_HISTORY_DAYS", 30.0, gt=0, le=36500)
    key_days: float = _env("REDRIVE_KEY_DAYS", 30.0, gt=0, le=36500)
    failed_days: float = _env("REDRIVE_FAILED_DAYS", 0.0, ge=0, le=36500)
    attempt_days: float = _env("REDRIVE_ATTEMPT_DAYS", 30.0, gt=0, le=36500)
    dead_letter_days: float = _env("REDRIVE_DEAD_LETTER_DAYS", 90.0, gt=0, le=36500)
    cause_days: float = _env("REDRIVE_CAUSE_DAYS", 90.0, gt=0, le=36500)
    noted_cause_days: float = _env("REDRIVE_NOTED_CAUSE_DAYS", 365.0, gt=0, le=36500)
    trend_days: float = _env("REDRIVE_TREND_DAYS", 7.0, ge=1, le=36500)
    series_minute_hours: float = _env("REDRIVE_SERIES_MINUTE_HOURS", 26.0, ge=1, le=24 * 366)
    series_hour_days: float = _env("REDRIVE_SERIES_HOUR_DAYS", 31.0, ge=1, le=36500)
    series_day_days: float = _env("REDRIVE_SERIES_DAY_DAYS", 400.0, ge=1, le=36500)
    operation_days: float = _env("REDRIVE_OPERATION_DAYS", 90.0, gt=0, le=36500)
    plan_days: float = _env("REDRIVE_PLAN_DAYS", 1.0, gt=0, le=1)
    drill_days: float = _env("REDRIVE_DRILL_DAYS", 365.0, gt=0, le=36500)
    growth_days: float = _env("REDRIVE_GROWTH_DAYS", 1.0, ge=0.25, le=36500)
    revoked_token_days: float = _env("REDRIVE_REVOKED_TOKEN_DAYS", 90.0, gt=0, le=36500)

    concurrency: int = _env("TASK_WORKER_CONCURRENCY", 1, ge=1, le=10_000)
    worker_id: str | None = _env("TASK_WORKER_ID", None)
    lease_ms: int = _env("TASK_WORKER_LEASE_MS", 600_000, ge=2_000, le=MOST_MS)
    heartbeat_ms: int | None = _env("TASK_WORKER_HEARTBEAT_MS", None, ge=1, le=MOST_MS)
    interval_ms: int = _env("TASK_WORKER_INTERVAL_MS", 1_500, ge=10, le=MOST_MS)
    recovery_interval_ms: int | None = _env("TASK_WORKER_RECOVERY_INTERVAL_MS", None, ge=10, le=MOST_MS)
    recovery_batch_size: int = _env("TASK_WORKER_RECOVERY_BATCH_SIZE", 50, ge=1, le=10_000)
    backoff_base_ms: int = _env("TASK_WORKER_BACKOFF_BASE_MS", 2_000, ge=0, le=MOST_MS)
    backoff_max_ms: int = _env("TASK_WORKER_BACKOFF_MAX_MS", 60_000, ge=0, le=MOST_MS)
    timeout_ms: int = _env("TASK_WORKER_TIMEOUT_MS", 3_600_000, ge=0, le=MOST_MS)
    grace_ms: int = _env("TASK_WORKER_GRACE_MS", 30_000, ge=0, le=MOST_MS)
    start_limit_ms: int = _env("TASK_WORKER_START_LIMIT_MS", 60_000, ge=100, le=MOST_MS)
    unknown_kind: Literal["fail", "leave"] = _env("TASK_WORKER_UNKNOWN_KIND", "fail")
    default_kind_concurrency: int | None = _env("TASK_WORKER_DEFAULT_KIND_CONCURRENCY", None, ge=0, le=MOST_IN_KIND)
    kind_concurrency: KindMap = _env("TASK_WORKER_KIND_CONCURRENCY", {})
    default_kind_rate_limit_ms: int | None = _env("TASK_WORKER_DEFAULT_KIND_RATE_LIMIT_MS", None, ge=0, le=MOST_MS)
    kind_rate_limit_ms: KindMap = _env("TASK_WORKER_KIND_RATE_LIMIT_MS", {})

    audit_ttl_days: float = _env("TASK_AUDIT_LOG_TTL_DAYS", 30.0, ge=0, le=36500)
    audit_prune_interval_ms: int = _env("TASK_AUDIT_PRUNE_INTERVAL_MS", 60_000, ge=1000, le=MOST_MS)
    audit_prune_batch_size: int = _env("TASK_AUDIT_PRUNE_BATCH_SIZE", 500, ge=1, le=10_000)
    audit_archive: str | None = _env("TASK_AUDIT_ARCHIVE", None)
    approvals: Literal["on", "off"] = _env("REDRIVE_APPROVALS", "on")
    approvals_above: int = _env("REDRIVE_APPROVALS_ABOVE", 1000, ge=0)
    approvals_window_minutes: float = _env("REDRIVE_APPROVALS_WINDOW_MINUTES", 60.0, ge=0, le=10_080)
    triage: dict[str, Triage] = _env("REDRIVE_TRIAGE", {})
    internal_worker_secret: str | None = _env("INTERNAL_WORKER_SECRET", None, min_length=16, repr=False)
    public_fields: dict[str, list[str]] = _env("REDRIVE_PUBLIC_FIELDS", {})

    @field_validator("trusted_proxies", mode="before")
    @classmethod
    def _addresses(cls, value: object) -> list[str]:
        return parse_networks(value)

    @field_validator("audit_archive")
    @classmethod
    def _no_login(cls, value: str | None) -> str | None:
        """It is shown in errors and written down with operations."""
        if value is not None and "@" in value.partition("://")[2].partition("/")[0]:
            raise ValueError("a login does not belong there; AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are for that")
        return value

    @field_validator("kind_concurrency", "kind_rate_limit_ms")
    @classmethod
    def _in_bounds(cls, value: KindMap) -> KindMap:
        for kind, number in value.items():
            if not 0 <= number <= MOST_MS:
                raise ValueError(f"{kind!r} must be from 0 to {MOST_MS:,}")
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, _EnvSource(settings_cls), _TomlSource(settings_cls)

    @property
    def approved_above(self) -> int | None:
        """A second operator has to agree to more tasks than this; None: to none."""
        return self.approvals_above if self.approvals == "on" else None

    @property
    def lease(self) -> float:
        return self.lease_ms / 1000

    @property
    def heartbeat(self) -> float:
        """A third of the lease unless set; always early enough to renew in time."""
        wanted = self.heartbeat_ms if self.heartbeat_ms is not None else self.lease_ms / 3
        return min(max(wanted, 1000), self.lease_ms - 500) / 1000

    @property
    def interval(self) -> float:
        return self.interval_ms / 1000

    @property
    def recovery_interval(self) -> float:
        return (self.recovery_interval_ms or self.interval_ms) / 1000

    @property
    def backoff(self) -> Backoff:
        return Backoff(self.backoff_base_ms / 1000, self.backoff_max_ms / 1000)


class _EnvSource(EnvSettingsSource):
    """The environment. A map in which a name stands twice is refused: one of the two would be lost."""

    def decode_complex_value(self, field_name: str, field: Any, value: Any) -> Any:
        plain = any(one is NoDecode or isinstance(one, NoDecode) for one in field.metadata)
        return value if plain else _loads(value)


def _loads(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_each_once)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _Twice(name)
        found[name] = value
    return found


class _Twice(ValueError):
    pass


class _TomlSource(PydanticBaseSettingsSource):
    """``redrive.toml`` in the working directory, or the file named by ``REDRIVE_CONFIG``."""

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        named = os.environ.get("REDRIVE_CONFIG")
        path = Path(named or CONFIG_FILE)
        if not path.is_file():
            if named:
                raise WrongSetting(f"the file named by REDRIVE_CONFIG does not exist: {path}")
            return {}
        try:
            found = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
            raise WrongSetting(f"{path} cannot be read: {error}") from None
        known = set(Settings.model_fields) | {_name(field).lower() for field in Settings.model_fields}
        if unknown := sorted(set(found) - known):
            told = ", ".join(f"{name}{_guess(name, known)}" for name in unknown)
            raise WrongSetting(f"{path} has unknown settings: {told}", hint="see docs/settings.md")
        return found


def _guess(name: str, known: Iterable[str]) -> str:
    close = next(iter(difflib.get_close_matches(name.lower(), known, 1)), None)
    return f" (did you mean {close}?)" if close else ""


def load_settings(**given: Any) -> Settings:
    """Settings with explicit values on top; None means "not given"."""
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        problems = [f"{_label(problem['loc'])}: {_told(problem)}" for problem in error.errors()]
        raise WrongSetting("settings cannot be used: " + "; ".join(problems), hint="see docs/settings.md") from None
    except ConfigError:
        raise
    except Exception as error:  # pydantic-settings wraps JSON mistakes in its own error
        raise _bad_json(error) from None


@dataclass(slots=True, frozen=True)
class Effective:
    """A setting as it is in effect. ``source``: environment, file, given (to ``App`` or on the command line) or
    default; ``value`` is None where it is a secret."""

    name: str
    value: str | None
    source: str
    default: str


def effective(settings: Settings) -> list[Effective]:
    """Returns every setting by its name. What may hold a password or a secret is not shown."""
    file = _TomlSource(Settings)()
    found = []
    for field, info in Settings.model_fields.items():
        name, value = _name(field), getattr(settings, field)
        changed = field in settings.model_fields_set
        source = "default"
        if changed:
            source = "environment" if name in os.environ else "file" if {field, name.lower()} & set(file) else "given"
        secret = info.repr is False
        default = info.get_default(call_default_factory=True)
        found.append(
            Effective(
                name, None if secret and value is not None else str(value), source, "" if secret else str(default)
            )
        )
    return found


def unknown_names() -> list[str]:
    """Environment variables that look like settings and are none: most likely misspelt."""
    known = {_name(field) for field in Settings.model_fields} | OTHER_NAMES
    return sorted(
        name
        for name in os.environ
        if name not in known
        and ((name.startswith(OURS) and not name.startswith("REDRIVE_TEST_")) or _like_one_not_used_yet(name))
    )


def _like_one_not_used_yet(name: str) -> bool:
    """True if a name is nearly one of these. Other programs have an outbox and batches of their own."""
    if name in NOT_USED_YET or not name.startswith(EARLIER):
        return False
    return bool(difflib.get_close_matches(name, NOT_USED_YET, 1, 0.9))


def misspelt() -> list[str]:
    """What to say about each of them."""
    known = [*map(_name, Settings.model_fields), *OTHER_NAMES, *NOT_USED_YET]
    found = []
    for name in unknown_names():
        close = next(iter(difflib.get_close_matches(name, known, 1)), None)
        guess = f"did you mean {close}?" if close else "the settings are listed in docs/settings.md"
        found.append(f"{name} is set and is no setting of redrive; {guess}")
    unused = sorted(name for name in os.environ if name in NOT_USED_YET)
    return found + [f"{name} is set, and nothing in this version of redrive uses it" for name in unused]


def _bad_json(error: Exception) -> ConfigError:
    """pydantic-settings names the field that it could not read: neither the variable it came from, nor the place."""
    for field, example in MAPS.items():
        if f'"{field}"' in str(error):
            name = _name(field)
            said = f"settings cannot be used: {name} {_place(os.environ.get(name, ''))}"
            return WrongSetting(said, hint=f"for example {name}='{example}'; see docs/settings.md")
    return WrongSetting(f"settings cannot be used: {error}", hint="see docs/settings.md")


def _place(text: str) -> str:
    """What is wrong with it: where it stops being JSON, with what is written around it, or what stands there twice."""
    try:
        _loads(text)
    except json.JSONDecodeError as error:
        around = text[max(error.pos - AROUND, 0) : error.pos + AROUND]
        return f"is not JSON: {error.msg.lower()} at character {error.pos + 1}, near {around!r}"
    except _Twice as error:
        return f"has {str(error)!r} twice"
    return "is not JSON"


def _told(problem: Any) -> str:
    """What is wrong, and for a field that there is not, which there are."""
    if problem["type"] == "extra_forbidden":
        return f"there is no such field; there are {', '.join(Triage.model_fields)}"
    return str(problem["msg"]).removeprefix("Value error, ")


def _name(field: str) -> str:
    alias = Settings.model_fields[field].validation_alias
    return str(alias.choices[0]) if isinstance(alias, AliasChoices) else field


def _label(location: tuple[int | str, ...]) -> str:
    first = str(location[0]) if location else "settings"
    name = _name(first) if first in Settings.model_fields else first
    return ".".join([name, *map(str, location[1:])])


class Options(BaseModel):
    """What one worker process was told on its command line; everything else comes from Settings."""

    model_config = ConfigDict(frozen=True)

    queues: tuple[str, ...] = ("default",)
    concurrency: int = Field(default=1, ge=1, le=10_000)
    sleep: float = Field(default=1.5, gt=0)
    tries: int | None = Field(default=None, ge=1, le=MAX_ATTEMPTS)
    timeout: float | None = Field(default=None, ge=0, le=MAX_TIMEOUT_SECONDS)
    max_time: float | None = Field(default=None, gt=0)
    max_jobs: int | None = Field(default=None, ge=1)
    once: bool = False
    stop_when_empty: bool = False
