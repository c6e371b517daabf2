"""An index that was lost, and made anew without what was in it, is told of, and can be rebuilt by itself."""

from __future__ import annotations

import contextlib
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive.ids import new_id
from redrive.kernel.diagnosis import Dependency
from redrive.kernel.operation import Status
from redrive.outbox.duties import duties_of
from redrive.outbox.event import Event, Op
from redrive.outbox.health import dependencies, drift, examine, lost
from redrive.outbox.index_job import REBUILD, VERIFY, job_of
from redrive.outbox.index_watch import IndexState, change_state, index_state, is_due, watch_index
from redrive.outbox.settings import OutboxSettings
from tests.outbox.conftest import make_app
from tests.outbox.rebuild.conftest import EVERY_SINK, Notes

pytestmark = pytest.mark.anyio


async def lose(notes: Notes) -> None:
    """Makes the sink forget all it has, as a server that is started without its data."""
    if hasattr(notes.sink, "_server"):
        for name in await notes.sink._live():
            await notes.sink._server.ask("DELETE", f"/{name}")
    elif notes.sink_url.startswith("fts5"):
        for file in Path(notes.sink_url.removeprefix("fts5:///")).parent.glob("search.db*"):
            file.unlink()
    else:
        notes.run("drop view search_notes", "drop table search_notes_live")
        notes.app.outbox.projections["notes"].sink()._has_live = False  # type: ignore[attr-defined]


async def look(notes: Notes, **settings: Any) -> IndexState:
    store, projection = await notes.app.store(), notes.app.outbox.projections["notes"]
    if await notes.sink.identity():
        await notes.sink.refresh()  # what was written a second ago
    await watch_index(store, projection, OutboxSettings(**settings), lambda: False)
    return await index_state(store, "notes")


@EVERY_SINK
async def test_a_lost_index_is_told_of_until_it_is_rebuilt(notes: Notes) -> None:
    notes.add(1, 5)
    await notes.work()
    known = await look(notes)
    assert known.identity and known.problem is None and (await look(notes)) == known
    await lose(notes)
    notes.add(6, 6)
    await notes.work()
    assert len(await notes.versions()) == 1, "it is there again, without what was in it"
    state = await look(notes)
    assert state.problem == "its index was lost (it is gone, or another is in its place): redrive outbox rebuild notes"
    store, settings = await notes.app.store(), notes.app.settings
    [finding] = [one for one in await examine(store, settings) if one.code == "outbox_index_lost"]
    assert finding.fix == "redrive outbox rebuild notes" and await lost(store, settings) == 1.0
    [one] = [one for one in await dependencies(store, settings) if one.name == "index of notes"]
    assert not one.ok and not one.blocks and str(one.detail).endswith("redrive outbox rebuild notes")
    shown = await (await notes.service()).show("notes")
    assert shown.index_problem == state.problem and shown.index_lost_at is not None
    done = await notes.work(await notes.rebuild(reason="lost"))
    assert done is not None and done.status is Status.COMPLETED
    assert (await look(notes)).problem is None and await lost(store, settings) == 0.0
    await notes.check_same()


async def test_an_index_that_is_gone_is_told_of_before_the_next_event(notes: Notes) -> None:
    notes.add(1, 5)
    await notes.work()
    known = await index_state(await notes.app.store(), "notes")
    assert known.identity == await notes.sink.identity(), "it is known from the first write on"
    await lose(notes)
    state = await look(notes)
    assert state.lost_at is not None and str(state.problem).endswith("redrive outbox rebuild notes")
    notes.app.outbox.projections["notes"].served = False
    assert await look(notes) == state, "whoever does not write to it says nothing"


async def test_the_built_in_index_is_watched_once_it_was_written_to(url: str, tmp_path: Path) -> None:
    name, folder = "search_index_to_elastic", tmp_path / "own"
    folder.mkdir()
    file = Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite") else None
    place = file.with_name(f"{file.stem}-search.db") if file else folder / "redrive-search.db"

    async def process(first: int, last: int) -> list[Dependency]:
        """Publishes, and projects, as one process of the application."""
        app = make_app(url)
        try:
            await app.migrate()
            for n in range(first, last + 1):
                await app.outbox.publish(None, name, "note", n, "upsert", 1, {"title": f"note {n}"})
            await app.worker(stop_when_empty=True).run()
            store = await app.store()
            [watch] = [one for one in duties_of(app.outbox.projections.values(), OutboxSettings()) if one.every == 30]
            collection, state = watch.while_record or ("", "")
            if await store.records(collection, states=[state], limit=1):
                await watch.run(store, "w1", lambda: False)
            found = [one.fix for one in await examine(store, app.settings) if one.code == "outbox_index_lost"]
            unwell = [one for one in await dependencies(store, app.settings) if not one.ok]
            assert found == [f"redrive outbox rebuild {name}"] * len(unwell)
            assert (await lost(store, app.settings) or 0.0) == len(unwell)
            return unwell
        finally:
            await app.close()

    with contextlib.chdir(folder):
        assert await process(1, 0) == [] and not place.exists(), "most applications never publish"
        assert await process(1, 20) == [] and await process(1, 0) == []
        for one in place.parent.glob(f"{place.stem}*"):
            one.unlink()
        assert [one.name for one in await process(1, 0)] == [f"index of {name}"] and not place.exists()
        assert [one.name for one in await process(21, 25)] == [f"index of {name}"] and place.exists()


