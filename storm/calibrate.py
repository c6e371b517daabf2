"""How much two workers can do on this machine, now: the load of the full set is a share of it."""

from __future__ import annotations

from storm.rows import read_rows
from storm.scenario import Scenario

TASKS = 8000
# Enqueueing takes its part of the machine as well, and a storm leaves one worker to do the work of two.
SHARE = 0.35


class Calibration(Scenario):
    name = "calibration"
    about = "what two workers can do"

    def capacity(self) -> float:
        """Tasks per second between the first and the last tenth of a backlog."""
        with self.world() as world:
            world.feed.burst(TASKS, 60)
            world.wait_backlog(0, 120)
            finished = sorted(row.finished for row in read_rows(world) if row.finished is not None)
        tenth = len(finished) // 10
        return (len(finished) - 2 * tenth) / (finished[-tenth] - finished[tenth])

    def steady(self) -> float:
        return max(100.0, min(SHARE * self.capacity(), 2000.0))
