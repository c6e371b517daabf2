"""Makes the workers of an application, with its schedules, duties and hooks. Imported by those who run one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from redrive.app.connections import Connections
from redrive.app.extras import load_extra
from redrive.errors import InvalidInput
from redrive.handlers.cron import next_after
from redrive.handlers.registry import Registry
from redrive.kernel.commit import Declare, Schedule
from redrive.kernel.duty import Duty
from redrive.kernel.payload import JsonText
from redrive.observe.logs import TaskLog, choose_style
from redrive.ops.duties import alerts_duty, duties_of
from redrive.ops.retention import retention_of
from redrive.ops.views import public_part
from redrive.settings import Options, Settings
from redrive.stores.loops import StoreHolder
from redrive.worker.config import WorkerConfig, worker_id
from redrive.worker.hooks import Hooks
from redrive.worker.worker import Worker

if TYPE_CHECKING:
    from redrive.kernel.feature import Feature
    from redrive.kernel.ports.store import Store
    from redrive.observe.tracing import Tracing


class Application(Protocol):
    """What a worker is made of."""

    settings: Settings
    registry: Registry
    connections: Connections
    schedules: dict[str, Schedule]
    owner: str

    @property
    def features(self) -> Sequence[Feature]: ...
    @property
    def tracing(self) -> Tracing | None: ...


def make_worker(
    app: Application, options: Options, where: StoreHolder, store: Store | None, log: TaskLog | None
) -> Worker:
    """Returns a worker for one connection, on its store or a given one."""
    settings = app.settings
    shown = where.shown_url, where.name
    return Worker(
        _own_store(where) if store is None else store,
        WorkerConfig(worker_id(settings), app.registry, settings, options, *shown, app.tracing),
        Declare(app.owner, tuple(_planned(one) for one in _schedules(app, where))),
        log=log or _task_log(settings),
        duties=_duties(app, where),
        retention=retention_of(settings, app.features),
        hooks=_hooks(app),
    )


def _own_store(where: StoreHolder) -> Store:
    try:
        return where.bound()
    except RuntimeError:  # SQLite serves all loops, and needs none here
        raise InvalidInput(
            "a worker belongs to an event loop, and none runs here",
            hint="call app.worker() in the coroutine that runs it: async with app.worker(): …",
        ) from None


def _schedules(app: Application, where: StoreHolder) -> list[Schedule]:
    """Returns the schedules whose kinds go to this connection: there they are kept, and fire."""
    return [one for one in app.schedules.values() if app.connections.for_kinds((one.kind,), None, None) is where]


def _planned(schedule: Schedule) -> Schedule:
    """With its first run from now on; a schedule the store already knows keeps the run planned there."""
    values = {name: getattr(schedule, name) for name in Schedule.__dataclass_fields__}
    return Schedule(**{**values, "next_at": next_after(schedule.cron, schedule.timezone, datetime.now(UTC))})


def _task_log(settings: Settings) -> TaskLog:
    return TaskLog(style=choose_style(settings.log_format), level=settings.log_level, sample=settings.log_sample)


def _duties(app: Application, where: StoreHolder) -> list[Duty]:
    """Returns the duties that ops and features bring to a worker."""
    own = [feature.duties(app.settings) for feature in app.features if feature.duties is not None]
    own += [make() for make in app.registry.duties]
    brought = duties_of(app.settings, _called(where), where.name, app.features, _named(app))
    return [*brought, *(duty for duties in own for duty in duties)]


def alerts_of(app: Application, where: StoreHolder) -> Duty:
    """Returns the duty that evaluates the alerts of a connection."""
    return alerts_duty(app.settings, _called(where), where.name, app.features, _named(app))


def _called(where: StoreHolder) -> str:
    """Returns what a store is called in messages. By its whole path: who reads it is elsewhere."""
    return where.shown_url if where.file is None else f"sqlite:///{where.file.resolve()}"


def _named(app: Application) -> str | None:
    return app.owner if ":" in app.owner else None


def _hooks(app: Application) -> Hooks | None:
    """Returns what tells this application's hooks, in a worker; None where there are none."""
    hooks, sentry = {name: [*listed] for name, listed in app.registry.hooks.items()}, app.settings.sentry
    if sentry != "off":
        loaded = load_extra("redrive.integrations.sentry", f"REDRIVE_SENTRY={sentry}", "sentry-sdk", "sentry")
        loaded.warn_if_deaf()
        for name in ("failed", "retried")[: 2 if sentry == "all" else 1]:
            hooks.setdefault(name, []).append(loaded.capture)
    return Hooks(hooks, app.settings.hook_timeout_ms / 1000, partial(_public_part, app)) if hooks else None


def _public_part(app: Application, kind: str, payload: str | None) -> Any:
    """Returns those fields of a payload that everybody may see."""
    known = app.registry.known(kind)
    names = {*(() if known is None else known.public), *app.settings.public_fields.get(kind, ())}
    return None if payload is None or not names else public_part(JsonText(payload), names)
