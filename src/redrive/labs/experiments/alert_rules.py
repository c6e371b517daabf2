"""The second half of lab 6: everything that rules watch is broken at once, then mended; each has to fire, and to end.

The rules are evaluated by redrive's own evaluator, with the settings of the experiment: its thresholds are short, and
rounds follow each other faster than the 15 s of a worker. What fires ends 30 s after its cause is gone, as always.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from redrive.kernel.alerts.book import Book
from redrive.kernel.duty import Duty
from redrive.kernel.failed import FailureFilter
from redrive.labs.kit.lab import PATIENCE_S, Lab
from redrive.labs.kit.workers import OutboxWorker
from redrive.ops.access import Caller, Role
from redrive.ops.alerts.look import load
from redrive.ops.duties import alerts_duty

EVENTS = 30
HANGS_S = 300.0
ROUND_EVERY_S = 0.5
OF_OUTBOX = ("outbox_stuck", "outbox_behind", "outbox_failed")
OF_QUEUE = ("failed", "depth", "pending", "oldest_age", "no_worker")
STUCK = "stuck"  # has to last for a minute, whatever the settings say
ACTOR = "lab 6"


async def fire_and_end(lab: Lab, longest_hold: float) -> None:
    """``longest_hold``: seconds that there are for rules whose windows cannot be set; those that need more are left
    out."""
    rules = [*OF_OUTBOX, *(f"{name}:{lab.world.queue}" for name in OF_QUEUE)]
    rules += [STUCK] if longest_hold >= 60 else []
    if STUCK not in rules:
        lab.note("left out: stuck, which holds for a minute before it fires")
    lab.note("left out: surge, which ends ten minutes after the last failure")
    rounds = Rounds(lab)
    await _break_everything(lab)
    await rounds.until(rules, "fires", lambda book: {one.key for one in book.firing}, PATIENCE_S + longest_hold)
    await _mend_everything(lab)
    await rounds.until(rules, "ends", lambda book: {one.key for one in book.ended}, PATIENCE_S)


class Rounds:
    """Rounds of the evaluator, and what they wrote into the book."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        app = lab.world.app
        self._duty: Duty = alerts_duty(app.settings, "labs", app.settings.default_connection, app.features)

    async def until(self, rules: Sequence[str], what: str, keys: object, patience: float) -> None:
        """Evaluates until all of these are so; asserts each."""
        assert callable(keys)
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


async def _break_everything(lab: Lab) -> None:
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


async def _mend_everything(lab: Lab) -> None:
    world = lab.world
    await world.sink.slow(0)
    last: OutboxWorker = await world.worker("last")
    operator = await world.app.operator(Caller(ACTOR, Role.ADMIN))
    failed = await operator.failures.list_failed(FailureFilter(queue=world.queue))
    await operator.failures.forget([task.id for task in failed], reason="made by lab 6")
    lab.note(f"worker {last.name} takes the rest over; {len(failed)} failed events are given up")
    await lab.until("all is done", "mended", lambda now: now.lag == 0 and now.failed == 0)
