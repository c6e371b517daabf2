"""Keeps what makes failures on purpose away from production, unless it is told so twice."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from redrive.cli.support.http_client import Client
from redrive.errors import InvalidInput, RedriveError
from redrive.settings import load_settings

PRODUCTION = "production"
InProduction = Annotated[
    bool, typer.Option("--in-production", help="Also where REDRIVE_ENV is production; it asks once more.")
]


def refuse_production(
    what: str, client: Client | None, told: bool, yes: bool, *, does: str = "makes tasks fail on purpose"
) -> None:
    """Refuses where this command, or the instance it is about to use, is in production: the first word is the option,
    the second the answer to a question, or ``--yes``."""
    if PRODUCTION not in (load_settings().env, None if client is None else _env_of(client)):
        return
    if not told:
        raise InvalidInput(
            f"this is production, and {what} {does}",
            hint="if that is meant: --in-production, and --yes where nobody can be asked",
        )
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInput(f"{what} in production: nobody is there to ask", hint="if that is meant, say --yes as well")
    typer.confirm(f"{what} {does}, in production. Go on?", abort=True, err=True)


def _env_of(client: Client) -> str | None:
    """Returns where an instance says that it is; None where it says nothing."""
    try:
        found = client.get("/healthz").get("env")
    except (RedriveError, AttributeError):
        return None
    return found if isinstance(found, str) else None
