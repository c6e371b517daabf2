"""Handlers for a process of their own, in a module that takes its time to be imported there."""

from __future__ import annotations

import asyncio
import functools
import logging
import multiprocessing
import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from redrive import Context, Fail, Snooze

SLOW_IMPORT = 1.5

if multiprocessing.parent_process() is not None:
    time.sleep(SLOW_IMPORT)


def quick(ctx: Context) -> str:
    ctx.log.info("halfway %d", 50, extra={"step": object})
    return "done"


def endless(ctx: Context) -> None:
    time.sleep(60)


def decline(ctx: Context) -> None:
    raise Fail("CARD_DECLINED", "no money")


def poll(ctx: Context) -> Snooze | str:
    return Snooze(0, state={"page": 2}) if ctx.state is None else str(ctx.state["page"])


logger = logging.getLogger("shop.orders")


def shouts(function: Callable[..., str]) -> Callable[..., str]:
    @functools.wraps(function)
    def wrapper(ctx: Context) -> str:
        return function(ctx).upper() + "!"

    return wrapper


def bare(ctx: Context) -> str:
    return "bare"


@shouts
def decorated(ctx: Context) -> str:
    return "bare"


async def coroutine(ctx: Context) -> str:
    await asyncio.sleep(0)
    return "awaited"


def lazy(ctx: Context) -> Any:
    return (n for n in range(3))


def picky(ctx: Context) -> None:
    raise KeyError("missing")


def talks(ctx: Context) -> None:
    logger.info("order %d", 17, extra={"customer": "c-1"})
    logger.warning("running low")
    try:
        raise ValueError("odd")
    except ValueError:
        logger.exception("went wrong")
    logger.debug("not asked for")
    ctx.log.info("by the context")


def leaves_a_child(ctx: Context, path: str) -> None:
    """Starts a program that writes to a file for as long as it lives, and does not end itself."""
    program = f"while true; do echo alive >> {path}; sleep 0.05; done"
    child = subprocess.Popen(["sh", "-c", program])
    Path(f"{path}.pid").write_text(str(child.pid))
    time.sleep(60)


def forks(ctx: Context) -> str:
    return "child" if os.fork() == 0 else "parent"


def done(ctx: Context) -> None:
    ctx.done({"said": "done"})


def forks_and_dies(ctx: Context, number: int) -> None:
    """Its child lives on, with all that is open here."""
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    os.kill(os.getpid(), number)
    time.sleep(60)


def speaks_late(ctx: Context, who: str, said: str) -> None:
    """The first one leaves a thread that reports while the second runs in the same process."""
    if who == "first":
        threading.Thread(target=_say_late, args=(ctx, said), daemon=True).start()
        return
    Path(f"{said}.go").touch()
    while not Path(said).exists():
        time.sleep(0.01)
    ctx.progress({"of": who})


def _say_late(ctx: Context, said: str) -> None:
    while not Path(f"{said}.go").exists():
        time.sleep(0.01)
    ctx.progress({"of": "first"})
    Path(said).touch()


def divides(ctx: Context) -> None:
    print(1 // (ctx.attempt - 1))
