"""A migration that is killed half-way: the next one finishes it, and the store works."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from storm.processes import Program, environment, until
from storm.scenario import Scenario
from storm.verdict import Result
from storm.world import LEDGER, World


class MigrationKilled(Scenario):
    name = "kill-migration"
    about = "`redrive migrate` killed again and again while it works, then run to its end"
    full_only = True

    def place(self, stack: contextlib.ExitStack, directory: Path) -> str:
        return stack.enter_context(self.stage.database(template="template0"))

    def run(self) -> Result:
        result = Result(self.name, self.about, self.store)
        started = time.monotonic()
        directory = self.stage.folder(self.name)
        with contextlib.ExitStack() as stack:
            world = World(self.place(stack, directory), directory, concurrency=self.concurrency, seed=self.stage.seed)
            stack.callback(world.close)
            for number in range(int(self.pace.pick(fast=2, quick=4, full=20))):
                self._kill_one(world, number)
            last = self._migrate(world, "last")
            result.judge("the last one succeeds", last.process.wait(60) == 0, last.log.read_text()[-500:])
            result.figures = self._tried(world, result)
        result.seconds = time.monotonic() - started
        return result

    def _migrate(self, world: World, label: str) -> Program:
        env = environment(REDRIVE_URL=world.direct)
        return Program(label, ["redrive.cli", "migrate"], env, world.directory / f"migrate-{label}.log")

    def _kill_one(self, world: World, number: int) -> None:
        """From the moment it touches the store."""
        program = self._migrate(world, str(number))
        with contextlib.suppress(Exception):
            until(lambda: not program.alive or self._touched(world), "it has begun", 20, 0.005)
        time.sleep(self.random.uniform(0, 0.25))
        program.kill()

    def _touched(self, world: World) -> bool:
        others = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        return bool(world.sql(others)[0][0])

    def _tried(self, world: World, result: Result) -> dict[str, int]:
        """A schema is right when it works."""
        world.sql(LEDGER[self.store])
        world.start(1)
        world.feed.burst(200, 30)
        world.wait_backlog(0, 30)
        completed = world.completed()
        result.judge("the store works", completed == 200, f"{completed} of 200 tasks completed")
        return {"completed": completed}


class SqliteMigrationKilled(MigrationKilled):
    name = "sqlite-kill-migration"
    store = "sqlite"

    def place(self, stack: contextlib.ExitStack, directory: Path) -> str:
        return f"sqlite:///{directory}/tasks.db"

    def _touched(self, world: World) -> bool:
        return world.path.exists()
