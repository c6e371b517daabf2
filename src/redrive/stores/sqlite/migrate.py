"""Migrations on SQLite: each step is one transaction, and holding the write lock keeps every other process out."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from typing import TypeVar

from redrive.kernel.store import SchemaStatus
from redrive.stores import schema
from redrive.stores.sqlite.clock import to_datetime
from redrive.stores.sqlite.session import Row, Session
from redrive.stores.sqlite.writer import Writer

STEPS = schema.load("redrive.stores.sqlite")
BOOTSTRAP = """create table if not exists redrive_migration (
  version integer primary key, name text not null, applied_at integer not null, needs integer not null, digest text
) strict;
"""
HAS_TABLE = "select 1 from sqlite_master where type = 'table' and name = 'redrive_migration'"
APPLIED = "select * from redrive_migration order by version"
RECORD = "insert into redrive_migration (version, name, applied_at, needs, digest) values (?, ?, ?, ?, ?)"
FORGET = "delete from redrive_migration where version = ?"
T = TypeVar("T")


class SqliteMigrations:
    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def status(self) -> SchemaStatus:
        rows = await self._writer.run(_applied)
        version = _version(rows)
        pending = tuple(step.label for step in schema.steps_up(STEPS, min(version, len(STEPS)), None))
        return SchemaStatus(version, len(STEPS), pending, tuple((v, name, to_datetime(at)) for v, name, at, *_ in rows))

    async def check(self) -> None:
        rows = await self._writer.run(_applied)
        needs = max((row[3] for row in rows), default=1)
        schema.check_version(STEPS, _version(rows), needs, self._writer.location.where)

    async def up(self, to: int | None = None) -> list[str]:
        return await self._repeat(lambda session: _step_up(session, to))

    async def down(self, to: int) -> list[str]:
        return await self._repeat(lambda session: _step_down(session, to))

    def sql(self, *, down: bool = False, to: int | None = None) -> str:
        """The steps as one script, for the sqlite3 shell: one transaction, noted like steps run by us."""
        steps = schema.script(STEPS, down=down, to=to, record=_forget if down else _note)
        return f"begin immediate;\n{'' if down else BOOTSTRAP}{steps}commit;\n"

    async def _repeat(self, step: Callable[[Session], str | None]) -> list[str]:
        """One step per transaction, each looking anew at what other processes may have done meanwhile."""
        done: list[str] = []
        while (label := await self._writer.run(step)) is not None:
            done.append(label)
        return done


def _note(step: schema.Migration) -> str:
    needs = schema.needs_of(STEPS, step.version)
    at = "cast(round((julianday('now') - 2440587.5) * 86400000000) as integer)"
    values = f"{step.version}, '{step.name}', {at}, {needs}, '{step.digest}'"
    return f"insert into redrive_migration (version, name, applied_at, needs, digest) values ({values});"  # noqa: S608


def _forget(step: schema.Migration) -> str:
    return f"delete from redrive_migration where version = {step.version};"  # noqa: S608


def _step_up(session: Session, to: int | None) -> str | None:
    steps = schema.steps_up(STEPS, _version(_applied(session)), to)
    if not steps:
        return None
    step = steps[0]
    session.run(BOOTSTRAP)
    _run_script(session.connection, step.up)
    session.run(RECORD, step.version, step.name, session.now, schema.needs_of(STEPS, step.version), step.digest)
    return step.label


def _step_down(session: Session, to: int) -> str | None:
    steps = schema.steps_down(STEPS, _version(_applied(session)), to)
    if not steps:
        return None
    _run_script(session.connection, steps[0].down)
    session.run(FORGET, steps[0].version)
    return steps[0].label


def _applied(session: Session) -> list[Row]:
    rows = [] if session.row(HAS_TABLE) is None else session.rows(APPLIED)
    # A database of a version in development may not even have the column.
    schema.check_digests(STEPS, {row[0]: row[4] if len(row) > 4 else None for row in rows}, "this SQLite file")
    return rows


def _version(rows: list[Row]) -> int:
    return max((row[0] for row in rows), default=0)


def _run_script(connection: sqlite3.Connection, script: str) -> None:
    """``executescript`` would commit first; this stays inside the transaction."""
    for statement in _split(script):
        connection.execute(statement)


def _split(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
