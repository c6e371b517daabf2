"""A hostile store: how long pages hold the event loop, and how much memory they take, when tasks carry the worst.

Run alone against a store of one's own: ``python -m bench.measure.hostile sqlite:////tmp/hostile.db``.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import asynccontextmanager
from typing import Any

import psutil

from redrive import App, Context
from redrive.observe.logs import TaskLog
from redrive.ops import access
from redrive.ops.access import Role
from redrive.settings import Options
from redrive.sync import Portal
from redrive.testing.client import ApiClient
from redrive.worker.memory import freeze_what_is_loaded

MEBIBYTE = 1_000_000
PAGES = (
    "/api/tasks?limit=1000",
    "/api/tasks?limit=1000&state=failed",
    "/api/tasks/ops",
    "/api/tasks/failed?limit=1000",
    "/api/tasks/failed/statistics",
    "/api/tasks/dead-letters?limit=1000",
    "/api/tasks/dead-letters/preview?pageSize=500",
    "/api/failure-groups?limit=500",
    "/api/failure-groups?limit=500&status=open",
    "/api/tasks/audit-logs?auditPageSize=500",
    "/api/tasks/audit-logs/export",
    "/api/tasks/{long}",
    "/api/tasks/{long}/payload",
    "/api/tasks/{keys}",
    "/api/tasks/{keys}/payload",
    "/api/operations",
    "/api/kinds",
    "/api/queues",
    "/api/workers",
)


async def fill(app: App, long: int = 300, keys: int = 20, causes: int = 1000) -> dict[str, str]:
    """Tasks with long texts, with very many keys, deep ones, long messages, and many causes; all failed."""

    @app.task("HOSTILE", max_attempts=1)
    async def hostile(ctx: Context, payload: Any) -> None:
        what = payload.get("what", "") if isinstance(payload, dict) else ""
        raise type(f"Cause_{what}", (Exception,), {})(f"{what}: " + "no such thing, or another; " * 200)

    deep: Any = {"what": "deep"}
    for _ in range(45):
        deep = {"a": [deep]}
    texts = [{"what": "long", "text": "é" * (MEBIBYTE // 2)} for _ in range(4)]
    many = {"what": "keys", **{f"{n:x}": n for n in range(70_000)}}
    named = {}
    for n in range(0, long, 4):
        named["long"] = str((await app.enqueue_many([("HOSTILE", text) for text in texts[: long - n]]))[0].id)
    for _ in range(keys):
        named["keys"] = str((await app.enqueue("HOSTILE", many)).id)
    await app.enqueue_many([("HOSTILE", deep) for _ in range(20)])
    await app.enqueue_many([("HOSTILE", {"what": f"{n:x}"}) for n in range(causes)])
    options = Options(concurrency=8, stop_when_empty=True)
    await app.worker(await app.store(), options, log=TaskLog(style="off")).run()
    return named


class Lag:
    """The longest that the loop of a portal did not turn, by the clock and by its thread's own CPU time: on a busy
    machine the clock also counts what others do."""

    def __init__(self) -> None:
        self.worst = self.cpu = 0.0

    @asynccontextmanager
    async def watched(self) -> Any:
        self.worst = self.cpu = 0.0
        task = asyncio.create_task(self._watch())
        await asyncio.sleep(0.02)
        try:
            yield self
        finally:
            await asyncio.sleep(0)
            task.cancel()

    async def _watch(self) -> None:
        before, used = time.perf_counter(), time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            now, cpu = time.perf_counter(), time.thread_time()
            self.worst, self.cpu = max(self.worst, now - before - 0.001), max(self.cpu, cpu - used)
            before, used = now, cpu


def measure(app: App, times: int = 3) -> dict[str, Any]:
    """How long the loop was held and how long the answer is for each page and role, and the growth of this process."""
    portal = Portal()
    named = portal.call(fill(app))
    api, process, lag = ApiClient(app, portal), psutil.Process(), Lag()
    roles = (Role.VIEWER, Role.OPERATOR)

    async def tokens() -> dict[Role, str]:
        store = await app.store()
        return {role: (await access.create(store, role.label, role, actor="bench")).secret for role in roles}

    async def ask(path: str, query: str, headers: dict[str, str]) -> Any:
        async with lag.watched():
            return await api._send("GET", path, query, b"", headers)

    secrets = portal.call(tokens())
    pages: dict[str, Any] = {}
    freeze_what_is_loaded()  # as redrive up does: else a collection of everything falls into somebody's turn
    before = process.memory_info().rss
    highest = before
    for role in roles:
        headers = {"authorization": f"Bearer {secrets[role]}"}
        for page in PAGES:
            path, _, query = page.format(**named).partition("?")
            worst, used, answer = [], [], None
            for _ in range(times):
                answer = portal.call(ask(path, query, headers))
                worst.append(lag.worst * 1000)
                used.append(lag.cpu * 1000)
                highest = max(highest, process.memory_info().rss)
            pages[f"{role.label} {page}"] = {
                "cpu_ms": round(max(used), 1),
                "lag_ms": round(min(worst), 1),
                "worst_ms": round(max(worst), 1),
                "status": answer.status,
                "bytes": len(answer.content),
            }
    api.close()
    return {"pages": pages, "rss_mb": round(before / 2**20), "grown_mb": round((highest - before) / 2**20)}


if __name__ == "__main__":
    found = measure(App(sys.argv[1]))
    for name, page in found["pages"].items():
        held = f"{page['cpu_ms']:6.1f} ms of CPU, {page['lag_ms']:6.1f} to {page['worst_ms']:6.1f} ms"
        print(f"{held}  {page['bytes']:>10,} bytes  {page['status']}  {name}")
    print(json.dumps({name: found[name] for name in ("rss_mb", "grown_mb")}))
