"""Defines options that several commands share, worded once."""

from __future__ import annotations

import getpass
import os
from typing import Annotated

import typer

from redrive.ops import access
from redrive.ops.people import person

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="The store: sqlite:///file.db or postgresql://… "
        "(else REDRIVE_URL, else the app's own, else sqlite:///redrive.db).",
    ),
]
AppName = Annotated[
    str | None,
    typer.Option("--app", metavar="MODULE:APP", help="The application, imported from here (else REDRIVE_APP)."),
]
Create = Annotated[
    bool,
    typer.Option("--create", help="Make sqlite:///redrive.db here, where nothing names a store and there is none."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
By = Annotated[
    str | None,
    typer.Option("--by", metavar="NAME", help="Who acts, for the audit log (else REDRIVE_ACTOR, else the OS user)."),
]
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why, for the audit log.")]
Ids = Annotated[list[str], typer.Argument(metavar="ID", help="Task ids, one or more.")]


def actor(by: str | None) -> str:
    """Returns who is answerable for what this command does."""
    named = by or os.environ.get("REDRIVE_ACTOR")
    if named:
        return access.refuse_reserved(named)
    try:
        user = getpass.getuser()
        # The account of a container is often named like this; in the log it must not look like redrive's own doing.
        return f"os:{user}" if person(user) in access.RESERVED_NAMES else user
    except (KeyError, OSError):  # a container's user without a name
        return f"uid-{os.getuid()}"
