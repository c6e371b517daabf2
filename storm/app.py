"""The application of a storm: handlers that write down that they ran, away from the database that is being broken.

``LEDGER`` also writes into the store's own database, in the transaction that completes the task. Its table has no
unique constraint: a task that was committed twice shows as two rows, one that was torn as none.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from redrive import App, Context, Retry
from redrive_kit.labs.journal import Journal

DIRECTORY = Path(os.environ.get("STORM_DIR", "."))
# A storm may cost a task many attempts (a killed worker, a full disk); none of them may be the last.
MANY = 100
POLICY: dict[str, Any] = {"max_attempts": MANY, "backoff_base": 0.1, "backoff_max": 1.0}
INSERT = {
    "postgresql": "insert into public.ledger (task_id, token, attempt) values ($1, $2, $3)",
    "sqlite": "insert into ledger (task_id, token, attempt) values (?, ?, ?)",
}

if "STORM_HOST" in os.environ:  # as if this worker were on a host of its own
    socket.gethostname = lambda: os.environ["STORM_HOST"]

app = App()
_insert = INSERT["sqlite" if app.url.startswith("sqlite") else "postgresql"]
_journals: dict[int, Journal] = {}


def _journal() -> Journal:
    """This process's own: several workers may share the directory."""
    pid = os.getpid()
    if pid not in _journals:
        _journals[pid] = Journal(DIRECTORY / f"effects-{pid}-{time.monotonic_ns()}.journal")
    return _journals[pid]


def _pause(seconds: float) -> None:
    """``time.sleep`` that also works under libfaketime, where the real one fails on a clock that is not faked."""
    select.select([], [], [], seconds)


@contextmanager
def recorded(ctx: Context) -> Iterator[None]:
    """The effect: once when the handler begins, once when it has done its work."""
    fields = (ctx.task_id, ctx.attempt, ctx.task.token, ctx.worker_id)
    _journal().write("start", *fields)
    yield
    _journal().write("end", *fields)


@app.task("PLAIN", **POLICY)
async def plain(ctx: Context, n: int, ms: float = 5) -> None:
    with recorded(ctx):
        await asyncio.sleep(ms / 1000)


@app.task("SLOW", **POLICY)
async def slow(ctx: Context, n: int, ms: float = 500) -> None:
    """Always some of these run: whoever is killed dies in the middle of one."""
    with recorded(ctx):
        await asyncio.sleep(ms / 1000)


@app.task("GOOD", max_attempts=1)
async def good(ctx: Context, n: int, ms: float = 50) -> None:
    """May be tried but once: somebody else's crash must not use that up."""
    with recorded(ctx):
        await asyncio.sleep(ms / 1000)


@app.task("POISON", **POLICY)
async def poison(ctx: Context, n: int, ms: float = 0) -> None:
    """Takes its worker along."""
    with recorded(ctx):
        os.kill(os.getpid(), signal.SIGKILL)


@app.task("BLOCKING", **POLICY)
async def blocking(ctx: Context, n: int, ms: float = 500) -> None:
    """Holds the event loop: nothing else of its worker moves meanwhile."""
    with recorded(ctx):
        _pause(ms / 1000)


async def _gate() -> None:
    """Returns when the storm says so."""
    while not (DIRECTORY / "open").exists():  # noqa: ASYNC110 (nobody tells of files)
        await asyncio.sleep(0.2)


@app.task("GATED", max_attempts=1)
async def gated(ctx: Context, n: int, ms: float = 0) -> None:
    """Runs until the storm lets it go. It may be tried but once: that its worker is lost must not use that up."""
    with recorded(ctx):
        await _gate()


@app.task("LIMITED", concurrency=2, **POLICY)
async def limited(ctx: Context, n: int, ms: float = 0) -> None:
    """Two at a time: while both are on workers that are gone, nothing of this kind moves."""
    with recorded(ctx):
        await _gate()


@app.task("GATED_LEDGER", **POLICY)
async def gated_ledger(ctx: Context, n: int, ms: float = 0) -> None:
    """Whoever was taken for dead meanwhile would book it a second time."""
    await _gate()
    await ledger(ctx, n)


@app.task("THREAD", **POLICY)
def thread(ctx: Context, n: int, ms: float = 5) -> None:
    with recorded(ctx):
        _pause(ms / 1000)


@app.task("FLAKY", **POLICY)
async def flaky(ctx: Context, n: int, ms: float = 0) -> None:
    """Needs a second attempt, which passes through ``delayed``."""
    with recorded(ctx):
        if ctx.attempt == 1:
            raise Retry("the first attempt fails on purpose", after=0.1)


@app.task("LEDGER", **POLICY)
async def ledger(ctx: Context, n: int, ms: float = 0) -> None:
    async with ctx.transaction() as transaction:
        with recorded(ctx):  # inside: a worker that dies right after the commit has done its work
            await transaction.execute(_insert, str(ctx.task_id), str(ctx.task.token), ctx.attempt)


def _follow(parent: int) -> None:
    """A storm that was killed leaves nobody to end its workers."""
    while os.getppid() == parent:
        _pause(2)
    os._exit(1)


if "STORM_PARENT" in os.environ:
    threading.Thread(target=_follow, args=(int(os.environ["STORM_PARENT"]),), daemon=True).start()
