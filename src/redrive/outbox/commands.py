"""``redrive outbox``: what the service declares. By hand: what asks, waits for operations, or runs a worker."""

from __future__ import annotations

import json as json_format
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

import typer

from redrive.cli.commands.work import MetricsHost, Processes, serve
from redrive.cli.support.connections import on_chosen
from redrive.cli.support.filters import Forgotten
from redrive.cli.support.follow import follow, followed, say_outcomes, say_started
from redrive.cli.support.kit import add_kit_command
from redrive.cli.support.loading import load
from redrive.cli.support.operation_words import operation_document
from redrive.cli.support.options import DryRun, Reason, Yes, confirm
from redrive.cli.support.sockets import free_port
from redrive.cli.support.start_operation import say_approval
from redrive.cli.support.worker_options import with_worker_options
from redrive.feature.cli import AppName, By, Json, Url, group_of, operate, output
from redrive.kernel.operation import Operation, Status
from redrive.ops.operations.retry import RetryResult
from redrive.ops.operator import Operator
from redrive.ops.operator.declared import document
from redrive.outbox.application import projection_in, projections_of
from redrive.outbox.compare import Kind, count_of_differences
from redrive.outbox.event import kind_of
from redrive.outbox.service import (
    DEFAULT_REPLAY,
    MOST_HITS,
    MOST_REPLAYED,
    OutboxService,
    ProjectionOperation,
    ReplayPlan,
)
from redrive.outbox.settings import OutboxSettings
from redrive.outbox.triggers.table_mapping import SEQUENCE

cli = group_of(OutboxService, without=("search", "replay", "rebuild", "verify"))
LONGEST_DOCUMENT = 120
DIFFERENT = 1  # the exit code of a comparison
DEFAULT_METRICS_PORT = 9108
WORKERS_OPTIONS = ("concurrency", "sleep", "tries", "max_time", "max_jobs", "once", "stop_when_empty")

Name = Annotated[str, typer.Argument(metavar="PROJECTION", help="Its name, as redrive outbox lists it.")]
Names = Annotated[list[str] | None, typer.Argument(metavar="PROJECTION", help="Which ones; else all.")]
Detach = Annotated[bool, typer.Option("--detach", help="Do not wait for its end; redrive operations shows it.")]


