"""``redrive outbox trigger``: prints the trigger that projects a table."""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.feature.cli import AppName, Json, Url, operate, output
from redrive.outbox.triggers.service import TriggerService
from redrive.outbox.triggers.table_mapping import SEQUENCE

Table = Annotated[str, typer.Argument(metavar="TABLE", help="A table in the store's database; also SCHEMA.TABLE.")]
Projection = Annotated[str, typer.Option("--projection", "-p", metavar="NAME", help="Where its rows go.")]
EntityType = Annotated[
    str | None, typer.Option("--entity-type", metavar="NAME", help="What a row is called in events (else the table).")
]
Id = Annotated[str | None, typer.Option("--id", metavar="COLUMN", help="What tells rows apart (else the primary key).")]
Version = Annotated[
    str,
    typer.Option(
        "--version",
        metavar="COLUMN",
        help="A whole number that grows with each update; 'sequence': the trigger counts in a table of its own.",
    ),
]
Columns = Annotated[
    str | None, typer.Option("--columns", metavar="A,B", help="What the document has (else all columns).")
]


def trigger(
    table: Table,
    projection: Projection,
    entity_type: EntityType = None,
    id: Id = None,
    version: Version = SEQUENCE,
    columns: Columns = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Print a trigger that projects a table, with no change to the application. It is printed, not run: review it, and
    give it to psql or sqlite3."""
    chosen = [one.strip() for one in columns.split(",")] if columns else None
    text = operate(
        url,
        app,
        lambda own: own.of(TriggerService).script(
            table, projection, entity_type=entity_type, id=id, version=version, columns=chosen
        ),
    )
    if json:
        output.emit({"sql": text})
        return
    then = f"-- Then, for the rows that are there already, and with a worker: redrive outbox rebuild {projection}"
    output.say(text.rstrip(), then)
