"""``redrive ledger``."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Annotated, TypeVar

import typer

from redrive.cli.support.operation_words import say_asked
from redrive.feature import Operator
from redrive.feature.cli import AppName, By, Json, Looked, Url, look_at, operate, output
from redrive.ledger.accounts import Account, Freeze
from redrive.ledger.cli_output import document, say, say_unit, show_freezes
from redrive.ledger.service import Ledger

T = TypeVar("T")
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
    looked = look_at(url, app, _with_unit(lambda ledger: ledger.accounts(search, after, limit)))
    rows = looked.rows(lambda found: found[0])
    following = rows[-1][1].name if not looked.everywhere and len(rows) == limit else None
    if json:
        output.emit_list([looked.document(at, document(one)) for at, one in rows], following, **looked.missing)
        return
    if not rows:
        output.say(f"no account{looked.without}; open one: redrive ledger open NAME")
        return
    cells = [(one.name, *looked.cell(at), one.available, one.frozen, one.label or "") for at, one in rows]
    output.table(["account", *looked.column, "#available", "#frozen", "label"], cells)
    say_unit(_unit(looked))
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
        (when, found), unit = operate(url, app, _with_unit(lambda ledger: ledger.show_at(name, at)))
        if json:
            output.emit({"name": name, "at": when, "available": found.available, "frozen": found.frozen})
        else:
            had = f"{found.available} {unit} available, {found.frozen} frozen"
            output.say(f"account {name} had {had} at {when:%F %T} UTC")
        return

    async def look(ledger: Ledger) -> tuple[Account, list[Freeze]]:
        return await ledger.show(name), await ledger.frozen(name)

    (account, freezes), unit = operate(url, app, _with_unit(look))
    if json:
        output.emit({**document(account), "freezes": [asdict(one) for one in freezes]})
        return
    say(account, unit)
    if freezes:
        show_freezes(freezes, unit)


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
    _act(url, app, by, json, lambda ledger: ledger.open(name, label))


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
    _act(url, app, by, json, lambda ledger: ledger.credit(name, amount, reason, key))


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
    """Put an account right, by more or less; never below zero. Much of it waits for a second person."""
    done, unit = operate(url, app, _with_unit(lambda ledger: ledger.adjust(name, change, reason, key)), by=by)
    if done.approval is None:
        _print(done.account, unit, json)
    else:
        say_asked(done.approval, json)


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
    _act(url, app, by, json, lambda ledger: ledger.freeze(name, amount, reference, reason, key))


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
    _act(url, app, by, json, lambda ledger: ledger.release(name, reference, reason, amount, key))


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
    _act(url, app, by, json, lambda ledger: ledger.capture(name, reference, reason, amount, key))


@cli.command("statement")
def statement(
    name: Name,
    before: Annotated[str | None, typer.Option("--before", metavar="NEXT", help="Go on from this page's next.")] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=500)] = 50,
    as_csv: Annotated[bool, typer.Option("--csv", help="All of it as CSV, the oldest first.")] = False,
    since: Annotated[str | None, typer.Option("--since", metavar="TIME", help="Of a CSV: from then on.")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Of a CSV: until then.")] = None,
    reference: Annotated[
        str | None, typer.Option("--for", metavar="REFERENCE", help="Only those for one thing: batch:ID.")
    ] = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """The movements of an account, the latest first, with what it had after each."""
    if as_csv:
        _write_csv(url, app, name, since, until)
        return
    found, unit = operate(url, app, _with_unit(lambda ledger: ledger.statement(name, before, limit, reference)))
    if json:
        output.emit_list([asdict(line) for line in found.lines], found.next)
        return
    if not found.lines:
        output.say(f"account {name} has not moved" + (f" for {reference}" if reference else ""))
        return
    head = ["when", "kind", "#available", "#frozen", "#available after", "#frozen after", "reference", "reason"]
    output.table(
        head,
        [
            (
                *(output.when(one.at), one.kind, f"{one.available:+}", f"{one.frozen:+}"),
                *(_after(one.available_after), _after(one.frozen_after), one.reference or "", one.reason or ""),
            )
            for one in found.lines
        ],
    )
    say_unit(unit)
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
    looked = look_at(url, app, _with_unit(lambda ledger: ledger.at_risk(limit)))
    rows = looked.rows(lambda found: found[0])
    if json:
        output.emit_list([looked.document(at, asdict(one)) for at, one in rows], **looked.missing)
    elif rows:
        show_freezes([one for _, one in rows], _unit(looked))
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


def _after(amount: int | None) -> int | str:
    return "" if amount is None else amount


def _write_csv(url: str | None, app: str | None, name: str, since: str | None, until: str | None) -> None:
    async def write(own: Operator) -> None:
        async for line in await own.of(Ledger).export(name, since, until):
            sys.stdout.write(line)

    operate(url, app, write)


def _unit(looked: Looked[tuple[T, str]]) -> str:
    return next(unit for _, unit in looked.found.values())


def _with_unit(act: Callable[[Ledger], Awaitable[T]]) -> Callable[[Operator], Awaitable[tuple[T, str]]]:
    """Returns what asks the ledger for something, and for what its amounts are called."""

    async def run(own: Operator) -> tuple[T, str]:
        ledger = own.of(Ledger)
        return await act(ledger), ledger.unit

    return run


def _act(
    url: str | None, app: str | None, by: str | None, json: bool, act: Callable[[Ledger], Awaitable[Account]]
) -> None:
    """Does something to an account, and prints it as it is then."""
    account, unit = operate(url, app, _with_unit(act), by=by)
    _print(account, unit, json)


def _print(one: Account, unit: str, json: bool) -> None:
    if json:
        output.emit(document(one))
    else:
        say(one, unit)