async def empty(notes: Notes) -> None:
    """Takes all documents out of the index, which stays the same."""
    if hasattr(notes.sink, "_server"):
        kept = await notes.versions()
        places = [(version + 1, *key.split(":", 1)) for key, version in kept.items()]
        await notes.sink.write([Event(new_id(), *place, Op.DELETE, version) for version, *place in places])
        await notes.sink.refresh()
    elif notes.sink_url.startswith("fts5"):
        with closing(sqlite3.connect(notes.sink_url.removeprefix("fts5:///"))) as file:
            [(table,)] = file.execute("select name from sqlite_master where name glob 'documents_*_docs'").fetchall()
            file.execute(f"delete from {table}")
            file.commit()
    else:
        notes.run("delete from search_notes_live")


@EVERY_SINK
async def test_an_index_that_is_emptied_in_place_is_told_of(notes: Notes) -> None:
    assert (await look(notes)).problem is None
    notes.add(1, 30)
    assert (await look(notes)).problem is None, "nothing was ever there"
    await notes.work()
    assert (await look(notes)).identity and (await look(notes)).filled
    notes.run("delete from notes")
    await notes.work()
    assert (await look(notes)).problem is None, "so is its source"
    notes.add(31, 60)
    assert (await look(notes)).problem is None, "events of what is missing are under way"
    await notes.work()
    assert (await look(notes)).problem is None
    await empty(notes)
    state = await look(notes)
    assert state.problem == "its index was emptied: redrive outbox rebuild notes" and state.lost_at is not None
    assert await look(notes) == state, "until it is rebuilt"
    store, settings = await notes.app.store(), notes.app.settings
    assert "outbox_index_lost" in [one.code for one in await examine(store, settings)]
    assert await lost(store, settings) == 1.0
    done = await notes.work(await notes.rebuild(reason="emptied"))
    assert done is not None and done.status is Status.COMPLETED
    assert (await look(notes)).problem is None and await lost(store, settings) == 0.0
    await notes.check_same()


async def test_a_setting_rebuilds_it(notes: Notes) -> None:
    notes.add(1, 5)
    await notes.work()
    await look(notes)
    await lose(notes)
    notes.add(6, 6)
    await notes.work()
    await look(notes, rebuild_lost=True)
    store = await notes.app.store()
    begun = (await job_of(store, REBUILD, "notes")).operation
    assert begun is not None
    done = await notes.work(await notes.operation(begun))
    assert done is not None and (done.status, done.actor) == (Status.COMPLETED, "redrive")
    await notes.check_same()


async def test_it_is_compared_once_a_day(notes: Notes) -> None:
    notes.add(1, 5)
    await notes.work()
    store = await notes.app.store()
    await look(notes)
    assert (await job_of(store, VERIFY, "notes")).operation is None, "not at once"
    await change_state(store, "notes", verified_at=0)
    await look(notes, verify_hours=0)
    assert (await job_of(store, VERIFY, "notes")).operation is None
    await notes.sink.create("without")
    await notes.sink.swap("without")
    await change_state(store, "notes", identity=await notes.sink.identity(), filled=False)
    await look(notes)
    begun = (await job_of(store, VERIFY, "notes")).operation
    assert begun is not None
    await notes.work(await notes.operation(begun))
    assert await drift(store, notes.app.settings) == 5.0
    assert "outbox_drift" in [one.code for one in await examine(store, notes.app.settings)]


def test_the_hour_of_a_comparison() -> None:
    now = datetime(2026, 11, 18, 2, 30, tzinfo=UTC)
    state = IndexState("notes", verified_at=int((now - timedelta(hours=25)).timestamp() * 1_000_000))
    assert is_due(state, now, OutboxSettings())
    assert not is_due(state, now, OutboxSettings(verify_hours=26))
    assert not is_due(state, now, OutboxSettings(verify_window=(180, 300)))
    assert is_due(state, now, OutboxSettings(verify_window=(1380, 180)))