@cli.command("search")
def search(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Words that the documents have.")],
    projection: Annotated[
        str | None, typer.Option("--projection", "-p", metavar="NAME", help="Where there are several.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=MOST_HITS, help="How many at most.")] = 10,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Search the documents of a projection, where its sink can: full text and search servers."""

    async def look(own: Operator) -> list[dict[str, Any]]:
        service = own.of(OutboxService)
        hits: list[dict[str, Any]] = document(
            (await service.search(projection or service.only(), text, limit)).items, own.sight
        )
        return hits

    hits = operate(url, app, look)
    if json:
        output.emit_list(hits, warnings=[])
        return
    if not hits:
        output.say("nothing found")
        return
    texts = [output.shorten(json_format.dumps(hit["document"], ensure_ascii=False), LONGEST_DOCUMENT) for hit in hits]
    rows = [(hit["key"], f"{hit['score']:.3f}", one) for hit, one in zip(hits, texts, strict=True)]
    output.table(["document", "score", "text"], rows)
    if len(hits) == limit:
        output.say(f"the first {limit}; --limit N shows more")


# -- replay -----------------------------------------------------------------------------------------------------------


@cli.command("replay")
def replay(
    projection: Names = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            metavar="N",
            min=1,
            max=MOST_REPLAYED,
            help=f"At most so many in all ({DEFAULT_REPLAY}). Who says how many is not asked again.",
        ),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    reason: Reason = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
    forgotten: Forgotten = False,
) -> None:
    """Try failed events again, here and now: attempts, waits and errors begin anew, and who did it and why is kept.

    It is redrive replay for the queues of projections; redrive failed --queue outbox:NAME says why events failed.
    What was forgotten or purged is left out, unless --forgotten asks for it.
    Where there are several connections, --connection NAME says which, --connection all each of them in turn.
    """

    async def prepare(own: Operator) -> tuple[ReplayPlan, RetryResult | None]:
        service = own.of(OutboxService)
        plan = await service.plan_replay(projection or [], limit or DEFAULT_REPLAY, forgotten=forgotten)
        return plan, None if plan.number and not dry_run else await service.foresee(plan)

    def here() -> None:
        plan, result = operate(url, app, prepare, by=by)
        if result is not None:
            result.dry_run = dry_run
        else:
            # Who says how many has said yes; what needs a second operator is refused, whatever the first one answers.
            if limit is None and plan.approval is None:
                confirm(f"replay {_events(plan.number)} of {_where(plan)}?", yes)
            with output.progress_bar("replayed", plan.number) as moved:
                result = operate(url, app, lambda own: own.of(OutboxService).replay_plan(plan, reason, moved), by=by)
        _say_replayed(result, plan, json)

    on_chosen(url, app, here, looks=dry_run)


def _say_replayed(done: RetryResult, plan: ReplayPlan, json: bool) -> None:
    if json:
        output.emit(done.numbers)
    elif done.dry_run:
        output.say(f"{_events(done.matched)} of {_where(plan)} would be replayed")
        say_approval(done.needs_approval)
    elif not done.matched:
        output.say(f"nothing to replay of {_where(plan)}")
    else:
        skipped = f", {done.left} skipped" if done.left else ""
        output.say(f"{_events(done.done)} of {_where(plan)} replayed{skipped}")
        say_outcomes(done.bulk_ids if done.done else ())


def _events(number: int) -> str:
    return f"{number:,} event{'' if number == 1 else 's'}"


def _where(plan: ReplayPlan) -> str:
    """Returns the projections that have something to replay, with how many where there are several."""
    numbers = {name: one.number for name, one in plan.selections.items()}
    some = {name: number for name, number in numbers.items() if number} or numbers
    if len(some) == 1:
        return next(iter(some))
    return ", ".join(f"{name} ({number})" if number else name for name, number in some.items())


# -- rebuild and verify: operations that workers carry out ------------------------------------------------------------


@cli.command("rebuild")
def rebuild(
    projection: Name,
    allow_refused: Annotated[
        int, typer.Option("--allow-refused", metavar="N", min=0, help="So many documents may be refused and missing.")
    ] = 0,
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="An empty source is no mistake: the index becomes empty.")
    ] = False,
    detach: Detach = False,
    reason: Reason = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Rebuild a projection: read its source into a new index while events go on, then make that the live one.

    Workers that know the projection carry it out, as an operation: it can be watched, paused, resumed and cancelled
    (redrive operations), and goes on when a worker dies. Until the end searches see the old index. Exit code 1 when it
    does not end well; then nothing has changed.
    """
    begun = _begin(projection, lambda own: own.rebuild(projection, allow_refused, allow_empty, reason), by, url, app)
    if detach:
        say_started(begun, None, json, "rebuild")
    else:
        follow(begun.id, url, app, json)


@cli.command("verify")
def verify(
    projection: Name,
    repair: Annotated[
        bool, typer.Option("--repair", help="Publish what is missing or stale, delete what is extra.")
    ] = False,
    detach: Detach = False,
    reason: Reason = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Compare the index of a projection with its source, by ids and versions: what is missing, stale or extra.

    Events on their way are no differences. Other content of the same version is not seen: a rebuild mends that. Workers
    that know the projection carry it out, as an operation. Exit code 0 when there is no difference, or all were
    repaired; 1 when there is one; 2 when it cannot be done.
    """
    begun = _begin(projection, lambda own: own.verify(projection, repair, reason), by, url, app)
    if detach:
        say_started(begun, None, json, "verify")
        return
    found, _ = followed(begun.id, url, app)
    result = {} if found.work is None else dict(found.work.result)
    if json:
        output.emit(operation_document(found))
    else:
        _say_compared(projection, found, result)
    if found.status is not Status.COMPLETED or count_of_differences(result):
        raise typer.Exit(DIFFERENT)


def _begin(
    projection: str,
    begin: Callable[[OutboxService], Awaitable[ProjectionOperation]],
    by: str | None,
    url: str | None,
    app: str | None,
) -> Operation:
    """Begins an operation where the projection's events are."""

    async def act(own: Operator) -> Operation:
        begun = await begin(own.of(OutboxService))
        return await own.operations.get(begun.operation.id)

    return operate(url, app, act, by=by, on=lambda one: one.connection_of(kind_of(projection)))


def _say_compared(projection: str, found: Operation, result: dict[str, Any]) -> None:
    documents = f"{found.done:,} document{'' if found.done == 1 else 's'}"
    if found.status is not Status.COMPLETED:
        output.say(f"operation {found.id} is {found.status}: {found.note or ''}")
    output.say(f"{projection}: {documents} compared: {found.note or 'no difference'}")
    for kind in (*(one.value for one in Kind), "left"):
        if keys := result.get(f"{kind}_keys"):
            more = " …" if int(result.get(kind) or 0) > len(keys) else ""
            output.say(f"  {kind}: {', '.join(keys)}{more}")
    if result.get("repaired"):
        return
    if count_of_differences(result):
        output.say(output.suggest(f"→ to mend exactly these: redrive outbox verify {projection} --repair"))
    elif found.status is Status.COMPLETED:
        unseen = "→ other content of the same version is not seen; where there is some:"
        output.say(output.suggest(f"{unseen} redrive outbox rebuild {projection}"))


# -- work and trigger -------------------------------------------------------------------------------------------------


@cli.command("work")
@with_worker_options(*WORKERS_OPTIONS)
def work(
    given: dict[str, Any],
    projection: Names = None,
    processes: Processes = None,
    worker_id: Annotated[
        str | None,
        typer.Option(
            "--id",
            metavar="NAME",
            help="The worker's name (else OUTBOX_WORKER_ID, else TASK_WORKER_ID, else generated).",
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port",
            metavar="N",
            min=0,
            max=65535,
            help="Serve /healthz, /readyz and /metrics there (else REDRIVE_METRICS_PORT, else OUTBOX_METRICS_PORT, "
            f"else {DEFAULT_METRICS_PORT}); 0 takes any free one.",
        ),
    ] = None,
    metrics_host: MetricsHost = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Project events until stopped, by the settings OUTBOX_LEASE_SECONDS, OUTBOX_RECLAIM_INTERVAL_SECONDS,
    OUTBOX_MAX_PROCESSING_SECONDS, OUTBOX_MAX_ATTEMPTS, OUTBOX_WORKER_ID and OUTBOX_METRICS_PORT (9108, or the next free
    one if it is not set; 0 takes any)."""
    loaded = load(url, app, warns=False)
    own, registry = loaded.app.settings.of(OutboxSettings), loaded.app.registry
    queues = [projection_in(registry, name).queue for name in projection or projections_of(registry)]
    settings = {
        "lease_ms": round(own.lease_seconds * 1000),
        "recovery_interval_ms": round(own.reclaim_interval_seconds * 1000),
    }
    for name, value in settings.items():  # worker processes that a supervisor starts are plain workers
        os.environ[f"TASK_WORKER_{name.upper()}"] = str(value)
    loaded.app.settings = loaded.app.settings.with_values(**settings)
    configured = loaded.app.settings.metrics_port, loaded.app.settings.outbox_metrics_port
    port = metrics_port
    if metrics_port is None and configured == (None, None):
        port = free_port(metrics_host or loaded.app.settings.metrics_host, DEFAULT_METRICS_PORT)
    serve(
        loaded,
        {**given, "queues": queues},
        processes=processes,
        worker_id=worker_id or own.worker_id,
        metrics_port=port,
        metrics_host=metrics_host,
        fleet_metrics=True,
        url=url,
        json=json,
    )


@cli.command("trigger")
def trigger(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="A table in the store's database; also SCHEMA.TABLE.")],
    projection: Annotated[str, typer.Option("--projection", "-p", metavar="NAME", help="Where its rows go.")],
    entity_type: Annotated[
        str | None,
        typer.Option("--entity-type", metavar="NAME", help="What a row is called in events (else the table)."),
    ] = None,
    id: Annotated[
        str | None, typer.Option("--id", metavar="COLUMN", help="What tells rows apart (else the primary key).")
    ] = None,
    version: Annotated[
        str,
        typer.Option(
            "--version",
            metavar="COLUMN",
            help="A whole number that grows with each update; 'sequence': the trigger counts in a table of its own.",
        ),
    ] = SEQUENCE,
    columns: Annotated[
        str | None, typer.Option("--columns", metavar="A,B", help="What the document has (else all columns).")
    ] = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Print a trigger that projects a table, with no change to the application. It is printed, not run: review it, and
    give it to psql or sqlite3."""
    chosen: Sequence[str] | None = [one.strip() for one in columns.split(",")] if columns else None

    async def script(own: Operator) -> str:
        return await own.of(OutboxService).trigger(
            table, projection, entity_type=entity_type, id=id, version=version, columns=chosen
        )

    text = operate(url, app, script)
    if json:
        output.emit({"sql": text})
        return
    then = f"-- Then, for the rows that are there already, and with a worker: redrive outbox rebuild {projection}"
    output.say(text.rstrip(), then)


add_kit_command(
    cli,
    "outbox load",
    "redrive_kit.load.command:load_events",
    "Write notes and their events at a rate, and say how long that took.",
)
