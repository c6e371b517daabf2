"""Migrates PostgreSQL: each step is one transaction, with the table of steps locked against other hosts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from asyncpg import exceptions as pg

from redrive.errors import SchemaError, StoreUnavailable
from redrive.kernel.feature import Feature
from redrive.kernel.ports.store import SchemaStatus
from redrive.stores import schema
from redrive.stores.postgres.pool import Pool
from redrive.stores.schema import beforehand, indexed_table, join_script, joined

STEPS = schema.load("redrive.stores.postgres")
FUNCTIONS = schema.load_functions("redrive.stores.postgres")
# Others may still read it: every start of a worker or producer does.
LOCK_STEPS = "lock table redrive.migration in exclusive mode"
CREATE_STEPS_TABLE = """
create schema if not exists redrive;
create table if not exists redrive.migration (
  feature text not null default '', version integer not null, name text not null,
  applied_at timestamptz not null default clock_timestamp(), needs integer not null, digest text,
  primary key (feature, version)
);
create table if not exists redrive.function_set (
  feature text primary key, number integer not null, loaded_at timestamptz not null default clock_timestamp()
);
"""
HAS_STEPS_TABLE = "select coalesce(to_regclass('redrive.function_set'), to_regclass('redrive.migration'))"
HAS_BOTH_TABLES = (
    "select to_regclass('redrive.function_set') is not null and to_regclass('redrive.migration') is not null"
)
APPLIED_DIGESTS = "select feature, version, digest from redrive.migration"
FUNCTION_NUMBERS = "select feature, number from redrive.function_set"
RECORD_FUNCTIONS = """
insert into redrive.function_set (feature, number) values ($1, $2)
on conflict (feature) do update set number = excluded.number, loaded_at = clock_timestamp()
"""
# Functions call one another: the body of each is looked at when all are there. Nothing is open to everyone, not even
# until the rights are granted again.
BEFORE_FUNCTIONS = "set local check_function_bodies = off;\n"
AFTER_FUNCTIONS = "revoke all on all functions in schema redrive from public;\n"
# Who else is connected to this database.
LEAVING_LOOKS, LEAVING_S = 5, 0.2
OTHERS = """
select concat_ws(' ', a.usename, nullif(a.application_name, ''), 'from', coalesce(a.client_addr::text, 'this host'))
  as who
from pg_stat_activity a
where a.datname = current_database() and a.backend_type = 'client backend' and a.pid <> all ($1::integer[])
order by a.backend_start
"""
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
FORGET_FUNCTIONS = "delete from redrive.function_set where feature = $1"


T = TypeVar("T")


class PostgresMigrations:
    def __init__(self, pool: Pool, features: Sequence[Feature] = ()) -> None:
        self._pool = pool
        self._lines = schema.lines_of(STEPS, FUNCTIONS, features, "postgres")
        self.revoked: dict[str, list[str]] = {}  # by role: what calls of ``up`` and ``grant`` have taken back, together
        self._rights_before: dict[str, list[str]] | None = None

    async def status(self) -> SchemaStatus:
        async with self._pool.connection() as connection:
            rows, numbers = await self._applied(connection)
        pending = [label for line in self._lines for label in _pending(line, rows, numbers)]
        told = [(row["feature"], row["version"], row["name"], row["applied_at"]) for row in rows]
        applied = schema.applied_steps(self._lines, told)
        foreign = schema.foreign_owners(self._lines, applied)
        return SchemaStatus(_version(rows, ""), len(STEPS), tuple(pending), applied.pop(""), applied, foreign)

    async def check(self) -> None:
        async with self._pool.connection() as connection:
            rows, numbers = await self._applied(connection)
        for line in self._lines:
            needs = max((row["needs"] for row in rows if row["feature"] == line.feature), default=1)
            schema.check_version(line, _version(rows, line.feature), needs, self._pool.where, self._pool.shown)
            schema.check_functions(line, numbers.get(line.feature, 0), self._pool.where, self._pool.shown)

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
        """Goes back to a version of redrive's own; features go before the last of it does. All the way is refused while
        anybody else is connected: what they call would be gone."""
        done: list[str] = []
        if to == 0:
            await self._refuse_others()
        for line in self._lines[1:] if to == 0 else ():
            done += await self._down(line, 0)
        return done + await self._down(self._lines[0], to)

    async def _refuse_others(self) -> None:
        for left in range(LEAVING_LOOKS, -1, -1):
            async with self._pool.connection() as connection:
                others = [row["who"] for row in await connection.fetch(OTHERS, self._pool.server_pids())]
            if not others or not left:
                break
            await asyncio.sleep(LEAVING_S)  # a server lists who has just left for a moment more
        if others:
            named = ", ".join(dict.fromkeys(others))
            raise SchemaError(
                f"{self._pool.where} is in use by {len(others)} other connections: {named}",
                hint="stop workers, producers and whoever else is connected, then remove the schema",
            )

    async def _up(self, line: schema.Line, to: int | None) -> list[str]:
        done: list[str] = []
        while await self._prepare(line, to):  # whoever may only look, such as a worker's role, need not do more
            step = await _past_deadlocks(lambda: self._step_up(line, to))
            if step is None:
                return done
            done.append(line.label(step))
        if to is None or to == len(line.steps):
            done += await self._load_functions(line)
        return done

    async def _load_functions(self, line: schema.Line) -> list[str]:
        """Replaces an older set of functions; returns its label, or nothing where the set is as new as ours."""
        async with self._pool.connection() as connection:
            if line.newer_functions((await self._applied(connection))[1].get(line.feature, 0)) is None:
                return []
        loaded = await _past_deadlocks(lambda: self._replace_functions(line))
        return [line.label(loaded)] if loaded is not None else []

    async def _replace_functions(self, line: schema.Line) -> schema.Functions | None:
        async with self._locked(line) as (connection, _):
            number = (await self._applied(connection))[1].get(line.feature, 0)
            if (newer := line.newer_functions(number)) is None:
                return None  # somebody else was quicker
            await connection.execute(BEFORE_FUNCTIONS + newer.script + AFTER_FUNCTIONS)
            await connection.execute(RECORD_FUNCTIONS, line.feature, newer.number)
            return newer

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
            version = _version((await self._applied(connection))[0], line.feature)
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
            await connection.execute(f"{steps[0].down}\nselect 1;")  # one that leaves all as it is has no statement
            await connection.execute(FORGET_STEP, line.feature, steps[0].version)
            # What is loaded next time are the functions of whoever brings the tables up again.
            await connection.execute(FORGET_FUNCTIONS, line.feature)
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
            f"begin;\n{'' if down else CREATE_STEPS_TABLE + BEFORE_FUNCTIONS}{LOCK_STEPS};\n"
            f"{steps}{'' if down else GRANT_AGAIN}commit;\n"
        )

    @asynccontextmanager
    async def _locked(self, line: schema.Line) -> AsyncIterator[tuple[Any, int]]:
        """Opens one transaction that no other migrating host shares."""
        async with self._pool.connection() as connection:
            await _bootstrap(connection)
            async with connection.transaction():
                await connection.execute(LOCK_STEPS)
                rows = await connection.fetch(APPLIED_DIGESTS)
                if script := join_script("postgres", self._lines, rows, _note):
                    await connection.execute(script)
                yield connection, _version((await self._applied(connection))[0], line.feature)

    async def _applied(self, connection: Any) -> tuple[list[dict[str, Any]], dict[str, int]]:
        """Returns the steps of a database, and the number of each owner's set of functions."""
        async with connection.transaction():
            if await connection.fetchval(HAS_STEPS_TABLE) is None:
                return [], {}
            found = await connection.fetch("select * from redrive.migration order by version")
            numbers = await connection.fetch(FUNCTION_NUMBERS) if await connection.fetchval(HAS_BOTH_TABLES) else []
        # A database of a version in development may not even have these columns.
        rows = joined("postgres", self._lines, [{"feature": "", "digest": None, **dict(row)} for row in found])
        for line in self._lines:
            digests = {row["version"]: row["digest"] for row in rows if row["feature"] == line.feature}
            schema.check_digests(line, digests, self._pool.where)
        return rows, {row["feature"]: row["number"] for row in numbers}


