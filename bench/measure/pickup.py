"""Pick-up latency: from just before the enqueue call to the start of the handler, on an idle worker.

The next task comes 15 to 30 ms after the last was handled; the pause varies, so that no one's polling keeps step.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

from bench import figures
from bench.ledger import Ledger
from bench.measure import Bench
from bench.peers import Peer
from bench.workers import WARM_UP, Failed, workers

LOST_AFTER = 10.0
AT_MOST = 60.0  # seconds for one peer; slow ones give fewer samples


async def measure(bench: Bench, adapter: type[Peer]) -> dict[str, Any]:
    bench.say(f"pick-up {adapter.name}")
    wanted = bench.plan.pickups
    async with bench.queue(adapter) as peer:
        with bench.ledger(wanted) as ledger:
            async with workers(peer, ledger, 1, bench.servers.directory):
                pauses = random.Random(1)
                give_up = time.monotonic() + AT_MOST
                waits = []
                for n in range(WARM_UP, WARM_UP + wanted):
                    await asyncio.sleep(pauses.uniform(0.015, 0.030))
                    started = time.monotonic_ns()
                    await peer.enqueue(n)
                    waits.append((await _handled(ledger, n) - started) / 1e6)
                    if time.monotonic() > give_up:
                        break
    return {"samples": len(waits), "p50_ms": figures.percentile(waits, 0.5), "p99_ms": figures.percentile(waits, 0.99)}


async def _handled(ledger: Ledger, n: int) -> int:
    give_up = time.monotonic() + LOST_AFTER
    while not (at := ledger.at(n)):
        if time.monotonic() > give_up:
            raise Failed(f"a task was not picked up within {LOST_AFTER:g} s")
        await asyncio.sleep(0.002)
    return at
