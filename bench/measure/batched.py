"""Batch: does a worker drain tasks that are all items of one batch as fast as tasks that belong to nothing?

In turn (A B A B …), since a machine's mood changes; the ratio is that of the medians.
"""

from __future__ import annotations

import statistics
from typing import Any

from bench.measure import Bench, drain
from bench.peers import Peer


async def measure(bench: Bench, adapter: type[Peer]) -> dict[str, Any]:
    pairs, tasks = bench.plan.batch
    rates: dict[str, list[float]] = {"plain": [], "batched": []}
    for nth in range(pairs):
        for name in ("plain", "batched") if nth % 2 == 0 else ("batched", "plain"):
            bench.say(f"drain {adapter.name}, {tasks:,} tasks, {name}")
            run = await drain.measure(bench, adapter, 1, tasks, batched=name == "batched")
            rates[name].append(run["per_s"])
    return {
        "tasks": tasks,
        **rates,
        "ratio": statistics.median(rates["batched"]) / statistics.median(rates["plain"]),
    }
