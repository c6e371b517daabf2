"""Performs the duties that the fleet shares (recovery, schedules, the store's housekeeping, those of features): each is
done by one worker per interval, whoever ticks first.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from redrive.errors import ConfigError, RedriveError, StoreUnavailable, StoreUnusable
from redrive.handlers.cron import next_after
from redrive.handlers.new_task import stamp
from redrive.ids import new_id
from redrive.kernel.applied import Applied
from redrive.kernel.commit import Commit, Fire
from redrive.kernel.duty import Duty
from redrive.kernel.machine import ExpiredLease, Policy, Transition, settle
from redrive.kernel.outcome import Expired
from redrive.kernel.ports.store import ScheduleRow, Store
from redrive.kernel.retention import Retention
from redrive.kernel.task import NewTask, Task
from redrive.worker.config import TimeLimits, WorkerConfig
from redrive.worker.report import Report
from redrive.worker.state import WorkerState

if TYPE_CHECKING:
    from redrive.observe.tracing import Tracing

logger = logging.getLogger("redrive.maintenance")

ROWS_OF_A_FULL_PIECE = 5000


class Upkeep:
    """Does one kind of housekeeping, by the name that stores know. ``level``: the log level of what it did, if any."""

    def __init__(self, name: str, retention: Retention, level: int | None = None) -> None:
        self._name = name
        self._retention = retention
        self._level = level

    async def run(self, store: Store, worker_id: str, stopping: Callable[[], bool]) -> None:
        total = 0
        while (done := await store.upkeep(self._name, self._retention)) > 0:
            total += done
            if done < ROWS_OF_A_FULL_PIECE:
                break
            await asyncio.sleep(0.05)
        if total and self._level is not None:
            logger.log(
                self._level,
                "%s: %d rows",
                self._name,
                total,
                extra={"event": f"maintenance.{self._name}", "rows": total, "worker_id": worker_id},
            )


MOST_MISSED_RUNS_FIRED = 1000


async def fire_schedules(
    store: Store, worker_id: str, stopping: Callable[[], bool], tracing: Tracing | None = None
) -> None:
    """Enqueues what is due by the schedules, and plans their next runs."""
    now, due = await store.due_schedules()
    paused = await _paused(store) if due else set()
    for row in due:
        times, following = planned(row, now)
        if row.name in paused:  # what would have run meanwhile is left out, also when it is resumed
            times = []
        tasks = tuple(_task(row, at) for at in times)
        with nullcontext() if tracing is None or not tasks else tracing.sending(tasks, root=True) as trace:
            if trace is not None:
                stamp(tasks, trace)
            applied = await store.apply(Commit(fires=[Fire(row.name, row.next_at, following, tasks)]))
        if row.name in applied.fired:
            logger.info(
                "schedule %s fired %d task(s)",
                row.name,
                len(tasks),
                extra={"event": "schedule.fired", "schedule": row.name, "tasks": len(tasks), "worker_id": worker_id},
            )


async def _paused(store: Store) -> set[str]:
    return {hold.name for hold in (await store.overview()).holds if hold.target == "schedule"}


def planned(row: ScheduleRow, now: datetime) -> tuple[list[datetime], datetime]:
    """Returns the runs that are due by ``now`` under the schedule's policy, and the next one after. A schedule that was
    fired by a clock that was ahead has none that are due: its next run is planned anew."""
    if row.next_at > now:
        return [], next_after(row.cron, row.timezone, now)
    times = [row.next_at]
    following = next_after(row.cron, row.timezone, row.next_at)
    while following <= now and len(times) < MOST_MISSED_RUNS_FIRED:
        times.append(following)
        following = next_after(row.cron, row.timezone, following)
    if following <= now:
        # Too many were missed to list: the rest is skipped, and said so by the gap in the tasks' scope.
        following = next_after(row.cron, row.timezone, now)
    match row.missed:
        case "all":
            return times, following
        case "skip":
            late = (now - times[-1]).total_seconds() > 60
            return ([] if late else times[-1:]), following
        case _:
            return times[-1:], following


def _task(row: ScheduleRow, at: datetime) -> NewTask:
    # The key makes a planned run one task for good, whoever fires it and however often.
    key = f"schedule:{row.name}:{at.isoformat()}"
    return NewTask(
        new_id(),
        row.kind,
        row.queue,
        row.payload,
        priority=row.priority,
        max_attempts=row.max_attempts,
        idempotency_key=key,
        scope=f"schedule:{row.name}",
    )


hooks_logger = logging.getLogger("redrive.hooks")
LONGEST_READ = 100_000  # bytes of a payload: of a longer one nobody is told its public fields
# So many that are refused are passed by in one run, to reach those behind them.
MOST_REFUSED = 500


class Recovery:
    """Settles expired leases of tasks of one feature, or of those that belong to none. It has no path of its own: an
    expired lease is an outcome like any other, fenced and reported like any other."""

    def __init__(
        self,
        leases_at_once: int,
        report: Report,
        limits: TimeLimits,
        policy: Callable[[str], Policy],
        feature: str | None = None,
        on_recovered: Sequence[Callable[[Sequence[tuple[str, bool]]], None]] = (),
    ) -> None:
        self._on_recovered = on_recovered
        self._feature = feature
        self._policy = policy
        self._leases_at_once = leases_at_once
        self._report = report
        self._limits = limits
        self._refusals_reported: set[tuple[UUID, UUID]] = set()  # leases whose end is refused: each is told of once

    async def run(self, store: Store, worker_id: str, stopping: Callable[[], bool]) -> None:
        at_once = self._leases_at_once
        refused: set[UUID] = set()  # they stay where they are; others are behind them
        while len(refused) <= MOST_REFUSED:
            found = await store.expired(at_once + len(refused), self._feature)
            leases = [lease for lease in found if lease.id not in refused]
            if not leases:
                return
            transitions = [
                settle(lease, Expired(self._passed_limit(lease)), self._policy(lease.kind), random.random())  # noqa: S311 (no secret)
                for lease in leases
            ]
            applied = await store.apply(Commit(transitions=transitions))
            self._tell(leases, transitions, applied, await self._tasks(store, leases))
            refused |= applied.refused.keys()
            if len(leases) < at_once or (len(applied.lost) == len(leases) and not applied.refused):
                return

    async def _tasks(self, store: Store, leases: Sequence[ExpiredLease]) -> Mapping[UUID, Task]:
        """Returns the tasks themselves, where somebody wants to know more than a lease says. They are taken back by
        now: that they cannot be read is no reason to tell nobody."""
        if not self._report.wants_recovered:
            return {}
        try:
            return await store.get_many([lease.id for lease in leases], documents=LONGEST_READ)
        except RedriveError as error:
            hooks_logger.warning("hooks are told without labels: %s", error, extra={"event": "hook.no_labels"})
            return {}

    def _tell(
        self,
        leases: Sequence[ExpiredLease],
        transitions: Sequence[Transition],
        applied: Applied,
        tasks: Mapping[UUID, Task],
    ) -> None:
        self._report.begin()
        for lease, transition in zip(leases, transitions, strict=True):
            if lease.id not in applied.lost:
                instead, limit = applied.instead.get(lease.id), self._passed_limit(lease)
                self._report.recovered(lease, transition, instead, limit, tasks.get(lease.id))
            elif lease.id in applied.refused and (lease.id, lease.token) not in self._refusals_reported:
                self._report.not_recovered(lease, applied.refused[lease.id])
                self._refusals_reported.add((lease.id, lease.token))
        self._report.flush()
        taken = [(one.kind, self._passed_limit(one) is not None) for one in leases if one.id not in applied.lost]
        for tell in self._on_recovered if taken else ():
            tell(taken)

    def _passed_limit(self, lease: ExpiredLease) -> float | None:
        """Returns the time limit that the attempt had passed when its lease ran out; None when it was the lease
        alone."""
        limit = self._limits.of_kind(lease.kind, lease.timeout)
        return limit if limit is not None and lease.seconds > limit else None


def by_name(duties: Iterable[Duty]) -> dict[str, Duty]:
    found: dict[str, Duty] = {}
    for duty in duties:
        if duty.name in found:
            raise ConfigError(f"two duties are named {duty.name!r}", hint="rename the feature's own")
        found[duty.name] = duty
    return found


def standard_duties(
    config: WorkerConfig, retention: Retention | None, report: Report, features: Iterable[str]
) -> list[Duty]:
    """Returns the duties for recovery, schedules and the store's housekeeping. ``features``: those whose tasks this
    worker can end."""
    settings = config.settings
    retention = retention or Retention(settings.history_days, settings.key_days)
    every, limits = settings.recovery_interval, TimeLimits(config)

    def policy(kind: str) -> Policy:
        deaths = config.registry.max_deaths_of(kind, settings.max_worker_deaths)
        return Policy(backoff=settings.backoff, max_deaths=deaths)

    def recover(feature: str | None = None) -> Recovery:
        return Recovery(settings.recovery_batch_size, report, limits, policy, feature, config.registry.told_reclaimed)

    return [
        Duty("recover", every, recover().run, by_time=True),
        # Whoever has the duty of recovering may not know a feature: somebody who does looks after its tasks.
        *(Duty(f"recover:{name}", every, recover(name).run, by_time=True) for name in features),
        Duty("cron", None, partial(fire_schedules, tracing=config.tracing), by_time=True),
        Duty("fold", 1.0, Upkeep("fold", retention).run),
        Duty("promote", 10.0, Upkeep("promote", retention).run),
        # Twice a minute, so that there is a look at every minute.
        Duty("series", 30.0, Upkeep("series", retention).run),
        # Retention is never silent, and a corrected counter is worth knowing about.
        Duty("recount", 30.0, Upkeep("recount", retention, logging.WARNING).run),
        Duty("names", 60.0, Upkeep("names", retention).run),
        Duty("prune", 60.0, Upkeep("prune", retention, logging.INFO).run),
        Duty("partitions", 3600.0, Upkeep("partitions", retention).run),
    ]


async def perform(duty: Duty, store: Store, worker_id: str, stopping: Callable[[], bool]) -> None:
    """Performs one duty. One that fails is done by the next worker to tick; it never stops this one."""
    name = duty.name
    try:
        await duty.run(store, worker_id, stopping)
    except (StoreUnavailable, StoreUnusable):
        pass  # the beat meets the same trouble, and says so
    except RedriveError as error:
        logger.error("%s failed: %s", name, error, extra={"event": "maintenance.failed", "duty": name})
    except Exception:
        logger.exception("%s failed", name, extra={"event": "maintenance.failed", "duty": name})


class DutyRunner:
    """Performs the duties of one worker, each in a task of its own."""

    def __init__(self, config: WorkerConfig, store: Store, state: WorkerState, duties: Mapping[str, Duty]) -> None:
        self._worker_id = config.id
        self._look_after_each = config.options.stop_when_empty
        self._store = store
        self._stopping = state.lifecycle.is_stopping
        self._signal = state.signal
        self._duties = duties
        # For the store, which gives each to one worker per interval, and some only while a record is there.
        self.intervals = {name: duty.every for name, duty in duties.items() if duty.every is not None}
        self.while_records = {name: duty.while_record for name, duty in duties.items() if duty.while_record is not None}
        self._under_way: dict[str, asyncio.Task[None]] = {}
        # What duties had to do when they were last begun for it.
        self._tried: dict[str, object] = {}

    @property
    def busy(self) -> bool:
        """True while duties are under way: recovery, schedules and bulk operations bring tasks."""
        return any(not duty.done() for duty in self._under_way.values())

    def begin(self, name: str) -> None:
        """Begins a duty, unless it is under way."""
        running = self._under_way.get(name)
        if running is None or running.done():
            work = perform(self._duties[name], self._store, self._worker_id, self._stopping)
            self._under_way[name] = asyncio.create_task(work, name=f"redrive-{name}")
            if self._look_after_each:
                self._under_way[name].add_done_callback(lambda _: self._signal.look())

    async def begin_those_with_work(self) -> bool:
        """Begins duties that can bring tasks now, whoever had them last; returns whether there were any. What moved
        nothing the last time is left."""
        asked = {name: duty.has_work for name, duty in self._duties.items() if duty.has_work is not None}
        found = {name: await has_work(self._store, self._worker_id) for name, has_work in asked.items()}
        moving = [name for name, what in found.items() if what and what != self._tried.get(name)]
        self._tried = found
        for name in moving:
            self.begin(name)
        return bool(moving)

    async def cancel(self) -> None:
        """Cancels what is under way, and waits for its end."""
        for duty in self._under_way.values():
            duty.cancel()
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)
