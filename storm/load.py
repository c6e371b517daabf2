"""The producer, a process of its own: ``python -m storm.load DIRECTORY LABEL SEED``, told what to do on its stdin.

Offers tasks at a steady rate, whatever becomes of them. An offer that is refused is made again with the same
idempotency key until it is acknowledged, so that "acknowledged" means one thing: the enqueue returned, and the line
that says so is on disk. Ends when its stdin does: it does not outlive the storm.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

from redrive.errors import RedriveError
from redrive_kit.labs.journal import Journal
from storm.app import app

TICK = 0.02
# Callers that wait for an answer. When all of them wait, nobody is left to offer more.
CALLERS = 3000
CHUNK = 500
MIX = {"PLAIN": 70, "LEDGER": 12, "THREAD": 8, "FLAKY": 5, "SLOW": 5}


class Producer:
    def __init__(self, directory: Path, label: str, seed: int) -> None:
        self._journal = Journal(directory / f"offers-{label}.journal")
        self._label = label
        self._random = random.Random(seed)
        self._rate = 0.0
        self._payload: dict[str, Any] = {}
        self._mix = dict(MIX)
        self._issued = 0
        self._waiting: set[asyncio.Task[None]] = set()

    # -- commands --------------------------------------------------------------------------------------------------

    async def obey(self, command: str) -> None:
        match command.split():
            case ["rate", rate]:
                self._rate = float(rate)
            case ["ms", ms]:
                self._payload = {"ms": float(ms)}
            case ["only", kind]:
                self._mix = {kind: 1}
            case ["one", kind, ms]:
                self._issued += 1
                payload = {"n": self._issued, "ms": float(ms)}
                await self._insist(
                    [{"kind": kind, "payload": payload, "idempotency_key": f"{self._label}-{self._issued}"}]
                )
            case ["pause"]:
                self._rate = 0.0
                while self._waiting:
                    await asyncio.wait(self._waiting)
                self._answer("paused")
            case ["burst", count]:
                started = time.monotonic()
                await self._burst(int(count))
                self._answer(f"burst {time.monotonic() - started:.3f}")

    def _answer(self, text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    # -- offering --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        owed, last = 0.0, time.monotonic()
        while True:
            await asyncio.sleep(TICK)
            now = time.monotonic()
            owed += (now - last) * self._rate
            last = now
            count = min(int(owed), CALLERS - len(self._waiting))
            owed = min(owed - count, 1.0) if count < int(owed) else owed - count
            for _ in range(count):
                self._begin()

    def _begin(self) -> None:
        caller = asyncio.create_task(self._offer(self._next()))
        self._waiting.add(caller)
        caller.add_done_callback(self._waiting.discard)

    def _next(self) -> dict[str, Any]:
        self._issued += 1
        kind = self._random.choices(list(self._mix), list(self._mix.values()))[0]
        key = f"{self._label}-{self._issued}"
        payload = {"n": self._issued} | (self._payload if kind == "PLAIN" else {})
        return {"kind": kind, "payload": payload, "idempotency_key": key}

    async def _offer(self, task: dict[str, Any]) -> None:
        await self._insist([task])

    async def _burst(self, count: int) -> None:
        for start in range(0, count, CHUNK):
            await self._insist([self._next() for _ in range(min(CHUNK, count - start))])

    async def _insist(self, tasks: list[dict[str, Any]]) -> None:
        """Offer until acknowledged."""
        at = f"{time.time():.6f}"
        self._journal.write_many([("offer", task["idempotency_key"], task["kind"], at) for task in tasks])
        delay = 0.05
        while True:
            try:
                [*made] = await app.enqueue_many(tasks) if len(tasks) > 1 else [await app.enqueue(**tasks[0])]
                break
            except RedriveError as error:
                self._journal.write("refused", tasks[0]["idempotency_key"], type(error).__name__, _line(error.message))
            await asyncio.sleep(delay)
            delay = min(delay * 2, 0.5)
        at = f"{time.time():.6f}"
        self._journal.write_many(
            [("ack", task["idempotency_key"], task["kind"], new.id, at) for task, new in zip(tasks, made, strict=True)]
        )


def _line(text: str) -> str:
    return " ".join(text.split())[:300]


async def main(directory: str, label: str, seed: str) -> None:
    producer = Producer(Path(directory), label, int(seed))
    offering = asyncio.create_task(producer.run())
    loop = asyncio.get_running_loop()
    producer._answer("ready")
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        await producer.obey(line)
    offering.cancel()
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
