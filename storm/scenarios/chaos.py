"""Everything at once: what no single storm shows may show where two of them meet."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import psycopg

from storm.scenarios.network import OverWire
from storm.scenarios.server import TERMINATE
from storm.world import World

# Whose answers get lost: the statement is executed, and nobody hears of it.
ANSWERS = (b"redrive.cycle", b"redrive.complete", b"redrive.enqueue", b"redrive.renew", b"redrive.tick")


class Chaos(OverWire):
    name = "chaos"
    about = "kills, restarts, terminated backends, cuts, silence, delays and lost answers in random order"
    full_only = True
    patience = 60.0

    @property
    def seconds(self) -> float:
        return self.pace.pick(fast=6, quick=20, full=120)

    def inject(self, world: World, seconds: float) -> None:
        faults = (self._kill, self._restart, self._terminate, self._cut, self._silence, self._delay, self._swallow)
        ends, done = time.monotonic() + seconds, Counter[str]()
        while time.monotonic() < ends:
            fault: Callable[[World], None] = self.random.choice(faults)
            fault(world)
            done[fault.__name__.strip("_")] += 1
            time.sleep(self.random.uniform(0.1, 1.0))
        world.figures["faults"] = dict(done)

    def _kill(self, world: World) -> None:
        name = self.random.choice(list(world.fleet.workers))
        world.fleet.kill(name)
        world.fleet.start(name)

    def _restart(self, world: World) -> None:
        self.stage.server.stop(self.random.choice(["fast", "immediate"]))
        self.stage.server.start()

    def _terminate(self, world: World) -> None:
        with psycopg.connect(world.direct, autocommit=True) as admin:
            admin.execute(TERMINATE)

    def _cut(self, world: World) -> None:
        self.wire.cut()

    def _silence(self, world: World) -> None:
        self.wire.black_hole()
        time.sleep(self.random.uniform(0.2, 5.0))
        if self.random.random() < 0.5:
            self.wire.cut()
        self.wire.restore()

    def _delay(self, world: World) -> None:
        self.wire.delay(self.random.uniform(0.01, 0.3))
        time.sleep(self.random.uniform(0.2, 2.0))
        self.wire.restore()

    def _swallow(self, world: World) -> None:
        self.wire.swallow_answers(self.random.choice(ANSWERS))
        time.sleep(self.random.uniform(0.2, 1.5))
        self.wire.cut()
        self.wire.restore()
