"""What a handler's own SQL gets wrong inside ``ctx.transaction()`` is the handler's failure, alike on both stores."""

from __future__ import annotations

import json
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from redrive import App, State, Task
from redrive.errors import RedriveError
from redrive.handlers.context import Context
from redrive.stores.postgres.store import PostgresStore
from tests.worker.conftest import drain, on_postgres, on_sqlite, task_of

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


@on_sqlite
@pytest.mark.parametrize("blocking", [False, True], ids=["async", "def"])
async def test_one_that_breaks_the_connection_harms_no_other(
    app: App, url: str, tmp_path: Path, blocking: bool
) -> None:
    (tmp_path / "junk.db").write_text("no database" * 100)
    cases: dict[str, Any] = {
        "no such file": [(f"attach '{tmp_path}/none/old.db' as legacy",)],
        "no database": [(f"attach '{tmp_path}/junk.db' as legacy",), ("select * from legacy.sqlite_master",)],
    }
    for case, (task, error) in (await _failed(app, cases, blocking=blocking)).items():
        assert task.failed and isinstance(error, sqlite3.Error), case
    done = await app.enqueue("SYSTEM_HEALTH_CHECK")
    await drain(app)
    found = await task_of(app, done.id)
    assert found.finished


@pytest.mark.parametrize(("word", "blocking"), [("rollback", False), ("commit", True)])
async def test_one_that_ends_the_transaction_is_refused(app: App, word: str, blocking: bool) -> None:
    """Completed with a part of its writes would be work that is silently lost, or done twice."""
    cases = {word: [("create table e (a int)",), (word,)]}
    ((task, error),) = (await _failed(app, cases, blocking=blocking)).values()
    assert task.failed and isinstance(error, RedriveError)
    assert "ended by a statement inside it" in str(error) and "COMMIT" in (error.hint or "")


