"""Nothing is broken; it is only a lot."""

from __future__ import annotations

import threading
import time

import psycopg

from storm.scenario import Scenario
from storm.stage import Stage
from storm.verdict import Result
from storm.world import World

TABLES = ("task", "history", "attempt", "total", "total_delta", "idempotency_key")


class HorizonPinned(Scenario):
    name = "horizon-pinned"
    about = "a transaction elsewhere keeps vacuum from removing anything"
    holds_rate = True

    @property
    def seconds(self) -> float:
        return self.pace.pick(fast=1.5, quick=5, full=120)

    def inject(self, world: World, seconds: float) -> None:
        with psycopg.connect(world.direct) as pin:
            pin.execute("set transaction isolation level repeatable read")
            pin.execute("select count(*) from redrive.task")
            time.sleep(seconds)
            pin.rollback()


class Readers(Scenario):
    name = "repeatable-readers"
    about = "four REPEATABLE READ readers scan the tables again and again"
    holds_rate = True

    def inject(self, world: World, seconds: float) -> None:
        ends = time.monotonic() + seconds
        scans = [0]
        readers = [threading.Thread(target=_scan, args=(world.direct, ends, scans)) for _ in range(4)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        world.figures["scans"] = scans[0]


def _scan(url: str, ends: float, scans: list[int]) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("set transaction isolation level repeatable read")
        while time.monotonic() < ends:
            for table in TABLES:
                connection.execute(f"select count(*), max(length(x::text)) from redrive.{table} x".encode())
            scans[0] += 1
            # A share of the machine: with two cores, four readers without a pause would take all of it.
            time.sleep(0.05)
        connection.rollback()


class Overload(Scenario):
    """Few slots and handlers of known length make the capacity a property of the scenario, not of the machine."""

    name = "overload"
    about = "half again as much as the workers can do, then catching up"
    concurrency = 5
    patience = 120.0

    @property
    def rate(self) -> float:
        return 150.0

    def inject(self, world: World, seconds: float) -> None:
        world.feed.tell("only PLAIN")
        world.feed.tell("ms 20")
        world.feed.offer(600)
        time.sleep(0.5)
        before, at = world.completed(), time.monotonic()
        time.sleep(1.5)
        capacity = (world.completed() - before) / (time.monotonic() - at)
        world.feed.offer(1.5 * capacity)
        time.sleep(seconds)
        world.figures |= {"capacity": round(capacity), "backlog": world.waiting()}
        world.feed.offer(self.rate)

    def judge(self, world: World, result: Result) -> None:
        backlog = world.figures["backlog"]
        if self.pace.judges_times:
            result.judge("it was an overload", backlog > self.usual_backlog, f"a backlog of {backlog}")


class Burst(Scenario):
    name = "burst"
    about = "200,000 tasks at once (20,000 in the quick set), on top of the load"
    concurrency = 200

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.patience = self.pace.pick(fast=40, quick=60, full=600)

    def inject(self, world: World, seconds: float) -> None:
        count = int(self.pace.pick(fast=2000, quick=20_000, full=200_000))
        took = world.feed.burst(count, 300)
        world.figures |= {"burst": count, "enqueue_per_s": round(count / took)}
