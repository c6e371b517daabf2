"""Callers with a connection of their own, one class for each way of holding one.

All have the same verbs. A blocking caller's verbs never wait, so its scenarios are played without any event loop: the
proof that redrive does not need one either.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sqlite3
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, TypeVar

import aiosqlite
import asyncpg
import django
import psycopg
import psycopg2
import psycopg2.extras
import sqlalchemy as sa
from django.conf import settings as django_settings
from django.db import connection as django_connection
from django.db import connections as django_connections
from django.db import transaction as django_transaction
from django.db.utils import ConnectionHandler
from psycopg import conninfo
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from redrive import App
from redrive.kernel.task import Task

T = TypeVar("T")


async def settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    try:
        coroutine.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    coroutine.close()
    raise AssertionError("a blocking connection waited")


class Caller:
    """``handle`` is what the caller gives to redrive."""

    store: ClassVar[str]
    blocking = True
    handle: Any

    def __init__(self, url: str, app: App) -> None:
        self.url = url
        self.app = app

    def play(self, scenario: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        async def whole() -> T:
            await settled(self.connect())
            try:
                return await scenario(self, *args)
            finally:
                await settled(self.close())

        return finish(whole()) if self.blocking else asyncio.run(whole())

    async def enqueue(self, kind: str, payload: Any = None, **options: Any) -> Task:
        if self.blocking:
            return self.app.sync.enqueue(kind, payload, connection=self.handle, **options)
        return await self.app.enqueue(kind, payload, connection=self.handle, **options)

    async def enqueue_many(self, tasks: list[Any]) -> list[Task]:
        if self.blocking:
            return self.app.sync.enqueue_many(tasks, connection=self.handle)
        return await self.app.enqueue_many(tasks, connection=self.handle)

    async def write(self, note: str) -> None:
        """The caller's business, in the same transaction."""
        await settled(self.run(f"insert into business (note) values ('{note}')"))

    def connect(self) -> Any:
        raise NotImplementedError

    def close(self) -> Any:
        self.handle.close()

    def run(self, sql: str) -> Any:
        self.handle.execute(sql)

    def begin(self) -> Any:
        """For connections that do not begin by themselves."""

    def commit(self) -> Any:
        return self.handle.commit()

    def rollback(self) -> Any:
        return self.handle.rollback()


class OfCursor(Caller):
    """Gives a cursor; its connection is the caller's own."""

    connection: Any

    def close(self) -> None:
        self.connection.close()

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()


# -- psycopg -----------------------------------------------------------------------------------------------------------


class Psycopg(Caller):
    store = "postgres"
    options: ClassVar[dict[str, Any]] = {}

    def connect(self) -> None:
        self.handle = psycopg.connect(self.url, **self.options)


class PsycopgDictRows(Psycopg):
    options: ClassVar[dict[str, Any]] = {"row_factory": dict_row}


class PsycopgRawCursors(Psycopg):
    options: ClassVar[dict[str, Any]] = {"cursor_factory": psycopg.RawCursor}


class PsycopgCursor(OfCursor, Psycopg):
    def connect(self) -> None:
        self.connection = psycopg.connect(self.url)
        self.handle = self.connection.cursor()


class Psycopg2(Caller):
    store = "postgres"
    options: ClassVar[dict[str, Any]] = {}

    def connect(self) -> None:
        self.handle = psycopg2.connect(self.url, **self.options)

    def run(self, sql: str) -> None:
        with self.handle.cursor() as cursor:
            cursor.execute(sql)


class Psycopg2DictRows(Psycopg2):
    options: ClassVar[dict[str, Any]] = {"cursor_factory": psycopg2.extras.RealDictCursor}


class Psycopg2Cursor(PsycopgCursor):
    def connect(self) -> None:
        self.connection = psycopg2.connect(self.url)
        self.handle = self.connection.cursor()


class PsycopgAsync(Caller):
    store = "postgres"
    blocking = False

    async def connect(self) -> None:
        self.handle = await psycopg.AsyncConnection.connect(self.url, row_factory=dict_row)

    async def close(self) -> None:
        await self.handle.close()

    async def run(self, sql: str) -> None:
        await self.handle.execute(sql)


# -- asyncpg -----------------------------------------------------------------------------------------------------------


