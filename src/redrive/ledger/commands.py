"""``redrive ledger``: looking at accounts; ``move_commands`` has what moves money."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated, TypeVar

import typer

from redrive.feature import Operator
from redrive.feature.cli import AppName, By, Json, Looked, Url, look_at, operate, output
from redrive.ledger.accounts import Account, Freeze
from redrive.ledger.cli_output import document, say, say_unit, show_freezes
from redrive.ledger.cli_service import Name, act, with_unit
from redrive.ledger.move_commands import adjust, capture, credit, freeze, release, reverse
from redrive.ledger.service import Ledger

T = TypeVar("T")
cli = typer.Typer(help="Accounts and money: open, credit, adjust, reverse, statements, and the proof that it adds up.")


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
    looked = look_at(url, app, with_unit(lambda ledger: ledger.accounts(search, after, limit)))
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
        (when, found), unit = operate(url, app, with_unit(lambda ledger: ledger.show_at(name, at)))
        if json:
            output.emit({"name": name, "at": when, "available": found.available, "frozen": found.frozen})
        else:
            had = f"{found.available} {unit} available, {found.frozen} frozen"
            output.say(f"account {name} had {had} at {when:%F %T} UTC")
        return

    async def look(ledger: Ledger) -> tuple[Account, list[Freeze]]:
        return await ledger.show(name), await ledger.frozen(name)

    (account, freezes), unit = operate(url, app, with_unit(look))
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
    act(url, app, by, json, lambda ledger: ledger.open(name, label))


cli.command("credit")(credit)
cli.command("adjust", context_settings={"ignore_unknown_options": True})(adjust)
cli.command("reverse")(reverse)
cli.command("freeze")(freeze)
cli.command("release")(release)
cli.command("capture")(capture)


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
    found, unit = operate(url, app, with_unit(lambda ledger: ledger.statement(name, before, limit, reference)))
    if json:
        output.emit_list([{**asdict(line), "movement": line.movement} for line in found.lines], found.next)
        return
    if not found.lines:
        output.say(f"account {name} has not moved" + (f" for {reference}" if reference else ""))
        return
    head = ["when", "kind", "#available", "#frozen", "#available after", "#frozen after", "reference", "reason"]
    head.append("movement")
    output.table(
        head,
        [
            (
                *(output.when(one.at), one.kind, f"{one.available:+}", f"{one.frozen:+}"),
                *(_after(one.available_after), _after(one.frozen_after), one.reference or "", one.reason or ""),
                one.movement or "",
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
    looked = look_at(url, app, with_unit(lambda ledger: ledger.at_risk(limit)))
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
