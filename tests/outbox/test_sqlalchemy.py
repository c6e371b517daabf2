"""The hook of SQLAlchemy: a flush and its events are one transaction, with blocking and asynchronous sessions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import DateTime, Numeric, create_engine, update
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from redrive.errors import ConfigError, InvalidInput
from redrive.outbox.integrations.sqlalchemy import Rule, projects
from tests.outbox.conftest import BOTH_STORES, World

pytestmark = pytest.mark.anyio
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Base(DeclarativeBase):
    pass


class Note(Base):
    __tablename__ = "note"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str]
    price: Mapped[Decimal | None] = mapped_column(Numeric(10, 2))
    at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    revision: Mapped[int] = mapped_column()
    __mapper_args__ = {"version_id_col": revision}  # noqa: RUF012


class Tag(Base):
    __tablename__ = "tag"
    name: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int]
    secret: Mapped[bool] = mapped_column(default=False)


class Pair(Base):
    __tablename__ = "pair"
    a: Mapped[int] = mapped_column(primary_key=True)
    b: Mapped[int] = mapped_column(primary_key=True)


RULES: dict[type, Rule] = {
    Note: Rule("notes"),
    Tag: Rule("notes", "tag", version="number", document=lambda tag: None if tag.secret else {"name": tag.name}),
}


def address(url: str, *, waits: bool = False) -> str:
    if url.startswith("sqlite"):
        return url.replace("sqlite://", "sqlite+aiosqlite://") if waits else url
    return url.replace("postgresql://", "postgresql+asyncpg://" if waits else "postgresql+psycopg://")


@pytest.fixture
def sessions(world: World, url: str) -> Any:
    engine = create_engine(address(url))
    Base.metadata.create_all(engine)
    made = sessionmaker(engine)
    projects(made, RULES)
    yield made
    engine.dispose()


async def events(world: World) -> list[tuple[str, str, int]]:
    tasks = sorted(await world.tasks(), key=lambda task: task.id.int)
    return [(task.scope or "", task.payload["op"], task.payload["version"]) for task in tasks]


@BOTH_STORES
async def test_what_a_flush_changes_is_published(world: World, sessions: Callable[[], Session]) -> None:
    with sessions() as session:
        session.add(note := Note(id=1, title="milk", price=Decimal("1.50"), at=NOON))
        session.commit()
        note.title = "butter"
        session.commit()
        note.title = note.title  # no change, no event
        session.commit()
        session.delete(note)
        session.commit()
    assert await events(world) == [("note:1", "create", 1), ("note:1", "upsert", 2), ("note:1", "delete", 3)]
    [first, *_] = sorted(await world.tasks(), key=lambda task: task.id.int)
    body = first.payload["payload"]
    assert (body["title"], body["price"], body["revision"]) == ("milk", "1.50", 1)
    assert body["at"].startswith("2026-01-01T12:00:00")
    await world.drain()
    assert await world.versions() == {}


async def test_a_rollback_leaves_nothing(world: World, sessions: Callable[[], Session]) -> None:
    with sessions() as session:
        session.add(Note(id=1, title="milk"))
        session.flush()
        session.rollback()
        session.add(Note(id=2, title="bread"))
        with session.begin_nested() as inner:
            session.add(Note(id=3, title="salt"))
            session.flush()
            inner.rollback()
        session.commit()
    assert await events(world) == [("note:2", "create", 1)]


async def test_versions_of_a_column_documents_and_changed_ids(world: World, sessions: Callable[[], Session]) -> None:
    with sessions() as session:
        session.add_all([tag := Tag(name="a", number=7), Tag(name="b", number=1, secret=True)])
        session.commit()
        tag.name, tag.number = "c", 8
        session.commit()
        session.execute(update(Tag).values(number=9))  # past the objects
        session.commit()
    found = await events(world)
    assert found == [("tag:a", "create", 7), ("tag:a", "delete", 8), ("tag:c", "create", 8)]
    await world.drain()
    assert await world.versions() == {"tag:c": 8}
    assert await world.fts.get("tag:c") == {"name": "c"}
    with sessions() as session:  # one that has no document any more
        hidden = session.get_one(Tag, "c")
        hidden.secret, hidden.number = True, 10
        session.commit()
    await world.drain()
    assert await world.versions() == {}


async def test_a_change_that_does_not_raise_the_version_is_refused(
    world: World, sessions: Callable[[], Session]
) -> None:
    with sessions() as session:
        session.add(tag := Tag(name="a", number=7))
        session.commit()
        tag.secret = True
        with pytest.raises(InvalidInput, match="its version is still 7"):
            session.commit()
        session.rollback()
        assert not session.get_one(Tag, "a").secret
    assert await events(world) == [("tag:a", "create", 7)]


async def test_asynchronous_sessions(world: World, url: str) -> None:
    engine = create_async_engine(address(url, waits=True))
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)

    class Own(Session):
        """The sessions of this application alone: what is listened for on ``Session`` is listened for on all."""

    sessions = async_sessionmaker(engine, class_=AsyncSession, sync_session_class=Own)
    projects(sessions, RULES)
    async with sessions() as session:
        session.add(Note(id=1, title="milk"))
        await session.flush()
        await session.rollback()
        session.add(Note(id=2, title="bread"))
        await session.commit()
    await engine.dispose()
    assert await events(world) == [("note:2", "create", 1)]


async def test_what_cannot_be_projected_is_refused(sessions: Callable[[], Session]) -> None:
    for kind, rule, said in (
        (Pair, Rule("notes", version="a"), "several columns"),
        (Tag, Rule("notes"), "has no version"),
        (Tag, Rule("notes", version="nope"), "no mapped attribute 'nope'"),
    ):
        with pytest.raises(ConfigError, match=said):
            projects(Session, {kind: rule})
    with sessions() as session, pytest.raises(InvalidInput, match=r"the version of Tag.number is -1"):
        session.add(Tag(name="x", number=-1))
        session.flush()
