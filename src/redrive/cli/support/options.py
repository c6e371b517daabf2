"""Options that several commands share, worded once; those that are declared elsewhere, gathered into one argument."""

from __future__ import annotations

import getpass
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from redrive.errors import InvalidInput
from redrive.ops import access
from redrive.ops.given import Parameter
from redrive.ops.people import person

if TYPE_CHECKING:
    from redrive.settings import Setting

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


Command = Callable[..., None]


def option_of(one: Parameter) -> Any:
    """Returns the annotation by which Typer reads what people give; in its place, or as an option."""
    told: dict[str, Any] = {"help": one.given.help, "metavar": one.given.metavar or None}
    if one.given.least is not None:
        told |= {"min": one.given.least, "max": one.given.most}
    if one.positional:
        return Annotated[one.annotation, typer.Argument(**told, show_default=False)]
    return Annotated[one.annotation, typer.Option(one.option, **told)]


def flag_of(name: str) -> str:
    """Returns how an option is typed; each of several queues is one."""
    return "--queue" if name == "queues" else f"--{name.replace('_', '-')}"


def setting_option(one: Setting, text: str) -> Any:
    """Returns the annotation of an option that is declared as a setting."""
    kinds = [kind for kind in get_args(one.kind) or (one.kind,) if kind in (bool, int, float)]
    kind = kinds[0] if kinds else str  # what is neither is read by who declares it
    if kind is bool:
        return Annotated[bool, typer.Option(flag_of(one.field), help=text)]
    bounds: dict[str, Any] = {"min": one.limits.get("ge"), "max": one.limits.get("le")} if kind is int else {}
    typed = list[str] | None if one.field == "queues" else kind | None
    return Annotated[typed, typer.Option(flag_of(one.field), metavar=one.metavar, help=text, **bounds)]


def with_options(
    command: Command, into: str, added: Mapping[str, Any], gather: Callable[[dict[str, Any]], Any]
) -> Command:
    """Returns the command with an option for each of ``added`` (annotations for Typer, by name) in place of its
    argument ``into``, which gets what ``gather`` makes of their values. One that was not given is None."""
    signature = inspect.signature(command, eval_str=True)
    own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for name, p in signature.parameters.items() if name != into]
    new = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in added.items()
    ]
    first = next(iter(signature.parameters)) == into

    def wrapped(**given: Any) -> None:
        gathered = gather({name: given.pop(name) for name in added})
        command(**given, **{into: gathered})

    wrapped.__doc__ = command.__doc__
    wrapped.__name__ = command.__name__
    parameters = [*new, *own] if first else [*own, *new]
    wrapped.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapped


def list_command(cli: typer.Typer, function: Command) -> None:
    """Gives what a group of commands does by itself the name ``list``, too, with the same options."""
    signature = inspect.signature(function, eval_str=True)
    parameters = [p for p in signature.parameters.values() if p.name != "context"]

    def command(**given: Any) -> None:
        function(context=_Alone(), **given)

    command.__doc__ = function.__doc__
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    cli.command("list")(command)


class _Alone:
    """Stands for the context of a group that is called without a subcommand."""

    invoked_subcommand = None


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
