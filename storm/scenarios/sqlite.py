"""What happens to a file and to those who write it."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from storm.account import audit
from storm.processes import Program, until
from storm.scenario import Scenario
from storm.verdict import Result
from storm.world import World


class OnSqlite(Scenario):
    store = "sqlite"

    @property
    def rate(self) -> float:
        return self.pace.rate / 2

    def judge(self, world: World, result: Result) -> None:
        result.judge("integrity", world.sql("pragma integrity_check") == [("ok",)])


class AnyKilled(OnSqlite):
    name = "sqlite-kill-any"
    about = "two workers and a producer; every second one of the three is killed and started again"

    def inject(self, world: World, seconds: float) -> None:
        ends = time.monotonic() + seconds
        killed = []
        while time.monotonic() < ends:
            name = self.random.choice(["w1", "w2", "producer"])
            killed.append(name)
            if name == "producer":
                world.feed.kill()
                world.feed.start()
                world.feed.wait_ready()
                world.feed.offer(self.rate)
            else:
                world.fleet.kill(name)
                world.fleet.start(name)
            time.sleep(self.random.uniform(0.8, 1.6))
        world.figures["killed"] = killed


class WriteLockHeld(OnSqlite):
    name = "sqlite-lock-held"
    about = "another process holds the write lock"
    outage = True

    @property
    def seconds(self) -> float:
        return self.pace.pick(fast=2, quick=6, full=30)  # beyond redrive's own patience of 10 s in the full set

    def inject(self, world: World, seconds: float) -> None:
        with contextlib.closing(sqlite3.connect(world.path, isolation_level=None, timeout=30)) as other:
            other.execute("begin immediate")
            time.sleep(seconds)
            other.execute("rollback")


class PowerCut(OnSqlite):
    """All writers are frozen at a random moment, and what is on disk then is copied without the shared memory: what a
    machine finds after its power came back. Copying under running writers would prove nothing, since no single
    moment ever looked like that."""

    name = "sqlite-power-cut"
    about = "the file and its log as they were at random moments, opened again, checked and drained"
    copies: list[Path]

    def inject(self, world: World, seconds: float) -> None:
        count = int(self.pace.pick(fast=2, quick=3, full=12))
        self.copies = []
        for number in range(count):
            time.sleep(self.random.uniform(0.5, 1.5) * seconds / count)
            copy = world.directory.parent / f"{world.directory.name}-cut{number}"
            assert world.feed.program is not None
            with frozen([*world.fleet.alive, world.feed.program]):
                shutil.copytree(world.directory, copy, ignore=shutil.ignore_patterns("*-shm"))
            if number % 2:
                _tear(copy / "tasks.db-wal", self.random)
            self.copies.append(copy)

    def judge(self, world: World, result: Result) -> None:
        super().judge(world, result)
        world.close()
        worlds = [
            World(f"sqlite:///{copy}/tasks.db", copy, concurrency=self.concurrency, seed=0) for copy in self.copies
        ]
        try:
            for number, copied in enumerate(worlds):
                ok = copied.sql("pragma integrity_check") == [("ok",)]
                result.judge(f"integrity of copy {number}", ok)
                copied.fleet.start("after")
            for number, copied in enumerate(worlds):
                self._judge_copy(copied, result, number)
        finally:
            for copied in worlds:
                copied.close()

    def _judge_copy(self, world: World, result: Result, number: int) -> None:
        """Its journals were frozen with it: the same books have to balance."""
        world.wait_backlog(0, self.patience + world.recoverable)
        account, _ = audit(world)
        for what, wrong in account.wrong.items():
            if wrong:
                result.judge(f"{what} in copy {number}", False, f"{wrong}: {'; '.join(account.samples[what])}")
        result.judge(f"copy {number} drained", account.accounted == account.acknowledged > 0)


@contextlib.contextmanager
def frozen(programs: list[Program]) -> Iterator[None]:
    """Nobody does anything meanwhile."""
    for program in programs:
        program.send(signal.SIGSTOP)
    try:
        until(lambda: all(_stopped(program) for program in programs), "everybody is frozen", 10, 0.002)
        yield
    finally:
        for program in programs:
            program.send(signal.SIGCONT)


def _stopped(program: Program) -> bool:
    return bool(psutil.Process(program.pid).status() == psutil.STATUS_STOPPED)


def _tear(log: Path, chosen: random.Random) -> None:
    """The last write was cut off half-way: a frame that was never finished."""
    with log.open("ab") as file:
        file.write(chosen.randbytes(chosen.randrange(1, 4096)))
