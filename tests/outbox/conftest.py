"""An application with a projection into full text, on both stores, and a sink that can be made to fail."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from redrive import App, State
from redrive.kernel.reads import Query
from redrive.kernel.task import Task
from redrive.ops.allowance import UNRESTRICTED
from redrive.ops.operations import drive, erase
from redrive.outbox.settings import OutboxSettings
from redrive.outbox.sinks.fts5 import Fts5
from redrive.settings import load_settings
from tests.outbox.faulty import Faulty

WAITS = (State.QUEUED, State.DELAYED)
QUICK = {"base_backoff_seconds": 0.01, "max_backoff_seconds": 0.02}


@dataclass(slots=True)
class World:
    """An application whose projection ``notes`` writes into ``fts`` by way of ``sink``."""

    app: App
    fts: Fts5
    sink: Faulty
    name: str = "notes"

    @property
    def on_sqlite(self) -> bool:
        return self.app.connections.main.file is not None

    async def publish(self, entity_id: Any, op: str, version: int, payload: Any = None) -> Any:
        return await self.app.outbox.publish(None, "notes", "note", entity_id, op, version, payload)

    async def drain(self, app: App | None = None) -> None:
        """Runs everything to its end, also what waits for its next attempt."""
        while any(task.state in WAITS for task in await self.tasks()):
            await (app or self.app).worker(stop_when_empty=True).run()

    async def versions(self) -> dict[str, int]:
        return {one.key: one.version async for one in self.fts.scan()}

    async def tasks(self) -> list[Task]:
        return list(await (await self.app.store()).find(Query(queue=f"outbox:{self.name}", limit=1000)))


def make_app(url: str, *, grace_ms: int = 30_000, **settings: Any) -> App:
    loaded = load_settings(url=url, log_format="off", interval_ms=20, grace_ms=grace_ms)
    return App(settings=loaded.holding(OutboxSettings(**{**QUICK, **settings})))


async def erase_scope(app: App, scope: str) -> None:
    """Erases what the store has of a scope, to the end."""
    store = await app.store()
    begun, _ = await erase.begin(store, scope, None, actor="ann", reason="asked for", rule=UNRESTRICTED)
    while await drive.step(store, begun.id, "w1") is not None:
        pass


BOTH_STORES = pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The store that a test names, else SQLite: most see a store through its port alone. What is about statements runs
    on both (``BOTH_STORES``)."""
    postgres = getattr(request, "param", "sqlite") == "postgres"
    return str(request.getfixturevalue("postgres_url")) if postgres else f"sqlite:///{tmp_path}/redrive.db"


@pytest.fixture
async def world(url: str, tmp_path: Path) -> AsyncIterator[World]:
    app = make_app(url)
    fts = Fts5(tmp_path / "search.db")
    sink = Faulty(fts)
    app.outbox.projection("notes", sink=sink)
    await app.migrate()
    yield World(app, fts, sink)
    await app.close()
    await fts.close()
