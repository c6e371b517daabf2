"""``redrive migrate``: the store's schema."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated, Any

import typer

from redrive.cli import output
from redrive.cli.loading import load
from redrive.cli.options import AppName, Json, Url
from redrive.cli.session import refuse_memory
from redrive.errors import InvalidInput
from redrive.kernel.store import SchemaStatus, Store
from redrive.stores import make_store

To = Annotated[int | None, typer.Option("--to", metavar="N", help="Stop at this version.")]
Down = Annotated[bool, typer.Option("--down", help="Go back, to the version given by --to.")]
Sql = Annotated[bool, typer.Option("--sql", help="Print the statements and change nothing.")]
Status = Annotated[bool, typer.Option("--status", help="Show where the store stands and change nothing.")]
Producer = Annotated[
    str | None, typer.Option("--grant-producer", metavar="ROLE", help="Let a PostgreSQL role enqueue, nothing else.")
]
Worker = Annotated[
    str | None, typer.Option("--grant-worker", metavar="ROLE", help="Let a PostgreSQL role run workers and operate.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Agree to --down --to 0, which removes every task.")]


def migrate(
    to: To = None, down: Down = False, sql: Sql = False, status: Status = False, grant_producer: Producer = None,
    grant_worker: Worker = None, yes: Yes = False, url: Url = None, app: AppName = None, json: Json = False,
) -> None:  # fmt: skip
    """Bring the store's schema up to date. Safe while workers run, and from many hosts at once."""
    _check(to, down, sql, status)
    loaded = load(url, app)
    refuse_memory(loaded)
    store = make_store(loaded.app.url)
    if sql:
        text = store.migrations.sql(down=down, to=to)
        output.emit({"sql": text}) if json else output.say(text.rstrip())
        return
    if down and to == 0 and not yes:
        raise InvalidInput("going down to version 0 removes every task of this store", hint="add --yes to agree")
    found = asyncio.run(_run(store, to, down, status, grant_producer, grant_worker))
    if json:
        output.emit(found)
    else:
        _print(found, output.shown_url(loaded.app.url))
        if status and found["applied"]:
            rows = [(number, name, output.when(at)) for number, name, at in found["applied"]]
            output.table(["#version", "name", "applied"], rows)


def _check(to: int | None, down: bool, sql: bool, status: bool) -> None:
    if down and to is None and not sql:
        raise typer.BadParameter("--down needs --to: say how far to go back")
    if status and (sql or down or to is not None):
        raise typer.BadParameter("--status only looks; leave out the other options")


async def _run(
    store: Store, to: int | None, down: bool, status: bool, producer: str | None, worker: str | None
) -> dict[str, Any]:
    try:
        steps: list[str] = []
        if not status:
            await _check_direction(store, to, down)
            steps = await (store.migrations.down(to or 0) if down else store.migrations.up(to))
            if producer or worker:
                await _grant(store, producer, worker)
        granted = {name: role for name, role in (("producer", producer), ("worker", worker)) if role and not status}
        return {**asdict(await store.migrations.status()), "steps": steps, "granted": granted, "down": down}
    finally:
        await store.close()


async def _check_direction(store: Store, to: int | None, down: bool) -> None:
    found: SchemaStatus = await store.migrations.status()
    if to is not None and not down and to < found.version:
        raise InvalidInput(f"the store is at version {found.version}, past {to}", hint=f"to go back: --down --to {to}")


async def _grant(store: Store, producer: str | None, worker: str | None) -> None:
    grant = getattr(store.migrations, "grant", None)
    if grant is None:
        raise InvalidInput("this store has no roles to grant to", hint="grants are for PostgreSQL")
    await grant(producer=producer, worker=worker)


def _print(found: dict[str, Any], where: str) -> None:
    output.say(*(f"{'removed' if found['down'] else 'applied'} {step}" for step in found["steps"]))
    output.say(*(f"granted {what} rights to {role}" for what, role in found["granted"].items()))
    output.say(f"{where}: schema version {found['version']} of {found['latest']}")
    for step in found["pending"]:
        output.say(f"pending {step}")
