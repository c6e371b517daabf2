"""Figures of the whole fleet as samples of its metrics: looked at every five seconds at most, those of features every
two, however many scrape."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from redrive.errors import RedriveError
from redrive.kernel.figures import Figures
from redrive.kernel.ports.store import Store
from redrive.kernel.series import Key, admit
from redrive.kernel.task import LIVE, State
from redrive.observe import metrics
from redrive.observe.feature_metrics import FeatureMetrics
from redrive.observe.samples import Samples, add, put
from redrive.ops.alerts.look import book_of
from redrive.ops.workers import Standing, fell_silent, standing

logger = logging.getLogger("redrive.metrics")
FRESH_FOR_S = 5.0
LOOKS_FRESH_FOR_S = 2.0  # one small statement each
MOST_QUEUES = 500
PATIENCE_S = 5.0  # Prometheus waits for ten
Look = Callable[[Store], Awaitable[Samples]]


class FleetMetrics:
    """Looks at a store and remembers what it saw. One looks at a time; the others get what that one finds. ``looks``
    are those of features: what fails there is left out."""

    def __init__(
        self,
        store: Callable[[], Awaitable[Store]],
        looks: Mapping[str, Look] = MappingProxyType({}),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._looks = looks
        self._clock = clock
        self._turn = asyncio.Lock()
        self._seen: tuple[float, Samples] | None = None
        self._looked: tuple[float, Samples] | None = None

    async def samples(self) -> Samples:
        """Returns the fleet's samples; only that the store did not answer, where it did not."""
        async with self._turn:
            if self._is_old(self._seen, FRESH_FOR_S):
                self._seen = self._clock(), await self._look()
            assert self._seen is not None
            own = self._seen[1]
            if own[metrics.FLEET_UP.name] == {(): 0.0}:
                return own
            if self._is_old(self._looked, LOOKS_FRESH_FOR_S):
                self._looked = self._clock(), await self._look_of_features()
            assert self._looked is not None
            found: Samples = {}
            add(found, own)
            add(found, self._looked[1])
            return found

    def _is_old(self, seen: tuple[float, Samples] | None, fresh_for: float) -> bool:
        return seen is None or self._clock() - seen[0] >= fresh_for

    async def _look(self) -> Samples:
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await asyncio.to_thread(samples_of, await (await self._store()).figures())
        except (RedriveError, TimeoutError) as error:
            logger.warning("no figures of the fleet: %s", error or "no answer", extra={"event": "metrics.no_fleet"})
            return {metrics.FLEET_UP.name: {(): 0.0}}

    async def _look_of_features(self) -> Samples:
        found: Samples = {}
        for name, look in self._looks.items():
            try:
                async with asyncio.timeout(PATIENCE_S):
                    add(found, await look(await self._store()))
            except Exception:
                logger.exception("metrics of %s", name, extra={"event": "feature.metrics"})
        return found


def fleet_looks(brought: list[tuple[str, FeatureMetrics]], settings: Any) -> dict[str, Look]:
    """Returns how the fleet's metrics of features are read."""
    return {name: partial(_samples_of, own, settings) for name, own in brought if own.fleet is not None}


async def _samples_of(own: FeatureMetrics, settings: Any, store: Store) -> Samples:
    assert own.fleet is not None
    names = {metric.name for metric in own.metrics}
    return {name: values for name, values in (await own.fleet(store, settings)).items() if name in names}


