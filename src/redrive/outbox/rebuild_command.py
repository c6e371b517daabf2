"""``redrive outbox rebuild`` and ``verify``: operations on the index of a projection, which workers carry out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import typer

from redrive.cli.support.follow import follow, followed, say_begun
from redrive.cli.support.operation_words import operation_document
from redrive.cli.support.options import Reason
from redrive.feature.cli import AppName, By, Json, Url, operate, output
from redrive.kernel.operation import Operation, Status
from redrive.outbox.comparing import Kind
from redrive.outbox.event import kind_of
from redrive.outbox.service import OutboxService
from redrive.outbox.verifying import differs

Name = Annotated[str, typer.Argument(metavar="PROJECTION", help="Which one.")]
Detach = Annotated[bool, typer.Option("--detach", help="Do not wait for its end; redrive operations shows it.")]
DIFFERENT = 1  # the exit code


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

    async def begin(own: OutboxService) -> Operation:
        return await own.rebuild(projection, reason=reason, allow_refused=allow_refused, allow_empty=allow_empty)

    begun = _begun(projection, begin, by, url, app)
    if detach:
        say_begun(begun, None, json, "rebuild")
    else:
        follow(begun.id, url, app, json)


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

    Events on their way are no differences. Workers that know the projection carry it out, as an operation. Exit code 0
    when there is no difference, or all were repaired; 1 when there is one; 2 when it cannot be done.
    """

    async def begin(own: OutboxService) -> Operation:
        return await own.verify(projection, reason=reason, repair=repair)

    begun = _begun(projection, begin, by, url, app)
    if detach:
        say_begun(begun, None, json, "verify")
        return
    found, _ = followed(begun.id, url, app)
    result = {} if found.work is None else dict(found.work.result)
    if json:
        output.emit(operation_document(found))
    else:
        _say(projection, found, result)
    if found.status is not Status.COMPLETED or differs(result):
        raise typer.Exit(DIFFERENT)


def _begun(
    projection: str,
    begin: Callable[[OutboxService], Awaitable[Operation]],
    by: str | None,
    url: str | None,
    app: str | None,
) -> Operation:
    """Begins an operation where the projection's events are."""
    return operate(
        url,
        app,
        lambda own: begin(own.of(OutboxService)),
        by=by,
        on=lambda one: one.connection_of(kind_of(projection)),
    )


def _say(projection: str, found: Operation, result: dict[str, Any]) -> None:
    documents = f"{found.done:,} document{'' if found.done == 1 else 's'}"
    if found.status is not Status.COMPLETED:
        output.say(f"operation {found.id} is {found.status}: {found.note or ''}")
    output.say(f"{projection}: {documents} compared: {found.note or 'no difference'}")
    for kind in (*(one.value for one in Kind), "left"):
        if keys := result.get(f"{kind}_keys"):
            more = " …" if int(result.get(kind) or 0) > len(keys) else ""
            output.say(f"  {kind}: {', '.join(keys)}{more}")
    if result.get(Kind.AHEAD.value):
        output.say(output.suggest(f"versions went back in the source: redrive outbox rebuild {projection}"))
    elif differs(result) and not result.get("repaired"):
        output.say(output.suggest(f"redrive outbox verify {projection} --repair"))
