"""Opens a store for one command, and closes it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from redrive.cli.support.loading import Loaded, load
from redrive.cli.support.options import actor
from redrive.errors import ConfigError, NotFound, StoreUnavailable
from redrive.ops.access import Caller, Role
from redrive.ops.operator import Operator
from redrive.settings import DEFAULT_URL
from redrive.stores import is_sqlite
from redrive.stores.shown import shown_path

T = TypeVar("T")


def operate(
    url: str | None,
    spec: str | None,
    work: Callable[[Operator], Awaitable[T]],
    *,
    by: str | None = None,
    creates: bool = False,
) -> T:
    """Runs ``work`` with an operator of the opened store: whoever can open it is its administrator. ``by`` says who
    acts. Only a command that ``creates`` may bring a SQLite file into being."""
    loaded = load(url, spec)
    refuse_memory(loaded)
    if not creates:
        _insist_on_file(loaded)

    elsewhere = f"is it in another store than {loaded.app.shown_url}?"

    async def use() -> T:
        try:
            return await work(await loaded.app.operator(Caller(actor(by), Role.ADMIN)))
        except NotFound as error:  # looking in the wrong place is likelier than all other reasons
            error.hint = f"{error.hint}; or {elsewhere}" if error.hint else elsewhere
            raise
        finally:
            await loaded.app.close()

    return asyncio.run(use())


def store_named(url: str | None, spec: str | None) -> str:
    """Returns where a command looks, without a password."""
    return load(url, spec).app.shown_url


def refuse_memory(loaded: Loaded) -> None:
    if _sqlite_path(loaded.app.url) == ":memory:":
        raise ConfigError("a database in memory lives only as long as this command", hint="use sqlite:///redrive.db")


def _insist_on_file(loaded: Loaded) -> None:
    """Refuses a SQLite file that is not there: looking for tasks in the wrong directory is a mistake to point out, not
    a reason to make an empty database."""
    url = loaded.app.url
    path = missing_file(url)
    if path is None:
        return
    default, hint = (
        "",
        "name another with --url, or the application that knows it with --app; or make it: redrive migrate",
    )
    if loaded.module is not None:
        hint = "was nothing enqueued yet, or is this another folder? Its first task makes it; or: redrive migrate"
    elif url == DEFAULT_URL:
        default = " (the default: neither --url nor REDRIVE_URL nor --app says another)"
    raise StoreUnavailable(f"there is no SQLite file at {shown_path(path)}{default}", hint=hint)


def missing_file(url: str) -> str | None:
    """Returns where a SQLite file should be and is not."""
    path = _sqlite_path(url)
    return path if path not in (None, ":memory:") and not Path(path).exists() else None


def _sqlite_path(url: str) -> str | None:
    if not is_sqlite(url):
        return None
    from redrive.stores.sqlite.url import parse

    return parse(url).path
