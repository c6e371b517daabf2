"""The index of a projection is compared with its table, and what differs is mended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest

from redrive.api.app import make_api
from redrive.errors import NotAllowed
from redrive.kernel.operation import Operation, Status
from redrive.kernel.ports.store import Store
from redrive.ops.access import Caller, Role
from redrive.outbox import compare, operations, table_source
from redrive.outbox import verify as verify_module
from redrive.outbox.compare import count_of_differences
from redrive.outbox.event import Event
from redrive.outbox.index_job import IndexJob
from redrive.outbox.rebuild import delete_of, event_of_record
from redrive.outbox.sink import Remembering
from redrive.outbox.sinks import full_text, search_index
from redrive.outbox.source import Record
from tests.outbox.rebuild.conftest import EVERY_SINK, Notes

pytestmark = pytest.mark.anyio


def result_of(operation: Operation | None) -> dict[str, Any]:
    assert operation is not None and operation.status is Status.COMPLETED, operation and operation.note
    assert operation.work is not None
    return dict(operation.work.result)


def document(notes: Notes, key: int, version: int) -> Event:
    record = Record("notes", str(key), version, {"title": "old"})
    return event_of_record(notes.app.outbox.projections["notes"], record)


async def plant(notes: Notes) -> None:
    """Makes an index that has nothing of 3 and 13, an old version of 7, and two documents that nobody has."""
    entities = [Record("notes", str(payload["id"]), v, payload) for v, payload in (await notes.source()).values()]
    events = [event_of_record(notes.app.outbox.projections["notes"], one) for one in entities]
    kept = [one for one in events if one.entity_id not in ("3", "13")]
    planted = [replace(one, version=one.version - 1) if one.entity_id == "7" else one for one in kept]
    planted += [document(notes, 88, 5), replace(document(notes, 9, 6), entity_type="ghost")]
    await notes.sink.create("planted")
    await notes.sink.write(planted, "planted")
    await notes.sink.swap("planted")


@EVERY_SINK
async def test_planted_differences_are_found_and_mended(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "PAGE", 3)
    notes.add(1, 20)
    await notes.work()
    first = await notes.work(await notes.verify())
    assert not count_of_differences(result_of(first)) and first is not None and (first.done, first.total) == (20, 20)
    await plant(notes)

    found = result_of(await notes.work(await notes.verify()))
    assert {kind: found.get(kind, 0) for kind in ("missing", "stale", "extra", "ahead", "on_their_way")} == {
        "missing": 2,
        "stale": 1,
        "extra": 2,
        "ahead": 0,
        "on_their_way": 0,
    }
    assert sorted(found["missing_keys"]) == ["notes:13", "notes:3"]
    assert (found["stale_keys"], found["extra_keys"]) == (["notes:7"], ["ghost:9", "notes:88"])
    assert count_of_differences(found) and "repaired" not in found

    mended = result_of(await notes.work(await notes.verify(repair=True)))
    assert (mended["repaired"], mended["left"], count_of_differences(mended)) == (5, 0, False)
    await notes.check_same()
    assert not count_of_differences(result_of(await notes.work(await notes.verify())))


@EVERY_SINK
async def test_events_on_their_way_are_no_differences(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_module, "PATIENCE_S", 0.0)
    notes.add(1, 6)
    await notes.work()
    notes.run("update notes set title = 'new' where id < 3", "delete from notes where id = 5")
    notes.add(7, 8)
    app = notes.app
    begun = await notes.verify()
    over = await notes.work_without_relay(begun)
    assert result_of(over) == {"on_their_way": 5} and not count_of_differences(result_of(over))
    monkeypatch.undo()
    begun = await notes.verify()
    assert result_of(await notes.work(begun)) == {"on_their_way": 0}, "it waits for them"
    assert app.outbox.projections["notes"].name == "notes"


async def test_more_keys_on_their_way_than_are_remembered(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events are on their way when they are compared, and lost a moment later: each of them is missed."""
    monkeypatch.setattr(verify_module, "MOST_REMEMBERED", 3)
    monkeypatch.setattr(compare, "PAGE", 2)
    notes.add(0, 0)
    await notes.work()
    notes.add(1, 11)
    looks, again = list[int](), compare.Comparison.again

    async def lost_after_the_third(self: compare.Comparison, keys: Sequence[str]) -> compare.Looked:
        found = await again(self, keys)
        looks.append(len(found.moving))
        if len(looks) == 3:
            table = "redrive.task" if notes.url.startswith("postgres") else "redrive_task"
            notes.run(f"delete from {table} where queue = 'outbox:notes'")
        return found

    monkeypatch.setattr(compare.Comparison, "again", lost_after_the_third)
    found = result_of(await notes.work_without_relay(await notes.verify()))
    assert looks[:3] == [1, 2, 3]
    assert (found["missing"], found["on_their_way"]) == (11, 0)


