"""Scraped: does a worker whose metrics are read every second drain as fast as one without?

In turn (A B A B …), since a machine's mood changes; the ratio is that of the medians, and the pairs are reported too.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator
from typing import Any

from tests.cluster import free_port

from bench.measure import Bench, drain
from bench.peers import Peer

EVERY_S = 1.0


async def measure(bench: Bench, adapter: type[Peer]) -> dict[str, Any]:
    pairs, seconds = bench.plan.scraped
    tasks = max(int(adapter.usual_rate * seconds) // 100 * 100, 500)
    found: dict[str, list[dict[str, Any]]] = {"plain": [], "scraped": []}
    scrapes: list[float] = []
    for nth in range(pairs):
        for name in ("plain", "scraped") if nth % 2 == 0 else ("scraped", "plain"):
            bench.say(f"drain {adapter.name}, {name}")
            async with _scraping(scrapes) if name == "scraped" else contextlib.nullcontext(None) as port:
                found[name].append(await drain.measure(bench, adapter, 1, tasks, metrics_port=port))
    rates = {name: [run["per_s"] for run in runs] for name, runs in found.items()}
    cpu = {name: statistics.median(run["worker_us_per_task"] for run in runs) for name, runs in found.items()}
    return {
        "tasks": tasks,
        "scrapes": len(scrapes),
        "scrape_ms": statistics.median(scrapes) * 1000 if scrapes else None,
        **rates,
        "ratio": statistics.median(rates["scraped"]) / statistics.median(rates["plain"]),
        "pairs": [s / p for s, p in zip(rates["scraped"], rates["plain"], strict=True)],
        "worker_us_per_task": cpu,
    }


@contextlib.asynccontextmanager
async def _scraping(scrapes: list[float]) -> AsyncIterator[int]:
    port = free_port()
    scraper = asyncio.create_task(_scrape(port, scrapes))
    try:
        yield port
    finally:
        scraper.cancel()
        await asyncio.gather(scraper, return_exceptions=True)


async def _scrape(port: int, scrapes: list[float]) -> None:
    while True:
        began = time.monotonic()
        with contextlib.suppress(OSError, TimeoutError):  # not up yet, or stopped at the gate
            async with asyncio.timeout(10):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET /metrics HTTP/1.1\r\nHost: bench\r\n\r\n")
                page = await reader.read()
                writer.close()
            if page.startswith(b"HTTP/1.1 200"):
                scrapes.append(time.monotonic() - began)
        await asyncio.sleep(max(EVERY_S - (time.monotonic() - began), 0))
