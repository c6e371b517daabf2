"""What ``ctx.transaction()`` lends ends with its block: afterwards the connection is somebody else's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from redrive import App, Context, Fail, Task
from redrive.errors import TransactionOver
from tests.worker.conftest import drain, on_postgres


@pytest.fixture
async def _table(app: App) -> None:
    async def make(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("create table note (word text)")

    await app.task("MAKE")(make).enqueue()
    await drain(app)


async def _words(app: App) -> list[str]:
    found: list[str] = []

    async def look(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            found.extend(row["word"] for row in await tx.fetch("select word from note order by word"))

    await app.task("LOOK", max_attempts=1)(look).enqueue()
    await drain(app)
    return found


async def _task(app: App, task: Task) -> Task:
    found = await app.get(task.id)
    assert found is not None
    return found


@pytest.mark.parametrize("blocking", [False, True], ids=["async", "def"])
async def test_a_statement_after_the_block_is_refused(app: App, _table: None, blocking: bool) -> None:
    refused: list[BaseException] = []

    async def awaits(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            late = tx.execute
            begun = tx.execute("insert into note values ('a coroutine of the block')")
        attempts = (lambda: begun, lambda: late("insert into note values ('looked up')"), lambda: tx.fetch("select 1"))
        for attempt in attempts:
            with pytest.raises(TransactionOver, match="transaction is over") as caught:
                await attempt()
            refused.append(caught.value)

    def blocks(ctx: Context) -> None:
        with ctx.transaction() as tx:
            pass
        for statement in ("insert into note values ('late')", "select 1", "set role nobody"):
            with pytest.raises(TransactionOver, match="transaction is over") as caught:
                tx.execute(statement)
            refused.append(caught.value)

    await app.task("LATE", max_attempts=1)(blocks if blocking else awaits).enqueue()
    await drain(app)
    assert len(refused) == 3
    assert await _words(app) == []


async def test_a_background_task_writes_into_no_other_transaction(app: App, _table: None) -> None:
    kept: list[Any] = []
    late: list[BaseException] = []

    async def first(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("insert into note values ('first')")
        kept.append(tx)

    async def second(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("insert into note values ('second')")
            try:
                await asyncio.create_task(kept[0].execute("insert into note values ('of the first')"))
            except TransactionOver as error:
                late.append(error)
            assert tx is not kept[0]

    for kind, handler in (("FIRST", first), ("SECOND", second)):
        await app.task(kind, max_attempts=1)(handler).enqueue()
        await drain(app, concurrency=1)
    assert len(late) == 1
    assert await _words(app) == ["first", "second"]


# -- PostgreSQL: what is lent is a driver's connection, with all it can do ---------------------------------------------


async def _made(tx: Any) -> dict[str, Callable[[], Awaitable[Any]]]:
    """What a block can make, and how each is used."""
    statement = await tx.prepare("insert into note values ('prepared')")
    cursor = await tx.cursor("select generate_series(1, 9)")
    await cursor.fetch(2)
    inner = tx.transaction()
    return {"statement": statement.fetch, "cursor": lambda: cursor.fetch(2), "transaction": inner.start}


@on_postgres
async def test_what_was_made_in_the_block_ends_with_it(app: App, url: str, _table: None) -> None:
    refused: set[str] = set()

    async def handler(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            made = await _made(tx)
        for name, use in made.items():
            with suppress(asyncpg.InterfaceError):
                await use()
                continue
            refused.add(name)

    await app.task("MADE", max_attempts=1)(handler).enqueue()
    await drain(app)
    assert refused == {"statement", "cursor", "transaction"}
    assert await _words(app) == []


@on_postgres
async def test_what_is_lent_is_a_connection_of_the_driver(app: App, url: str, _table: None) -> None:
    heard: list[Any] = []

    async def handler(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            assert isinstance(tx, asyncpg.Connection)
            assert asyncio.iscoroutinefunction(tx.execute) and tx.is_in_transaction() and tx.get_server_pid()
            async with tx.transaction():
                await tx.executemany("insert into note values ($1)", [("a",), ("b",)])
            await tx.copy_records_to_table("note", records=[("c",)])
            assert [row[0] async for row in tx.cursor("select word from note order by word")] == ["a", "b", "c"]
            assert await (await tx.prepare("select count(*) from note")).fetchval() == 3
            tx.add_log_listener(lambda connection, _: heard.append(connection is tx))
            await tx.execute("do $$ begin raise warning 'loud'; end $$")
            await app.enqueue("SYSTEM_HEALTH_CHECK", connection=tx)

    task = await app.task("ALL", max_attempts=1)(handler).enqueue()
    await drain(app)
    found = await _task(app, task)
    assert found.finished, found.error_message
    assert heard == [True], "callbacks know the connection as the handler does"
    assert await _words(app) == ["a", "b", "c"]


@on_postgres
async def test_the_store_uses_no_connection_that_was_lent(app: App, url: str, _table: None) -> None:
    """Were a hold of one to be found that outlives the block, it would reach other handlers, not redrive itself."""
    lent: set[int] = set()

    async def handler(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            lent.add(tx.get_server_pid())

    await app.task("LENT", max_attempts=1)(handler).enqueue()
    await drain(app)
    store: Any = await app.store()
    own = {connection.get_server_pid() for connection in store.pool._idle.connections}
    kept = {connection.get_server_pid() for connection in store.pool._idle_lent.connections}
    assert lent <= kept and own and not own & kept


@pytest.mark.parametrize("fails", [False, True], ids=["completes", "fails"])
@on_postgres
async def test_a_role_of_the_block_is_not_the_stores(app: App, url: str, fails: bool) -> None:
    """Row-level security: the handler works as its tenant, and redrive completes the task as itself."""
    role = f"tenant_{uuid4().hex}"

    async def tenant(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute(f"set local role {role}")
            assert await tx.fetchval("select current_user") == role
            if fails:
                raise Fail("TASK_PRECONDITION_FAILED", "not now")

    admin = await asyncpg.connect(url)
    try:
        await admin.execute(f"create role {role}")
        task = await app.task("TENANT", max_attempts=1)(tenant).enqueue()
        await drain(app)
        await admin.execute(f"drop role {role}")
    finally:
        await admin.close()
    found = await _task(app, task)
    assert (found.failed, "not now" in str(found.error_message)) == (fails, fails), found.error_message


async def _prepares(tx: Any) -> None:
    await tx.prepare("select * from no_such_table")


async def _runs_prepared(tx: Any) -> None:
    await (await tx.prepare("select 1 / $1::int")).fetch(0)


async def _copies_in(tx: Any) -> None:
    await tx.copy_records_to_table("no_such_table", records=[(1,)])


async def _copies_out(tx: Any) -> None:
    await tx.copy_from_query("select 1 / 0", output=lambda _: asyncio.sleep(0))


async def _opens_a_cursor(tx: Any) -> None:
    async for _ in tx.cursor("select 1 / (2 - n) from generate_series(1, 9) n", prefetch=1):
        pass


async def _times_out(tx: Any) -> None:
    await tx.execute("select pg_sleep(9)", timeout=0.01)


async def _is_cancelled(tx: Any) -> None:
    await asyncio.wait_for(tx.execute("select pg_sleep(9)"), 0.01)


_SAYS = {
    _prepares: "no_such_table",
    _runs_prepared: "division by zero",
    _copies_in: "no_such_table",
    _copies_out: "division by zero",
    _opens_a_cursor: "division by zero",
    _times_out: "TimeoutError",
    _is_cancelled: "cancelled before it was answered",
}


@on_postgres
async def test_a_caught_error_is_the_failure_whatever_it_came_through(app: App, url: str) -> None:
    async def handler(ctx: Context, number: int) -> None:
        async with ctx.transaction() as tx:
            with suppress(asyncpg.PostgresError, TimeoutError):
                await list(_SAYS)[number](tx)

    caught = app.task("CAUGHT", max_attempts=1)(handler)
    tasks = [await caught.enqueue(number=number) for number in range(len(_SAYS))]
    await drain(app)
    for task, (body, message) in zip(tasks, _SAYS.items(), strict=True):
        found = await _task(app, task)
        assert found.failed and "current transaction is aborted" not in str(found.error_message), body.__name__
        assert message in str(found.error_message), body.__name__
