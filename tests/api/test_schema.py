"""Every route against its own OpenAPI document, with whatever a fuzzer thinks of: no 5xx, nothing undeclared."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import checks
from schemathesis.schemas import BaseSchema

from redrive import App, Context, Fail
from redrive.api import make_api
from redrive.observe.logs import TaskLog
from redrive.settings import Options
from tests.effort import THOROUGH, tries

# Each takes its share of the routes. Cases are made when a part runs: made when tests are collected, each process would
# make and keep those of all routes.
PARTS = 16
# Besides what a fuzzer thinks of, each bound of each field is tried: seventy requests a route.
CONFIG = schemathesis.Config.from_dict({"phases": {"coverage": {"enabled": THOROUGH}}})
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]


def make_app(folder: Path) -> App:
    app = App(f"sqlite:///{folder}/schema.db?synchronous=normal")

    @app.task("SEND", max_attempts=1)
    async def send(ctx: Context, to: str = "") -> None:
        raise Fail("TASK_PRECONDITION_FAILED", "no")

    return app


async def _fill(app: App) -> None:
    """Something to act on: failures, a queued task, a delayed one."""
    await app.enqueue_many([("SEND", {"to": str(n)}) for n in range(20)])
    await app.worker(await app.store(), Options(stop_when_empty=True), log=TaskLog(style="off")).run()
    await app.enqueue("SEND", {"to": "x"})
    await app.enqueue("SEND", {"to": "y"}, delay=3600)
    await app.close()


@pytest.fixture(params=range(PARTS))
def part_of_the_routes(request: pytest.FixtureRequest, tmp_path: Path) -> BaseSchema:
    app = make_app(tmp_path)
    asyncio.run(_fill(app))
    api = make_api(app, open_door=True)
    whole = document()
    own = {path: whole["paths"][path] for path in sorted(whole["paths"])[request.param :: PARTS]}
    api.openapi = lambda: {**whole, "paths": own}  # type: ignore[method-assign]
    return schemathesis.openapi.from_asgi("/openapi.json", api, config=CONFIG)


@cache
def document() -> dict[str, Any]:
    """The whole document, which takes a second to make."""
    return make_api(App("sqlite:///:memory:")).openapi()


@pytest.mark.timeout(300)
@schemathesis.pytest.from_fixture("part_of_the_routes").parametrize()
@settings(max_examples=tries(3, 3, 10), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_every_route_keeps_to_its_description(case: Any) -> None:
    case.call_and_validate(checks=CHECKS)
