"""What a handler's own SQL gets wrong inside ``ctx.transaction()`` is the handler's failure, alike on both stores."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from redrive import App, Task
from redrive.errors import RedriveError
from redrive.handlers.context import Context
from tests.worker.conftest import drain

pytestmark = pytest.mark.anyio

WRONG: dict[str, list[str]] = {
    "no such table": ["insert into orders values (1)"],
    "no such column": ["update o set b = 1"],
    "no column named": ["insert into o (b) values (1)"],
    "syntax": ["selct 1"],
    "unique": ["insert into o values (1)", "insert into o values (1)"],
    "not null": ["insert into o values (null)"],
    "check": ["insert into o values (-1)"],
    "foreign key": ["insert into c values (7)"],
    "deferred, found by the commit": ["insert into d values (7)"],
}
TABLES = [
    "create table o (a int not null primary key check (a > 0))",
    "create table c (a int references o(a))",
    "create table d (a int references o(a) deferrable initially deferred)",
]


async def _failed(app: App, cases: dict[str, Any], *, blocking: bool) -> dict[str, tuple[Task, BaseException]]:
    """For each case the task of a handler that ran its statements, and what the handler saw."""
    seen: dict[str, BaseException] = {}

    async def awaits(ctx: Context, case: str) -> None:
        try:
            async with ctx.transaction() as tx:
                for sql, *args in cases[case]:
                    await tx.execute(sql, *args)
        except Exception as error:
            seen[case] = error
            raise

    def blocks(ctx: Context, case: str) -> None:
        try:
            with ctx.transaction() as tx:
                for sql, *args in cases[case]:
                    tx.execute(sql, *args)
        except Exception as error:
            seen[case] = error
            raise

    handler = app.task("OWN", max_attempts=1)(blocks if blocking else awaits)
    ids = {case: (await handler.enqueue(case=case)).id for case in cases}
    await drain(app)
    found = {case: await app.get(task_id) for case, task_id in ids.items()}
    return {case: (task, seen[case]) for case, task in found.items() if task is not None}


@pytest.mark.parametrize("blocking", [False, True], ids=["async", "def"])
async def test_a_statement_that_is_refused(app: App, blocking: bool) -> None:
    async def make(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            for sql in TABLES:
                await tx.execute(sql)

    await app.task("MAKE")(make).enqueue()
    await drain(app)
    cases = {case: [(sql,) for sql in statements] for case, statements in WRONG.items()}
    for case, (task, error) in (await _failed(app, cases, blocking=blocking)).items():
        assert isinstance(error, sqlite3.Error | asyncpg.PostgresError), f"{case}: {error!r}"
        assert (task.error_reason, task.failure_type) == ("invalid_input", "param_error"), f"{case}: {error!r}"
        assert not any(word in str(task.error_message) for word in ("migrate", "redrive", "refused")), case


async def test_a_value_that_does_not_fit(app: App, url: str) -> None:
    number, name = ("?", "?") if url.startswith("sqlite") else ("$1::int8", "$1::text")
    cases = {
        "number": [(f"select {number}", 2**80)],
        "text": [(f"select {name}", "\ud800")],
        "object": [(f"select {name}", object())],
        "count": [(f"select {name}", "one", "two")],
    }
    for case, (task, error) in (await _failed(app, cases, blocking=False)).items():
        assert not isinstance(error, RedriveError), f"{case}: {error!r}"
        assert (task.error_reason, task.failure_type) == ("invalid_input", "param_error"), f"{case}: {error!r}"


async def test_what_is_raised_inside_keeps_what_it_came_from(app: App) -> None:
    seen: list[BaseException] = []

    async def wraps(ctx: Context, explicit: bool) -> None:
        try:
            async with ctx.transaction() as tx:
                try:
                    await tx.execute("insert into orders values (1)")
                except Exception as error:
                    if explicit:
                        raise LookupError("no order") from error
                    raise LookupError("no order")  # noqa: B904 - as applications do
        except LookupError as error:
            seen.append(error)
            raise

    handler = app.task("WRAPS", max_attempts=1)(wraps)
    for explicit in (True, False):
        await handler.enqueue(explicit=explicit)
    await drain(app, concurrency=1)
    for error in seen:
        assert isinstance(error.__context__, sqlite3.Error | asyncpg.PostgresError)
    assert [error.__cause__ is not None for error in seen] == [True, False]


@pytest.mark.parametrize("blocking", [False, True], ids=["async", "def"])
async def test_one_that_breaks_the_connection_harms_no_other(
    app: App, url: str, tmp_path: Path, blocking: bool
) -> None:
    if not url.startswith("sqlite"):
        pytest.skip("a connection of SQLite's, which everybody writes through")
    (tmp_path / "junk.db").write_text("no database" * 100)
    cases: dict[str, Any] = {
        "no such file": [(f"attach '{tmp_path}/none/old.db' as legacy",)],
        "no database": [(f"attach '{tmp_path}/junk.db' as legacy",), ("select * from legacy.sqlite_master",)],
        "read only": [("create table x (a)",), ("pragma query_only = 1",), ("insert into x values (1)",)],
    }
    for case, (task, error) in (await _failed(app, cases, blocking=blocking)).items():
        assert task.failed and isinstance(error, sqlite3.Error), case
    done = await app.enqueue("SYSTEM_HEALTH_CHECK")
    await drain(app)
    found = await app.get(done.id)
    assert found is not None and found.finished


@pytest.mark.parametrize("word", ["rollback", "commit"])
@pytest.mark.parametrize("blocking", [False, True], ids=["async", "def"])
async def test_one_that_ends_the_transaction_is_refused(app: App, word: str, blocking: bool) -> None:
    """Completed with a part of its writes would be work that is silently lost, or done twice."""
    cases = {word: [("create table e (a int)",), (word,)]}
    ((task, error),) = (await _failed(app, cases, blocking=blocking)).values()
    assert task.failed and isinstance(error, RedriveError)
    assert "ended by a statement inside it" in str(error) and "COMMIT" in (error.hint or "")
