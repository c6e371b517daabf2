"""What every storm has in common: baseline, injection, recovery, drain, audit, verdicts."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from storm.account import audit
from storm.pace import Pace
from storm.rates import Phases, measure
from storm.stage import Stage, migrate
from storm.verdict import Result, judge_books, judge_calm, judge_rates
from storm.watch import Watch
from storm.world import World, opened

RECOVERY_TRIES = 10


class Scenario:
    """One storm. Most only say how to ``inject`` it; some take the whole ``run`` into their own hands."""

    name: ClassVar[str]
    about: ClassVar[str]
    store: ClassVar[str] = "postgres"
    workers: ClassVar[int] = 2
    concurrency: ClassVar[int] = 40
    full_only: ClassVar[bool] = False
    # Whether the rate has to hold up during the storm as well (the horizon, readers: nothing is broken then).
    holds_rate: ClassVar[bool] = False
    # Whether the store is out of reach during the storm: nobody may be busy then.
    outage: ClassVar[bool] = False
    # How long the backlog may take to be back to normal, on top of the lease of whoever was killed.
    patience: float = 20.0

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.pace: Pace = stage.pace
        self.random = random.Random(f"{stage.seed}-{self.name}")

    # -- what a scenario says --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def world(self) -> Iterator[World]:
        """Where it happens; the default is a fresh database or file and ``workers`` workers."""
        directory = self.stage.folder(self.name)
        with contextlib.ExitStack() as stack:
            direct = self.place(stack, directory)
            url = self.route(stack, direct)
            world = World(direct, directory, url=url, concurrency=self.concurrency, seed=self.stage.seed)
            yield stack.enter_context(opened(world, self.workers))

    def place(self, stack: contextlib.ExitStack, directory: Path) -> str:
        """The store's URL; what it needs is left to the stack."""
        if self.store == "postgres":
            return stack.enter_context(self.stage.database())
        url = f"sqlite:///{directory}/tasks.db"
        migrate(url)
        return url

    def route(self, stack: contextlib.ExitStack, direct: str) -> str:
        """The URL that workers and producer use."""
        return direct

    def inject(self, world: World, seconds: float) -> None:
        """Break something for so long, and mend it."""
        raise NotImplementedError

    def judge(self, world: World, result: Result) -> None:
        """Further verdicts of its own."""

    @property
    def rate(self) -> float:
        return self.pace.rate

    @property
    def seconds(self) -> float:
        return self.pace.storm

    # -- how it goes -----------------------------------------------------------------------------------------------

    def run(self) -> Result:
        result = Result(self.name, self.about, self.store)
        started = time.monotonic()
        with self.world() as world:
            phases = self._go_through(world)
            drained = world.drain(self.patience + world.recoverable + 10)
            if not drained:
                time.sleep(world.recoverable)  # whatever still runs then is stuck
            result.account, rows = audit(world)
            result.rates = measure(rows, world.feed.offers(), phases, self.usual_backlog)
            result.judge("drained", drained, "" if drained else "not everything offered came to its end")
            judge_books(result)
            if self.pace.judges_times:
                judge_rates(result, self.holds_rate)
                if self.outage:
                    judge_calm(result, world.figures)
            self.judge(world, result)
            result.notes, result.figures = world.notes, world.figures
        result.seconds = time.monotonic() - started
        return result

    @property
    def usual_backlog(self) -> int:
        """Half a second of load counts as nothing waiting."""
        return max(int(self.rate / 2), 30)

    def _go_through(self, world: World) -> Phases:
        self._warm_up(world)
        baseline = time.time()
        time.sleep(self.pace.baseline)
        began = time.time()
        with Watch(world) as watch:
            self.inject(world, self.seconds)
        ended = time.time()
        world.figures |= watch.figures
        world.wait_backlog(self.usual_backlog, self.patience + world.recoverable)
        return Phases(baseline, began, ended, *self._recover(world))

    def _recover(self, world: World) -> tuple[float, float]:
        """The window after the storm. A hiccup of the machine may spoil a short one, so there are some tries."""
        for _ in range(RECOVERY_TRIES):
            calm, before = time.time(), world.completed()
            time.sleep(self.pace.recovery)
            if world.completed() - before >= 0.97 * self.rate * self.pace.recovery:
                break
        return calm, time.time()

    def _warm_up(self, world: World) -> None:
        """The first second's backlog is worked off before anything is measured."""
        world.feed.offer(self.rate)
        time.sleep(self.pace.warm)
        world.wait_backlog(self.usual_backlog // 2, 10)
        time.sleep(self.pace.warm)
