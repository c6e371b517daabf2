"""``redrive drill``: practise the failure of a task on a marked test task, and keep the record."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer

from redrive.cli.support import output
from redrive.cli.support.instance import Client, InProduction, Refused, refuse_production, run_command
from redrive.cli.support.loading import load
from redrive.cli.support.options import AppName, By, Json, Url, Yes
from redrive.cli.support.session import operate
from redrive.errors import InvalidInput, RedriveError, StoreUnavailable
from redrive.files import write_private
from redrive.kernel.task import Task
from redrive.ops import drill as service
from redrive.ops.operator import Operator
from redrive.settings import Settings


def drill(
    api: Annotated[
        str | None, typer.Option("--api", metavar="HTTP-URL", help="Look through this instance (else the usual one).")
    ] = None,
    token: Annotated[str | None, typer.Option("--token", metavar="T", help="Else REDRIVE_TOKEN, else none.")] = None,
    patience: Annotated[float, typer.Option("--patience", metavar="SECONDS", min=0.1, help="For each step.")] = 30.0,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Also write the record here.")] = None,
    history: Annotated[bool, typer.Option("--history", help="Earlier drills instead of a new one.")] = False,
    in_production: InProduction = False,
    yes: Yes = False,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Make a failure, find it through the API and the command line, retry it, verify state, effect and audit, and write
    the record. Needs a live worker."""
    if history:
        _history(url, app, json)
        return
    loaded = load(url, app)
    client = Client(api or _usual(loaded.app.settings), token or os.environ.get("REDRIVE_TOKEN"))
    refuse_production("redrive drill", client, in_production, yes)
    looks: dict[str, service.Look] = {
        "the API shows it": partial(_through_api, client, api is not None),
        "the command line shows it": partial(_through_command, loaded.app.url, loaded.spec),
    }

    async def work(own: Operator) -> service.Drill:
        async def enqueue(drill_id: str, scope: str) -> Task:
            return await own.tasks.enqueue(service.KIND, {"drill_id": drill_id}, scope=scope, max_attempts=1)

        return await own.health.drill(enqueue, patience=patience, looks=looks)

    done = operate(url, app, work, by=by)
    if out is not None:
        _write(out, done)
    if json:
        output.emit(
            {
                "id": done.id,
                "operator": done.operator,
                "task_id": done.task_id,
                "passed": done.passed,
                "conclusion": done.conclusion,
                "steps": done.steps,
            }
        )
    else:
        for step in done.steps:
            output.say(f"{_verdict(step):<7} {step.name} ({step.seconds:.1f} s): {step.detail}")
        output.say("", f"drill {done.id} by {done.operator}: {done.conclusion}")
    if not done.passed:
        raise typer.Exit(1)


def _verdict(step: service.Step) -> str:
    return "skipped" if step.skipped else "ok" if step.ok else "failed"


def _usual(settings: Settings) -> str:
    """Where ``redrive up`` would listen with these settings."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}"


async def _through_api(client: Client, named: bool, task_id: UUID, _: str) -> str:
    """An instance that was named has to show it; at the usual address there may be none, or somebody else's."""
    try:
        found = await asyncio.to_thread(client.get, f"/api/tasks/{task_id}")
    except (StoreUnavailable, Refused) as error:
        if named:
            raise
        raise service.Skipped(f"{error.message}; --api HTTP-URL names an instance of this store") from None
    if found["task"]["state"] != "failed" or not found["deadLetters"]:
        raise RedriveError(f"the API says {found['task']['state']}, with {len(found['deadLetters'])} dead letters")
    return f"failed, with its dead letter, at {client.base}"


async def _through_command(url: str, app: str | None, task_id: UUID, scope: str) -> str:
    listed = await asyncio.to_thread(run_command, "failed", "--scope", scope, url=url, app=app)
    if [task["id"] for task in listed["items"]] != [str(task_id)]:
        raise RedriveError(f"redrive failed lists {len(listed['items'])} tasks of scope {scope}")
    told = await asyncio.to_thread(run_command, "show", str(task_id), url=url, app=app)
    if told["task"]["state"] != "failed" or not told["dead_letters"]:
        raise RedriveError(f"redrive show says {told['task']['state']}")
    return "listed by redrive failed; redrive show has its dead letter"


def _history(url: str | None, app: str | None, json: bool) -> None:
    found = operate(url, app, lambda own: own.health.drills())
    if json:
        output.emit_list([{"id": r.id, "at": r.created_at, **r.body} for r in found])
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
        f"- {_verdict(step) if step.ok else '**failed**'}: {step.name} ({step.seconds:.1f} s): "
        + output.clean(step.detail)
        for step in done.steps
    ]
    lines = [*head, *steps]
    try:
        with write_private(path) as out:
            out.write("\n".join(lines) + "\n")
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}") from None
