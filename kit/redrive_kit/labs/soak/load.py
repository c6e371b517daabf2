"""The load of a soak: tasks that complete, fail and are tried again, and changes of entities, at a steady rate.

An offer that is refused is made again until it is acknowledged: tasks with the same idempotency key, changes with the
same version.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from uuid import UUID

from redrive.app import App
from redrive.errors import RedriveError
from redrive.outbox.application import Outbox
from redrive_kit.labs.soak.books import (
    BOOKED,
    ENTITY,
    FAILING,
    FAILS_AFTER,
    FLAKY,
    MANY,
    PLAIN,
    PROJECTION,
    QUEUE,
    Books,
)

TICK_S = 0.2
ENTITIES = 500
MIX = {PLAIN: 60, BOOKED: 20, FLAKY: 15, FAILING: 5}
DELETES, LATE = 0.2, 0.1  # shares of changes: deletions, and older ones that arrive after newer ones
T = TypeVar("T")


class Load:
    """Offers half of its rate as tasks, half as changes."""

    def __init__(self, app: App, books: Books, rate: float, chance: random.Random, run: str) -> None:
        self._app = app
        self._books = books
        self._rate = rate
        self._chance = chance
        self._run = run
        self._issued = 0
        self._going = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def go(self) -> None:
        """Offers from now on."""
        self._going.set()

    async def pause(self) -> None:
        """Offers nothing more; returns when all that was offered is acknowledged."""
        self._going.clear()
        await self._idle.wait()

    async def run(self) -> None:
        """Runs until it is cancelled."""
        owed, last = 0.0, time.monotonic()
        while True:
            if not self._going.is_set():
                await self._going.wait()
                owed, last = 0.0, time.monotonic()
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            owed, last = min(owed + (now - last) * self._rate / 2, self._rate), now
            count, owed = int(owed), owed % 1
            if count and self._going.is_set():
                self._idle.clear()
                await asyncio.gather(self._tasks(count), self._changes(count))
                self._idle.set()

    async def _tasks(self, count: int) -> None:
        kinds = self._chance.choices(list(MIX), list(MIX.values()), k=count)
        tasks: list[dict[str, Any]] = []
        for kind in kinds:
            self._issued += 1
            key = f"{self._run}-{self._issued}"
            payload = {"ms": self._chance.choice((1, 10, 100))}
            most = FAILS_AFTER if kind == FAILING else MANY  # said here: this application has no handlers
            given = {"kind": kind, "payload": payload, "queue": QUEUE, "idempotency_key": key, "max_attempts": most}
            tasks.append(given)
        made = await self._insist(lambda: self._app.enqueue_many(tasks))
        for kind, task in zip(kinds, made, strict=True):
            self._books.task(task.id, kind)

    async def _changes(self, count: int) -> None:
        changes = [self._change() for _ in range(count)]
        events = [
            (ENTITY, key, "delete" if deleted else "upsert", version, None if deleted else {"v": version})
            for key, version, deleted in changes
        ]
        ids: list[UUID] = await self._insist(lambda: self._app.of(Outbox).publish_many(None, PROJECTION, events))
        for task_id in ids:
            self._books.event(task_id)

    def _change(self) -> tuple[str, int, bool]:
        """Returns entity, version, and whether it is deleted. It is in the books at once: whoever offers insists."""
        key = str(self._chance.randrange(ENTITIES))
        version, deleted = self._books.entities.get(key, (0, False))
        if version > 2 and self._chance.random() < LATE:
            return key, version - 1, self._chance.random() < DELETES  # late: the sink has to leave it out
        change = key, version + 2, not deleted and self._chance.random() < DELETES
        self._books.changed(*change)
        return change

    async def _insist(self, offer: Callable[[], Awaitable[T]]) -> T:
        delay = 0.05
        while True:
            try:
                return await offer()
            except RedriveError:
                self._books.refused += 1
            await asyncio.sleep(delay)
            delay = min(delay * 2, 1.0)
