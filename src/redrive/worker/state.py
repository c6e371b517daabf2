"""What the parts of one worker share: whether it ends, what it runs, and the signals between them."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from redrive.kernel.task import Claimed
from redrive.observe.counters import Counters, Health
from redrive.worker.config import WorkerConfig
from redrive.worker.outage import Outage
from redrive.worker.run import Run, RunState


class Lifecycle:
    """Holds how far a worker's life has come; its parts ask before they begin something, or wait on it."""

    def __init__(self) -> None:
        # The store was reached, or cannot be for now. One that cannot be used is an error before this.
        self.begun = asyncio.Event()
        # The store has answered a claim, and what came is begun.
        self.claiming = asyncio.Event()
        self.on_begun: Callable[[], None] = lambda: None
        # What it died of; None while it lives, and when it ended as it should.
        self.died: Exception | None = None
        # Claims no more, since this moment of the monotonic clock.
        self.stopping = False
        self.stopped_at = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None
        return self._loop

    @property
    def started(self) -> bool:
        return self._loop is not None

    def begin(self) -> None:
        """Notes that the worker has begun, once."""
        if not self.begun.is_set():
            self.begun.set()
            self.on_begun()

    def is_stopping(self) -> bool:
        return self.stopping

    def is_cut_off(self) -> bool:
        """Returns whether everything is to end at once: after a second cancellation, or at the end of the event
        loop."""
        return self._task is not None and self._task.cancelling() > 0

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Does the work of the worker in a task of its own, which is returned."""
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(work, name="redrive-worker")
        return self._task

    def retire(self) -> None:
        self.stopped_at = time.monotonic()
        self.stopping = True


class Runs(dict[UUID, Run]):
    """The leased tasks of one worker by their id and, beside them, handlers whose task is no longer theirs."""

    def __init__(self, slots: int) -> None:
        super().__init__()
        # Completed by their own transaction, with a handler that has not ended yet.
        self.trailing: dict[UUID, Run] = {}
        # Attempts whose task was claimed again by this same worker, with a handler that has not ended yet.
        self.superseded: set[Run] = set()
        self.slots = slots
        self.withheld = 0  # slots that are not to be used for now
        self.claimed = 0
        self.suspect = False  # a task waits to run alone, or does: nothing is claimed meanwhile

    @property
    def any_left(self) -> bool:
        """True while something is leased, or some handler still runs."""
        return bool(self or self.trailing or self.superseded)

    def everything(self) -> list[Run]:
        """Returns leased, trailing and superseded runs, in a list of their own."""
        return [*self.values(), *self.trailing.values(), *self.superseded]

    def reserve(self, count: int) -> None:
        """Takes slots for tasks that were claimed and are about to be started."""
        self.claimed += count
        self.slots -= count

    def free_slot(self, run: Run) -> None:
        if run.slot:
            run.slot = False
            self.slots += 1

    def withhold(self, run: Run) -> None:
        """Takes the slot of a run, and all free ones, out of use."""
        if run.slot:
            run.slot = False
            self.withheld += 1
        if self.slots > 0:
            self.withheld += self.slots
            self.slots = 0

    def give_back(self, most: int) -> None:
        """Puts so many of them into use again, at most."""
        count = min(most, self.withheld)
        self.withheld -= count
        self.slots += count

    def of_attempt(self, task: Claimed) -> Run | None:
        """Returns the run of this very attempt: a later one of the same task has another token."""
        run = self.get(task.id)
        return run if run is not None and run.task.token == task.token else None

    def note_progress(self, task: Claimed, progress: str) -> None:
        """Keeps what an attempt says of its progress, for the next heartbeat."""
        run = self.of_attempt(task)
        if run is not None:
            run.progress = progress

    def drop(self, run: Run) -> None:
        """Removes a run that was settled or lost. A later attempt of the same task stays."""
        found = self.pop(run.task.id, None)
        if found is not None and found is not run:
            self[run.task.id] = found

    def keep_trailing(self, run: Run) -> None:
        """Moves a run whose task is completed aside; its handler keeps its slot until it ends."""
        run.state = RunState.TRAILING
        self.trailing[run.task.id] = run

    def drop_trailing(self, run: Run) -> None:
        if run.state is RunState.TRAILING:
            run.state = RunState.SETTLED
        if self.trailing.get(run.task.id) is run:
            del self.trailing[run.task.id]


class LoopSignal:
    """Tells the hot loop that something changed that it waits for (``wake``), or that there may be something to claim
    (``look``, which ``to_look`` remembers until it has claimed)."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.wake = self._event.set
        self.heard = self._event.clear
        self.to_look = True

    def look(self) -> None:
        self.to_look = True
        self.wake()

    async def wait(self, seconds: float) -> None:
        """Waits to be woken; when nobody did for so many seconds, that is a reason to look."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            self.to_look = True
        self.heard()


# So many misses are put down to chance; with each from then on the wait doubles. A find makes up for some: of five idle
# workers each misses four times for one find, and need not be patient yet.
EAGER_MISSES, MOST_MISSES, A_FIND = 3, 9, 4
FIRST_WAIT_S = 0.005
MOST_WAIT_S = FIRST_WAIT_S * 2 ** (MOST_MISSES - EAGER_MISSES)


class Hints:
    """Makes a worker look at once while hints are worth it. One that keeps finding nothing, because others of its fleet
    were there before it, waits for a random moment first and follows all hints until then with one look: otherwise each
    task would cost a claim by every idle worker, and a large fleet would keep the server busy with finding nothing."""

    def __init__(self, signal: LoopSignal) -> None:
        self._signal = signal
        self._misses = 0
        self._following = False
        self._planned: asyncio.TimerHandle | None = None

    def hear(self) -> None:
        """Takes a hint: the worker looks now or in a moment."""
        if self._planned is not None:
            return
        wait = self.wait()
        if not wait:
            self._follow()
        else:
            self._planned = asyncio.get_running_loop().call_later(wait, self._follow)

    def wait(self) -> float:
        """Returns the seconds for which to leave what is due to the rest of the fleet."""
        if self._misses < EAGER_MISSES:
            return 0.0
        longest = FIRST_WAIT_S * 2 ** (self._misses - EAGER_MISSES)
        return random.uniform(0, longest)  # noqa: S311 (so that a fleet is spread; no secret)

    def note_look(self, found: bool) -> None:
        """Learns whether a look found something; only those that followed a hint tell whether hints are worth it."""
        if found:
            self._misses = max(self._misses - A_FIND, 0)
        elif self._following:
            self._misses = min(self._misses + 1, MOST_MISSES)
        self._following = False

    def _follow(self) -> None:
        self._planned = None
        self._following = True
        self._signal.look()


SHORTEST_LOOK_INTERVAL_S = 0.02


class NextLook:
    """Holds when the lease keeper looks at its runs again; an earlier deadline moves it forward."""

    def __init__(self) -> None:
        self._at = 0.0
        self._changed = asyncio.Event()

    def watch(self, run: Run) -> None:
        """Makes sure that the next look is not after the deadline of a new run."""
        if run.deadline is not None and run.deadline < self._at:
            self._at = run.deadline
            self._changed.set()

    def began(self, run: Run) -> None:
        """Begins a run in its process: its time counts from now on."""
        run.begin()
        self.watch(run)

    def now(self) -> None:
        self._at = 0.0
        self._changed.set()

    async def wait(self, at: float) -> None:
        """Waits until this moment, or an earlier one that becomes known meanwhile."""
        self._at = at
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(at - time.monotonic(), SHORTEST_LOOK_INTERVAL_S)):
                await self._changed.wait()


@dataclass(slots=True, frozen=True)
class WorkerState:
    """How a worker is at this moment: whether it ends, what it runs, what it has counted, whether its store is gone;
    and whom to tell when that changes: the hot loop (``signal``; ``hints`` where the whole fleet is told) and the
    lease keeper (``next_look``)."""

    lifecycle: Lifecycle
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
    return WorkerState(Lifecycle(), runs, health, outage, signal, Hints(signal), NextLook(), Counters())
