"""``redrive outbox`` and ``list``; each of the others has a file of its own."""

from __future__ import annotations

import typer

from redrive.feature.cli import AppName, Json, Url, look_at, output
from redrive.outbox.load.command import load_events
from redrive.outbox.rebuild_command import rebuild
from redrive.outbox.replay_command import replay
from redrive.outbox.search_command import search
from redrive.outbox.service import OutboxService
from redrive.outbox.show_command import age, show
from redrive.outbox.triggers.command import trigger
from redrive.outbox.verify_command import verify
from redrive.outbox.work_command import work

cli = typer.Typer(
    help="Projections: events written in the application's transactions, and the sinks they go to.",
    invoke_without_command=True,
)
cli.command("work")(work)
cli.command("show")(show)
cli.command("trigger")(trigger)
cli.command("load")(load_events)
cli.command("replay")(replay)
cli.command("rebuild")(rebuild)
cli.command("verify")(verify)
cli.command("search")(search)
COLUMNS = ("projection", "pending", "retries", "processing", "done", "failed", "stuck")


@cli.callback()
def list_all(context: typer.Context, url: Url = None, app: AppName = None, json: Json = False) -> None:
    """Projections: events written in the application's transactions, and the sinks they go to. By itself: all of
    them."""
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
