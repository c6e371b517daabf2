"""``redrive outbox`` and ``list``; each of the others has a file of its own."""

from __future__ import annotations

import typer

from redrive.cli.support.kit import add_kit_command
from redrive.feature.cli import AppName, Json, Url, look_at, output
from redrive.outbox.rebuild_command import rebuild
from redrive.outbox.replay_command import replay
from redrive.outbox.search_command import search
from redrive.outbox.service import OutboxService
from redrive.outbox.show_command import age, show
from redrive.outbox.triggers.command import trigger
from redrive.outbox.verify_command import verify
from redrive.outbox.work_command import work

cli = typer.Typer(
    help="A search index that follows the database: projections, their events and sinks.",
    invoke_without_command=True,
)
COLUMNS = ("projection", "pending", "retries", "processing", "done", "failed", "stuck")


@cli.callback()
def list_all(context: typer.Context, url: Url = None, app: AppName = None, json: Json = False) -> None:
    """A search index (or another sink) that follows the database: projections, the events that the application writes
    in its transactions, and the sinks they go to. By itself: all projections."""
    if context.invoked_subcommand is None:
        list_projections(url=url, app=app, json=json)


@cli.command("list")
def list_projections(url: Url = None, app: AppName = None, json: Json = False) -> None:
    """Projections, and how far behind their sinks are."""
    found = look_at(url, app, lambda own: own.of(OutboxService).overview())
    rows = found.rows(lambda page: page)
    if json:
        output.emit_list([found.document(name, row) for name, row in rows], **found.missing)
        return
    output.table(
        [*found.column, *COLUMNS, "oldest", "sink"],
        [
            (*found.cell(name), *(str(one[each]) for each in COLUMNS), age(one), one["sink"] or "-")
            for name, one in rows
        ],
    )


cli.command("show")(show)
cli.command("search")(search)
cli.command("verify")(verify)
cli.command("rebuild")(rebuild)
cli.command("replay")(replay)
cli.command("work")(work)
cli.command("trigger")(trigger)
add_kit_command(
    cli,
    "outbox load",
    "redrive_kit.load.command:load_events",
    "Write notes and their events at a rate, and say how long that took.",
)