async def test_more_keys_that_are_mended_than_are_remembered(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Newer versions were deleted, of which only some sinks can tell: what cannot be mended is counted."""
    monkeypatch.setattr(verify_module, "MOST_REMEMBERED", 3)
    monkeypatch.setattr(compare, "PAGE", 2)
    notes.add(1, 11)
    await notes.work()
    await notes.sink.write([delete_of(f"notes:{n}", 2**60) for n in range(1, 10)])
    over = await notes.work(await notes.verify(repair=True))
    found = result_of(over)
    left = 0 if isinstance(notes.sink, Remembering) else 9
    assert (found["missing"], found["repaired"], found["left"], len(found["left_keys"])) == (9, 9, left, left)
    assert over is not None and over.work is not None and over.work.state == {"repair": True}


@EVERY_SINK
async def test_what_cannot_be_mended_is_said(notes: Notes) -> None:
    notes.add(1, 3)
    await notes.work()
    await notes.sink.write([delete_of("notes:2", 2**60)])
    found = result_of(await notes.work(await notes.verify(repair=True)))
    # Somebody deleted it past redrive, with a version newer than all to come. A sink that remembers it can tell, and
    # a new life begins behind it; else only a rebuild mends that.
    left = 0 if isinstance(notes.sink, Remembering) else 1
    assert (found["missing"], found["left"], count_of_differences(found)) == (1, left, bool(left))
    await notes.work(await notes.rebuild())
    await notes.check_same()


async def test_versions_that_went_back(notes: Notes) -> None:
    notes.add(1, 3)
    await notes.work()
    await notes.sink.write([document(notes, 2, 2**60)])
    found = result_of(await notes.work(await notes.verify(repair=True)))
    assert (found["ahead"], found["ahead_keys"], found["repaired"], found["left"]) == (1, ["notes:2"], 1, 0)
    assert not count_of_differences(found)
    await notes.check_same()
    notes.run("update notes set title = 'newer' where id = 2")
    await notes.work()
    await notes.check_same()


async def test_over_http_and_in_code(notes: Notes) -> None:
    notes.add(1, 2)
    await notes.work()
    with pytest.raises(NotAllowed):
        await (await notes.service(Role.VIEWER)).verify("notes")
    transport = httpx.ASGITransport(app=make_api(notes.app, None, open_door=True))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        for action in ("verify", "rebuild"):
            answer = await client.post(f"/api/outbox/notes/{action}", json={"reason": "why not"})
            assert answer.status_code == 202, answer.text
            begun = answer.json()["operation"]
            assert (begun["action"], begun["status"]) == (action, "running")
            assert begun["work"] == {
                "feature": "outbox",
                "subject": "projection notes",
                "unit": "document",
                "result": {},
            }
            assert (await client.post(f"/api/outbox/notes/{action}", json={})).status_code == 409
            await notes.work(await notes.operation(begun["id"]))
            shown = (await client.get(f"/api/operations/{begun['id']}")).json()
            assert (shown["status"], shown["done"], shown["progress"]) == ("completed", 2, 1.0)
        listed = (await client.get("/api/operations")).json()["operations"]
        assert [one["action"] for one in listed] == ["rebuild", "verify"]
    worker = asyncio.create_task(notes.app.worker().run())
    over = await notes.app.outbox.ended(await notes.app.outbox.verify("notes"), seconds=60)
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    assert result_of(over) == {"on_their_way": 0}


async def test_no_more_than_a_page_is_in_memory(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((full_text, "PAGE"), (search_index, "PAGE")):
        monkeypatch.setattr(module, name, 5)
    monkeypatch.setattr(compare, "PAGE", 5)
    most: list[int] = []
    rows = table_source.TableSource._rows

    async def counted(self: Any, *given: Any) -> list[Any]:
        found = await rows(self, *given)
        most.append(len(found))
        return found

    monkeypatch.setattr(table_source.TableSource, "_rows", counted)
    notes.add(1, 23)
    await notes.work()
    most.clear()
    assert result_of(await notes.work(await notes.verify())) == {"on_their_way": 0}
    assert len(most) >= 5 and max(most) == 5


async def test_one_begins_while_a_worker_clears_a_cancelled_one_away(
    notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever loses that race looks again by itself."""
    first = await notes.verify()
    await (await notes.app.operator(Caller("ann", Role.ADMIN))).operations.cancel(first.id)
    look = operations._refuse_second
    meanwhile = [notes.work]

    async def and_then(store: Store, job: IndexJob) -> None:
        await look(store, job)
        if meanwhile:
            await meanwhile.pop(0)()

    monkeypatch.setattr(operations, "_refuse_second", and_then)
    second = await notes.verify()
    assert second.id != first.id and not meanwhile
