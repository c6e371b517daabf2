"""Programs: what has to run, one for each group of workers and one for HTTP, and how long each may take to stop."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redrive.handlers.registry import Registry
from redrive.settings import Options, Settings
from redrive.settings.load import effective

if TYPE_CHECKING:
    from redrive.kernel.feature import Feature

FIRST_METRICS_PORT = 9108
# What a worker needs to stop, beyond what its handlers may take: its last settlements, perhaps to a store that is away.
LAST_SETTLEMENTS_S = 30


@dataclass(slots=True, frozen=True)
class Started:
    """A group of workers as ``redrive work`` would start it. ``group`` None: there are no groups, and it is all of
    them."""

    group: str | None
    options: Options
    processes: int = 1
    connection: str | None = None


@dataclass(slots=True, frozen=True)
class Program:
    """One program that a service manager starts, watches and stops."""

    name: str
    arguments: tuple[str, ...]  # of redrive
    stop_wait: int  # seconds until it is killed
    why: str  # what that time is made of
    at_once: str = ""  # how many tasks it runs at once, and what changes that
    processes: int = 1
    metrics_port: int | None = None  # None: it serves HTTP, which has the probes
    port: int | None = None

    @property
    def probed(self) -> int:
        """The port that answers ``/healthz`` and ``/readyz``."""
        return self.metrics_port or self.port or 0

    @property
    def in_container(self) -> list[str]:
        """The arguments where it is alone, and reached from outside."""
        if self.metrics_port is None:
            return [*self.arguments, "--host", "0.0.0.0", "--port", str(self.port)]  # noqa: S104
        return [*self.arguments, "--metrics-port", str(self.metrics_port), "--metrics-host", "0.0.0.0"]  # noqa: S104


def programs_of(
    settings: Settings, registry: Registry, started: Iterable[Started], *, api: bool, shared_host: bool
) -> list[Program]:
    """Returns the programs of an application. ``shared_host``: they run beside each other, and need ports of their
    own."""
    found: list[Program] = []
    for place, one in enumerate(started):
        port = FIRST_METRICS_PORT + (place if shared_host else 0)
        wait, why = stop_wait(settings, registry, one.options)
        arguments = ("work", *(() if one.group is None else ("--group", one.group)))
        arguments += () if one.group is not None or one.connection is None else ("--connection", one.connection)
        found.append(
            Program(_name(one.group or "worker"), arguments, wait, why, _at_once(one), one.processes, metrics_port=port)
        )
    if api:
        # Without a worker of its own: what groups may run at once is all that runs.
        wait, why = _http_wait(settings, registry)
        found.append(Program(_name("http"), ("up", "--no-worker"), wait, why, port=settings.port or 8321))
    return found


def unserved(
    settings: Settings, queues: Iterable[str], brought: Collection[str], started: Sequence[Started]
) -> list[str]:
    """Returns the queues of an application that none of these groups serves: what is enqueued there waits. Those that
    features have ``brought`` are on the default connection."""
    own = [one for one in started if one.connection in (None, settings.default_connection)]
    by_all, by_own = ({queue for one in some for queue in one.options.queues} for some in (started, own))
    return [queue for queue in queues if queue not in (by_own if queue in brought else by_all)]


def _at_once(one: Started) -> str:
    """Returns how many tasks a group runs at once: many who write a group expect more than one."""
    n = one.options.concurrency
    each = " in each of its processes" if one.processes > 1 else ""
    where = "TASK_WORKER_CONCURRENCY=N" if one.group is None else f"concurrency = N in [workers.{one.group}]"
    return f"runs {n} task{'s' if n != 1 else ''} at once{each}: {where}"


def _http_wait(settings: Settings, registry: Registry) -> tuple[int, str]:
    """Returns how long HTTP may take to stop. It runs tasks only where a scheduler may ask it to."""
    if settings.internal_worker_secret is not None:
        return stop_wait(settings, registry, Options(queues=tuple(sorted(registry.queues())) or ("default",)))
    return LAST_SETTLEMENTS_S, f"it runs no tasks: {LAST_SETTLEMENTS_S} s are for requests that are being answered"


def secrets_of(settings: Settings, features: Iterable[Feature] = ()) -> list[str]:
    """Returns the environment variables that programs need and that belong into no file: those that have URLs, the
    secrets of providers, and what of redrive's settings and its features' is a secret and set here."""
    own = settings.connections.get(settings.default_connection)
    said = [] if own is not None and own.address is not None else ["REDRIVE_URL"]
    found = [*said, *(one.url_from for one in settings.connections.values() if one.url_from)]
    stores = list(dict.fromkeys(found)) or ["REDRIVE_URL"]
    providers = [one.auth_env for one in settings.providers.values() if one.auth_env]
    told = [one.name for one in effective(settings, features) if one.value is None and one.source == "environment"]
    return list(dict.fromkeys([*stores, *providers, *told]))


def stop_wait(settings: Settings, registry: Registry, options: Options) -> tuple[int, str]:
    """Returns how long a worker may take to stop: longer than the longest time limit of what it runs, and than the
    grace after which it hands back what still runs; and what that is made of."""
    default = settings.timeout_ms / 1000 if options.timeout is None else options.timeout
    limits: Mapping[str, float] = {
        kind: default if handler.timeout is None else handler.timeout
        for kind, handler in registry.handlers.items()
        if handler.queue in options.queues and not kind.startswith("SYSTEM_")
    }
    grace = settings.grace_ms / 1000
    longest = max([*limits.values(), default if not limits else 0.0])
    slowest = min((kind for kind, limit in limits.items() if limit == longest), default=None)
    endless = sorted(kind for kind, limit in limits.items() if not limit)
    wait = math.ceil(max(longest, 2 * grace) + LAST_SETTLEMENTS_S)
    told = f"{longest:g} s is the longest time limit" + (f" ({slowest})" if slowest else "")
    why = f"{told}, {grace:g} s the grace, {LAST_SETTLEMENTS_S} s are for the last settlements"
    return wait, why + (f"; no time limit: {', '.join(endless[:5])}" if endless else "")


def _name(group: str) -> str:
    """Returns a name that every service manager takes."""
    return f"redrive-{group.replace('_', '-')}"
