"""Reads the document that both stores answer with when they are asked for figures."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from redrive.kernel.figures import CircuitFigures, Figures, KindFigures
from redrive.kernel.reads import WorkerRow
from redrive.kernel.task import State

# As the statements name them: the order of a row of totals.
STATES = (State.QUEUED, State.DELAYED, State.RUNNING, State.PAUSED, State.FAILED, State.COMPLETED, State.CANCELLED)
LAST_S = 253_402_300_799.0  # the end of the year 9999
MOST_VALUES = 500  # of codes and of failure types


def read(text: str) -> Figures:
    """Returns the figures of such a document."""
    found: dict[str, Any] = json.loads(text)
    operations = {state: n for collection, state, n in found["records"] if collection == "operation"}
    return Figures(
        now=_time(found["now"]),
        kinds=[_kind(row) for row in found["totals"]],
        oldest={(queue, kind): max(float(age), 0.0) for queue, kind, age in found["oldest"]},
        failed_by_code=_sums(found["failed"], "code"),
        failed_by_type=_sums(found["failed"], "type"),
        causes=found["causes"],
        workers=[_worker(row) for row in found["workers"]],
        paused_queues=found["paused"],
        paused_kinds=found["paused_kinds"],
        circuits=[CircuitFigures(name, tuple(kinds), age, opened) for name, kinds, age, opened in found["circuits"]],
        operations=operations,
        approvals=sum(n for collection, _, n in found["records"] if collection == "approval"),
        late_schedules=found["late"],
        schedule_lateness=max(float(found["lateness"] or 0), 0.0),
        expired=found["expired"],
        unsealed=found["unsealed"],
        unsealed_age=max(float(found["unsealed_age"] or 0), 0.0),
        horizon=found["horizon"],
        alerts={name: (version, body) for name, version, body in found["alerts"] if isinstance(body, dict)},
    )


def _kind(row: list[Any]) -> KindFigures:
    queue, kind, *numbers, letters = row
    return KindFigures(queue, kind, dict(zip(STATES, numbers, strict=True)), letters)


def _sums(rows: list[Any], wanted: str) -> dict[str, int]:
    return {value: n for dimension, value, n in rows if dimension == wanted and n}


def _worker(row: list[Any]) -> WorkerRow:
    name, host, pid, queues, concurrency, running, version, started, seen, stopping, beat_ms, dead = row
    times = _time(started), _time(seen)
    every, served = beat_ms / 1000, tuple(queues)
    return WorkerRow(
        name, host, pid, served, concurrency, running, version, *times, bool(stopping), every, dead=bool(dead)
    )


def _time(seconds: float) -> datetime:
    """Returns a time; one that somebody has written by hand may be beyond all calendars."""
    return datetime.fromtimestamp(min(max(float(seconds), 0.0), LAST_S), UTC)
