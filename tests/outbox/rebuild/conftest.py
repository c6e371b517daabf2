"""A table with a trigger, and its projection: full text on SQLite and on PostgreSQL, and a search server."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from redrive import App
from redrive.kernel.operation import Operation, Status
from redrive.kernel.reads import Query
from redrive.kernel.task import State
from redrive.ops.access import Caller, Role
from redrive.outbox.index_job import REBUILD, IndexJob, job_of
from redrive.outbox.service import OutboxService
from redrive.outbox.sinks import sink_from_url
from redrive.outbox.table_source import source_for
from tests.outbox.conftest import make_app
from tests.outbox.search.servers import server_of_run

WAITS = (State.QUEUED, State.DELAYED, State.RUNNING)


@dataclass(slots=True)
class Notes:
    """The table ``notes``, which knows nothing of the outbox, and the projection ``notes``."""

    app: App
    url: str
    sink_url: str
    sink: Any

    def run(self, *statements: str) -> None:
        """Runs statements in one transaction."""
        if self.url.startswith("postgres"):
            with psycopg.connect(self.url) as connection:
                for statement in statements:
                    connection.execute(statement.encode())
            return
        with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=60)) as connection:
            connection.execute("begin immediate")
            for statement in statements:
                connection.execute(statement)
            connection.commit()

    async def begin(self) -> None:
        self.run("create table notes (id integer primary key, title text)")
        operator = await self.app.operator(Caller("ann", Role.OPERATOR))
        text = await operator.of(OutboxService).trigger("notes", "notes")
        if self.url.startswith("postgres"):
            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.execute(text.encode())
        else:
            with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=60)) as connection:
                connection.executescript(text)

    def add(self, first: int, last: int) -> None:
        rows = ", ".join(f"({n}, 'note {n}')" for n in range(first, last + 1))
        self.run(f"insert into notes (id, title) values {rows}")

    async def service(self, role: Role = Role.ADMIN) -> OutboxService:
        return (await self.app.operator(Caller("ann", role))).of(OutboxService)

    async def rebuild(self, **options: Any) -> Operation:
        return await self.app.outbox.rebuild("notes", actor="ann", **options)

    async def verify(self, **options: Any) -> Operation:
        return await self.app.outbox.verify("notes", actor="ann", **options)

    async def work(self, operation: Operation | None = None) -> Operation | None:
        """Runs workers until nothing waits, and the operation is over."""
        while True:
            await self.app.worker(stop_when_empty=True).run()
            found = None if operation is None else await self.operation(operation.id)
            over = found is None or found.status not in (Status.RUNNING, Status.WAITING)
            if over and not await self.waiting():
                return found

    async def work_without_relay(self, operation: Operation) -> Operation:
        """Drives an operation to its end, while no event is projected."""
        async with asyncio.timeout(120):
            while (found := await self.operation(operation.id)).status is Status.RUNNING:
                await self.app.worker(queues="nothing", stop_when_empty=True).run()
        return found

    async def waiting(self) -> bool:
        query = Query(WAITS, queue="outbox:notes", limit=1)
        return bool(await (await self.app.store()).find(query))

    async def nothing_runs(self) -> bool:
        """Returns whether no event is claimed."""
        query = Query((State.RUNNING,), queue="outbox:notes", limit=1)
        return not await (await self.app.store()).find(query)

    async def operation(self, operation_id: str) -> Operation:
        return await (await self.app.operator(Caller("ann", Role.VIEWER))).operations.get(operation_id)

    async def job(self) -> IndexJob:
        return await job_of(await self.app.store(), REBUILD, "notes")

    async def versions(self, index: str | None = None) -> dict[str, int]:
        await self.sink.refresh(index)
        return {one.key: one.version async for one in self.sink.scan(index)}

    async def documents(self) -> dict[str, Any]:
        """Returns what the live index has."""
        if hasattr(self.sink, "get"):
            return {key: await self.sink.get(key) for key in await self.versions()}
        await self.sink.refresh()
        hits = await self.sink._hits({"size": 1000, "query": {"match_all": {}}})
        ours = [dict(hit["_source"]) for hit in hits]
        return {one.pop("_redrive")["key"]: one for one in ours}

    async def source(self) -> dict[str, tuple[int, Any]]:
        source = await source_for(await self.app.store(), self.app.outbox.projections["notes"])
        page = await source.page(None, 10_000)
        records = list(page.records)
        while page.next is not None:  # there are several tables
            page = await source.page(page.next, 10_000)
            records += page.records
        return {one.key: (one.version, one.payload) for one in records}

    async def check_same(self) -> None:
        """Checks that the live index has what the table has, document by document and version by version."""
        kept = await self.source()
        assert await self.versions() == {key: version for key, (version, _) in kept.items()}
        assert await self.documents() == {key: payload for key, (_, payload) in kept.items()}


_SINKS = ["sqlite-fts5", "postgres-postgres", pytest.param("sqlite-search", marks=pytest.mark.thorough)]
EVERY_SINK = pytest.mark.parametrize("notes", _SINKS, indirect=True)


@pytest.fixture
async def notes(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Notes]:
    """Full text on SQLite, unless a test names others."""
    store, _, kind = getattr(request, "param", "sqlite-fts5").partition("-")
    url = f"sqlite:///{tmp_path}/redrive.db" if store == "sqlite" else str(request.getfixturevalue("postgres_url"))
    if kind == "search":
        with server_of_run("opensearch") as server:
            if server is None:
                pytest.skip("the client does not speak to the search server of this run")
            async for made in _made(url, server.sink_url(f"t{uuid4().hex[:12]}")):
                yield made
        return
    async for made in _made(url, f"fts5:///{tmp_path}/search.db" if kind == "fts5" else f"{url}?table=search_notes"):
        yield made


async def _made(url: str, sink_url: str) -> AsyncIterator[Notes]:
    app = make_app(url)
    app.outbox.projection("notes", sink=sink_url)
    await app.migrate()
    sink: Any = sink_from_url(sink_url)
    made = Notes(app, url, sink_url, sink)
    await made.begin()
    yield made
    await app.close()
    if hasattr(sink, "_server"):
        for name in await sink._live():
            await sink._server.ask("DELETE", f"/{name}")
    await sink.close()
