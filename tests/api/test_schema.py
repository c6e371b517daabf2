"""Every route against its own OpenAPI document, with whatever a fuzzer thinks of: no 5xx, nothing undeclared."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import checks

from redrive import App, Context, Fail
from redrive.api import make_api
from redrive.observe.logs import TaskLog
from redrive.settings import Options


def make_app() -> App:
    app = App(f"sqlite:///{Path(tempfile.mkdtemp())}/schema.db?synchronous=normal")

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


app = make_app()
asyncio.run(_fill(app))
schema = schemathesis.openapi.from_asgi("/openapi.json", make_api(app, open_door=True))
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]


@pytest.mark.timeout(300)
@schema.parametrize()
@settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_every_route_keeps_to_its_description(case: Any) -> None:
    case.call_and_validate(checks=CHECKS)
