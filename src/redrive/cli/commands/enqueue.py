"""``redrive enqueue``."""

from __future__ import annotations

import json as jsonlib
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from redrive.cli.support import output
from redrive.cli.support.options import AppName, Create, Json, Url
from redrive.cli.support.session import operate
from redrive.errors import InvalidInput, PayloadInvalid, UnknownQueue
from redrive.kernel.payload import LONG_NUMBER, LONG_NUMBER_HINT, digits_refused
from redrive.kernel.task import Task
from redrive.ops.operator import Operator
from redrive.ops.views import Sight, task_row

Kind = Annotated[str, typer.Argument(metavar="KIND", help="The kind of task.")]
Payload = Annotated[
    str | None, typer.Argument(metavar="PAYLOAD_JSON", help="""Its payload, e.g. '{"id": 7}'.""", show_default=False)
]
File = Annotated[
    str | None, typer.Option("--payload-file", metavar="FILE", help="Read the payload from a file; - is stdin.")
]
Queue = Annotated[str | None, typer.Option("--queue", metavar="NAME", help="Else the kind's own queue.")]
Priority = Annotated[int | None, typer.Option("--priority", metavar="N", help="Smaller numbers run first.")]
Delay = Annotated[float | None, typer.Option("--delay", metavar="SECONDS", help="Run no sooner than in so long.")]
RunAt = Annotated[
    str | None,
    typer.Option(
        "--run-at", metavar="TIME", help="Run no sooner than, e.g. 2026-01-31T09:00:00+01:00 (with its zone)."
    ),
]
Attempts = Annotated[int | None, typer.Option("--max-attempts", metavar="N", help="Else the kind's own number.")]
Timeout = Annotated[float | None, typer.Option("--timeout", metavar="SECONDS", help="Stop an attempt after so long.")]
Group = Annotated[str | None, typer.Option("--group", metavar="NAME", help="A label that tasks can be paused by.")]
Scope = Annotated[str | None, typer.Option("--scope", metavar="NAME", help="The business entity it belongs to.")]
Trace = Annotated[
    str | None, typer.Option("--trace-id", metavar="ID", help="Of its trace, in every log line; or a W3C traceparent.")
]
Key = Annotated[
    str | None,
    typer.Option("--idempotency-key", "--key", metavar="KEY", help="A known key answers the existing task."),
]


def enqueue(
    kind: Kind,
    payload: Payload = None,
    payload_file: File = None,
    queue: Queue = None,
    priority: Priority = None,
    delay: Delay = None,
    run_at: RunAt = None,
    max_attempts: Attempts = None,
    timeout: Timeout = None,
    group: Group = None,
    scope: Scope = None,
    trace_id: Trace = None,
    key: Key = None,
    url: Url = None,
    app: AppName = None,
    create: Create = False,
    json: Json = False,
) -> None:
    """Enqueue one task. With --app, its payload is checked against the handler first."""
    if delay is not None and run_at is not None:
        raise typer.BadParameter("give --delay or --run-at, not both")
    body = _payload(payload, payload_file)
    options: dict[str, Any] = {
        "queue": queue,
        "priority": priority,
        "delay": delay,
        "run_at": _time(run_at),
        "max_attempts": max_attempts,
        "timeout": timeout,
        "group": group,
        "scope": scope,
        "trace_id": trace_id,
        "idempotency_key": key,
    }

    async def work(own: Operator) -> tuple[Task, list[str], Sight]:
        doubts = [] if queue is None else await _doubts(own, queue)
        if own.tasks.is_only_declared(kind):
            doubts.append(f"this application has no handler for {kind}: workers of another one have to run it")
        return await own.tasks.enqueue(kind, body, **options), doubts, own.sight

    task, doubts, sight = operate(url, app, work, create=create, on=lambda known: known.connection_of(kind))
    if json:
        output.emit(task_row(task, sight))
    else:
        known = " (already there: the key is known)" if task.deduplicated else ""
        at = "" if sight.connection is None else f" on {sight.connection}"
        output.say(f"{task.id}  {task.state}  {task.kind}  queue {task.queue}{at}{known}")
    for doubt in doubts:
        typer.echo(doubt, err=True)


async def _doubts(own: Operator, queue: str) -> list[str]:
    """Returns what to say about a queue that nobody has heard of: a new one, or a misspelt one that nobody serves."""
    try:
        await own.control.check_queue(queue)
    except UnknownQueue as error:
        return [f"{error.message} so far ({error.hint}): a worker has to serve it, redrive work --queue {queue}"]
    return []


def _payload(text: str | None, file: str | None) -> Any:
    if text is not None and file is not None:
        raise typer.BadParameter("give the payload as an argument or with --payload-file, not both")
    if file is not None:
        text = _read(file)
    if text is None:
        return None
    try:
        return jsonlib.loads(text)
    except (ValueError, RecursionError) as error:
        if digits_refused(error):
            raise PayloadInvalid(f"payload {LONG_NUMBER}", hint=LONG_NUMBER_HINT) from None
        raise PayloadInvalid(
            f"the payload is not JSON: {_spot(text, error)}", hint="""quote it for the shell: '{"name": "value"}'"""
        ) from None


def _spot(text: str, error: Exception) -> str:
    """What is wrong, and the text around where it is."""
    if not isinstance(error, jsonlib.JSONDecodeError):
        return str(error)
    around = text[max(error.pos - 20, 0) : error.pos + 20]
    return f"{error.msg} at line {error.lineno}, column {error.colno}, near {around!r}"


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidInput(
            f"the payload file {file} cannot be read: {why}", hint="name a file with JSON in UTF-8, or - for stdin"
        ) from None


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            f"{text!r} is not a time", hint="write it like 2026-01-31T09:00:00+01:00 or 2026-01-31T08:00:00Z"
        ) from None
    if moment.tzinfo is None:
        raise InvalidInput(
            f"--run-at {text} has no time zone, and this machine's may not be the one you mean",
            hint=f"add it: {moment.isoformat()}Z for UTC, or {moment.isoformat()}+01:00",
        )
    return moment
