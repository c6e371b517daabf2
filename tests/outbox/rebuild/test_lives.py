"""What was deleted and created again is in the index after a rebuild and a repair, on every sink."""

from __future__ import annotations

import itertools
import sqlite3
from contextlib import closing

import anyio.from_thread
import anyio.to_thread
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redrive.ids import new_id
from redrive.kernel.operation import Operation, Status
from redrive.ops.access import Caller, Role
from redrive.outbox import compare
from redrive.outbox import rebuild as rebuild_module
from redrive.outbox.compare import count_of_differences
from redrive.outbox.event import Event, Op, split_key
from redrive.outbox.service import OutboxService
from tests.effort import tries
from tests.outbox.conftest import erase_scope
from tests.outbox.rebuild.conftest import EVERY_SINK, Notes
from tests.outbox.rebuild.test_verify import result_of

pytestmark = pytest.mark.anyio


async def begin(notes: Notes) -> None:
    """Makes a table whose versions begin anew with each row."""
    notes.run("create table items (id integer primary key, title text, version integer)")
    operator = await notes.app.operator(Caller("ann", Role.OPERATOR))
    text = await operator.of(OutboxService).trigger("items", "notes", version="version")
    if notes.url.startswith("postgres"):
        with psycopg.connect(notes.url, autocommit=True) as connection:
            connection.execute(text.encode())
    else:
        with closing(sqlite3.connect(notes.url.removeprefix("sqlite:///"), timeout=60)) as connection:
            connection.executescript(text)
    notes.add(1, 5)
    notes.run("insert into items values (1, 'a', 1), (2, 'b', 1)")
    notes.run("update items set title = 'c', version = 2 where id = 1")
    await notes.work()
    notes.run("delete from items where id = 1")
    await notes.work()


@EVERY_SINK
async def test_a_row_that_is_there_again_is_projected_and_rebuilt(notes: Notes) -> None:
    await begin(notes)
    notes.run("insert into items values (1, 'again', 1)")
    await notes.work()
    await notes.check_same()
    assert not count_of_differences(result_of(await notes.work(await notes.verify())))
    done = await notes.work(await notes.rebuild(reason="look"))
    assert done is not None and (done.status, done.done, done.total) == (Status.COMPLETED, 7, 7)
    await notes.check_same()
    notes.run("update items set title = 'changed', version = 2 where id = 1")
    await notes.work()
    await notes.check_same()


async def lose(notes: Notes) -> None:
    """Creates a row again, of which no event arrives."""
    notes.run("insert into items values (1, 'again', 1)")
    task, life = (
        ("redrive.task", "redrive.outbox_life")
        if notes.url.startswith("postgres")
        else ("redrive_task", "redrive_outbox_life")
    )
    notes.run(f"delete from {task} where queue = 'outbox:notes'", f"delete from {life}")


@EVERY_SINK
async def test_repair_brings_back_what_nobody_said_was_created(notes: Notes) -> None:
    await begin(notes)
    await lose(notes)
    found = result_of(await notes.work(await notes.verify()))
    assert found["missing_keys"] == ["items:1"]
    mended = result_of(await notes.work(await notes.verify(repair=True)))
    assert (mended["repaired"], mended["left"]) == (1, 0)
    await notes.check_same()
    notes.run("delete from items where id = 1")
    await notes.work()
    await notes.check_same()


