"""Handlers for a process of their own, in a module that takes its time to be imported there."""

from __future__ import annotations

import multiprocessing
import time

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
