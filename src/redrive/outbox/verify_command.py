"""``redrive outbox verify``: an operation that workers carry out, and what it has found."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from redrive.cli.support.follow import followed, say_begun
from redrive.cli.support.operation_words import operation_document
from redrive.cli.support.options import Reason
from redrive.feature.cli import AppName, By, Json, Url, output
from redrive.kernel.operation import Operation, Status
from redrive.outbox.compare import Kind, still_differs
from redrive.outbox.rebuild_command import Detach, Name, begin_operation
from redrive.outbox.service import OutboxService

DIFFERENT = 1  # the exit code


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

    async def begin(own: OutboxService) -> Operation:
        return await own.verify(projection, reason=reason, repair=repair)

    begun = begin_operation(projection, begin, by, url, app)
    if detach:
        say_begun(begun, None, json, "verify")
        return
    found, _ = followed(begun.id, url, app)
    result = {} if found.work is None else dict(found.work.result)
    if json:
        output.emit(operation_document(found))
    else:
        _say(projection, found, result)
    if found.status is not Status.COMPLETED or still_differs(result):
        raise typer.Exit(DIFFERENT)


def _say(projection: str, found: Operation, result: dict[str, Any]) -> None:
    documents = f"{found.done:,} document{'' if found.done == 1 else 's'}"
    if found.status is not Status.COMPLETED:
        output.say(f"operation {found.id} is {found.status}: {found.note or ''}")
    output.say(f"{projection}: {documents} compared: {found.note or 'no difference'}")
    for kind in (*(one.value for one in Kind), "left"):
        if keys := result.get(f"{kind}_keys"):
            more = " …" if int(result.get(kind) or 0) > len(keys) else ""
            output.say(f"  {kind}: {', '.join(keys)}{more}")
    if still_differs(result) and not result.get("repaired"):
        output.say(output.suggest(f"→ to mend exactly these: redrive outbox verify {projection} --repair"))
    elif not still_differs(result) and not result.get("repaired") and found.status is Status.COMPLETED:
        unseen = "→ other content of the same version is not seen; where there is some:"
        output.say(output.suggest(f"{unseen} redrive outbox rebuild {projection}"))
