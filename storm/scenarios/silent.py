"""Workers that are not heard of, or only seem not to be. Leases outlast the storm: beats decide."""

from __future__ import annotations

import signal
import time

from storm.scenario import Scenario
from storm.verdict import Result
from storm.world import World

LONG_LEASES = {"TASK_WORKER_LEASE_MS": "600000", "TASK_WORKER_DEAD_AFTER_MS": "2000"}


class OnBeats(Scenario):
    full_only = True  # tests/faults/test_dead_worker.py does the same in seconds

    @property
    def seconds(self) -> float:
        return self.pace.pick(fast=4, quick=6, full=60)

    def begin(self, world: World) -> None:
        """Starts the workers anew, with leases that outlast the storm."""
        for name in list(world.fleet.workers):
            world.fleet.stop(name)
            world.fleet.start(name, env=LONG_LEASES)
        world.wait_beating(world.fleet.started)
        time.sleep(2.5)  # until each of them has beaten for long enough to judge

    def said(self, world: World, event: str) -> int:
        return world.fleet.lines(lambda line: line.get("event") == event)


class Paused(OnBeats):
    name = "worker-paused"
    about = "one of two workers stopped with SIGSTOP; the other takes its tasks, and it hears of that when it goes on"

    def inject(self, world: World, seconds: float) -> None:
        self.begin(world)
        world.fleet.workers["w1"].send(signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            world.fleet.workers["w1"].send(signal.SIGCONT)
        time.sleep(1.5)

    def judge(self, world: World, result: Result) -> None:
        declared, heard = self.said(world, "worker.declared_dead"), self.said(world, "worker.cut_off")
        result.judge("declared dead", declared == 1, f"{declared} times")
        result.judge("heard of it", heard == 1, f"{heard} times")


class LoopBlocked(OnBeats):
    name = "loop-blocked"
    about = "a handler holds its worker's event loop; the worker beats on and keeps its leases"

    def inject(self, world: World, seconds: float) -> None:
        self.begin(world)
        world.feed.tell(f"one BLOCKING {seconds * 1000:.0f}")
        time.sleep(seconds + 1.5)

    def judge(self, world: World, result: Result) -> None:
        declared, lost = self.said(world, "worker.declared_dead"), self.said(world, "task.lease_lost")
        blocked = self.said(world, "worker.loop_blocked")
        result.judge("kept its leases", (declared, lost) == (0, 0), f"declared dead {declared} times, {lost} lost")
        result.judge("was reported", blocked > 0, f"{blocked} times")