def samples_of(figures: Figures) -> Samples:
    """Returns figures as samples. Pairs of queue and kind beyond a bound are ``other``, by name: the same ones for
    everybody who looks."""
    found: Samples = {metrics.FLEET_UP.name: {(): 1.0}}
    names = admit(sorted({(each.queue, each.kind) for each in figures.kinds} | figures.oldest.keys()))
    _kinds(figures, names, found)
    _workers(figures, {names[each.queue, each.kind][0] for each in figures.kinds}, found)
    for metric, value in (
        (metrics.CAUSES, figures.causes),
        (metrics.APPROVALS, figures.approvals),
        (metrics.SCHEDULES_LATE, figures.late_schedules),
        (metrics.LATENESS, figures.schedule_lateness),
        (metrics.EXPIRED, figures.expired),
        (metrics.UNSEALED, figures.unsealed),
        (metrics.UNSEALED_AGE, figures.unsealed_age),
    ):
        put(found, metric.name, float(value))
    for state in ("waiting", "running", "paused"):
        put(found, metrics.OPERATIONS.name, float(figures.operations.get(state, 0)), state)
    for code, n in figures.failed_by_code.items():
        put(found, metrics.FAILED_BY_CODE.name, float(n), code)
    for type_, n in figures.failed_by_type.items():
        put(found, metrics.FAILED_BY_TYPE.name, float(n), type_)
    for queue in sorted(figures.paused_queues)[:MOST_QUEUES]:
        put(found, metrics.PAUSED.name, 1.0, queue)
    for kind in sorted(figures.paused_kinds)[:MOST_QUEUES]:
        put(found, metrics.KIND_PAUSED.name, 1.0, kind)
    for kind in sorted(figures.waiting_kinds)[:MOST_QUEUES]:
        put(found, metrics.KIND_WAITS.name, 1.0, kind)
    outages = figures.outages
    for circuit in figures.circuits[:MOST_QUEUES]:
        put(found, metrics.CIRCUIT_AGE.name, outages[circuit.name], circuit.name)
        put(found, metrics.CIRCUIT_OPENED.name, float(circuit.opened), circuit.name)
    if figures.horizon is not None:
        put(found, metrics.HORIZON.name, figures.horizon)
    _alerts(figures, {key[0] for key in names.values()}, found)
    return found


def _alerts(figures: Figures, queues: set[str], found: Samples) -> None:
    """What the last round of alerts found; nothing where there was none."""
    book, _ = book_of(figures)
    if book.at is None:
        return
    put(found, metrics.EVALUATED.name, book.at.timestamp())
    put(found, metrics.CHAIN.name, float(book.chain is not None))
    for alert in book.firing:
        put(found, metrics.FIRING.name, 1.0, alert.rule, alert.queue, alert.level.value)
    for queue, service in sorted(book.services.items())[:MOST_QUEUES]:
        put(found, metrics.BUDGET.name, service.left, queue)
        for window, rate in service.burn.items():
            put(found, metrics.BURN.name, rate, queue, window)
    for queue in sorted(queues)[:MOST_QUEUES]:
        failed, overdue = book.counted.get(queue, (0, 0))
        put(found, metrics.FAILED_OPEN.name, float(failed), queue)
        put(found, metrics.OVERDUE.name, float(overdue), queue)


def _kinds(figures: Figures, names: dict[Key, Key], found: Samples) -> None:
    paused_queues, paused_kinds = set(figures.paused_queues), set(figures.paused_kinds)
    for each in figures.kinds:
        key = names[each.queue, each.kind]
        # What a pause holds back is queued by its row, and paused to everybody who looks.
        gated = each.queue in paused_queues or each.kind in paused_kinds
        for state in LIVE:
            shown = State.PAUSED if gated and state is State.QUEUED else state
            put(found, metrics.TASKS.name, float(each.states.get(state, 0)), *key, shown.value)
        if gated:
            put(found, metrics.TASKS.name, 0.0, *key, State.QUEUED.value)
        put(found, metrics.ENQUEUED.name, float(each.enqueued), *key)
        put(found, metrics.COMPLETED.name, float(each.states.get(State.COMPLETED, 0)), *key)
        put(found, metrics.CANCELLED.name, float(each.states.get(State.CANCELLED, 0)), *key)
        put(found, metrics.LETTERS.name, float(each.dead_letters), *key)
    ages: dict[Key, float] = {}
    for pair, age in figures.oldest.items():
        ages[names[pair]] = max(age, ages.get(names[pair], 0.0))
    for each in figures.kinds:  # nothing waits: said so, that it is no gap
        ages.setdefault(names[each.queue, each.kind], 0.0)
    for key, age in ages.items():
        put(found, metrics.OLDEST.name, age, *key)


def _workers(figures: Figures, queues: set[str], found: Samples) -> None:
    live = [worker for worker in figures.workers if standing(worker, figures.now) is Standing.ALIVE]
    served: dict[str, int] = dict.fromkeys(sorted(queues), 0)
    for worker in live:
        for queue in worker.queues:
            served[queue] = served.get(queue, 0) + 1
    for queue in sorted(served, key=lambda queue: (queue not in queues, queue))[:MOST_QUEUES]:
        put(found, metrics.WORKERS.name, float(served[queue]), queue)
    silent = sum(fell_silent(worker, figures.now) for worker in figures.workers)
    for metric, n in (
        (metrics.FLEET_SLOTS, sum(worker.concurrency for worker in live)),
        (metrics.FLEET_USED, sum(worker.running for worker in live)),
        (metrics.SILENT, silent),
    ):
        put(found, metric.name, float(n))
