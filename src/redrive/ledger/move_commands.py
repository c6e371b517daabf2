"""``redrive ledger credit``, ``adjust``, ``reverse``, ``freeze``, ``release`` and ``capture``: what moves money."""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.cli.support.operation_words import say_asked
from redrive.feature.cli import AppName, By, Json, Url, operate
from redrive.ledger.cli_output import print_account
from redrive.ledger.cli_service import Name, act, with_unit
from redrive.ledger.service import Adjusted

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
    """Bring money to an account. Much of it waits for a second person."""
    _say(*operate(url, app, with_unit(lambda ledger: ledger.credit(name, amount, reason, key)), by=by), json)


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
    _say(*operate(url, app, with_unit(lambda ledger: ledger.adjust(name, change, reason, key)), by=by), json)


def reverse(
    movement: Annotated[
        str, typer.Argument(metavar="MOVEMENT", help="As the statement names it: credit:KEY.", show_default=False)
    ],
    reason: Why,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Undo a credit or an adjustment, once, by a movement of its own. Much of it waits for a second person."""
    _say(*operate(url, app, with_unit(lambda ledger: ledger.reverse(movement, reason)), by=by), json)


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
    act(url, app, by, json, lambda ledger: ledger.freeze(name, amount, reference, reason, key))


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
    act(url, app, by, json, lambda ledger: ledger.release(name, reference, reason, amount, key))


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
    act(url, app, by, json, lambda ledger: ledger.capture(name, reference, reason, amount, key))


def _say(done: Adjusted, unit: str, json: bool) -> None:
    """Says what an account has now, or that its change waits for a second person."""
    if done.approval is None:
        print_account(done.account, unit, json)
    else:
        say_asked(done.approval, json)
