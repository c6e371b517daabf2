"""Adds ``--kind``, ``--error-code`` and the like to commands: which tasks they are about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from redrive.cli.support.options import Command, with_options
from redrive.kernel.failure_filter import FailureFilter
from redrive.ops import failures
from redrive.ops.filters import FAILURE_FILTERS, FILTERS, Filter


def filtered(command: Command) -> Command:
    """Gives a command all filters as options; it gets them as one ``which``."""
    return _with(command, FAILURE_FILTERS, failures.parse_filter)


def filtered_by(*fields: str) -> Callable[[Command], Command]:
    """Gives a command only these filters as options."""
    return lambda command: _with(command, [one for one in FILTERS if one.field in fields], failures.parse_filter)


def labelled(command: Command) -> Command:
    """Gives a command the filters of all tasks as options, not only of failed ones."""
    return _with(command, FILTERS, failures.parse_filter)


def of_audit(command: Command) -> Command:
    """Gives a command the filters of audit rows as options."""
    from redrive.ops.audit import AUDIT_FILTERS, make_audit

    return _with(command, AUDIT_FILTERS, make_audit)


def _with(command: Command, filters: Sequence[Filter], made: Callable[..., Any]) -> Command:
    added = {one.field: _option(one) for one in filters}
    return with_options(command, "which", added, lambda given: made(**given))


def _option(one: Filter) -> Any:
    panel = "Which tasks"
    return Annotated[str | None, typer.Option(one.option, metavar=one.metavar, help=one.help, rich_help_panel=panel)]


Forgotten = Annotated[
    bool,
    typer.Option("--forgotten", help="Also what was forgotten or purged.", rich_help_panel="Which tasks"),
]


def filter_text(which: FailureFilter) -> str:
    """Returns a filter in words."""
    given = [
        f"{one.words} {getattr(which, one.field)}" for one in FAILURE_FILTERS if getattr(which, one.field) is not None
    ]
    return (", ".join(given) or "all failures") + (", with what was forgotten" if which.forgotten else "")


def matches_text(which: FailureFilter, cancelled: int) -> str:
    """A filter for people, and how many of what it matches are cancelled."""
    return filter_text(which) + (f"; {cancelled} of them cancelled" if cancelled else "")
