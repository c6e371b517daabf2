"""A relay that has read that there is no rebuild, and writes later: nothing of it is lost, and nothing comes back."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from redrive.kernel.operation import Status
from redrive.outbox.source import Page
from redrive.outbox.table_source import TableSource
from tests.commands import Forked, start_module
from tests.outbox.rebuild.conftest import Notes
from tests.outbox.rebuild.process import make_app
from tests.worker.conftest import until

pytestmark = [pytest.mark.anyio, pytest.mark.faults, pytest.mark.timeout(300)]
LONGEST = 90
ON_POSTGRES_FIRST = ["postgres-postgres", pytest.param("sqlite-fts5", marks=pytest.mark.thorough)]
# The relay is to be frozen, and not yet taken for dead, when the rebuild begins, on a slow machine too. If it wakes in
# time nobody waits for the end of its lease.
LEASES_MS = {"wakes": 120_000, "dies": 8_000, "wakes-late": 8_000}


@contextmanager
def process(notes: Notes, log: Path, how: str, lease_ms: int = 2000) -> Iterator[Forked]:
    env = {**os.environ, "TEST_STORE": notes.url, "TEST_SINK": notes.sink_url, "TEST_LEASE_MS": str(lease_ms)}
    made = start_module("tests.outbox.rebuild.process", how, env=env, log=log)
    try:
        yield made
    finally:
        for one in (signal.SIGTERM, signal.SIGCONT):
            if made.poll() is None:
                made.send_signal(one)
        made.wait(60)


async def _frozen(made: Forked) -> bool:
    assert made.poll() is None
    return Path(f"/proc/{made.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked at by /proc")
@pytest.mark.parametrize("end", ["wakes", "dies", pytest.param("wakes-late", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("notes", ON_POSTGRES_FIRST, indirect=True)
async def test_a_frozen_relay(notes: Notes, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes.add(1, 5)
    await notes.work()
    old = (await notes.source())["notes:2"][0]
    notes.run("delete from notes where id = 2")
    app = make_app(notes.url, notes.sink_url)
    with process(notes, tmp_path / "relay.log", "freeze", LEASES_MS[end]) as relay:
        await until(lambda: _frozen(relay), LONGEST)
        waited, page = asyncio.Event(), TableSource.page

        async def go_on() -> None:
            """Lets the relay go on when the rebuild waits for it; or, if that does not, when it has begun to read."""
            if end == "wakes":
                relay.send_signal(signal.SIGCONT)
                await until(notes.nothing_runs, LONGEST)
            elif end == "dies":
                relay.kill()

        async def read(self: TableSource, after: str | None, limit: int) -> Page:
            if not waited.is_set():
                await go_on()
            return await page(self, after, limit)

        monkeypatch.setattr(TableSource, "page", read)
        begun = await notes.rebuild()
        driver = asyncio.create_task(app.worker(queues="nothing").run())
        await until(lambda: _seen(notes, begun.id), LONGEST)
        if "waits for" in str((await notes.operation(begun.id)).note):
            waited.set()
            await go_on()
        over = await until(lambda: _over(notes, begun.id), LONGEST)
        assert over.status is Status.COMPLETED, over.note
        if end == "wakes-late":
            relay.send_signal(signal.SIGCONT)
        driver.cancel()
        await asyncio.gather(driver, return_exceptions=True)
        monkeypatch.undo()
        assert waited.is_set(), "it has not waited for what was claimed before"
    await notes.work()
    await notes.app.outbox.publish(None, "notes", "notes", 2, "upsert", old, {"title": "late"})
    await notes.work()
    await notes.check_same()
    await app.close()


async def _seen(notes: Notes, operation_id: str) -> bool:
    """Returns whether it waits, or has not waited."""
    found = await notes.operation(operation_id)
    return "waits for" in str(found.note) or bool(found.done) or found.status is not Status.RUNNING


async def _over(notes: Notes, operation_id: str) -> Any:
    found = await notes.operation(operation_id)
    return found if found.status is not Status.RUNNING else None
