"""Drain: how fast worker processes empty a full queue of tasks that do nothing.

The rate is taken between the first and the last handler call, the same way for everybody. What comes before the first
(one claim) and after the last (one settlement) is left out; the queue is long enough for that to be a few percent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from bench import figures
from bench.ledger import Progress
from bench.measure import Bench, fill, not_measured
from bench.meters import Meter, cost
from bench.peers import Peer
from bench.workers import WARM_UP, Failed, Workers, workers

STALLED_AFTER = 20.0
LOOK_EVERY = 0.1


def size(bench: Bench, adapter: type[Peer], processes: int) -> int:
    long_enough = int(adapter.usual_rate * bench.plan.drain_seconds * (1.5 if processes > 1 else 1))
    return max(long_enough, bench.plan.batches * adapter.batch * processes, 500) // 100 * 100


Background = Callable[[Peer], Awaitable[None]]


async def measure(
    bench: Bench,
    adapter: type[Peer],
    processes: int,
    tasks: int,
    *,
    pad: str = "",
    places: int | None = None,
    background: Background | None = None,
    **options: Any,
) -> dict[str, Any]:
    """``background`` prepares the database while the workers stand still. With ``places`` it also makes the tasks,
    so many of them, of which the first ``tasks`` are measured."""
    async with bench.queue(adapter, **options) as peer:
        meter = Meter(bench.servers, peer.backend, peer.url)
        with bench.ledger(places or tasks) as ledger:
            async with workers(peer, ledger, processes, bench.servers.directory) as started:
                async with started.held():
                    if background is not None:
                        await background(peer)
                    if places is None:
                        await fill(peer, tasks, pad)
                    before, used, warmed = await meter.read(), started.usage(), ledger.shares(processes)
                await until_done(started, Progress(ledger, WARM_UP, WARM_UP + tasks))
                used_after, shares = started.usage(), ledger.shares(processes)
                left = await settled(peer) if places is None else None
                after = await meter.read()
            # A backend counts its commits for others to see only now and then, and when it ends.
            after = replace(after, commits=(await meter.read()).commits)
            stamps = ledger.stamps(WARM_UP, WARM_UP + tasks)
    handled = [new - old for new, old in zip(shares, warmed, strict=True)]
    return {
        "tasks": tasks,
        "per_s": figures.rate(stamps),
        "worker_us_per_task": (used_after.cpu_s - used.cpu_s) / max(sum(handled), 1) * 1e6,
        "rss_mb": used_after.rss_mb,
        "shares": handled,
        "left": left,
        **cost(before, after, max(sum(handled), 1)),
    }


async def until_done(started: Workers, progress: Progress, enough: int = 0) -> None:
    """Wait until at most ``enough`` are left; give up when nothing moves any more."""
    left, moved_at = progress.left, time.monotonic()
    while left > enough:
        await asyncio.sleep(LOOK_EVERY)
        started.insist_alive()
        started.usage()  # notes the memory peak
        if progress.left < left:
            left, moved_at = progress.left, time.monotonic()
        elif time.monotonic() - moved_at > STALLED_AFTER:
            raise Failed(f"nothing moved for {STALLED_AFTER:g} s with {left} tasks left: {started.last_words()}")


async def settled(peer: Peer) -> int | None:
    """The last handler ran; wait until the queue says that it is empty, where it can tell. Answers what is left."""
    left = None
    for _ in range(40):
        left = await peer.left()
        if not left:
            break
        await asyncio.sleep(0.05)
    return left


async def repeated(bench: Bench, adapters: list[type[Peer]], processes: int, repeats: int) -> dict[str, dict[str, Any]]:
    """Each adapter ``repeats`` times in turn (A B A B), since a machine's mood changes: median and spread."""
    runs: dict[str, list[dict[str, Any]]] = {adapter.name: [] for adapter in adapters}
    broken: dict[str, dict[str, Any]] = {}
    for _ in range(repeats):
        for adapter in [adapter for adapter in adapters if adapter.name not in broken]:
            bench.say(f"drain {adapter.name}, {processes} worker process{'es' if processes > 1 else ''}")
            try:
                runs[adapter.name].append(await measure(bench, adapter, processes, size(bench, adapter, processes)))
            except Exception as error:
                broken[adapter.name] = not_measured(error)
    return {adapter.name: broken.get(adapter.name) or summary(runs[adapter.name]) for adapter in adapters}


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The run with the median rate, and how far the rates were apart."""
    ordered = sorted(runs, key=lambda run: run["per_s"])
    rates = [run["per_s"] for run in ordered]
    return {
        **ordered[len(ordered) // 2],
        "per_s": figures.median(rates),
        "runs": rates,
        "spread": figures.spread(rates),
    }
