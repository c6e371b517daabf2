"""Remote batches on both stores, with a provider that does what the payload says."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from redrive import App
from redrive.batches.batch import Batch
from redrive.batches.batch_service import BatchService
from redrive.batches.remote.actions import RemoteBatchActions
from redrive.batches.remote.application import RemoteBatches
from redrive.batches.remote.model import RemoteBatch
from redrive.batches.remote.upkeep import end_overdue
from redrive.batches.settings import BatchSettings
from redrive.kernel.circuit import SetCircuit
from redrive.kernel.commit import Commit
from redrive.kernel.machine import Event, Transition
from redrive.kernel.reads import Query
from redrive.kernel.task import State
from redrive.ledger.application import AppLedger
from redrive.ops.access import Caller, Role
from redrive.remote import ProviderError, RemoteItem, Status
from redrive.settings import load_settings
from tests.commands import redrive
from tests.conftest import ALSO_ON_POSTGRES, IN_CI_ON_POSTGRES
from tests.worker.conftest import drain, until

ANN = Caller("ann", Role.OPERATOR)
ON_BOTH = (*ALSO_ON_POSTGRES["batches_remote"], *IN_CI_ON_POSTGRES["batches_remote"])
QUICK = {"poll_first": 0.0, "poll_next": 0.0, "poll_later": 0.0, "max_start": 3, "last_look_seconds": 0.0}


class Scripted:
    """A provider whose jobs do what their payload says: {"polls": 2}, {"fail": "text"}, {"refuse": 400}, {"hang": 1}"""

    max_poll = 10

    def __init__(self) -> None:
        self.starts: Counter[str] = Counter()
        self.jobs: dict[str, Any] = {}
        self.polls: Counter[str] = Counter()
        self.calls: list[int] = []
        self.cancelled: set[str] = set()
        self.down: ProviderError | None = None
        self.lost = False  # starts are done, and not answered
        self.silent = False  # the same, and whoever asks waits for good
        self.hangs = True  # starts of {"hang": …} are done, and never answered
        self.hold = False  # every look says: ask again in a while
        self.can_find = False  # it can be asked for a job by the key of its start

    async def start(self, item: RemoteItem, idempotency_key: str) -> str:
        if self.down is not None:
            raise self.down
        if isinstance(item.payload, dict) and "refuse" in item.payload:
            raise ProviderError("refused", status_code=item.payload["refuse"])
        self.starts[idempotency_key] += 1
        self.jobs[idempotency_key] = item.payload
        if self.silent or (self.hangs and isinstance(item.payload, dict) and "hang" in item.payload):
            await asyncio.Event().wait()
        if self.lost:
            raise TimeoutError("no answer")
        return idempotency_key

    async def has_started(self) -> bool:
        return bool(self.starts)

    async def poll(self, ids: Sequence[str]) -> dict[str, Status]:
        if self.down is not None:
            raise self.down
        if self.hold:
            raise ProviderError("busy", status_code=429, retry_after="1")
        self.calls.append(len(ids))
        return {one: self._status(one) for one in ids if one in self.jobs}

    async def cancel(self, job: str) -> None:
        self.cancelled.add(job)

    async def find(self, key: str) -> str | None:
        return key if key in self.jobs else None

    def _status(self, job: str) -> Status:
        payload = self.jobs[job] if isinstance(self.jobs[job], dict) else {}
        self.polls[job] += 1
        if job in self.cancelled and not payload.get("stubborn"):
            return Status.cancelled()
        if self.polls[job] <= payload.get("polls", 0):
            return Status.running(payload.get("progress"))
        if "fail" in payload and not (payload.get("once") and not job.endswith(":1")):
            return Status.failed(payload["fail"], status_code=payload.get("status"))
        return Status.succeeded({"did": job})


def make_app(url: str, **own: Any) -> App:
    settings = load_settings(url=url, log_format="off").holding(BatchSettings(**{**QUICK, **own}))
    return App(settings=settings)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs on both stores what is about statements, which are twins; what sees the port alone, and all that parts
    faces, runs on SQLite."""
    own = any("store_url" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "store_url" in metafunc.fixturenames and not own:
        both = metafunc.definition.path.name in ON_BOTH
        metafunc.parametrize("store_url", ["sqlite", "postgres"] if both else ["sqlite"], indirect=True)


@pytest.fixture
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/redrive.db"
    return str(request.getfixturevalue("postgres_url"))


@asynccontextmanager
async def opened(app: App) -> AsyncIterator[App]:
    """Migrates the store of an application, gives the account acme 1000 credits, and closes it in the end."""
    await app.migrate()
    await rich(app)
    yield app
    await app.close()


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[App]:
    async with opened(make_app(store_url)) as made:
        yield made


@pytest.fixture
def provider(app: App) -> Scripted:
    made = Scripted()
    app.provider("video", made)
    return made


async def service(app: App, caller: Caller = ANN) -> RemoteBatchActions:
    return (await app.operator(caller)).of(RemoteBatchActions)


async def listed(app: App) -> list[Batch]:
    """Returns the batches that there are, the latest first."""
    return (await (await app.operator(ANN)).of(BatchService).list()).items


async def rich(app: App, amount: int = 1000) -> None:
    """Lets the account acme have so many credits, neither more nor less."""
    ledger, store = app.of(AppLedger), await app.store()
    await ledger.open("acme")
    more = amount - await store.sql.balance("account:acme")
    if more:
        await (ledger.credit if more > 0 else ledger.adjust)("acme", more, f"to have {amount}", reason="a test")


async def money(app: App, account: str = "acme") -> tuple[int, int, int]:
    """Returns what an account can spend, what is frozen, and what was earned in all."""
    store = await app.store()
    return (
        await store.sql.balance(f"account:{account}"),
        await store.sql.balance(f"frozen:{account}"),
        await store.sql.balance("system:revenue"),
    )


async def made(app: App, items: Any, price: int = 10, **more: Any) -> RemoteBatch:
    return await app.of(RemoteBatches).create(items, provider="video", account="acme", price=price, **more)


async def counts(app: App, batch: RemoteBatch | Batch) -> dict[str, int]:
    found = await (await service(app)).progress(batch.id)
    return {state: n for state, n in found.counts.states.items() if n}


async def work(app: App, batch: RemoteBatch) -> RemoteBatch:
    """Runs a worker until nothing is ready any more; returns the batch as it is then."""
    await drain(app, queues=app.queues())
    return await app.of(RemoteBatches).get(batch.id)


async def settled(app: App, batch: RemoteBatch) -> RemoteBatch:
    """Runs a worker until the batch is settled."""
    own = app.of(RemoteBatches)

    async def look() -> RemoteBatch | None:
        found = await own.get(batch.id)
        return found if found.settled else None

    async with app.worker(queues=",".join(app.queues())):
        found: RemoteBatch = await until(look)
    return found


async def run_sql(app: App, sqlite: str, postgres: str) -> list[Any]:
    """Runs a statement behind the back of the application; returns its rows."""
    if app.settings.url.startswith("sqlite"):
        with sqlite3.connect(app.settings.url.removeprefix("sqlite:///")) as connection:
            rows = connection.execute(sqlite).fetchall()
        connection.close()
        return rows
    async with await psycopg.AsyncConnection.connect(app.settings.url, autocommit=True) as other:
        found = await other.execute(postgres)
        return [] if found.description is None else await found.fetchall()


async def rows_left(app: App) -> tuple[int, int]:
    """Returns how many rows of batches and items there are, drafts as well."""
    count = "select (select count(*) from {0}remote), (select count(*) from {0}item)"
    [row] = await run_sql(app, count.format("redrive_batches_"), count.format("redrive.batches_"))
    return tuple(row)


async def age(app: App, table: str, column: str, seconds: int) -> None:
    """Sets a time back to so many seconds ago, as if it had been so."""
    await run_sql(
        app,
        f"update redrive_{table} set {column} = (unixepoch() - {seconds}) * 1000000",
        f"update redrive.{table} set {column} = clock_timestamp() - interval '{seconds} s'",
    )


async def open_circuit(app: App) -> None:
    store = await app.store()
    row = next((row for row in await store.circuits() if row.name == "video"), None)
    version, opened = (0, 0) if row is None else (row.version, row.opened)
    change = SetCircuit("video", version, ("BATCH_ITEM_VIDEO",), True, 3600.0, "connect", "ann", 0, opened + 1)
    await store.apply(Commit(controls=[change]))


async def close_circuit(app: App) -> None:
    store = await app.store()
    [row] = [row for row in await store.circuits() if row.name == "video"]
    change = SetCircuit("video", row.version, row.kinds, False, 0.0, None, "ann", 0, row.opened)
    await store.apply(Commit(controls=[change]))


async def end_unheard(app: App, batch: RemoteBatch, items: int = 1) -> None:
    """Opens the circuit, and lets the time of so many items be over behind it."""
    await open_circuit(app)
    while (await counts(app, batch)).get("failed", 0) < items:  # each brings the next of its chain
        await end_overdue(await app.store(), 0.0, never)


async def make_due(app: App, kind: str | None = None) -> int:
    """Lets the backoff of all that waits, or of a kind, be over; returns how many there were."""
    store = await app.store()
    waiting = await store.find(Query((State.DELAYED,), kind, limit=100))
    await store.apply(Commit(transitions=[Transition(one.id, Event.DUE, State.QUEUED) for one in waiting]))
    return len(waiting)


def never() -> bool:
    return False


def command(*words: str) -> str:
    """Runs redrive; returns what it says."""
    return redrive(*words, code=0).stdout
