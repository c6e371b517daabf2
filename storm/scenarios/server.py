"""What happens to a database server."""

from __future__ import annotations

import contextlib
import time

import psycopg

from storm.scenario import Scenario
from storm.verdict import Result
from storm.world import World

TERMINATE = """
select count(pg_terminate_backend(pid)) from (
  select pid from pg_stat_activity where datname = current_database() and application_name = 'redrive'
  order by random() limit 4) chosen
"""


class Stopped(Scenario):
    name = "postgres-restarts"
    about = "PostgreSQL stopped and started, then crashed and started"

    def inject(self, world: World, seconds: float) -> None:
        for mode in ("fast", "immediate"):
            self.stage.server.stop(mode)
            time.sleep(seconds / 4)
            self.stage.server.start()
            time.sleep(seconds / 4)


class Gone(Scenario):
    name = "postgres-gone"
    about = "PostgreSQL gone for a minute: a worker waits quietly and goes on by itself"
    outage = True

    @property
    def seconds(self) -> float:
        return self.pace.pick(fast=4, quick=15, full=60)

    def inject(self, world: World, seconds: float) -> None:
        self.stage.server.stop("immediate")
        time.sleep(seconds)
        self.stage.server.start()

    def judge(self, world: World, result: Result) -> None:
        result.judge("workers live", len(world.fleet.alive) == self.workers)


class BackendsTerminated(Scenario):
    name = "backends-terminated"
    about = "up to four of redrive's backends terminated, five times a second"

    def inject(self, world: World, seconds: float) -> None:
        ends = time.monotonic() + seconds
        ended = 0
        with psycopg.connect(world.direct, autocommit=True) as admin:
            while time.monotonic() < ends:
                [(count,)] = admin.execute(TERMINATE).fetchall()
                ended += count
                time.sleep(0.2)
        world.figures["terminated"] = ended


class IdleConnections(Scenario):
    name = "idle-connections"
    about = "300 idle connections held by others"
    holds_rate = True

    def inject(self, world: World, seconds: float) -> None:
        with contextlib.ExitStack() as stack:
            for _ in range(int(self.pace.pick(fast=50, quick=300, full=300))):
                connection = stack.enter_context(psycopg.connect(world.direct, autocommit=True))
                connection.execute("select 1")
            time.sleep(seconds)
