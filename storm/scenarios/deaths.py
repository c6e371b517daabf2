"""Many workers that die at once, or are cut off, at the settings that redrive comes with: leases last ten minutes, so
that what runs again before does so because somebody was declared dead.

Each storm also with workers of different hosts: on one host the others see that a process is gone, and nobody has to
wait for its silence.
"""

from __future__ import annotations

import contextlib
import signal
import time
from typing import ClassVar

from storm.account import audit
from storm.processes import until
from storm.scenario import Scenario
from storm.verdict import Result, judge_books
from storm.wire import Wire, through_wire
from storm.world import World

PROMISED = 75.0  # seconds from the last death, or from the newcomer's start, until everything has run again
STEADY = 17.0  # until whoever has just been started may judge
START = 240.0
HELD = 4  # tasks of each of the victims
LIMITED = 12  # tasks of a kind that may have two at once, both of them on victims


class Deaths(Scenario):
    """Victims are started first and get everything; then they are killed, one after the other."""

    workers = 0
    concurrency = 8
    full_only = True
    victims: ClassVar[int]
    survivors: ClassVar[int] = 0
    newcomers: ClassVar[int] = 0
    hosts: ClassVar[str] = "one"  # or "many": each worker has its own; "two": the victims have one, the others another
    settings: ClassVar[dict[str, str]] = {}
    patience = PROMISED + START

    @property
    def seconds(self) -> float:
        return 2 * START

    def run(self) -> Result:
        result = Result(self.name, self.about, self.store)
        started = time.monotonic()
        with self.world() as world:
            names = [self.launch(world, f"v{n}", "a") for n in range(self.victims)]
            self.fill(world)
            for n in range(self.survivors):
                self.launch(world, f"s{n}", "b")
            world.wait_beating(self.victims + self.survivors, START)
            time.sleep(STEADY if self.survivors else 0)
            self.random.shuffle(names)
            since = self.kill(world, names)
            drained = world.wait_backlog(0, PROMISED + 30)
            result.account, rows = audit(world)
            ended = [row.finished for row in rows if row.finished is not None]
            result.judge("drained", drained)
            judge_books(result)
            took = max(ended, default=since) - since
            if self.pace.judges_times:
                result.judge("ran again in time", took <= self.limit, f"{took:.1f} s of {self.limit:g}")
            declared = [event for event in world.fleet.events() if event["event"] == "worker.declared_dead"]
            result.figures = {
                "ran_again_after_s": round(took, 1),
                "silent": len(declared),
                "of_most": sum(1 for event in declared if event["cut_off"]),
                "gone": world.fleet.lines(lambda line: line.get("event") == "worker.buried"),
            }
        result.seconds = time.monotonic() - started
        return result

    @property
    def limit(self) -> float:
        if self.hosts == "one":
            return 20.0
        return 30.0 if self.victims <= self.survivors else PROMISED

    def launch(self, world: World, name: str, place: str) -> str:
        host = {"one": "host", "many": name, "two": place}[self.hosts]
        world.fleet.start(name, env={"STORM_HOST": host, **self.settings}, as_it_comes=True)
        return name

    def fill(self, world: World) -> None:
        world.feed.tell("only LIMITED")
        world.feed.burst(LIMITED, START)
        world.feed.tell("only GATED")
        world.feed.burst(HELD * self.victims, START)
        self.wait_running(world, HELD * self.victims + 2)

    def wait_running(self, world: World, count: int) -> None:
        running = f"select count(*) from {world.table('task')} where state = 'running'"
        until(lambda: world.sql(running) == [(count,)], f"{count} tasks run", START, 0.2)

    def kill(self, world: World, names: list[str]) -> float:
        """Returns when the last one died, or when the newcomer became a worker: a busy machine takes its time to start
        a process."""
        for name in names:
            time.sleep(self.random.random())
            world.fleet.kill(name)
        since = time.time()
        (world.directory / "open").touch()
        for n in range(self.newcomers):
            time.sleep(self.random.random())
            name = self.launch(world, f"n{n}", "b")
            world.fleet.workers = {name: world.fleet.workers[name]}
            world.wait_beating(self.victims + 1 + n, START)
            at = "extract(epoch from max(started_at))::float8" if world.postgres else "max(started_at) / 1e6"
            since = float(world.sql(f"select {at} from {world.table('worker')}")[0][0])
        return since


