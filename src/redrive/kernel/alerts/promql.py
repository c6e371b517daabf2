"""The rules as expressions of Prometheus, over the metrics of the fleet: each is the same from everybody who serves it,
and taken once (``max by``), for each connection by itself. ``which`` chooses queues."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.kernel.alerts.facts import SURGE_FACTOR, SURGE_WINDOW, USUAL_WINDOW
from redrive.kernel.alerts.slo import FAST, LASTING, SLOW
from redrive.kernel.alerts.thresholds import CIRCUIT_OPEN_S, NOT_EVALUATED_S, PINNED_S, UNSEALED_S, Thresholds
from redrive.kernel.figures import MOST_WAITING
from redrive.kernel.wording import prometheus_span

_SURGE, _USUAL = (prometheus_span(one.total_seconds()) for one in (SURGE_WINDOW, USUAL_WINDOW))


def failed(limit: Thresholds, which: str) -> str:
    return f"{_of_queue('redrive_fleet_failed_open', which)} > {limit.failed}{_RUNNING}"


def depth(limit: Thresholds, which: str) -> str:
    window, queued = prometheus_span(max(limit.depth_for, 1)), _queued(which)
    enough = f"min_over_time(({queued})[{window}:30s]) > {limit.depth}"
    return f"({queued} >= {_queued(which, window)} and {enough}){_RUNNING}"


def pending(limit: Thresholds, which: str) -> str:
    waited = _of_queue("redrive_fleet_overdue_tasks", which)
    enough = f"{waited} > {min(limit.pending, MOST_WAITING - 1)}"
    if limit.pending_share:  # of a backlog beyond what is counted, so many late ones are enough, as for the product
        share = f"{waited} / on (connection, queue) {_queued(which)} >= {limit.pending_share:g}"
        enough += f" and on (connection, queue) ({share} or {waited} >= {MOST_WAITING})"
    return f"{enough}{_RUNNING}"


def surge(limit: Thresholds, which: str) -> str:
    chosen = _selector(which, 'outcome="failed"')
    ended = f"redrive_attempts_total{chosen}"
    # A reason that is new has no value that it could have grown from: what is counted by it is all new.
    now = f"sum by (connection, queue) (({ended} unless {ended} offset {_SURGE}) or increase({ended}[{_SURGE}]))"
    usual = (
        f"sum by (connection, queue) (increase({ended}[{_USUAL}] offset {_SURGE})) / {USUAL_WINDOW / SURGE_WINDOW:g}"
    )
    known = "on (connection, queue) (max by (connection, queue) (redrive_fleet_failed_open) == 0)"
    return f"({now} > {limit.surge} unless {now} <= {SURGE_FACTOR} * ({usual}) unless {known}){_RUNNING}"


def oldest_age(limit: Thresholds, which: str) -> str:
    ages = f"max by (connection, queue, kind) (redrive_fleet_oldest_age_seconds{_selector(which)}){_KIND_RUNS}"
    return f"max by (connection, queue) ({ages}) > {limit.oldest_age:g}{_RUNNING}"


def no_worker(limit: Thresholds, which: str) -> str:
    return f"{_queued(which)} > 0 and on (connection, queue) {_of_queue('redrive_fleet_workers', which)} == 0{_RUNNING}"


def slo_fast(limit: Thresholds, which: str) -> str:
    return _burning(which, FAST, "1h", "5m")


def slo_slow(limit: Thresholds, which: str) -> str:
    return _burning(which, SLOW, "6h", LASTING)


def _burning(which: str, rate: float, long: str, short: str) -> str:
    over = [
        f"max by (connection, queue) (redrive_fleet_slo_burn_rate{_selector(which, chosen)}) > {rate:g}"
        for chosen in (f'window="{long}"', f'window="{short}"')
    ]
    return f"{over[0]} and on (connection, queue) {over[1]}{_RUNNING}"


def stuck(limit: Thresholds, which: str) -> str:
    return "max by (connection) (redrive_fleet_leases_expired) > 0"


def schedule_missed(limit: Thresholds, which: str) -> str:
    return "max by (connection) (redrive_fleet_schedules_late) > 0"


def audit_chain(limit: Thresholds, which: str) -> str:
    return "max by (connection) (redrive_fleet_audit_chain_broken) > 0"


def audit_unsealed(limit: Thresholds, which: str) -> str:
    workers = "sum by (connection) (max by (connection, queue) (redrive_fleet_workers)) > 0"
    return (
        f"max by (connection) (redrive_fleet_audit_unsealed_age_seconds) > {UNSEALED_S:g} and on (connection) {workers}"
    )


def horizon(limit: Thresholds, which: str) -> str:
    return f"max by (connection) (redrive_fleet_horizon_age_seconds) > {PINNED_S:g}"


def circuit_open(limit: Thresholds, which: str) -> str:
    return f"max by (connection) (redrive_fleet_circuit_open_seconds) > {CIRCUIT_OPEN_S:g}"


def not_evaluated(connections: Sequence[str]) -> str:
    """Nobody evaluates the rules of one of these connections, or nobody tells."""
    last = "redrive_fleet_alerts_evaluated_timestamp_seconds"
    gone = " or ".join(f'absent({last}{{connection="{_quoted(name)}"}})' for name in connections)
    return f"{gone} or time() - max by (connection) ({last}) > {NOT_EVALUATED_S:g}"


def matching(queue: str) -> str:
    """Returns a selector of one queue."""
    return f'queue="{_quoted(queue)}"'


def none_of(queues: list[str]) -> str:
    """Returns a selector of all queues but these."""
    return ", ".join(f'queue!="{_quoted(queue)}"' for queue in queues)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _selector(*parts: str) -> str:
    chosen = ", ".join(part for part in parts if part)
    return f"{{{chosen}}}" if chosen else ""


def _of_queue(metric: str, which: str) -> str:
    return f"max by (connection, queue) ({metric}{_selector(which)})"


def _queued(which: str, ago: str = "") -> str:
    """How many are queued of kinds that nobody has paused, and whose circuit is not open."""
    chosen = _selector('state="queued"', which) + (f" offset {ago}" if ago else "")
    tasks = f"max by (connection, queue, kind) (redrive_fleet_tasks{chosen})"
    return f"sum by (connection, queue) ({tasks}{_KIND_RUNS})"


_RUNNING = " unless on (connection, queue) (max by (connection, queue) (redrive_fleet_queue_paused) == 1)"
_KIND_RUNS = (
    " unless on (connection, kind) (max by (connection, kind) (redrive_fleet_kind_paused) == 1)"
    " unless on (connection, kind) (max by (connection, kind) (redrive_fleet_kind_circuit_open) == 1)"
)
