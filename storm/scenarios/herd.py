"""A fleet that finds its server again: soon, and not all at one moment."""

from __future__ import annotations

import os
import time
from datetime import datetime

import psutil

from storm.processes import until
from storm.scenario import Scenario
from storm.verdict import Result
from storm.world import World

# How soon most of the fleet is to be back, where there are cores for it: a worker and its new sessions, which compile
# and plan anew, need a quarter of a second of one. Fifty on two cores, or twelve beside others who use both, are judged
# by what they do, not by how soon.
BACK_WITHIN_S, ALL_BACK_WITHIN_S = 1.0, 3.0
WORKERS_PER_CORE = 8
SLICE_S = 0.1
# What one slice may see of all connections that come back: of a second, a tenth each would be even.
MOST_AT_ONCE = 0.4
ARRIVALS = """
select extract(epoch from backend_start - pg_postmaster_start_time())::float8 from pg_stat_activity
where datname = current_database() and application_name = 'redrive' order by 1
"""


class Herd(Scenario):
    name = "herd"
    about = "PostgreSQL gone for a while before a large fleet: all are back within moments, spread over them"
    concurrency = 2
    outage = True

    @property
    def count(self) -> int:
        return int(self.pace.pick(fast=4, quick=12, full=50))

    @property
    def rate(self) -> float:
        return 50.0  # what so many processes do on a few cores besides being there

    @property
    def seconds(self) -> float:
        return self.pace.pick(fast=2, quick=5, full=20)

    def inject(self, world: World, seconds: float) -> None:
        self.stage.server.stop("immediate")
        others = psutil.cpu_percent(interval=seconds) / 100  # the fleet has nothing to do meanwhile
        self.stage.server.start()
        [(began,)] = world.sql("select pg_postmaster_start_time()")
        until(lambda: len(self._returns(world)) >= self.count, "the whole fleet is back", 60)
        arrivals = [float(at) for (at,) in world.sql(ARRIVALS)]
        back = sorted(at - began.timestamp() for at in self._returns(world))
        world.figures |= {
            "fleet": self.count,
            "cores_left": round((os.cpu_count() or 1) * (1 - others), 1),
            "back_median_s": round(back[len(back) // 2], 2),
            "back_slowest_s": round(back[-1], 2),
            "connections": len(arrivals),
            "most_at_once": _most_within(arrivals, SLICE_S),
        }

    def _warm_up(self, world: World) -> None:
        """With the whole fleet: to start it takes a busy machine a while, and those that are there have work to do."""
        self._gather(world)
        super()._warm_up(world)

    def _gather(self, world: World) -> None:
        for number in range(self.workers + 1, self.count + 1):
            world.fleet.start(f"w{number}")
        world.wait_beating(self.count, 120)
        time.sleep(2)

    def _returns(self, world: World) -> list[float]:
        """When each worker found the store again."""
        said = (line for line in world.fleet.events() if line["event"] == "store.recovered")
        return [datetime.fromisoformat(line["at"]).timestamp() for line in said]

    def judge(self, world: World, result: Result) -> None:
        result.judge("workers live", len(world.fleet.alive) == self.count)
        if not self.pace.judges_times:
            return
        figures = world.figures
        most, total = figures["most_at_once"], figures["connections"]
        detail = f"{most} of {total} connections within {SLICE_S:g} s"
        result.judge("no herd", most <= MOST_AT_ONCE * total, detail)
        if self.count <= WORKERS_PER_CORE * figures["cores_left"]:
            median, slowest = figures["back_median_s"], figures["back_slowest_s"]
            result.judge("half are back", median <= BACK_WITHIN_S, f"after {median:.2f} s")
            result.judge("all are back", slowest <= ALL_BACK_WITHIN_S, f"after {slowest:.2f} s")


def _most_within(moments: list[float], seconds: float) -> int:
    """Returns the largest number of these moments, in order, that lie within so many seconds."""
    most = first = 0
    for last, moment in enumerate(moments):
        while moment - moments[first] > seconds:
            first += 1
        most = max(most, last - first + 1)
    return most
