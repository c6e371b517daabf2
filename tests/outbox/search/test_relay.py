"""Events on their whole way: from a store, by the relay, into a search server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from redrive import App, State
from redrive.kernel.reads import Query
from redrive.outbox.sinks.search_index import SearchIndex
from redrive.outbox.verdict import Done
from tests.outbox.conftest import WAITS, make_app
from tests.outbox.search.events import delete, stored, upsert
from tests.outbox.search.servers import SearchServerOfRun

pytestmark = pytest.mark.anyio


@pytest.fixture
async def app(url: str) -> AsyncIterator[App]:
    made = make_app(url, max_attempts=200)  # every second one fails
    await made.migrate()
    yield made
    await made.close()


async def publish(app: App, entity_id: Any, op: str, version: int, payload: Any = None) -> None:
    await app.outbox.publish(None, "notes", "note", entity_id, op, version, payload)


async def drain(app: App) -> None:
    store = await app.store()
    while any(task.state in WAITS for task in await store.find(Query(limit=1000))):
        await app.worker(stop_when_empty=True).run()


async def test_the_server_has_what_the_source_has(
    app: App, sink: SearchIndex, search_server: SearchServerOfRun
) -> None:
    """Published in any order, some twice; our own server is in trouble all the while."""
    app.outbox.projection("notes", sink=sink, batch=20)
    chance = random.Random(3)
    source = {number: (3, {"title": f"note {number}"} if number % 3 else None) for number in range(30)}
    events = [(n, "update", v, {"title": "old"}) for n in source for v in (1, 2)]
    events += [(n, "update" if doc else "delete", v, doc) for n, (v, doc) in source.items()]
    for event in chance.sample(events, k=len(events)) + chance.sample(events, k=10):
        await publish(app, *event)
    if search_server.simulator is not None:
        search_server.simulator.change({"busy_share": 0.2, "broken_share": 0.1, "lost_share": 0.2, "error_share": 0.1})
    await drain(app)
    if search_server.simulator is not None:
        quiet = {"busy_share": 0, "broken_share": 0, "lost_share": 0, "error_share": 0}
        search_server.simulator.change(quiet)
    assert await stored(sink) == {f"note:{n}": v for n, (v, doc) in sorted(source.items(), key=_key) if doc}
    hits = await sink.search("note", limit=100)
    assert {hit.key: hit.document for hit in hits} == {f"note:{n}": doc for n, (_, doc) in source.items() if doc}
    tasks = await (await app.store()).find(Query(limit=1000))
    assert {task.state for task in tasks} == {State.COMPLETED}


def _key(entry: tuple[int, Any]) -> str:
    return str(entry[0])


async def test_a_late_update_does_not_bring_a_deleted_document_back(
    app: App, make_sink: Callable[..., SearchIndex]
) -> None:
    """Also when the server has forgotten that it was deleted: the relay has not."""
    sink = make_sink(settings={"index.gc_deletes": "100ms"})
    app.outbox.projection("notes", sink=sink)
    for step in (("create", 1, {"n": 1}), ("delete", 3, None)):
        await publish(app, 1, *step)
        await drain(app)
    # The server forgets this one, which the relay knows nothing of, at the same time.
    await sink.write([upsert(2, 1)])
    await sink.write([delete(2, 3)])
    while await sink.write([upsert(2, 2)]) != [Done()]:
        await asyncio.sleep(0.1)
        await sink.refresh()
    await publish(app, 1, "update", 2, {"n": 2})
    await drain(app)
    assert await stored(sink) == {"note:2": 2}
