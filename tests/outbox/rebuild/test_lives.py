"""What was deleted and created again is in the index after a rebuild and a repair, on every sink."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import psycopg
import pytest

from redrive.kernel.operation import Status
from redrive.ops.access import Caller, Role
from redrive.outbox.rebuild import steps
from redrive.outbox.triggers.service import TriggerService
from redrive.outbox.verify.result import still_differs
from tests.outbox.rebuild.conftest import Notes
from tests.outbox.rebuild.test_verify import result_of

pytestmark = pytest.mark.anyio


async def begin(notes: Notes) -> None:
    """Makes a table whose versions begin anew with each row."""
    notes.run("create table items (id integer primary key, title text, version integer)")
    operator = await notes.app.operator(Caller("ann", Role.OPERATOR))
    text = await operator.of(TriggerService).script("items", "notes", version="version")
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


async def test_a_row_that_is_there_again_is_projected_and_rebuilt(notes: Notes) -> None:
    await begin(notes)
    notes.run("insert into items values (1, 'again', 1)")
    await notes.work()
    await notes.check_same()
    service = await notes.service()
    assert not still_differs(result_of(await notes.work(await service.verify("notes"))))
    done = await notes.work(await service.rebuild("notes", reason="look"))
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


async def test_repair_brings_back_what_nobody_said_was_created(notes: Notes) -> None:
    await begin(notes)
    await lose(notes)
    service = await notes.service()
    found = result_of(await notes.work(await service.verify("notes")))
    assert found["missing_keys"] == ["items:1"]
    mended = result_of(await notes.work(await service.verify("notes", repair=True)))
    assert (mended["repaired"], mended["left"]) == (1, 0)
    await notes.check_same()
    notes.run("delete from items where id = 1")
    await notes.work()
    await notes.check_same()


async def test_a_rebuild_brings_it_back_or_fails(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    await begin(notes)
    await lose(notes)
    service = await notes.service()

    async def forgets(self: steps.Rebuild, job: object, records: list[object]) -> tuple[int, list[str]]:
        return await write(self, job, [one for one in records if one.key != "items:1"])  # type: ignore[attr-defined]

    write = steps.Rebuild._write
    with monkeypatch.context() as patched:
        patched.setattr(steps.Rebuild, "_write", forgets)
        failed = await notes.work(await service.rebuild("notes", reason="look"))
    assert failed is not None and failed.status is Status.STOPPED and failed.done == 6
    assert failed.note == "the new index differs from the source in 1 document: items:1 (missing)"
    done = await notes.work(await service.rebuild("notes", reason="look"))
    assert done is not None and (done.status, done.done) == (Status.COMPLETED, 7)
    await notes.check_same()
