"""Tells whether this process is alive and ready: for /healthz and /readyz, on HTTP and on the worker's own port."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Protocol

from redrive.errors import RedriveError
from redrive.kernel.diagnosis import Dependency
from redrive.kernel.feature import Feature
from redrive.kernel.ports.store import Store
from redrive.settings import Settings
from redrive.version import __version__
from redrive.worker.hand_over import Reach
from redrive.worker.worker import Worker

logger = logging.getLogger("redrive.worker")
STORE_TIMEOUT_S = 2.0
DEPENDENCY_TIMEOUT_S = 2.0
TICK_FRESH_FOR_S = 15.0
ANSWERED_WITHIN_S = 10.0


Opens = Callable[[], Coroutine[Any, Any, Store]]


class Served(Protocol):
    """What is asked of an application."""

    @property
    def settings(self) -> Settings: ...

    @property
    def features(self) -> Sequence[Feature]: ...

    @property
    def store(self) -> Opens: ...


class LastSeen:
    """When a look of this process last found the store, and what else it depends on, to be well."""

    def __init__(self) -> None:
        self.at: datetime | None = None
        self._others: dict[str, datetime] = {}
        self.dependencies: Sequence[Dependency] = ()  # of features, when they were last asked

    def of(self, name: str, problem: str | None, now: datetime) -> Dependency:
        """Returns how something else than the store is."""
        if problem is None:
            self._others[name] = now
        return Dependency(name, problem is None, problem, self._others.get(name))


def alive(worker: Worker | None, settings: Settings) -> dict[str, Any]:
    """Returns that the process is alive, and what its worker did so far."""
    if worker is None:
        return {"status": "ok", "version": __version__, "env": settings.env, "worker": None}
    facts = worker.health.as_dict()
    started = facts.pop("started_at")
    return {
        "status": "stopping" if worker.stopping else "ok",
        "version": __version__,
        "env": settings.env,
        "worker_id": facts.pop("worker_id"),
        "uptime_seconds": round(time.time() - started, 3) if started else 0.0,
        "running": len(worker.runs),
        "queues": list(worker.options.queues),
        "concurrency": worker.options.concurrency,
        "counters": {name: value for name, value in facts.items() if type(value) is int and name != "running"},
    }


async def readiness(
    app: Served,
    worker: Worker | None,
    seen: LastSeen | None = None,
    *,
    store: Opens | None = None,
    others: Mapping[str, Opens] = MappingProxyType({}),
    reach: Reach | None = None,
) -> dict[str, Any]:
    """Returns whether this process should get work right now, why not, and how everything is doing that it depends
    on. ``store``: the one that it serves, if not the application's default. ``others``: further connections, which are
    told and make nobody unready. ``reach``: what worker processes beside this one have said."""
    seen = seen or LastSeen()
    reach = reach or reach_of(worker)
    problem, *away = await asyncio.gather(*map(_store_problem, (store or app.store, *others.values())))
    if problem is None:
        seen.dependencies = dependencies = await _dependencies(app)
    else:  # they need the store: what they were is told, and when they last were well
        unknown = "not asked while the store cannot be used"
        dependencies = [replace(each, ok=False, detail=unknown, blocks=False) for each in seen.dependencies]
    now = datetime.now(UTC)
    reasons = [problem, *(each.problem(now) for each in dependencies if each.blocks)]
    problems_found = [reason for reason in reasons if reason is not None]
    if worker is not None:
        problems_found += problems(worker)
    connections = [seen.of(f"store:{name}", one, now) for name, one in zip(others, away, strict=True)]
    known = [_store(problem, now, reach, seen), *_listener(reach, now, seen), *connections, *dependencies]
    return {
        "ready": not problems_found,
        "reasons": problems_found,
        "dependencies": [_as_json(each, now) for each in known],
    }


def problems(worker: Worker) -> list[str]:
    """Returns why a worker should get no work, by what it knows itself; nothing is asked for it, and any thread may."""
    reasons = [_died(worker) or _stopping(worker), _stale(worker), _unanswered(worker), _full(worker)]
    return [reason for reason in reasons if reason is not None]


def reach_of(worker: Worker | None) -> Reach:
    """Returns what a worker reaches of its store; any thread may ask."""
    if worker is None:
        return Reach()
    notifies = worker.lifecycle.started and worker.store.capabilities.notifies
    return Reach(worker.health.last_contact, worker.store.listening if notifies else None)


def _store(problem: str | None, now: datetime, reach: Reach, seen: LastSeen) -> Dependency:
    if problem is None:
        seen.at = now
    known = [seen.at, datetime.fromtimestamp(reach.contact, UTC) if reach.contact else None]
    return Dependency("store", problem is None, problem, max((at for at in known if at is not None), default=None))


def _listener(reach: Reach, now: datetime, seen: LastSeen) -> list[Dependency]:
    """Returns whether hints arrive, where they can. A worker without them is slower, and no less ready."""
    if reach.listening is None:
        return []
    return [seen.of("listener", None if reach.listening else "hints do not arrive: work is found by polling", now)]


def _as_json(dependency: Dependency, now: datetime) -> dict[str, Any]:
    last = dependency.last_success
    return {
        "name": dependency.name,
        "ok": dependency.problem(now) is None,
        "detail": dependency.detail,
        "lastSuccess": None if last is None else last.isoformat(),
    }


async def _store_problem(store: Opens) -> str | None:
    """Returns what is wrong with the store, by a small read with little patience."""
    try:
        async with asyncio.timeout(STORE_TIMEOUT_S):
            status = await (await store()).migrations.status()
    except TimeoutError:
        return f"the store did not answer within {STORE_TIMEOUT_S:g} s"
    except RedriveError as error:
        # Whoever may ask this needs no token: where the store is, is none of their business.
        logger.warning("not ready: %s", error.message, extra={"event": "store.not_ready"})
        return f"the store cannot be used ({error.code})"
    return f"the schema is at version {status.version} of {status.latest}" if status.pending else None


async def _dependencies(app: Served) -> list[Dependency]:
    """Returns what features depend on; all are asked at once, with little patience."""
    asked = [feature for feature in app.features if feature.dependencies is not None]
    found = await asyncio.gather(*(_dependencies_of(app, feature) for feature in asked))
    return [each for many in found for each in many]


async def _dependencies_of(app: Served, feature: Feature) -> Sequence[Dependency]:
    assert feature.dependencies is not None
    try:
        async with asyncio.timeout(DEPENDENCY_TIMEOUT_S):
            return await feature.dependencies(await app.store(), app.settings)
    except TimeoutError:
        return [Dependency(feature.name, False, f"it did not say within {DEPENDENCY_TIMEOUT_S:g} s what it depends on")]
    except Exception:
        logger.exception("dependencies of %s", feature.name, extra={"event": "feature.dependencies"})
        return [Dependency(feature.name, False, "it could not say what it depends on; the log says why")]


def _died(worker: Worker) -> str | None:
    return None if worker.died is None else f"the worker died ({type(worker.died).__name__}); the log says of what"


def _stopping(worker: Worker) -> str | None:
    return "the worker is stopping" if worker.stopping else None


def _unanswered(worker: Worker) -> str | None:
    """Returns whether claims and settles get no answer while heartbeats do: somebody may hold a lock that only they
    need."""
    since = worker.health.unanswered_since
    age = time.time() - since
    if not since or age <= ANSWERED_WITHIN_S:
        return None
    return f"the worker's claims and settles go without an answer, for {age:.0f} s now"


def _full(worker: Worker) -> str | None:
    """Returns why it can begin no handler: none can be begun in this process, or those that were given up take all
    slots."""
    if worker.health.cramped is not None:
        return f"the worker cannot begin handlers: {worker.health.cramped}"
    if worker.runs.slots <= 0 and not worker.runs.any_left and worker.attempts.crowded:
        return "handlers that were given up and still run take all slots of the worker"
    return None


def _stale(worker: Worker) -> str | None:
    if not worker.health.last_contact:
        return "the worker has not reached the store yet"
    age = time.time() - worker.health.last_contact
    if age <= max(TICK_FRESH_FOR_S, 5 * worker.settings.interval):
        return None
    return f"the worker last reached the store {age:.0f} s ago"
