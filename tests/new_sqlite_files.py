"""Makes the tables of a new SQLite file at once, as copies of a template do for PostgreSQL.

The steps one by one take 60 ms, as much as many a test. tests/migrations and tests/features go through them, and so
does every process that tests start.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing

from redrive.stores.sqlite.migrate import SqliteMigrations
from redrive.stores.sqlite.session import Session

step_by_step = SqliteMigrations.up
Steps = tuple[tuple[str, str], ...]  # feature and digest of each
_MADE: dict[Steps, tuple[str, ...]] = {}


async def at_once(self: SqliteMigrations, to: int | None = None) -> list[str]:
    """Brings a file without any table to where the steps lead; any other goes through them."""
    statements = () if to is not None else _as_they_leave_it(self)
    if not statements:
        return await step_by_step(self, to)

    def fill(session: Session) -> bool:
        if session.row("select 1 from sqlite_master") is not None:
            return False
        for statement in statements:
            session.connection.execute(statement)
        session.run("update redrive_migration set applied_at = ?", session.now)
        return True

    if not await self._writer.run(fill):
        return await step_by_step(self)
    return [line.label(step) for line in self._lines for step in line.steps]


def _as_they_leave_it(migrations: SqliteMigrations) -> tuple[str, ...]:
    """Returns the statements that make what the steps make, without what they change on the way; none if they fail."""
    steps = tuple((line.feature, step.digest) for line in migrations._lines for step in line.steps)
    if steps not in _MADE:
        with closing(sqlite3.connect(":memory:")) as made:
            try:
                made.executescript(migrations.sql())
                _MADE[steps] = tuple(one for one in made.iterdump() if one not in ("BEGIN TRANSACTION;", "COMMIT;"))
            except sqlite3.Error:
                _MADE[steps] = ()
    return _MADE[steps]
