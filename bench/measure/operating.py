"""Operating: how long an operator's pages take with very many failures and a long history, through the HTTP API."""

from __future__ import annotations

import time
from typing import Any

from bench import figures, fixtures
from bench.measure import Bench, hostile
from bench.peers import Peer
from redrive.sync import Portal
from redrive.testing.client import ApiClient

TIMES = 15
PIECE = 1_000_000
PAGES: dict[str, tuple[str, dict[str, Any]]] = {
    "ops": ("/api/tasks/ops", {}),
    "ops, filtered": ("/api/tasks/ops", {"jobKind": "BROKEN", "errorCode": "UNKNOWN", "auditActor": "ann"}),
    "failure groups": ("/api/failure-groups", {}),
    "preview, page 1, with its plan": ("/api/tasks/dead-letters/preview", {"jobKind": "BROKEN"}),
    "preview, page 1,000": ("/api/tasks/dead-letters/preview", {"jobKind": "BROKEN", "page": 1000}),
    "statistics": ("/api/tasks/failed/statistics", {}),
    "failed, by trace": ("/api/tasks/failed", {"traceId": "nobody"}),
    "tasks, by trace": ("/api/tasks", {"traceId": "nobody"}),
    "audit log, page 1": ("/api/tasks/audit-logs", {}),
}


async def measure(bench: Bench, adapter: type[Peer]) -> dict[str, Any]:
    failed, history = bench.plan.operating
    bench.say(f"operating {adapter.name}, {failed:,} failed and {history:,} in history")
    async with bench.queue(adapter) as peer:
        await fixtures.make(peer, "failed", failed)
        for _ in range(max(history // PIECE, 1)):
            await fixtures.make(peer, "history", min(history, PIECE))
        api = ApiClient(peer.app, Portal())  # type: ignore[attr-defined]
        found = {name: timed(api, *page) for name, page in PAGES.items()}
        api.close()
    bench.say(f"operating {adapter.name}, tasks that carry the worst")
    async with bench.queue(adapter) as peer:
        worst = hostile.measure(peer.app)  # type: ignore[attr-defined]
    return {"failed": failed, "history": history, "pages": found, "hostile": worst}


def timed(api: ApiClient, path: str, params: dict[str, Any]) -> dict[str, float]:
    took = []
    for _ in range(TIMES):
        began = time.perf_counter()
        api.get(path, **params).ok()
        took.append((time.perf_counter() - began) * 1000)
    # The first one also opens the connection and plans the statements.
    return {"median_ms": figures.median(took), "worst_ms": max(took[1:]), "first_ms": took[0]}
