"""The faults of a soak, by chance: workers are killed, frozen and stopped, the sink fails, connections are cut."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from redrive_kit.labs.database import Database
from redrive_kit.labs.soak.fleet import Fleet

BETWEEN_S = (0.5, 4.0)
REMEMBERED = 15
TROUBLES = {  # what the sink does, and how it is told to
    "answered 40 % of requests with an error": {"error_share": 0.4},
    "was too busy for 40 % of the documents": {"busy_share": 0.4},
    "broke off 40 % of the documents": {"broken_share": 0.4},
    "lost 40 % of its answers": {"lost_share": 0.4},
    "took two requests a second": {"rate": 2.0},
}
NO_TROUBLE = {"error_share": 0.0, "busy_share": 0.0, "broken_share": 0.0, "lost_share": 0.0, "rate": 0.0}
CUT = """
select pg_terminate_backend(pid) from pg_stat_activity
where datname = current_database() and application_name = 'redrive' and pid <> pg_backend_pid()
order by random() limit 2
"""


class Faults:
    """Makes one fault after the other. What it broke it mends before the next one."""

    def __init__(self, fleet: Fleet, database: Database, chance: random.Random, *, cuts: bool) -> None:
        self._fleet = fleet
        self._database = database
        self._chance = chance
        self.count = 0
        self.last: deque[str] = deque(maxlen=REMEMBERED)
        self._kinds: list[Callable[[], Awaitable[str]]] = [
            *(self._kill, self._kill, self._freeze, self._freeze, self._stop),
            *(self._sink_down, self._sink_trouble, self._sink_trouble),
        ]
        if cuts:
            self._kinds += [self._cut, self._cut]

    async def run(self, until: float) -> None:
        """Makes faults until this time of the steady clock; returns when all is mended."""
        while True:
            await asyncio.sleep(self._chance.uniform(*BETWEEN_S))
            if time.monotonic() >= until:
                return
            fault = self._chance.choice(self._kinds)
            self.count += 1
            at = datetime.now(UTC)
            said = await fault()
            self.last.append(f"{at:%H:%M:%S} {said}")

    def _someone(self) -> str:
        return self._chance.choice(sorted(self._fleet.workers))

    async def _kill(self) -> str:
        name = self._someone()
        worker = self._fleet.take(name)
        await asyncio.to_thread(worker.kill)
        await self._after_a_while(name)
        return f"kill -9 of {name} ({worker.pid})"

    async def _stop(self) -> str:
        name = self._someone()
        worker = self._fleet.take(name)
        worker.send(signal.SIGTERM)
        await self._after_a_while(name)
        return f"SIGTERM to {name} ({worker.pid})"

    async def _after_a_while(self, name: str) -> None:
        await asyncio.sleep(self._chance.uniform(0, 2))
        self._fleet.start(name)

    async def _freeze(self) -> str:
        """Also for longer than its lease: what it does then is refused."""
        name, seconds = self._someone(), self._chance.uniform(0.5, 8)
        worker = self._fleet.workers[name]
        worker.send(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            worker.send(signal.SIGCONT)
        return f"SIGSTOP of {name} ({worker.pid}) for {seconds:.1f} s"

    async def _sink_down(self) -> str:
        seconds = self._chance.uniform(1, 8)
        await self._fleet.sink.stop()
        await asyncio.sleep(seconds)
        await self._fleet.sink.start()
        return f"the sink was down for {seconds:.1f} s"

    async def _sink_trouble(self) -> str:
        told, seconds = self._chance.choice(list(TROUBLES)), self._chance.uniform(2, 6)
        await self._fleet.sink.behave(TROUBLES[told])
        await asyncio.sleep(seconds)
        await self._fleet.sink.behave(NO_TROUBLE)
        return f"the sink {told} for {seconds:.1f} s"

    async def _cut(self) -> str:
        cut = await self._database.run(CUT)
        return f"{len(cut)} backends were terminated"
