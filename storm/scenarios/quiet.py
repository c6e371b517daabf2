"""What workers cost when there is nothing to do for them."""

from __future__ import annotations

import time
from typing import Any

from storm.rates import Phases
from storm.scenario import Scenario
from storm.verdict import Result
from storm.world import World

STATEMENTS = 2.0
CONNECTIONS = 3  # hints, beat, work
CONNECTED = "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'redrive'"
CORE_SHARE = 0.01


class Counted(Scenario):
    """The server writes down every statement with its parameters: nothing is estimated."""

    def log_statements(self, world: World) -> None:
        """Holds for connections that are opened from now on."""
        world.sql(f"alter database {_database(world)} set log_statement = 'all'")

    def mark(self) -> int:
        return self.stage.server.log.stat().st_size

    def logged(self, world: World, since: int) -> list[str]:
        """What redrive's connections to this database had logged since the mark; ours have no application name."""
        with self.stage.server.log.open("rb") as log:
            log.seek(since)
            text = log.read().decode(errors="replace")
        return [line for line in text.splitlines() if line.startswith(f"{_database(world)}:redrive:")]


def _database(world: World) -> str:
    return world.direct.rsplit("/", 1)[1]


class Idle(Counted):
    name = "idle"
    about = "one worker without work, as it comes: statements per second and CPU"
    workers = 0

    def run(self) -> Result:
        result = Result(self.name, self.about, self.store)
        started = time.monotonic()
        seconds = self.pace.pick(fast=3, quick=6, full=60)
        with self.world() as world:
            self.log_statements(world)
            worker = world.fleet.start("idle", as_it_comes=True)
            world.wait_beating(1)
            time.sleep(1.5)
            mark, cpu = self.mark(), worker.cpu_seconds()
            time.sleep(seconds)
            statements = [line for line in self.logged(world, mark) if ":LOG:  " in line]
            share = (worker.cpu_seconds() - cpu) / seconds
        per_second = len(statements) / seconds
        result.figures = {"statements_per_s": round(per_second, 2), "cpu_share": round(share, 5)}
        result.judge("beats", per_second > 0, "its statements are in the server's log")
        if self.pace.judges_times:
            result.judge("statements", per_second <= STATEMENTS, f"{per_second:.2f}/s")
            result.judge("CPU", share < CORE_SHARE, f"{share:.2%} of a core")
        result.seconds = time.monotonic() - started
        return result


class IdleFleet(Counted):
    name = "idle-fleet"
    about = "many idle workers on another queue beside a busy one"
    workers = 1
    holds_rate = True

    def _go_through(self, world: World) -> Phases:
        """Their start would take the whole machine: it is neither baseline nor stress."""
        count = int(self.pace.pick(fast=3, quick=6, full=50))
        self._warm_up(world)
        baseline = time.time()
        time.sleep(self.pace.baseline)
        end_of_baseline = time.time()
        self.log_statements(world)
        [(before,)] = world.sql(CONNECTED)
        for number in range(count):
            world.fleet.start(f"idle{number}", queue="elsewhere", as_it_comes=True)
        world.wait_beating(count + 1, 120)
        time.sleep(2)
        began = time.time()
        world.figures |= self._measured(world, count)
        [(after,)] = world.sql(CONNECTED)
        world.figures["idle_connections"] = round((after - before) / count, 2)
        ended = time.time()
        calm, over = self._recover(world)
        return Phases(baseline, began, ended, calm, over, end_of_baseline)

    def _measured(self, world: World, count: int) -> dict[str, Any]:
        began, mark, cpu = time.monotonic(), self.mark(), self._cpu(world)
        time.sleep(self.seconds)
        seconds = time.monotonic() - began
        used = [after - cpu[name] for name, after in self._cpu(world).items()]
        # A worker's statements carry its name, among their parameters.
        statements = sum(1 for line in self.logged(world, mark) if ":DETAIL:  " in line and "'idle" in line)
        return {
            "idle_workers": count,
            "idle_cpu_mean": round(sum(used) / count / seconds, 5),
            "idle_cpu_max": round(max(used) / seconds, 5),
            "idle_statements_per_s": round(statements / count / seconds, 2),
        }

    def _cpu(self, world: World) -> dict[str, float]:
        idle = [worker for worker in world.fleet.alive if worker.name.startswith("idle")]
        return {worker.name: worker.cpu_seconds() for worker in idle}

    def judge(self, world: World, result: Result) -> None:
        if not self.pace.judges_times:
            return
        share, statements = world.figures["idle_cpu_mean"], world.figures["idle_statements_per_s"]
        result.judge("idle CPU", share < CORE_SHARE, f"{share:.2%} of a core")
        result.judge("idle statements", statements <= STATEMENTS, f"{statements:.1f}/s each")
        connections = world.figures["idle_connections"]
        # In a short run the pools have not closed yet what their start needed.
        if self.pace.name == "full":
            result.judge("idle connections", round(connections) <= CONNECTIONS, f"{connections:.2f} each")
