"""Publishing in the caller's own transaction: with it or not at all, by the application and without one."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine

from redrive import outbox
from redrive.errors import InvalidInput
from tests.outbox.conftest import BOTH_STORES, World

pytestmark = pytest.mark.anyio
EVENT = ("notes", "note", 17, "upsert", 3, {"title": "hello"})


@contextmanager
def blocking(url: str) -> Iterator[Any]:
    """A plain connection to the store, as an application has one."""
    opened: Any = sqlite3.connect(url.removeprefix("sqlite:///")) if url.startswith("sqlite") else psycopg.connect(url)
    try:
        yield opened
    finally:
        opened.close()


@BOTH_STORES
async def test_it_lands_with_the_transaction_or_not_at_all(url: str, world: World) -> None:
    with blocking(url) as connection:
        outbox.publish(connection, *EVENT)
        connection.rollback()
        assert await world.tasks() == []
        event = outbox.publish(connection, *EVENT)
        assert await world.tasks() == []
        connection.commit()
    [task] = await world.tasks()
    assert task.id == event
    await world.drain()
    assert await world.fts.get("note:17") == {"title": "hello"}


async def test_the_application_does_the_same(url: str, world: World) -> None:
    def write() -> None:
        with blocking(url) as connection:
            world.app.sync.outbox.publish(connection, *EVENT)
            connection.rollback()
            world.app.sync.outbox.publish(connection=connection, **_named(EVENT))
            connection.commit()

    await asyncio.to_thread(write)
    assert [task.scope for task in await world.tasks()] == ["note:17"]


def _named(event: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(("projection", "entity_type", "entity_id", "op", "version", "payload"), event, strict=True))


async def test_sessions_of_sqlalchemy(url: str, world: World) -> None:
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        world.app.sync.outbox.publish(connection, *EVENT)
    engine.dispose()
    assert len(await world.tasks()) == 1


@BOTH_STORES
async def test_asynchronous_connections(url: str, world: World) -> None:
    if url.startswith("sqlite"):
        import aiosqlite

        async with aiosqlite.connect(url.removeprefix("sqlite:///")) as lite:
            await outbox.publish(lite, *EVENT)
            await lite.commit()
    else:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await outbox.publish(connection, *EVENT)
            await world.app.outbox.publish(connection, *EVENT)
    assert {task.scope for task in await world.tasks()} == {"note:17"}


async def test_many_are_all_or_none(world: World) -> None:
    good = ("note", 1, "upsert", 1, {})
    with pytest.raises(InvalidInput, match="event 1 of the list"):
        await world.app.outbox.publish_many(None, "notes", [good, ("note", 1, "upsert", -1, {})])
    with pytest.raises(InvalidInput, match="event 0 of the list"):
        await world.app.outbox.publish_many(None, "notes", [("note",)])
    assert await world.tasks() == []
    named = {"entity_type": "note", "entity_id": 2, "op": "delete", "version": 2}
    assert len(await world.app.outbox.publish_many(None, "notes", [good, named])) == 2


async def test_without_a_connection_there_is_no_transaction_to_be_part_of() -> None:
    with pytest.raises(InvalidInput, match="needs the connection"):
        outbox.publish(None, *EVENT)
