"""The application that workers of a soak run: handlers that write down, away from the database, that they ran.

``SOAK_BOOKED`` also writes into the store's own database, in the transaction that completes the task. Its table has no
unique constraint: what was committed twice shows as two rows, what was torn as none.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from redrive.app import App
from redrive.handlers.context import Context
from redrive.kernel.outcome import Retry
from redrive.stores import is_sqlite
from redrive_kit.labs.journal import Journal
from redrive_kit.labs.soak.books import BOOKED, BOOKING_TABLE, FAILING, FAILS_AFTER, FLAKY, MANY, PLAIN, QUEUE

POLICY: dict[str, Any] = {"queue": QUEUE, "max_attempts": MANY, "backoff_base": 0.1, "backoff_max": 1.0}


app = App()
_sqlite = is_sqlite(app.url)
_PLACE = f"{BOOKING_TABLE} (task_id) values (?)" if _sqlite else f"public.{BOOKING_TABLE} (task_id) values ($1)"
_INSERT = f"insert into {_PLACE}"


@cache
def _journal(pid: int) -> Journal:
    return Journal(Path(os.environ["SOAK_DIRECTORY"]) / f"runs-{pid}-{time.monotonic_ns()}.journal")


@contextmanager
def recorded(ctx: Context) -> Iterator[None]:
    """Writes down when the handler begins, and when it has done its work."""
    journal = _journal(os.getpid())
    journal.write("start", ctx.task_id, ctx.attempt, ctx.task.token)
    yield
    journal.write("end", ctx.task_id, ctx.attempt, ctx.task.token)


@app.task(PLAIN, **POLICY)
async def plain(ctx: Context, ms: float = 10) -> None:
    with recorded(ctx):
        await asyncio.sleep(ms / 1000)


@app.task(FLAKY, **POLICY)
async def flaky(ctx: Context, ms: float = 0) -> None:
    """Needs another attempt, which passes through ``delayed``."""
    with recorded(ctx):
        if ctx.attempt == 1:
            raise Retry("the first attempt fails on purpose", after=0.2)


@app.task(FAILING, **{**POLICY, "max_attempts": FAILS_AFTER})
async def failing(ctx: Context, ms: float = 0) -> None:
    """Uses up its attempts."""
    with recorded(ctx):
        raise ValueError("this one fails on purpose")


@app.task(BOOKED, **POLICY)
async def booked(ctx: Context, ms: float = 0) -> None:
    async with ctx.transaction() as transaction:
        with recorded(ctx):  # inside: a worker that dies right after the commit has done its work
            await transaction.execute(_INSERT, str(ctx.task_id))
