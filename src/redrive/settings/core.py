"""The settings of redrive itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from redrive.errors import ConfigError
from redrive.kernel.alerts.own import OwnRule
from redrive.kernel.alerts.slo import Objective
from redrive.kernel.backoff import Backoff
from redrive.kernel.task import MAX_TIMEOUT_SECONDS
from redrive.settings import connections as stores
from redrive.settings.connections import Connection, Route, WorkerGroup
from redrive.settings.declare import FeatureSettings, Values, fields_by_name, names_of, setting, sourced
from redrive.settings.providers import PROVIDERS_EXAMPLE, Providers, parse_providers
from redrive.settings.rules import (
    ALERTS_EXAMPLE,
    FAILURE_RULES_EXAMPLE,
    AlertSettings,
    RuleTable,
    parse_alerts,
    parse_failure_rules,
)
from redrive.settings.sources import check_kind, environment, file_values, load_feature, read_file
from redrive.settings.values import Problem, Unfit, url_parts

if TYPE_CHECKING:
    from redrive.kernel.feature import Feature

DEFAULT_URL = "sqlite:///redrive.db"
MOST_MS = MAX_TIMEOUT_SECONDS * 1000  # as stores keep it, in an integer of four bytes
MOST_IN_KIND = 1_000_000
KindMap = dict[str, int]
TRIAGE_EXAMPLE = (
    '{"reports": {"look": "is the warehouse up?", "problems": ["the import is late"], "tables": ["report"]}}'
)
CONNECTIONS_EXAMPLE = '{"main": {"url": "postgresql://host/main"}, "insights": {"url": "sqlite:///insights.db"}}'
ROUTES_EXAMPLE = '{"REPORT_*": {"queue": "reports"}}'
WORKERS_EXAMPLE = '{"reports": {"queues": ["reports"], "processes": 2, "timeout": 600}}'
SLO_EXAMPLE = '{"reports": {"wait_seconds": 30, "target": 0.95, "days": 30}}'
S = TypeVar("S", bound=FeatureSettings)


def parse_networks(given: object) -> list[str]:
    """Addresses and networks, as a list or with commas between. No ``*``: then anybody could say who they are."""
    import ipaddress  # rarely wanted

    parts = given.split(",") if isinstance(given, str) else given
    try:
        listed = [str(part).strip() for part in parts]  # type: ignore[attr-defined]
        return [str(ipaddress.ip_network(part)) for part in listed if part]
    except (TypeError, ValueError):
        raise ValueError(f"{given!r} are no addresses or networks; for example 10.0.0.5,10.1.0.0/16") from None


def _without_login(place: str | None) -> str | None:
    """It is shown in errors and written down with operations."""
    if place is not None and "@" in place.partition("://")[2].partition("/")[0]:
        raise ValueError("a login does not belong there; AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are for that")
    return place


def _http(url: str | None) -> str | None:
    """Nothing of it is quoted: such addresses are secrets."""
    if url is None:
        return None
    where = url_parts(url)
    if where is None or where.scheme not in ("http", "https"):
        raise ValueError("it is no address that begins with http:// or https://")
    if where.username is not None:
        raise ValueError("a login in an address is not sent; put a token into its path, or use a proxy that adds it")
    return url


def _objectives(given: dict[str, Objective]) -> dict[str, Objective]:
    found = [Problem((queue, field), why) for queue, one in given.items() for field, why in one.problems()]
    if found:
        raise Unfit(*found)
    return given


def _smtp(url: str) -> str:
    where = url_parts(url)
    if where is None or where.scheme not in ("smtp", "smtps"):
        raise ValueError("it is no address like smtp://user:password@host:587 or smtps://host")
    return url


def _addresses(given: object) -> list[str]:
    """Mail addresses, as a list or with commas between."""
    parts = given.split(",") if isinstance(given, str) else given
    found = [str(part).strip() for part in parts] if isinstance(parts, list | tuple) else [""]
    if not all(re.fullmatch(r"[^\s@,<>]+@[^\s@,<>]+", one) for one in found):
        raise ValueError("these are no mail addresses; for example ann@example.com,bob@example.com")
    return found


def _in_bounds(limits: KindMap) -> KindMap:
    for kind, number in limits.items():
        if not 0 <= number <= MOST_MS:
            raise ValueError(f"{kind!r} must be from 0 to {MOST_MS:,}")
    return limits


@dataclass(slots=True, frozen=True)
class Triage:
    """What to look at when a queue is in trouble, written by those who know it; shown by ``redrive doctor``."""

    look: str | None = None
    problems: list[str] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    queries: dict[str, str] = field(default_factory=dict)  # by what they are about; doctor shows their answers
    connection: str | None = (
        None  # whose tables the queries ask; else those of the connection that the queue is routed to
    )


class Settings(Values):
    """What can be configured: by the environment, then by the file, then by defaults. Durations keep the unit of their
    name."""

    # Those of features, by their class.
    _of_features: Mapping[type[FeatureSettings], FeatureSettings] = {}

    url: str = setting("REDRIVE_URL", DEFAULT_URL, repr=False)
    connection: str | None = setting("QUEUE_CONNECTION", None)
    connections: dict[str, Connection] = setting("REDRIVE_CONNECTIONS", {}, repr=False, examples=[CONNECTIONS_EXAMPLE])
    routes: dict[str, Route] = setting("REDRIVE_ROUTES", {}, examples=[ROUTES_EXAMPLE])
    workers: dict[str, WorkerGroup] = setting("REDRIVE_WORKERS", {}, examples=[WORKERS_EXAMPLE])
    app: str | None = setting("REDRIVE_APP", None)
    env: Literal["dev", "test", "production"] = setting("REDRIVE_ENV", "dev")
    build: str | None = setting("REDRIVE_BUILD", None, max_length=200)
    host: str = setting("REDRIVE_HOST", "127.0.0.1")
    port: int = setting("REDRIVE_PORT", 8321, ge=0, le=65535)
    http_connections: int = setting("REDRIVE_HTTP_CONNECTIONS", 500, ge=1, le=100_000)
    trusted_proxies: list[str] = setting("REDRIVE_TRUSTED_PROXIES", [], parse=parse_networks)
    console_idle_minutes: float = setting("REDRIVE_CONSOLE_IDLE_MINUTES", 120.0, gt=0, le=525_600)
    console_session_hours: float = setting("REDRIVE_CONSOLE_SESSION_HOURS", 24.0, gt=0, le=8_760)
    metrics_port: int | None = setting("REDRIVE_METRICS_PORT", None, ge=0, le=65535)
    outbox_metrics_port: int | None = setting("OUTBOX_METRICS_PORT", None, ge=0, le=65535)
    metrics_host: str = setting("REDRIVE_METRICS_HOST", "127.0.0.1")
    metrics_token: str | None = setting("REDRIVE_METRICS_TOKEN", None, min_length=16, repr=False)
    log_format: Literal["auto", "json", "text", "off"] = setting("REDRIVE_LOG", "auto")
    log_level: Literal["info", "warning", "error"] = setting("REDRIVE_LOG_LEVEL", "info")
    log_sample: int = setting("REDRIVE_LOG_SAMPLE", 1, ge=1, le=1_000_000)
    tracing: Literal["off", "on", "all"] = setting("REDRIVE_TRACING", "off")
    sentry: Literal["off", "failed", "all"] = setting("REDRIVE_SENTRY", "off")
    hook_timeout_ms: int = setting("REDRIVE_HOOK_TIMEOUT_MS", 10_000, ge=1, le=MOST_MS)
    max_names: int = setting("REDRIVE_MAX_NAMES", 1_000, ge=0, le=1_000_000)
    history_days: float = setting("REDRIVE_HISTORY_DAYS", 30.0, gt=0, le=36500)
    key_days: float = setting("REDRIVE_KEY_DAYS", 30.0, gt=0, le=36500)
    failed_days: float = setting("REDRIVE_FAILED_DAYS", 0.0, ge=0, le=36500)
    attempt_days: float = setting("REDRIVE_ATTEMPT_DAYS", 30.0, gt=0, le=36500)
    dead_letter_days: float = setting("REDRIVE_DEAD_LETTER_DAYS", 90.0, gt=0, le=36500)
    cause_days: float = setting("REDRIVE_CAUSE_DAYS", 90.0, gt=0, le=36500)
    noted_cause_days: float = setting("REDRIVE_NOTED_CAUSE_DAYS", 365.0, gt=0, le=36500)
    trend_days: float = setting("REDRIVE_TREND_DAYS", 7.0, ge=1, le=36500)
    series_minute_hours: float = setting("REDRIVE_SERIES_MINUTE_HOURS", 26.0, ge=1, le=24 * 366)
    series_hour_days: float = setting("REDRIVE_SERIES_HOUR_DAYS", 31.0, ge=1, le=36500)
    series_day_days: float = setting("REDRIVE_SERIES_DAY_DAYS", 400.0, ge=1, le=36500)
    operation_days: float = setting("REDRIVE_OPERATION_DAYS", 90.0, gt=0, le=36500)
    plan_days: float = setting("REDRIVE_PLAN_DAYS", 1.0, gt=0, le=1)
    drill_days: float = setting("REDRIVE_DRILL_DAYS", 365.0, gt=0, le=36500)
    growth_days: float = setting("REDRIVE_GROWTH_DAYS", 1.0, ge=0.25, le=36500)
    revoked_token_days: float = setting("REDRIVE_REVOKED_TOKEN_DAYS", 90.0, gt=0, le=36500)

    concurrency: int = setting("TASK_WORKER_CONCURRENCY", 1, ge=1, le=10_000)
    worker_id: str | None = setting("TASK_WORKER_ID", None)
    lease_ms: int = setting("TASK_WORKER_LEASE_MS", 600_000, ge=2_000, le=MOST_MS)
    heartbeat_ms: int | None = setting("TASK_WORKER_HEARTBEAT_MS", None, ge=1, le=MOST_MS)
    interval_ms: int = setting("TASK_WORKER_INTERVAL_MS", 1_500, ge=10, le=MOST_MS)
    recovery_interval_ms: int | None = setting("TASK_WORKER_RECOVERY_INTERVAL_MS", None, ge=10, le=MOST_MS)
    dead_after_ms: int = setting("TASK_WORKER_DEAD_AFTER_MS", 15_000, ge=1_000, le=MOST_MS)
    max_worker_deaths: int = setting("TASK_MAX_WORKER_DEATHS", 3, ge=1, le=100)
    recovery_batch_size: int = setting("TASK_WORKER_RECOVERY_BATCH_SIZE", 50, ge=1, le=10_000)
    backoff_base_ms: int = setting("TASK_WORKER_BACKOFF_BASE_MS", 2_000, ge=0, le=MOST_MS)
    backoff_max_ms: int = setting("TASK_WORKER_BACKOFF_MAX_MS", 60_000, ge=0, le=MOST_MS)
    timeout_ms: int = setting("TASK_WORKER_TIMEOUT_MS", 3_600_000, ge=0, le=MOST_MS)
    grace_ms: int = setting("TASK_WORKER_GRACE_MS", 30_000, ge=0, le=MOST_MS)
    start_limit_ms: int = setting("TASK_WORKER_START_LIMIT_MS", 60_000, ge=100, le=MOST_MS)
    unknown_kind: Literal["fail", "leave"] = setting("TASK_WORKER_UNKNOWN_KIND", "fail")
    default_kind_concurrency: int | None = setting("TASK_WORKER_DEFAULT_KIND_CONCURRENCY", None, ge=0, le=MOST_IN_KIND)
    kind_concurrency: KindMap = setting(
        "TASK_WORKER_KIND_CONCURRENCY", {}, check=_in_bounds, examples=['{"VIDEO_GEN": 1}']
    )
    default_kind_rate_limit_ms: int | None = setting("TASK_WORKER_DEFAULT_KIND_RATE_LIMIT_MS", None, ge=0, le=MOST_MS)
    kind_rate_limit_ms: KindMap = setting(
        "TASK_WORKER_KIND_RATE_LIMIT_MS", {}, check=_in_bounds, examples=['{"VIDEO_GEN": 500}']
    )

    audit_ttl_days: float = setting("TASK_AUDIT_LOG_TTL_DAYS", 30.0, ge=0, le=36500)
    audit_prune_interval_ms: int = setting("TASK_AUDIT_PRUNE_INTERVAL_MS", 60_000, ge=1000, le=MOST_MS)
    audit_prune_batch_size: int = setting("TASK_AUDIT_PRUNE_BATCH_SIZE", 500, ge=1, le=10_000)
    audit_archive: str | None = setting("TASK_AUDIT_ARCHIVE", None, check=_without_login)
    approvals: Literal["on", "off"] = setting("REDRIVE_APPROVALS", "on")
    approvals_above: int = setting("REDRIVE_APPROVALS_ABOVE", 1000, ge=0)
    approvals_window_minutes: float = setting("REDRIVE_APPROVALS_WINDOW_MINUTES", 60.0, ge=0, le=10_080)
    triage: dict[str, Triage] = setting("REDRIVE_TRIAGE", {}, examples=[TRIAGE_EXAMPLE])
    alerts: AlertSettings = setting("REDRIVE_ALERTS", AlertSettings(), parse=parse_alerts, examples=[ALERTS_EXAMPLE])
    slo: dict[str, Objective] = setting("REDRIVE_SLO", {}, check=_objectives, examples=[SLO_EXAMPLE])
    alert_webhook: str | None = setting("REDRIVE_ALERT_WEBHOOK", None, check=_http, repr=False)
    alert_slack: str | None = setting("REDRIVE_ALERT_SLACK", None, check=_http, repr=False)
    alert_email: list[str] = setting("REDRIVE_ALERT_EMAIL", [], parse=_addresses, repr=False)
    alert_smtp: str = setting("REDRIVE_ALERT_SMTP", "smtp://localhost", check=_smtp, repr=False)
    alert_from: str = setting("REDRIVE_ALERT_FROM", "redrive@localhost", max_length=200)
    alert_heartbeat: str | None = setting("REDRIVE_ALERT_HEARTBEAT", None, check=_http, repr=False)
    alert_runbooks: str = setting("REDRIVE_ALERT_RUNBOOKS", "docs/operations.md", max_length=500)
    internal_worker_secret: str | None = setting("INTERNAL_WORKER_SECRET", None, min_length=16, repr=False)
    providers: Providers = setting(
        "REDRIVE_PROVIDERS", Providers(), parse=parse_providers, examples=[PROVIDERS_EXAMPLE]
    )
    failure_rules: RuleTable = setting(
        "REDRIVE_FAILURE_RULES", RuleTable(), parse=parse_failure_rules, examples=[FAILURE_RULES_EXAMPLE]
    )
    # What one call of a provider may take that the application brings; those over HTTP have a timeout of their own.
    provider_call_seconds: float = setting("PROVIDER_CALL_SECONDS", 60.0, gt=0, le=3600)
    callback_base_url: str | None = setting("BATCH_CALLBACK_BASE_URL", None, check=_http)
    callback_secret: str | None = setting("BATCH_CALLBACK_SECRET", None, min_length=16, repr=False)
    public_fields: dict[str, list[str]] = setting("REDRIVE_PUBLIC_FIELDS", {}, examples=['{"VIDEO_GEN": ["shot_id"]}'])

    def __init__(self, **given: Any) -> None:
        known, file = fields_by_name(type(self)), read_file()
        top = file_values(type(self), ((name, value) for name, value in file.items() if name in known), "redrive")
        self._fill(sourced(file=top, environment=environment(type(self)), given=given))
        self._connect()

    def _connect(self) -> None:
        """Checks that connections, routes and groups of workers fit together. Where nobody says otherwise, the store is
        that of the default connection."""
        override = self.url if self.source_of("url") in ("environment", "given") else None
        default = self.default_connection
        known = [*self.connections] or [default]
        named = {
            **{("alerts", name): rule.connection for name, rule in self.alerts.own.items()},
            **{("triage", name): note.connection for name, note in self.triage.items()},
        }
        problems = [
            *stores.unknown_connection(
                self.connection, ("connection",), [*self.connections] or [stores.DEFAULT_CONNECTION]
            ),
            *stores.problems_of(self.connections, default, override),
            *stores.problems_of_routes(self.routes, known),
            *stores.problems_of_groups(self.workers, known),
        ]
        for place, connection in named.items():
            problems += stores.unknown_connection(connection, (*place, "connection"), known)
        if self.callback_base_url is not None and self.callback_secret is None:
            needs = "addresses for providers are signed: it needs BATCH_CALLBACK_SECRET, too"
            problems.append(Problem(("callback_base_url",), needs, hint="openssl rand -hex 32 makes one"))
        address = self.connections[default].address if default in self.connections else None
        if address is not None and self.source_of("url") == "file":
            problems.append(Problem(("url",), f"the connection {default} has a URL of its own; say it once"))
        if problems:
            raise Unfit(*(one._replace(source=self.source_of(str(one.place[0]))) for one in problems))
        if address is not None and override is None:
            self.__dict__["url"] = address

    @property
    def is_store_named(self) -> bool:
        """Whether something says where the default connection is."""
        return self.source_of("url") != "default" or self.default_connection in self.connections

    @property
    def default_connection(self) -> str:
        """The connection that is used where nothing says another."""
        return stores.default_of(self.connections, self.connection)

    def needed_url(self) -> str:
        """Returns where the default connection is; raises Unfit where it is configured and nobody says where: its tasks
        would land in a file that nobody knows of."""
        if self.default_connection in self.connections and self.source_of("url") == "default":
            one = self.connections[self.default_connection]
            if one.address is None:
                problem = Problem(("connections", self.default_connection), f"{stores.NEEDS_URL}, or REDRIVE_URL")
                raise Unfit(problem._replace(source=self.source_of("connections")))
        return self.url

    @property
    def other_urls(self) -> dict[str, str]:
        """The stores of the other connections, by name."""
        others = {name: one.address for name, one in self.connections.items() if name != self.default_connection}
        return {name: address for name, address in others.items() if address is not None}

    def own_alerts(self, connection: str | None = None) -> dict[str, OwnRule]:
        """Returns the application's own rules about a connection, the default one for None: its workers evaluate
        them."""
        default = self.default_connection
        wanted = connection or default
        return {name: rule for name, rule in self.alerts.own.items() if (rule.connection or default) == wanted}

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
    def dead_after(self) -> float:
        return self.dead_after_ms / 1000

    @property
    def interval(self) -> float:
        return self.interval_ms / 1000

    @property
    def recovery_interval(self) -> float:
        return (self.recovery_interval_ms or self.interval_ms) / 1000

    @property
    def backoff(self) -> Backoff:
        return Backoff(self.backoff_base_ms / 1000, self.backoff_max_ms / 1000)

    def of(self, kind: type[S]) -> S:
        """Returns a feature's own settings: ``settings.of(OrderSettings)``."""
        found = self._of_features.get(kind)
        if not isinstance(found, kind):
            raise ConfigError(f"{kind.__name__} belongs to no feature of this application")
        return found

    def with_features(self, features: Iterable[Feature]) -> Settings:
        """Returns the same with the settings of these features: as they were given, else as they are configured."""
        with_settings = [feature for feature in features if feature.settings is not None]
        _check_names(with_settings)
        new = {one.settings: load_feature(one) for one in with_settings if one.settings not in self._of_features}
        return self._holding({**self._of_features, **new})

    def holding(self, *own: FeatureSettings) -> Settings:
        """Returns the same with these settings of features, given in code."""
        return self._holding({**self._of_features, **{type(one): one for one in own}})

    def _holding(self, known: Mapping[type[FeatureSettings], FeatureSettings]) -> Settings:
        copied = self.with_values()
        copied._of_features = known
        return copied


def _check_names(features: Iterable[Feature]) -> None:
    """Refuses features whose settings have the names of others."""
    owners = dict.fromkeys(names_of(Settings), "redrive")
    for feature in features:
        for name in names_of(check_kind(feature)):
            if name in owners:
                raise ConfigError(f"{name} is a setting of feature {feature.name!r} and of {owners[name]}, too")
            owners[name] = f"feature {feature.name!r}"
