"""An application on each store, with a worker to run it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from redrive import App, State, Task
from redrive.settings import Options, load_settings
from redrive.worker.worker import Worker

END = {State.COMPLETED, State.CANCELLED, State.FAILED}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/redrive.db"
    found: str = request.getfixturevalue("postgres_url")
    return found


MakeApp = Callable[..., App]
on_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
on_postgres = pytest.mark.parametrize("url", ["postgres"], indirect=True)


@pytest.fixture
async def make_app(url: str) -> AsyncIterator[MakeApp]:
    apps: list[App] = []

    def make(**settings: Any) -> App:
        fast = {"backoff_base_ms": 10, "backoff_max_ms": 20, "log_format": "off", "interval_ms": 60_000}
        app = App(settings=load_settings(url=url, **(fast | settings)))
        apps.append(app)
        return app

    yield make
    for app in apps:
        await app.close()


@pytest.fixture
def app(make_app: MakeApp) -> App:
    return make_app()


@asynccontextmanager
async def working(app: App, **options: Any) -> AsyncIterator[Worker]:
    """A worker that runs in the background; ``sleep`` is long, so that nothing here is found by polling."""
    worker = app.worker(await app.store(), Options(**({"concurrency": 5, "sleep": 60.0} | options)))
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await asyncio.wait_for(running, 60)


async def drain(app: App, **options: Any) -> Worker:
    """Run until nothing is ready any more."""
    worker = app.worker(await app.store(), Options(**({"concurrency": 5, "stop_when_empty": True} | options)))
    await asyncio.wait_for(worker.run(), 100)
    return worker


async def until(condition: Callable[[], Any], timeout: float = 50) -> Any:
    """Wait until a condition, plain or awaitable, holds; how long it takes is not asserted, but it is less than the
    sleep of a worker: nothing is found by polling."""
    async with asyncio.timeout(timeout):
        while True:
            found = condition()
            if inspect.isawaitable(found):
                found = await found
            if found:
                return found
            await asyncio.sleep(0.01)


async def ended(app: App, task_id: UUID) -> Task:
    async def look() -> Task | None:
        task = await app.get(task_id)
        return task if task is not None and task.state in END else None

    found: Task = await until(look)
    return found


async def task_of(app: App, task_id: UUID) -> Task:
    """Returns a task that is there."""
    found = await app.get(task_id)
    assert found is not None
    return found


async def run_task(app: App, *given: Any, **options: Any) -> Task:
    """Enqueues a task, lets a worker run it, and returns it at its end."""
    task = await app.enqueue(*given, **options)
    async with working(app):
        return await ended(app, task.id)
