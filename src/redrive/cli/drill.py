"""``redrive drill``: practise the failure of a task on a marked test task, and keep the record."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer

from redrive.cli import output
from redrive.cli.http import Client
from redrive.cli.options import AppName, By, Json, Url
from redrive.cli.session import operate
from redrive.errors import InvalidInput, RedriveError
from redrive.files import write_private
from redrive.kernel.task import Task
from redrive.ops import drill as service
from redrive.ops.operator import Operator


def drill(
    api: Annotated[str | None, typer.Option("--api", metavar="HTTP-URL", help="Also look through this one.")] = None,
    token: Annotated[str | None, typer.Option("--token", metavar="T", help="Else REDRIVE_TOKEN, else none.")] = None,
    patience: Annotated[float, typer.Option("--patience", metavar="SECONDS", min=0.1, help="For each step.")] = 30.0,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Also write the record here.")] = None,
    history: Annotated[bool, typer.Option("--history", help="Earlier drills instead of a new one.")] = False,
    by: By = None, url: Url = None, app: AppName = None, json: Json = False,
) -> None:  # fmt: skip
    """Make a failure, find it, retry it, verify state, effect and audit, and write the record. Needs a live worker."""
    if history:
        _history(url, app, json)
        return
    client = None if api is None else Client(api, token or os.environ.get("REDRIVE_TOKEN"))

    async def work(own: Operator) -> service.Drill:
        async def enqueue(drill_id: str, scope: str) -> Task:
            return await own.tasks.enqueue(service.KIND, {"drill_id": drill_id}, scope=scope, max_attempts=1)

        async def outside(task_id: UUID) -> str:
            assert client is not None
            found = await asyncio.to_thread(client.get, f"/api/tasks/{task_id}")
            if found["task"]["state"] != "failed" or not found["deadLetters"]:
                raise RedriveError(f"the API says {found['task']['state']}")
            return f"failed, with its dead letter, at {client.base}"

        return await own.health.drill(
            enqueue, patience=patience, seen_from_outside=None if client is None else outside
        )  # fmt: skip

    done = operate(url, app, work, by=by)
    if out is not None:
        _write(out, done)
    if json:
        output.emit({"id": done.id, "operator": done.operator, "task_id": done.task_id, "passed": done.passed,
                     "conclusion": done.conclusion, "steps": done.steps})  # fmt: skip
    else:
        for step in done.steps:
            output.say(f"{'ok' if step.ok else 'failed':<7} {step.name} ({step.seconds:.1f} s): {step.detail}")
        output.say("", f"drill {done.id} by {done.operator}: {done.conclusion}")
    if not done.passed:
        raise typer.Exit(1)


def _history(url: str | None, app: str | None, json: bool) -> None:
    found = operate(url, app, lambda own: own.health.drills())
    if json:
        output.emit([{"id": r.id, "at": r.created_at, **r.body} for r in found])
        return
    rows: list[tuple[Any, ...]] = [(output.when(r.created_at), r.body["operator"], r.body["conclusion"]) for r in found]
    if rows:
        output.table(["when", "operator", "conclusion"], rows)
    else:
        output.say("no drill was held yet")


def _write(path: Path, done: service.Drill) -> None:
    head = [
        f"# Drill {done.id}",
        "",
        f"- when: {datetime.now(UTC).isoformat(timespec='seconds')}",
        f"- operator: {done.operator}",
        f"- task: {done.task_id}",
        f"- conclusion: {done.conclusion}",
        "",
    ]
    steps = [
        f"- {'ok' if step.ok else '**failed**'}: {step.name} ({step.seconds:.1f} s): {output.clean(step.detail)}"
        for step in done.steps
    ]
    lines = [*head, *steps]
    try:
        with write_private(path) as out:
            out.write("\n".join(lines) + "\n")
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}") from None
