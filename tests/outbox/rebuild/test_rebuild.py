"""A projection is rebuilt from its table while the table changes."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive.errors import Conflict, InvalidInput, NotAllowed
from redrive.kernel.operation import Status
from redrive.ops import views
from redrive.ops.access import Caller, Role
from redrive.outbox import compare
from redrive.outbox import rebuild as rebuild_module
from redrive.outbox.index_job import REBUILD, Phase, job_of
from redrive.outbox.rebuild import Rebuild, delete_of, event_of_record
from redrive.outbox.service import OutboxService
from redrive.outbox.settings import OutboxSettings
from redrive.outbox.source import Page, Record
from redrive.outbox.table_source import TableSource
from tests.outbox.conftest import World, make_app
from tests.outbox.rebuild.conftest import EVERY_SINK, Notes
from tests.worker.conftest import until

pytestmark = pytest.mark.anyio


@EVERY_SINK
async def test_what_was_lost_is_there_afterwards(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuild_module, "PAGE", 4)
    monkeypatch.setattr(compare, "PAGE", 4)
    asked: list[int] = []
    page = TableSource.page

    async def counted(self: TableSource, after: str | None, limit: int) -> Page:
        asked.append(limit)
        return await page(self, after, limit)

    notes.add(1, 10)
    await notes.work()
    version = (await notes.source())["notes:3"][0]
    monkeypatch.setattr(TableSource, "page", counted)
    lost = [delete_of("notes:3", version + 10), delete_of("notes:99", 7)]
    await notes.sink.write(lost)  # by accident
    assert len(await notes.versions()) == 9
    begun = await notes.rebuild(reason="a document is missing")
    over = await notes.work(begun)
    assert over is not None and (over.status, over.done, over.total, over.skipped) == (Status.COMPLETED, 10, 10, 0)
    assert asked and set(asked) == {4}, "a page at a time"
    monkeypatch.undo()
    job = await notes.job()
    assert (job.operation, job.phase) == (None, Phase.NONE)
    await notes.check_same()
    rows = (await (await notes.app.operator(Caller("ann", Role.ADMIN))).audit.query()).rows
    assert [row.action for row in rows if row.bulk_id == begun.id] == ["OUTBOX_REBUILD_SUMMARY", "OPERATION_START"]


@EVERY_SINK
async def test_changes_during_a_rebuild(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random creates, updates and deletes between the pages, whose events arrive before and after their pages."""
    monkeypatch.setattr(rebuild_module, "PAGE", 7)
    chosen, page = random.Random(15), TableSource.page
    notes.add(1, 60)
    await notes.work()

    async def changing(self: TableSource, after: str | None, limit: int) -> Page:
        for _ in range(chosen.randrange(4)):
            _change(notes, chosen)
        found = await page(self, after, limit)
        for _ in range(chosen.randrange(4)):  # after the page was read, and before it is written
            _change(notes, chosen)
        if chosen.random() < 0.5:
            await notes.app.worker(queues="outbox:notes", max_jobs=20, stop_when_empty=True).run()
        return found

    monkeypatch.setattr(TableSource, "page", changing)
    begun = await notes.rebuild()
    over = await notes.work(begun)
    assert over is not None and over.status is Status.COMPLETED
    monkeypatch.undo()
    await notes.check_same()


def _change(notes: Notes, chosen: random.Random) -> None:
    one = chosen.randrange(1, 80)
    notes.run(
        chosen.choice(
            [
                f"insert into notes (id, title) values ({one}, 'new') on conflict (id) do nothing",
                f"update notes set title = 'changed {chosen.randrange(1000)}' where id = {one}",
                f"delete from notes where id = {one}",
            ]
        )
    )


async def test_a_late_older_event_brings_nothing_back(notes: Notes) -> None:
    notes.add(1, 3)
    await notes.work()
    old = (await notes.source())["notes:2"][0]
    notes.run("delete from notes where id = 2")
    await notes.work()
    await notes.work(await notes.rebuild())
    await notes.app.outbox.publish(None, "notes", "notes", 2, "upsert", old, {"title": "late"})
    await notes.work()
    await notes.check_same()


async def test_pause_and_resume(notes: Notes) -> None:
    notes.add(1, 5)
    await notes.work()
    operations = (await notes.app.operator(Caller("ann", Role.OPERATOR))).operations
    begun = await notes.rebuild()
    await operations.pause(begun.id)
    await notes.work()
    assert (await notes.operation(begun.id)).done == 0
    with pytest.raises(Conflict, match="a rebuild of notes is under way"):
        await notes.rebuild()
    assert (await notes.job()).operation is not None
    await operations.resume(begun.id)
    over = await notes.work(begun)
    assert over is not None and (over.status, over.done) == (Status.COMPLETED, 5)
    assert (await notes.job()).operation is None