async def test_a_rebuild_brings_it_back_or_fails(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    await begin(notes)
    await lose(notes)

    async def forgets(self: rebuild_module.Rebuild, job: object, records: list[object]) -> tuple[int, list[str]]:
        return await write(self, job, [one for one in records if one.key != "items:1"])  # type: ignore[attr-defined]

    write = rebuild_module.Rebuild._write
    with monkeypatch.context() as patched:
        patched.setattr(rebuild_module.Rebuild, "_write", forgets)
        failed = await notes.work(await notes.rebuild(reason="look"))
    assert failed is not None and failed.status is Status.STOPPED and failed.done == 6
    assert failed.note == "the new index differs from the source in 1 document: items:1 (missing)"
    done = await notes.work(await notes.rebuild(reason="look"))
    assert done is not None and (done.status, done.done) == (Status.COMPLETED, 7)
    await notes.check_same()


async def snapshot(notes: Notes) -> list[Event]:
    """Returns what the index has, as events that write the same into another."""
    documents = await notes.documents()
    return [
        Event(new_id(), *split_key(one.key), Op.UPSERT, one.version, documents[one.key], base=one.base or 0)
        async for one in notes.sink.scan()
    ]


async def restore(notes: Notes, taken: list[Event]) -> None:
    """Puts an index in the place of the live one that has what a snapshot had."""
    await notes.sink.create("restored")
    await notes.sink.write(taken, "restored")
    await notes.sink.swap("restored")


async def test_an_index_from_an_earlier_life_is_found_and_repaired(
    notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its document has the same version as the new life's: order is by life and version."""
    monkeypatch.setattr(compare, "PAGE", 2)
    await begin(notes)
    notes.run("insert into items values (1, 'again', 1)")
    notes.run("update items set title = 'first life', version = 2 where id = 2")
    await notes.work()
    taken = await snapshot(notes)
    notes.run("delete from items where id = 2")
    notes.run("insert into items values (2, 'second life', 1)")
    notes.run("update items set version = 2 where id = 2")
    await notes.work()
    await notes.check_same()
    assert not count_of_differences(result_of(await notes.work(await notes.verify()))), "two live in later lives"

    await restore(notes, taken)
    found = result_of(await notes.work(await notes.verify()))
    assert (found["stale"], found["stale_keys"], len(found)) == (1, ["items:2"], 3)
    mended = result_of(await notes.work(await notes.verify(repair=True)))
    assert (mended["repaired"], mended["left"], count_of_differences(mended)) == (1, 0, False)
    await notes.check_same()
    assert not count_of_differences(result_of(await notes.work(await notes.verify())))


@EVERY_SINK
async def test_an_index_of_a_life_that_the_store_does_not_know_is_repaired(notes: Notes) -> None:
    """As after a restore of the store: what is published now would be older than what the index has."""
    await begin(notes)
    notes.run("insert into items values (1, 'again', 1)")
    await notes.work()
    notes.run(f"delete from {'redrive.' if notes.url.startswith('postgres') else 'redrive_'}outbox_life")
    notes.run("update items set title = 'dropped', version = 2 where id = 1")
    await notes.work()
    found = result_of(await notes.work(await notes.verify()))
    assert found["ahead_keys"] == ["items:1"]
    mended = result_of(await notes.work(await notes.verify(repair=True)))
    assert (mended["repaired"], mended["left"], count_of_differences(mended)) == (1, 0, False)
    await notes.check_same()
    notes.run("update items set title = 'arrives', version = 3 where id = 1")
    await notes.work()
    await notes.check_same()


@EVERY_SINK
async def test_repair_after_an_erasure_ends_without_differences(notes: Notes) -> None:
    """Of a key that lives on, of one that is deleted, and of one whose index is from before."""
    await begin(notes)
    notes.run("insert into items values (1, 'again', 1)")
    await notes.work()
    taken = await snapshot(notes)
    notes.run("delete from items where id = 2")
    await notes.work()
    for key in ("items:1", "items:2"):
        await erase_scope(notes.app, key)
    notes.run("update items set title = 'after the erasure', version = 2 where id = 1")
    notes.run("insert into items values (2, 'there again', 1)")
    await notes.work()
    await notes.check_same()
    assert not count_of_differences(result_of(await notes.work(await notes.verify())))
    await restore(notes, taken)
    mended = result_of(await notes.work(await notes.verify(repair=True)))
    assert sorted(mended["stale_keys"]) == ["items:1", "items:2"]
    assert (mended["repaired"], mended["left"], count_of_differences(mended)) == (2, 0, False)
    await notes.check_same()
    done = await notes.work(await notes.rebuild(reason="look"))
    assert done is not None and done.status is Status.COMPLETED
    await notes.check_same()
    notes.run("update items set title = 'newer', version = version + 1 where id < 3")
    await notes.work()
    await notes.check_same()
    notes.run("delete from items")
    await notes.work()
    await notes.check_same()
    assert not count_of_differences(result_of(await notes.work(await notes.verify())))


STEPS = ("turn", "turn", "turn", "update", "work", "rebuild", "repair")  # a turn deletes a row, or inserts it again
programs = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 1)), min_size=8, max_size=20)


@pytest.mark.timeout(900)
async def test_any_run_of_lives_ends_as_the_table_is(notes: Notes) -> None:
    """Rows are deleted and inserted again at version 1, in any order, while events wait or are projected, and rebuilds
    and repairs begin in the middle: in the end the index has what the table has."""
    await begin(notes)
    number = itertools.count(1)

    @settings(
        max_examples=tries(2, 5, 40),
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(programs)
    def check(program: list[tuple[str, int]]) -> None:
        anyio.from_thread.run(run_program, notes, 100 * next(number), program)

    await anyio.to_thread.run_sync(check)


async def run_program(notes: Notes, first: int, program: list[tuple[str, int]]) -> None:
    """Runs one on rows of its own; what it leaves is part of what the next is compared with."""
    alive = dict[int, int]()
    begun: Operation | None = None
    for at, (step, row) in enumerate(program):
        key = first + row
        if step == "work":
            await notes.work(begun)
            begun = None
            await notes.check_same()
        elif step in ("rebuild", "repair") and begun is None:  # a second one is refused
            asked = notes.rebuild(reason="x") if step == "rebuild" else notes.verify(repair=True)
            begun = await asked
            await notes.app.worker(queues="nothing", max_time=0.2, stop_when_empty=True).run()  # a part of it
        elif step == "turn" and key in alive:
            del alive[key]
            notes.run(f"delete from items where id = {key}")
        elif step == "turn":
            alive[key] = 1
            notes.run(f"insert into items values ({key}, 'step {at}', 1)")
        elif step == "update" and key in alive:
            alive[key] += 1
            notes.run(f"update items set title = 'step {at}', version = {alive[key]} where id = {key}")
    gone = [key for key in (first, first + 1) if key not in alive]
    for key in gone:  # all are there in the end
        notes.run(f"insert into items values ({key}, 'last', 1)")
    done = await notes.work(begun)
    assert done is None or done.status is Status.COMPLETED, done.note
    await notes.check_same()
    result = result_of(await notes.work(await notes.verify()))
    assert not count_of_differences(result), result
