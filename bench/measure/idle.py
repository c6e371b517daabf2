"""What a worker costs that has nothing to do, and what a batch costs in statements."""

from __future__ import annotations

import asyncio
from typing import Any

from bench.measure import Bench, drain
from bench.meters import Meter
from bench.peers import Peer
from bench.workers import workers

BATCHES = 20
BATCH_SIZES = (100, 1000)


async def measure(bench: Bench, adapter: type[Peer]) -> dict[str, Any]:
    seconds = bench.plan.idle_seconds
    bench.say(f"idle {adapter.name}, {seconds:g} s")
    async with bench.queue(adapter) as peer:
        meter = Meter(bench.servers, peer.backend, peer.url)
        with bench.ledger(0) as ledger:
            async with workers(peer, ledger, 1, bench.servers.directory) as started:
                await asyncio.sleep(2)  # what a worker does once at its start, and after its last task
                before, used = await meter.read(), started.usage()
                await asyncio.sleep(seconds)
                used_after, after = started.usage(), await meter.read()
    statements = None
    if before.statements is not None and after.statements is not None:
        statements = (after.statements - before.statements) / seconds
    return {"cpu_share": (used_after.cpu_s - used.cpu_s) / seconds, "statements_per_s": statements}


async def statements_per_batch(bench: Bench, adapter: type[Peer]) -> dict[str, Any]:
    """Claim and settle of full batches: the statements must not grow with the batch."""
    found: dict[str, Any] = {}
    for size in BATCH_SIZES:
        bench.say(f"statements {adapter.name}, batches of {size}")
        done = await drain.measure(bench, adapter, 1, size * BATCHES, concurrency=size)
        if "statements_per_task" in done:
            found[str(size)] = done["statements_per_task"] * size
    return found
