"""The auditor of a soak: books that balance, and each way in which they can be tampered with; and a short soak."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from redrive import App, Context
from redrive.outbox.application import Outbox
from redrive.settings import load_settings
from redrive_kit.labs.database import Database
from redrive_kit.labs.journal import Journal
from redrive_kit.labs.sinks import SimulatedSink
from redrive_kit.labs.soak.books import BOOKED, BOOKING_TABLE, ENTITY, FAILING, PLAIN, PROJECTION, QUEUE, Books
from redrive_kit.labs.soak.fleet import Fleet
from redrive_kit.labs.soak.invariants import RECOVERED_WITHIN_S, Broken, Invariants
from redrive_kit.labs.soak.rows import Rows

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]


class Documents(SimulatedSink):
    """What the sink has, without a server."""

    def __init__(self) -> None:
        self.found: dict[str, int] = {}

    async def versions(self) -> dict[str, int]:
        return dict(self.found)


@dataclass(slots=True)
class Kept:
    """A soak on SQLite that has come to rest."""

    database: Database
    books: Books
    sink: Documents
    invariants: Invariants
    journal: Journal
    ids: dict[str, UUID]

    async def tamper(self, text: str, *args: object) -> None:
        await self.database.run(text, *args)

    async def breaks(self, invariant: str) -> None:
        with pytest.raises(Broken) as caught:
            await self.invariants.quiet()
        assert caught.value.invariant == invariant


@pytest.fixture(scope="module")
def rested(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Books, dict[str, UUID]]:
    """A soak of five that has come to rest, made once: each test tampers with a copy."""
    folder = tmp_path_factory.mktemp("soak")
    return folder, *asyncio.run(_soaked(folder))


@pytest.fixture
def kept(rested: tuple[Path, Books, dict[str, UUID]], tmp_path: Path) -> Kept:
    folder, books, ids = rested[0], deepcopy(rested[1]), rested[2]
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    url = f"sqlite:///{tmp_path}/redrive.db"
    database, sink = Database(url), Documents()
    sink.found = {f"{ENTITY}:1": 2}
    invariants = Invariants(Rows(database), books, Fleet(url, tmp_path, sink, 60, fresh=True))
    return Kept(database, books, sink, invariants, Journal(tmp_path / "runs-2.journal"), ids)


async def _soaked(folder: Path) -> tuple[Books, dict[str, UUID]]:
    url = f"sqlite:///{folder}/redrive.db"
    app = App(settings=load_settings(url=url, log_format="off", interval_ms=20))
    journal = Journal(folder / "runs-1.journal")

    @app.task(PLAIN, queue=QUEUE)
    async def plain(ctx: Context) -> None:
        _ran(journal, ctx)

    @app.task(FAILING, queue=QUEUE, max_attempts=2, backoff_base=0, backoff_max=0)
    async def failing(ctx: Context) -> None:
        journal.write("start", ctx.task_id, ctx.attempt, ctx.task.token)
        raise ValueError("on purpose")

    @app.task(BOOKED, queue=QUEUE)
    async def booked(ctx: Context) -> None:
        async with ctx.transaction() as transaction:
            _ran(journal, ctx)
            await transaction.execute(f"insert into {BOOKING_TABLE} (task_id) values (?)", str(ctx.task_id))

    app.of(Outbox).projection(PROJECTION, sink=f"fts5:///{folder}/search.db")
    await app.migrate()
    rows, books = Rows(Database(url)), Books()
    await rows.prepare()
    ids = {kind: (await app.enqueue(kind)).id for kind in (PLAIN, FAILING, BOOKED)}
    for kind, task_id in ids.items():
        books.task(task_id, kind)
    for version in (1, 2):
        books.event(await app.of(Outbox).publish(None, PROJECTION, ENTITY, "1", "upsert", version, {"v": version}))
        books.changed("1", version, False)
    while any(row.state != "failed" for row in await rows.live()):
        await app.worker(stop_when_empty=True).run()
    await app.close()
    return books, ids


def _ran(journal: Journal, ctx: Context) -> None:
    journal.write("start", ctx.task_id, ctx.attempt, ctx.task.token)
    journal.write("end", ctx.task_id, ctx.attempt, ctx.task.token)


async def test_books_that_were_left_alone_balance(kept: Kept) -> None:
    await kept.invariants.always()
    assert await kept.invariants.quiet() == 5 and kept.invariants.checked == 1


async def test_what_was_acknowledged_and_is_not_there_is_lost(kept: Kept) -> None:
    kept.books.task(uuid4(), PLAIN)
    await kept.breaks("lost")
    with pytest.raises(Broken, match="lost: 1"):
        await kept.invariants.always()


async def test_two_bookings_of_one_task_are_a_second_commit(kept: Kept) -> None:
    await kept.tamper(f"insert into {BOOKING_TABLE} select task_id from {BOOKING_TABLE}")
    await kept.breaks("committed twice")
    with pytest.raises(Broken, match=f"committed twice: 1: {kept.ids[BOOKED]}"):
        await kept.invariants.always()


async def test_a_completion_without_its_booking_is_torn(kept: Kept) -> None:
    await kept.tamper(f"delete from {BOOKING_TABLE}")
    await kept.breaks("torn")
    with pytest.raises(Broken, match="torn"):
        await kept.invariants.always()


async def test_a_lease_that_nobody_recovers_is_found_at_any_time(kept: Kept) -> None:
    over = RECOVERED_WITHIN_S + 5
    await kept.tamper(
        "update redrive_task set state = 'running', lease_token = id,"
        " lease_expires_at = cast((julianday('now') - 2440587.5) * 86400000000 - ?1 * 1000000 as integer)",
        over,
    )
    with pytest.raises(Broken, match="running without a lease: 1"):
        await kept.invariants.always()


async def test_a_handler_that_ran_too_often_is_found(kept: Kept) -> None:
    kept.journal.write("start", kept.ids[PLAIN], 1, uuid4())
    await kept.breaks("runs over attempts")


async def test_two_runs_on_one_lease_are_found(kept: Kept) -> None:
    token = uuid4()
    kept.journal.write_many([("start", kept.ids[PLAIN], 1, token)] * 2)
    await kept.breaks("ran twice on one lease")


async def test_what_fails_that_should_not_is_found(kept: Kept) -> None:
    await kept.tamper("update redrive_task set kind = ?1", PLAIN)
    await kept.breaks("ended otherwise than it has to")
    with pytest.raises(Broken, match="failed: 1"):
        await kept.invariants.always()


async def test_totals_that_are_wrong_are_found(kept: Kept) -> None:
    await kept.tamper("update redrive_total set completed = completed + 1 where kind = ?1", PLAIN)
    await kept.breaks("totals")


async def test_attempts_that_are_not_on_record_are_found(kept: Kept) -> None:
    await kept.tamper("update redrive_history set attempt_count = 2 where kind = ?1", PLAIN)
    await kept.breaks("timelines")


@pytest.mark.parametrize("found", [{}, {f"{ENTITY}:1": 1}, {f"{ENTITY}:1": 2, f"{ENTITY}:2": 1}])
async def test_a_sink_that_differs_is_found(kept: Kept, found: dict[str, int]) -> None:
    kept.sink.found = found
    await kept.breaks("sink and source differ")


def test_options_that_make_no_sense_are_refused(redrive, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "is about PostgreSQL" in redrive("soak", "--backends").err
    assert "is not empty" in redrive("soak", "--keep", str(tmp_path)).err


@pytest.mark.faults
@pytest.mark.thorough
def test_a_short_soak_holds(tmp_path: Path) -> None:
    command = ["soak", "--minutes", "0.4", "--rate", "40", "--seed", "7", "--keep", str(tmp_path / "logs"), "--json"]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("REDRIVE", "TASK_", "OUTBOX_"))}
    done = subprocess.run([sys.executable, "-m", "redrive.cli", *command], env=env, capture_output=True, text=True)
    said = json.loads(done.stdout)
    assert (done.returncode, said["broken"], said["last_faults"] != []) == (0, None, True)
    assert said["quiet_points"] >= 1 and said["tasks"] > 0 and said["events"] > 0
