"""Asks before something that reaches many tasks."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from redrive.errors import InvalidInput

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]


def confirm(question: str, yes: bool, also: str = "") -> None:
    """Asks, and ends the command unless the answer is yes. Without a terminal there is nobody to ask, and silence is no
    consent. ``also``: what else will be asked for."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInput(f"{question}: nobody is there to ask", hint=f"say --yes{also}, or look first with --dry-run")
    typer.confirm(question, abort=True, err=True)
