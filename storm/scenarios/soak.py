"""Ten minutes at full rate: does anything grow?"""

from __future__ import annotations

import time

from storm.scenario import Scenario
from storm.verdict import Result
from storm.world import World

FLAT = 30.0  # MB per hour; five in the ten minutes, which is what allocators do
RAMP = 30.0
BACKLOG = 1000
LONG_ENOUGH = 300.0  # a shorter one sees only how memory settles


class Soak(Scenario):
    name = "soak"
    about = "full rate for ten minutes; memory of the workers"
    full_only = True
    concurrency = 200
    patience = 120.0

    @property
    def seconds(self) -> float:
        return self.pace.pick(fast=5, quick=30, full=600)

    def inject(self, world: World, seconds: float) -> None:
        """As much as the workers can do: more while they keep up, less while they do not."""
        rate = self._ramp_up(world)
        samples: dict[str, list[tuple[float, float]]] = {worker.name: [] for worker in world.fleet.alive}
        began = time.monotonic()
        while (now := time.monotonic() - began) < seconds:
            for worker in world.fleet.alive:
                samples[worker.name].append((now, worker.rss() / 1e6))
            rate = self._adjusted(world, rate)
        world.feed.offer(self.rate)
        world.figures |= {
            "mb_per_hour": {name: round(slope(points) * 3600, 1) for name, points in samples.items()},
            "mb": {
                name: [round(mb, 1) for _, mb in points[:: len(points) // 12 or 1]] for name, points in samples.items()
            },
            "last_rate": round(rate),
        }

    def _ramp_up(self, world: World) -> float:
        """Memory grows with the rate, so the rate has to be there before anything is measured."""
        rate, give_up = self.rate, time.monotonic() + RAMP
        while time.monotonic() < give_up:
            before, rate = rate, self._adjusted(world, rate, 0.5)
            if rate < before:
                break
        return rate

    def _adjusted(self, world: World, rate: float, pause: float = 2.0) -> float:
        """What waits for its enqueue counts as well: the producer may be the one that cannot do more."""
        rate *= 0.85 if world.waiting() + world.feed.unanswered() > min(rate / 2, BACKLOG) else 1.15
        world.feed.offer(rate)
        time.sleep(pause)
        return rate

    def judge(self, world: World, result: Result) -> None:
        slopes = world.figures["mb_per_hour"]
        if self.seconds >= LONG_ENOUGH:
            result.judge("memory is flat", max(slopes.values()) < FLAT, f"MB/h: {slopes}")


def slope(points: list[tuple[float, float]]) -> float:
    """Least squares over the last four fifths: the first is warming up."""
    points = points[len(points) // 5 :]
    n = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