async def _past_deadlocks(step: Callable[[], Awaitable[T | None]]) -> T | None:
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


def _pending(line: schema.Line, rows: list[dict[str, Any]], numbers: dict[str, int]) -> list[str]:
    version = min(_version(rows, line.feature), len(line.steps))
    newer = line.newer_functions(numbers.get(line.feature, 0))
    return [line.label(part) for part in (*schema.steps_up(line.steps, version, None), newer) if part is not None]


def missing_script(
    applied: Iterable[tuple[str, int, str | None]],
    numbers: Iterable[tuple[str, int]],
    features: Sequence[Feature],
    where: str,
) -> str:
    """Returns what a database lacks as one script, for a connection that is not ours."""
    lines = schema.lines_of(STEPS, FUNCTIONS, features, "postgres")
    rows = schema.record_rows(applied)
    script = join_script("postgres", lines, rows, _note)
    script += schema.missing_script(lines, joined("postgres", lines, rows), dict(numbers), where, _note)
    return f"{BEFORE_FUNCTIONS}{script}\n{GRANT_AGAIN}" if script else ""


def _note(line: schema.Line, part: schema.Migration | schema.Functions) -> str:
    if isinstance(part, schema.Functions):
        record = RECORD_FUNCTIONS.replace("$1", f"'{line.feature}'").replace("$2", str(part.number))
        return f"{AFTER_FUNCTIONS}{record.strip()};"
    step, needs = part, schema.needs_of(line.steps, part.version)
    values = f"'{line.feature}', {step.version}, '{step.name}', {needs}, '{step.digest}'"
    return f"insert into redrive.migration (feature, version, name, needs, digest) values ({values});"  # noqa: S608


def _forget(line: schema.Line, step: schema.Migration | schema.Functions) -> str:
    assert isinstance(step, schema.Migration)
    functions = f"delete from redrive.function_set where feature = '{line.feature}';"  # noqa: S608
    table = f"delete from redrive.migration where feature = '{line.feature}' and version = {step.version};"  # noqa: S608
    return f"{functions}\n{table}"


async def _bootstrap(connection: Any) -> None:
    """Makes the table of steps. Called only when it is missing: otherwise each call would print notices about it."""
    while True:
        try:
            async with connection.transaction():
                if not await connection.fetchval(HAS_BOTH_TABLES):
                    await connection.execute(CREATE_STEPS_TABLE)
                return
        except (pg.UniqueViolationError, pg.DuplicateSchemaError, pg.DuplicateTableError, pg.DuplicateObjectError):
            await asyncio.sleep(0.05)  # another host was quicker, and has committed it
