"""Watches how attempts of kinds with a circuit end: opens it for the fleet, closes it when a probe got through.

Each worker counts for itself, so that an attempt that ends well costs the store nothing, and one that does not costs
one read. The first worker to have seen enough opens the circuit for all.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from redrive.errors import ChangedMeanwhile, RedriveError
from redrive.handlers.registry import Registry
from redrive.kernel.circuit import Circuit, CircuitRow, SetCircuit, Window, is_down, probed, trip, unproven
from redrive.kernel.commit import Commit
from redrive.kernel.failure import Failure
from redrive.kernel.outcome import Cancel, Completed, Fail, Failed, Outcome, Released, Retry, Snooze, StopReason
from redrive.kernel.ports.store import Store
from redrive.kernel.summary import type_and_words
from redrive.worker.run import Run, RunState

logger = logging.getLogger("redrive.worker")
Say = Callable[..., None]
MOST_TRIES = 3  # when others change the circuit at the same time


@dataclass(slots=True)
class _Watched:
    """What this worker knows of a circuit."""

    window: Window = field(default_factory=Window)
    read_at: float = float("-inf")
    well_at: float = float("-inf")  # when a task last got through
    open: bool = False


class Circuits:
    """The circuits of a worker's kinds. ``say`` writes a line about the worker."""

    def __init__(self, store: Store, worker_id: str, registry: Registry, say: Say) -> None:
        self._store = store
        self._worker_id = worker_id
        self._say = say
        self._kinds: dict[str, list[str]] = {}
        for handler in registry.handlers.values():
            if handler.circuit is not None:
                self._kinds.setdefault(_name(handler.circuit), []).append(handler.kind)
        self._watched = {name: _Watched() for name in self._kinds}
        self._later: set[asyncio.Task[list[Outcome]]] = set()

    async def judge(self, runs: Sequence[Run], outcomes: list[Outcome]) -> list[Outcome]:
        """Counts how one call of a handler ended; returns what becomes of its tasks. While the circuit is open, those
        that found the other side down are handed back, and have used no attempt."""
        handler = runs[0].handler
        if handler is None or handler.circuit is None or runs[0].state is RunState.ABANDONED:
            return outcomes
        return await self._judge(handler.circuit, runs, outcomes)

    async def _judge(self, terms: Circuit, runs: Sequence[Run], outcomes: list[Outcome]) -> list[Outcome]:
        well_for = time.monotonic() - self._watched[_name(terms)].well_at
        reasons = [None if _is_alone(outcome, well_for) else why_down(outcome) for outcome in outcomes]
        try:
            if not any(map(_tells, runs, outcomes, [well_for] * len(runs))):
                await self._pass_on(terms, runs, outcomes)
                return outcomes
            is_open = await self._note(terms, runs, next(filter(None, reasons), None))
        except (RedriveError, asyncio.CancelledError) as error:
            # The outcome matters more: it is settled as it would be without a circuit.
            logger.warning("circuit %s: %s", terms.name, error or "stopped", extra={"event": "circuit.unknown"})
            return outcomes
        if not is_open:
            return outcomes
        pairs = zip(outcomes, reasons, strict=True)
        return [outcome if why is None else _waiting(terms, outcome, why) for outcome, why in pairs]

    def judge_later(self, run: Run, outcome: Outcome) -> None:
        """Counts an attempt whose handler did not stop; what becomes of its task is decided already."""
        if run.handler is not None and run.handler.circuit is not None:
            task = asyncio.get_running_loop().create_task(self._judge(run.handler.circuit, [run], [outcome]))
            self._later.add(task)
            task.add_done_callback(self._later.discard)

    async def _pass_on(self, terms: Circuit, runs: Sequence[Run], outcomes: Sequence[Outcome]) -> None:
        """Lets another task be the next probe, after the usual time, where this one is alone with its trouble."""
        if not any(map(why_down, outcomes)):
            return
        row = await self._read(terms, self._watched[_name(terms)])
        if row is not None and row.open and _is_probe(row, runs):
            with suppress(ChangedMeanwhile):
                await self._store.apply(Commit(controls=[unproven(row, terms, random.random())]))  # noqa: S311

    async def _note(self, terms: Circuit, runs: Sequence[Run], down: str | None) -> bool:
        watched = self._watched[_name(terms)]
        now = time.monotonic()
        enough = watched.window.note(terms, now, down is not None)
        if down is None:
            watched.well_at = now
        # A probe comes half a delay after the opening at the earliest: whoever looked since then would know of it.
        if down is None and not watched.open and now - watched.read_at < terms.delay / 2:
            return False
        for _ in range(MOST_TRIES):
            row = await self._read(terms, watched)
            change = self._change(terms, runs, down, row, enough)
            if change is None:
                return watched.open
            try:
                await self._store.apply(Commit(controls=[change]))
            except ChangedMeanwhile:
                continue
            watched.open = change.open
            if row is None or row.open != change.open:
                watched.window.clear()
            self._tell(row, change)
            return watched.open
        return watched.open

    async def _read(self, terms: Circuit, watched: _Watched) -> CircuitRow | None:
        row = next((row for row in await self._store.circuits() if row.name == terms.name), None)
        watched.read_at, watched.open = time.monotonic(), row is not None and row.open
        return row

    def _change(
        self, terms: Circuit, runs: Sequence[Run], down: str | None, row: CircuitRow | None, enough: bool
    ) -> SetCircuit | None:
        jitter = random.random()  # noqa: S311 (no secret)
        if row is not None and row.open:
            if _is_probe(row, runs):
                return probed(row, terms, down, self._worker_id, jitter)
            return None if down is None else trip(row, terms, [runs[0].task.kind], down, self._worker_id, jitter)
        if down is None or not enough:
            return None
        return trip(row, terms, self._kinds[_name(terms)], down, self._worker_id, jitter)

    def _tell(self, row: CircuitRow | None, change: SetCircuit) -> None:
        facts = {"circuit": change.name, "kinds": list(change.kinds), "reason": change.reason}
        if not change.open:
            self._say("circuit.closed", f"circuit {change.name} is closed: {change.reason}", **facts)
        elif change.wait is not None:
            again = row is not None and row.open
            text = "stays open, its probe failed" if again else "is open: its tasks wait"
            text = f"circuit {change.name} {text} ({change.reason}); the next probe comes in {change.wait:.1f} s"
            self._say("circuit.probe_failed" if again else "circuit.opened", text, "warning", **facts)


