"""Disks that are full: a small file system where mounting is permitted, else the same error made up."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from pathlib import Path
from uuid import uuid4

import psycopg
from tests.cluster import private_cluster, run_directory, server_user

from storm.processes import Program
from storm.scenario import Scenario
from storm.scenarios.sqlite import OnSqlite
from storm.stage import SERVER, fill, migrate, small_disk
from storm.verdict import Result
from storm.world import World

RAISE = """
create function public.full_disk() returns trigger language plpgsql as $$
begin raise exception 'could not extend file: No space left on device' using errcode = 'disk_full'; end $$;
create trigger full_disk before insert or update or delete on redrive.task
  for each statement execute function public.full_disk();
"""
# A log of a few segments, so that the disk is small too.
SMALL = {"min_wal_size": "32MB", "max_wal_size": "64MB", "wal_recycle": "off"}
MEND = "drop trigger full_disk on redrive.task; drop function public.full_disk()"


class PostgresDiskFull(Scenario):
    name = "postgres-disk-full"
    about = "no space left where the database's tables are"
    disk: Path | None = None
    outage = True

    def place(self, stack: contextlib.ExitStack, directory: Path) -> str:
        folder = self.stage.folder("disk")
        self.disk = stack.enter_context(small_disk(folder, 64))
        if self.disk is None:
            return super().place(stack, directory)
        if (user := server_user()) is not None:
            os.chown(self.disk, user.pw_uid, user.pw_gid)
        name = self.stage.tablespace(stack, self.disk)
        return stack.enter_context(self.stage.database(f"tablespace {name}"))

    def inject(self, world: World, seconds: float) -> None:
        if self.disk is not None:
            world.note("a tablespace on a small tmpfs, filled")
            ballast = fill(self.disk)
            time.sleep(seconds)
            ballast.unlink()
            return
        world.note("simulated: mounting is not permitted, so a trigger raises disk_full")
        with psycopg.connect(world.direct, autocommit=True) as admin:
            admin.execute(RAISE)
            time.sleep(seconds)
            admin.execute(MEND)

    def judge(self, world: World, result: Result) -> None:
        if self.pace.judges_times:
            _judge_full(world, result)


class ServerDiskFull(Scenario):
    """Without room for its write-ahead log PostgreSQL stops altogether, and somebody has to start it again."""

    name = "server-disk-full"
    about = "no space left for the server's write-ahead log: it panics, and is started again when there is room"
    full_only = True

    def place(self, stack: contextlib.ExitStack, directory: Path) -> str:
        folder = run_directory() / f"full-{uuid4().hex[:6]}"
        folder.mkdir()
        self.disk = stack.enter_context(small_disk(folder, 256))
        self.server = private_cluster(folder.name, settings=SERVER | SMALL)
        stack.callback(self.server.remove)
        migrate(self.server.url())
        return self.server.url()

    def inject(self, world: World, seconds: float) -> None:
        if self.disk is None:
            world.note("skipped: mounting is not permitted; the server was crashed instead")
            self.server.kill()
            time.sleep(seconds)
        else:
            ballast = fill(self.disk)
            self._use_up_log(world)
            time.sleep(seconds)
            world.figures["panicked"] = "PANIC" in self.server.log.read_text(errors="replace")
            ballast.unlink()
        if not self._answers():
            self.server.stop("immediate")
            self.server.start()

    def _use_up_log(self, world: World) -> None:
        """Segments are made ahead; the first one that is missing is the end."""
        with contextlib.suppress(psycopg.Error):
            for _ in range(10):
                world.sql("select pg_switch_wal()")
                time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            with psycopg.connect(self.server.url(), connect_timeout=3):
                return True
        except psycopg.OperationalError:
            return False


class SqliteDiskFull(OnSqlite):
    name = "sqlite-disk-full"
    about = "no space left where the database file is"
    disk: Path | None = None
    outage = True

    def place(self, stack: contextlib.ExitStack, directory: Path) -> str:
        folder = self.stage.folder("disk")
        self.disk = stack.enter_context(small_disk(folder, 64))
        url = f"sqlite:///{folder}/tasks.db"
        migrate(url)
        return url

    def inject(self, world: World, seconds: float) -> None:
        if self.disk is not None:
            world.note("a small tmpfs, filled")
            ballast = fill(self.disk)
            time.sleep(seconds)
            ballast.unlink()
            return
        world.note("simulated: mounting is not permitted, so no file of a process may grow (RLIMIT_FSIZE)")
        # Journals and logs are small and may still grow; the write-ahead log is the largest file by now.
        size = Path(f"{world.path}-wal").stat().st_size
        for program in self._writers(world):
            _limit_files(program.pid, size)
        time.sleep(seconds)
        for program in self._writers(world):
            _limit_files(program.pid, resource.RLIM_INFINITY)

    def _writers(self, world: World) -> list[Program]:
        assert world.feed.program is not None
        return [*world.fleet.alive, world.feed.program]

    def judge(self, world: World, result: Result) -> None:
        if self.pace.judges_times:
            _judge_full(world, result)
        super().judge(world, result)


def _judge_full(world: World, result: Result) -> None:
    """A storm that nobody noticed was none."""
    noticed = any(event["event"] == "store.unavailable" for event in world.fleet.events()) or world.feed.refusals()
    result.judge("the disk was full", bool(noticed), "" if noticed else "nobody noticed")


def _limit_files(pid: int, size: int) -> None:
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))
