"""``redrive outbox``."""

from __future__ import annotations

import json as json_format
from typing import Annotated, Any

import typer

from redrive.feature.cli import AppName, Json, Url, look_at, operate, output
from redrive.outbox.load_command import load_events
from redrive.outbox.rebuild_command import rebuild
from redrive.outbox.replay_command import replay
from redrive.outbox.service import OutboxService
from redrive.outbox.show_command import age, show
from redrive.outbox.trigger_command import trigger
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
COLUMNS = ("projection", "pending", "retries", "processing", "done", "failed", "stuck")
LONGEST_SHOWN = 120


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


@cli.command("search")
def search(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Words that the documents have.")],
    projection: Annotated[
        str | None, typer.Option("--projection", "-p", metavar="NAME", help="Where there are several.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="How many at most.")] = 10,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Search the documents of a projection, where its sink can: full text does."""
    hits = operate(url, app, lambda own: own.of(OutboxService).search(projection, text, limit))
    if json:
        output.emit_list(hits)
        return
    if not hits:
        output.say("nothing found")
        return
    shown = [(hit["key"], f"{hit['score']:.3f}", _short(hit["document"])) for hit in hits]
    output.table(["document", "score", "text"], shown)


def _short(document: Any) -> str:
    text = json_format.dumps(document, ensure_ascii=False)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
