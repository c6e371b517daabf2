"""Gives commands options that are declared elsewhere, gathered into one argument."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import typer

Command = Callable[..., None]


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
