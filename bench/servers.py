"""The servers of one run: a private PostgreSQL with its default settings, a private Redis, a directory for SQLite."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import psutil
from tests.cluster import Cluster, NoPostgres, find_binaries, free_port

# The test cluster is tuned for tests; here PostgreSQL's own defaults are put back. max_connections is a default too.
DEFAULTS = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
    "autovacuum_naptime": "1min",
    "max_connections": "100",
}
COUNTING = {"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track": "top"}


class NotFound(Exception):
    """A server that this machine does not have; its message is the reason in the report."""


class Servers:
    """Started when first asked for, all removed at the end."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="redrive-bench-"))
        self.directory.chmod(0o711)  # the server may run as another user
        self._postgres: Cluster | None = None
        self._redis: tuple[subprocess.Popen[bytes], int] | None = None
        self._numbers: dict[str, int] = {}
        self.counts_statements = False

    def close(self) -> None:
        if self._redis is not None:
            self._redis[0].kill()
            self._redis[0].wait()
        if self._postgres is not None:
            self._postgres.remove()
        shutil.rmtree(self.directory, ignore_errors=True)

    def postgres(self) -> Cluster:
        if self._postgres is None:
            self._postgres, self.counts_statements = _start_postgres(self.directory)
        return self._postgres

    def redis_port(self) -> int:
        if self._redis is None:
            self._redis = _start_redis(self.directory)
        return self._redis[1]

    def processes(self, backend: str) -> list[psutil.Process]:
        """The server's processes, for its share of the CPU time. SQLite has none."""
        if backend == "postgres" and (pid := self.postgres().pid) is not None:
            postmaster = psutil.Process(pid)
            return [postmaster, *postmaster.children(recursive=True)]
        if backend == "redis" and self._redis is not None:
            return [psutil.Process(self._redis[0].pid)]
        return []

    async def fresh(self, backend: str, name: str) -> str:
        """The URL of an empty database for one measurement."""
        number = self._numbers[name] = self._numbers.get(name, 0) + 1
        database = f"{name}_{number}".replace("-", "_")
        if backend == "sqlite":
            return f"sqlite:///{self.directory}/{database}.db"
        if backend == "redis":
            port = self.redis_port()
            _redis_cli(port).flushall()
            return f"redis://127.0.0.1:{port}/0"
        await admin(self.postgres(), f'create database "{database}"')
        if self.counts_statements:
            await admin(self.postgres(), "create extension if not exists pg_stat_statements")
        return self.postgres().url(database)

    async def drop(self, url: str) -> None:
        """Gone before the next measurement: its autovacuum and its files would be in the way."""
        if url.startswith("postgresql:"):
            await admin(self.postgres(), f'drop database if exists "{url.rsplit("/", 1)[1]}" with (force)')
        elif url.startswith("sqlite:"):
            for file in Path(url.removeprefix("sqlite:///")).parent.glob(Path(url).name + "*"):
                file.unlink(missing_ok=True)


async def admin(cluster: Cluster, statement: str) -> None:
    connection = await asyncpg.connect(cluster.url())
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def _start_postgres(directory: Path) -> tuple[Cluster, bool]:
    try:
        find_binaries()
    except NoPostgres as error:
        raise NotFound(str(error)) from None
    for settings in (DEFAULTS | COUNTING, DEFAULTS):
        cluster = Cluster(directory / "pg", settings=settings)
        try:
            cluster.start()
            return cluster, "shared_preload_libraries" in settings
        except RuntimeError as error:  # most likely a server without contrib modules
            reason = str(error)
            cluster.remove()
    raise NotFound(f"PostgreSQL does not start: {reason.strip().splitlines()[-1]}")


def _start_redis(directory: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Redis' own defaults (snapshots now and then, no append-only file), except for where it lives."""
    program = shutil.which("valkey-server") or shutil.which("redis-server")
    if program is None:
        raise NotFound("neither redis-server nor valkey-server is on PATH")
    home = directory / "redis"
    home.mkdir()
    port = free_port()
    log = (home / "log").open("wb")
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(home)]
    process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    for _ in range(100):
        with contextlib.suppress(Exception):
            _redis_cli(port).ping()
            return process, port
        time.sleep(0.05)
    process.kill()
    raise NotFound("redis-server does not start")


def _redis_cli(port: int) -> Any:
    import redis

    return redis.Redis(port=port)


@contextlib.contextmanager
def servers() -> Iterator[Servers]:
    made = Servers()
    try:
        yield made
    finally:
        made.close()
