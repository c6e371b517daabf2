"""The option ``--connection`` of every command that looks at a store or acts on it: added to all of them here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Annotated, Any

import typer

# These serve one, are about all of them, or about none.
WITHOUT = ("work", "up", "version", "tokens", "smoke", "drill", "simulate", "providers")
Connection = Annotated[
    str | None,
    typer.Option(
        "--connection",
        metavar="NAME",
        help="A connection of redrive.toml, or all. Without it lists are about all, and what is named by id is found.",
    ),
]
Command = Callable[..., Any]
_chosen: str | None = None


def chosen_connection() -> str | None:
    """Returns the connection that the command line names."""
    return _chosen


def forget_connection() -> None:
    """Forgets what another command of this process was given."""
    global _chosen
    _chosen = None


@contextmanager
def choose(connection: str) -> Iterator[None]:
    """Makes what is done within be about this connection, as if the command line named it."""
    global _chosen
    before, _chosen = _chosen, connection
    try:
        yield
    finally:
        _chosen = before


def add_connection(what: Command | typer.Typer) -> Command | typer.Typer:
    """Returns a command with the option, or a group whose commands have it."""
    if not isinstance(what, typer.Typer):
        return _with_connection(what)
    registered: list[Any] = [*what.registered_commands, what.registered_callback]
    for one in registered:
        if one is not None and one.callback is not None:
            one.callback = _with_connection(one.callback)
    return what


def _with_connection(command: Command) -> Command:
    signature = inspect.signature(command, eval_str=True)
    if "url" not in signature.parameters or "connection" in signature.parameters:
        return command

    @wraps(command)
    def wrapped(*args: Any, connection: str | None = None, **given: Any) -> Any:
        global _chosen
        _chosen = connection or _chosen  # a group may have been given it, too
        return command(*args, **given)

    keyword = inspect.Parameter.KEYWORD_ONLY
    own = [one.replace(kind=keyword) for one in signature.parameters.values()]
    added = inspect.Parameter("connection", keyword, default=None, annotation=Connection)
    own.insert([one.name for one in own].index("url"), added)
    wrapped.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {one.name: one.annotation for one in own}
    return wrapped
