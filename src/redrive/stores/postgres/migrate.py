"""Migrates PostgreSQL: each step is one transaction, with the table of steps locked against other hosts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from asyncpg import exceptions as pg

from redrive.errors import StoreUnavailable
from redrive.kernel.feature import Feature
from redrive.kernel.ports.store import SchemaStatus
from redrive.stores import schema
from redrive.stores.postgres.pool import Pool
from redrive.stores.schema import beforehand, indexed_table

STEPS = schema.load("redrive.stores.postgres")
# Others may still read it: every start of a worker or producer does.
LOCK_STEPS = "lock table redrive.migration in exclusive mode"
CREATE_STEPS_TABLE = """
create schema if not exists redrive;
create table if not exists redrive.migration (
  feature text not null default '', version integer not null, name text not null,
  applied_at timestamptz not null default clock_timestamp(), needs integer not null, digest text,
  primary key (feature, version)
);
"""
HAS_STEPS_TABLE = "select to_regclass('redrive.migration')"
APPLIED_DIGESTS = "select feature, version, digest from redrive.migration"
RECORD_STEP = "insert into redrive.migration (feature, version, name, needs, digest) values ($1, $2, $3, $4, $5)"
# Only where the step that made it is there: an upgrade may end before it.
GRANT_AGAIN = """do $$ begin
  if to_regprocedure('redrive.grant_again()') is not null then perform redrive.grant_again(); end if;
end $$;
"""
# Whether a worker's role has rights that were left to it while workers from before a step ran. Asked by the owner only.
HAS_LEFT_OVERS = """
select exists (
  select 1 from pg_class c join pg_namespace n on n.oid = c.relnamespace, aclexplode(c.relacl) a
  where n.nspname = 'redrive' and pg_has_role(n.nspowner, 'usage') and a.grantee not in (0, c.relowner)
    and a.privilege_type = 'UPDATE'
    and starts_with(obj_description(c.oid, 'pg_class'), 'For workers: ')
    and not has_function_privilege(a.grantee, to_regprocedure('redrive.administer()')::oid, 'execute'))
