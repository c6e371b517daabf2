"""What the command line says of accounts and money."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from redrive.feature.cli import output
from redrive.ledger.accounts import Account, Freeze


def document(one: Account) -> dict[str, Any]:
    """Returns an account as ``--json`` has it."""
    return {**asdict(one), "balance": one.balance}


def say(one: Account, unit: str) -> None:
    """Says what an account can spend, and what is frozen."""
    called = f" ({one.label})" if one.label else ""
    output.say(f"account {one.name}{called}: {one.available} {unit} available, {one.frozen} frozen")


def print_account(one: Account, unit: str, json: bool) -> None:
    """Prints an account, for people or as JSON."""
    if json:
        output.emit(document(one))
    else:
        say(one, unit)


def show_freezes(found: Sequence[Freeze], unit: str) -> None:
    """Shows what is frozen, and for what."""
    rows = [(one.account, one.amount, output.ago(one.since), output.ago(one.moved_at), one.reference) for one in found]
    output.table(["account", "#frozen", "since", "last moved", "for"], rows)
    say_unit(unit)


def say_unit(unit: str) -> None:
    """Says what the numbers of a table are."""
    output.say("", f"amounts are {unit}")
