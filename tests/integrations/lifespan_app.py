"""A FastAPI application that runs a worker in its own process, for a real server to serve.

The task begins by writing ``BEGUN``, and ends when the file ``OPEN`` is there.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI

from redrive import App, Context

tasks = App(name="shop")


@tasks.task("GATED", max_attempts=1)
async def gated(ctx: Context) -> str:
    Path(os.environ["BEGUN"]).touch()
    while not Path(os.environ["OPEN"]).exists():
        await asyncio.sleep(0.01)
    return "all of it"


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with tasks.worker(concurrency=5):
        yield


web = FastAPI(lifespan=lifespan)


@web.post("/orders")
async def order() -> str:
    return str((await gated.enqueue()).id)
