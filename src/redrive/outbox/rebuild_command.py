"""``redrive outbox rebuild``: an operation that workers carry out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from redrive.cli.support.follow import follow, say_begun
from redrive.cli.support.options import Reason
from redrive.feature.cli import AppName, By, Json, Url, operate
from redrive.kernel.operation import Operation
from redrive.outbox.event import kind_of
from redrive.outbox.service import OutboxService

Name = Annotated[str, typer.Argument(metavar="PROJECTION", help="Which one.")]
Detach = Annotated[bool, typer.Option("--detach", help="Do not wait for its end; redrive operations shows it.")]


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

    begun = begin_operation(projection, begin, by, url, app)
    if detach:
        say_begun(begun, None, json, "rebuild")
    else:
        follow(begun.id, url, app, json)


def begin_operation(
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
