"""The application that fault tests run: kinds that do one thing each, and write down that they did.

What a handler did is recorded in a table of its own (``effects.db`` in the directory named by ``FAULT_DIR``), never in
the store under test: the record must survive whatever happens to the store.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from redrive import App, Circuit, Context, Retry, Snooze

DIRECTORY = Path(os.environ.get("FAULT_DIR", "."))
SCHEMA = "create table if not exists effect (task_id text, attempt integer, what text, pid integer, at real)"

# A test may have processes fail to start, or take their time, from some moment on.
if Path(os.environ.get("FAULT_BREAK_START", "/nowhere")).exists():
    os._exit(7)
if Path(slow := os.environ.get("FAULT_SLOW_START", "/nowhere")).exists():
    Path(f"{slow}.begun").touch()
    time.sleep(30)

app = App()


def effects() -> sqlite3.Connection:
    connection = sqlite3.connect(DIRECTORY / "effects.db", timeout=60, isolation_level=None)
    connection.execute("pragma synchronous = off")
    return connection


def record(ctx: Context, what: str) -> None:
    connection = effects()
    try:
        connection.execute(
            "insert into effect values (?, ?, ?, ?, ?)", (str(ctx.task_id), ctx.attempt, what, os.getpid(), time.time())
        )
    finally:
        connection.close()


def opened(ctx: Context, name: str) -> bool:
    """The test opened this gate, for everybody or for this worker alone."""
    return (DIRECTORY / f"go-{name}").exists() or (DIRECTORY / f"go-{name}-{ctx.worker_id}").exists()


@app.task("CALL", max_attempts=3, backoff_base=0.05, circuit=Circuit("far", failures=3, delay=0.5, max_delay=1.0))
def call(ctx: Context, url: str) -> None:
    """Calls a service that may be down. Its circuit is opened before attempts are used up."""
    with urllib.request.urlopen(url, timeout=5) as answer:
        answer.read()
    record(ctx, "end")


@app.task("QUICK", backoff_base=0.05)
async def quick(ctx: Context, n: int = 0) -> int:
    record(ctx, "start")
    record(ctx, "end")
    return n


@app.task("SHORT")
async def short(ctx: Context, n: int = 0, seconds: float = 0.02) -> int:
    """Long enough to be caught running, short enough to be many."""
    record(ctx, "start")
    await asyncio.sleep(seconds)
    record(ctx, "end")
    return n


@app.task("GATED")
async def gated(ctx: Context, name: str = "all") -> str:
    """Runs until the test opens the gate."""
    record(ctx, "start")
    while not opened(ctx, name):
        await asyncio.sleep(0.01)
    record(ctx, "end")
    return name


@app.task("HELD")
async def held(ctx: Context, name: str = "all") -> str:
    """Has done all its work before it waits: nothing is written at the end, which may be impossible by then."""
    record(ctx, "start")
    record(ctx, "end")
    while not opened(ctx, name):
        await asyncio.sleep(0.01)
    return name


@app.task("SNOOZED")
async def snoozed(ctx: Context, name: str = "all") -> str:
    """Snoozes at the open gate, and completes the second time."""
    if ctx.state is None:
        record(ctx, "start")
        while not opened(ctx, name):
            await asyncio.sleep(0.01)
        raise Snooze(0.2, state="seen")
    record(ctx, "start")
    record(ctx, "end")
    return str(ctx.state)


@app.task("FAILING", backoff_base=0.05, backoff_max=0.05)
async def failing(ctx: Context, name: str = "all") -> int:
    """Fails at the open gate, and completes the second time."""
    record(ctx, "start")
    while not opened(ctx, name):
        await asyncio.sleep(0.01)
    if ctx.attempt == 1:
        raise RuntimeError("fails the first time")
    record(ctx, "end")
    return ctx.attempt


@app.task("GATED_THREAD")
def gated_thread(ctx: Context, name: str = "all") -> str:
    """A ``def`` handler that listens to ``ctx.cancelled``."""
    record(ctx, "start")
    while not opened(ctx, name):
        if ctx.cancelled:
            record(ctx, "stopped")
            raise RuntimeError("stopped as asked")
        time.sleep(0.01)
    record(ctx, "end")
    return name


@app.task("BLOCKED")
def blocked(ctx: Context, name: str = "all") -> str:
    """A ``def`` handler that listens to nobody."""
    record(ctx, "start")
    while not opened(ctx, name):
        time.sleep(0.01)
    record(ctx, "end")
    return "too late"


@app.task("HOLDS_LOOP")
async def holds_loop(ctx: Context, name: str = "all") -> str:
    """Never lets go of the event loop before the gate opens."""
    record(ctx, "start")
    while not opened(ctx, name):
        time.sleep(0.01)
    record(ctx, "end")
    return name


@app.task("POISON")
async def poison(ctx: Context) -> None:
    """Kills its worker, and with it everything else that this runs."""
    record(ctx, "start")
    await asyncio.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task("STUBBORN")
async def stubborn(ctx: Context, name: str = "all") -> str:
    """Swallows its cancellation."""
    record(ctx, "start")
    while not opened(ctx, name):
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            record(ctx, "swallowed")
    record(ctx, "end")
    return "too late"


@app.task("SPIN", isolation="process", backoff_base=0.01, backoff_max=0.01)
def spin(ctx: Context) -> None:
    record(ctx, "start")
    while True:
        pass


@app.task("NATIVE", isolation="process")
def native(ctx: Context) -> None:
    """In one call that never returns and lets no other thread run, beside a program that it has started."""
    started = subprocess.Popen(["sleep", "600"])
    record(ctx, f"started {started.pid}")
    record(ctx, "start")
    re.match(r"(a+)+$", "a" * 60 + "b")


@app.task("EXIT", isolation="process", backoff_base=0.01, backoff_max=0.01)
def leave(ctx: Context) -> None:
    record(ctx, "start")
    os._exit(3)


@app.task("ECHO", isolation="process")
def echo(ctx: Context, text: str = "") -> int:
    record(ctx, "start")
    record(ctx, "end")
    return len(text)


@app.task("FAIL", backoff_base=0.01, backoff_max=0.01)
async def fail(ctx: Context) -> None:
    record(ctx, "start")
    raise RuntimeError("fails on purpose")


@app.task("FLAKY", backoff_base=0.05, backoff_max=0.1)
async def flaky(ctx: Context, times: int = 1) -> int:
    record(ctx, "start")
    if ctx.attempt <= times:
        raise Retry("not yet", after=0.05)
    record(ctx, "end")
    return ctx.attempt


@app.task("SNOOZER")
async def snoozer(ctx: Context, seconds: float = 0.3) -> str:
    record(ctx, "start")
    if ctx.state is None:
        raise Snooze(seconds, state="seen")
    record(ctx, "end")
    return str(ctx.state)


@app.task("LIMITED")
async def limited(ctx: Context, seconds: float = 0.03) -> None:
    """For quotas and rates: the interval is written in the store's own database, with the store's clock."""
    record(ctx, "start")
    await _mark(ctx, "start")
    await asyncio.sleep(seconds)
    await _mark(ctx, "end")
    record(ctx, "end")


async def _mark(ctx: Context, what: str) -> None:
    args: tuple[Any, ...] = (str(ctx.task_id), ctx.attempt, what)
    if not app.url.startswith("postgresql"):
        return  # SQLite's clock is this machine's: ``record`` already has it
    import asyncpg

    connection = await asyncpg.connect(app.url)
    try:
        await connection.execute("insert into public.mark values ($1, $2, $3, clock_timestamp())", *args)
    finally:
        await connection.close()


if schedule := os.environ.get("FAULT_SCHEDULE"):
    app.periodic("QUICK", cron=schedule, name="quick", missed=os.environ.get("FAULT_MISSED", "coalesce"))


# -- handlers that fork -----------------------------------------------------------------------------------------------


def reaped(ctx: Context, pid: int) -> str:
    os.waitpid(pid, 0)
    record(ctx, "end")
    return "parent"


@app.task("FORK_LOOP")
async def fork_loop(ctx: Context) -> str:
    record(ctx, "start")
    pid = os.fork()
    return "child" if pid == 0 else await asyncio.to_thread(reaped, ctx, pid)


@app.task("FORK_FORGETS")
async def fork_forgets(ctx: Context) -> str:
    """Asks for nobody's exit code."""
    if os.fork() == 0:
        return "child"
    record(ctx, "end")
    return "parent"


