"""Workers that die without a word."""

from __future__ import annotations

import time

from storm.scenario import Scenario
from storm.world import World


class OneKilled(Scenario):
    name = "kill-one"
    about = "one of two workers killed with SIGKILL; the other goes on alone"

    def inject(self, world: World, seconds: float) -> None:
        time.sleep(self.random.random())
        world.fleet.kill("w1")
        time.sleep(seconds)


class KilledAgainAndAgain(Scenario):
    name = "kill-repeatedly"
    about = "a worker killed every few moments and started again"

    def inject(self, world: World, seconds: float) -> None:
        ends = time.monotonic() + seconds
        kills = 0
        while time.monotonic() < ends:
            world.fleet.kill("w1")
            kills += 1
            world.fleet.start("w1")
            # Long enough to begin work (a start takes about a second), never the same.
            time.sleep(self.random.uniform(1.2, 2.6))
        world.figures["kills"] = kills


class EverythingKilled(Scenario):
    """The power of the whole machine fails: nobody says goodbye, and whoever starts next repairs what it finds."""

    name = "kill-everything"
    about = "server, workers and producer killed with SIGKILL at a random moment, then started again"

    def inject(self, world: World, seconds: float) -> None:
        for _ in range(int(self.pace.pick(fast=1, quick=1, full=6))):
            time.sleep(self.random.uniform(0.2, 1.0))
            victims = [*world.fleet.workers, "producer", "server"]
            self.random.shuffle(victims)
            for victim in victims:
                self._kill(world, victim)
            self.stage.server.start()
            world.begin(list(world.fleet.workers))
            world.feed.offer(self.rate)

    def _kill(self, world: World, victim: str) -> None:
        match victim:
            case "server":
                self.stage.server.kill()
            case "producer":
                world.feed.kill()
            case _:
                world.fleet.kill(victim)
