"""An application with batches on both stores, and what its handlers did."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from redrive import App, Context
from redrive.batches import BATCHES
from redrive.settings import load_settings


class Told(list[Any]):
    """What handlers have seen."""


def make_app(url: str) -> App:
    app = App(settings=load_settings(url=url, log_format="off"), features=[BATCHES])
    app.told = told = Told()  # type: ignore[attr-defined]
    app.broken = broken = {"on"}  # type: ignore[attr-defined]

    @app.task("WORK", max_attempts=1)
    async def work(ctx: Context, n: int) -> None:
        if n < 0 and broken:
            raise ValueError("below zero")

    @app.task("SPLIT", max_attempts=1)
    async def split(ctx: Context, n: int) -> None:
        await app.batch.of(ctx).add([work.new(n=each) for each in range(n)])  # type: ignore[attr-defined]

    @app.task("ENDED")
    async def ended(ctx: Context, batch: str = "") -> None:
        told.append(("ended", batch))

    @app.task("SUCCEEDED")
    async def succeeded(ctx: Context, batch: str = "") -> None:
        told.append(("succeeded", batch))

    return app


@pytest.fixture(params=["sqlite", "postgres"])
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[App]:
    sqlite = request.param == "sqlite"
    made = make_app(f"sqlite:///{tmp_path}/redrive.db" if sqlite else request.getfixturevalue("postgres_url"))
    await made.migrate()
    yield made
    await made.close()


async def drain(app: App) -> None:
    """Runs what is there, and adds up what large joins have been told."""
    await app.worker(stop_when_empty=True, concurrency=20).run()
    await (await app.store()).upkeep("fold")
    await app.worker(stop_when_empty=True, concurrency=20).run()