@app.task("FORK_LOOP_WAITS")
async def fork_loop_waits(ctx: Context) -> str:
    record(ctx, "start")
    pid = os.fork()
    if pid == 0:
        await asyncio.sleep(0.05)
        return "child"
    return await asyncio.to_thread(reaped, ctx, pid)


@app.task("FORK_LOOP_EXITS")
async def fork_loop_exits(ctx: Context) -> str:
    record(ctx, "start")
    pid = os.fork()
    if pid == 0:
        sys.exit(0)
    return await asyncio.to_thread(reaped, ctx, pid)


@app.task("FORK_THREAD")
def fork_thread(ctx: Context) -> str:
    record(ctx, "start")
    pid = os.fork()
    return "child" if pid == 0 else reaped(ctx, pid)


@app.task("FORK_TO_THREAD")
async def fork_to_thread(ctx: Context) -> str:
    record(ctx, "start")
    pid = await asyncio.to_thread(os.fork)
    return await asyncio.to_thread(reaped, ctx, pid)


@app.task("FORK_SUBTASK")
async def fork_subtask(ctx: Context) -> str:
    async def forks() -> int:
        return os.fork()

    record(ctx, "start")
    pid = await asyncio.create_task(forks())
    return await asyncio.to_thread(reaped, ctx, pid)


@app.task("FORK_DETACHED")
async def fork_detached(ctx: Context) -> str:
    """In a task that nobody waits for: the child comes back to the loop, not to the handler."""
    pids: list[int] = []

    async def forks() -> None:
        pids.append(os.fork())
        await asyncio.sleep(0)

    record(ctx, "start")
    task = asyncio.create_task(forks())
    while not pids or not pids[0]:
        await asyncio.sleep(0.01)
    await task
    return await asyncio.to_thread(reaped, ctx, pids[0])


@app.task("FORK_PROCESS", isolation="process")
def fork_process(ctx: Context) -> str:
    record(ctx, "start")
    pid = os.fork()
    return "child" if pid == 0 else reaped(ctx, pid)


def square(n: int) -> int:
    return n * n


def pooled(ctx: Context) -> int:
    """Ends its processes with SIGTERM, as pools and Process.terminate() do."""
    record(ctx, "start")
    with multiprocessing.get_context("fork").Pool(2) as pool:
        total = sum(pool.map(square, range(4)))
    sleeper = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    sleeper.start()
    sleeper.terminate()
    sleeper.join(30)
    assert sleeper.exitcode == -15, sleeper.exitcode
    record(ctx, "end")
    return total


app.task("POOL_THREAD")(pooled)
app.task("POOL_PROCESS", isolation="process")(pooled)