def why_down(outcome: Outcome) -> str | None:
    """Returns in words that everybody may see why the other side is down, by what came of an attempt."""
    if isinstance(outcome, Snooze):
        return getattr(outcome, "down", None)  # a class of the application's own may not call ours
    if not isinstance(outcome, Failed) or not is_down(outcome.failure):
        return None
    return _words(outcome.failure)


def _words(failure: Failure) -> str:
    exception, words = type_and_words(failure.summary)
    return ": ".join(part for part in (failure.reason, exception.rpartition(".")[2], words) if part)


def _tells(run: Run, outcome: Outcome, well_for: float) -> bool:
    """Returns whether an end says anything about the other side: one that was stopped from here does not, but for its
    time limit."""
    by_itself = run.stop in (None, StopReason.TIMEOUT) and not _is_alone(outcome, well_for)
    asked = not isinstance(outcome, Snooze) or getattr(outcome, "evidence", True)
    return by_itself and asked and isinstance(outcome, Completed | Snooze | Retry | Fail | Cancel | Failed)


def _is_alone(outcome: Outcome, well_for: float) -> bool:
    """Returns whether a task finds the other side down since before others got through, so many seconds ago."""
    return isinstance(outcome, Snooze) and why_down(outcome) is not None and getattr(outcome, "down_for", 0) > well_for


def _is_probe(row: CircuitRow, runs: Sequence[Run]) -> bool:
    return any((run.task.id, run.task.token) == (row.probe, row.token) for run in runs)


def _waiting(terms: Circuit, outcome: Outcome, why: str) -> Outcome:
    """Returns what makes a task wait behind its open circuit: queued, so that it goes on as soon as that closes."""
    if isinstance(outcome, Snooze):
        return Snooze(0, state=outcome.state)
    return Released(f"circuit {terms.name} is open: {why}")


def _name(terms: Circuit) -> str:
    assert terms.name is not None  # named after its kind, if by nothing else
    return terms.name
