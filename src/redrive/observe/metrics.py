"""The metrics there are: one table, from which /metrics, the dashboard, docs/metrics.md and their tests are made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from redrive.kernel.series import BOUNDS
from redrive.observe.counters import BATCH_BOUNDS


class Type(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Scope(StrEnum):
    """Whose figure it is. All carry the label ``connection`` before their others, and a process's own ``worker``. Those
    of the fleet are the same from everyone who serves them: they are not added up, but taken once (``max by``)."""

    PROCESS = "process"
    FLEET = "fleet"


CONNECTION = "connection"  # of two stores that one Prometheus scrapes, none is taken for the other
WORKER = "worker"


@dataclass(slots=True, frozen=True)
class Metric:
    name: str
    type: Type
    help: str
    labels: tuple[str, ...] = ()
    scope: Scope = Scope.PROCESS
    bounds: tuple[float, ...] = BOUNDS  # of a histogram's buckets

    @property
    def all_labels(self) -> tuple[str, ...]:
        """The labels as they are served."""
        return (CONNECTION, WORKER, *self.labels) if self.scope is Scope.PROCESS else (CONNECTION, *self.labels)

    @property
    def adds_up(self) -> bool:
        """Whether what processes had counted when they ended still belongs to the sum."""
        return self.type is not Type.GAUGE


KIND = ("queue", "kind")


def _counter(name: str, help: str, labels: tuple[str, ...] = ()) -> Metric:
    return Metric(f"redrive_{name}", Type.COUNTER, help, labels)


def _gauge(name: str, help: str, labels: tuple[str, ...] = ()) -> Metric:
    return Metric(f"redrive_{name}", Type.GAUGE, help, labels)


def _spread(name: str, help: str, labels: tuple[str, ...] = (), bounds: tuple[float, ...] = BOUNDS) -> Metric:
    return Metric(f"redrive_{name}", Type.HISTOGRAM, help, labels, bounds=bounds)


def _fleet(name: str, help: str, labels: tuple[str, ...] = (), type: Type = Type.GAUGE) -> Metric:
    return Metric(f"redrive_fleet_{name}", type, help, labels, Scope.FLEET)


INFO = _gauge("worker_info", "Always 1; the version that this worker runs, and REDRIVE_ENV.", ("version", "env"))
SLOTS = _gauge("worker_slots", "Tasks that this worker runs at once at most.")
SLOTS_USED = _gauge("worker_slots_used", "Tasks that this worker runs now.")
STOPPING = _gauge("worker_stopping", "1 while this worker finishes what it has and claims no more.")
RESTARTS = _counter("worker_restarts_total", "Times that the supervisor has started this worker process again.")

CLAIMED = _counter("tasks_claimed_total", "Attempts that were begun.", KIND)
ATTEMPTS = _counter(
    "attempts_total",
    "Attempts that ended: completed, retried, failed, cancelled, snoozed, released, handed_back or expired;"
    " the reason is that of a failure.",
    (*KIND, "outcome", "reason"),
)
FAILURES = _counter("attempt_failures_total", "Failed attempts by failure type.", (*KIND, "type"))
WAIT = _spread("task_wait_seconds", "Time from when a task was due to its first start.", KIND)
RUN = _spread("task_run_seconds", "How long attempts ran.", KIND)
BATCHES = _spread("settle_batch_tasks", "Outcomes that were settled by one call of the store.", bounds=BATCH_BOUNDS)
LEASES_LOST = _counter("leases_lost_total", "Leases that this worker has lost while it ran their tasks.")
LATE_COMMITS = _counter(
    "late_commits_refused_total", "Outcomes that the store refused: the lease was not held any more."
)
LATE = _counter("late_outcomes_total", "Handlers that ended after their task was given up or had completed.")
RECOVERED = _counter("tasks_recovered_total", "Tasks that this worker has taken back from expired leases.")
ABANDONED = _counter("handlers_abandoned_total", "Handlers that ignored being stopped, and were fenced off.")
HOOKS_DROPPED = _counter("hook_events_dropped_total", "Events that the application's hooks were not told: too many.")
HOOKS_FAILED = _counter("hook_failures_total", "Calls of the application's hooks that raised, or took too long.")

LAG = _spread("event_loop_lag_seconds", "How long the worker's event loop took to answer; asked twice a second.")
BLOCKED = _counter(
    "event_loop_blocked_total", "Times that a handler had the event loop for itself for a second and more."
)
CALLS = _spread("store_call_seconds", "How long calls of the store took, by verb.", ("verb",))
ERRORS = _counter("store_errors_total", "Calls of the store that ended with an error, by code.", ("code",))
RECONNECTS = _counter("store_reconnects_total", "Outages of the store that ended.")
CONTACT = _gauge("store_last_contact_timestamp_seconds", "When this worker last reached the store.")
LISTENER = _gauge("listener_up", "1 while hints arrive; 0: work is found by polling.")

FLEET_UP = _fleet("up", "1 when the store answered for the other figures of the fleet, which are left out otherwise.")
TASKS = _fleet("tasks", "Tasks that have not completed and were not cancelled, by state.", (*KIND, "state"))
ENQUEUED = _fleet("enqueued_total", "Tasks that were ever enqueued.", KIND, Type.COUNTER)
COMPLETED = _fleet("completed_total", "Tasks that have ever completed.", KIND, Type.COUNTER)
CANCELLED = _fleet("cancelled_tasks", "Tasks that were cancelled or given up, and not retried since.", KIND)
LETTERS = _fleet("dead_letters", "Records of terminal failures that are kept.", KIND)
OLDEST = _fleet(
    "oldest_age_seconds",
    "How long the first task has waited that could run; of kinds among the first 100 tasks of their queue.",
    KIND,
)
FAILED_BY_CODE = _fleet("failed_by_code", "Tasks that are failed now, by error code.", ("code",))
FAILED_BY_TYPE = _fleet("failed_by_type", "Tasks that are failed now, by failure type.", ("type",))
CAUSES = _fleet("causes_open", "Causes by which tasks are failed now, 1,000 at most.")
WORKERS = _fleet("workers", "Live workers that serve a queue; 0 for one with tasks that nobody serves.", ("queue",))
SILENT = _fleet("workers_silent", "Workers that said no goodbye and are not heard of.")
FLEET_SLOTS = _fleet("worker_slots", "Slots of all live workers.")
FLEET_USED = _fleet("worker_slots_used", "Slots of all live workers in which a task runs.")
PAUSED = _fleet("queue_paused", "1 for a queue that an operator has paused.", ("queue",))
OPERATIONS = _fleet("operations", "Bulk operations that have not ended.", ("state",))
APPROVALS = _fleet("approvals_pending", "What waits for a second operator.")
SCHEDULES_LATE = _fleet("schedules_late", "Schedules whose run is overdue for more than a minute.")
LATENESS = _fleet("schedule_lateness_seconds", "How long the most overdue run of a schedule is overdue.")
EXPIRED = _fleet("leases_expired", "Leases that ran out and whose tasks nobody has taken back, 1,000 at most.")
UNSEALED = _fleet("audit_unsealed_rows", "Audit rows that no seal covers yet, 1,000 at most.")
UNSEALED_AGE = _fleet("audit_unsealed_age_seconds", "Age of the first audit row that no seal covers.")
HORIZON = _fleet("horizon_age_seconds", "Age of the transaction that holds back the removal of dead rows.")
KIND_PAUSED = _fleet("kind_paused", "1 for a kind that an operator has paused.", ("kind",))
KIND_WAITS = _fleet("kind_circuit_open", "1 for a kind whose circuit is open: its tasks wait.", ("kind",))
CIRCUIT_AGE = _fleet(
    "circuit_open_seconds",
    "How long a circuit has been open; 0 if it is closed, or no task waits for it.",
    ("circuit",),
)
CIRCUIT_OPENED = _fleet("circuit_opened_total", "Times that a circuit has opened.", ("circuit",), Type.COUNTER)
EVALUATED = _fleet("alerts_evaluated_timestamp_seconds", "When the rules of alerts were last evaluated.")
FIRING = _fleet("alerts_firing", "1 for an alert that fires, silenced or not.", ("rule", "queue", "level"))
FAILED_OPEN = _fleet(
    "failed_open",
    "Tasks that are failed by causes that nobody has muted or resolved, as of the last round of alerts.",
    ("queue",),
)
OVERDUE = _fleet(
    "overdue_tasks",
    "Tasks that have waited for longer than the queue's pending_age, as of the last round of alerts: 1,000 at most, or"
    " a quarter more than pending and pending_share ask for, up to 100,000.",
    ("queue",),
)
BURN = _fleet(
    "slo_burn_rate",
    "How many times as fast as allowed tasks of a queue with an objective start late, by window; 30m_lasting is half an"
    " hour without its worst five minutes.",
    ("queue", "window"),
)
BUDGET = _fleet("slo_budget_left_ratio", "The share of a queue's error budget that is left.", ("queue",))
CHAIN = _fleet("audit_chain_broken", "1 where the latest seals of the audit log do not follow each other.")

TABLE: tuple[Metric, ...] = (
    *(INFO, SLOTS, SLOTS_USED, STOPPING, RESTARTS),
    *(CLAIMED, ATTEMPTS, FAILURES, WAIT, RUN, BATCHES, LEASES_LOST, LATE_COMMITS, LATE, RECOVERED, ABANDONED),
    *(HOOKS_DROPPED, HOOKS_FAILED),
    *(LAG, BLOCKED, CALLS, ERRORS, RECONNECTS, CONTACT, LISTENER),
    *(FLEET_UP, TASKS, ENQUEUED, COMPLETED, CANCELLED, LETTERS, OLDEST, FAILED_BY_CODE, FAILED_BY_TYPE, CAUSES),
    *(WORKERS, SILENT, FLEET_SLOTS, FLEET_USED, PAUSED, OPERATIONS, APPROVALS, SCHEDULES_LATE, LATENESS, EXPIRED),
    *(UNSEALED, UNSEALED_AGE, HORIZON, KIND_PAUSED, KIND_WAITS, CIRCUIT_AGE, CIRCUIT_OPENED),
    *(EVALUATED, FIRING, FAILED_OPEN, OVERDUE, BURN, BUDGET, CHAIN),
)


def by_name(metrics: Iterable[Metric] = TABLE) -> dict[str, Metric]:
    return {metric.name: metric for metric in metrics}
