"""Asks every route what its OpenAPI document says can be asked: ``python -m tests.api.every_route CASES FOLDER``.

A process of its own: the document, its strategies and validators are 150 MB, which a process of tests would keep.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import schemathesis
from schemathesis import checks
from schemathesis.core.errors import SerializationNotPossible
from schemathesis.generation.modes import GenerationMode

from redrive import App, Context, Fail
from redrive.api import make_api
from redrive.observe.logs import TaskLog
from redrive.settings import Options

# Each bound of each field is tried, from both sides. Other methods are none of the document's.
CONFIG = schemathesis.Config.from_dict({"phases": {"coverage": {"unexpected-methods": []}}})
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


async def fill(app: App) -> None:
    """Leaves something to act on: failures, a queued task, a delayed one."""
    await app.enqueue_many([("SEND", {"to": str(n)}) for n in range(20)])
    await app.worker(await app.store(), Options(stop_when_empty=True), log=TaskLog(style="off")).run()
    await app.enqueue("SEND", {"to": "x"})
    await app.enqueue("SEND", {"to": "y"}, delay=3600)
    await app.close()


def cases_of(schema: Any, operation: Any, most: int) -> Iterator[Any]:
    """Yields ``most`` cases of each scenario of a route: the first ones of a scenario are of different fields."""
    config, seen = schema.config.generation_for(operation=operation), Counter[str]()
    modes = list(GenerationMode)
    for case in schema.iter_coverage_cases(operation, generation_modes=modes, generation_config=config):
        scenario = str(case.meta.phase.data.scenario)
        seen[scenario] += 1
        if seen[scenario] <= most:
            yield case


def main(most: int, folder: Path) -> int:
    app = make_app(folder)
    asyncio.run(fill(app))
    api = make_api(app, open_door=True)
    document = api.openapi()
    api.openapi = lambda: document  # type: ignore[method-assign]
    schema = schemathesis.openapi.from_asgi("/openapi.json", api, config=CONFIG)
    asked, wrong = Counter[str](), list[str]()
    for operation in (found.ok() for found in schema.get_all_operations()):
        for case in cases_of(schema, operation, most):
            try:
                case.call_and_validate(checks=CHECKS)
            except SerializationNotPossible:  # JSON lines: tests/batches sends them
                continue
            except Exception as error:
                wrong.append(f"{operation.label}: {error}")
            asked[operation.label] += 1
    print("\n\n".join(wrong[:10]) or f"{asked.total()} requests to {len(asked)} routes")
    return bool(wrong) or not asked


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2])))
