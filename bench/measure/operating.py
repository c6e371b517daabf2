"""Operating: how long an operator's pages take with very many failures and a long history, through the HTTP API and
in the console."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import parse_qsl

from bench import figures, fixtures
from bench.measure import Bench, hostile
from bench.peers import Peer
from redrive import App
from redrive.console.visitors import HOME
from redrive.kernel.alerts.slo import Objective
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
        app: App = peer.app  # type: ignore[attr-defined]
        app.settings = app.settings.with_values(slo={"default": Objective()})
        await fixtures.make(peer, "failed", failed)
        for _ in range(max(history // PIECE, 1)):
            await fixtures.make(peer, "history", min(history, PIECE))
        api = ApiClient(app, Portal(), console=True)
        found = {name: timed(api, *page) for name, page in PAGES.items()}
        console = {page: timed(api, *address(page)) for page in console_pages(api)}
        api.close()
    bench.say(f"operating {adapter.name}, tasks that carry the worst")
    async with bench.queue(adapter) as peer:
        worst = hostile.measure(peer.app)  # type: ignore[attr-defined]
    return {"failed": failed, "history": history, "pages": found, "console": console, "hostile": worst}


def console_pages(api: ApiClient) -> list[str]:
    """Returns the pages of the console, with addresses of a cause and a task that are there."""
    cause = api.get("/api/failure-groups").ok()["groups"][0]["fingerprint"]
    task = api.get("/api/tasks/failed", limit=1).ok()["tasks"][0]
    return [
        *("", "/failures", "/failures?kind=BROKEN", f"/failures?fingerprint={cause}", "/failures?q=thing"),
        *("/failures?since=1d", "/failures?since=1d&kind=BROKEN", "/failures?since=1m", "/failures?until=1m"),
        *("/failures/preview?kind=BROKEN", "/failures/preview?kind=BROKEN&page=1000", f"/causes/{cause}"),
        *("/tasks", "/tasks?state=completed", f"/tasks/{task['id']}", "/dead-letters", "/dead-letters?kind=BROKEN"),
        *("/operations", f"/operations/{begun(api)}", "/approvals", "/alerts"),
        *("/audit", "/audit/verify", "/audit/prune?olderThanDays=1"),
        *("/queues", "/workers", "/schedules", "/settings", "/find?q=BROKEN", "?period=30d", "/who"),
    ]


def begun(api: ApiClient) -> str:
    """Begins a retry of everything that failed, which waits for a second person; returns its id."""
    found = api.post("/api/operations", {"kind": "BROKEN", "reason": "bench", "actor": "ann"}).ok()
    return str(found["operation"]["id"])


def address(page: str) -> tuple[str, dict[str, Any]]:
    path, _, query = page.partition("?")
    return HOME + path, dict(parse_qsl(query))


def timed(api: ApiClient, path: str, params: dict[str, Any]) -> dict[str, float]:
    took, size = list[float](), 0
    for _ in range(TIMES):
        began = time.perf_counter()
        answer = api.get(path, **params)
        took.append((time.perf_counter() - began) * 1000)
        if answer.status not in (200, 303):
            raise AssertionError(f"{path} answered {answer.status}: {answer.text[:300]}")
        size = len(answer.content)
    # The first one also opens the connection and plans the statements.
    return {"median_ms": figures.median(took), "worst_ms": max(took[1:]), "first_ms": took[0], "bytes": size}
