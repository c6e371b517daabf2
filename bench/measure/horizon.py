"""The pinned horizon: another session holds a transaction open under full load, so nothing can be vacuumed.

A producer keeps some twenty thousand tasks waiting while one worker drains them; the rate is taken per window.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator
from typing import Any

import asyncpg

from bench import figures
from bench.ledger import Ledger
from bench.measure import Bench
from bench.peers import BULK, Peer
from bench.workers import WARM_UP, Workers, workers

BACKLOG = 20_000
HIGHEST_RATE = 60_000
SETTLE_IN = 2.0


@contextlib.asynccontextmanager
async def pinned(url: str) -> AsyncIterator[None]:
    """A transaction with a snapshot and an id of its own, left open."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("begin isolation level repeatable read; select pg_current_xact_id()")
        yield
    finally:
        await connection.close()


async def measure(bench: Bench, adapter: type[Peer]) -> dict[str, Any]:
    plan = bench.plan
    clean = await under_load(bench, adapter, plan.clean_seconds, pin=False)
    held = await under_load(bench, adapter, plan.pinned_seconds, pin=True)
    return {
        "window_s": plan.window_seconds,
        "pinned_s": plan.pinned_seconds,
        "clean": clean,
        "pinned": held,
        "share_of_clean": statistics.fmean(held) / statistics.fmean(clean),
        "trend": figures.trend(held),
    }


async def under_load(bench: Bench, adapter: type[Peer], seconds: float, *, pin: bool) -> list[float]:
    bench.say(f"horizon {adapter.name}, {'pinned' if pin else 'clean'} for {seconds:g} s")
    async with bench.queue(adapter) as peer:
        with bench.ledger(int((seconds + SETTLE_IN + 1) * HIGHEST_RATE)) as ledger:
            holding = pinned(peer.url) if pin else contextlib.nullcontext()
            async with workers(peer, ledger, 1, bench.servers.directory) as started, holding:
                start = time.monotonic_ns() + int(SETTLE_IN * 1e9)
                stop = start + int(seconds * 1e9)
                made = await _produce(peer, ledger, started, stop)
            stamps = ledger.stamps(WARM_UP, WARM_UP + made)
            return figures.windows(stamps, bench.plan.window_seconds, start, stop)


async def _produce(peer: Peer, ledger: Ledger, started: Workers, stop: int) -> int:
    made = 0
    while time.monotonic_ns() < stop:
        if made - ledger.shares(1)[0] >= BACKLOG or made + BULK > ledger.places - WARM_UP:
            started.insist_alive()
            await asyncio.sleep(0.005)
            continue
        await peer.enqueue_many(range(WARM_UP + made, WARM_UP + made + BULK))
        made += BULK
    return made