"""
# What roles may do, object by object; and what is none of an object's: who writes documents by which others are let in.
ROLE_RIGHTS = """
with given as (
  select a.grantee, lower(a.privilege_type) || ' on ' || c.relname as what
  from pg_class c, aclexplode(c.relacl) a where c.relnamespace = to_regnamespace('redrive') and a.grantee <> c.relowner
  union
  select a.grantee, lower(a.privilege_type) || ' on ' || c.relname || '.' || t.attname
  from pg_class c join pg_attribute t on t.attrelid = c.oid, aclexplode(t.attacl) a
  where c.relnamespace = to_regnamespace('redrive') and a.grantee <> c.relowner
  union
  select a.grantee, 'execute of ' || p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')'
  from pg_proc p, aclexplode(p.proacl) a where p.pronamespace = to_regnamespace('redrive') and a.grantee <> p.proowner
  union
  select a.grantee, 'writing tokens, sessions, approvals and operations of people'
  from pg_class c, aclexplode(c.relacl) a
  where c.oid = to_regclass('redrive.record') and a.grantee <> c.relowner and a.privilege_type = 'INSERT'
    and (to_regprocedure('redrive.administer()') is null
      or has_function_privilege(a.grantee, to_regprocedure('redrive.administer()')::oid, 'execute'))
)
select r.rolname::text as role, array_agg(g.what order by g.what) as rights
from given g join pg_roles r on r.oid = g.grantee group by 1 order by 1
"""
OBJECTS = """
select c.relname::text from pg_class c where c.relnamespace = to_regnamespace('redrive')
union select p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')' from pg_proc p
where p.pronamespace = to_regnamespace('redrive')
"""
# From here on nobody is kept waiting while an index is made.
LARGE_BYTES = 64 * 1024 * 1024
IS_LARGE = "select coalesce(pg_table_size(to_regclass($1)), 0) > $2"
IS_BROKEN = "select not indisvalid from pg_index where indexrelid = to_regclass('redrive.' || $1)"
MOST_DEADLOCKS = 9
FORGET_STEP = "delete from redrive.migration where feature = $1 and version = $2"


class PostgresMigrations:
    def __init__(self, pool: Pool, features: Sequence[Feature] = ()) -> None:
        self._pool = pool
        self._lines = schema.lines_of(STEPS, features, "postgres")
        self.revoked: dict[str, list[str]] = {}  # by role: what calls of ``up`` and ``grant`` have taken back, together
        self._rights_before: dict[str, list[str]] | None = None

    async def status(self) -> SchemaStatus:
        async with self._pool.connection() as connection:
            rows = await self._applied(connection)
        pending = [
            line.label(step)
            for line in self._lines
            for step in schema.steps_up(line.steps, min(_version(rows, line.feature), len(line.steps)), None)
        ]
        told = [(row["feature"], row["version"], row["name"], row["applied_at"]) for row in rows]
        applied = schema.applied_steps(self._lines, told)
        foreign = schema.foreign_owners(self._lines, applied)
        return SchemaStatus(_version(rows, ""), len(STEPS), tuple(pending), applied.pop(""), applied, foreign)

    async def check(self) -> None:
        async with self._pool.connection() as connection:
            rows = await self._applied(connection)
        for line in self._lines:
            needs = max((row["needs"] for row in rows if row["feature"] == line.feature), default=1)
            schema.check_version(line, _version(rows, line.feature), needs, self._pool.where, self._pool.shown)

    async def up(self, to: int | None = None) -> list[str]:
        """Applies every step that is missing; ``to`` ends redrive's own before the last, and leaves features alone."""
        await self._remember_rights()
        done = await self._up(self._lines[0], to)
        for line in self._lines[1:] if to is None else ():
            done += await self._up(line, None)
        async with self._pool.connection() as connection, connection.transaction():
            if done or (to is None and await connection.fetchval(HAS_LEFT_OVERS)):
                await connection.execute(GRANT_AGAIN)
        await self._compare_rights()
        return done

    async def _rights(self) -> dict[str, list[str]]:
        async with self._pool.connection() as connection:
            return {row["role"]: row["rights"] for row in await connection.fetch(ROLE_RIGHTS)}

    async def _remember_rights(self) -> None:
        if self._rights_before is None:
            self._rights_before = await self._rights()

    async def _compare_rights(self) -> None:
        """Notes what roles had and have no more, of all that is still there."""
        after = await self._rights()
        async with self._pool.connection() as connection:
            there = {row[0] for row in await connection.fetch(OBJECTS)}
        lost = {
            role: [one for one in rights if one not in after.get(role, ()) and _object_of(one) in (None, *there)]
            for role, rights in (self._rights_before or {}).items()
        }
        self.revoked = {role: rights for role, rights in lost.items() if rights}

    async def down(self, to: int) -> list[str]:
        """Goes back to a version of redrive's own; features go before the last of it does."""
        done: list[str] = []
        for line in self._lines[1:] if to == 0 else ():
            done += await self._down(line, 0)
        return done + await self._down(self._lines[0], to)

    async def _up(self, line: schema.Line, to: int | None) -> list[str]:
        done: list[str] = []
        while await self._prepare(line, to):  # whoever may only look, such as a worker's role, need not do more
            step = await _past_deadlocks(lambda: self._step_up(line, to))
            if step is None:
                return done
            done.append(line.label(step))
        return done

    async def _step_up(self, line: schema.Line, to: int | None) -> schema.Migration | None:
        """Applies the next step and returns it; None if somebody else was quicker."""
        async with self._locked(line) as (connection, version):
            steps = schema.steps_up(line.steps, version, to)
            if not steps:
                return None
            step, needs = steps[0], schema.needs_of(line.steps, steps[0].version)
            await connection.execute(step.up)
            await connection.execute(RECORD_STEP, line.feature, step.version, step.name, needs, step.digest)
            return step

    async def _prepare(self, line: schema.Line, to: int | None) -> bool:
        """Makes the indexes of the next step on a large table, outside of a transaction, while workers go on. What was
        broken off in the middle is made anew. Returns whether there is a next step."""
        async with self._pool.connection() as connection:
            version = _version(await self._applied(connection), line.feature)
            steps = schema.steps_up(line.steps, version, to)
            for name, text in [one for step in steps[:1] for one in beforehand(step)]:
                if await connection.fetchval(IS_LARGE, indexed_table(text), LARGE_BYTES):
                    if await connection.fetchval(IS_BROKEN, name):
                        await connection.execute(f"drop index concurrently redrive.{name}")
                    await connection.execute(text)
        return bool(steps)

    async def _down(self, line: schema.Line, to: int) -> list[str]:
        done: list[str] = []
        while step := await _past_deadlocks(lambda: self._step_down(line, to)):
            done.append(line.label(step))
        return done

    async def _step_down(self, line: schema.Line, to: int) -> schema.Migration | None:
        async with self._locked(line) as (connection, version):
            steps = schema.steps_down(line.steps, version, to)
            if not steps:
                return None
            await connection.execute(steps[0].down)
            await connection.execute(FORGET_STEP, line.feature, steps[0].version)
            return steps[0]

    async def grant(
        self,
        *,
        producer: str | None = None,
        worker: str | None = None,
        api: str | None = None,
        viewer: str | None = None,
    ) -> None:
        await self._remember_rights()
        async with self._pool.connection() as connection, connection.transaction():
            if producer:
                await connection.fetchval("select redrive.grant_producer($1)", producer)
            if worker:
                await connection.fetchval("select redrive.grant_worker($1)", worker)
            if api:
                await connection.fetchval("select redrive.grant_api($1)", api)
            if viewer:
                await connection.fetchval("select redrive.grant_viewer($1)", viewer)
        await self._compare_rights()

    def sql(self, *, down: bool = False, to: int | None = None) -> str:
        """Returns the steps as one script, for psql: one transaction, under the same lock, and noted like steps run by
        us."""
        steps = schema.scripts(self._lines, down=down, to=to, record=_forget if down else _note)
        return (
            f"begin;\n{'' if down else CREATE_STEPS_TABLE}{LOCK_STEPS};\n{steps}{'' if down else GRANT_AGAIN}commit;\n"
        )

    @asynccontextmanager
    async def _locked(self, line: schema.Line) -> AsyncIterator[tuple[Any, int]]:
        """Opens one transaction that no other migrating host shares."""
        async with self._pool.connection() as connection:
            await _bootstrap(connection)
            async with connection.transaction():
                await connection.execute(LOCK_STEPS)
                yield connection, _version(await self._applied(connection), line.feature)

    async def _applied(self, connection: Any) -> list[dict[str, Any]]:
        async with connection.transaction():
            if await connection.fetchval(HAS_STEPS_TABLE) is None:
                return []
            found = await connection.fetch("select * from redrive.migration order by version")
        # A database of a version in development may not even have these columns.
        rows = [{"feature": "", "digest": None, **dict(row)} for row in found]
        for line in self._lines:
            digests = {row["version"]: row["digest"] for row in rows if row["feature"] == line.feature}
            schema.check_digests(line, digests, self._pool.where)
        return rows


