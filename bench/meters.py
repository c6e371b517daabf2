"""What a stretch of work cost the server: CPU, statements, commits, bytes of WAL."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import asyncpg
import psutil

from bench.servers import Servers

COUNTS = """
select d.xact_commit, pg_current_wal_insert_lsn() - '0/0'::pg_lsn as wal
from pg_stat_database d where d.datname = $1
"""
STATEMENTS = """
select coalesce(sum(s.calls), 0)::bigint from pg_stat_statements s
join pg_database d on d.oid = s.dbid where d.datname = $1 and s.toplevel
"""


@dataclass(frozen=True)
class Reading:
    cpu_s: dict[int, float]  # by process id: backends come and go between two readings
    commits: int | None = None
    wal: int | None = None
    statements: int | None = None


class Meter:
    """Reads the server of one database. It asks from another database, so that it does not count itself."""

    def __init__(self, servers: Servers, backend: str, url: str) -> None:
        self._servers = servers
        self._backend = backend
        self._database = url.rsplit("/", 1)[-1]

    async def read(self) -> Reading:
        cpu = cpu_by_process(self._servers.processes(self._backend))
        if self._backend != "postgres":
            return Reading(cpu)
        connection = await asyncpg.connect(self._servers.postgres().url())
        try:
            row = await connection.fetchrow(COUNTS, self._database)
            statements = None
            if self._servers.counts_statements:
                statements = await connection.fetchval(STATEMENTS, self._database)
            return Reading(cpu, row["xact_commit"], int(row["wal"]), statements)
        finally:
            await connection.close()


def cpu_by_process(processes: list[psutil.Process]) -> dict[int, float]:
    """User and system seconds of each process that is still there."""
    found = {}
    for process in processes:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            found[process.pid] = times.user + times.system
    return found


def cost(before: Reading, after: Reading, tasks: int) -> dict[str, float]:
    """Per task, by name; what was not metered is left out."""
    spent = sum(seconds - before.cpu_s.get(pid, 0.0) for pid, seconds in after.cpu_s.items())
    figures = {"server_us_per_task": spent / tasks * 1e6} if after.cpu_s else {}
    for name, key in (
        ("commits", "commits_per_task"),
        ("wal", "wal_bytes_per_task"),
        ("statements", "statements_per_task"),
    ):
        old, new = getattr(before, name), getattr(after, name)
        if old is not None and new is not None:
            figures[key] = (new - old) / tasks
    return figures