class CutOff(Deaths):
    """Nine of ten lose their way to the store, or are stopped where there is none that could be cut, and come back."""

    victims = 9
    survivors = 1
    away: ClassVar[float]
    wire: Wire | None = None

    def run(self) -> Result:
        result = Result(self.name, self.about, self.store)
        started = time.monotonic()
        with self.world() as world, contextlib.ExitStack() as stack:
            if self.store == "postgres":
                self.wire, url = stack.enter_context(through_wire(world.direct))
                self.settings = {"REDRIVE_URL": url}  # type: ignore[misc]
            names = [self.launch(world, f"v{n}", "a") for n in range(self.victims)]
            world.feed.tell("only GATED_LEDGER")
            world.feed.burst(HELD * self.victims, START)
            self.fill(world)
            self.settings = {}  # type: ignore[misc]
            self.launch(world, "s0", "b")
            world.wait_beating(self.victims + 1, START)
            time.sleep(STEADY)
            self.cut(world, names)
            drained = world.wait_backlog(0, PROMISED)
            result.account, _ = audit(world)
            result.judge("drained", drained)
            judge_books(result)
            declared = [event for event in world.fleet.events() if event["event"] == "worker.declared_dead"]
            lost = world.fleet.lines(lambda line: line.get("event") == "task.lease_lost")
            if self.away <= 50:
                result.judge("nobody was judged", not declared and not lost, f"{len(declared)}, {lost} leases lost")
            else:
                known = {event["dead"] for event in declared if event["cut_off"]}
                result.judge("all were judged", len(known) == self.victims == len(declared), f"{len(declared)}")
            result.figures = {"silent": len(declared), "leases_lost": lost}
        result.seconds = time.monotonic() - started
        return result

    def cut(self, world: World, names: list[str]) -> None:
        if self.wire is not None:
            self.wire.refuse()
            self.wire.cut()
        else:
            for name in names:
                world.fleet.workers[name].send(signal.SIGSTOP)
        # A little before the end: those who are away have something to say when they come back.
        time.sleep(self.away - 2 if self.away > 50 else self.away)
        if self.away > 50:
            (world.directory / "open").touch()
            time.sleep(2)
        if self.wire is not None:
            self.wire.restore()
        for name in names:
            world.fleet.workers[name].send(signal.SIGCONT)
        time.sleep(15)  # nobody is taken for dead who comes back late
        (world.directory / "open").touch()

    def fill(self, world: World) -> None:
        world.feed.tell("only GATED")
        world.feed.burst(HELD * self.victims, START)
        self.wait_running(world, 2 * HELD * self.victims)


class MostDead(Deaths):
    name = "dead-most"
    about = "3 of 4 workers of different hosts killed, with a quarter of the patience that redrive comes with"
    full_only = False
    victims, survivors, hosts = 3, 1, "many"
    settings: ClassVar[dict[str, str]] = {"TASK_WORKER_DEAD_AFTER_MS": "4000"}


_WORDS = {"one": "one host", "many": "different hosts", "two": "two hosts"}


def _deaths() -> list[type[Scenario]]:
    made: list[type[Scenario]] = []
    for prefix, store in (("", "postgres"), ("sqlite-", "sqlite")):
        for hosts, suffix in (("one", ""), ("many", "-hosts")):
            for victims, survivors, newcomers in ((1, 1, 0), (3, 1, 0), (9, 1, 0), (3, 0, 1)):
                name = "all" if newcomers else f"{victims}-of-{victims + survivors}"
                about = "all workers" if newcomers else f"{victims} of {victims + survivors} workers"
                about += f" of {_WORDS[hosts]} killed{', then a new one started' if newcomers else ''}"
                fields = {"victims": victims, "survivors": survivors, "newcomers": newcomers, "hosts": hosts}
                quick = (name, hosts, store) == ("3-of-4", "one", "postgres")
                named = {"name": f"{prefix}dead-{name}{suffix}", "about": about, "store": store}
                made.append(type("Dead", (Deaths,), {**named, **fields, "full_only": not quick}))
            for away in (50.0, 120.0):
                how = "cut off" if store == "postgres" else "stopped"
                about = f"9 of 10 workers of {_WORDS[hosts]} {how} for {away:g} s"
                named = {"name": f"{prefix}away-{away:g}{suffix}", "about": about, "store": store}
                made.append(type("Away", (CutOff,), {**named, "hosts": hosts, "away": away}))
        host = {"name": f"{prefix}dead-host", "about": "a host with 3 of 4 workers lost", "store": store}
        made.append(type("Host", (Deaths,), {**host, "victims": 3, "survivors": 1, "hosts": "two"}))
    return made


DEATHS: tuple[type[Scenario], ...] = (MostDead, *_deaths())
