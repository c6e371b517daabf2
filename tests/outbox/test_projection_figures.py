"""Looking at projections costs a few statements that visit as many rows, however many events there are."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from redrive.ops.access import Caller, Role
from redrive.outbox.service import OutboxService
from redrive_kit.conformance.harness import Cost
from tests.conformance.harness_postgres import PostgresHarness
from tests.conformance.harness_sqlite import SqliteHarness
from tests.outbox.conftest import BOTH_STORES, World

pytestmark = [pytest.mark.anyio, BOTH_STORES]
MANY = 4000  # more than are looked at of any state
STATEMENTS: dict[str, list[Any]] = {
    "event_counts": [600.0],
    "failed_by_reason": ["outbox:notes", 50],
    "retried_by_reason": ["outbox:notes", 50],
    "longest_events": ["outbox:notes", 5],
}


async def publish(world: World, first: int, count: int) -> None:
    events: list[Any] = [("note", n, "upsert", 1, {"n": n}) for n in range(first, first + count)]
    await world.app.outbox.publish_many(None, "notes", events)


async def costs(world: World) -> dict[str, Cost]:
    """What each statement visits, once the database knows how many rows there are."""
    store: Any = await world.app.store()
    harness: Any = object.__new__(SqliteHarness if world.on_sqlite else PostgresHarness)
    if world.on_sqlite:
        harness.path = world.app.connections.main.file
    else:
        await store.pool.run(lambda connection: connection.execute("analyze redrive.task"))
    found: dict[str, Cost] = {}
    for name, args in STATEMENTS.items():
        async with harness.measure(store) as found[name]:
            await store.sql.feature_rows("outbox", name, *args)
    return found


async def test_what_is_visited_does_not_grow_with_the_number_of_events(world: World) -> None:
    await world.publish("unfit", "nonsense", 1)
    await world.drain()
    await publish(world, 0, MANY)
    few = await costs(world)
    await publish(world, MANY, MANY)
    for name, many in (await costs(world)).items():
        assert many.rows <= few[name].rows * 1.2 + 500, (name, few[name].rows, many.rows)
        assert not [table for table in many.scans if table.endswith("task")], name


async def test_each_look_is_a_handful_of_statements(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    store: Any = await world.app.store()
    for n in range(3):
        await world.publish(n, "nonsense", 1)
    await world.drain()
    asked = Counter[str]()
    for name in ("feature_rows", "overview", "counts", "find", "failed", "failed_counts", "count_failed"):

        async def counted(*args: Any, real: Any = getattr(store, name), name: str = name, **more: Any) -> Any:  # noqa: B008
            asked[args[1] if name == "feature_rows" else name] += 1
            return await real(*args, **more)

        monkeypatch.setattr(store, name, counted)
    own = (await world.app.operator(Caller("ann", Role.OPERATOR))).of(OutboxService)
    await own.list()
    assert asked == {"event_counts": 1, "overview": 1}
    asked.clear()
    await own.show("notes")
    assert asked == dict.fromkeys([*STATEMENTS, "overview"], 1)
    asked.clear()
    await own.troubled()
    assert asked == {"event_counts": 1}
