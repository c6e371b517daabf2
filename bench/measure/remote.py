"""Remote: many batches at a slow provider, which is a process of its own. Does the memory of workers stay flat, and do
all batches come forward alike?

Progress is looked at now and then; ``least`` and ``most`` are the shares of the batch that is furthest behind and of
the one that is ahead, when half of all items have ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import psutil

from bench.measure import Bench
from bench.peers import Peer
from bench.peers.remote_app import PROVIDERS
from bench.workers import ROOT, Failed
from redrive import App
from redrive.batches.remote.application import RemoteBatches
from redrive.batches.remote.model import RemoteBatch, count_items
from redrive.settings import load_settings
from redrive.settings.providers import parse_providers
from redrive.testing.provider import simulated_provider

PROCESSES = 2
LOOK_EVERY_S = 5.0
LONGEST_S = 3600.0
SLOW = ("--latency", "0.1", "--duration", "3")
SOON = {f"BATCH_POLL_{name}_SECONDS": "2" for name in ("FIRST", "NEXT", "LATER")}


async def measure(bench: Bench, adapter: type[Peer]) -> dict[str, Any]:
    batches, items = bench.plan.remote
    bench.say(f"remote {adapter.name}, {items:,} items in {batches} batches")
    url = await bench.servers.fresh(adapter.backend, f"{adapter.name}-remote")
    with simulated_provider(*SLOW) as provider:
        providers = {"slow": provider.table}
        app = App(settings=load_settings(url=url, log_format="off", providers=parse_providers(providers)))
        await app.migrate()
        try:
            payloads = [{"n": n} for n in range(items // batches)]
            made = [await app.of(RemoteBatches).create(payloads, provider="slow") for _ in range(batches)]
            with _workers(url, json.dumps(providers)) as workers:
                return await _watched(bench, app, made, workers)
        finally:
            await app.close()
            await bench.servers.drop(url)


@contextlib.contextmanager
def _workers(url: str, providers: str) -> Iterator[list[psutil.Popen]]:
    command = [sys.executable, "-m", "redrive.cli", "work", "--app", "bench.peers.remote_app:app"]
    env = {**os.environ, **SOON, "REDRIVE_URL": url, "REDRIVE_LOG": "off", PROVIDERS: providers}
    quiet: Any = {"cwd": ROOT, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = [psutil.Popen(command, env=env, **quiet) for _ in range(PROCESSES)]
    try:
        yield started
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(60)


async def _watched(bench: Bench, app: App, made: list[RemoteBatch], workers: list[psutil.Popen]) -> dict[str, Any]:
    began, memory, middle = time.monotonic(), list[float](), dict[str, float]()
    total = sum(batch.items for batch in made)
    while time.monotonic() - began < LONGEST_S:
        await asyncio.sleep(LOOK_EVERY_S)
        if any(process.poll() is not None for process in workers):
            raise Failed("a worker ended")
        memory.append(max(process.memory_info().rss for process in workers) / 1e6)
        shares = [await _share(app, batch) for batch in made]
        done = sum(share * batch.items for share, batch in zip(shares, made, strict=True))
        bench.say(f"{done / total:4.0%} ended, batches {min(shares):.0%} to {max(shares):.0%}, {memory[-1]:.0f} MB")
        if done * 2 >= total and not middle:
            middle = {"least": min(shares), "most": max(shares), "at": done / total}
        if done >= total:
            return _summary(total, len(made), time.monotonic() - began, memory, middle)
    raise Failed(f"not all items had ended after {LONGEST_S:g} s")


async def _share(app: App, batch: RemoteBatch) -> float:
    return (await count_items(await app.store(), batch)).ended / batch.items


def _summary(items: int, batches: int, seconds: float, memory: list[float], middle: dict[str, float]) -> dict[str, Any]:
    return {
        "items": items,
        "batches": batches,
        "seconds": seconds,
        "per_s": items / seconds,
        "rss_mb": memory,
        "growth_mb": memory[-1] - memory[len(memory) // 4],  # since the first quarter, when all is imported and open
        **middle,
    }
