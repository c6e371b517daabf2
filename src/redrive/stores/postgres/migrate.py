"""Migrations on PostgreSQL: each step is one transaction, with the table of steps locked against other hosts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from asyncpg import exceptions as pg

from redrive.kernel.store import SchemaStatus
from redrive.stores import schema
from redrive.stores.postgres.pool import Pool

STEPS = schema.load("redrive.stores.postgres")
# Others may still read it: every start of a worker or producer does.
LOCK = "lock table redrive.migration in exclusive mode"
BOOTSTRAP = """
create schema if not exists redrive;
create table if not exists redrive.migration (
  version integer primary key, name text not null, applied_at timestamptz not null default clock_timestamp(),
  needs integer not null, digest text
);
"""


class PostgresMigrations:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def status(self) -> SchemaStatus:
        async with self._pool.connection() as connection:
            rows = await _applied(connection, self._pool.where)
        version = max((row["version"] for row in rows), default=0)
        pending = tuple(step.label for step in schema.steps_up(STEPS, min(version, len(STEPS)), None))
        applied = tuple((row["version"], row["name"], row["applied_at"]) for row in rows)
        return SchemaStatus(version, len(STEPS), pending, applied)

    async def check(self) -> None:
        async with self._pool.connection() as connection:
            rows = await _applied(connection, self._pool.where)
        version = max((row["version"] for row in rows), default=0)
        schema.check_version(STEPS, version, max((row["needs"] for row in rows), default=1), self._pool.where)

    async def up(self, to: int | None = None) -> list[str]:
        done: list[str] = []
        while True:
            async with self._locked() as (connection, version):
                steps = schema.steps_up(STEPS, version, to)
                if not steps:
                    return done
                step = steps[0]
                await connection.execute(step.up)
                await connection.execute(
                    "insert into redrive.migration (version, name, needs, digest) values ($1, $2, $3, $4)",
                    step.version, step.name, schema.needs_of(STEPS, step.version), step.digest,
                )  # fmt: skip
                done.append(step.label)

    async def down(self, to: int) -> list[str]:
        done: list[str] = []
        while True:
            async with self._locked() as (connection, version):
                steps = schema.steps_down(STEPS, version, to)
                if not steps:
                    return done
                await connection.execute(steps[0].down)
                await connection.execute("delete from redrive.migration where version = $1", steps[0].version)
                done.append(steps[0].label)

    async def grant(self, *, producer: str | None = None, worker: str | None = None, viewer: str | None = None) -> None:
        async with self._pool.connection() as connection, connection.transaction():
            if producer:
                await connection.fetchval("select redrive.grant_producer($1)", producer)
            if worker:
                await connection.fetchval("select redrive.grant_worker($1)", worker)
            if viewer:
                await connection.fetchval("select redrive.grant_viewer($1)", viewer)

    def sql(self, *, down: bool = False, to: int | None = None) -> str:
        """The steps as one script, for psql: one transaction, under the same lock, and noted like steps run by us."""
        steps = schema.script(STEPS, down=down, to=to, record=_forget if down else _note)
        return f"begin;\n{'' if down else BOOTSTRAP}{LOCK};\n{steps}commit;\n"

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[tuple[Any, int]]:
        """One transaction that no other migrating host shares."""
        async with self._pool.connection() as connection:
            await _bootstrap(connection)
            async with connection.transaction():
                await connection.execute(LOCK)
                rows = await _applied(connection, self._pool.where)
                yield connection, max((row["version"] for row in rows), default=0)


def _note(step: schema.Migration) -> str:
    needs = schema.needs_of(STEPS, step.version)
    values = f"{step.version}, '{step.name}', {needs}, '{step.digest}'"
    return f"insert into redrive.migration (version, name, needs, digest) values ({values});"  # noqa: S608


def _forget(step: schema.Migration) -> str:
    return f"delete from redrive.migration where version = {step.version};"  # noqa: S608


async def _bootstrap(connection: Any) -> None:
    """Make the table of steps. Asked for only when missing: otherwise each call would print notices about it."""
    while True:
        try:
            async with connection.transaction():
                if await connection.fetchval("select to_regclass('redrive.migration')") is None:
                    await connection.execute(BOOTSTRAP)
                return
        except (pg.UniqueViolationError, pg.DuplicateSchemaError, pg.DuplicateTableError, pg.DuplicateObjectError):
            await asyncio.sleep(0.05)  # another host was quicker, and has committed it


async def _applied(connection: Any, where: str) -> list[Any]:
    async with connection.transaction():
        if await connection.fetchval("select to_regclass('redrive.migration')") is None:
            return []
        rows: list[Any] = await connection.fetch("select * from redrive.migration order by version")
        schema.check_digests(STEPS, {row["version"]: row.get("digest") for row in rows}, where)
        return rows