class Asyncpg(Caller):
    store = "postgres"
    blocking = False

    async def connect(self) -> None:
        self.handle = await asyncpg.connect(self.url)
        # What many applications do; a payload must not be encoded a second time by it.
        await self.handle.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
        await self.begin()

    async def close(self) -> None:
        await self.handle.close()

    async def run(self, sql: str) -> None:
        await self.handle.execute(sql)

    async def begin(self) -> None:
        self.transaction = self.handle.transaction()
        await self.transaction.start()

    async def commit(self) -> None:
        await self.transaction.commit()

    async def rollback(self) -> None:
        await self.transaction.rollback()


class AsyncpgPool(Asyncpg):
    async def connect(self) -> None:
        self.pool = await asyncpg.create_pool(self.url, min_size=1, max_size=1)
        self.handle = await self.pool.acquire()
        await self.begin()

    async def close(self) -> None:
        await self.pool.release(self.handle)
        await self.pool.close()


# -- sqlite3 -----------------------------------------------------------------------------------------------------------


class Sqlite3(Caller):
    store = "sqlite"

    def connect(self) -> None:
        self.handle = sqlite3.connect(self.url)
        self.handle.row_factory = lambda cursor, row: {"just": row}
        self.handle.text_factory = bytes


class Sqlite3Explicit(Sqlite3):
    """Transactions by hand: ``isolation_level=None``, BEGIN and COMMIT."""

    def connect(self) -> None:
        self.handle = sqlite3.connect(self.url, isolation_level=None)
        self.begin()

    def begin(self) -> None:
        self.run("begin")

    def commit(self) -> None:
        self.run("commit")

    def rollback(self) -> None:
        self.run("rollback")


class Sqlite3Cursor(OfCursor, Sqlite3):
    def connect(self) -> None:
        self.connection = sqlite3.connect(self.url)
        self.handle = self.connection.cursor()


class Aiosqlite(Caller):
    store = "sqlite"
    blocking = False

    async def connect(self) -> None:
        self.handle = await aiosqlite.connect(self.url)

    async def close(self) -> None:
        await self.handle.close()

    async def run(self, sql: str) -> None:
        await self.handle.execute(sql)


# -- SQLAlchemy --------------------------------------------------------------------------------------------------------


def engine_url(url: str, driver: str) -> sa.URL:
    """The address of a test's database as SQLAlchemy spells it."""
    if "sqlite" in driver:
        return sa.URL.create(driver, database=url)
    parts = conninfo.conninfo_to_dict(url)
    return sa.URL.create(
        driver,
        username=str(parts["user"]),
        database=str(parts["dbname"]),
        password=str(parts["password"]) if "password" in parts else None,
        query={"host": str(parts["host"]), "port": str(parts.get("port", 5432))},
    )


class AlchemyConnection(Caller):
    driver = "postgresql+psycopg"
    store = "postgres"

    def connect(self) -> None:
        self.engine = sa.create_engine(engine_url(self.url, self.driver))
        self.handle = self.make()

    def make(self) -> Any:
        return self.engine.connect()

    def close(self) -> None:
        self.handle.close()
        self.engine.dispose()

    def run(self, sql: str) -> None:
        self.handle.execute(sa.text(sql))


class AlchemySession(AlchemyConnection):
    def make(self) -> Any:
        return Session(self.engine)


class AlchemyScopedSession(AlchemyConnection):
    def make(self) -> Any:
        return scoped_session(sessionmaker(self.engine))


class AlchemyPsycopg2Connection(AlchemyConnection):
    driver = "postgresql+psycopg2"


class AlchemyPsycopg2Session(AlchemySession):
    driver = "postgresql+psycopg2"


class AlchemyAsyncConnection(Caller):
    driver = "postgresql+asyncpg"
    store = "postgres"
    blocking = False

    async def connect(self) -> None:
        self.engine = create_async_engine(engine_url(self.url, self.driver))
        self.handle = await self.make()

    async def make(self) -> Any:
        return await self.engine.connect()

    async def close(self) -> None:
        await self.handle.close()
        await self.engine.dispose()

    async def run(self, sql: str) -> None:
        await self.handle.execute(sa.text(sql))