@EVERY_SINK
async def test_a_cancelled_rebuild_leaves_nothing(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    notes.add(1, 5)
    await notes.work()
    live = await notes.versions()
    operations = (await notes.app.operator(Caller("ann", Role.OPERATOR))).operations
    begun = await notes.rebuild()
    page, index = TableSource.page, (await notes.job()).index
    assert index is not None
    seen: list[Any] = []

    async def cancelled(self: TableSource, after: str | None, limit: int) -> Page:
        seen.append(await notes.app.outbox.projections["notes"].indexes(await notes.app.store()))
        await operations.cancel(begun.id, "enough")
        return await page(self, after, limit)

    monkeypatch.setattr(TableSource, "page", cancelled)
    over = await notes.work(begun)
    assert over is not None and over.status is Status.CANCELLED
    await until(lambda: _closed(notes), 60)
    assert seen == [(None, index)]
    monkeypatch.undo()
    assert await notes.app.outbox.projections["notes"].indexes(await notes.app.store()) == (None,)
    assert await notes.versions() == live
    with pytest.raises(Exception, match=r"no such|no_such|does not exist|404|not_found"):
        await notes.versions(index)
    notes.run("update notes set title = 'later' where id = 1")
    await notes.work()
    await notes.check_same()


async def _closed(notes: Notes) -> bool:
    await notes.work()
    return (await notes.job()).operation is None


async def test_an_empty_source_replaces_nothing_unasked(notes: Notes) -> None:
    notes.add(1, 2)
    await notes.work()
    notes.run("delete from notes where id > 0")
    await notes.work()
    over = await notes.work(await notes.rebuild())
    assert over is not None and over.status is Status.COMPLETED, "the index is empty, too"
    await notes.sink.write([_stray(notes)])
    over = await notes.work(await notes.rebuild())
    assert over is not None and over.status is Status.STOPPED and "the source is empty" in str(over.note)
    assert await notes.versions() == {"notes:77": 5}
    await until(lambda: _closed(notes), 60)
    over = await notes.work(await notes.rebuild(allow_empty=True))
    assert over is not None and over.status is Status.COMPLETED and await notes.versions() == {}


def _stray(notes: Notes) -> Any:
    return event_of_record(notes.app.outbox.projections["notes"], Record("notes", "77", 5, {"title": "x"}))


async def test_what_cannot_be_rebuilt_is_refused(world: World, tmp_path: Path) -> None:
    service = (await world.app.operator(Caller("ann", Role.ADMIN))).of(OutboxService)
    with pytest.raises(InvalidInput, match="cannot be rebuilt"):
        await service.rebuild("notes")  # the sink of this world only writes
    world.app.outbox.projection("others", sink=f"fts5:///{tmp_path}/other.db")
    with pytest.raises(InvalidInput, match="has no source"):
        await service.rebuild("others")
    with pytest.raises(InvalidInput, match="no projection 'nothing'"):
        await service.rebuild("nothing")
    with pytest.raises(NotAllowed):
        await (await world.app.operator(Caller("vic", Role.OPERATOR))).of(OutboxService).rebuild("others")


async def test_refused_documents_stop_it(url: str, tmp_path: Path) -> None:
    app = make_app(url)

    def document(event: Any) -> Any:
        if event.payload["n"] == 2:
            raise ValueError("two is not a document")
        return event.payload

    app.outbox.projection("notes", sink=f"fts5:///{tmp_path}/search.db", document=document)
    records = [Record("note", str(n), 1, {"n": n}) for n in range(4)]

    @app.outbox.source("notes")
    class Memory:
        async def scan(self, after: str, limit: int) -> list[Record]:
            return [one for one in records if one.key > after][:limit]

        async def fetch(self, keys: Any) -> list[Record]:
            return [one for one in records if one.key in keys]

    await app.migrate()
    operations = (await app.operator(Caller("ann", Role.ADMIN))).operations
    begun = await app.outbox.rebuild("notes")
    await _until_over(app, operations, begun.id)
    over = await operations.get(begun.id)
    assert over.status is Status.STOPPED and "the new index does not take a document" in str(over.note)
    assert over.work is not None and over.work.result["refused"] == ["note:2: ValueError: two is not a document"]
    assert await _shown(app, begun.id, Role.OPERATOR) == dict(over.work.result)
    assert await _shown(app, begun.id, Role.VIEWER) == {}, "what errors quote is for those who may act"
    begun = await app.outbox.rebuild("notes", allow_refused=1)
    await _until_over(app, operations, begun.id)
    over = await operations.get(begun.id)
    assert (over.status, over.done, over.skipped) == (Status.COMPLETED, 3, 1)
    assert over.work is not None and over.work.result["refused"] == ["note:2: ValueError: two is not a document"]
    await app.close()


async def _shown(app: Any, operation_id: str, role: Role) -> dict[str, Any]:
    """Returns the result of an operation as somebody sees it, who sees no error elsewhere either."""
    operator = await app.operator(Caller("vic", role))
    record = await operator.operations.record(operation_id)
    view = views.operation(record, sight=operator.sight)
    rows = (await operator.audit.query()).rows
    told = json.dumps([view, *(views.audit_row(row, operator.sight) for row in rows)], default=str)
    assert role >= Role.OPERATOR or ("secret" not in told and "two is not" not in told), told
    return dict(view["work"]["result"])


async def test_what_an_error_of_the_source_quotes_is_for_those_who_may_act(tmp_path: Path) -> None:
    app, broken = make_app(f"sqlite:///{tmp_path}/redrive.db"), True
    app.outbox.projection("notes", sink=f"fts5:///{tmp_path}/search.db")

    @app.outbox.source("notes")
    class Memory:
        async def scan(self, after: str, limit: int) -> list[Record]:
            if broken:
                raise RuntimeError("cannot read the secret row")
            return []

        async def fetch(self, keys: Any) -> list[Record]:
            return []

    await app.migrate()
    admin = await app.operator(Caller("ann", Role.ADMIN))
    begun = await app.outbox.rebuild("notes")
    async with asyncio.timeout(60):
        while "RuntimeError" not in str((await admin.operations.get(begun.id)).note):
            await app.worker(queues="nothing", stop_when_empty=True).run()
    assert await _shown(app, begun.id, Role.OPERATOR) == {"error": "cannot read the secret row"}
    assert await _shown(app, begun.id, Role.VIEWER) == {}
    broken = False
    await _until_over(app, admin.operations, begun.id)
    assert await _shown(app, begun.id, Role.OPERATOR) == {}, "it is over"
    await app.close()


async def _until_over(app: Any, operations: Any, operation_id: str) -> None:
    async with asyncio.timeout(120):
        while (await job_of(await app.store(), REBUILD, "notes")).operation is not None:
            await app.worker(stop_when_empty=True).run()


async def test_an_index_that_was_made_late_is_removed_by_the_next_rebuild(notes: Notes) -> None:
    """A driver was frozen before it made the index; the rebuild was cancelled; then it made it, and died."""
    notes.add(1, 4)
    await notes.work()
    begun = await notes.rebuild()
    await (await notes.app.operator(Caller("ann", Role.ADMIN))).operations.cancel(begun.id)
    await notes.work(begun)
    late = (await notes.job()).dropped
    assert late is not None
    await notes.sink.create(late)
    over = await notes.work(await notes.rebuild())
    assert over is not None and over.status is Status.COMPLETED
    with pytest.raises(Exception, match="there is no index"):
        await notes.sink.swap(late)
    await notes.check_same()


async def test_a_clock_that_is_set_back_keeps_nobody_waiting(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = await notes.rebuild()
    store = await notes.app.store()
    record = await store.record("operation", begun.id)
    assert record is not None
    driver = Rebuild(store, notes.app.outbox.projections["notes"], OutboxSettings(), "me", lambda: False)
    theirs = replace(begun, driver="another")
    assert await driver.waits(theirs, record) is None, "it has just moved"
    now = await store.now()

    async def set_back() -> datetime:
        return now - timedelta(hours=1)

    monkeypatch.setattr(store, "now", set_back)
    assert await driver.waits(theirs, record) == 0.0


@EVERY_SINK
async def test_two_drivers_switch_once(notes: Notes) -> None:
    """A driver that comes late to each step does nothing that another has not done."""
    notes.add(1, 4)
    await notes.work()
    begun = await notes.rebuild()
    index = (await notes.job()).index
    over = await notes.work(begun)
    assert over is not None and over.status is Status.COMPLETED and index is not None
    await notes.sink.swap(index)  # it is live: nothing happens
    await notes.check_same()
    again = await notes.work(await notes.rebuild())
    assert again is not None and again.status is Status.COMPLETED
    with pytest.raises(Exception, match="there is no index"):
        await notes.sink.swap(index)
    await notes.check_same()