async def _ran(app: App, body: Any, *, kind: str = "OWN") -> Task:
    """The task of a handler whose block is ``body``."""

    async def handler(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await body(tx)

    task = await app.task(kind, max_attempts=1)(handler).enqueue()
    await drain(app)
    found = await app.get(task.id)
    assert found is not None
    return found


async def _refused(tx: Any) -> None:
    await tx.execute("insert into no_such_table values (1)")


async def _goes_on(tx: Any) -> None:
    with suppress(asyncpg.PostgresError):
        await _refused(tx)
    await tx.fetch("select 1")


async def _leaves(tx: Any) -> None:
    with suppress(asyncpg.PostgresError):
        await _refused(tx)


async def _swallows_all(tx: Any) -> None:
    for _ in range(3):
        await _leaves(tx)
    with suppress(asyncpg.PostgresError):
        await tx.fetch("select 1")


async def _fails_again_after_a_savepoint(tx: Any) -> None:
    with suppress(asyncpg.PostgresError):
        async with tx.transaction():
            await tx.execute("select 1 / 0")
    await _goes_on(tx)


@on_postgres
async def test_the_error_that_aborted_the_transaction_is_the_failure(app: App, url: str) -> None:
    let_out = await _ran(app, _refused, kind="LET_OUT")
    for body in (_goes_on, _leaves, _swallows_all, _fails_again_after_a_savepoint):
        caught = await _ran(app, body, kind=body.__name__)
        assert caught.failed and "no_such_table" in str(caught.error_message), body.__name__
        assert "savepoint" in str(caught.error_message) and "savepoint" not in str(let_out.error_message)
        assert (caught.error_code, caught.error_reason) == (let_out.error_code, let_out.error_reason)
        assert "ignored" not in str(caught.error_message).partition("HINT")[0]


@on_postgres
async def test_a_caught_error_is_in_the_group_of_the_same_one_let_out(app: App, url: str) -> None:
    async def handler(ctx: Context, catch: bool) -> None:
        async with ctx.transaction() as tx:
            try:
                await _refused(tx)
            except asyncpg.PostgresError:
                if not catch:
                    raise

    own = app.task("OWN", max_attempts=1)(handler)
    tasks = [await own.enqueue(catch=catch) for catch in (True, False)]
    await drain(app)
    found = [await app.get(task.id) for task in tasks]
    assert len({task.error_fingerprint for task in found if task is not None}) == 1


@on_postgres
async def test_a_def_handler_is_told_of_the_first_error_too(app: App, url: str) -> None:
    def handler(ctx: Context) -> None:
        with ctx.transaction() as tx:
            with suppress(asyncpg.PostgresError):
                tx.execute("insert into no_such_table values (1)")
            tx.fetch("select 1")

    task = await app.task("OWN", max_attempts=1)(handler).enqueue()
    await drain(app)
    found = await task_of(app, task.id)
    assert found.error_reason == "invalid_input"
    assert "no_such_table" in str(found.error_message) and "tx.execute('savepoint s')" in str(found.error_message)


@on_postgres
async def test_what_is_made_of_an_aborted_transaction_comes_from_its_first_error(app: App, url: str) -> None:
    async def wraps(tx: Any) -> None:
        try:
            await _goes_on(tx)
        except asyncpg.PostgresError as error:
            raise LookupError("no order") from error

    found = await _ran(app, wraps)
    assert "no order" in str(found.error_message)
    stack = (await _attempts(app, found))[0].stack
    assert "no_such_table" in str(stack)


async def _attempts(app: App, task: Task) -> Any:
    story = await (await app.store()).timeline(task.id)
    assert story is not None
    return story.attempts


@on_sqlite
async def test_an_error_that_ends_the_transaction_on_sqlite_is_the_failure(app: App, url: str) -> None:
    """A trigger or ``or rollback`` takes all of it back: whatever follows would be a part of nothing."""

    async def goes_on(tx: Any) -> None:
        await tx.execute("create table once (a int primary key)")
        await tx.execute("insert into once values (1)")
        with suppress(sqlite3.Error):
            await tx.execute("insert or rollback into once values (1)")
        await tx.execute("insert into once values (2)")

    found = await _ran(app, goes_on)
    assert found.failed and "UNIQUE" in str(found.error_message) and found.error_reason == "invalid_input"


_ENDINGS = ["commit; begin", "rollback; begin", "commit and chain", "rollback and chain", "commit; begin deferrable"]


@on_postgres
async def test_a_transaction_that_was_exchanged_does_not_complete_the_task(app: App, url: str) -> None:
    async def exchanges(tx: Any) -> None:
        for statement in statements:
            await tx.execute(statement)
        await tx.execute("select 1")

    for number, statements in enumerate(
        [*([ending] for ending in _ENDINGS), ["commit", "begin"], ["rollback", "begin"]]
    ):
        found = await _ran(app, exchanges, kind=f"OWN_{number}")
        assert found.failed and "ended by a statement inside it" in str(found.error_message), statements


@on_sqlite
@pytest.mark.parametrize("ending", ["commit", "rollback"])
async def test_a_transaction_cannot_be_exchanged_on_sqlite(app: App, url: str, ending: str) -> None:
    def exchange(connection: sqlite3.Connection) -> None:
        connection.execute("create table e (a int)")
        connection.execute(ending)
        connection.execute("begin immediate")

    found = await _ran(app, lambda tx: tx.run(exchange))
    assert found.failed and "ended by a statement inside it" in str(found.error_message)
    tables = await _ran(app, lambda tx: tx.execute("create table e (a int)"), kind="AFTER")
    assert tables.finished


@on_postgres
async def test_settings_and_savepoints_inside_do_not_separate_anything(app: App, url: str) -> None:
    async def harmless(tx: Any) -> None:
        await tx.execute("savepoint a")
        await tx.execute("reset all; close all; set constraints all immediate")
        await tx.execute("rollback to a")
        await tx.execute("set local timezone = 'Asia/Tokyo'")
        await tx.set_type_codec("timestamptz", schema="pg_catalog", encoder=str, decoder=str)

    found = await _ran(app, harmless)
    assert found.state is State.COMPLETED, found.error_message


_LEFT_BEHIND = """
select coalesce(nullif(current_setting('search_path'), '"$user", public'), '') as search_path,
  current_setting('statement_timeout') as statement_timeout, current_user::text as role, session_user::text as login,
  nullif(current_setting('app.tenant', true), '') as tenant, to_regclass('pg_temp.scratch')::text as temp,
  (select count(*) from pg_prepared_statements where from_sql) as prepared,
  (select count(*) from pg_cursors) as cursors,
  (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()) as locks,
  (select count(*) from pg_listening_channels()) as channels, pg_backend_pid() as pid,
  current_setting('application_name') as name, current_setting('jit') as jit
"""
_LEAVES = [
    "set search_path = pg_catalog",
    "set statement_timeout = '4s'",
    "set app.tenant = 'acme'",
    "create temp table scratch (a int)",
    "prepare mine as select 1",
    "declare forgotten cursor with hold for select 1",
    "select pg_advisory_lock(7)",
    "listen anything",
]


@on_postgres
@pytest.mark.parametrize(("blocking", "fails"), [(False, False), (True, True)], ids=["async", "def"])
async def test_what_is_done_to_a_session_ends_with_the_block(app: App, url: str, blocking: bool, fails: bool) -> None:
    seen: list[dict[str, Any]] = []

    async def awaits(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            seen.append(dict((await tx.fetch(_LEFT_BEHIND))[0]))
            for statement in _LEAVES:
                await tx.execute(statement)
            assert not fails

    def blocks(ctx: Context) -> None:
        with ctx.transaction() as tx:
            seen.append(dict(tx.fetch(_LEFT_BEHIND)[0]))
            for statement in _LEAVES:
                tx.execute(statement)
            assert not fails

    handler = app.task("LEAVES", max_attempts=1)(blocks if blocking else awaits)
    task = await handler.enqueue()
    await drain(app, concurrency=1)
    found = await task_of(app, task.id)
    assert found.failed == fails, found
    [before] = seen
    after = await _session(app, before["pid"])
    assert after == before
    assert (after["name"], after["jit"]) == ("redrive", "off")


async def _session(app: App, pid: int) -> dict[str, Any]:
    """What is left in the session of an idle connection of the store, which has to be there still."""
    store = await app.store()
    assert isinstance(store, PostgresStore)
    idle = store.pool._idle_lent.connections
    [row] = [row for each in idle if (row := await each.fetchrow(_LEFT_BEHIND))["pid"] == pid]
    return dict(row)


@on_postgres
@pytest.mark.parametrize("sets", ["role", "local role", "session authorization", "local session authorization"])
async def test_a_role_ends_with_the_block(app: App, url: str, sets: str) -> None:
    seen: list[dict[str, Any]] = []
    role = f"role_{uuid4().hex}"

    async def takes(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            seen.append(dict((await tx.fetch(_LEFT_BEHIND))[0]))
            # As for rows of one tenant: a role that has no right to redrive's tables, and should have none.
            await tx.execute(f"create role {role}; set {sets} {role}")

    task = await app.task("ROLE", max_attempts=1)(takes).enqueue()
    await drain(app, concurrency=1)
    admin = await asyncpg.connect(url)
    try:
        await admin.execute(f"drop role {role}")
    finally:
        await admin.close()
    found = await task_of(app, task.id)
    assert found.finished, found
    assert await _session(app, seen[0]["pid"]) == seen[0]


@on_postgres
async def test_what_a_handler_teaches_a_connection_reaches_neither_the_store_nor_the_next(app: App, url: str) -> None:
    loud: list[str] = []

    async def teaches(ctx: Context) -> None:
        block = ctx.transaction()
        async with block as tx:
            await tx.set_type_codec("jsonb", schema="pg_catalog", encoder=json.dumps, decoder=json.loads)
            assert (await tx.fetch("select $1::jsonb", {"a": 1}))[0][0] == {"a": 1}
            tx.add_query_logger(lambda query: loud.append(query.query))
            block.result = {"b": 2}

    async def uses(ctx: Context) -> str:
        block = ctx.transaction()
        async with block as tx:
            block.result = (await tx.fetch("select '{\"a\": 1}'::jsonb"))[0][0]
        return ""

    first = await app.task("TEACHES", max_attempts=1)(teaches).enqueue()
    await drain(app, concurrency=1)
    heard = len(loud)
    second = await app.task("USES", max_attempts=1)(uses).enqueue()
    await drain(app, concurrency=1)
    taught, used = await app.get(first.id), await app.get(second.id)
    assert taught is not None and taught.result == {"b": 2}, taught
    assert used is not None and used.result == '{"a": 1}'
    assert len(loud) == heard, "the logger went with its connection"


_OUTLIVE = [
    "locking_mode = exclusive",
    "max_page_count = 10",
    "hard_heap_limit = 1",
    "Secure_Delete(0)",
    "query_only = 1",
]


@on_sqlite
@pytest.mark.parametrize("through", ["execute", "fetch", "run"])
async def test_a_pragma_that_would_outlive_the_block_is_refused(app: App, url: str, through: str) -> None:
    reads = [
        "pragma locking_mode",
        "pragma table_info(task)",
        "pragma foreign_key_check",
        "pragma defer_foreign_keys = 1",
    ]

    async def sets(tx: Any, sql: str) -> None:
        await (tx.run(lambda connection: connection.execute(sql)) if through == "run" else getattr(tx, through)(sql))

    async def handler(ctx: Context, sql: str) -> None:
        async with ctx.transaction() as tx:
            for harmless in reads:
                await sets(tx, harmless)
            with suppress(sqlite3.Error):  # what redrive refuses is none
                await sets(tx, sql)

    own = app.task("SETS", max_attempts=1)(handler)
    tasks = [await own.enqueue(sql=f"/* mine */ PRAGMA {words}") for words in _OUTLIVE]
    await drain(app)
    for task in tasks:
        found = await app.get(task.id)
        assert found is not None and found.failed
        assert "outlives the transaction" in str(found.error_message), found.error_message
    assert (await _ran(app, lambda tx: tx.execute("create table after (a int)"), kind="AFTER")).finished
