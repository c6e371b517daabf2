"""The pure parts of the bench: arithmetic, verdicts, the report. Nothing here starts a server or imports a peer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bench import figures, report, targets
from bench.measure import operating
from fastapi.routing import APIRoute

from redrive.console.addresses import HOME
from redrive.console.mount import ROUTERS

SECOND = 1_000_000_000


def results(**peers: Any) -> dict[str, Any]:
    return {
        "mode": "quick",
        "machine": {"cores": 2},
        "peers": peers,
        "floor": {},
        "growth": {},
        "horizon": {},
        "statements": {},
    }


def peer(name: str, backend: str = "postgres", drain: float | None = None, **more: Any) -> dict[str, Any]:
    found = {} if drain is None else {"1": {"per_s": drain, "runs": [drain], "spread": 0.0}}
    return {
        "name": name,
        "backend": backend,
        "version": "1",
        "settings": "as it comes",
        "drain": found,
        "enqueue": {},
        **more,
    }


def row(given: dict[str, Any], name: str) -> targets.Row:
    return next(row for row in targets.evaluate(given) if name in row.name)


def test_figures_of_a_run() -> None:
    assert figures.rate([0, SECOND // 2, SECOND]) == 2
    assert figures.windows([0, SECOND, SECOND + 1, 2 * SECOND, 9 * SECOND], 1.0, SECOND, 4 * SECOND) == [2, 1, 0]
    assert figures.trend([110, 100, 90]) == pytest.approx(-0.2)
    assert figures.spread([90, 100, 110]) == pytest.approx(0.2)


def test_the_best_peer_is_the_fastest_other_queue_on_postgres() -> None:
    given = results(
        **{"redrive-postgres": peer("redrive-postgres", drain=30_000.0), "pgqueuer": peer("pgqueuer", drain=10_000.0)},
        awa=peer("awa", drain=12_500.0),
        huey=peer("huey", backend="redis", drain=99_000.0),
        oban=peer("oban"),
    )
    found = row(given, "drain, 1 process")
    assert found.value == pytest.approx(2.4)
    assert found.verdict == targets.SHORT
    assert "awa" in found.measured


def test_the_report_has_every_peer_and_every_target() -> None:
    given = results(
        **{"redrive-postgres": peer("redrive-postgres", drain=25_000.0)},
        oban={"name": "oban", "drain": {}, "enqueue": {}, "not_measured": "it needs Python 3.12 or newer"},
    )
    rows = targets.evaluate(given)
    text = report.markdown(given, rows, ["drain"])
    assert "not measured: it needs Python 3.12 or newer" in text
    assert "| redrive-postgres 1 | 25,000 |" in text
    assert "![drain](drain.svg)" in text
    assert all(row.name in text for row in rows)
    assert report.targets_table(rows).count("\n") == len(rows) - 1


def test_the_pure_parts_import_neither_peers_nor_plots() -> None:
    code = "import sys, bench.report, bench.targets, bench.plots, bench.ledger; print(*sys.modules)"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert not {"matplotlib", "asyncpg", "psutil", "pgqueuer", "bench.peers"} & set(done.stdout.split())


def test_every_page_of_the_console_is_measured() -> None:
    class Api:
        def get(self, path: str, **_: Any) -> Any:
            return SimpleNamespace(ok=lambda: {"groups": [{"fingerprint": "f1"}], "tasks": [{"id": "t1"}]})

        def post(self, path: str, json: Any) -> Any:
            return SimpleNamespace(ok=lambda: {"operation": {"id": "o1"}})

    asked = {HOME + page.partition("?")[0] for page in operating.console_pages(Api())}  # type: ignore[arg-type]
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    pages = {route.path: route.path_regex for route in routes if "GET" in route.methods}
    missing = {path for path, regex in pages.items() if not any(regex.fullmatch(one) for one in asked)}
    no_pages = {"/static/{given}/{name}", "/sign-in", "/audit/export", "/live", "/find.json", "/tasks/{task_id}/{name}"}
    assert missing == {HOME + path for path in no_pages}
