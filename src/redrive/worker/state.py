"""What the parts of one worker share."""

from __future__ import annotations

from dataclasses import dataclass

from redrive.observe.counters import Counters
from redrive.observe.health import Health
from redrive.worker.config import WorkerConfig
from redrive.worker.hints import Hints
from redrive.worker.life import Life
from redrive.worker.loop_signal import LoopSignal
from redrive.worker.next_look import NextLook
from redrive.worker.outage import Outage
from redrive.worker.runs import Runs


@dataclass(slots=True, frozen=True)
class WorkerState:
    """How a worker is at this moment: whether it ends, what it runs, what it has counted, whether its store is gone;
    and whom to tell when that changes: the hot loop (``signal``; ``hints`` where the whole fleet is told) and the
    lease keeper (``next_look``)."""

    life: Life
    runs: Runs
    health: Health
    outage: Outage
    signal: LoopSignal
    hints: Hints
    next_look: NextLook
    counters: Counters


def new_state(config: WorkerConfig) -> WorkerState:
    """Returns the state of a worker that has not begun."""
    health = Health(worker_id=config.id)
    runs = Runs(config.options.concurrency)
    outage, signal = Outage(config.id, health), LoopSignal()
    return WorkerState(Life(), runs, health, outage, signal, Hints(signal), NextLook(), Counters())
