"""Asks the ledger for what a command wants, together with what its amounts are called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer

from redrive.feature import Operator
from redrive.feature.cli import operate
from redrive.ledger.accounts import Account
from redrive.ledger.cli_output import print_account
from redrive.ledger.reversals import Reversals

T = TypeVar("T")
Name = Annotated[str, typer.Argument(metavar="ACCOUNT", show_default=False)]


def with_unit(ask: Callable[[Reversals], Awaitable[T]]) -> Callable[[Operator], Awaitable[tuple[T, str]]]:
    """Returns what asks the ledger for something, and for what its amounts are called."""

    async def run(own: Operator) -> tuple[T, str]:
        ledger = own.of(Reversals)  # all that the ledger does, and reversals
        return await ask(ledger), ledger.unit

    return run


def act(
    url: str | None, app: str | None, by: str | None, json: bool, ask: Callable[[Reversals], Awaitable[Account]]
) -> None:
    """Does something to an account, and prints it as it is then."""
    account, unit = operate(url, app, with_unit(ask), by=by)
    print_account(account, unit, json)
