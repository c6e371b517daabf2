"""Documents that only the new index of a rebuild refuses: the rebuild's problem, and not that of live events."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from redrive import App, State
from redrive.kernel.commit import Commit
from redrive.kernel.operation import Operation, Status
from redrive.outbox.event import Event
from redrive.outbox.index_job import MOST_REFUSED, REBUILD, IndexJob, Phase, job_of
from redrive.outbox.sinks.fts5 import Fts5
from redrive.outbox.source import Record
from redrive.outbox.verdict import Failed, Verdict
from tests.outbox.conftest import World, make_app

pytestmark = pytest.mark.anyio
NEVER = Failed("deterministic_exception", "no such field")


class Strict(Fts5):
    """Full text whose new indexes do not take documents that are ``odd``."""

    async def write(self, events: Sequence[Event], index: str | None = None) -> Sequence[Verdict]:
        odd = [index is not None and "odd" in (event.payload or {}) for event in events]
        rest = iter(
            await super().write([event for event, is_odd in zip(events, odd, strict=True) if not is_odd], index)
        )
        return [NEVER if is_odd else next(rest) for is_odd in odd]


class Memory:
    """A source that cannot be read for a while: a rebuild goes no further, and events go to both indexes."""

    def __init__(self) -> None:
        self.away = True

    async def scan(self, after: str, limit: int) -> list[Record]:
        if self.away:
            raise ConnectionError
        return [one for one in [Record("note", "1", 1, {"title": "one"})] if one.key > after]

    async def fetch(self, keys: Any) -> list[Record]:
        return []


async def rebuilding(app: App, **allowed: Any) -> Operation:
    """Begins a rebuild; returns it when events go to both indexes."""
    begun = await app.outbox.rebuild("notes", **allowed)
    async with asyncio.timeout(60):
        while (await job_of(await app.store(), REBUILD, "notes")).extra_index is None:
            await app.worker(queues="nothing", stop_when_empty=True).run()
    return begun


async def projected(world: World, entity_id: int, payload: Any) -> State:
    event_id = await world.publish(entity_id, "upsert", 1, payload)
    await world.drain()
    return next(task.state for task in await world.tasks() if task.id == event_id)


@pytest.fixture
async def world(tmp_path: Path) -> Any:
    app, fts = make_app(f"sqlite:///{tmp_path}/redrive.db"), Strict(tmp_path / "search.db")
    source = Memory()
    app.outbox.projection("notes", sink=lambda: Strict(tmp_path / "search.db"), source=source)
    await app.migrate()
    yield World(app, fts, source)  # type: ignore[arg-type]
    await app.close()
    await fts.close()


async def ended(world: World, begun: Operation) -> Operation:
    world.sink.away = False  # type: ignore[attr-defined]
    worker = asyncio.create_task(world.app.worker().run())
    try:
        return await world.app.outbox.ended(begun, seconds=120)
    finally:
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


@pytest.mark.parametrize("allowed", [0, 1])
async def test_live_events_stay_done(world: World, allowed: int) -> None:
    begun = await rebuilding(world.app, allow_refused=allowed)
    assert await projected(world, 7, {"odd": 1}) is State.COMPLETED
    assert await projected(world, 8, {"title": "eight"}) is State.COMPLETED
    assert await world.versions() == {"note:7": 1, "note:8": 1}
    over = await ended(world, begun)
    assert over.work is not None
    assert over.work.result["refused"] == ["note:7: deterministic_exception: no such field"]
    if allowed:
        assert (over.status, over.skipped) == (Status.COMPLETED, 1)
        assert await world.versions() == {"note:1": 1, "note:8": 1}
    else:
        assert over.status is Status.STOPPED and await world.versions() == {"note:7": 1, "note:8": 1}
    job = await job_of(await world.app.store(), REBUILD, "notes")
    assert (job.refused, job.refused_more) == ({}, 0), "what errors quote is kept in one place"


async def test_an_event_fails_where_the_new_index_becomes_the_live_one(world: World) -> None:
    await rebuilding(world.app)
    store = await world.app.store()
    job = await job_of(store, REBUILD, "notes")
    await store.apply(Commit(puts=[replace(job, phase=Phase.SWITCHING).put()]))
    projection = world.app.outbox.projections["notes"]
    assert not await projection.refused(store, str(job.index), {"note:7": "no such field"})
    assert (await job_of(store, REBUILD, "notes")).refused == {}


async def test_several_tell_at_once(world: World) -> None:
    await rebuilding(world.app, allow_refused=1000)
    store, projection = await world.app.store(), world.app.outbox.projections["notes"]
    index = str((await job_of(store, REBUILD, "notes")).index)
    told = [projection.refused(store, index, {f"note:{n}": "never", "note:0": "never"}) for n in range(8)]
    assert all(await asyncio.gather(*told))
    assert set((await job_of(store, REBUILD, "notes")).refused) == {f"note:{n}" for n in range(8)}


def test_so_many_are_remembered_and_the_others_counted() -> None:
    many = {f"note:{n}": "never" for n in range(MOST_REFUSED + 3)}
    job = IndexJob(REBUILD, "notes").refusing({"note:0": "never"}).refusing(many)
    assert (len(job.refused), job.refused_more) == (MOST_REFUSED, 3)
