"""The relay: each event its own verdict, the newest version in the sink, nothing lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from redrive import State
from redrive.errors import InvalidInput
from redrive.outbox.event import Event
from redrive.outbox.sink import TooLarge
from redrive.outbox.verdict import Failed, Retry, Verdict
from redrive.settings import load_settings
from tests.outbox.conftest import BOTH_STORES, WAITS, World, make_app
from tests.outbox.faulty import Fault
from tests.worker.conftest import until

pytestmark = pytest.mark.anyio


async def test_a_change_is_found(world: World) -> None:
    await world.publish(1, "create", 1, {"title": "Grüße aus Köln"})
    await world.publish(2, "upsert", 1, {"title": "elsewhere", "tags": ["köln"]})
    await world.drain()
    hits = await world.fts.search("koln")
    assert {hit.key for hit in hits} == {"note:1", "note:2"}
    assert hits[0].document["title"]


@BOTH_STORES
async def test_events_of_an_entity_become_one(world: World) -> None:
    """Out of order, twice, and all at once: the newest is sent, the others are superseded."""
    for version in (1, 3, 3, 2):
        await world.publish(1, "update", version, {"v": version})
    await world.drain()
    assert [[event.version for event in events] for events in world.sink.requests] == [[3]]
    assert await world.fts.get("note:1") == {"v": 3}
    ended = await world.tasks()
    assert {task.state for task in ended} == {State.COMPLETED}
    found = [(task.result["version"], task.result.get("superseded")) for task in ended]
    assert sorted(found, key=str) == [(1, True), (2, True), (3, None), (3, True)]
    assert {task.result["op"] for task in ended} == {"update"} and {task.scope for task in ended} == {"note:1"}


async def test_what_comes_late_changes_nothing(world: World) -> None:
    await world.publish(1, "upsert", 5, {"v": 5})
    await world.publish(2, "delete", 5)
    await world.drain()
    await world.publish(1, "upsert", 4, {"v": 4})
    await world.publish(1, "delete", 3)
    await world.publish(2, "upsert", 4, {"v": 4})
    await world.drain()
    assert await world.versions() == {"note:1": 5}
    await world.publish(2, "upsert", 6, {"v": 6})
    await world.drain()
    assert await world.versions() == {"note:1": 5, "note:2": 6}


async def test_a_bad_one_among_five_hundred_fails_alone(world: World) -> None:
    events = [("note", n, "upsert", 1, {"n": n}) for n in range(499)]
    await world.app.outbox.publish_many(None, "notes", [*events, ("note", "bad", "not-a-real-op", 1, {})])
    await world.drain()
    assert len(await world.versions()) == 499
    [failed] = [task for task in await world.tasks() if task.state is not State.COMPLETED]
    assert (failed.state, failed.attempt_count, failed.next_attempt_at) == (State.FAILED, 1, None)
    assert failed.error_reason == "deterministic_exception"
    assert failed.error_message == "Unknown outbox op: 'not-a-real-op'"


@BOTH_STORES
async def test_each_has_its_own_verdict(world: World) -> None:
    """An answer of 200 with errors inside."""
    for n in range(4):
        await world.publish(n, "upsert", 1, {"n": n})

    def partly(events: Sequence[Event]) -> dict[int, Verdict]:
        by_key: dict[str, Verdict] = {
            "note:1": Retry("http_429", "too many", after=0.01),
            "note:2": Failed("http_4xx", "mapper_parsing_exception"),
        }
        return {at: by_key[event.key] for at, event in enumerate(events) if event.key in by_key}

    world.sink.faults = [partly]
    await world.drain()
    assert sorted(await world.versions()) == ["note:0", "note:1", "note:3"]
    ended = {task.scope: task for task in await world.tasks()}
    assert ended["note:1"].attempt_count == 2 and ended["note:0"].attempt_count == 1
    assert (ended["note:2"].state, ended["note:2"].error_reason) == (State.FAILED, "http_4xx")
    assert ended["note:2"].attempt_count == 1


async def test_where_the_newest_never_can_be_written_the_next_is(world: World) -> None:
    await world.publish(1, "upsert", 1, {"v": 1})
    await world.publish(1, "upsert", 2, {"v": "unfit"})
    world.sink.fault = lambda events: {
        at: Failed("http_4xx", "unfit") for at, event in enumerate(events) if event.version == 2
    }
    await world.drain()
    assert await world.versions() == {"note:1": 1}
    assert sorted(task.state for task in await world.tasks()) == [State.COMPLETED, State.FAILED]


@pytest.mark.parametrize(
    ("error", "reason"),
    [(ConnectionRefusedError("no"), "connect"), (PermissionError("401"), None)],
)
async def test_a_write_that_fails_as_a_whole_is_tried_again(world: World, error: Exception, reason: str | None) -> None:
    """Also one that says no: a wrong password does not fail all that waits."""
    for n in range(3):
        await world.publish(n, "upsert", 1, {"n": n})
    world.sink.faults = [error]
    await world.app.worker(max_jobs=3).run()
    waiting = await world.tasks()
    assert {task.state for task in waiting} <= {*WAITS} and {task.attempt_count for task in waiting} == {1}
    if reason:
        assert {task.error_reason for task in waiting} == {reason}
    assert len(world.sink.requests) == 1
    await world.drain()
    assert len(await world.versions()) == 3


async def test_a_sink_that_stays_down_fails_them_in_the_end(url: str, world: World) -> None:
    world.sink.fault = _down
    app = make_app(url, max_attempts=3)
    app.outbox.projection("notes", sink=world.sink)
    await app.outbox.publish(None, "notes", "note", 1, "upsert", 1, {})
    await world.drain(app)
    await app.close()
    [task] = await world.tasks()
    assert (task.state, task.attempt_count, task.error_reason) == (State.FAILED, 3, "connect")
    assert len(world.sink.requests) == 3


async def test_the_setting_of_the_worker_bounds_what_others_published(url: str, world: World) -> None:
    """As --tries does; who has set nothing leaves it to who published."""
    world.sink.fault = _down
    app, other = make_app(url, max_attempts=3), make_app(url, max_attempts=12)
    for one in (app, other):
        one.outbox.projection("notes", sink=world.sink)
    await other.outbox.publish(None, "notes", "note", 1, "upsert", 1, {})
    await world.drain(app)
    await other.outbox.publish(None, "notes", "note", 2, "upsert", 1, {})
    await world.drain(world.app)
    for one in (app, other):
        await one.close()
    assert {task.scope: task.attempt_count for task in await world.tasks()} == {"note:1": 3, "note:2": 12}


def _down(events: Sequence[Event]) -> dict[int, Verdict]:
    raise ConnectionError("down")


def _turned_away(events: Sequence[Event]) -> dict[int, Verdict]:
    """A proxy answers for a sink that is down."""
    return dict.fromkeys(range(len(events)), Retry("http_5xx", "HTTP 503", whole=True))


@pytest.mark.parametrize("fault", [_down, _turned_away])
async def test_many_events_that_wait_are_no_reason_to_ask_a_sink_again_that_is_down(
    url: str, world: World, fault: Fault
) -> None:
    """Of two hundred events in bulks of ten, one bulk was tried when the worker stops: the others used no attempt."""
    app = make_app(url, grace_ms=1000, base_backoff_seconds=60.0, max_backoff_seconds=60.0)
    app.outbox.projection("notes", sink=world.sink, batch=10)
    await app.outbox.publish_many(None, "notes", [("note", n, "upsert", 1, {}) for n in range(200)])
    world.sink.fault = fault
    async with app.worker() as worker:
        await until(lambda: _asked(world), 60)
        await asyncio.sleep(0.5)
        worker.stop()
    assert len(world.sink.requests) == 1
    assert sorted(task.attempt_count for task in await world.tasks()) == [0] * 190 + [1] * 10
    await app.close()


async def test_what_a_request_said_before_it_was_turned_away_counts(world: World) -> None:
    """One of two halves was answered, the other met a sink that is down."""
    for n in range(2):
        await world.publish(n, "upsert", 1, {"n": n})
    world.sink.faults = [lambda events: {1: Retry("http_5xx", "HTTP 503", whole=True)}]
    await world.drain()
    assert sorted(await world.versions()) == ["note:0", "note:1"]
    assert sorted(task.attempt_count for task in await world.tasks()) == [1, 2]


async def _asked(world: World) -> bool:
    return bool(world.sink.requests)


async def test_an_event_that_makes_a_sink_raise_counts_alone(world: World) -> None:
    """Its neighbours arrive with the same claim; where all raise, it is the sink, and it is not asked for each."""

    def raises(events: Sequence[Event]) -> dict[int, Verdict]:
        if any(event.entity_id in ("7", "31") for event in events):
            raise KeyError("title")
        return {}

    world.sink.fault = raises
    for number in range(40):
        await world.publish(number, "upsert", 1, {"n": number})
    await world.app.worker(max_jobs=40).run()
    tasks = {str(task.scope).removeprefix("note:"): task for task in await world.tasks()}
    assert {name for name, task in tasks.items() if task.state is not State.COMPLETED} == {"7", "31"}
    assert {tasks[name].attempt_count for name in ("7", "31")} == {1}
    assert tasks["7"].error_message == "KeyError: 'title'"
    world.sink.fault = None
    await world.drain()
    assert len(await world.versions()) == 40

    def always(events: Sequence[Event]) -> dict[int, Verdict]:
        raise KeyError("title")

    world.sink.fault, world.sink.requests = always, []
    for number in range(40):
        await world.publish(number, "upsert", 2, {"n": number})
    await world.app.worker(max_jobs=40).run()
    assert len(world.sink.requests) <= 12, "the request, and some that were picked"


async def test_a_request_that_is_too_large_is_halved(world: World) -> None:
    events = [("note", n, "upsert", 1, {"n": n}) for n in range(64)]
    await world.app.outbox.publish_many(None, "notes", events)

    def small(events: Sequence[Event]) -> dict[int, Verdict]:
        if len(events) > 10 or any(event.entity_id == "7" for event in events):
            raise TooLarge("413")
        return {}

    world.sink.fault = small
    await world.drain()
    assert len(await world.versions()) == 63
    [failed] = [task for task in await world.tasks() if task.state is State.FAILED]
    assert (failed.scope, failed.attempt_count, failed.error_reason) == ("note:7", 1, "http_4xx")


async def test_with_a_circuit_an_outage_uses_no_attempts(url: str, world: World) -> None:
    app = make_app(url, max_attempts=2)
    app.outbox.projection("notes", sink=world.sink, circuit=True)
    for n in range(5):
        await app.outbox.publish(None, "notes", "note", n, "upsert", 1, {})
    world.sink.faults = [ConnectionError("down")] * 5
    async with app.worker():
        for _ in range(2400):
            if len(await world.versions()) == 5:
                break
            await _pause()
    assert {task.attempt_count for task in await world.tasks()} == {1}
    assert len(world.sink.requests) >= 6
    await app.close()


async def _pause() -> None:
    await asyncio.sleep(0.05)


async def test_a_projection_that_nobody_declared_is_refused(world: World) -> None:
    with pytest.raises(InvalidInput, match="no projection 'note'") as refused:
        await world.app.outbox.publish(None, "note", "note", 1, "upsert", 1, {})
    assert "did you mean notes?" in str(refused.value)


async def test_the_built_in_one_is_there_where_there_is_no_other(url: str) -> None:
    app = make_app(url)
    assert list(app.outbox.projections) == ["search_index_to_elastic"]
    assert "outbox:search_index_to_elastic" in app.queues()
    configured = load_settings(url=url)
    assert app.settings.url == configured.url
    app.outbox.projection("notes", sink="fts5:///x.db")
    assert list(app.outbox.projections) == ["notes"] and "outbox:search_index_to_elastic" not in app.queues()
    await app.close()


async def test_documents_can_be_made_of_events(url: str, world: World) -> None:
    app = make_app(url)

    def document(event: Event) -> dict[str, str]:
        if event.entity_id == "2":
            raise ValueError("no title")
        return {"title": event.payload["t"].upper()}

    app.outbox.projection("notes", sink=world.fts, document=document)
    for n in (1, 2):
        await app.outbox.publish(None, "notes", "note", n, "upsert", 1, {"t": "hello"})
    await app.worker(max_jobs=2).run()
    assert await world.fts.get("note:1") == {"title": "HELLO"} and await world.fts.get("note:2") is None
    await app.close()
