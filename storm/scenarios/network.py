"""What happens to a wire. Workers and producer reach the database through a proxy that misbehaves."""

from __future__ import annotations

import contextlib
import time

from storm.scenario import Scenario
from storm.wire import Wire, through_wire
from storm.world import World


class OverWire(Scenario):
    wire: Wire

    def route(self, stack: contextlib.ExitStack, direct: str) -> str:
        self.wire, url = stack.enter_context(through_wire(direct))
        return url


class Cut(OverWire):
    name = "network-cut"
    about = "every connection reset, new ones refused, for a while"
    outage = True

    def inject(self, world: World, seconds: float) -> None:
        self.wire.refuse()
        self.wire.cut()
        time.sleep(seconds)
        self.wire.restore()


class HalfOpen(OverWire):
    name = "network-half-open"
    about = "connections stay up but carry nothing for a while, then turn out to be dead"
    outage = True

    def inject(self, world: World, seconds: float) -> None:
        self.wire.black_hole()
        time.sleep(seconds)
        self.wire.cut()
        self.wire.restore()


class Healed(OverWire):
    name = "network-healed"
    about = "connections carry nothing for a while, then deliver what they swallowed"
    full_only = True
    outage = True

    def inject(self, world: World, seconds: float) -> None:
        self.wire.black_hole()
        time.sleep(min(seconds, 15))
        self.wire.restore()


class Stranded(OverWire):
    name = "network-stranded"
    about = "connections of now never answer again; new ones work"
    full_only = True
    # Nothing but a time-out tells a client; one of them (20 s) is what it may take, not one for each connection.
    patience = 30.0

    def inject(self, world: World, seconds: float) -> None:
        world.figures["stranded"] = self.wire.strand()
        time.sleep(seconds)


class Slow(OverWire):
    name = "network-slow"
    about = "30 ms added to every message, each way"

    def inject(self, world: World, seconds: float) -> None:
        self.wire.delay(0.03)
        time.sleep(seconds)
        self.wire.restore()
