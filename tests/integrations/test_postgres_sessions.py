"""What a caller's PostgreSQL session may be like, and what it may not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from psycopg.rows import namedtuple_row

from redrive.errors import SchemaError, StoreError
from redrive.settings import Options
from tests.databases import Databases
from tests.integrations.callers import (
    AlchemyAsyncSession,
    AlchemyPsycopg2Session,
    AlchemySession,
    Asyncpg,
    Caller,
    Django,
    Psycopg,
    Psycopg2,
    PsycopgAsync,
    engine_url,
)
from tests.integrations.conftest import Outside, make_app, seen

KINDS: list[type[Caller]] = [
    Psycopg,
    Psycopg2,
    PsycopgAsync,
    Asyncpg,
    AlchemySession,
    AlchemyPsycopg2Session,
    AlchemyAsyncSession,
    Django,
]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def test_autocommit_commits_at_once(on_postgres: Outside) -> None:
    with psycopg.connect(on_postgres.address, autocommit=True, row_factory=namedtuple_row) as connection:
        task = on_postgres.app.sync.enqueue("OTHER", connection=connection)
        assert on_postgres.tasks == [str(task.id)]


async def test_asyncpg_outside_of_a_transaction_commits_at_once(on_postgres: Outside) -> None:
    connection = await asyncpg.connect(on_postgres.address)
    task = await on_postgres.app.enqueue("OTHER", connection=connection)
    await connection.close()
    assert on_postgres.tasks == [str(task.id)]


def test_psycopgs_transaction_blocks_nest(on_postgres: Outside) -> None:
    with psycopg.connect(on_postgres.address, autocommit=True) as connection:
        with connection.transaction():
            on_postgres.app.sync.enqueue("OTHER", connection=connection)
            with connection.transaction(force_rollback=True):
                on_postgres.app.sync.enqueue("OTHER", connection=connection)
            assert on_postgres.tasks == []
    assert on_postgres.totals == (1, 0)


def test_psycopgs_pipeline(on_postgres: Outside) -> None:
    with psycopg.connect(on_postgres.address) as connection, connection.pipeline():
        connection.execute("insert into business values ('piped')")
        on_postgres.app.sync.enqueue("OTHER", connection=connection)
    assert (on_postgres.totals, on_postgres.business) == ((1, 0), ["piped"])


def test_odd_session_settings(on_postgres: Outside) -> None:
    options = "-c datestyle=SQL,DMY -c timezone=Asia/Kathmandu -c search_path=pg_temp -c bytea_output=escape"
    with psycopg.connect(on_postgres.address, options=options) as connection:
        on_postgres.app.sync.enqueue("OTHER", delay=3600, connection=connection)
        on_postgres.app.sync.enqueue("SHIP", {"order": 1}, idempotency_key="k", connection=connection)
        on_postgres.app.sync.enqueue("SHIP", {"order": 1}, idempotency_key="k", connection=connection)
    assert on_postgres.totals == (1, 1)


def test_a_rolled_back_savepoint_of_the_session(on_postgres: Outside) -> None:
    engine = sa.create_engine(engine_url(on_postgres.address, "postgresql+psycopg"))
    with sa.orm.Session(engine) as session:
        on_postgres.app.sync.enqueue("OTHER", connection=session)
        nested = session.begin_nested()
        on_postgres.app.sync.enqueue("OTHER", connection=session)
        nested.rollback()
        session.commit()
    engine.dispose()
    assert on_postgres.totals == (1, 0)


@each_kind
def test_a_failed_transaction_is_the_drivers_own_error(on_postgres: Outside, kind: type[Caller]) -> None:
    async def scenario(caller: Caller) -> None:
        with pytest.raises(Exception, match="syntax error"):
            await caller.write("' nonsense")
        with pytest.raises(Exception, match=r"current transaction is aborted|atomic") as caught:
            await caller.enqueue("OTHER")
        assert not isinstance(caught.value, StoreError)

    kind(on_postgres.address, on_postgres.app).play(scenario)
    assert on_postgres.tasks == []


@each_kind
def test_no_schema(empty_postgres_url: str, kind: type[Caller]) -> None:
    async def scenario(caller: Caller) -> None:
        with pytest.raises(SchemaError, match="no usable redrive schema") as caught:
            await caller.enqueue("OTHER")
        assert caught.value.hint is not None and "redrive migrate" in caught.value.hint
        assert caught.value.__cause__ is not None

    kind(empty_postgres_url, make_app(empty_postgres_url)).play(scenario)


@pytest.fixture
def role(databases: Databases, on_postgres: Outside) -> Iterator[str]:
    with databases.role("producer") as name:
        yield name
        with psycopg.connect(on_postgres.address, autocommit=True) as admin:
            admin.execute(f"drop owned by {name}")


@each_kind
def test_no_privilege(databases: Databases, shop: str, on_postgres: Outside, role: str, kind: type[Caller]) -> None:
    async def scenario(caller: Caller) -> None:
        with pytest.raises(StoreError, match="may not enqueue") as caught:
            await caller.enqueue("OTHER")
        assert not isinstance(caught.value, SchemaError)

    kind(databases.url(shop, user=role), on_postgres.app).play(scenario)


def test_the_right_to_call_enqueue_is_enough(databases: Databases, shop: str, on_postgres: Outside, role: str) -> None:
    with psycopg.connect(on_postgres.address) as admin:
        admin.execute(f"grant usage on schema redrive to {role}")
        admin.execute(
            f"""do $$ declare f regprocedure; begin
              for f in select oid from pg_proc where pronamespace = 'redrive'::regnamespace
                and proname in ('enqueue', 'enqueue_declared')
              loop execute format('grant execute on function %s to {role}', f); end loop; end $$"""
        )
    with psycopg.connect(databases.url(shop, user=role)) as producer:
        on_postgres.app.sync.enqueue("SHIP", {"order": 1}, idempotency_key="k", connection=producer)
    assert on_postgres.totals == (1, 0)


def test_a_key_that_came_in_after_the_snapshot_is_the_databases_own_error(on_postgres: Outside) -> None:
    """Never a second task, and never a wrong answer: the caller repeats the transaction, as always at this level."""
    with psycopg.connect(on_postgres.address) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("select * from business").fetchall()
        with psycopg.connect(on_postgres.address) as other:
            first = on_postgres.app.sync.enqueue("OTHER", idempotency_key="k", connection=other)
        with pytest.raises(psycopg.errors.SerializationFailure):
            on_postgres.app.sync.enqueue("OTHER", idempotency_key="k", connection=connection)
        connection.rollback()
        again = on_postgres.app.sync.enqueue("OTHER", idempotency_key="k", connection=connection)
    assert again.id == first.id
    assert on_postgres.totals == (1, 0)


def test_a_key_of_an_open_transaction_is_waited_for(on_postgres: Outside) -> None:
    app = on_postgres.app
    with psycopg.connect(on_postgres.address) as first, psycopg.connect(on_postgres.address) as second:
        made = app.sync.enqueue("OTHER", idempotency_key="k", connection=first)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(app.sync.enqueue, "OTHER", idempotency_key="k", connection=second)
            while not on_postgres.ask("select 1 from pg_locks where not granted"):
                assert not waiting.done()
            first.commit()
            assert waiting.result(60).id == made.id
    assert on_postgres.totals == (1, 0)


def test_a_producer_that_commits_late_is_not_passed_over(on_postgres: Outside) -> None:
    """Its place in the queue lies before what workers have already gone past."""
    with psycopg.connect(on_postgres.address) as late:
        on_postgres.app.sync.enqueue("SHIP", {"order": 1}, connection=late)

        async def scenario() -> None:
            worker = on_postgres.app.worker(await on_postgres.app.store(), Options(sleep=60, concurrency=5))
            running = asyncio.create_task(worker.run())
            await on_postgres.app.enqueue_many([("OTHER", None)] * 50)
            async with asyncio.timeout(50):
                while len(seen) < 50:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.3)
                late.commit()
                while len(seen) < 51:
                    await asyncio.sleep(0.01)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await on_postgres.app.close()

        seen.clear()
        asyncio.run(scenario())
    assert seen[-1] == {"order": 1, "note": ""}
