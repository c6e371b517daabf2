"""Connections that cannot be used, and how that is said."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import psycopg2
import psycopg2.extras
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from redrive import App, Context
from redrive.errors import ConfigError, InvalidInput
from redrive.integrations import SUPPORTED
from redrive.integrations.django import own_connections
from tests.integrations.callers import engine_url
from tests.integrations.conftest import Outside


@pytest.mark.parametrize("thing", [object(), "postgresql://", 0, sqlite3, sqlite3.Connection, {}])
def test_anything_else_is_named_with_what_would_do(on_sqlite: Outside, thing: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        on_sqlite.app.sync.enqueue("OTHER", connection=thing)
    assert f"{type(thing).__module__}.{type(thing).__qualname__}" in str(caught.value)
    assert SUPPORTED in str(caught.value)


def test_an_engine_is_not_a_connection(on_sqlite: Outside) -> None:
    engine = sa.create_engine("sqlite://")
    with pytest.raises(InvalidInput, match=r"sqlalchemy\.engine\.base\.Engine"):
        on_sqlite.app.sync.enqueue("OTHER", connection=engine)


def test_an_asynchronous_psycopg2_connection(on_postgres: Outside) -> None:
    connection = psycopg2.connect(on_postgres.address, async_=True)
    psycopg2.extras.wait_select(connection)
    with pytest.raises(InvalidInput, match="would have to be polled") as caught:
        on_postgres.app.sync.enqueue("OTHER", connection=connection)
    assert caught.value.hint is not None and "AsyncConnection" in caught.value.hint
    connection.close()


async def test_a_pool_is_not_a_connection(on_postgres: Outside) -> None:
    async with asyncpg.create_pool(on_postgres.address, min_size=0) as pool:
        with pytest.raises(InvalidInput, match=r"asyncpg\.pool\.Pool "):
            await on_postgres.app.enqueue("OTHER", connection=pool)


class _Dialect:
    name = "mysql"


def test_another_database_through_sqlalchemy(on_sqlite: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection:
        monkeypatch.setattr(connection, "dialect", _Dialect())
        with pytest.raises(InvalidInput, match="to mysql; redrive keeps its tasks in PostgreSQL or SQLite"):
            on_sqlite.app.sync.enqueue("OTHER", connection=connection)
        monkeypatch.undo()


async def _refused_in_sync(app: App, connection: Any) -> None:
    """With a loop running in this thread, and from one without."""
    _refused(app, connection)
    await asyncio.to_thread(_refused, app, connection)


def _refused(app: App, connection: Any) -> None:
    with pytest.raises(TypeError, match="this connection is asynchronous"):
        app.sync.enqueue("OTHER", connection=connection)
    with pytest.raises(TypeError, match="this connection is asynchronous"):
        app.sync.enqueue_many([("OTHER", None)], connection=connection)


async def test_asynchronous_connections_are_refused_by_the_blocking_facade(on_postgres: Outside) -> None:
    """And are as good as before: nothing was sent."""
    app, address = on_postgres.app, on_postgres.address
    async with await psycopg.AsyncConnection.connect(address) as connection:
        await _refused_in_sync(app, connection)
        await app.enqueue("OTHER", connection=connection)
    plain = await asyncpg.connect(address)
    await _refused_in_sync(app, plain)
    await app.enqueue("OTHER", connection=plain)
    await plain.close()
    engine = create_async_engine(engine_url(address, "postgresql+asyncpg"))
    async with AsyncSession(engine) as session:
        await _refused_in_sync(app, session)
        await app.enqueue("OTHER", connection=session)
        await session.commit()
    await engine.dispose()
    assert on_postgres.totals == (3, 0)


async def test_aiosqlite_is_refused_by_the_blocking_facade(on_sqlite: Outside) -> None:
    async with aiosqlite.connect(on_sqlite.address) as connection:
        await _refused_in_sync(on_sqlite.app, connection)
        await on_sqlite.app.enqueue("OTHER", connection=connection)
        await connection.commit()
    assert on_sqlite.totals == (1, 0)


class Subclass(sqlite3.Connection):
    pass


class Proxy:
    """Like those of tracing libraries: all attributes, and the class, are those of what it stands for."""

    def __init__(self, target: Any) -> None:
        self._target = target

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self._target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


def test_subclasses_and_proxies_are_recognised(on_sqlite: Outside, on_postgres: Outside) -> None:
    connection = sqlite3.connect(on_sqlite.address, factory=Subclass)
    on_sqlite.app.sync.enqueue("OTHER", connection=connection)
    on_sqlite.app.sync.enqueue("OTHER", connection=Proxy(connection))
    connection.commit()
    assert on_sqlite.totals == (2, 0)
    with psycopg.connect(on_postgres.address) as other:
        on_postgres.app.sync.enqueue("OTHER", connection=Proxy(other))
    assert on_postgres.totals == (1, 0)


def test_nothing_is_imported_that_the_caller_does_not_use() -> None:
    script = """
import sys, sqlite3, tempfile, asyncio
from redrive import App
path = tempfile.mkdtemp() + "/x.db"
app = App("sqlite:///" + path)
async def migrate():
    async with app: pass
asyncio.run(migrate())
with sqlite3.connect(path) as connection:
    app.sync.enqueue("HEALTH_CHECK", connection=connection)
drivers = {"psycopg", "asyncpg", "sqlalchemy", "django", "aiosqlite"}
print(sorted(drivers & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_async_handlers_need_no_connections_of_their_own() -> None:
    async def handler(ctx: Context) -> None: ...

    with pytest.raises(ConfigError, match="own_connections is for def handlers, and 'handler' is async def"):
        own_connections(handler)
