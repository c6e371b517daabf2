"""A task that kills whoever runs it, among others that do nothing wrong."""

from __future__ import annotations

import time

from redrive.kernel.machine import MAX_CUT_OFFS
from storm.account import audit
from storm.processes import until
from storm.scenario import Scenario
from storm.verdict import Result, judge_books
from storm.world import World

DEATHS = 3
# Leases outlast the storm: what comes back does so because its worker was found dead.
SETTINGS = {"TASK_WORKER_LEASE_MS": "600000", "TASK_WORKER_DEAD_AFTER_MS": "2000"}
FAILED = "select error_reason, attempt_count from {} where kind = 'POISON'"


class Poison(Scenario):
    name = "poison"
    about = "one task that kills its workers among 1,000 good ones, each with a single attempt: it fails alone"
    workers = 0
    concurrency = 20

    def run(self) -> Result:
        result = Result(self.name, self.about, self.store)
        started = time.monotonic()
        with self.world() as world:
            self._fill(world, int(self.pace.pick(fast=200, quick=1000, full=1000)))
            self._serve(world)
            result.account, _ = audit(world)
            result.account.wrong.pop("failed")
            poisoned = result.account.samples.pop("failed", [])
            judge_books(result)
            self._judge_poison(world, result, poisoned)
            result.figures = {"worker_deaths": self._deaths(world)}
        result.seconds = time.monotonic() - started
        return result

    def _deaths(self, world: World) -> int:
        return world.fleet.started - 2

    def _fill(self, world: World, good: int) -> None:
        world.feed.tell("only GOOD")
        world.feed.burst(good // 2, 60)
        world.feed.tell("one POISON 0")
        world.feed.burst(good - good // 2, 60)

    def _serve(self, world: World) -> None:
        """Two workers, each started again by somebody when it has died."""
        for name in ("w1", "w2"):
            world.fleet.start(name, env=self._settings)
        until(lambda: self._keep(world) and world.waiting() == 0, "everything has ended", self.pace.limit)

    def _keep(self, world: World) -> bool:
        for name, worker in list(world.fleet.workers.items()):
            if not worker.alive:
                world.fleet.start(name, env=self._settings)
        return True

    @property
    def _settings(self) -> dict[str, str]:
        return {**SETTINGS, "TASK_MAX_WORKER_DEATHS": str(DEATHS)}

    def _judge_poison(self, world: World, result: Result, failed: list[str]) -> None:
        found = world.sql(FAILED.format(world.table("v_failures")))
        result.judge("poison", found == [("worker_lost", DEATHS)], str(found))
        result.judge("it alone failed", len(failed) == 1, "; ".join(failed))


class SqlitePoison(Poison):
    name = "sqlite-poison"
    store = "sqlite"


class PoisonedFleet(Poison):
    """Nobody can see that a process is gone, and whoever is left is the smaller part: each time it may have been the
    network, so that only the bound of such times ends it."""

    name = "poison-hosts"
    about = "tasks that kill both containers of a fleet, which come back when they were declared dead: it ends"
    full_only = True
    concurrency = 2
    patience = 240.0
    most_deaths = 2 * (MAX_CUT_OFFS + DEATHS)

    def _fill(self, world: World, good: int) -> None:
        for _ in range(2):
            world.feed.tell("one POISON 0")
            world.feed.tell("one GOOD 2000")
        world.feed.tell("only GOOD")
        world.feed.burst(good // 10, 60)

    def _serve(self, world: World) -> None:
        self._start(world, "judge", queue="quiet")
        world.wait_beating(1)
        time.sleep(float(self._settings["TASK_WORKER_DEAD_AFTER_MS"]) / 1000)
        ends = self.pace.limit + self.patience / 2
        until(lambda: self._keep(world) and world.waiting() == 0, "everything has ended", ends)

    def _keep(self, world: World) -> bool:
        names = ("w1", "w2")
        if not any(name in world.fleet.workers and world.fleet.workers[name].alive for name in names):
            missed = f"select count(*) from {world.table('worker')} where dead_at is null"
            if world.sql(missed) == [(1,)]:
                for name in names:
                    self._start(world, name)
        return True

    def _deaths(self, world: World) -> int:
        return world.fleet.lines(lambda line: line.get("event") == "worker.declared_dead")

    def _start(self, world: World, name: str, queue: str = "default") -> None:
        host = f"{name}-{world.fleet.started}"
        world.fleet.start(name, queue=queue, env={**self._settings, "STORM_HOST": host})

    def _judge_poison(self, world: World, result: Result, failed: list[str]) -> None:
        found = world.sql(f"select error_reason from {world.table('v_failures')} where kind = 'POISON'")
        result.judge("poison", found == [("worker_lost",)] * 2, str(found))
        result.judge("they alone failed", len(failed) == 2, "; ".join(failed))
        deaths = self._deaths(world)
        result.judge("it ended soon", deaths <= self.most_deaths, f"{deaths} deaths of {self.most_deaths}")


class SqlitePoisonedFleet(PoisonedFleet):
    name = "sqlite-poison-hosts"
    store = "sqlite"
