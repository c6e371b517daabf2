"""Circuits in words: since when one is open, why, and when it is tried again."""

from __future__ import annotations

from datetime import UTC, datetime

from redrive.kernel.circuit import CircuitRow, CircuitState
from redrive.kernel.wording import span


def describe(row: CircuitRow, now: datetime) -> str:
    """Returns a circuit in a sentence: "open since 12:00:03Z (5 min), because connect; the next probe in 20 s"."""
    since = f"since {row.since.astimezone(UTC):%H:%M:%SZ} ({span(now - row.since)})"
    if not row.open:
        return f"closed {since}"
    failed = f"{row.failed_probes} probes failed, " if row.failed_probes else ""
    return f"open {since}, because {row.reason or 'somebody opened it'}; {failed}the next probe {next_probe(row, now)}"


def next_probe(row: CircuitRow, now: datetime) -> str:
    """Returns when it comes: "in 20 s", or "now": one runs, or the next task that is claimed is one."""
    waits = row.state(now) is CircuitState.OPEN and row.until is not None
    return f"in {span(row.until - now)}" if waits and row.until is not None else "now"
