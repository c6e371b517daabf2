"""Opens a store for one command, and closes it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import typer

from redrive.app import App
from redrive.cli.support.connection_option import chosen_connection
from redrive.cli.support.loading import Loaded, load
from redrive.cli.support.options import actor
from redrive.cli.support.output import warn
from redrive.errors import ConfigError, InvalidInput, NotFound, StoreUnavailable
from redrive.ops.access import Caller, Role
from redrive.ops.connections import Look, connection_having
from redrive.ops.operator import Operator
from redrive.settings import ALL, DEFAULT_URL
from redrive.stores import is_sqlite
from redrive.stores.shown import shown_path

T = TypeVar("T")


def operate(
    url: str | None,
    spec: str | None,
    work: Callable[[Operator], Awaitable[T]],
    *,
    by: str | None = None,
    create: bool | None = None,
    on: Callable[[App], str] | None = None,
    ids: Sequence[str] = (),
    has: Look[Sequence[str]] | None = None,
) -> T:
    """Runs ``work`` with an operator of the opened store: whoever can open it is its administrator. ``by`` says who
    acts. Only a command with ``--create`` may bring a SQLite file into being: ``create`` says whether it was given.
    ``on``: the connection, where the command line names none; else the one that has the tasks of these ``ids``, or what
    ``has`` finds; else the default one."""
    loaded = load(url, spec)
    name = named_connection()
    refuse_both(loaded.app, url, name)
    if name is None and on is not None:
        name = on(loaded.app)
        refuse_routed(loaded.app, url, name)
    looked_for = has or (partial(_known, ids) if ids else None)
    finds = looked_for is not None and name is None and url is None and len(loaded.app.connections) > 1
    if chosen_connection() == ALL and not finds and len(loaded.app.connections) > 1:
        raise InvalidInput("this is about one connection", hint="--connection NAME says which")
    served = loaded.app.at(name)
    refuse_memory(loaded, name)
    if name is None and not finds and url is None:
        _say_which(loaded.app)
    if create is not None:
        insist_on_name(loaded, served.url, create)
    elif not finds:
        insist_on_file(loaded, served.url)

    elsewhere = "" if finds else f"is it in another store than {served.shown_url}?"

    async def use() -> T:
        caller = Caller(actor(by), Role.ADMIN)
        try:
            where = name
            if finds and looked_for is not None:
                where = await connection_having(loaded.app.connections, opens(loaded, caller), looked_for)
            return await work(await loaded.app.operator(caller, where))
        except NotFound as error:  # looking in the wrong place is likelier than all other reasons
            error.hint = "; or ".join(filter(None, [error.hint, elsewhere]))
            raise
        finally:
            await loaded.app.close()

    return asyncio.run(use())


async def _known(ids: Sequence[str], own: Operator) -> Sequence[str]:
    return await own.tasks.known(ids)


def named_connection() -> str | None:
    """Returns the one connection that the command line names. ``all`` names none: who acts on each names them in
    turn."""
    name = chosen_connection()
    return None if name == ALL else name


def _say_which(app: App) -> None:
    """Says that a command is about one of several connections: an answer about it is none about the others."""
    own = app.at(None).name
    if others := [name for name in app.connections if name != own]:
        warn(f"this is about the connection {own}; others: {', '.join(others)} (--connection NAME)")


def opens(loaded: Loaded, caller: Caller) -> Callable[[str], Awaitable[Operator]]:
    """Returns what opens a connection for a caller who only looks: a file that is not there is not made."""

    async def operator(name: str) -> Operator:
        insist_on_file(loaded, loaded.app.at(name).url)
        return await loaded.app.operator(caller, name)

    return operator


def store_named(url: str | None, spec: str | None) -> str:
    """Returns where a command looks, without a password."""
    return load(url, spec).app.at(named_connection()).shown_url


def refuse_both(app: App, url: str | None, connection: str | None) -> None:
    """Refuses ``--url`` for another connection than the default one, whose URL it is: it would say nothing."""
    if url is not None and connection is not None and app.at(connection) is not app.at(None):
        raise InvalidInput(
            f"--url is the store of the default connection, {app.at(None).name}, and --connection says {connection}",
            hint="leave one of them out; the URL of a connection is in redrive.toml",
        )


def refuse_routed(app: App, url: str | None, connection: str) -> None:
    """Refuses ``--url`` for what goes to another connection by its route: it would land where nobody said."""
    if url is not None and app.at(connection) is not app.at(None):
        raise InvalidInput(
            f"--url is the store of the default connection, {app.at(None).name}, and the route of this kind says "
            f"{connection}",
            hint=f"leave --url out; or add --connection {app.at(None).name}, which wins over the route",
        )


def refuse_memory(loaded: Loaded, connection: str | None = None) -> None:
    if _sqlite_path(loaded.app.at(connection).url) == ":memory:":
        raise ConfigError("a database in memory lives only as long as this command", hint="use sqlite:///redrive.db")


def insist_on_file(loaded: Loaded, url: str) -> None:
    """Refuses a SQLite file that is not there: looking for tasks in the wrong directory is a mistake to point out, not
    a reason to make an empty database."""
    path = missing_file(url)
    if path is None:
        return
    default, hint = (
        "",
        "name another with --url, or the application that knows it with --app; or make it: redrive migrate --create",
    )
    if loaded.module is not None:
        hint = "was nothing enqueued yet, or is this another folder? Its first task makes it; or: redrive migrate"
    elif url == DEFAULT_URL:
        default = " (the default: neither --url nor REDRIVE_URL nor --app says another)"
    raise StoreUnavailable(f"there is no SQLite file at {shown_path(path)}{default}", hint=hint)


def insist_on_name(loaded: Loaded, url: str, create: bool) -> None:
    """Refuses to make a SQLite file that nobody has named, unless they say so: a command that was typed in another
    folder, or without the application's store, would go on in an empty one."""
    settings = loaded.app.settings
    if create or loaded.module is not None or settings.source_of("url") != "default" or missing_file(url) is None:
        return
    text = f"there is no SQLite file at {shown_path(missing_file(url) or '')}, and nothing names a store"
    if not sys.stdin.isatty():
        raise InvalidInput(text, hint="name it with --url, --app or REDRIVE_URL; or make the file: --create")
    typer.confirm(f"{text} (--url, --app, REDRIVE_URL or redrive.toml would). Make it?", abort=True, err=True)


def missing_file(url: str) -> str | None:
    """Returns where a SQLite file should be and is not."""
    path = _sqlite_path(url)
    return path if path not in (None, ":memory:") and not Path(path).exists() else None


def _sqlite_path(url: str) -> str | None:
    if not is_sqlite(url):
        return None
    from redrive.stores.sqlite.url import parse

    return parse(url).path
