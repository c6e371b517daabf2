"""Migrates SQLite: each step is one transaction, and holding the write lock keeps every other process out."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from redrive.errors import SchemaError
from redrive.kernel.feature import Feature
from redrive.kernel.ports.store import SchemaStatus
from redrive.stores import schema
from redrive.stores.schema import join_script, joined
from redrive.stores.sqlite.session import Session, to_datetime
from redrive.stores.sqlite.url import Location
from redrive.stores.sqlite.writer import Writer

STEPS = schema.load("redrive.stores.sqlite")
CREATE_STEPS_TABLE = """create table if not exists redrive_migration (
  feature text not null default '', version integer not null, name text not null, applied_at integer not null,
  needs integer not null, digest text, primary key (feature, version)
) strict;
"""
HAS_STEPS_TABLE = "select 1 from sqlite_master where type = 'table' and name = 'redrive_migration'"
APPLIED_STEPS = "select * from redrive_migration order by version"
APPLIED_DIGESTS = "select feature, version, digest from redrive_migration"
RECORD_STEP = (
    "insert into redrive_migration (feature, version, name, applied_at, needs, digest) values (?, ?, ?, ?, ?, ?)"
)
ONLY_WHERE = re.compile(r"^-- only where: (.+)$", re.MULTILINE)
FORGET_STEP = "delete from redrive_migration where feature = ? and version = ?"
T = TypeVar("T")


class SqliteMigrations:
    def __init__(self, writer: Writer, features: Sequence[Feature] = ()) -> None:
        self._writer = writer
        self._lines = schema.lines_of(STEPS, None, features, "sqlite")

    async def status(self) -> SchemaStatus:
        rows = await self._writer.run(self._applied)
        version = _version(rows, "")
        pending = [
            line.label(step)
            for line in self._lines
            for step in schema.steps_up(line.steps, min(_version(rows, line.feature), len(line.steps)), None)
        ]
        told = [(row["feature"], row["version"], row["name"], to_datetime(row["applied_at"])) for row in rows]
        applied = schema.applied_steps(self._lines, told)
        foreign = schema.foreign_owners(self._lines, applied)
        return SchemaStatus(version, len(STEPS), tuple(pending), applied.pop(""), applied, foreign)

    async def check(self) -> None:
        rows = await self._writer.run(self._applied)
        for line in self._lines:
            needs = max((row["needs"] for row in rows if row["feature"] == line.feature), default=1)
            schema.check_version(
                line, _version(rows, line.feature), needs, self._writer.location.where, self._writer.location.shown
            )

    async def up(self, to: int | None = None) -> list[str]:
        """Applies every step that is missing; ``to`` ends redrive's own before the last, and leaves features alone."""
        await self._writer.run(self._join_steps)
        done = await self._repeat(lambda session: self._step_up(session, self._lines[0], to))
        for line in self._lines[1:] if to is None else ():
            done += await self._repeat(partial(self._step_up, line=line, to=None))
        return done

    async def down(self, to: int) -> list[str]:
        """Goes back to a version of redrive's own; features go before the last of it does. All the way is refused while
        anybody else has the file open."""
        done: list[str] = []
        if to == 0 and not self._writer.location.memory:
            await self._writer.close()
            await asyncio.to_thread(_refuse_others, self._writer.location)
        for line in self._lines[1:] if to == 0 else ():
            done += await self._repeat(partial(self._step_down, line=line, to=0))
        return done + await self._repeat(lambda session: self._step_down(session, self._lines[0], to))

    def sql(self, *, down: bool = False, to: int | None = None) -> str:
        """Returns the steps as one script, for the sqlite3 shell: one transaction, noted like steps run by us."""
        steps = schema.scripts(self._lines, down=down, to=to, record=_forget if down else _note)
        return f"begin immediate;\n{'' if down else CREATE_STEPS_TABLE}{steps}commit;\n"

    async def _repeat(self, step: Callable[[Session], str | None]) -> list[str]:
        """Runs one step per transaction, each looking anew at what other processes may have done meanwhile."""
        done: list[str] = []
        while (label := await self._writer.run(step)) is not None:
            done.append(label)
        return done

    def _join_steps(self, session: Session) -> None:
        if session.row(HAS_STEPS_TABLE) is not None:
            rows = schema.record_rows(session.rows(APPLIED_DIGESTS))
            _run_script(session.connection, join_script("sqlite", self._lines, rows, _note))

    def _step_up(self, session: Session, line: schema.Line, to: int | None) -> str | None:
        steps = schema.steps_up(line.steps, _version(self._applied(session), line.feature), to)
        if not steps:
            return None
        step = steps[0]
        session.run(CREATE_STEPS_TABLE)
        _run_script(session.connection, step.up)
        needs = schema.needs_of(line.steps, step.version)
        session.run(RECORD_STEP, line.feature, step.version, step.name, session.now, needs, step.digest)
        return line.label(step)

    def _step_down(self, session: Session, line: schema.Line, to: int) -> str | None:
        steps = schema.steps_down(line.steps, _version(self._applied(session), line.feature), to)
        if not steps:
            return None
        _run_script(session.connection, steps[0].down)
        session.run(FORGET_STEP, line.feature, steps[0].version)
        return line.label(steps[0])

    def _applied(self, session: Session) -> list[dict[str, Any]]:
        cursor = session.connection.cursor()
        cursor.row_factory = sqlite3.Row
        known = session.row(HAS_STEPS_TABLE) is not None
        found = cursor.execute(APPLIED_STEPS) if known else ()
        rows = joined("sqlite", self._lines, [{"feature": "", "digest": None, **dict(row)} for row in found])
        for line in self._lines:
            # A database of a version in development may not even have these columns.
            digests = {row["version"]: row["digest"] for row in rows if row["feature"] == line.feature}
            schema.check_digests(line, digests, "this SQLite file")
        return rows


