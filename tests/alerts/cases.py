"""Every rule, broken and not: as facts for the product, and as series for Prometheus. Both have to say the same."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from redrive.kernel.alerts.facts import Facts, QueueFacts
from redrive.kernel.alerts.thresholds import Limits, Thresholds

HALF = Limits(Thresholds(pending_share=0.5))
NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
Q = 'queue="q"'
QUEUED = 'redrive_fleet_tasks{queue="q", kind="A", state="queued"}'
PAUSED = f"redrive_fleet_queue_paused{{{Q}}}"
KIND_PAUSED = 'redrive_fleet_kind_paused{kind="A"}'
KIND_WAITS = 'redrive_fleet_kind_circuit_open{kind="A"}'
OPEN_FOR = 'redrive_fleet_circuit_open_seconds{circuit="far"}'
BURNS = {
    window: f'redrive_fleet_slo_burn_rate{{{Q}, window="{window}"}}'
    for window in ("5m", "30m", "30m_lasting", "1h", "6h")
}
FAILED = f"redrive_fleet_failed_open{{{Q}}}"
OVERDUE = f"redrive_fleet_overdue_tasks{{{Q}}}"
WORKERS = f"redrive_fleet_workers{{{Q}}}"
OLDEST = 'redrive_fleet_oldest_age_seconds{queue="q", kind="A"}'
UNSEALED = "redrive_fleet_audit_unsealed_age_seconds"
ATTEMPTS = 'redrive_attempts_total{worker="w", queue="q", kind="A", outcome="failed", reason="x"}'


def quiet(**given: Any) -> QueueFacts:
    """Facts of a queue in which nothing is wrong, but for these."""
    facts: dict[str, Any] = dict.fromkeys(QueueFacts.__dataclass_fields__, 0)
    return QueueFacts(**{**facts, "paused": False, "before": None, **given})


def at_rest(queues: dict[str, QueueFacts], **given: Any) -> Facts:
    """Facts of a store in which nothing is wrong, but for these."""
    facts: dict[str, Any] = dict.fromkeys(Facts.__dataclass_fields__, 0)
    return Facts(**{**facts, "now": NOW, "chain": None, "queues": queues, **given})


@dataclass(slots=True, frozen=True)
class Case:
    """``series`` have a value a minute, for an hour and a half. Two processes serve the fleet's: they are not added
    up."""

    rule: str
    name: str
    fires: bool
    series: dict[str, str] = field(default_factory=dict)
    queue: QueueFacts | None = None
    store: dict[str, Any] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)

    @property
    def facts(self) -> Facts:
        return at_rest({} if self.queue is None else {"q": self.queue}, **self.store)


def _of(rule: str, series: dict[str, str], queue: QueueFacts, **more: dict[str, str]) -> list[Case]:
    """The rule is broken, and it is not while the queue is paused."""
    paused = replace(queue, paused=True)
    return [
        Case(rule, "broken", True, series, queue),
        Case(rule, "paused queue", False, {**series, PAUSED: "1x90"}, paused),
    ]


CASES = [
    *_of("failed", {FAILED: "3x90"}, quiet(failed=3)),
    Case("failed", "muted", False, {FAILED: "0x90"}, quiet(known=3)),
    *_of("depth", {QUEUED: "150x90"}, quiet(queued=150, before=150)),
    Case("depth", "rising", True, {QUEUED: "101+1x90"}, quiet(queued=191, before=181)),
    Case("depth", "falling", False, {QUEUED: "900-5x90"}, quiet(queued=450, before=500)),
    Case("depth", "small", False, {QUEUED: "100x90"}, quiet(queued=100)),
    Case("depth", "since a minute", False, {QUEUED: "0x88 150 150"}, quiet(queued=150)),
    Case("depth", "paused kind", False, {QUEUED: "150x90", KIND_PAUSED: "1x90"}, quiet(queued=0)),
    Case("depth", "open circuit", False, {QUEUED: "150x90", KIND_WAITS: "1x90"}, quiet(queued=0)),
    *_of("pending", {OVERDUE: "2x90", QUEUED: "8x90"}, quiet(queued=8, overdue=2, workers=1)),
    *(
        Case(
            "pending",
            f"{waited} of {queued}, half is asked for",
            fires,
            {OVERDUE: f"{waited}x90", QUEUED: f"{queued}x90"},
            quiet(queued=queued, overdue=waited, workers=1),
            limits=HALF,
        )
        for waited, queued, fires in (
            (1_250, 2_500, True),
            (1_249, 2_500, False),
            (100_000, 1_000_000, True),
            (99_999, 1_000_000, False),
        )
    ),
    Case(
        "pending",
        "more than a thousand are asked for",
        True,
        {OVERDUE: "5001x90", QUEUED: "9000x90"},
        quiet(queued=9000, overdue=5001, workers=1),
        limits=Limits(Thresholds(pending=5000)),
    ),
    Case("pending", "none", False, {OVERDUE: "0x90"}, quiet(queued=8, workers=1)),
    *_of("surge", {ATTEMPTS: "0x79 10+10x10", FAILED: "30x90"}, quiet(failed=30, surged=90)),
    Case("surge", "as usual", False, {ATTEMPTS: "0+10x90", FAILED: "30x90"}, quiet(failed=900, surged=100, usual=100)),
    Case("surge", "muted", False, {ATTEMPTS: "0x79 10+10x10", FAILED: "0x90"}, quiet(known=90, surged=90)),
    Case(
        "surge",
        "of a new reason",
        True,
        {ATTEMPTS: "_x85 400x10", FAILED: "0x85 400x10"},
        quiet(failed=400, surged=400),
    ),
    Case("surge", "few", False, {ATTEMPTS: "0x79 1+1x10"}, quiet(failed=9, surged=9)),
    *_of("oldest_age", {OLDEST: "901x90"}, quiet(queued=1, oldest=901, workers=1)),
    Case("oldest_age", "young", False, {OLDEST: "900x90"}, quiet(queued=1, oldest=900, workers=1)),
    Case("oldest_age", "paused kind", False, {OLDEST: "901x90", KIND_PAUSED: "1x90"}, quiet()),
    *_of("no_worker", {QUEUED: "1x90", WORKERS: "0x90"}, quiet(queued=1)),
    Case("no_worker", "served", False, {QUEUED: "1x90", WORKERS: "1x90"}, quiet(queued=1, workers=1)),
    Case("no_worker", "delayed tasks", False, {QUEUED: "0x90", WORKERS: "0x90"}, quiet()),
    *_of("slo_fast", {BURNS["1h"]: "15x90", BURNS["5m"]: "20x90"}, quiet(fast=15)),
    Case("slo_fast", "over", False, {BURNS["1h"]: "15x90", BURNS["5m"]: "0x90"}, quiet(fast=0)),
    *_of("slo_slow", {BURNS["6h"]: "7x90", BURNS["30m_lasting"]: "8x90"}, quiet(slow=7)),
    Case("slo_slow", "little", False, {BURNS["6h"]: "5x90", BURNS["30m_lasting"]: "8x90"}, quiet(slow=5)),
    Case(
        "slo_slow",
        "burst",
        False,
        {BURNS["6h"]: "20x90", BURNS["30m"]: "20x90", BURNS["30m_lasting"]: "0x90"},
        quiet(fast=20, slow=0),
    ),
    Case("stuck", "broken", True, {"redrive_fleet_leases_expired": "1x90"}, store={"expired": 1}),
    Case("stuck", "none", False, {"redrive_fleet_leases_expired": "0x90"}),
    Case("schedule_missed", "broken", True, {"redrive_fleet_schedules_late": "1x90"}, store={"late": 1}),
    Case("schedule_missed", "none", False, {"redrive_fleet_schedules_late": "0x90"}),
    Case(
        "audit_chain", "broken", True, {"redrive_fleet_audit_chain_broken": "1x90"}, store={"chain": "seal 3 is gone"}
    ),
    Case("audit_chain", "whole", False, {"redrive_fleet_audit_chain_broken": "0x90"}),
    Case("audit_unsealed", "broken", True, {UNSEALED: "601x90", WORKERS: "1x90"}, store={"unsealed": 601.0}),
    Case("audit_unsealed", "nobody is there to do it", False, {UNSEALED: "700x90", WORKERS: "0x90"}),
    Case("audit_unsealed", "not yet", False, {UNSEALED: "600x90", WORKERS: "1x90"}, store={"unsealed": 600.0}),
    Case("circuit_open", "broken", True, {OPEN_FOR: "301x90"}, store={"circuit": 301.0}),
    Case("circuit_open", "short", False, {OPEN_FOR: "300x90"}, store={"circuit": 300.0}),
    Case("horizon", "broken", True, {"redrive_fleet_horizon_age_seconds": "301x90"}, store={"horizon": 301.0}),
    Case("horizon", "short", False, {"redrive_fleet_horizon_age_seconds": "300x90"}, store={"horizon": 300.0}),
]
