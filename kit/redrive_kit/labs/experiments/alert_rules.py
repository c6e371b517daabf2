"""The second half of lab 6: everything that rules watch is broken at once, then mended; each has to fire, and to end.

The rules are evaluated by redrive's own evaluator, with the settings of the experiment: its thresholds are short, and
rounds follow each other faster than the 15 s of a worker. What fires ends 30 s after its cause is gone, as always.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from uuid import UUID

from redrive.kernel.alerts.book import Book
from redrive.kernel.duty import Duty
from redrive.ops.access import Caller, Role
from redrive.ops.alerts.look import load
from redrive.ops.duties import alerts_duty
from redrive_kit.labs.lab_run import PATIENCE_S, LabRun
from redrive_kit.labs.workers import OutboxWorker

EVENTS = 30
HANGS_S = 300.0
ROUND_EVERY_S = 0.5
OF_OUTBOX = ("outbox_stuck", "outbox_behind", "outbox_failed")
OF_QUEUE = ("failed", "depth", "pending", "oldest_age", "no_worker")
STUCK = "stuck"  # has to last for a minute, whatever the settings say
ACTOR = "lab 6"


async def fire_and_end(lab: LabRun, longest_hold: float) -> None:
    """Breaks what rules watch, mends it, and asserts that each rule fires and ends. ``longest_hold``: seconds that
    there are for rules whose windows cannot be set; those that need more are left out."""
    rules = [*OF_OUTBOX, *(f"{name}:{lab.world.queue}" for name in OF_QUEUE)]
    rules += [STUCK] if longest_hold >= 60 else []
    if STUCK not in rules:
        lab.note("left out: stuck, which holds for a minute before it fires")
    lab.note("left out: surge, which ends ten minutes after the last failure")
    rounds = Rounds(lab)
    with _kept_in(lab):
        await _break_everything(lab)
        await rounds.until(rules, "fires", lambda book: {one.key for one in book.firing}, PATIENCE_S + longest_hold)
        await _mend_everything(lab)
        await rounds.until(rules, "ends", lambda book: {one.key for one in book.ended}, PATIENCE_S)


class _LabLog(logging.Handler):
    """Puts what the evaluator logs into the record."""

    def __init__(self, lab: LabRun) -> None:
        super().__init__(logging.INFO)
        self._lab = lab

    def emit(self, record: logging.LogRecord) -> None:
        self._lab.log({"event": getattr(record, "event", record.levelname), "message": record.getMessage()})


@contextmanager
def _kept_in(lab: LabRun) -> Iterator[None]:
    logger, handler = logging.getLogger("redrive.alerts"), _LabLog(lab)
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]


class Rounds:
    """Rounds of the evaluator, and what they wrote into the book."""

    def __init__(self, lab: LabRun) -> None:
        self._lab = lab
        app = lab.world.app
        connection, often = app.settings.default_connection, timedelta(seconds=ROUND_EVERY_S)
        self._duty: Duty = alerts_duty(app.settings, "labs", connection, app.features, asked_every=often)

    async def until(self, rules: Sequence[str], what: str, keys: Callable[[Book], set[str]], patience: float) -> None:
        """Evaluates until all of these are so; asserts each."""
        found: set[str] = set()
        give_up = time.monotonic() + patience
        while not found >= set(rules) and time.monotonic() < give_up:
            await asyncio.sleep(ROUND_EVERY_S)
            book = await self.round()
            found |= keys(book)
        for rule in rules:
            self._lab.expect(f"the alert {rule} {what}", rule in found, "" if rule in found else f"{sorted(found)}")

    async def round(self) -> Book:
        """Evaluates once; returns the book."""
        store = await self._lab.world.store()
        await self._duty.run(store, ACTOR, lambda: False)
        book, _ = await load(store, await store.now())
        return book


async def _break_everything(lab: LabRun) -> None:
    """Makes events fail, hang in the hands of a worker that is dead, and wait without a worker."""
    world = lab.world
    third = await world.worker("third")
    await world.publish(3, "not-a-real-op")
    await lab.until("some events are failed", "failed", lambda now: now.failed == 3)
    await world.sink.slow(HANGS_S)
    await world.publish(EVENTS)
    await lab.until("some hang", "hanging", lambda now: now.processing > 0)
    await asyncio.to_thread(third.kill)
    await world.publish(EVENTS)
    lab.note("kill -9 of the only worker: events are failed, stuck, and wait")


async def _mend_everything(lab: LabRun) -> None:
    world = lab.world
    await world.sink.slow(0)
    last: OutboxWorker = await world.worker("last")
    operator = await world.app.operator(Caller(ACTOR, Role.ADMIN))
    failed = await world.events("failed")
    await operator.failures.forget([UUID(str(row["id"])) for row in failed], reason="made by lab 6")
    lab.note(f"worker {last.name} takes the rest over; {len(failed)} failed events are given up")
    await lab.until("all is done", "mended", lambda now: now.lag == 0 and now.failed == 0)