class AlchemyAsyncSession(AlchemyAsyncConnection):
    async def make(self) -> Any:
        return AsyncSession(self.engine)


class AlchemyAsyncScopedSession(AlchemyAsyncConnection):
    async def make(self) -> Any:
        return async_scoped_session(async_sessionmaker(self.engine), asyncio.current_task)


class AlchemyAsyncPsycopg(AlchemyAsyncSession):
    driver = "postgresql+psycopg"


class AlchemySqliteConnection(AlchemyConnection):
    driver = "sqlite+pysqlite"
    store = "sqlite"


class AlchemySqliteSession(AlchemySession):
    driver = "sqlite+pysqlite"
    store = "sqlite"


class AlchemySqliteBegins(AlchemySqliteConnection):
    """The recipe of SQLAlchemy's manual for real transactions: the driver's own BEGIN off, an explicit one on."""

    def connect(self) -> None:
        super().connect()
        self.handle.close()
        self.engine.dispose()
        sa.event.listen(self.engine, "connect", lambda raw, _: setattr(raw, "isolation_level", None))
        sa.event.listen(self.engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
        self.handle = self.make()


class AlchemyAiosqliteSession(AlchemyAsyncSession):
    driver = "sqlite+aiosqlite"
    store = "sqlite"


class AlchemyAiosqliteConnection(AlchemyAsyncConnection):
    driver = "sqlite+aiosqlite"
    store = "sqlite"


# -- Django ------------------------------------------------------------------------------------------------------------


class Django(Caller):
    store = "postgres"

    def connect(self) -> None:
        if not django_settings.configured:
            # DEBUG keeps a log of statements, which formats their parameters: that has to work as well.
            django_settings.configure(USE_TZ=True, DEBUG=True)
            django.setup()
        django_connections.settings["default"] = ConnectionHandler({"default": self.database()}).settings["default"]
        self.handle = django_connection
        self.begin()

    def database(self) -> dict[str, Any]:
        parts = conninfo.conninfo_to_dict(self.url)
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": parts["dbname"],
            "USER": parts["user"],
            "PASSWORD": parts.get("password", ""),
            "HOST": parts["host"],
            "PORT": parts.get("port", ""),
        }

    def close(self) -> None:
        if self.handle.in_atomic_block:
            self.rollback()
        self.handle.close()
        del django_connections["default"]

    def run(self, sql: str) -> None:
        with self.handle.cursor() as cursor:
            cursor.execute(sql)

    def begin(self) -> None:
        self.atomic = django_transaction.atomic()
        self.atomic.__enter__()

    def commit(self) -> None:
        self.atomic.__exit__(None, None, None)

    def rollback(self) -> None:
        error = RuntimeError("the caller's own")
        self.atomic.__exit__(type(error), error, None)


class DjangoSqlite(Django):
    store = "sqlite"

    def database(self) -> dict[str, Any]:
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": self.url}

    def connect(self) -> None:
        super().connect()
        self.handle = django_connections["default"]


# One of each driver and library; the first of them for what follows from the statements, which all of them share.
KINDS: list[type[Caller]] = [
    Psycopg,
    Asyncpg,
    Django,
    Sqlite3,
    AlchemySqliteSession,
    DjangoSqlite,
    Psycopg2,
    PsycopgAsync,
    AlchemySession,
    AlchemyAsyncSession,
    Aiosqlite,
    AlchemyAiosqliteSession,
]
FEW = KINDS[:6]
# Other ways to use them: other rows and cursors, other handles, other drivers beneath.
VARIANTS: list[type[Caller]] = [
    Psycopg2DictRows,
    Psycopg2Cursor,
    AlchemyPsycopg2Connection,
    AlchemyPsycopg2Session,
    PsycopgDictRows,
    PsycopgRawCursors,
    PsycopgCursor,
    AsyncpgPool,
    AlchemyConnection,
    AlchemyScopedSession,
    AlchemyAsyncConnection,
    AlchemyAsyncScopedSession,
    AlchemyAsyncPsycopg,
    Sqlite3Explicit,
    Sqlite3Cursor,
    AlchemySqliteConnection,
    AlchemySqliteBegins,
    AlchemyAiosqliteConnection,
]
CALLERS = [*KINDS, *VARIANTS]
