"""Reads a worker's own counts as samples of its metrics, from any thread; nothing is counted a second time for it."""

from __future__ import annotations

from redrive.kernel.ports.store import Store
from redrive.kernel.series import Spread
from redrive.observe import metrics
from redrive.observe.samples import Samples, put
from redrive.version import __version__
from redrive.worker.worker import Worker


def measure(worker: Worker) -> Samples:
    """Returns what this worker has done since it was started, and how it is."""
    found: Samples = {}
    _state(worker, found)
    _tallies(worker, found)
    _store(worker.store, found)
    return found


def _state(worker: Worker, found: Samples) -> None:
    health, counters = worker.health, worker.counters
    for metric, value in (
        (metrics.SLOTS, worker.options.concurrency),
        (metrics.SLOTS_USED, len(worker.runs)),
        (metrics.STOPPING, worker.stopping),
        (metrics.LEASES_LOST, health.lost),
        (metrics.LATE_COMMITS, health.refused),
        (metrics.LATE, health.late),
        (metrics.RECOVERED, health.recovered),
        (metrics.ABANDONED, health.abandoned),
        (metrics.BLOCKED, health.loop_blocked),
        (metrics.RECONNECTS, health.reconnects),
        (metrics.CONTACT, health.last_contact),
        (metrics.HOOKS_DROPPED, 0 if worker.hooks is None else worker.hooks.dropped),
        (metrics.HOOKS_FAILED, 0 if worker.hooks is None else worker.hooks.raised),
    ):
        put(found, metric.name, float(value))
    put(found, metrics.INFO.name, 1.0, __version__, worker.settings.env)
    for spread, of in ((metrics.BATCHES, counters.batches), (metrics.LAG, counters.lags)):
        put(found, spread.name, _copy(of))


def _tallies(worker: Worker, found: Samples) -> None:
    for key, tally in worker.report.tallies.since_start().items():
        put(found, metrics.CLAIMED.name, float(tally.started), *key)
        put(found, metrics.ATTEMPTS.name, float(tally.completed), *key, "completed", "")
        if tally.started:
            put(found, metrics.WAIT.name, Spread(counts=tally.wait, total=tally.wait_ms / 1000), *key)
            put(found, metrics.RUN.name, Spread(counts=tally.run, total=tally.run_ms / 1000), *key)
        for type_, n in tally.failures.items():
            put(found, metrics.FAILURES.name, float(n), *key, type_)
    for end, n in list(worker.counters.ends.items()):
        put(found, metrics.ATTEMPTS.name, float(n), *end)


def _store(store: Store, found: Samples) -> None:
    put(found, metrics.LISTENER.name, float(store.listening))
    for verb, spread in list(store.meter.calls.items()):
        put(found, metrics.CALLS.name, _copy(spread), verb)
    for code, n in list(store.meter.errors.items()):
        put(found, metrics.ERRORS.name, float(n), code)


def _copy(spread: Spread) -> Spread:
    return Spread(spread.bounds, spread.counts, spread.total)
