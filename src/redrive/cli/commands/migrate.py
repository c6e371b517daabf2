"""``redrive migrate``: the store's schema."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

import typer

from redrive.app import App
from redrive.cli.support import output
from redrive.cli.support.loading import load
from redrive.cli.support.options import AppName, Create, Json, Url
from redrive.cli.support.session import insist_on_name, missing_file, named_connection, refuse_memory
from redrive.errors import InvalidInput, StoreError
from redrive.kernel.ports.store import SchemaStatus, Store
from redrive.stores import make_store, shown_url

To = Annotated[
    int | None, typer.Option("--to", metavar="N", min=0, help="Stop at this version; the latest without it.")
]
Down = Annotated[
    bool, typer.Option("--down", help="Go back, to the version given by --to. Removes what newer versions added.")
]
Sql = Annotated[
    bool,
    typer.Option("--sql", help="Print the statements, from nothing (--down: from the latest), and change nothing."),
]
Status = Annotated[bool, typer.Option("--status", help="Show where the store stands and change nothing.")]
Producer = Annotated[
    str | None, typer.Option("--grant-producer", metavar="ROLE", help="Let a PostgreSQL role enqueue, nothing else.")
]
Worker = Annotated[
    str | None, typer.Option("--grant-worker", metavar="ROLE", help="Let a PostgreSQL role run workers.")
]
Api = Annotated[
    str | None,
    typer.Option(
        "--grant-api", metavar="ROLE", help="Let a PostgreSQL role serve the API and operate: tokens, approvals."
    ),
]
Viewer = Annotated[
    str | None,
    typer.Option("--grant-viewer", metavar="ROLE", help="Let a PostgreSQL role look at the views, without payloads."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Agree to --down --to 0, which removes every task.")]


def migrate(
    to: To = None,
    down: Down = False,
    sql: Sql = False,
    status: Status = False,
    grant_producer: Producer = None,
    grant_worker: Worker = None,
    grant_api: Api = None,
    grant_viewer: Viewer = None,
    yes: Yes = False,
    url: Url = None,
    app: AppName = None,
    create: Create = False,
    json: Json = False,
) -> None:
    """Bring the store's schema up to date; of several connections, all. Safe while workers run, and from many hosts at
    once."""
    roles = {"producer": grant_producer, "worker": grant_worker, "api": grant_api, "viewer": grant_viewer}
    granted = {what: role for what, role in roles.items() if role}
    _check(to, down, sql, status, grants=bool(granted))
    loaded = load(url, app)
    names = _which(loaded.app, one=bool(url or sql or down or granted or to is not None))
    if down and to == 0 and not yes and not sql:
        raise InvalidInput("going down to version 0 removes every task of this store", hint="add --yes to agree")
    told: dict[str, Any] = {}
    for name in names:
        refuse_memory(loaded, name)
        where = loaded.app.at(name).url
        # Looking at a SQLite file that is not there must not make it: what is empty in memory answers the same.
        unborn = status and missing_file(where) is not None
        if not status and not sql:
            insist_on_name(loaded, where, create or yes)
        store = make_store("sqlite:///:memory:" if unborn else where, loaded.app.features)
        if sql:
            text = store.migrations.sql(down=down, to=to)
            output.emit({"sql": text}) if json else output.say(text.rstrip())
            return
        told[name] = found = asyncio.run(_run(store, to, down, status, granted))
        if not json:
            _print(found, shown_url(where))
            if status:
                _print_steps(found)
    if json:
        output.emit(told if len(names) > 1 else told[names[0]])


def _which(app: App, *, one: bool) -> list[str]:
    """Returns the connections that are meant: the one that was named, else all; ``one``: else the default one."""
    named = named_connection()
    if named is not None or one:
        return [app.at(named).name]
    return list(app.connections)


def _check(to: int | None, down: bool, sql: bool, status: bool, *, grants: bool) -> None:
    if down and to is None and not sql:
        raise typer.BadParameter("--down needs --to: say how far to go back")
    if status and (sql or down or grants or to is not None):
        raise typer.BadParameter("--status only looks; leave out the other options")
    if grants and (sql or down):
        raise typer.BadParameter(f"grants are made by migrating up; they do not go with {'--sql' if sql else '--down'}")


async def _run(store: Store, to: int | None, down: bool, status: bool, granted: dict[str, str]) -> dict[str, Any]:
    try:
        steps: list[str] = []
        if not status:
            await _check_direction(store, to, down)
            steps = await (store.migrations.down(to or 0) if down else store.migrations.up(to))
            if granted:
                await _grant(store, granted)
        found = await store.migrations.status()
        # Of features that nobody named here: nothing says how their tables go.
        left = [feature for feature, applied in found.features.items() if applied] if down and to == 0 else []
        revoked = getattr(store.migrations, "revoked", {})
        return {**_document(found), "steps": steps, "granted": granted, "revoked": revoked, "down": down, "left": left}
    finally:
        await store.close()


def _document(found: SchemaStatus) -> dict[str, Any]:
    features = {feature: _steps(applied) for feature, applied in found.features.items()}
    return {**asdict(found), "applied": _steps(found.applied), "features": features}


def _steps(applied: Sequence[tuple[int, str, datetime]]) -> list[dict[str, Any]]:
    return [{"version": version, "name": name, "applied_at": at} for version, name, at in applied]


async def _check_direction(store: Store, to: int | None, down: bool) -> None:
    found: SchemaStatus = await store.migrations.status()
    if to is not None and not down and to < found.version:
        raise InvalidInput(f"the store is at version {found.version}, past {to}", hint=f"to go back: --down --to {to}")


async def _grant(store: Store, granted: dict[str, str]) -> None:
    grant = getattr(store.migrations, "grant", None)
    if grant is None:
        raise InvalidInput("this store has no roles to grant to", hint="grants are for PostgreSQL")
    try:
        await grant(**granted)
    except StoreError as error:
        error.hint = error.hint or "the role must exist (create role NAME login), and granting takes the schema's owner"
        raise


def _print(found: dict[str, Any], where: str) -> None:
    output.say(*(f"{'removed' if found['down'] else 'applied'} {step}" for step in found["steps"]))
    output.say(*(f"granted {what} rights to {role}" for what, role in found["granted"].items()))
    output.say(*(f"taken from the role {role}: {', '.join(rights)}" for role, rights in found["revoked"].items()))
    output.say(f"{where}: schema version {found['version']} of {found['latest']}{_standing(found)}")
    for step in found["pending"]:
        output.say(f"pending {step}")
    if found["left"]:
        output.say(
            f"left with their rows: the tables of {', '.join(found['left'])}, which this command does not know; "
            "--down --to 0 --app NAME of an application with these features removes them"
        )


def _print_steps(found: dict[str, Any]) -> None:
    lines = {"redrive": found["applied"], **found["features"]}
    rows = [
        (owner, step["version"], step["name"], output.when(step["applied_at"]))
        for owner, steps in lines.items()
        for step in steps
    ]
    if rows:
        output.table(["of", "#version", "name", "applied"], rows)


def _standing(found: dict[str, Any]) -> str:
    if found["version"] > found["latest"]:
        return ", newer than this redrive"
    return "" if found["pending"] else ", up to date"
