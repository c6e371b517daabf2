"""``redrive ledger``."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer

from redrive.feature import Operator
from redrive.feature.cli import AppName, By, Json, Url, look_at, operate, output
from redrive.ledger.accounts import Account, Freeze
from redrive.ledger.service import Ledger

cli = typer.Typer(help="Accounts and money: open, credit, adjust, statements, and the proof that it adds up.")
Name = Annotated[str, typer.Argument(metavar="ACCOUNT", show_default=False)]
Amount = Annotated[
    int, typer.Argument(metavar="AMOUNT", help="A whole number of the smallest unit.", show_default=False)
]
Why = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the audit log.")]
Key = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="Names this movement: sent again, it lands once.")
]
Reference = Annotated[
    str, typer.Option("--for", metavar="REFERENCE", help="What it is frozen for: batch:ID, or a name of your own.")
]
Part = Annotated[int | None, typer.Option("--amount", metavar="AMOUNT", help="A part of it; else all.")]


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
def show(
    name: Name,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="What it had then: 2026-01-31T12:00:00Z, or 2h: ago.")
    ] = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """One account: what it can spend, and what is frozen for what; now, or at a time."""
    if at is not None:
        when, found = operate(url, app, lambda own: own.of(Ledger).show_at(name, at))
        if json:
            output.emit({"name": name, "at": when, "available": found.available, "frozen": found.frozen})
        else:
            output.say(f"account {name} had {found.available} available, {found.frozen} frozen at {when:%F %T} UTC")
        return

    async def look(own: Operator) -> tuple[Account, list[Freeze]]:
        return await own.of(Ledger).show(name), await own.of(Ledger).frozen(name)

    account, freezes = operate(url, app, look)
    if json:
        output.emit({**document(account), "freezes": [asdict(one) for one in freezes]})
        return
    _say(account)
    if freezes:
        _freezes(freezes)


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
    _print(operate(url, app, lambda own: own.of(Ledger).open(name, label), by=by), json)


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


@cli.command("adjust", context_settings={"ignore_unknown_options": True})
def adjust(
    name: Name,
    change: Annotated[
        int, typer.Argument(metavar="CHANGE", help="+5 or -5, in the smallest unit.", show_default=False)
    ],
    reason: Why,
    key: Key = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Put an account right, by more or less; never below zero."""
    _print(operate(url, app, lambda own: own.of(Ledger).adjust(name, change, reason, key), by=by), json)


@cli.command("freeze")
def freeze(
    name: Name,
    amount: Amount,
    reference: Reference,
    reason: Why,
    key: Key = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Freeze money of an account for some work."""
    _print(operate(url, app, lambda own: own.of(Ledger).freeze(name, amount, reference, reason, key), by=by), json)


@cli.command("release")
def release(
    name: Name,
    reference: Reference,
    reason: Why,
    amount: Part = None,
    key: Key = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Give back what is frozen for some work."""
    _print(operate(url, app, lambda own: own.of(Ledger).release(name, reference, reason, amount, key), by=by), json)


@cli.command("capture")
def capture(
    name: Name,
    reference: Reference,
    reason: Why,
    amount: Part = None,
    key: Key = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Take what is frozen for some work as earned."""
    _print(operate(url, app, lambda own: own.of(Ledger).capture(name, reference, reason, amount, key), by=by), json)


@cli.command("statement")
def statement(
    name: Name,
    before: Annotated[str | None, typer.Option("--before", metavar="NEXT", help="Go on from this page's next.")] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=500)] = 50,
    as_csv: Annotated[bool, typer.Option("--csv", help="All of it as CSV, the oldest first.")] = False,
    since: Annotated[str | None, typer.Option("--since", metavar="TIME", help="Of a CSV: from then on.")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Of a CSV: until then.")] = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """The movements of an account, the latest first, with what it had after each."""
    if as_csv:
        _write_csv(url, app, name, since, until)
        return
    found = operate(url, app, lambda own: own.of(Ledger).statement(name, before, limit))
    if json:
        output.emit_list([asdict(line) for line in found.lines], found.next)
        return
    if not found.lines:
        output.say(f"account {name} has not moved")
        return
    head = ["when", "kind", "#available", "#frozen", "#available after", "#frozen after", "reference", "reason"]
    output.table(
        head,
        [
            (
                *(output.when(one.at), one.kind, f"{one.available:+}", f"{one.frozen:+}"),
                *(one.available_after, one.frozen_after, one.reference or "", one.reason or ""),
            )
            for one in found.lines
        ],
    )
    if found.next:
        output.say(f"more: --before {found.next}")


@cli.command("at-risk")
def at_risk(
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=500)] = 50,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Money that is frozen for work that does not move, the largest amounts first."""
    looked = look_at(url, app, lambda own: own.of(Ledger).at_risk(limit))
    rows = looked.rows(lambda found: found)
    if json:
        output.emit_list([looked.document(at, asdict(one)) for at, one in rows], **looked.missing)
    elif rows:
        _freezes([one for _, one in rows])
    else:
        output.say(f"no money is at risk{looked.without}")


@cli.command("verify")
def verify(url: Url = None, app: AppName = None, json: Json = False) -> None:
    """Prove that the books are right: postings add up, accounts have what their entries say, none is below zero."""
    found = operate(url, app, lambda own: own.of(Ledger).verify())
    if json:
        output.emit({**asdict(found), "ok": found.ok})
    else:
        for one in found.problems:
            output.say(f"{one.what} {one.name}: {one.text}")
        if found.wrong > len(found.problems):
            output.say(f"and {found.wrong - len(found.problems)} more")
        looked = f"{found.postings} postings and {found.accounts} accounts, by {', '.join(found.checks)}"
        output.say(f"the books are right: {looked}" if found.ok else f"{found.wrong} WRONG of {looked}")
    raise typer.Exit(0 if found.ok else 1)


def document(one: Account) -> dict[str, Any]:
    """Returns an account as ``--json`` has it."""
    return {**asdict(one), "balance": one.balance}


def _write_csv(url: str | None, app: str | None, name: str, since: str | None, until: str | None) -> None:
    async def write(own: Operator) -> None:
        async for line in await own.of(Ledger).export(name, since, until):
            sys.stdout.write(line)

    operate(url, app, write)


def _print(one: Account, json: bool) -> None:
    if json:
        output.emit(document(one))
    else:
        _say(one)


def _say(one: Account) -> None:
    called = f" ({one.label})" if one.label else ""
    output.say(f"account {one.name}{called}: {one.available} available, {one.frozen} frozen")


def _freezes(found: list[Freeze]) -> None:
    rows = [(one.account, one.amount, output.ago(one.since), output.ago(one.moved_at), one.reference) for one in found]
    output.table(["account", "#frozen", "since", "last moved", "for"], rows)