async def _past_deadlocks(step: Callable[[], Awaitable[schema.Migration | None]]) -> schema.Migration | None:
    """Takes a step, and takes it again when the server undid it to end a deadlock: it locks tables in the order of its
    statements, and workers, which go on meanwhile, in theirs."""
    for _ in range(MOST_DEADLOCKS):
        try:
            return await step()
        except StoreUnavailable as error:
            if not isinstance(error.__cause__, pg.DeadlockDetectedError):
                raise
    return await step()


def _version(rows: list[dict[str, Any]], feature: str) -> int:
    return max((row["version"] for row in rows if row["feature"] == feature), default=0)


def _object_of(right: str) -> str | None:
    """Returns the table or function that a right of ``ROLE_RIGHTS`` is about; None if it is about none."""
    if " on " in right:
        return right.partition(" on ")[2].partition(".")[0]
    return right.partition("execute of ")[2] or None


def missing_script(rows: Iterable[tuple[str, int, str | None]], features: Sequence[Feature], where: str) -> str:
    """Returns the steps that a database lacks as one script, for a connection that is not ours."""
    script = schema.missing_script(schema.lines_of(STEPS, features, "postgres"), rows, where, _note)
    return f"{script}\n{GRANT_AGAIN}" if script else ""


def _note(line: schema.Line, step: schema.Migration) -> str:
    needs = schema.needs_of(line.steps, step.version)
    values = f"'{line.feature}', {step.version}, '{step.name}', {needs}, '{step.digest}'"
    return f"insert into redrive.migration (feature, version, name, needs, digest) values ({values});"  # noqa: S608


def _forget(line: schema.Line, step: schema.Migration) -> str:
    return f"delete from redrive.migration where feature = '{line.feature}' and version = {step.version};"  # noqa: S608


async def _bootstrap(connection: Any) -> None:
    """Makes the table of steps. Called only when it is missing: otherwise each call would print notices about it."""
    while True:
        try:
            async with connection.transaction():
                if await connection.fetchval(HAS_STEPS_TABLE) is None:
                    await connection.execute(CREATE_STEPS_TABLE)
                return
        except (pg.UniqueViolationError, pg.DuplicateSchemaError, pg.DuplicateTableError, pg.DuplicateObjectError):
            await asyncio.sleep(0.05)  # another host was quicker, and has committed it