def _refuse_others(location: Location) -> None:
    """Refuses to go on while another connection has the file open: only the last one may leave the write-ahead log."""
    connection = sqlite3.connect(location.path, timeout=0, isolation_level=None)
    try:
        connection.execute("pragma journal_mode = delete")
    except sqlite3.OperationalError as error:
        raise SchemaError(
            f"{location.where} is open elsewhere", hint="stop whoever uses it, then remove the schema"
        ) from error
    finally:
        connection.close()


def missing_statements(
    applied: Iterable[tuple[str, int, str | None]], features: Sequence[Feature], where: str
) -> list[str]:
    """Returns the statements of the steps that a database lacks, for a connection that is not ours."""
    lines, rows = schema.lines_of(STEPS, None, features, "sqlite"), schema.record_rows(applied)
    script = join_script("sqlite", lines, rows, _note)
    return list(_split(script + schema.missing_script(lines, joined("sqlite", lines, rows), {}, where, _note)))


def _note(line: schema.Line, step: schema.Migration | schema.Functions) -> str:
    assert isinstance(step, schema.Migration)
    needs = schema.needs_of(line.steps, step.version)
    at = "cast(round((julianday('now') - 2440587.5) * 86400000000) as integer)"
    values = f"'{line.feature}', {step.version}, '{step.name}', {at}, {needs}, '{step.digest}'"
    return f"insert into redrive_migration (feature, version, name, applied_at, needs, digest) values ({values});"  # noqa: S608


def _forget(line: schema.Line, step: schema.Migration | schema.Functions) -> str:
    assert isinstance(step, schema.Migration)
    return f"delete from redrive_migration where feature = '{line.feature}' and version = {step.version};"  # noqa: S608


def _version(rows: list[dict[str, Any]], feature: str) -> int:
    return max((row["version"] for row in rows if row["feature"] == feature), default=0)


def _run_script(connection: sqlite3.Connection, script: str) -> None:
    """Runs a script inside the transaction; ``executescript`` would commit first."""
    for statement in _split(script):
        run_statement(connection.cursor(), statement)


def run_statement(cursor: Any, statement: str) -> None:
    """Runs a statement of a step. A line ``-- only where: select …`` above it says when it is left out: SQLite has no
    other way to leave alone what somebody else has in the file."""
    if (condition := ONLY_WHERE.search(statement)) is not None:
        cursor.execute(condition[1])
        if cursor.fetchone() is None:
            return
    cursor.execute(statement)


def _split(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
