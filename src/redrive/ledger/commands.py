"""``redrive ledger``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from redrive.feature.cli import AppName, By, Json, Url, look_at, operate, output
from redrive.ledger.accounts import Account
from redrive.ledger.service import Ledger

cli = typer.Typer(help="Accounts and money: open, credit, adjust, statements, and the proof that it adds up.")
Name = Annotated[str, typer.Argument(metavar="ACCOUNT", show_default=False)]
Amount = Annotated[
    int, typer.Argument(metavar="AMOUNT", help="A whole number of the smallest unit.", show_default=False)
]
Why = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the books and the audit log.")]
Key = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="Names this movement: sent again, it lands once.")
]


@cli.command("accounts")
def accounts(
    search: Annotated[str, typer.Option("--search", metavar="TEXT", help="Only names that contain this.")] = "",
    after: Annotated[str, typer.Option("--after", metavar="NAME", help="Go on behind this one.")] = "",
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=500)] = 50,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Accounts by name, with what each can spend and what is frozen."""
    looked = look_at(url, app, lambda own: own.of(Ledger).accounts(search, after, limit))
    rows = looked.rows(lambda found: found)
    following = rows[-1][1].name if not looked.everywhere and len(rows) == limit else None
    if json:
        output.emit_list([looked.document(at, document(one)) for at, one in rows], following, **looked.missing)
        return
    if not rows:
        output.say(f"no account{looked.without}; open one: redrive ledger open NAME")
        return
    cells = [(one.name, *looked.cell(at), one.available, one.frozen, one.label or "") for at, one in rows]
    output.table(["account", *looked.column, "#available", "#frozen", "label"], cells)
    if following:
        output.say(f"more: --after {following}")


@cli.command("show")
def show(name: Name, url: Url = None, app: AppName = None, json: Json = False) -> None:
    """One account: what it can spend, and what is frozen for what."""
    _print(operate(url, app, lambda own: own.of(Ledger).show(name)), json)


@cli.command("open")
def open_account(
    name: Name,
    label: Annotated[str | None, typer.Option("--label", metavar="TEXT", help="What people call it.")] = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Open an account; it begins with nothing."""
    _print(operate(url, app, lambda own: own.of(Ledger).open(name, label), by=by, creates=True), json)


@cli.command("credit")
def credit(
    name: Name,
    amount: Amount,
    reason: Why,
    key: Key = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Bring money to an account."""
    _print(operate(url, app, lambda own: own.of(Ledger).credit(name, amount, reason, key), by=by), json)


def document(one: Account) -> dict[str, Any]:
    """Returns an account as ``--json`` has it."""
    return {**asdict(one), "balance": one.balance}


def _print(one: Account, json: bool) -> None:
    if json:
        output.emit(document(one))
    else:
        output.say(f"account {one.name}: {one.available} available, {one.frozen} frozen")
