"""Enqueue: one by one, from 100 coroutines, in bulk. No worker runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench import figures
from bench.measure import Bench, not_measured
from bench.meters import Meter, cost
from bench.peers import BULK, Peer

CALLERS = 100
Producer = Callable[[Peer, float], Awaitable[int]]


async def one_by_one(peer: Peer, until: float) -> int:
    done = 0
    while time.monotonic() < until:
        await peer.enqueue(0)
        done += 1
    return done


async def concurrently(peer: Peer, until: float) -> int:
    return sum(await asyncio.gather(*(_caller(peer, until) for _ in range(CALLERS))))


async def _caller(peer: Peer, until: float) -> int:
    done = 0
    while time.monotonic() < until:
        await peer.enqueue_concurrently(0)
        done += 1
    return done


async def in_bulk(peer: Peer, until: float) -> int:
    done = 0
    while time.monotonic() < until:
        await peer.enqueue_many(range(BULK))
        done += BULK
    return done


def ways(adapter: type[Peer]) -> dict[str, Producer]:
    """How this peer can enqueue."""
    found: dict[str, Producer] = {"one": one_by_one}
    if adapter.concurrent:
        found["concurrent"] = concurrently
    if adapter.bulk:
        found["bulk"] = in_bulk
    return found


async def measure(bench: Bench, adapter: type[Peer], produce: Producer, pool_size: int = 0) -> dict[str, Any]:
    async with bench.queue(adapter, pool_size=pool_size) as peer:
        await produce(peer, time.monotonic() + bench.plan.enqueue_seconds / 4)  # connections, prepared statements
        meter = Meter(bench.servers, peer.backend, peer.url)
        before = await meter.read()
        started = time.monotonic()
        done = await produce(peer, started + bench.plan.enqueue_seconds)
        seconds = time.monotonic() - started
        return {"per_s": done / seconds, **cost(before, await meter.read(), done)}


async def repeated(bench: Bench, adapters: list[type[Peer]], repeats: int) -> dict[str, dict[str, Any]]:
    """In turn, as for drains; figures by peer and way."""
    results: dict[str, dict[str, Any]] = {adapter.name: {} for adapter in adapters}
    for way in ("one", "concurrent", "bulk"):
        for _ in range(repeats):
            for adapter in adapters:
                if way in ways(adapter):
                    bench.say(f"enqueue {adapter.name}, {way}")
                    await _add(bench, adapter, way, results[adapter.name])
    return {name: {way: _summary(runs) for way, runs in found.items()} for name, found in results.items()}


async def _add(bench: Bench, adapter: type[Peer], way: str, found: dict[str, Any]) -> None:
    try:
        pools = adapter.pools if way == "concurrent" else (0,)
        runs = [await measure(bench, adapter, ways(adapter)[way], size) for size in pools]
        found.setdefault(way, []).append(max(runs, key=lambda run: run["per_s"]))
    except Exception as error:
        found.setdefault(way, []).append(not_measured(error))


def _summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    good = [run for run in runs if "per_s" in run]
    if not good:
        return runs[0]
    rates = [run["per_s"] for run in good]
    return {**good[0], "per_s": figures.median(rates), "runs": rates, "spread": figures.spread(rates)}
