"""``./dev bench``: how fast this checkout enqueues and drains on this machine, right now.

Figures are for comparing changes in one sitting, on one machine: they say nothing between machines. PostgreSQL is a
private cluster with its default settings (fsync on), started from the same binaries as the tests use.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.cluster import Cluster, find_binaries

from redrive import App, Context
from redrive.observe.logs import TaskLog
from redrive.settings import Options, load_settings
from redrive.stores import make_store


def make_app(url: str) -> App:
    app = App(settings=load_settings(url=url))

    @app.task("NOOP")
    async def noop(ctx: Context, n: int = 0) -> None: ...

    return app


async def measure(url: str, tasks: int, concurrency: int) -> dict[str, Any]:
    """The full product path: validation, leases, fencing, history, totals, one log line for each claim and end."""
    app = make_app(url)
    store = make_store(url)
    await store.migrations.up()
    await store.close()
    figures: dict[str, Any] = {}

    started = time.perf_counter()
    for start in range(0, tasks, 1000):
        await app.enqueue_many([("NOOP", {"n": n}) for n in range(start, min(start + 1000, tasks))])
    figures["enqueue_bulk_per_s"] = round(tasks / (time.perf_counter() - started))

    callers = 100
    each = max(tasks // 5 // callers, 1)

    async def caller() -> None:
        for n in range(each):
            await app.enqueue("NOOP", {"n": n})

    started = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    figures["enqueue_100_callers_per_s"] = round(callers * each / (time.perf_counter() - started))

    total = tasks + callers * each
    log = TaskLog(stream=io.TextIOWrapper(io.BytesIO()), style="json")
    worker = app.worker(await app.store(), Options(concurrency=concurrency, stop_when_empty=True), log=log)
    started, cpu = time.perf_counter(), time.process_time()
    await worker.run()
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    if worker.health.completed != total:
        raise SystemExit(f"{worker.health.completed} of {total} tasks completed: {worker.health}")
    figures["drain_per_s"] = round(total / seconds)
    figures["worker_cpu_us_per_task"] = round(cpu / total * 1e6, 1)
    await app.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--concurrency", type=int, default=1000)
    parser.add_argument("--only", choices=["sqlite", "postgres"])
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="redrive-bench-") as directory:
        Path(directory).chmod(0o711)
        if given.only != "postgres":
            results["sqlite"] = asyncio.run(measure(f"sqlite:///{directory}/bench.db", given.tasks, given.concurrency))
        if given.only != "sqlite":
            cluster = Cluster(Path(directory) / "pg", settings={"fsync": "on", "full_page_writes": "on"})
            cluster.start()
            try:
                results["postgres"] = asyncio.run(measure(cluster.url(), given.tasks, given.concurrency))
            finally:
                cluster.remove()
            results["postgres"]["binaries"] = str(find_binaries())
    for name, figures in results.items():
        sys.stdout.write(f"{name}: {json.dumps(figures)}\n")
    if given.json:
        given.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
